// The element types, printed from flambeau/ir/dtypes.py by `python -m tools.dtype_header`.
// clang-format off
#pragma once

// Enumerator, public name, second public name, IR name, PyTorch's short name, name in messages,
// category, bytes, type string of the array protocol, type code of DLPack, holds negative numbers
#define FB_DTYPES(X) \
  X(Bool, "bool", nullptr, "bool", "b8", "Bool", \
    0, 1, "b1", 6, false) \
  X(U8, "uint8", nullptr, "u8", "u8", "Byte", \
    1, 1, "u1", 1, false) \
  X(I8, "int8", nullptr, "i8", "i8", "Char", \
    1, 1, "i1", 0, true) \
  X(I16, "int16", "short", "i16", "i16", "Short", \
    1, 2, "i2", 0, true) \
  X(I32, "int32", "int", "i32", "i32", "Int", \
    1, 4, "i4", 0, true) \
  X(I64, "int64", "long", "i64", "i64", "Long", \
    1, 8, "i8", 0, true) \
  X(F16, "float16", "half", "f16", "f16", "Half", \
    2, 2, "f2", 2, true) \
  X(BF16, "bfloat16", nullptr, "bf16", "bf16", "BFloat16", \
    2, 2, nullptr, 4, true) \
  X(F32, "float32", "float", "f32", "f32", "Float", \
    2, 4, "f4", 2, true) \
  X(F64, "float64", "double", "f64", "f64", "Double", \
    2, 8, "f8", 2, true) \
  X(C64, "complex64", "cfloat", "c64", "c64", "ComplexFloat", \
    3, 8, "c8", 5, true) \
  X(C128, "complex128", "cdouble", "c128", "c128", "ComplexDouble", \
    3, 16, "c16", 5, true) \
  X(U16, "uint16", nullptr, "u16", "u16", "UInt16", \
    1, 2, "u2", 1, false) \
  X(U32, "uint32", nullptr, "u32", "u32", "UInt32", \
    1, 4, "u4", 1, false) \
  X(U64, "uint64", nullptr, "u64", "u64", "UInt64", \
    1, 8, "u8", 1, false) \
  X(C32, "complex32", "chalf", "c32", "c32", "ComplexHalf", \
    3, 4, nullptr, 5, true) \
  X(E4M3FN, "float8_e4m3fn", nullptr, "e4m3fn", "f8e4m3fn", "Float8_e4m3fn", \
    2, 1, nullptr, 10, true) \
  X(E5M2, "float8_e5m2", nullptr, "e5m2", "f8e5m2", "Float8_e5m2", \
    2, 1, nullptr, 12, true) \
  X(E4M3FNUZ, "float8_e4m3fnuz", nullptr, "e4m3fnuz", "f8e4m3fnuz", "Float8_e4m3fnuz", \
    2, 1, nullptr, 11, true) \
  X(E5M2FNUZ, "float8_e5m2fnuz", nullptr, "e5m2fnuz", "f8e5m2fnuz", "Float8_e5m2fnuz", \
    2, 1, nullptr, 13, true) \
  X(E8M0FNU, "float8_e8m0fnu", nullptr, "e8m0fnu", "f8e8m0fnu", "Float8_e8m0fnu", \
    2, 1, nullptr, 14, false) \
  X(E2M1FNX2, "float4_e2m1fn_x2", nullptr, "e2m1fnx2", "f4e2m1fnx2", "Float4_e2m1fn_x2", \
    2, 1, nullptr, 17, true)
