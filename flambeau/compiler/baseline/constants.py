"""Constants as blocks and memory hold them."""

from __future__ import annotations

import struct

from flambeau.compiler.codegen.c.printer.c_types import HALVES, round_bfloat16
from flambeau.ir import kernel as k
from flambeau.ir.dtypes import OPAQUE, UNSIGNED, minifloat_code
from flambeau.ir.node import ITEM_SIZE


def value_bytes(text: str, dtype: str) -> bytes:
    """One constant as a register holds it."""
    value = k.decode_constant(text, dtype)
    if dtype == "bool":
        return struct.pack("<i", -1 if value else 0)
    if dtype in HALVES:
        return _widened(memory_bytes(text, dtype), dtype)
    return memory_bytes(text, dtype)


def memory_bytes(text: str, dtype: str) -> bytes:
    """One constant as memory holds it."""
    value = k.decode_constant(text, dtype)
    if isinstance(value, complex):
        part = {"c32": "f16", "c64": "f32", "c128": "f64"}[dtype]
        return _float_bytes(value.real, part) + _float_bytes(value.imag, part)
    if dtype == "bool":
        return bytes([bool(value)])
    if dtype in OPAQUE:
        return bytes([minifloat_code(float(value), dtype)])
    if isinstance(value, float):
        return _float_bytes(value, dtype)
    signed = dtype not in UNSIGNED
    return int(value).to_bytes(ITEM_SIZE[dtype], "little", signed=signed)


def _float_bytes(value: float, dtype: str) -> bytes:
    if dtype == "bf16":
        (single,) = struct.unpack("<f", _float_bytes(value, "f32"))
        return struct.pack("<f", round_bfloat16(single))[2:]
    code = {"f16": "<e", "f32": "<f", "f64": "<d"}[dtype]
    try:
        return struct.pack(code, value)
    except OverflowError:
        return struct.pack(code, float("inf") if value > 0 else float("-inf"))


def _widened(half: bytes, dtype: str) -> bytes:
    if dtype == "bf16":
        return b"\0\0" + half
    return struct.pack("<f", *struct.unpack("<e", half))


__all__ = ["memory_bytes", "value_bytes"]
