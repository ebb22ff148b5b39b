"""The oldest form of checkpoints (before PyTorch 0.1.10): a tar archive of three files.

`storages`: their number, then for each a pickle (key, location, storage type), the number of
elements in 8 bytes and the elements; last a pickle of views (key, key of the root, offset, number
of elements). `tensors`: their number, then for each a pickle (key, storage's key, tensor type), the
number of dimensions in 8 bytes, sizes, strides and offset. `pickle`: the object, whose tensors and
storages are persistent ids. Only files that the caller trusts are read, as in PyTorch.
"""

from __future__ import annotations

import struct
from typing import Any

from flambeau.serialization.archives import Restore, dtype_of, trusted, typed
from flambeau.serialization.legacy import Cursor, all_bytes
from flambeau.serialization.rebuild import storage_and_dtype
from flambeau.serialization.sources import Source, check_sizes, damaged, view

__all__ = ["is_tar", "read"]

_BLOCK = 512
_MARK = slice(257, 262)
_PLAIN_FILES = (b"0", b"\0")


def is_tar(start: bytes) -> bool:
    """Whether a file that begins with these bytes is a tar archive."""
    return start[_MARK] == b"ustar"


def read(
    source: Source, restore: Restore, weights_only: bool, module: Any, load_args: dict[str, Any]
) -> Any:
    """The object of a file; see `archives.read`.

    Raises:
        RuntimeError: the file is not trusted, or damaged.
    """
    if weights_only:
        raise RuntimeError(
            "[load] Cannot use ``weights_only=True`` with files saved in the legacy .tar format\n"
            "hint: weights_only=False, for files from a trusted source only"
        )
    members = _members(source)
    missing = {"storages", "tensors", "pickle"} - members.keys()
    if missing:
        raise damaged(f"the archive has no file {min(missing)!r}")
    session = _Session(source, restore, module, load_args)
    session.read_storages(*members["storages"])
    session.read_tensors(*members["tensors"])
    begin, end = members["pickle"]
    result = session.unpickle(source.read(begin, end), session.persistent_load)
    source.finish(source.size)
    return result


def _members(source: Source) -> dict[str, tuple[int, int]]:
    """Where the files of the archive begin and end."""
    members: dict[str, tuple[int, int]] = {}
    position = 0
    while position + _BLOCK <= source.size:
        header = source.read(position, position + _BLOCK)
        if not any(header):
            break
        size = _size(header[124:136])
        begin = position + _BLOCK
        if begin + size > source.size:
            raise damaged("a file of the archive is cut off")
        if header[156:157] in _PLAIN_FILES:
            name = header[:100].rstrip(b"\0").decode("utf-8", "replace")
            members[name.removeprefix("./")] = begin, begin + size
        position = begin + -(-size // _BLOCK) * _BLOCK
    return members


def _size(field: bytes) -> int:
    """A number of a header: octal digits, or bytes where those do not suffice."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError as error:
        raise damaged("a file of the archive has no size") from error


class _Session:
    """Storages and tensors of a file, by their keys."""

    def __init__(self, source: Source, restore: Restore, module: Any, args: dict[str, Any]) -> None:
        self.source, self.restore, self.module, self.args = source, restore, module, args
        self.data = all_bytes(source)
        self.objects: dict[Any, Any] = {}

    def unpickle(self, file: Any, persistent_load: Any = None) -> Any:
        """The next object of a pickle, or of a cursor."""
        return trusted(file, persistent_load, None, self.module, self.args)

    def read_storages(self, begin: int, end: int) -> None:
        """Reads all storages."""
        cursor = Cursor(self.data, begin)
        for _ in range(_count(self.unpickle(cursor))):
            key, location, storage_type = _parts(self.unpickle(cursor), 3)
            dtype = dtype_of(storage_type)
            [count] = _numbers(cursor, 1)
            first = cursor.position
            cursor.position += count * (1 if dtype is None else dtype.itemsize)
            if count < 0 or cursor.position > end:
                raise damaged("a storage is cut off")
            storage = self.source.storage(first, cursor.position)
            self.objects[key] = typed(self.restore(storage, location), dtype)
        views = self.unpickle(cursor)
        for entry in views if isinstance(views, list) else ():
            key, root, offset, count = _parts(entry, 4)
            check_sizes((offset, count), "a part of a storage")
            storage = self.objects.get(root)
            if storage is None or offset + count > storage.size():
                raise damaged("a part of a storage reaches beyond it")
            untyped, dtype = storage_and_dtype(storage)
            width = storage.element_size()
            part = untyped[offset * width : (offset + count) * width]
            self.objects[key] = typed(part, dtype)

    def read_tensors(self, begin: int, end: int) -> None:
        """Makes all tensors."""
        cursor = Cursor(self.data, begin)
        for _ in range(_count(self.unpickle(cursor))):
            key, storage, _ = _parts(self.unpickle(cursor), 3)
            [ndim] = struct.unpack("<i4x", _exactly(cursor, 8))
            if not 0 <= ndim <= 64 or storage not in self.objects:
                raise damaged("a tensor has no storage, or too many dimensions")
            shape, stride = _numbers(cursor, ndim), _numbers(cursor, ndim)
            [offset] = check_sizes(_numbers(cursor, 1), "storage offset")
            untyped, dtype = storage_and_dtype(self.objects[storage])
            sizes, strides = check_sizes(shape, "size"), check_sizes(stride, "stride")
            self.objects[key] = view(untyped, dtype, offset, sizes, strides)

    def persistent_load(self, pid: Any) -> Any:
        """The tensor, storage or class that a persistent id names."""
        if isinstance(pid, tuple) and pid:  # a class, and its source
            return pid[0]
        key = int(pid) if isinstance(pid, (int, str)) else None
        if key not in self.objects:
            raise damaged("it refers to a tensor that it does not hold")
        return self.objects[key]


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise damaged("the archive has no number of objects")
    return value


def _parts(value: Any, count: int) -> tuple[Any, ...]:
    if not isinstance(value, tuple) or len(value) != count:
        raise damaged("an object of the archive has the wrong parts")
    return value


def _numbers(cursor: Cursor, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}q", _exactly(cursor, 8 * count))


def _exactly(cursor: Cursor, count: int) -> bytes:
    data = cursor.read(count)
    if data is None or len(data) != count:
        raise damaged("it ends too early")
    return data
