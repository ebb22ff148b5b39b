"""PyTorch's form of checkpoints before zip archives: pickles, then the bytes of storages.

One behind the other: a magic number, a version, facts about the machine, the object, the keys of
its storages (five pickles), then for each key the number of elements and the elements.
"""

from __future__ import annotations

import io
import mmap as mapping
import pickle
import sys
from typing import Any

from flambeau.ir.failure import failure
from flambeau.serialization.archives import (
    Restore,
    contents,
    dtype_of,
    storage_reference,
    trusted,
    typed,
)
from flambeau.serialization.pickling import Storages, pickled
from flambeau.serialization.sources import Source, damaged, swapped
from flambeau.serialization.unpickler import Scanner, Unpickler

__all__ = ["read", "write"]

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
_CHUNK = 2**26


# ------------------------------------------------------------------------------ writing
def write(obj: Any, file: Any, module: Any, protocol: int) -> None:
    """Writes an object to a binary file.

    Args:
        module: `pickle`, or a module with a `Pickler` of its own.
    """
    storages = Storages(legacy=True)
    data = pickled(obj, module, protocol, storages)
    facts = {
        "protocol_version": VERSION,
        "little_endian": sys.byteorder == "little",
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    for value in (MAGIC, VERSION, facts):
        file.write(pickle.dumps(value, protocol))
    file.write(data)
    file.write(pickle.dumps(list(storages.storages), protocol))
    for storage, dtype in storages.storages.values():
        count = storage.nbytes() // (1 if dtype is None else dtype.itemsize)
        file.write(count.to_bytes(8, "little"))
        view = memoryview(contents(storage))
        for begin in range(0, len(view), _CHUNK):
            file.write(view[begin : begin + _CHUNK])


# ------------------------------------------------------------------------------ reading
class Cursor(io.RawIOBase):
    """The bytes of a file, read by one pickle after the other."""

    def __init__(self, data: Any, position: int) -> None:
        super().__init__()
        self.data, self.position = data, position

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Copies what follows; the number of bytes."""
        part = self.data[self.position : self.position + len(buffer)]
        buffer[: len(part)] = part
        self.position += len(part)
        return len(part)

    def readline(self, limit: int | None = -1) -> bytes:
        """The bytes up to the next end of a line."""
        end = self.data.find(b"\n", self.position)
        end = len(self.data) if end < 0 else end + 1
        part = bytes(self.data[self.position : end])
        self.position = end
        return part


class _Session:
    """The storages behind the pickles: where each one is, and those that were read."""

    def __init__(self, source: Source, restore: Restore, foreign: bool) -> None:
        self.source, self.restore, self.foreign = source, restore, foreign
        self.begins: dict[str, tuple[int, int, Any]] = {}
        self.storages: dict[str, Any] = {}
        self.views: dict[tuple[str, str], Any] = {}

    def locate(self, references: list[Any], keys: Any, begin: int) -> int:
        """Notes where storages are.

        Args:
            references: what the pickle says about storages.
            keys: of the storages, in the order of the file.
            begin: of the first one.

        Returns:
            Where the last one ends.
        """
        dtypes: dict[str, tuple[Any, int]] = {}
        for pid in references:
            if not _is_module(pid):
                storage_type, key, _, count = storage_reference(pid, legacy=True)
                dtypes.setdefault(key, (dtype_of(storage_type), count))
        if not isinstance(keys, list) or len(keys) != len(dtypes):
            raise damaged("it has storages that nothing refers to, or none that something does")
        for name in keys:
            key = name.decode("ascii", "replace") if isinstance(name, bytes) else name
            if not isinstance(key, str) or key not in dtypes or key in self.begins:
                raise damaged("it has storages that nothing or that several refer to")
            dtype, expected = dtypes[key]
            count = int.from_bytes(self.source.read(begin, begin + 8), "little")
            nbytes = count * (1 if dtype is None else dtype.itemsize)
            begin += 8
            if count != expected or begin + nbytes > self.source.size:
                raise damaged("a storage has another length than its pickle says")
            self.begins[key] = begin, nbytes, dtype
            begin += nbytes
        return begin

    def persistent_load(self, pid: Any) -> Any:
        """The storage that a persistent id names."""
        if _is_module(pid):
            return pid[1]
        storage_type, key, location, _ = storage_reference(pid, legacy=True)
        if key not in self.begins:
            raise damaged("a storage has no elements")
        begin, nbytes, dtype = self.begins[key]
        if key not in self.storages:
            storage = self.source.storage(begin, begin + nbytes)
            if self.foreign and dtype is not None:
                swapped(storage, dtype)
            self.storages[key] = self.restore(storage, location)
        storage, dtype = self.storages[key], dtype_of(storage_type)
        if pid[5] is not None:
            storage = self._view(storage, key, pid[5], dtype)
        return typed(storage, dtype)

    def _view(self, storage: Any, key: str, metadata: Any, dtype: Any) -> Any:
        """A part of a storage, which the oldest files share."""
        if not isinstance(metadata, tuple) or len(metadata) != 3:
            raise damaged("a part of a storage has no place")
        name, offset, count = metadata
        if any(type(v) is not int or not 0 <= v < 2**62 for v in (offset, count)):
            raise damaged("a part of a storage has an impossible place")
        width = 1 if dtype is None else dtype.itemsize
        if (offset + count) * width > storage.nbytes():
            raise damaged("a part of a storage reaches beyond it")
        part = key, str(name)
        if part not in self.views:
            self.views[part] = storage[offset * width : (offset + count) * width]
        return self.views[part]


def _is_module(pid: Any) -> bool:
    """Whether a persistent id is that of a class whose source was saved, too."""
    return isinstance(pid, tuple) and len(pid) > 1 and pid[0] in ("module", b"module")


def read(
    source: Source, restore: Restore, weights_only: bool, module: Any, load_args: dict[str, Any]
) -> Any:
    """The object of a file; see `archives.read`."""
    data = all_bytes(source)
    encoding = load_args.get("encoding", "utf-8")
    encoding = encoding if weights_only or encoding != "ASCII" else "latin-1"
    magic, position = _plain(data, 0)
    if magic != MAGIC:
        raise failure(RuntimeError, "load", "Invalid magic number; corrupt file?", "save it again")
    version, position = _plain(data, position)
    if version != VERSION:
        problem = f"Invalid protocol version: {str(version)[:40]}"
        raise failure(RuntimeError, "load", problem, "save it again")
    facts, begin = _plain(data, position)
    foreign = isinstance(facts, dict) and facts.get("little_endian") is False
    scanner = Scanner(data, encoding, begin)
    scanner.load()
    keys, position = _plain(data, scanner.position)
    session = _Session(source, restore, foreign)
    end = session.locate(scanner.references, keys, position)
    if weights_only:
        machine = Unpickler(data, session.persistent_load, None, encoding, begin)
        result = machine.load()
    else:
        cursor = Cursor(data, begin)
        result = trusted(cursor, session.persistent_load, None, module, load_args)
    source.finish(end)
    return result


def _plain(data: Any, begin: int) -> tuple[Any, int]:
    """A pickle without storages, and where it ends."""
    machine = Unpickler(data, _no_storage, None, "utf-8", begin)
    return machine.load(), machine.position


def _no_storage(pid: Any) -> Any:
    raise damaged("it refers to a storage where none can be")


def all_bytes(source: Source) -> Any:
    """The whole file, mapped where that is possible."""
    if source.start == 0 and hasattr(source.file, "fileno") and source.size:
        try:
            return mapping.mmap(source.file.fileno(), source.size, access=mapping.ACCESS_READ)
        except (OSError, ValueError):  # no file of the system
            pass
    return source.read(0, source.size)
