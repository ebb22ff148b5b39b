"""The vector types and helpers that every generated kernel starts with, as header-free C text.

One template text serves scalar and vector code: the helpers hide that a comparison of vectors
yields a mask of -1/0 lanes while a comparison of scalars yields 1/0, that bits are cast
differently, and that compilers spell a fused multiply-add or a square root of a vector
differently. Nothing here may change a result: for equal inputs, every lane count and every
compiler must give the same bits.

A lane count should match the target's registers (16 lanes of 32 bits for AVX-512, 8 for AVX2,
4 for SSE and NEON): gcc splits wider vectors, but compares and selects them element by element.
"""

from __future__ import annotations

_C_TYPES = {
    "f32": ("float", 4),
    "f64": ("double", 8),
    "i8": ("signed char", 1),
    "u8": ("unsigned char", 1),
    "i16": ("short", 2),
    "u16": ("unsigned short", 2),
    "i32": ("int", 4),
    "u32": ("unsigned int", 4),
    "i64": ("long long", 8),
    "u64": ("unsigned long long", 8),
}

_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}

# name -> (SSE/AVX rounding immediate, C library stem, clang's element-wise builtin)
_ROUNDINGS = {
    "rint": (8, "rint", "roundeven"),
    "floor": (9, "floor", "floor"),
    "ceil": (10, "ceil", "ceil"),
    "trunc": (11, "trunc", "trunc"),
}

# gcc -Wpsabi warns about every by-value vector of a static function: noise here.
_ONCE = """\
#ifndef FB_PRELUDE
#define FB_PRELUDE
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
#pragma GCC diagnostic ignored "-Wunused-function"
#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
#endif
"""


