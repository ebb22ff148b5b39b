"""How element types look in C: in memory, as one value, and as a vector of values.

A *kind* is a type of the elementary functions' prelude ("f32", "i64", "u8"): `<kind>x<lanes>`
names the C type. Values of half types are float32 that are already rounded; a bool is a mask of
all ones or all zeros as wide as the kernel's widest element, so that selecting needs no
conversion; a complex number is opaque bits, and so is a float8 number.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from flambeau.ir.dtypes import MEMORY, ROWS

MEMORY_KIND = MEMORY | {"error": "i64"}

HALVES = ("f16", "bf16")
FLOATS = ("f16", "bf16", "f32", "f64")
# Two packed numbers compare as the byte they are.
INTEGERS = (*(row.name for row in ROWS if row.kind == "int"), "e2m1fnx2")


def kind_bits(kind: str) -> int:
    """Width of one element of a kind."""
    return int(kind[1:])


def signed_kind(kind: str) -> str:
    """The kind of the mask that comparing two values of `kind` gives."""
    return f"i{kind[1:]}"


@dataclass(frozen=True)
class Lanes:
    """A lane count together with the width of masks: what turns a dtype into a C type."""

    count: int
    mask_bits: int

    @property
    def mask(self) -> str:
        """Kind of a bool value."""
        return f"i{self.mask_bits}"

    def kind(self, dtype: str) -> str:
        """Kind of a value of this dtype."""
        if dtype == "bool":
            return self.mask
        if dtype in HALVES:
            return "f32"
        return MEMORY_KIND[dtype]

    def type(self, dtype: str) -> str:
        """C type of a value of this dtype."""
        return f"{self.kind(dtype)}x{self.count}"


def dtype_class(dtype: str) -> str:
    """The class by which operations are spelled: "b", "i", "f" or "c"."""
    if dtype == "bool":
        return "b"
    if dtype in INTEGERS:
        return "i"
    return "f" if dtype in FLOATS else "c"


def round_bfloat16(value: float) -> float:
    """The bfloat16 number nearest to a float32 number, ties to even."""
    bits = int.from_bytes(struct.pack("<f", value), "little")
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000 if value == value else bits
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])
