"""The bytes of a file that is being loaded: read piece by piece, or mapped; and shared checks."""

from __future__ import annotations

import io
import math
import mmap as mapping
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_data
from flambeau.ir.failure import failure
from flambeau.serialization import options

__all__ = ["Source", "check_sizes", "damaged", "opened", "view"]

LARGEST_SIZE = 2**62  # bytes of a tensor and elements along its strides
_CHUNK = 2**26


def damaged(reason: str) -> RuntimeError:
    """The error of a file that breaks the rules of its format."""
    return RuntimeError(
        f"[load] the file is damaged or no checkpoint: {reason}\nhint: save it again"
    )


def check_sizes(values: Any, name: str) -> tuple[int, ...]:
    """Sizes or strides of a file, as a tuple.

    Raises:
        RuntimeError: no short list of numbers that a tensor can have.
    """
    if not isinstance(values, (list, tuple)) or len(values) > 64:
        raise damaged(f"{name} is no list of sizes")
    if any(type(v) is not int or not 0 <= v < LARGEST_SIZE for v in values):
        raise damaged(f"{name} has an impossible size")
    return tuple(values)


def check_geometry(shape: tuple[int, ...], stride: tuple[int, ...], size: int) -> int:
    """Number of bytes from a tensor's first element to its end.

    Args:
        size: bytes of an element.

    Raises:
        RuntimeError: sizes and strides that no tensor can have.
    """
    if len(shape) != len(stride):
        raise damaged("a tensor's sizes and strides differ in number")
    if math.prod(max(n, 1) for n in shape) * size >= LARGEST_SIZE:
        raise damaged("a tensor has an impossible size")
    if 0 in shape:
        return 0
    reach = sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1
    if reach * size >= LARGEST_SIZE:
        raise damaged("a tensor has an impossible stride")
    return reach * size


def view(
    storage: Any, dtype: Any, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> Any:
    """A tensor over a part of a storage, bounds checked.

    Raises:
        RuntimeError: it begins or ends outside of the storage.
    """
    reach = check_geometry(shape, stride, dtype.itemsize)
    if offset * dtype.itemsize + reach > storage.nbytes():
        raise damaged("a tensor reaches beyond its bytes")
    if not has_data(storage):
        return _core.tensor_empty_strided(shape, stride, dtype, "meta")
    return _core.tensor_from_storage(storage, dtype, shape, stride, offset)


class Source:
    """Where bytes come from: a mapping, or a file that is read piece by piece.

    Args:
        file: a binary file that can be sought, or None beside a mapping.
        size: bytes from `start` to the end.
        start: position of the first byte.
        mapped: the mapped file.
    """

    def __init__(self, file: Any, size: int, start: int, mapped: Any = None) -> None:
        self.file, self.size, self.start, self.mapped = file, size, start, mapped

    def read(self, begin: int, end: int) -> bytes:
        """A copy of some bytes.

        Raises:
            RuntimeError: they are not there.
        """
        if not 0 <= begin <= end <= self.size:
            raise damaged("it ends too early")
        if self.mapped is not None:
            return bytes(self.mapped[self.start + begin : self.start + end])
        self.file.seek(self.start + begin)
        data = self.file.read(end - begin)
        if len(data) != end - begin:
            raise damaged("it ends too early")
        return bytes(data)

    def storage(self, begin: int, end: int) -> Any:
        """A storage with these bytes: a part of the mapping, or a copy."""
        if not 0 <= begin <= end <= self.size:
            raise damaged("it ends too early")
        if begin == end:
            return _core.UntypedStorage(0)
        if options.skips_data():
            return _core.UntypedStorage(end - begin)
        if self.mapped is not None:
            part = memoryview(self.mapped)[self.start + begin : self.start + end]
            return _core.storage_from_buffer(part, alone=True)
        storage = _core.UntypedStorage(end - begin)
        raw = self.file.raw if type(self.file) is io.BufferedReader else self.file
        if not isinstance(raw, io.FileIO):
            self._fill(begin, storage._view().cast("B"))
        elif not storage._read(raw.fileno(), self.start + begin):  # by all threads
            raise damaged("it ends too early")
        return storage

    def _fill(self, begin: int, target: memoryview) -> None:
        """Copies bytes, from `begin` on, to memory."""
        position = 0
        self.file.seek(self.start + begin)
        while position < len(target):
            count = self._into(target[position : position + _CHUNK])
            if not count:
                raise damaged("it ends too early")
            position += count

    def _into(self, part: memoryview) -> int:
        if hasattr(self.file, "readinto"):
            return int(self.file.readinto(part) or 0)
        data = self.file.read(len(part))
        part[: len(data)] = data
        return len(data)

    def finish(self, end: int) -> None:
        """Moves a file object behind what was loaded: it may hold more."""
        if self.mapped is None:
            self.file.seek(self.start + end)


@contextmanager
def opened(f: Any, mmap: bool) -> Iterator[Source]:
    """The source of a path or of a file object.

    Raises:
        ValueError: a file object is to be mapped.
    """
    if hasattr(f, "read"):
        if mmap:
            problem = "f must be a file path in order to use the mmap argument, got a file object"
            raise failure(ValueError, "load", problem, "pass a path")
        if not (hasattr(f, "seek") and hasattr(f, "tell")):
            f = io.BytesIO(f.read())
        start = f.tell()
        size = f.seek(0, os.SEEK_END)
        size = (f.tell() if size is None else size) - start
        yield Source(f, max(size, 0), start)
        return
    with open(os.fspath(f), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if mmap and size:
            yield Source(file, size, 0, _mapped(file.fileno(), size))
        else:
            yield Source(file, size, 0)


def _mapped(descriptor: int, size: int) -> mapping.mmap:
    """The file in memory; private unless `set_default_mmap_options` said otherwise."""
    flags = options.get_default_mmap_options()
    if flags == mapping.MAP_SHARED:
        return mapping.mmap(descriptor, size, flags=flags, prot=mapping.PROT_READ)
    return mapping.mmap(descriptor, size, access=mapping.ACCESS_COPY)


def swapped(storage: Any, dtype: Any) -> Any:
    """The storage, whose elements were written in the other order of bytes, put right."""
    if has_data(storage) and storage.nbytes():
        storage.byteswap(dtype)
    return storage


def is_foreign(byteorder: str) -> bool:
    """Whether elements of that order have to be swapped here."""
    return byteorder != sys.byteorder


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(strides[::-1])