def prelude(lanes: int) -> str:
    """C text of the types ``<kind><bits>x<lanes>`` and the helpers on them.

    The text is guarded, so preludes of several lane counts may follow each other in any order.
    Helpers of half as many lanes come with it: float32 functions that compute in float64 use
    them, so that their vectors have the same width in bits.
    """
    if lanes not in (1, 4, 8, 16):
        raise ValueError(f"[cmath] unsupported lane count: {lanes}\nhint: use 1, 4, 8 or 16")
    halves = [_definitions(lanes // 2)] if lanes > 1 else []
    return "\n".join([_ONCE, *halves, _definitions(lanes)])


def _definitions(lanes: int) -> str:
    parts = [f"#ifndef FB_PRELUDE_X{lanes}", f"#define FB_PRELUDE_X{lanes}"]
    parts += _typedefs(lanes) + _macros(lanes)
    for kind in _C_TYPES:
        parts.append(_select(kind, lanes))
    for kind in ("f32", "f64"):
        parts += [_fma(kind, lanes), _square_root(kind, lanes), _sign_helpers(kind, lanes)]
        parts += [_rounding(kind, lanes, name) for name in _ROUNDINGS]
        parts += [_extremum(kind, lanes, name) for name in ("min", "max")]
    parts += [_any(kind, lanes) for kind in ("i32", "i64")]
    parts.append("#endif\n")
    return "\n".join(parts)


def _typedefs(lanes: int) -> list[str]:
    if lanes == 1:
        return [f"typedef {c_type} {kind}x1;" for kind, (c_type, _) in _C_TYPES.items()]
    return [
        f"typedef {c_type} {kind}x{lanes} "
        f"__attribute__((vector_size({size * lanes}), aligned({size}), may_alias));"
        for kind, (c_type, size) in _C_TYPES.items()
    ]


def _macros(lanes: int) -> list[str]:
    """Type-generic helpers: comparisons, conversion, splat and bit casts."""
    suffix = f"x{lanes}"
    lines = []
    for name, operator in _COMPARISONS.items():
        comparison = f"((a) {operator} (b))"
        lines.append(f"#define fb_{name}_{suffix}(a, b) {'-' if lanes == 1 else ''}{comparison}")
    for kind in _C_TYPES:
        type_name = f"{kind}{suffix}"
        if lanes == 1:
            lines += [
                f"#define fb_as_{type_name}(v) "
                f"(((union {{ __typeof__(v) from; {type_name} to; }}){{ v }}).to)",
                f"#define fb_to_{type_name}(v) (({type_name})(v))",
                f"#define fb_splat_{type_name}(c) (({type_name})(c))",
            ]
            continue
        # c - 0, not c + 0: the latter would lose the sign of a negative zero.
        lines += [
            f"#define fb_as_{type_name}(v) (({type_name})(v))",
            f"#define fb_to_{type_name}(v) __builtin_convertvector(v, {type_name})",
            f"#define fb_splat_{type_name}(c) ((_c_{kind})(c) - ({type_name}){{0}})",
        ]
    if lanes > 1:
        guard = "#ifndef FB_SCALARS\n#define FB_SCALARS\n"
        scalars = "\n".join(f"typedef {c} _c_{kind};" for kind, (c, _) in _C_TYPES.items())
        lines.insert(0, f"{guard}{scalars}\n#endif")
    return lines


def _mask(kind: str, lanes: int) -> str:
    return f"i{kind[1:]}x{lanes}"


def _select(kind: str, lanes: int) -> str:
    """``mask ? a : b`` per lane; the mask has lanes of all ones or all zeros.

    Only from a lane loop does gcc make AVX-512's masked moves: 5 to 15 % of a logarithm's time.
    Narrower blends are one instruction too, but gcc has to be told by name.
    """
    v, m = f"{kind}x{lanes}", _mask(kind, lanes)
    head = f"static inline {v} fb_select_{v}({m} mask, {v} a, {v} b) {{ "
    if lanes == 1:
        return head + "return mask ? a : b; }"
    blend = f"return ({v})((({m})a & mask) | (({m})b & ~mask));"
    native = _x86_builtin(kind, lanes)
    if native is None or kind in ("i8", "u8", "i16", "u16"):
        return f"{head}{blend} }}"
    feature, suffix, masked = native
    if masked:
        best = _lane_loop(kind, lanes, "mask[l] ? a[l] : b[l]")
    else:
        f = f"f{kind[1:]}x{lanes}"
        best = f"return ({v})__builtin_ia32_blendv{suffix}(({f})b, ({f})a, ({f})mask);"
    return (
        f"{head}\n#if defined({feature}) && !defined(__clang__)\n  {best}\n"
        f"#else\n  {blend}\n#endif\n}}"
    )


def _lane_loop(kind: str, lanes: int, expression: str) -> str:
    return f"{kind}x{lanes} r; for (int l = 0; l < {lanes}; ++l) r[l] = {expression}; return r;"


def _fma(kind: str, lanes: int) -> str:
    """Fused multiply-add. gcc turns the lane loop into one vfmadd; clang leaves it scalar."""
    v, stem = f"{kind}x{lanes}", "__builtin_fmaf" if kind == "f32" else "__builtin_fma"
    head = f"static inline {v} fb_fma_{v}({v} a, {v} b, {v} c) {{ "
    if lanes == 1:
        return head + f"return {stem}(a, b, c); }}"
    return (
        f"{head}\n#if __has_builtin(__builtin_elementwise_fma)\n"
        f"  return __builtin_elementwise_fma(a, b, c);\n#else\n"
        f"  {_lane_loop(kind, lanes, f'{stem}(a[l], b[l], c[l])')}\n#endif\n}}"
    )


def _x86_builtin(kind: str, lanes: int) -> tuple[str, str, str] | None:
    """(feature macro, builtin suffix, mask arguments) of the x86 register of this width."""
    precision = "ps" if _C_TYPES[kind][1] == 4 else "pd"
    width = _C_TYPES[kind][1] * lanes
    if width == 64:
        return "__AVX512F__", f"{precision}512", ", a, -1, 4"
    if width == 32:
        return "__AVX__", f"{precision}256", ""
    return ("__SSE4_1__", precision, "") if width == 16 else None


def _square_root(kind: str, lanes: int) -> str:
    """gcc keeps sqrt loops scalar for errno's sake, hence its register builtins."""
    v, stem = f"{kind}x{lanes}", "__builtin_sqrtf" if kind == "f32" else "__builtin_sqrt"
    head = f"static inline {v} fb_sqrt_{v}({v} a) {{ "
    if lanes == 1:
        return head + f"return {stem}(a); }}"
    text = f"{head}\n#if __has_builtin(__builtin_elementwise_sqrt)\n"
    text += "  return __builtin_elementwise_sqrt(a);\n"
    native = _x86_builtin(kind, lanes)
    if native:
        feature, suffix, masked = native
        call = f"sqrt{suffix}_mask(a{masked})" if masked else f"sqrt{suffix}(a)"
        text += f"#elif defined({feature}) && !defined(__clang__)\n"
        text += f"  return ({v})__builtin_ia32_{call};\n"
    return text + f"#else\n  {_lane_loop(kind, lanes, f'{stem}(a[l])')}\n#endif\n}}"


def _rounding(kind: str, lanes: int, name: str) -> str:
    """rint (half to even), floor, ceil, trunc: exact, so any spelling gives the same bits."""
    immediate, library, clang_name = _ROUNDINGS[name]
    v, stem = f"{kind}x{lanes}", f"__builtin_{library}" + ("f" if kind == "f32" else "")
    head = f"static inline {v} fb_{name}_{v}({v} a) {{ "
    if lanes == 1:
        return head + f"return {stem}(a); }}"
    text = f"{head}\n#if __has_builtin(__builtin_elementwise_{clang_name})\n"
    text += f"  return __builtin_elementwise_{clang_name}(a);\n"
    native = _x86_builtin(kind, lanes)
    if native:
        feature, suffix, masked = native
        text += f"#elif defined({feature}) && !defined(__clang__)\n"
        if masked:
            call = f"rndscale{suffix[:2]}_mask(a, {immediate}{masked})"
        else:
            call = f"round{suffix}(a, {immediate})"
        text += f"  return ({v})__builtin_ia32_{call};\n"
    return text + f"#else\n  {_lane_loop(kind, lanes, f'{stem}(a[l])')}\n#endif\n}}"


def _extremum(kind: str, lanes: int, name: str) -> str:
    """``a < b ? a : b`` or ``a > b ? a : b``, as in the x86 instructions: a NaN gives b.

    gcc makes two instructions of the comparison and the select, hence its register builtins.
    """
    v, comparison = f"{kind}x{lanes}", "lt" if name == "min" else "gt"
    text = f"static inline {v} fb_{name}_{v}({v} a, {v} b) {{ "
    native = _x86_builtin(kind, lanes) if lanes > 1 else None
    fallback = f"return fb_select_{v}(fb_{comparison}_x{lanes}(a, b), a, b);"
    if native is None:
        return f"{text}{fallback} }}"
    feature, suffix, masked = native
    call = f"{name}{suffix[:2]}" + (f"512_mask(a, b{masked})" if masked else f"{suffix[2:]}(a, b)")
    return (
        f"{text}\n#if defined({feature}) && !defined(__clang__)\n"
        f"  return ({v})__builtin_ia32_{call};\n#else\n  {fallback}\n#endif\n}}"
    )


def _sign_helpers(kind: str, lanes: int) -> str:
    """abs, copysign, and one_nan: the sign of a NaN depends on how a compiler negates."""
    v, u = f"{kind}x{lanes}", f"u{kind[1:]}x{lanes}"
    bits = int(kind[1:])
    nan = '__builtin_nanf("")' if kind == "f32" else '__builtin_nan("")'
    sign = f"0x{1 << (bits - 1):x}u" + ("ll" if bits == 64 else "")
    low = f"0x{(1 << (bits - 1)) - 1:x}u" + ("ll" if bits == 64 else "")
    return (
        f"static inline {v} fb_abs_{v}({v} a) {{ return fb_as_{v}(fb_as_{u}(a) & {low}); }}\n"
        f"static inline {v} fb_copysign_{v}({v} a, {v} s) "
        f"{{ return fb_as_{v}((fb_as_{u}(a) & {low}) | (fb_as_{u}(s) & {sign})); }}\n"
        f"static inline {v} fb_one_nan_{v}({v} a) {{ "
        f"return fb_select_{v}(fb_eq_x{lanes}(a, a), a, fb_splat_{v}({nan})); }}"
    )


def _any(kind: str, lanes: int) -> str:
    """Whether any lane of a mask is set: for branches around slow paths, never for arithmetic."""
    v = f"{kind}x{lanes}"
    head = f"static inline int fb_any_{v}({v} mask) {{ "
    if lanes == 1:
        return head + "return mask != 0; }"
    words = _C_TYPES[kind][1] * lanes // 8
    fold = " | ".join(f"u.words[{i}]" for i in range(words))
    union = f"union {{ {v} mask; unsigned long long words[{words}]; }} u = {{ mask }};"
    text = f"{head}\n#if __has_builtin(__builtin_reduce_or)\n"
    text += "  return __builtin_reduce_or(mask) != 0;\n"
    if words == 8:
        test = "ptestmd512" if kind == "i32" else "ptestmq512"
        text += "#elif defined(__AVX512F__) && !defined(__clang__)\n"
        text += f"  return __builtin_ia32_{test}(mask, mask, -1) != 0;\n"
    return text + f"#else\n  {union}\n  return ({fold}) != 0;\n#endif\n}}"
