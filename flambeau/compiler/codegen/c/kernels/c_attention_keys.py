"""Decoding's scores: blocks of keys, read in one stream, turned in registers.

A key's score is one chain of FMAs along its elements, so vectors hold keys: memory, where a key's
elements lie together, is turned. Four rows at a time fill a register by parts of 128 bits, read
where they lie; then only elements inside of parts change places. Elements of 16 bits move in pairs
and are widened last, so half types cost as many moves per byte as float32.

Keys are read in steps of few kilobytes. A step is read into the first cache in memory's order by
plain loads, for only these make the processor look far ahead; then it is turned, and meanwhile the
first half of the next step is fetched, so that memory never rests. (All of it would be too much:
fetches that nobody waits for do not make the processor look ahead.) Several rows of queries compute
for longer than memory needs: what comes far later is fetched into the second cache.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels.c_attention import Attention
from flambeau.compiler.codegen.c.printer.c_types import HALVES

TOGETHER = 4  # rows of queries that share what was read and turned

_KEYS = """\
/* Scores of UNIT rows of queries: the keys of a step lie in the first cache. A row of what comes
   next is fetched whenever its turn has come. */
static INLINED void fb_kernel_keys_UNIT(const char *from, long long bytes,
    long long row, const char *next, long long next_step, const <T> *q, <T> *s) {
  const long long parts = row / <PART>;
  long long due = 0;
  for (long long d = 0; d < parts; d += <CHUNK> / <WIDE>) {
    const long long last = parts - d < <CHUNK> / <WIDE> ? parts : d + <CHUNK> / <WIDE>;
SUMS    for (long long e = d; e < last; ++e) {
      if (next)
        for (due += <DUE>; due >= parts; due -= parts, next += next_step)
          for (long long b = 0; b < row; b += 64) __builtin_prefetch(next + bHINT);
      const char *a = from + e * <PART>;
      const <T> *part = q + e * <WIDE> * UNIT;
      fb_kernel_part_UNIT(STARTS, bytes, part, NAMES);
    }
ADDED  }
}
"""

_BLOCK = """\
/* Scores of all rows of queries against a block of keys; `next` is what memory is read later: for
   one row the next block, for several any other. */
