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

from flambeau.compiler.targets.description import Target

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

# Helpers and instructions by one name: clang's element-wise builtin, parameters. The roundings are
# exact (rint: half to even), so any spelling gives the same bits.
_ELEMENTWISE = {
    "fma": ("fma", "abc"),
    "sqrt": ("sqrt", "a"),
    "rint": ("roundeven", "a"),
    "floor": ("floor", "a"),
    "ceil": ("ceil", "a"),
    "trunc": ("trunc", "a"),
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


def prelude(lanes: int, target: Target) -> str:
    """C text of the types ``<kind><bits>x<lanes>`` and the helpers on them.

    The text is guarded, so preludes of several lane counts may follow each other in any order.
    Helpers of half as many lanes come with it: float32 functions that compute in float64 use
    them, so that their vectors have the same width in bits.
    """
    if lanes not in (1, 4, 8, 16):
        raise ValueError(f"[cmath] unsupported lane count: {lanes}\nhint: use 1, 4, 8 or 16")
    halves = [_definitions(lanes // 2, target)] if lanes > 1 else []
    return "\n".join([_ONCE, *halves, _definitions(lanes, target)])


def _definitions(lanes: int, target: Target) -> str:
    parts = [f"#ifndef FB_PRELUDE_X{lanes}", f"#define FB_PRELUDE_X{lanes}"]
    parts += _typedefs(lanes) + _macros(lanes)
    for kind in _C_TYPES:
        parts.append(_select(kind, lanes, target))
    for kind in ("f32", "f64"):
        parts += [
            _elementwise(name, builtin, kind, lanes, target, parameters)
            for name, (builtin, parameters) in _ELEMENTWISE.items()
        ]
        parts.append(_sign_helpers(kind, lanes))
        parts += [_extremum(kind, lanes, name, target) for name in ("min", "max")]
    parts += [_any(kind, lanes, target) for kind in ("i32", "i64")]
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


def _select(kind: str, lanes: int, target: Target) -> str:
    """``mask ? a : b`` per lane; the mask has lanes of all ones or all zeros.

    GCC compiles to masked moves only a loop over the lanes, and to other blends only a builtin.
    """
    v, m = f"{kind}x{lanes}", _mask(kind, lanes)
    head = f"static inline {v} fb_select_{v}({m} mask, {v} a, {v} b) {{ "
    if lanes == 1:
        return head + "return mask ? a : b; }"
    blend = f"return ({v})((({m})a & mask) | (({m})b & ~mask));"
    loop = _lane_loop(kind, lanes, "mask[l] ? a[l] : b[l]")
    instruction = target.instruction("select", kind, lanes)
    if instruction is None:
        return f"{head}{blend} }}"
    statement = loop if instruction.text == "loop" else f"return ({v}){{}};"
    operands = {"mask": "mask", "a": "a", "b": "b"}
    text = target.spelled("select", kind, lanes, statement, f"  {blend}\n", **operands)
    return f"{head}\n{text}}}"


def _lane_loop(kind: str, lanes: int, expression: str) -> str:
    return f"{kind}x{lanes} r; for (int l = 0; l < {lanes}; ++l) r[l] = {expression}; return r;"


def _elementwise(
    operation: str, builtin: str, kind: str, lanes: int, target: Target, parameters: str
) -> str:
    """A function of floats: clang's builtin, the target's instruction, or a loop over the lanes.

    GCC leaves such loops scalar, for errno's sake or because it finds the instruction slowly.

    Args:
        operation: name of the instruction, the helper and the C library's function.
        builtin: clang's.
        kind: of the elements.
        lanes: how many.
        target: that may declare the instruction.
        parameters: names of the operands, one letter each.
    """
    v, listed = f"{kind}x{lanes}", ", ".join(parameters)
    head = ", ".join(f"{v} {name}" for name in parameters)
    text = f"static inline {v} fb_{operation}_{v}({head}) {{ "
    function = f"__builtin_{operation}" + ("f" if kind == "f32" else "")
    if lanes == 1:
        return f"{text}return {function}({listed}); }}"
    per_lane = ", ".join(f"{name}[l]" for name in parameters)
    portable = f"  {_lane_loop(kind, lanes, f'{function}({per_lane})')}\n"
    names = {name: name for name in parameters}
    native = target.spelled(operation, kind, lanes, f"return ({v}){{}};", portable, **names)
    return (
        f"{text}\n#if __has_builtin(__builtin_elementwise_{builtin})\n"
        f"  return __builtin_elementwise_{builtin}({listed});\n#else\n{native}#endif\n}}"
    )


def _extremum(kind: str, lanes: int, name: str, target: Target) -> str:
    """``a < b ? a : b`` or ``a > b ? a : b``: a NaN gives b. GCC compiles the comparison and the
    select to two instructions, where the target may have one."""
    v, comparison = f"{kind}x{lanes}", "lt" if name == "min" else "gt"
    portable = f"  return fb_select_{v}(fb_{comparison}_x{lanes}(a, b), a, b);\n"
    text = target.spelled(name, kind, lanes, f"return ({v}){{}};", portable, a="a", b="b")
    return f"static inline {v} fb_{name}_{v}({v} a, {v} b) {{\n{text}}}"


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


def _any(kind: str, lanes: int, target: Target) -> str:
    """Whether any lane of a mask is set: for branches around slow paths, never for arithmetic."""
    v = f"{kind}x{lanes}"
    head = f"static inline int fb_any_{v}({v} mask) {{ "
    if lanes == 1:
        return head + "return mask != 0; }"
    words = _C_TYPES[kind][1] * lanes // 8
    fold = " | ".join(f"u.words[{i}]" for i in range(words))
    union = f"union {{ {v} mask; unsigned long long words[{words}]; }} u = {{ mask }};"
    portable = f"  {union}\n  return ({fold}) != 0;\n"
    native = target.spelled("any", kind, lanes, "return {};", portable, mask="mask")
    return (
        f"{head}\n#if __has_builtin(__builtin_reduce_or)\n"
        f"  return __builtin_reduce_or(mask) != 0;\n#else\n{native}#endif\n}}"
    )
