"""C text of arithmetic that C's operators do not give: half types, casts, integer division, shifts.

The helpers are named and collected like those of `c_helpers`. Nothing here traps or is undefined:
a division by zero gives 0 (operators raise before, where PyTorch does), a float outside of an
integer's range becomes what x86's conversion gives, a shift count out of range shifts all bits out.
"""

from __future__ import annotations

import functools

from flambeau.compiler.codegen.c.printer.c_helpers import Builder, TargetBuilder
from flambeau.compiler.codegen.c.printer.c_types import kind_bits, signed_kind
from flambeau.compiler.targets.description import Target


def _lane_wise(name: str, body: str) -> Builder:
    """A binary helper that computes lane by lane: `body` uses a and b and returns."""

    def build(kind: str, lanes: int) -> str:
        v, t = f"{kind}x{lanes}", f"{kind}x1"
        text = body.replace("UNSIGNED", f"u{kind[1:]}x1").replace("TYPE", t)
        text = text.replace("BITS", kind[1:])
        if kind[0] == "u":  # no negative operands: leave the corrections out
            text = text.replace("IF_SIGNED", "0 && ")
        scalar = f"static inline {t} fb_{name}_{t}({t} a, {t} b) {{\n{text}}}\n"
        if lanes == 1:
            return scalar
        fast = _by_doubles(name, kind, lanes)
        if fast and kind == "i32":
            return f"static inline {v} fb_{name}_{v}({v} a, {v} b) {{\n{fast}}}\n"
        return (
            f"static inline {v} fb_{name}_{v}({v} a, {v} b) {{\n{fast}"
            f"  union {{ {v} v; {t} t[{lanes}]; }} x = {{ a }}, y = {{ b }};\n"
            f"  for (int l = 0; l < {lanes}; ++l) x.t[l] = fb_{name}_{t}(x.t[l], y.t[l]);\n"
            f"  return x.v;\n}}\n"
        )

    def build_signed(kind: str, lanes: int) -> str:
        return build(kind, lanes).replace("IF_SIGNED", "")

    return build_signed


# What becomes of the quotient q and what remains, r; `wrong` where floor and truncation differ.
_FROM_QUOTIENT = {
    "ifloordiv": "q + wrong", "itruncdiv": "q", "iremainder": "r + (b & wrong)", "ifmod": "r",
}  # fmt: skip


def _by_doubles(name: str, kind: str, lanes: int) -> str:
    """Division of whole vectors: below 2^52 the truncated quotient of doubles is exact, for it is
    at least the distance of two doubles away from the next integer."""
    if name not in _FROM_QUOTIENT or kind not in ("i32", "i64"):
        return ""
    v, d, u = f"{kind}x{lanes}", f"f64x{lanes}", f"u64x{lanes}"
    quotient = f"fb_to_i64x{lanes}(fb_to_{d}(a) / fb_to_{d}(b - none))"
    lines = [f"  const {v} none = ({v})fb_eq_x{lanes}(b, 0);"]
    if kind == "i64":
        lines += [
            f"  const {v} half = fb_splat_{v}(1ll << 52);",
            f"  const {v} large = ({v})(({u})((a + half) | (b + half)) >> 53);",
            f"  if (__builtin_expect(!fb_any_{v}(({v})fb_ne_x{lanes}(large, 0)), 1))",
        ]
    lines += [
        "  {",
        f"    const {v} q = {quotient if kind == 'i64' else f'fb_to_{v}({quotient})'};",
        f"    const {v} r = a - q * b;",
        f"    const {v} wrong = ({v})fb_ne_x{lanes}(r, 0) & ((r ^ b) >> {kind_bits(kind) - 1});",
        f"    return ({_FROM_QUOTIENT[name]}) & ~none;",
        "  }",
    ]
    return "\n".join(lines) + "\n"


_FLOOR_DIV = """\
  if (b == 0) return 0;
  if (IF_SIGNED b == (TYPE)-1) return (TYPE)(0 - (UNSIGNED)a);
  TYPE q = (TYPE)(a / b);
  return IF_SIGNED (a % b != 0 && (a < 0) != (b < 0)) ? (TYPE)(q - 1) : q;
"""
_REMAINDER = """\
  if (b == 0) return 0;
  if (IF_SIGNED b == (TYPE)-1) return 0;
  TYPE r = (TYPE)(a % b);
  return IF_SIGNED (r != 0 && (r < 0) != (b < 0)) ? (TYPE)(r + b) : r;
"""
_FMOD = """\
  if (b == 0) return 0;
  if (IF_SIGNED b == (TYPE)-1) return 0;
  return (TYPE)(a % b);
"""
_TRUNC_DIV = """\
  if (b == 0) return 0;
  if (IF_SIGNED b == (TYPE)-1) return (TYPE)(0 - (UNSIGNED)a);
  return (TYPE)(a / b);
"""
# Negative exponents: 1 stays 1, -1 alternates, the rest is 0 (as PyTorch's integer power).
_POW = """\
  if (IF_SIGNED b < 0) return a == 1 ? 1 : a == (TYPE)-1 ? (TYPE)(b & 1 ? -1 : 1) : 0;
  UNSIGNED base = (UNSIGNED)a, result = 1;
  for (UNSIGNED e = (UNSIGNED)b; e; e >>= 1) {
    if (e & 1) result = (UNSIGNED)((unsigned long long)result * base);
    base = (UNSIGNED)((unsigned long long)base * base);
  }
  return (TYPE)result;
"""


