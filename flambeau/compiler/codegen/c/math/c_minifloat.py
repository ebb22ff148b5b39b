"""C text of conversions that few kernels need: floats of eight bits, floats to unsigned integers.

A value of a float8 type is its code, one byte, wherever it is moved; these helpers turn codes into
float32 and back. Both directions work like those of the half types in `c_arithmetic`: a power of
two moves the exponent's bias, and adding a large number rounds what becomes subnormal.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.printer.c_helpers import Builder
from flambeau.compiler.codegen.c.printer.c_types import signed_kind
from flambeau.ir.dtypes import MINIFLOATS, Minifloat


def _decode(dtype: str, form: Minifloat) -> Builder:
    """From codes to float32: every code is a float32."""

    def build(kind: str, lanes: int) -> str:
        f, u, i = f"f32x{lanes}", f"u32x{lanes}", f"i32x{lanes}"
        head = f"static inline {f} fb_from{dtype}_{kind}x{lanes}(u8x{lanes} a) {{\n"
        if not form.signed:
            least, nan = f"fb_splat_{u}(0x400000u)", f"fb_splat_{u}(0x7f800001u)"
            return (
                f"{head}  {u} code = fb_to_{u}(a);\n"
                f"  {u} bits = fb_select_{u}(({i})fb_eq_x{lanes}(code, 0), {least}, code << 23);\n"
                f"  bits = fb_select_{u}(({i})fb_eq_x{lanes}(code, 255), {nan}, bits);\n"
                f"  return fb_as_{f}(bits);\n}}\n"
            )
        shift = 23 - form.mantissa
        text = (
            f"{head}  {u} code = fb_to_{u}(a), rest = code & 0x7fu;\n"
            f"  {f} finite = fb_as_{f}(rest << {shift}) * 0x1p{127 - form.bias}f;\n"
            f"  {u} bits = fb_as_{u}(finite) | (code & 0x80u) << 24;\n"
        )
        if form.one_zero:
            special, value = f"fb_eq_x{lanes}(code, 128)", f"fb_splat_{u}(0x7f800001u)"
        else:
            special = f"fb_gt_x{lanes}(rest, {form.largest})"
            value = f"(code & 0x80u) << 24 | 0x7f800000u | rest << {shift}"
            if form.infinite:
                nan = f"fb_as_{u}(({i})fb_gt_x{lanes}(rest, {form.largest + 1}))"
                value += f" | ({nan} & 0x400000u)"
        return (
            f"{text}  bits = fb_select_{u}(({i}){special}, {value}, bits);\n"
            f"  return fb_as_{f}(bits);\n}}\n"
        )

    return build


def _encode(dtype: str, form: Minifloat) -> Builder:
    """From float32 to the nearest code, ties to even; what is too large as PyTorch has it."""

    def build(kind: str, lanes: int) -> str:
        f, u, i = f"f32x{lanes}", f"u32x{lanes}", f"i32x{lanes}"
        head = f"static inline u8x{lanes} fb_to{dtype}_{kind}x{lanes}({f} a) {{\n"
        head += f"  {u} bits = fb_as_{u}(a), rest = bits & 0x7fffffffu;\n"
        if not form.signed:  # the nearest power of two, ties up; 2^-127 is a subnormal float32
            tiny = f"({i})fb_lt_x{lanes}(rest, 0x800000u)"
            half = f"fb_select_{u}({tiny}, fb_splat_{u}(0x3fffffu), fb_splat_{u}(0x400000u))"
            special = f"({i})fb_ge_x{lanes}(rest, 0x7f800000u)"
            code = f"fb_select_{u}({special}, fb_splat_{u}(255), (rest + {half}) >> 23)"
            return f"{head}  return fb_to_u8x{lanes}({code});\n}}\n"
        drop = 23 - form.mantissa
        unit = 24 - form.bias - form.mantissa  # exponent of what rounds a subnormal result
        offset = (unit + 127) << 23
        add = ((1 << (drop - 1)) - 1 - ((127 - form.bias) << 23)) & 0xFFFFFFFF
        small = f"({i})fb_lt_x{lanes}(rest, 0x{(128 - form.bias) << 23:x}u)"
        over = form.largest + (form.infinite or form.one_zero)
        text = (
            f"{head}  {u} normal = (rest + 0x{add:x}u + ((rest >> {drop}) & 1u)) >> {drop};\n"
            f"  {u} low = fb_as_{u}(fb_as_{f}(rest) + 0x1p{unit}f) - 0x{offset:x}u;\n"
            f"  normal = fb_select_{u}(({i})fb_gt_x{lanes}(normal, {form.largest}), "
            f"fb_splat_{u}({over}), normal);\n"
            f"  {u} code = fb_select_{u}({small}, low, normal), sign = (bits >> 24) & 0x80u;\n"
        )
        nan = f"({i})fb_gt_x{lanes}(rest, 0x7f800000u)"
        if form.one_zero:
            text += f"  code = fb_select_{u}({nan}, fb_splat_{u}(128), code);\n"
            text += f"  sign = sign & ~fb_as_{u}(({i})fb_eq_x{lanes}(code & 0x7fu, 0));\n"
        else:
            text += f"  code = fb_select_{u}({nan}, fb_splat_{u}(127), code);\n"
        return f"{text}  return fb_to_u8x{lanes}(code | sign);\n}}\n"

    return build


def _to_unsigned(bits: int) -> Builder:
    """Truncation to u32 or u64: the upper half of the range is converted apart, as on x86."""

    def build(kind: str, lanes: int) -> str:
        v, i, u = f"{kind}x{lanes}", f"{signed_kind(kind)}x{lanes}", f"u{bits}x{lanes}"
        suffix = "ull" if bits == 64 else "u"
        bound = f"({kind}x1)0x1p{bits - 1}"
        return (
            f"static inline {u} fb_tounsigned{bits}_{v}({v} x) {{\n"
            f"  {i} high = ({i})fb_ge_x{lanes}(x, {bound});\n"
            f"  {u} low = fb_as_{u}(fb_toint{bits}_{v}(fb_select_{v}(high, x - {bound}, x)));\n"
            f"  {u} top = fb_as_{u}(fb_to_i{bits}x{lanes}(high));\n"
            f"  return low ^ (top & 0x{1 << (bits - 1):x}{suffix});\n}}\n"
        )

    return build


CONVERSIONS: dict[str, Builder] = {
    "tounsigned32": _to_unsigned(32),
    "tounsigned64": _to_unsigned(64),
    **{f"from{dtype}": _decode(dtype, form) for dtype, form in MINIFLOATS.items()},
    **{f"to{dtype}": _encode(dtype, form) for dtype, form in MINIFLOATS.items()},
}
