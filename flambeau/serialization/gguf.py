"""Reading of GGUF files (github.com/ggml-org/ggml, docs/gguf.md): metadata and tensors of a model.

A file is a header, pairs of keys and values, descriptions of tensors, and their data. Tensors of
plain dtypes are read as they are; quantized ones are blocks of 32 or 256 elements with scales of
their own (`gguf_blocks.py`) and are read as float32.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.language.dtypes import DTYPE_OBJECTS
from flambeau.serialization import gguf_blocks
from flambeau.serialization.sources import Source, damaged, opened, row_major, view

__all__ = ["load_gguf"]

MAGIC = b"GGUF"
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
            11: "<q", 12: "<d"}  # fmt: skip
_STRING, _ARRAY = 8, 9
_PLAIN = {0: "f32", 1: "f16", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 30: "bf16"}
_OTHERS = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
    39: "MXFP4",
}  # fmt: skip
_LARGEST_DEPTH = 4  # of arrays in arrays
_WINDOW = 2**16


class _Info(NamedTuple):
    """A tensor as the file describes it."""

    shape: tuple[int, ...]
    kind: int
    begin: int


class _Cursor:
    """Reads the header's values one behind the other."""

    def __init__(self, source: Source) -> None:
        self.source, self.position = source, 0
        self.begin, self.window = 0, b""
        self.budget = source.size // 4 + 1024  # values that arrays may have

    def bytes(self, count: int) -> bytes:
        """The next bytes."""
        end = self.position + count
        if count < 0 or end > self.source.size:
            raise damaged("the header ends too early")
        if end > self.begin + len(self.window) or self.position < self.begin:
            self.begin = self.position
            last = min(max(end, self.begin + _WINDOW), self.source.size)
            self.window = self.source.read(self.begin, last)
        data = self.window[self.position - self.begin : end - self.begin]
        self.position = end
        return data

    def number(self, form: str) -> Any:
        """The next number, as `struct` describes it."""
        return struct.unpack(form, self.bytes(struct.calcsize(form)))[0]

    def text(self) -> str:
        """The next string."""
        return self.bytes(self.number("<Q")).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """The next value of a type."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth > _LARGEST_DEPTH:
            raise damaged(f"a value has the unknown type {kind}")
        inner, count = self.number("<I"), self.number("<Q")
        if inner in _NUMBERS:
            size = struct.calcsize(_NUMBERS[inner])
            data = self.bytes(count * size)
            return list(struct.unpack(f"<{count}{_NUMBERS[inner][1]}", data))
        self.budget -= count
        if self.budget < 0:
            raise damaged("an array is longer than the file")
        return [self.value(inner, depth + 1) for _ in range(count)]


def _read_header(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, _Info]]:
    magic, version = cursor.bytes(4), cursor.number("<I")
    if magic != MAGIC or version not in (2, 3):
        raise damaged(f"version {version} of GGUF cannot be read")
    count, pairs = cursor.number("<Q"), cursor.number("<Q")
    if (count + pairs) * 12 > cursor.source.size:
        raise damaged("it has more entries than bytes")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = cursor.text()
        metadata[key] = cursor.value(cursor.number("<I"))
    infos: dict[str, _Info] = {}
    for _ in range(count):
        name, dims = cursor.text(), cursor.number("<I")
        if dims > 8 or name in infos:
            raise damaged(f"tensor {name[:80]!r} has too many dimensions, or is there twice")
        shape = tuple(cursor.number("<Q") for _ in range(dims))[::-1]
        infos[name] = _Info(shape, cursor.number("<I"), cursor.number("<Q"))
    return metadata, infos


def _extent(name: str, info: _Info) -> int:
    """Bytes of a tensor's data.

    Raises:
        NotImplementedError: its type cannot be read.
        RuntimeError: its sizes are impossible.
    """
    count = math.prod(info.shape)
    if math.prod(max(n, 1) for n in info.shape) >= 2**60:
        raise damaged(f"tensor {name[:80]!r} has an impossible size")
    if info.kind in _PLAIN:
        return int(count * DTYPE_OBJECTS[_PLAIN[info.kind]].itemsize)
    block = gguf_blocks.BLOCKS.get(info.kind)
    if block is None:
        kind = _OTHERS.get(info.kind, f"number {info.kind}")
        raise NotImplementedError(
            f"[load_gguf] tensor {name[:80]!r} has type {kind}, which is not supported\n"
            f"hint: one of {', '.join(b.name for b in gguf_blocks.BLOCKS.values())}, or a plain "
            "dtype"
        )
    if info.shape and info.shape[-1] % block.elements:
        raise damaged(f"tensor {name[:80]!r} has rows that are no whole number of blocks")
    return count // block.elements * block.size


def _read(
    source: Source, restore: Callable[[Any, str], Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    cursor = _Cursor(source)
    try:
        metadata, infos = _read_header(cursor)
    except (struct.error, MemoryError, OverflowError) as error:
        raise damaged(str(error)) from error
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= 2**20:
        raise damaged("it has an impossible alignment")
    base = -(-cursor.position // alignment) * alignment
    extents = {name: _extent(name, info) for name, info in infos.items()}
    _check_disjoint(source, base, infos, extents)
    tensors = {}
    end = base
    for name, info in infos.items():
        begin = base + info.begin
        tensors[name] = _tensor(source, restore, info, begin, extents[name])
        end = max(end, begin + extents[name])
    source.finish(min(end, source.size))
    return metadata, tensors


def _check_disjoint(
    source: Source, base: int, infos: dict[str, _Info], extents: dict[str, int]
) -> None:
    """Raises unless every tensor has bytes of its own inside of the file."""
    position = base
    for name in sorted(infos, key=lambda name: (infos[name].begin, extents[name])):
        begin = base + infos[name].begin
        if begin < position or begin + extents[name] > max(source.size, base):
            raise damaged(f"tensor {name[:80]!r} lies outside of the file or in another one")
        position = begin + extents[name]


def _tensor(source: Source, restore: Any, info: _Info, begin: int, extent: int) -> Any:
    if extent == 0:
        storage = _core.UntypedStorage(0)
    else:
        storage = source.storage(begin, begin + extent)
    if info.kind in _PLAIN:
        dtype = DTYPE_OBJECTS[_PLAIN[info.kind]]
        return view(restore(storage, "cpu"), dtype, 0, info.shape, row_major(info.shape))
    values = gguf_blocks.dequantize(storage, info.kind, math.prod(info.shape))
    return view(
        restore(values.untyped_storage(), "cpu"),
        values.dtype,
        0,
        info.shape,
        row_major(info.shape),
    )


def tensors(source: Source, restore: Callable[[Any, str], Any]) -> dict[str, Any]:
    """The tensors of a GGUF file by name."""
    return _read(source, restore)[1]


def load_gguf(f: Any, *, mmap: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metadata and the tensors of a GGUF file.

    Tensors of types F64, F32, F16, BF16 and I8 to I64 have that dtype. Quantized ones (Q4_0, Q4_1,
    Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, Q8_K) are dequantized to float32. A shape's last size is the
    file's first dimension, along which elements are contiguous.

    Args:
        f: a path or a binary file object.
        mmap: map the file; needs a path.

    Returns:
        Two dicts, by key and by name.

    Raises:
        NotImplementedError: a tensor of another type, which is named.
        RuntimeError: the file is damaged.
    """
    with opened(f, mmap) as source:
        return _read(source, lambda storage, location: storage)