def _shift(name: str) -> Builder:
    def build(kind: str, lanes: int) -> str:
        v, i, bits = f"{kind}x{lanes}", f"{signed_kind(kind)}x{lanes}", kind_bits(kind)
        u = f"u{kind[1:]}x{lanes}"
        head = f"static inline {v} fb_{name}_{v}({v} a, {v} b) {{\n"
        inside = f"({i})fb_lt_x{lanes}(fb_as_{u}(b), ({u[: u.index('x')]}x1){bits})"
        count = f"({v})(b & {bits - 1})"
        if name == "shl":
            shifted, outside = f"({v})(a << {count})", f"({v})(a - a)"
        else:
            shifted, outside = f"({v})(a >> {count})", f"({v})((a >> {bits - 1}) >> 1)"
            if kind[0] == "i":
                outside = f"({v})(a >> {bits - 1})"
        return f"{head}  return fb_select_{v}({inside}, {shifted}, {outside});\n}}\n"

    return build


def _int_abs(kind: str, lanes: int) -> str:
    v, i = f"{kind}x{lanes}", f"{signed_kind(kind)}x{lanes}"
    return (
        f"static inline {v} fb_iabs_{v}({v} a) {{\n"
        f"  return fb_select_{v}(({i})fb_lt_x{lanes}(a, 0), ({v})(0 - a), a);\n}}\n"
    )


def _sign(kind: str, lanes: int) -> str:
    """1, 0 or -1; NaN and both zeros give 0."""
    v, i = f"{kind}x{lanes}", f"{signed_kind(kind)}x{lanes}"
    return (
        f"static inline {v} fb_sign_{v}({v} a) {{\n"
        f"  {i} sign = (({i})fb_lt_x{lanes}(a, 0)) - (({i})fb_gt_x{lanes}(a, 0));\n"
        f"  return fb_to_{v}(sign);\n}}\n"
    )


def _float_remainder(kind: str, lanes: int) -> str:
    """Remainder with the divisor's sign."""
    v, i = f"{kind}x{lanes}", f"{signed_kind(kind)}x{lanes}"
    return (
        f"static inline {v} fb_remainder_{v}({v} a, {v} b) {{\n"
        f"  {v} r = fb_fmod_{v}(a, b);\n"
        f"  {i} wrong = ({i})fb_ne_x{lanes}(r, 0) &\n"
        f"    (({i})fb_lt_x{lanes}(r, 0) ^ ({i})fb_lt_x{lanes}(b, 0));\n"
        f"  return fb_select_{v}(wrong, r + b, r);\n}}\n"
    )


def _float_floor_div(kind: str, lanes: int) -> str:
    """Python's floor division of floats: exact remainder first, then the nearest quotient."""
    v, i = f"{kind}x{lanes}", f"{signed_kind(kind)}x{lanes}"
    return (
        f"static inline {v} fb_floor_div_{v}({v} a, {v} b) {{\n"
        f"  {v} r = fb_fmod_{v}(a, b), q = (a - r) / b;\n"
        f"  {i} wrong = ({i})fb_ne_x{lanes}(r, 0) &\n"
        f"    (({i})fb_lt_x{lanes}(r, 0) ^ ({i})fb_lt_x{lanes}(b, 0));\n"
        f"  q = fb_select_{v}(wrong, q - 1, q);\n"
        f"  {v} whole = fb_floor_{v}(q);\n"
        f"  {i} below = ({i})fb_gt_x{lanes}(q - whole, ({kind}x1)0.5);\n"
        f"  whole = fb_select_{v}(below, whole + 1, whole);\n"
        f"  {v} zero = fb_copysign_{v}(q - q, a / b);\n"
        f"  whole = fb_select_{v}(({i})fb_eq_x{lanes}(q, 0), zero, whole);\n"
        f"  return fb_select_{v}(({i})fb_eq_x{lanes}(b, 0), a / b, whole);\n}}\n"
    )


# ------------------------------------------------------------------------------- half types


