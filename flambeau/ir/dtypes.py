"""The one table of element types: every other list of dtypes in the project follows from it.

A row says what a dtype is called (in the IR, by users, in messages, in files), how wide it is, what
kind of number it holds and how programs compute with it. The order is the native core's numbering,
which keys and files hold: new rows go to the end. `native/tensor/dtypes.h` is printed from these
rows (`python -m tools.dtype_header`), and a test holds that it is up to date.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

Kind = Literal["bool", "int", "float", "complex"]


class DType(NamedTuple):
    """One element type.

    Attributes:
        name: in the IR.
        public: as users write it, without `torch.`.
        size: bytes of an element.
        kind: of number; promotion goes from the first to the last.
        title: in messages and in names like `torch.ByteTensor`.
        abbreviation: PyTorch's short name.
        alias: second public name.
        memory: element type of the kernels' C text in memory.
        file: name in safetensors files, or "".
        array: type string of the array protocol, or "" where NumPy has no such type.
        exchange: type code of DLPack.
        signed: whether it holds negative numbers.
        compute: the dtype in which an operator computes; "" for the dtype itself.
        real: of a complex dtype, the dtype of its parts.
        plain: whether primitives are defined for it; the others convert, move and compare.
    """

    name: str
    public: str
    size: int
    kind: Kind
    title: str
    abbreviation: str
    alias: str
    memory: str
    file: str
    array: str
    exchange: int
    signed: bool = True
    compute: str = ""
    real: str = ""
    plain: bool = True


# fmt: off
ROWS = (
    DType("bool", "bool", 1, "bool", "Bool", "b8", "", "u8", "BOOL", "b1", 6, False),
    DType("u8", "uint8", 1, "int", "Byte", "u8", "", "u8", "U8", "u1", 1, False),
    DType("i8", "int8", 1, "int", "Char", "i8", "", "i8", "I8", "i1", 0),
    DType("i16", "int16", 2, "int", "Short", "i16", "short", "i16", "I16", "i2", 0),
    DType("i32", "int32", 4, "int", "Int", "i32", "int", "i32", "I32", "i4", 0),
    DType("i64", "int64", 8, "int", "Long", "i64", "long", "i64", "I64", "i8", 0),
    DType("f16", "float16", 2, "float", "Half", "f16", "half", "u16", "F16", "f2", 2,
          compute="f32"),
    DType("bf16", "bfloat16", 2, "float", "BFloat16", "bf16", "", "u16", "BF16", "", 4,
          compute="f32"),
    DType("f32", "float32", 4, "float", "Float", "f32", "float", "f32", "F32", "f4", 2),
    DType("f64", "float64", 8, "float", "Double", "f64", "double", "f64", "F64", "f8", 2),
    DType("c64", "complex64", 8, "complex", "ComplexFloat", "c64", "cfloat", "u64", "", "c8", 5,
          real="f32"),
    DType("c128", "complex128", 16, "complex", "ComplexDouble", "c128", "cdouble", "u128", "",
          "c16", 5, real="f64"),
    DType("u16", "uint16", 2, "int", "UInt16", "u16", "", "u16", "U16", "u2", 1, False,
          plain=False),
    DType("u32", "uint32", 4, "int", "UInt32", "u32", "", "u32", "U32", "u4", 1, False,
          plain=False),
    DType("u64", "uint64", 8, "int", "UInt64", "u64", "", "u64", "U64", "u8", 1, False,
          plain=False),
    DType("c32", "complex32", 4, "complex", "ComplexHalf", "c32", "chalf", "u32", "", "", 5,
          compute="c64", real="f16", plain=False),
    DType("e4m3fn", "float8_e4m3fn", 1, "float", "Float8_e4m3fn", "f8e4m3fn", "", "u8", "F8_E4M3",
          "", 10, plain=False),
    DType("e5m2", "float8_e5m2", 1, "float", "Float8_e5m2", "f8e5m2", "", "u8", "F8_E5M2", "", 12,
          plain=False),
    DType("e4m3fnuz", "float8_e4m3fnuz", 1, "float", "Float8_e4m3fnuz", "f8e4m3fnuz", "", "u8", "",
          "", 11, plain=False),
    DType("e5m2fnuz", "float8_e5m2fnuz", 1, "float", "Float8_e5m2fnuz", "f8e5m2fnuz", "", "u8", "",
          "", 13, plain=False),
    DType("e8m0fnu", "float8_e8m0fnu", 1, "float", "Float8_e8m0fnu", "f8e8m0fnu", "", "u8",
          "F8_E8M0", "", 14, False, plain=False),
    DType("e2m1fnx2", "float4_e2m1fn_x2", 1, "float", "Float4_e2m1fn_x2", "f4e2m1fnx2", "", "u8",
          "", "", 17, plain=False),
)
# fmt: on

TABLE = {row.name: row for row in ROWS}
NAMES = tuple(TABLE)
PUBLIC = {row.name: row.public for row in ROWS}
ITEM_SIZE = {row.name: row.size for row in ROWS}  # bytes
CATEGORY = {row.name: ("bool", "int", "float", "complex").index(row.kind) for row in ROWS}
TITLES = {row.name: row.title for row in ROWS}
MEMORY = {row.name: row.memory for row in ROWS}
PARTS = {row.name: row.real for row in ROWS if row.real}  # of complex dtypes
# PyTorch's numbers of dtypes (`c10::ScalarType`), which interfaces in C have.
SCALAR_TYPES = {
    "u8": 0, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f16": 5, "f32": 6, "f64": 7, "c32": 8,
    "c64": 9, "c128": 10, "bool": 11, "bf16": 15, "e5m2": 23, "e4m3fn": 24, "e5m2fnuz": 25,
    "e4m3fnuz": 26, "u16": 27, "u32": 28, "u64": 29, "e8m0fnu": 44, "e2m1fnx2": 45,
}  # fmt: skip
COMPUTE = {row.name: row.compute for row in ROWS if row.compute}

# Whole numbers of more than a byte without a sign: PyTorch promotes them with floats alone.
UNSIGNED = frozenset({"u16", "u32", "u64"})


class Minifloat(NamedTuple):
    """A floating-point type of eight bits: how its codes are read and written.

    Attributes:
        exponent, mantissa: bits of each.
        bias: of the exponent.
        infinite: has infinities, codes with all exponent bits set (as IEEE's types).
        one_zero: has no -0; that code is the only NaN.
        signed: whether the first bit is a sign.
    """

    exponent: int
    mantissa: int
    bias: int
    infinite: bool = False
    one_zero: bool = False
    signed: bool = True

    @property
    def largest(self) -> int:
        """Code of the largest finite number."""
        if self.one_zero:
            return 0x7F
        return (0x7C if self.infinite else 0x7F) - 1 if self.signed else 0xFE


MINIFLOATS = {
    "e4m3fn": Minifloat(4, 3, 7),
    "e5m2": Minifloat(5, 2, 15, infinite=True),
    "e4m3fnuz": Minifloat(4, 3, 8, one_zero=True),
    "e5m2fnuz": Minifloat(5, 2, 16, one_zero=True),
    "e8m0fnu": Minifloat(8, 0, 127, signed=False),
}
# Element types that kernels move as opaque bits, and of which only conversions know the numbers.
OPAQUE = frozenset({*MINIFLOATS, "e2m1fnx2"})


def minifloat_value(code: int, dtype: str) -> float:
    """The number that a code of a float8 type represents."""
    form = MINIFLOATS[dtype]
    if not form.signed:
        return math.nan if code == 0xFF else math.ldexp(1.0, code - form.bias)
    magnitude, sign = code & 0x7F, -1.0 if code & 0x80 else 1.0
    if code == 0x80 and form.one_zero:
        return math.nan
    if not form.one_zero and magnitude > form.largest:
        return sign * math.inf if form.infinite and magnitude == form.largest + 1 else math.nan
    exponent, mantissa = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    significand = mantissa + (1 << form.mantissa if exponent else 0)
    return sign * math.ldexp(significand, max(exponent, 1) - form.bias - form.mantissa)


def minifloat_code(value: float, dtype: str) -> int:
    """The code of a constant of a float8 type: that of the nearest number, ties to even."""
    if value == 0 and math.copysign(1.0, value) > 0 and dtype != "e8m0fnu":
        return 0
    form = MINIFLOATS[dtype]
    if value != value:
        return 0x80 if form.one_zero else 0xFF if not form.signed else 0x7F
    magnitude, sign = abs(value), 0x80 if math.copysign(1.0, value) < 0 and form.signed else 0
    limit = minifloat_value(form.largest, dtype)
    if not form.signed:
        limit *= 1.5
    elif math.isfinite(magnitude):
        limit += math.ldexp(0.5, math.frexp(limit)[1] - form.mantissa - 1)
    if magnitude > limit or (not form.signed and magnitude == limit):
        return 0x80 if form.one_zero else sign | form.largest + (form.infinite or not form.signed)
    tie = int.__neg__ if not form.signed else lambda c: c & 1  # powers of two go up
    code = min(
        range(form.largest + 1), key=lambda c: (abs(minifloat_value(c, dtype) - magnitude), tie(c))
    )
    return code if code == 0 and form.one_zero else sign | code
