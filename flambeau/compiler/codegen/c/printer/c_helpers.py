"""C text of the helper functions of kernels: partial and strided memory access, reductions' trees.

Every helper is named `fb_<stem>_<kind>x<lanes>`; `helper(stem, kind, lanes)` gives its text, which
may call other helpers. The translation unit collects what is needed by name (`c_unit`).

Arguments: `p` points to elements, `m` is how many lanes are active (1 or more; more than there are
lanes counts as all), `s` is a stride in elements. No function touches memory of inactive lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from flambeau.compiler.codegen.c.printer.c_types import kind_bits, signed_kind
from flambeau.compiler.targets.description import Target

Builder = Callable[[str, int], str]
TargetBuilder = Callable[[str, int, Target], str]  # uses instructions that the target declares

_FIRST = "(1u << m) - 1u"  # bits of the active lanes, where these are not all
_FULL = "__builtin_expect(m >= {L}, 1)"
# Rare, and a loop: as a function of its own it is compiled once, not at every load of a kernel.
_APART = "static __attribute__((noinline))"


def _union(kind: str, lanes: int, name: str = "u") -> str:
    return f"union {{ {kind}x{lanes} v; {kind}x1 t[{lanes}]; }} {name}"


def _load_m(kind: str, lanes: int, target: Target) -> str:
    """The vector at p, zeros in inactive lanes."""
    v, t = f"{kind}x{lanes}", f"{kind}x1"
    head = f"static inline {v} fb_loadm_{v}(const {t} *p, long long m) {{\n"
    full = f"  if ({_FULL.format(L=lanes)}) return *(const {v} *)p;\n"
    if lanes == 1:
        return head + "  return *p;\n}\n"
    portable = f"  return fb_loadpart_{v}(p, m);\n"
    statement, operands = f"return ({v}){{}};", {"p": "p", "other": "{0}", "bits": _FIRST}
    part = target.spelled("load", kind, lanes, statement, portable, **operands)
    return f"{head}{full}{part}}}\n"


def _load_part(kind: str, lanes: int) -> str:
    v, t = f"{kind}x{lanes}", f"{kind}x1"
    return (
        f"{_APART} {v} fb_loadpart_{v}(const {t} *p, long long m) {{\n"
        f"  {_union(kind, lanes)} = {{ ({v}){{0}} }};\n"
        f"  for (int l = 0; l < {lanes} && l < m; ++l) u.t[l] = p[l];\n  return u.v;\n}}\n"
    )


def _store_m(kind: str, lanes: int, target: Target) -> str:
    v, t = f"{kind}x{lanes}", f"{kind}x1"
    head = f"static inline void fb_storem_{v}({t} *p, {v} v, long long m) {{\n"
    full = f"  if ({_FULL.format(L=lanes)}) {{ *({v} *)p = v; return; }}\n"
    if lanes == 1:
        return head + "  *p = v;\n}\n"
    portable = f"  fb_storepart_{v}(p, v, m);\n"
    part = target.spelled("store", kind, lanes, "{};", portable, p="p", v="v", bits=_FIRST)
    return f"{head}{full}{part}}}\n"


def _store_part(kind: str, lanes: int) -> str:
    v, t = f"{kind}x{lanes}", f"{kind}x1"
    return (
        f"{_APART} void fb_storepart_{v}({t} *p, {v} v, long long m) {{\n"
        f"  {_union(kind, lanes)} = {{ v }};\n"
        f"  for (int l = 0; l < {lanes} && l < m; ++l) p[l] = u.t[l];\n}}\n"
    )


def _listed(kind: str, lanes: int, element: Callable[[int], str]) -> str | None:
    """A vector written lane by lane; compilers turn that into inserts, not a trip to memory."""
    if kind == "u128":
        return None
    return f"({kind}x{lanes}){{{', '.join(element(i) for i in range(lanes))}}}"


def _gather(kind: str, lanes: int) -> str:
    """Elements p[0], p[s], p[2 s], ..."""
    v, t = f"{kind}x{lanes}", f"{kind}x1"
    head = f"static inline {v} fb_gather_{v}(const {t} *p, long long s) {{\n"
    listed = _listed(kind, lanes, lambda i: f"p[{i} * s]")
    if lanes == 1:
        return head + "  return *p;\n}\n"
    return head + (
        f"  return {listed};\n}}\n" if listed else f"  return fb_gatherm_{v}(p, s, {lanes});\n}}\n"
    )


def _gather_m(kind: str, lanes: int) -> str:
    v, t = f"{kind}x{lanes}", f"{kind}x1"
    head = f"static inline {v} fb_gatherm_{v}(const {t} *p, long long s, long long m) {{\n"
    if lanes == 1:
        return head + "  return *p;\n}\n"
    full = "" if kind == "u128" else f"  if ({_FULL.format(L=lanes)}) return fb_gather_{v}(p, s);\n"
    return f"{head}{full}  return fb_gatherpart_{v}(p, s, m);\n}}\n"


def _gather_part(kind: str, lanes: int) -> str:
    v, t = f"{kind}x{lanes}", f"{kind}x1"
    return (
        f"{_APART} {v} fb_gatherpart_{v}(const {t} *p, long long s, long long m) {{\n"
        f"  {_union(kind, lanes)} = {{ ({v}){{0}} }};\n"
        f"  for (int l = 0; l < {lanes} && l < m; ++l) u.t[l] = p[l * s];\n  return u.v;\n}}\n"
    )


def _scatter_m(kind: str, lanes: int) -> str:
    v, t = f"{kind}x{lanes}", f"{kind}x1"
    return (
        f"static inline void fb_scatterm_{v}({t} *p, long long s, {v} v, long long m) {{\n"
        f"  {_union(kind, lanes)} = {{ v }};\n"
        f"  for (int l = 0; l < {lanes} && l < m; ++l) p[l * s] = u.t[l];\n}}\n"
    )


def _take_m(kind: str, lanes: int) -> str:
    """Elements p[i[0]], p[i[1]], ..."""
    v, t, i = f"{kind}x{lanes}", f"{kind}x1", f"i64x{lanes}"
    head = f"static inline {v} fb_takem_{v}(const {t} *p, {i} i, long long m) {{\n"
    if lanes == 1:
        return head + "  return p[i];\n}\n"
    listed = _listed(kind, lanes, lambda lane: f"p[i[{lane}]]")
    full = f"  if ({_FULL.format(L=lanes)}) return {listed};\n" if listed else ""
    return f"{head}{full}  return fb_takepart_{v}(p, i, m);\n}}\n"


def _take_part(kind: str, lanes: int) -> str:
    v, t, i = f"{kind}x{lanes}", f"{kind}x1", f"i64x{lanes}"
    return (
        f"{_APART} {v} fb_takepart_{v}(const {t} *p, {i} i, long long m) {{\n"
        f"  {_union(kind, lanes)} = {{ ({v}){{0}} }};\n"
        f"  {_union('i64', lanes, 'j')} = {{ i }};\n"
        f"  for (int l = 0; l < {lanes} && l < m; ++l) u.t[l] = p[j.t[l]];\n  return u.v;\n}}\n"
    )


def _give_m(kind: str, lanes: int) -> str:
    """p[i[0]], p[i[1]], ... = v"""
    v, t, i = f"{kind}x{lanes}", f"{kind}x1", f"i64x{lanes}"
    return (
        f"static inline void fb_givem_{v}({t} *p, {i} i, {v} v, long long m) {{\n"
        f"  {_union(kind, lanes)} = {{ v }};\n  {_union('i64', lanes, 'j')} = {{ i }};\n"
        f"  for (int l = 0; l < {lanes} && l < m; ++l) p[j.t[l]] = u.t[l];\n}}\n"
    )


def _take_if(kind: str, lanes: int, mask: str) -> str:
    """As takem; lanes where the mask is false are `other` and not read."""
    v, t, i = f"{kind}x{lanes}", f"{kind}x1", f"i64x{lanes}"
    return (
        f"static inline {v} fb_takeif{mask[1:]}_{v}"
        f"(const {t} *p, {i} i, {mask}x{lanes} mask, {v} other, long long m) {{\n"
        f"  {_union(kind, lanes)} = {{ other }};\n  {_union('i64', lanes, 'j')} = {{ i }};\n"
        f"  {_union(mask, lanes, 'k')} = {{ mask }};\n"
        f"  for (int l = 0; l < {lanes} && l < m; ++l) if (k.t[l]) u.t[l] = p[j.t[l]];\n"
        f"  return u.v;\n}}\n"
    )


def _load_if(kind: str, lanes: int, target: Target, mask: str) -> str:
    """The vector at p (stride s); lanes where the mask is false are `other` and not read."""
    v, t, k = f"{kind}x{lanes}", f"{kind}x1", f"{mask}x{lanes}"
    head = (
        f"static inline {v} fb_loadif{mask[1:]}_{v}"
        f"(const {t} *p, long long s, {k} mask, {v} other, long long m) {{\n"
    )
    if lanes == 1:
        return head + "  return mask ? *p : other;\n}\n"
    fast = f"  if (s == 1 && m >= {lanes} && !fb_any_{k}(~mask)) return *(const {v} *)p;\n"
    load = target.instruction("load", kind, lanes)
    if load is not None:
        active = f"{_FULL.format(L=lanes)} ? -1 : {_FIRST}"
        native = load(p="p", other="other", bits="{}")
        statement = f"if (s == 1) return ({v}){native};"
        fast = target.spelled("bits", mask, lanes, statement, fast, mask="mask", active=active)
    none = f"  if (!fb_any_{k}(mask)) return other;\n"
    return f"{head}{fast}{none}  return fb_loadifpart{mask[1:]}_{v}(p, s, mask, other, m);\n}}\n"


def _load_if_part(kind: str, lanes: int, mask: str) -> str:
    v, t, k = f"{kind}x{lanes}", f"{kind}x1", f"{mask}x{lanes}"
    return (
        f"{_APART} {v} fb_loadifpart{mask[1:]}_{v}"
        f"(const {t} *p, long long s, {k} mask, {v} other, long long m) {{\n"
        f"  {_union(kind, lanes)} = {{ other }};\n  {_union(mask, lanes, 'k')} = {{ mask }};\n"
        f"  for (int l = 0; l < {lanes} && l < m; ++l) if (k.t[l]) u.t[l] = p[l * s];\n"
        f"  return u.v;\n}}\n"
    )


# ------------------------------------------------------------------------------- reductions


def _tail(kind: str, lanes: int) -> str:
    """Mask of the active lanes, for vectors of this kind."""
    i = f"{signed_kind(kind)}x{lanes}"
    head = f"static inline {i} fb_tail_{kind}x{lanes}(long long m) {{\n"
    if lanes == 1:
        return head + "  return -(m > 0);\n}\n"
    steps = ", ".join(str(lane) for lane in range(lanes))
    short = signed_kind(kind)
    return (
        f"{head}  {short}x1 limit = m < {lanes} ? ({short}x1)m : {lanes};\n"
        f"  return ({i})(({i}){{{steps}}} < limit);\n}}\n"
    )


def _pick(kind: str, lanes: int) -> str:
    """Elements of two vectors, side by side, by their numbers there."""
    v, t, i = f"{kind}x{lanes}", f"{kind}x1", signed_kind(kind)
    return (
        f"static inline {v} fb_pick_{v}({v} a, {v} b, {i}x{lanes} i) {{\n"
        f"#if __has_builtin(__builtin_shuffle)\n  return __builtin_shuffle(a, b, i);\n#else\n"
        f"  union {{ {v} v[2]; {t} t[{2 * lanes}]; }} u = {{ {{ a, b }} }};\n"
        f"  for (int l = 0; l < {lanes}; ++l) a[l] = u.t[i[l] & {2 * lanes - 1}];\n"
        f"  return a;\n#endif\n}}\n"
    )


_SIGNS = {"sum": "+", "prod": "*", "xor": "^"}


def combine(operation: str, kind: str, lanes: int, a: str, x: str) -> str:
    """C expression that adds the element `x` to the running value `a`."""
    if operation in _SIGNS:
        return f"({kind}x{lanes})({a} {_SIGNS[operation]} {x})"
    if operation in ("any", "all"):
        return f"({a} {'|' if operation == 'any' else '&'} {x})"
    return f"fb_{operation}_{kind}x{lanes}({a}, {x})"


def identity(operation: str, kind: str) -> str:
    """C constant that changes nothing when combined."""
    bits = kind_bits(kind)
    if operation in ("sum", "any", "xor"):
        return "0"
    if operation == "prod":
        return "1"
    if operation == "all":
        return "-1"
    largest = operation in ("min", "argmin")
    if kind[0] == "f":
        value = "__builtin_inff()" if bits == 32 else "__builtin_inf()"
        return value if largest else f"-{value}"
    if kind[0] == "u":
        return str((1 << bits) - 1) + "u" * (bits >= 32) if largest else "0"
    top = (1 << (bits - 1)) - 1
    suffix = "ll" if bits == 64 else ""
    return f"{top}{suffix}" if largest else f"(-{top}{suffix} - 1)"


def _extremum(operation: str) -> Builder:
    """Running maximum or minimum of integers; floats take part by their order (`_order`)."""

    def build(kind: str, lanes: int) -> str:
        v = f"{kind}x{lanes}"
        sign = ">" if operation == "max" else "<"
        head = f"static inline {v} fb_{operation}_{v}({v} a, {v} x) {{\n"
        if lanes == 1:
            return head + f"  return x {sign} a ? x : a;\n}}\n"
        # gcc makes one instruction of the loop, but not of comparing and selecting.
        return (
            f"{head}#if __has_builtin(__builtin_elementwise_{operation})\n"
            f"  return __builtin_elementwise_{operation}(x, a);\n#else\n"
            f"  for (int l = 0; l < {lanes}; ++l) a[l] = x[l] {sign} a[l] ? x[l] : a[l];\n"
            f"  return a;\n#endif\n}}\n"
        )

    return build


def nan_order(operation: str, bits: int) -> int:
    """The number that stands for NaN: beyond both infinities, on the winning side."""
    quiet = 0x1FF << (bits - 10) if bits == 32 else 0xFFF << (bits - 13)
    return quiet if operation == "max" else -quiet - 1


def _order(operation: str) -> Builder:
    """Floats as integers in the same order: -0 below +0, every NaN as `nan_order`.

    So extrema are those of integers, the same in any order of evaluation.
    """

    def build(kind: str, lanes: int) -> str:
        v, i, bits = f"{kind}x{lanes}", f"{signed_kind(kind)}x{lanes}", kind_bits(kind)
        low = f"{(1 << (bits - 1)) - 1}{'ll' if bits == 64 else ''}"
        nan = f"{nan_order(operation, bits)}{'ll' if bits == 64 else ''}"
        return (
            f"static inline {i} fb_order{operation}_{v}({v} x) {{\n"
            f"  {i} b = fb_as_{i}(x), ordered = b ^ ((b >> {bits - 1}) & {low});\n"
            f"  {i} nan = ({i})fb_ne_x{lanes}(x, x);\n"
            f"  return fb_select_{i}(nan, fb_splat_{i}({nan}), ordered);\n}}\n"
        )

    return build


def _unorder(operation: str) -> Builder:
    """The float that `_order` turned into an integer."""

    def build(kind: str, lanes: int) -> str:
        v, i, bits = f"{kind}x{lanes}", f"{signed_kind(kind)}x{lanes}", kind_bits(kind)
        suffix = "ll" if bits == 64 else ""
        low = f"{(1 << (bits - 1)) - 1}{suffix}"
        nan = '__builtin_nanf("")' if bits == 32 else '__builtin_nan("")'
        is_nan = f"({i})fb_eq_x{lanes}(b, {nan_order(operation, bits)}{suffix})"
        return (
            f"static inline {v} fb_unorder{operation}_{v}({i} b) {{\n"
            f"  {v} x = fb_as_{v}(b ^ ((b >> {bits - 1}) & {low}));\n"
            f"  return fb_select_{v}({is_nan}, fb_splat_{v}({nan}), x);\n}}\n"
        )

    return build


def order_identity(operation: str, bits: int) -> str:
    """The order of the infinity that changes nothing."""
    infinity = 0xFF << 23 if bits == 32 else 0x7FF << 52
    number = infinity if operation == "min" else -infinity - 1
    return f"({number}{'ll' if bits == 64 else ''})"


def _tree(operation: str) -> Builder:
    """Combines 32 lanes, kept in 32 / lanes vectors, in the canonical tree."""

    def build(kind: str, lanes: int) -> str:
        v = f"{kind}x{lanes}"
        vectors = 32 // lanes
        if lanes == 1:
            combined = combine(operation, kind, 1, "a[l]", "a[l + s]")
            return (
                f"static __attribute__((noinline)) {v} fb_tree{operation}_{v}({v} *a) {{\n"
                f"  for (int s = 16; s; s /= 2) for (int l = 0; l < s; ++l) {{\n"
                f"    a[l] = {combined}; FB_PLAIN;\n  }}\n"
                f"  return a[0];\n}}\n"
            )
        lines = [f"static inline {kind}x1 fb_tree{operation}_{v}({v} *a) {{"]
        step = vectors // 2
        while step:
            lines += [
                f"  a[{i}] = {combine(operation, kind, lanes, f'a[{i}]', f'a[{i + step}]')};"
                for i in range(step)
            ]
            step //= 2
        lines.append(f"  {v} b = a[0];")
        step = lanes // 2
        while step:
            order = [(lane + step) % lanes for lane in range(lanes)]
            shifted = _shuffle(kind, lanes, order)
            lines.append(f"  b = {combine(operation, kind, lanes, 'b', shifted)};")
            step //= 2
        return "\n".join([*lines, "  return b[0];\n}\n"])

    return build


def _shuffle(kind: str, lanes: int, order: list[int]) -> str:
    return f"FB_SHUFFLE({kind}x{lanes}, b, {', '.join(map(str, order))})"


def _push(operation: str) -> Builder:
    """Adds result `j` of a block of 4096 to the levels above it (lanes: [3][32], identities).

    After the last one (`last`) the incomplete blocks of all levels are closed; returns the result.
    """

    def build(kind: str, lanes: int) -> str:
        t, start = f"{kind}x1", identity(operation, kind)
        return (
            f"static __attribute__((noinline)) {t} fb_push{operation}_{t}"
            f"({t} (*lane)[32], long long j, {t} x, int last) {{\n"
            f"  for (;; ++lane, j >>= 12) {{\n"
            f"    {t} *a = &(*lane)[j & 31];\n"
            f"    *a = {combine(operation, kind, 1, '*a', 'x')};\n"
            f"    if (last ? j == 0 : (j & 4095) != 4095) return x;\n"
            f"    x = fb_tree{operation}_{t}(*lane);\n"
            f"    for (int l = 0; l < 32; ++l) {{ (*lane)[l] = {start}; FB_PLAIN; }}\n"
            f"  }}\n}}\n"
        )

    return build


def _arg_step(operation: str) -> Builder:
    """Keeps the first position of the extremum of every lane; NaN is the extremum of extrema."""

    def build(kind: str, lanes: int) -> str:
        v, i = f"{kind}x{lanes}", f"{signed_kind(kind)}x{lanes}"
        name = "gt" if operation == "argmax" else "lt"
        wins = f"({i})fb_{name}_x{lanes}(x, *a)"
        if kind[0] == "f":
            nan = f"(({i})fb_ne_x{lanes}(x, x) & ({i})fb_eq_x{lanes}(*a, *a))"
            wins = f"({wins} | {nan})"
        return (
            f"static inline void fb_{operation}_{v}({v} *a, {i} *at, {v} x, {i} position) {{\n"
            f"  {i} wins = {wins} | ({i})fb_lt_x{lanes}(*at, ({i}){{0}});\n"
            f"  *a = fb_select_{v}(wins, x, *a);\n"
            f"  *at = fb_select_{i}(wins, position, *at);\n}}\n"
        ).replace("({i}){0}", "0")

    return build


def _arg_tree(operation: str) -> Builder:
    """First position of the extremum over all lanes; -1 marks lanes that saw nothing."""

    def build(kind: str, lanes: int) -> str:
        v, i = f"{kind}x{lanes}", f"{signed_kind(kind)}x{lanes}"
        t, count = f"{kind}x1", 32
        sign = ">" if operation == "argmax" else "<"
        better = f"value[l] {sign} best"
        nan = "value[l] != value[l]" if kind[0] == "f" else "0"
        best_nan = "best != best" if kind[0] == "f" else "0"
        return (
            f"static __attribute__((noinline)) long long fb_tree{operation}_{v}"
            f"({v} *a, {i} *at, {t} *result) {{\n"
            f"  const {t} *value = (const {t} *)a;\n"
            f"  const {signed_kind(kind)}x1 *position = (const {signed_kind(kind)}x1 *)at;\n"
            f"  {t} best = value[0];\n  long long where = position[0];\n"
            f"  for (int l = 1; l < {count}; ++l) {{\n"
            f"    if (position[l] < 0) continue;\n"
            f"    int nan = {nan}, best_nan = {best_nan};\n"
            f"    int wins = where < 0 || (nan ? !best_nan || position[l] < where : !best_nan &&\n"
            f"      ({better} || (value[l] == best && position[l] < where)));\n"
            f"    if (wins) {{ best = value[l]; where = position[l]; }}\n"
            f"  }}\n  *result = best;\n  return where;\n}}\n"
        )

    return build


MEMORY: dict[str, Builder] = {
    "loadpart": _load_part,
    "storepart": _store_part,
    "gather": _gather,
    "gatherm": _gather_m,
    "gatherpart": _gather_part,
    "scatterm": _scatter_m,
    "takem": _take_m,
    "takepart": _take_part,
    "givem": _give_m,
    "takeif32": lambda kind, lanes: _take_if(kind, lanes, "i32"),
    "takeif64": lambda kind, lanes: _take_if(kind, lanes, "i64"),
    "loadifpart32": lambda kind, lanes: _load_if_part(kind, lanes, "i32"),
    "loadifpart64": lambda kind, lanes: _load_if_part(kind, lanes, "i64"),
}

TARGET_MEMORY: dict[str, TargetBuilder] = {
    "loadm": _load_m,
    "storem": _store_m,
    "loadif32": functools.partial(_load_if, mask="i32"),
    "loadif64": functools.partial(_load_if, mask="i64"),
}

REDUCTION: dict[str, Builder] = {
    "tail": _tail,
    "pick": _pick,
    "max": _extremum("max"),
    "min": _extremum("min"),
    "ordermax": _order("max"),
    "ordermin": _order("min"),
    "unordermax": _unorder("max"),
    "unordermin": _unorder("min"),
    "argmax": _arg_step("argmax"),
    "argmin": _arg_step("argmin"),
    "treeargmax": _arg_tree("argmax"),
    "treeargmin": _arg_tree("argmin"),
}
for _operation in ("sum", "prod", "max", "min", "any", "all", "xor"):
    REDUCTION[f"tree{_operation}"] = _tree(_operation)
    REDUCTION[f"push{_operation}"] = _push(_operation)