def _from_bf16(kind: str, lanes: int) -> str:
    f, u = f"f32x{lanes}", f"u32x{lanes}"
    return (
        f"static inline {f} fb_frombf16_{kind}x{lanes}(u16x{lanes} a) {{\n"
        f"  return fb_as_{f}(fb_to_{u}(a) << 16);\n}}\n"
    )


def _to_bf16(kind: str, lanes: int) -> str:
    """Round to nearest even; every NaN becomes 0x7fc0, as in PyTorch."""
    f, u, i = f"f32x{lanes}", f"u32x{lanes}", f"i32x{lanes}"
    return (
        f"static inline u16x{lanes} fb_tobf16_{kind}x{lanes}({f} a) {{\n"
        f"  {u} bits = fb_as_{u}(a);\n"
        f"  {u} rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;\n"
        f"  {i} nan = ({i})fb_ne_x{lanes}(a, a);\n"
        f"  rounded = fb_select_{u}(nan, fb_splat_{u}(0x7fc0u), rounded);\n"
        f"  return fb_to_u16x{lanes}(rounded);\n}}\n"
    )


def _from_f16(kind: str, lanes: int, target: Target) -> str:
    f, u, i = f"f32x{lanes}", f"u32x{lanes}", f"i32x{lanes}"
    head = f"static inline {f} fb_fromf16_{kind}x{lanes}(u16x{lanes} a) {{\n"
    body = (
        f"  {u} h = fb_to_{u}(a), sign = (h & 0x8000u) << 16, rest = (h & 0x7fffu) << 13;\n"
        f"  {f} finite = fb_as_{f}(rest) * 0x1p112f;\n"
        f"  {i} special = ({i})fb_ge_x{lanes}(rest, 0x0f800000u);\n"
        f"  {i} nan = ({i})fb_gt_x{lanes}(rest, 0x0f800000u);\n"
        f"  {u} bits = fb_select_{u}(special, rest | 0x7f800000u, fb_as_{u}(finite));\n"
        f"  bits = bits | (fb_as_{u}(nan) & 0x400000u) | sign;\n"
        f"  return fb_as_{f}(bits);\n"
    )
    return (
        head + target.spelled("from_half", "f32", lanes, f"return ({f}){{}};", body, a="a") + "}\n"
    )


def _to_f16(kind: str, lanes: int, target: Target) -> str:
    """Round to nearest even; a NaN keeps its sign and upper payload and becomes quiet."""
    f, u, i = f"f32x{lanes}", f"u32x{lanes}", f"i32x{lanes}"
    head = f"static inline u16x{lanes} fb_tof16_{kind}x{lanes}({f} a) {{\n"
    body = (
        f"  {u} bits = fb_as_{u}(a), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;\n"
        f"  {u} normal = (rest + 0xc8000fffu + ((rest >> 13) & 1u)) >> 13;\n"
        f"  {u} small = fb_as_{u}(fb_as_{f}(rest) + 0.5f) - 0x3f000000u;\n"
        f"  {u} nan = 0x7e00u | ((rest >> 13) & 0x3ffu);\n"
        f"  {u} h = fb_select_{u}(({i})fb_lt_x{lanes}(rest, 0x38800000u), small, normal);\n"
        f"  {u} infinity = fb_splat_{u}(0x7c00u);\n"
        f"  h = fb_select_{u}(({i})fb_ge_x{lanes}(rest, 0x47800000u), infinity, h);\n"
        f"  h = fb_select_{u}(({i})fb_gt_x{lanes}(rest, 0x7f800000u), nan, h);\n"
        f"  return fb_to_u16x{lanes}(h | sign);\n"
    )
    statement = f"return (u16x{lanes}){{}};"
    return head + target.spelled("to_half", "f32", lanes, statement, body, a="a") + "}\n"


def _next_half(half: str) -> Builder:
    """nextafter on the bits of a half type; operands and result are float32."""

    def build(kind: str, lanes: int) -> str:
        f, i = f"f32x{lanes}", f"i32x{lanes}"
        sign = f"(fb_as_{i}(fb_as_{i}(b) >> 16) & 0x8000)"
        to, back = f"fb_to{half}_u16x{lanes}", f"fb_from{half}_u16x{lanes}"
        return (
            f"static inline {f} fb_next{half}_{f}({f} a, {f} b) {{\n"
            f"  {i} bits = fb_to_{i}({to}(a));\n"
            f"  {i} grow = ~(({i})fb_lt_x{lanes}(a, b) ^ ({i})fb_gt_x{lanes}(a, 0));\n"
            f"  bits = bits + 1 + ((~grow) & -2);\n"
            f"  bits = fb_select_{i}(({i})fb_eq_x{lanes}(a, 0), {sign} | 1, bits);\n"
            f"  {f} next = {back}(fb_to_u16x{lanes}(bits));\n"
            f"  next = fb_select_{f}(({i})fb_eq_x{lanes}(a, b), b, next);\n"
            f"  {i} nan = ({i})fb_ne_x{lanes}(a, a) | ({i})fb_ne_x{lanes}(b, b);\n"
            f"  return fb_select_{f}(nan, a + b, next);\n}}\n"
        )

    return build