static void fb_kernel_block_of_keys(const <M> *from, long long step, long long size,
    const <M> *next, long long next_step, long long rows, const <T> *q, <T> *s) {
  const long long row = size * (long long)sizeof(<M>);
  for (long long i = 0; i < <C>; i += <STEP>, from += <STEP> * step, s += <STEP>) {
    const int end = i + <STEP> == <C>;
    const char *keys = (const char *)from;
    const long long bytes = step * (long long)sizeof(<M>);
    const char *then = (const char *)(rows > 1 ? next + i * next_step
        : end ? next : from + <STEP> * step);
    const long long then_bytes = rows > 1 || end ? next_step * (long long)sizeof(<M>) : bytes;
    for (long long k = 0; k < <STEP>; ++k)
      for (long long b = 0; b < row; b += 64)
        __asm__ volatile("" : : "r"(*(const volatile char *)(keys + k * bytes + b)));
    if (rows == 1)
      fb_kernel_keys_1(keys, bytes, row, then, then_bytes, q, s);
    else
      for (long long r = 0; r < rows; r += <TOGETHER>)
        fb_kernel_keys_<TOGETHER>(keys, bytes, row, r ? 0 : then, then_bytes, q + r * size,
            s + r * <SEGMENT>);
  }
}
"""


def part_bytes(lanes: int) -> int:
    """Bytes of a row that are turned at a time."""
    return min(32, 4 * lanes)


def block_of_keys(made: Attention) -> str:
    """`fb_kernel_block_of_keys`: for elements of at most 32 bits, rows of whole parts."""
    n, nbytes = made.micro.lanes, part_bytes(made.micro.lanes)
    wide = nbytes // (2 if made.stored in HALVES else 4)
    groups = 2 if made.stored in HALVES else 1  # of keys: enough chains of FMAs, and few bytes
    texts = [_types(n)]
    for unit in (1, TOGETHER):
        texts += [_add_part(made, wide, unit, groups), _keys(unit, groups, n)]
    text = "".join([*texts, _BLOCK.replace("<TOGETHER>", str(TOGETHER))])
    text = text.replace("<STEP>", str(groups * n))
    return made.fill(text.replace("<WIDE>", str(wide)).replace("<PART>", str(nbytes)))


def _names(unit: int, groups: int) -> list[str]:
    """Sums of groups of keys, of each row."""
    return [f"t{r}_{group}" for r in range(unit) for group in range(groups)]


def _keys(unit: int, groups: int, lanes: int) -> str:
    names = _names(unit, groups)
    starts = ", ".join(f"a + {group} * <N> * bytes" for group in range(groups))
    places = [
        f"*(<V> *)(s + {r} * <SEGMENT> + {group} * <N>)"
        for r in range(unit)
        for group in range(groups)
    ]
    added = [f"    if (d) {name} = {place} + {name};\n" for place, name in zip(places, names)]
    added += [f"    {place} = {name};\n" for place, name in zip(places, names)]
    zeros = ", ".join(f"{name} = {{0}}" for name in names)
    text = _KEYS.replace("SUMS", f"    <V> {zeros};\n").replace("ADDED", "".join(added))
    alone = unit == 1
    text = text.replace("<DUE>", str(groups * lanes // (2 if alone else 1)))
    text = text.replace("HINT", "" if alone else ", 0, 2")
    text = text.replace("STARTS", starts)
    text = text.replace("NAMES", ", ".join(f"&{name}" for name in names))
    inlined = "inline FB_ALWAYS" if alone else "__attribute__((noinline))"
    text = text.replace("INLINED", inlined)
    return text.replace("UNIT", str(unit))


def _types(lanes: int) -> str:
    """Vectors of integers of 32 and 64 bits, and `fb_kernel_pair`: parts of two rows of four."""
    lines = [
        f"typedef {kind} fb_kernel_{letter}{nbytes} __attribute__((vector_size({nbytes}), "
        "aligned(2), may_alias));"
        for nbytes in sorted({part_bytes(lanes), 4 * lanes})
        for kind, letter in (("int", "w"), ("long long", "q"))
    ]
    if lanes < 16:
        return "\n".join([*lines, ""])
    order = ", ".join(map(str, range(lanes)))
    return "\n".join(
        [
            *lines,
            "static inline FB_ALWAYS fb_kernel_w64 fb_kernel_pair(const char *a, const char *b) {",
            "#if defined(__GNUC__) && !defined(__clang__)  /* loads that blend, and do not move */",
            "  fb_kernel_q64 t = {0};",
            "  t = __builtin_ia32_broadcasti64x4_512(*(const fb_kernel_q32 *)a, t, 0xff);",
            "  t = __builtin_ia32_broadcasti64x4_512(*(const fb_kernel_q32 *)b, t, 0xf0);",
            "  return (fb_kernel_w64)t;",
            "#else",
            "  return __builtin_shufflevector(*(const fb_kernel_w32 *)a, "
            f"*(const fb_kernel_w32 *)b, {order});",
            "#endif",
            "}",
            "",
        ]
    )


def _registers(lanes: int, row: str) -> list[str]:
    """What is read: a part of a row, or of two of them, which are 4 apart."""
    count = part_bytes(lanes) // 4
    if lanes < 16:
        return [f"*(const fb_kernel_w{4 * lanes} *)({row} + {i} * step)" for i in range(count)]
    rows = [i + i // 4 * 4 for i in range(count)]
    return [f"fb_kernel_pair({row} + {r} * step, {row} + {r + 4} * step)" for r in rows]


def _moves(lanes: int, row: str, name: str) -> tuple[list[str], list[str]]:
    """Turns the registers: lines, and the names of what holds each 32 bits of all rows."""
    count, w, q = part_bytes(lanes) // 4, f"fb_kernel_w{4 * lanes}", f"fb_kernel_q{4 * lanes}"
    lines = [f"  const {w} {name}{i} = {text};" for i, text in enumerate(_registers(lanes, row))]
    held = [f"{name}{i}" for i in range(count)]

    def exchange(kind: str, first: int, second: int, orders: tuple[list[int], list[int]]) -> None:
        """Elements of two registers, interleaved."""
        a, b = held[first], held[second]
        for place, order in ((first, orders[0]), (second, orders[1])):
            held[place] = f"{name}{len(lines)}"
            text = f"FB_SHUFFLE2({kind}, ({kind}){a}, ({kind}){b}, {', '.join(map(str, order))})"
            lines.append(f"  const {w} {held[place]} = ({w}){text};")

    def inside(first: int, size: int) -> list[int]:
        """Of each 128 bits, some elements of both."""
        total = lanes * size // 4
        parts = range(first, total, size)
        return [part + i // 2 + i % 2 * total for part in parts for i in range(size)]

    for i in range(0, count, 2):
        exchange(w, i, i + 1, (inside(0, 4), inside(2, 4)))
    for i in range(0, count, 4):
        for j in (i, i + 1):
            exchange(q, j, j + 2, (inside(0, 2), inside(1, 2)))
    for i in range(count // 8 * 4):
        even = [p + e for p in range(0, 2 * lanes, 8) for e in range(4)]
        exchange(w, i, i + 4, (even, [e + 4 for e in even]))
    places = [first + i for first in range(0, count, 4) for i in (0, 2, 1, 3)]
    return lines, [held[place] for place in places]


def _add_part(made: Attention, wide: int, unit: int, groups: int) -> str:
    """Parts of groups of keys added to the scores of `unit` rows; queries are [element][row].
    Chains take turns, for each waits."""
    n, names = made.micro.lanes, _names(unit, groups)
    rows = ", ".join(f"const char *row{group}" for group in range(groups))
    lines = [
        f"static inline FB_ALWAYS void fb_kernel_part_{unit}({rows}, "
        f"long long step, const <T> *q, {', '.join(f'<V> *{name}' for name in names)}) {{",
    ]
    moves = [_moves(n, f"row{group}", "ab"[group]) for group in range(groups)]
    lines += [line for part in moves for line in part[0]]
    for d in range(wide):
        for group, (_, held) in enumerate(moves):
            lines.append(f"  const <V> k{d}_{group} = {_element(made, held, d)};")
        for r in range(unit):
            lines.append(f"  const <V> q{d}_{r} = fb_splat_<V>(q[{d * unit + r}]);")
            for group in range(groups):
                name = f"*t{r}_{group}"
                lines.append(f"  {name} = fb_fma_<V>(q{d}_{r}, k{d}_{group}, {name});")
    return "\n".join([*lines, "}", ""])


def _element(made: Attention, held: list[str], d: int) -> str:
    """Element d of a part, of every row, as the kind that is computed in."""
    n = made.micro.lanes
    if made.stored not in HALVES:
        return f"(<V>){held[d]}"
    pair = f"(u32x{n}){held[d // 2]}"
    if made.stored == "bf16":
        return f"(<V>)(({pair}) & 0xffff0000u)" if d % 2 else f"(<V>)(({pair}) << 16)"
    half = f"({pair}) >> 16" if d % 2 else f"({pair}) & 0xffffu"
    return f"fb_fromf16_u16x{n}(fb_to_u16x{n}({half}))"


__all__ = ["TOGETHER", "block_of_keys", "part_bytes"]