# ------------------------------------------------------------------------------- casts


def _to_int(bits: int) -> Builder:
    """Truncation to i32 or i64; out of range and NaN give the least integer, as on x86."""

    def build(kind: str, lanes: int) -> str:
        v, wide = f"{kind}x{lanes}", f"i{bits}x{lanes}"
        i = f"{signed_kind(kind)}x{lanes}"
        bound = f"({kind}x1)0x1p{bits - 1}"
        least = f"(-{(1 << (bits - 1)) - 1}{'ll' if bits == 64 else ''} - 1)"
        low = f"fb_ge_x{lanes}(x, -{bound})"
        if kind == "f64" and bits == 32:  # -2^31 - 0.5 is a float64 and truncates to -2^31
            low = f"fb_gt_x{lanes}(x, -{bound} - 1)"
        zero = f"({v}){{0}}"
        return (
            f"static inline {wide} fb_toint{bits}_{v}({v} x) {{\n"
            f"  {i} inside = ({i}){low} & ({i})fb_lt_x{lanes}(x, {bound});\n"
            f"  {wide} y = fb_to_{wide}(fb_select_{v}(inside, x, {zero}));\n"
            f"  return fb_select_{wide}(fb_to_{wide}(inside), y, fb_splat_{wide}({least}));\n}}\n"
        )

    return build


def _select_u128(kind: str, lanes: int) -> str:
    """complex128: mask ? a : b, element by element."""
    v = f"u128x{lanes}"
    return (
        f"static inline {v} fb_cselect_{v}(i64x{lanes} mask, {v} a, {v} b) {{\n"
        f"  union {{ {v} v; u128x1 t[{lanes}]; }} x = {{ a }}, y = {{ b }};\n"
        f"  union {{ i64x{lanes} v; i64x1 t[{lanes}]; }} k = {{ mask }};\n"
        f"  for (int l = 0; l < {lanes}; ++l) if (!k.t[l]) x.t[l] = y.t[l];\n  return x.v;\n}}\n"
    )


ARITHMETIC: dict[str, Builder] = {
    "ifloordiv": _lane_wise("ifloordiv", _FLOOR_DIV),
    "itruncdiv": _lane_wise("itruncdiv", _TRUNC_DIV),
    "iremainder": _lane_wise("iremainder", _REMAINDER),
    "ifmod": _lane_wise("ifmod", _FMOD),
    "ipow": _lane_wise("ipow", _POW),
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "iabs": _int_abs,
    "sign": _sign,
    "remainder": _float_remainder,
    "floor_div": _float_floor_div,
    "frombf16": _from_bf16,
    "tobf16": _to_bf16,
    "nextf16": _next_half("f16"),
    "nextbf16": _next_half("bf16"),
    "toint32": _to_int(32),
    "toint64": _to_int(64),
    "cselect": _select_u128,
}

TARGET_ARITHMETIC: dict[str, TargetBuilder] = {"fromf16": _from_f16, "tof16": _to_f16}


def _check_index(kind: str, lanes: int, strict: bool = False) -> str:
    """Wraps negative indices (`strict`: refuses them); the first one outside goes to the record.

    The record is {flag, value, size, dimension}; the lane goes on with index 0.
    """
    v = f"i64x{lanes}"
    report = "{ e[1] = t[l]; e[2] = size; e[3] = dimension; e[0] = 1; break; }"
    name, least = ("checkstrict", "0") if strict else ("checkindex", "-size")
    wrapped = "a" if strict else f"fb_select_{v}(({v})fb_lt_x{lanes}(a, 0), ({v})(a + size), a)"
    return (
        f"static inline {v} fb_{name}_{v}"
        f"({v} a, long long size, long long dimension, i64x1 *e, long long m) {{\n"
        f"  {v} wrapped = {wrapped};\n"
        f"  {v} good = ({v})fb_ge_x{lanes}(wrapped, 0) & ({v})fb_lt_x{lanes}(wrapped, size);\n"
        f"  if (__builtin_expect(fb_any_{v}(~good), 0)) {{\n"
        f"    const i64x1 *t = (const i64x1 *)&a;\n"
        f"    for (int l = 0; l < {lanes} && l < m && !e[0]; ++l)\n"
        f"      if (t[l] < {least} || t[l] >= size) {report}\n"
        f"    wrapped = wrapped & good;\n  }}\n"
        f"  return wrapped;\n}}\n"
    )


ARITHMETIC["checkindex"] = _check_index
ARITHMETIC["checkstrict"] = functools.partial(_check_index, strict=True)
