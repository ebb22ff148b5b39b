"""Micro-kernels: the innermost loops of matrix products, and the packing that feeds them.

Templates (products, convolution, attention) put these static C functions in front of their own
text. With `micro = Micro.of("f32", target)`, `micro.text()` defines, K standing for "f32", "f64",
"i32" or "i64" (integers wrap):

    void fb_kernel_micro_K(long long rows, long long depth, const Kx1 *a, const Kx1 *b,
                           long long b_step, Kx1 *c, long long c_step, long long accumulate)

        c[i * c_step + j] (+)= sum over k < depth of a[k * rows + i] * b[k * b_step + j]
        for i < rows, j < `micro.columns`; `accumulate`: added to c, else stored.

    Each element is one chain of FMAs from +0 in increasing k, whatever the instruction set: with at
    most `CHUNK` of K per call, in increasing order, this is the canonical sum of docs/design.md.
    `rows` is at most `micro.rows`: the panel of A is packed with that very width. A height that
    has no code of its own runs as several (a panel of 13 rows as 8, 4 and 1).
    `b_step` is `micro.columns` for a packed slab; rows of B that lie along memory need no packing.

`micro.packing(stored)` defines, for elements stored as that kind, as a half type (K = "f32")
or a narrower integer (K = "i32"):

    void fb_kernel_pack_K_STORED(long long used, long long width, long long depth,
                                 const Tx1 *from, long long step, long long k_step,
                                 Kx1 *to, long long to_step)

        to[k * to_step + i] = from[i * step + k * k_step] for i < used, 0 for used <= i < width.

    It serves both operands: a panel of A (used = width = rows) and a slab of B (width = columns).
    With `Micro.of(kind, target, planes=2)` numbers are complex, real and imaginary parts apart: a
    row of a panel is `rows` real parts, then as many imaginary ones, a row of a slab or of c
    `columns` real parts, then imaginary ones. Offsets and steps count real numbers.

    `staged` micro-kernels have five more arguments, last: `const Kx1 *before, long long
    before_step`, sums so far, which take the place of c's where those are added to; `ahead`, of
    packed elements that are needed soon: a vector of them per k is fetched into the nearest cache;
    and `a_row, a_k`, strides of a in bytes, so that it need not be packed. Where `rounded` is set,
    there are two more: `u16x1 *out, long long out_step`; unless out is null, sums are rounded and
    stored there, and c is scratch memory. The caller defines `fb_kernel_finish` before.

    T is `MEMORY_KIND[stored]`. Memory along i or along k is read in whole vectors, the latter
    turned in registers; other strides element by element. Nothing outside of `to`'s rows is
    written, nothing outside of `from`'s elements read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND, kind_bits
from flambeau.compiler.targets import Target
from flambeau.ir.template_product import CHUNK, VECTORS

# Of float32: as bfloat16, and whether that is not what NARROWED gives (`c_micro_pairs`).
NARROWED, RARE = f"{SYMBOL}_narrowed", f"{SYMBOL}_rare"
_PREFETCH = 12  # rows of b: those of an unpacked b lie too far apart for the hardware to guess


@dataclass(frozen=True)
class Micro:
    """The micro-kernels of a kind for a target.

    Attributes:
        kind: of packed operands and sums.
        lanes: of a vector.
        heights: panel heights with code of their own, the largest first.
        target: what declares the instructions.
        planes: 2 for complex numbers, else 1.
        staged: whether sums so far may lie elsewhere, and what comes next is fetched.
        rounded: the half type that sums may be rounded to on their way to memory, or "".
    """

    kind: str
    lanes: int
    heights: tuple[int, ...]
    target: Target
    planes: int = 1
    staged: bool = False
    rounded: str = ""

    @staticmethod
    def of(kind: str, target: Target, planes: int = 1) -> Micro:
        """The micro-kernels that suit a target."""
        heights = target.heights if planes == 1 else target.complex_heights
        return Micro(kind, target.lanes(kind_bits(kind) // 8), heights, target, planes)

    @property
    def masks(self) -> bool:
        """Whether lanes of a vector may be left out of loads and stores at no cost."""
        return self.target.masks_lanes(self.kind, self.lanes)

    @property
    def rows(self) -> int:
        """Most rows of a panel of A."""
        return self.heights[0]

    @property
    def columns(self) -> int:
        """Columns of a slab of B."""
        return VECTORS * self.lanes // self.planes

    @property
    def name(self) -> str:
        """The C function's name."""
        return f"{SYMBOL}_micro_{self.kind}"

    @property
    def packed(self) -> str:
        """Kind of a packed element."""
        return self.kind

    @property
    def group(self) -> int:
        """Elements of K per packed element."""
        return 1

    @property
    def chunk(self) -> int:
        """Elements of K of one call of the micro-kernel, at most."""
        return CHUNK

    @property
    def starts(self) -> bool:
        """Whether sums have a start of their own, an argument of the micro-kernel."""
        return False

    def splat(self, element: str) -> str:
        """A packed element in all lanes."""
        return f"fb_splat_{self.kind}x{self.lanes}({element})"

    @property
    def parameters(self) -> str:
        """The C functions' parameters."""
        t, e = f"{self.kind}x1", f"{self.packed}x1"
        text = (
            f"long long rows, long long depth, const {e} *a, const {e} *b, long long b_step, "
            f"{t} *c, long long c_step, long long accumulate"
        )
        if self.starts:
            text += f", const {t} *start"
        if self.staged:
            text += f", const {t} *before, long long before_step, const {e} *ahead"
            text += ", long long a_row, long long a_k"
        if self.rounded:
            text += ", u16x1 *out, long long out_step"
        return text

    @property
    def _more(self) -> str:
        """Returns the arguments from the ninth on that a function passes on."""
        text = ", start" if self.starts else ""
        text += ", before, before_step, ahead, a_row, a_k" if self.staged else ""
        return text + (", out, out_step" if self.rounded else "")

    def text(self) -> str:
        """C text of the micro-kernels."""
        return "".join([*(self._block(height) for height in self.heights), self._panel()])

    def packing(self, stored: str, swapped: bool = False) -> str:
        """C text of the packing function of a stored element type; `swapped`: the odd element of
        each pair along K comes first."""
        if self.planes == 1:
            return Packing(self, stored, swapped).text()
        plain, t = self.packing_name(self.kind), f"{self.kind}x1"
        parts = [
            f"  {plain}(used, width, depth, (const {t} *)from{place}, 2 * step, 2 * k_step, "
            f"to{to}, to_step);"
            for place, to in (("", ""), (" + 1", " + width"))
        ]
        head = (
            f"FB_SHARED void {self.packing_name(stored)}(long long used, long long width, "
            f"long long depth, const {MEMORY_KIND[stored]}x1 *from, long long step, "
            f"long long k_step, {t} *to, long long to_step) {{"
        )
        return "\n".join([Packing(self, self.kind).text(), head, *parts, "}"]) + "\n"

    def packing_name(self, stored: str, left: bool = False) -> str:
        """The packing function's name; `left`: of the operand whose rows are panels."""
        return f"{SYMBOL}_pack_{self.kind}_{stored}"

    def _block(self, height: int) -> str:
        """c[height][columns]; the panel may be a part of one of `rows` rows."""
        v, lanes = f"{self.kind}x{self.lanes}", self.lanes
        w = f"{self.packed}x{lanes}"
        sums = [[f"s{i}_{j}" for j in range(VECTORS)] for i in range(height)]
        far = self.staged and height == self.rows
        lines = [
            f"FB_SHARED void {self.name}_{height}({self.parameters}) {{",
            *(f"  {v} {', '.join(self._first(s, j) for j, s in enumerate(row))};" for row in sums),
            *(self._touch(height) if far else ()),
            *(self._places(height) if self.staged else ()),
            "  for (long long k = 0; k < depth; ++k) {",
        ]
        for j in range(VECTORS):
            lines.append(f"    const {w} b{j} = *(const {w} *)(b + {j * lanes});")
        for j in range(VECTORS):
            lines.append(f"    __builtin_prefetch(b + {_PREFETCH} * b_step + {j * lanes});")
        for i, row in enumerate(sums):
            lines += self._row(i, row)
        if far:
            lines.append(f"    __builtin_prefetch(ahead); ahead += {lanes};")
        lines += [f"    {self._next(height)} b += b_step;", "  }", "  if (accumulate) {"]
        held = "before" if self.staged else "c"
        places = [(s, i, j * lanes) for i, row in enumerate(sums) for j, s in enumerate(row)]
        lines += [
            f"    {s} = *(const {v} *)({held} + {i} * {held}_step + {j}) + {s};"
            for s, i, j in places
        ]
        lines.append("  }")
        if self.rounded and far:
            lines += self._round(places)
        lines += [f"  *({v} *)(c + {i} * c_step + {j}) = {s};" for s, i, j in places]
        if self.rounded:
            call = f"{SYMBOL}_finish(c + i * c_step, out + i * out_step, {self.columns});"
            lines.append(f"  if (out) for (int i = 0; i < {height}; ++i) {call}")
        return "\n".join([*lines, "}"]) + "\n"

    def _touch(self, height: int) -> list[str]:
        """Sums that come from elsewhere: the lines that they go to are fetched first."""
        places = [f"c + {i} * c_step + {j * self.lanes}" for i in range(height) for j in (0, 1)]
        fetched = [f"    __builtin_prefetch({place}, 1);" for place in places]
        return ["  if (c != before) {", *fetched, "  }"]

    def _round(self, places: list[tuple[str, int, int]]) -> list[str]:
        """Sums go from registers to memory as halves."""
        lines, test, value = [], "", f"fb_to{self.rounded}_u16x{self.lanes}({{}})"
        if self.rounded == "bf16":  # the instruction does not suit all numbers: RARE tells
            lines, test, value = ["  unsigned rare = 0;"], " && !rare", f"{NARROWED}({{}})"
            lines.append("  if (out) {")
            lines += [f"    rare |= {RARE}({s});" for s, _, _ in places]
            lines.append("  }")
        lines.append(f"  if (out{test}) {{")
        for s, i, j in places:
            at = f"*(u16x{self.lanes} *)(out + {i} * out_step + {j})"
            lines.append(f"    {at} = {value.format(s)};")
        return [*lines, "    return;", "  }"]

    def _places(self, height: int) -> list[str]:
        """Where every third row of the panel is: the others are reached in one address."""
        lines = ["  const char *from0 = (const char *)a;"]
        groups = range(1, -(-height // 3))
        return lines + [f"  const char *from{i} = from{i - 1} + 3 * a_row;" for i in groups]

    def _next(self, height: int) -> str:
        """Goes on to the next k of the panel."""
        if not self.staged:
            return f"a += {self.planes} * rows;"
        return " ".join(f"from{i} += a_k;" for i in range(-(-height // 3)))

    def _row(self, i: int, row: list[str]) -> list[str]:
        """One k of one row of sums."""
        v, w = f"{self.kind}x{self.lanes}", f"{self.packed}x{self.lanes}"
        element = f"a[{i}]"
        if self.staged:
            element = f"*(const {self.packed}x1 *)(from{i // 3} + {i % 3} * a_row)"
        lines = [f"    const {w} a{i} = {self.splat(element)};"]
        if self.planes == 1:
            return lines + [
                f"    {s} = {self.chained(f'a{i}', f'b{j}', s)};" for j, s in enumerate(row)
            ]
        real, imaginary = row
        imaginary_element = f"a[rows + {i}]"
        if self.staged:  # which is packed
            imaginary_element = element.replace("(from", "(rows * a_row + from")
        return [
            *lines,
            f"    const {v} i{i} = fb_splat_{v}({imaginary_element});",
            f"    {real} = fb_fma_{v}(-i{i}, b1, fb_fma_{v}(a{i}, b0, {real}));",
            f"    {imaginary} = fb_fma_{v}(i{i}, b0, fb_fma_{v}(a{i}, b1, {imaginary}));",
        ]

    def _first(self, name: str, vector: int) -> str:
        """Declares a vector of sums."""
        if self.starts:
            return f"{name} = *(const {self.kind}x{self.lanes} *)(start + {vector * self.lanes})"
        return f"{name} = {{0}}"

    def chained(self, a: str, b: str, s: str) -> str:
        """One step of a chain; integers wrap."""
        return (
            f"{s} + {a} * {b}"
            if self.kind[0] == "i"
            else f"fb_fma_{self.kind}x{self.lanes}({a}, {b}, {s})"
        )

    def _panel(self) -> str:
        """The function for any height, out of blocks."""
        e = f"{self.packed}x1"
        arguments = f"(rows, depth, a, b, b_step, c, c_step, accumulate{self._more});"
        lines = [
            f"static inline FB_ALWAYS void {self.name}({self.parameters}) {{",
            f"  if (__builtin_expect(rows == {self.rows}, 1)) {{",
            f"    {self.name}_{self.rows}{arguments}",
            "    return;",
            "  }",
            "  long long left = rows;",
        ]
        for height in self.heights[1:]:
            test = "while" if height == self.heights[1] else "if"
            taken = f"a = (const {e} *)((const char *)a + {height} * a_row);"
            taken = taken if self.staged else f"a += {height};"
            moved = f" before += {height} * before_step;" if self.staged else ""
            moved += f" if (out) out += {height} * out_step;" if self.rounded else ""
            lines += [
                f"  {test} (left >= {height}) {{",
                f"    {self.name}_{height}{arguments}",
                f"    {taken} c += {height} * c_step; left -= {height};{moved}",
                "  }",
            ]
        return "\n".join([*lines, "}"]) + "\n"


# ------------------------------------------------------------------------------- packing


class Packing:
    """Prints one packing function."""

    def __init__(self, micro: Micro, stored: str, swapped: bool = False) -> None:
        self.micro, self.stored, self.swapped = micro, stored, swapped
        self.lanes = micro.lanes
        self.vector, self.element = f"{micro.kind}x{self.lanes}", f"{micro.kind}x1"
        self.memory = MEMORY_KIND[stored]
        self.name = micro.packing_name(stored)

    def decode(self, value: str, lanes: int) -> str:
        """A stored value as the packed kind."""
        if self.stored in ("f16", "bf16"):
            return f"fb_from{self.stored}_u16x{lanes}({value})"
        if self.memory != self.micro.kind:
            return f"fb_to_{self.micro.kind}x{lanes}({value})"
        return value

    def text(self) -> str:
        """C text: helper functions, then the packing function."""
        return "".join([self._store(), self._turn(), self._along_columns(), self._function()])

    def _store(self) -> str:
        """Writes the first m lanes: without masks the parts whose sizes are powers of two."""
        v, lanes, bits = self.vector, self.lanes, kind_bits(self.micro.kind) // 8
        lines = [
            f"static inline FB_ALWAYS void {self.name}_store({self.element} *to, {v} x, "
            "long long m) {",
            f"  if (m >= {lanes}) {{ *({v} *)to = x; return; }}",
        ]
        if self.micro.masks:
            return "\n".join([*lines, f"  fb_storem_{v}(to, x, m);", "}"]) + "\n"
        lines += [
            f"  union {{ {v} v; {self.element} t[{lanes}]; }} u = {{ x }};",
            f"  const {self.element} *rest = u.t;",
        ]
        part = lanes // 2
        while part:
            size = part * bits
            lines.append(
                f"  if (m & {part}) {{ __builtin_memcpy(to, rest, {size}); "
                f"to += {part}; rest += {part}; }}"
            )
            part //= 2
        return "\n".join([*lines, "}"]) + "\n"

    def _turn(self) -> str:
        """A square block in registers: r[k] becomes element k of all rows."""
        v, n = self.vector, self.lanes
        lines = [f"static inline FB_ALWAYS void {self.name}_turn({v} *r) {{"]
        lines += turning(v, self.micro.kind, n, [f"r[{i}]" for i in range(n)])
        return "\n".join([*lines, "}"]) + "\n"

    def _along_columns(self) -> str:
        """Elements that lie along k, in blocks as wide as a vector; returns how many k are done.

        Where less than a vector of rows is left, a store spills over into the next k's row, which
        is written after it; only the last one is cut.
        """
        n, tail = self.lanes, self.micro.rows % self.lanes
        lines = [
            f"FB_SHARED long long {self.name}_turned(long long used, long long width, "
            f"long long depth, const {self.memory}x1 *from, long long step, {self.element} *to, "
            "long long to_step) {",
            f"  const long long whole = depth / {n} * {n};",
            f"  for (long long i = 0; i < width; i += {n}) {{",
            f"    if (__builtin_expect(used - i >= {n}, 1))",
            *self._block(n),
        ]
        if tail:
            alone = self.micro.rows < n
            lines += [f"    else if (used - i == {tail} && width - i == {tail})"]
            lines += self._block(tail, spills=alone)
        one = self.decode("from[l * step + k]", 1)
        return "\n".join(
            [
                *lines,
                "    else",
                f"      for (long long l = i; l < width && l < i + {n}; ++l)",
                "        for (long long k = 0; k < whole; ++k)",
                f"          to[{self._place()} * to_step + l] = l < used ? {one} : 0;",
                "  }",
                "  return whole;",
                "}",
                "",
            ]
        )

    def _block(self, rows: int, spills: bool = False) -> list[str]:
        """Turns blocks of so many rows."""
        v, n, odd = self.vector, self.lanes, int(self.swapped)
        lines = [
            f"      for (long long k = 0; k < whole; k += {n}) {{",
            f"        const {self.memory}x1 *row = from + i * step + k;",
            f"        {self.element} *out = to + k * to_step + i;",
            f"        {v} r[{n}];",
        ]
        for row in range(n):
            value = f"({v}){{0}}"
            if row < rows:
                value = self.decode(f"*(const {self.memory}x{n} *)(row + {row} * step)", n)
                lines.append(f"        __builtin_prefetch(row + {row} * step + {4 * n});")
            lines.append(f"        r[{row}] = {value};")
        lines.append(f"        {self.name}_turn(r);")
        if rows == n:
            lines += [f"        *({v} *)(out + {k} * to_step) = r[{k ^ odd}];" for k in range(n)]
            return [*lines, "      }"]
        cut = [f"{self.name}_store(out + {k} * to_step, r[{k ^ odd}], {rows});" for k in range(n)]
        if not spills:
            return [*lines, *(f"        {store}" for store in cut), "      }"]
        lines.append(f"        if (to_step == {rows}) {{")
        lines += [f"          *({v} *)(out + {k} * to_step) = r[{k ^ odd}];" for k in range(n - 1)]
        lines += [f"          {cut[-1]}", "        } else {"]
        return [*lines, *(f"          {store}" for store in cut), "        }", "      }"]

    def _place(self) -> str:
        """Returns the row of the packed operand that element k goes to."""
        return "((k ^ 1) < depth ? k ^ 1 : k)" if self.swapped else "k"

    def _function(self) -> str:
        t, n, v = self.element, self.lanes, self.vector
        full = self.decode(f"*(const {self.memory}x{n} *)(row + i)", n)
        part = self.decode(f"fb_loadm_{self.memory}x{n}(row + i, used - i)", n)
        one = self.decode("from[i * step + k * k_step]", 1)
        return f"""\
FB_SHARED void {self.name}(long long used, long long width, long long depth,
    const {self.memory}x1 *from, long long step, long long k_step, {t} *to, long long to_step) {{
  long long k = 0;
  if (step == 1) {{
    for (; k < depth; ++k) {{
      const {self.memory}x1 *row = from + k * k_step;
      {t} *out = to + {self._place()} * to_step;
      long long i = 0;
      for (; i + {n} <= used; i += {n}) *({v} *)(out + i) = {full};
      if (i < used) {{ {self.name}_store(out + i, {part}, width - i); i += {n}; }}
      for (; i < width; i += {n}) {self.name}_store(out + i, ({v}){{0}}, width - i);
    }}
    return;
  }}
  if (k_step == 1) k = {self.name}_turned(used, width, depth, from, step, to, to_step);
  for (; k < depth; ++k) {{
    {t} *out = to + {self._place()} * to_step;
    long long i = 0;
    for (; i < used; ++i) out[i] = {one};
    for (; i < width; ++i) out[i] = 0;
  }}
}}
"""


def turning(vector: str, kind: str, lanes: int, names: list[str]) -> list[str]:
    """C lines that transpose a square block held in the named registers, in place."""
    lines = [f"  const {vector} t{i} = {name};" for i, name in enumerate(names)]
    held = [f"t{i}" for i in range(lanes)]
    count = 0
    for first, second, orders in _turning(lanes, kind_bits(kind)):
        results = []
        for order in orders:
            listed = ", ".join(map(str, order))
            text = f"FB_SHUFFLE2({vector}, {held[first]}, {held[second]}, {listed})"
            lines.append(f"  const {vector} u{count} = ({vector}){text};")
            results.append(f"u{count}")
            count += 1
        held[first], held[second] = results
    order = _turned_order(lanes, kind)
    return lines + [f"  {name} = {held[p]};" for name, p in zip(names, order)]


def _turning(lanes: int, bits: int) -> Iterable[tuple[int, int, tuple[list[int], list[int]]]]:
    """The exchanges of a transposition in registers: (first, second, orders of the two results).

    Inside of parts of 128 bits elements are interleaved, then whole parts are exchanged: every step
    is one instruction on x86. Where the result for each k is left, `_turned_order` tells.
    """
    inside = 128 // bits  # elements of a part
    parts = lanes // inside

    def by_part(pattern: list[int]) -> list[int]:
        return [
            part * inside + p % inside + (lanes if p >= inside else 0)
            for part in range(parts)
            for p in pattern
        ]

    low, high = ([0, 2], [1, 3]) if inside == 2 else ([0, 4, 1, 5], [2, 6, 3, 7])
    for i in range(0, lanes, 2):
        yield i, i + 1, (by_part(low), by_part(high))
    if inside == 4:
        for i in range(0, lanes, 4):
            for j in (0, 1):
                yield i + j, i + j + 2, (by_part([0, 1, 4, 5]), by_part([2, 3, 6, 7]))

    def parts_of(chosen: list[int]) -> list[int]:
        return [part * inside + e for part in chosen for e in range(inside)]

    distance = inside
    while distance < lanes:
        even = [*range(0, parts, 2), *range(parts, 2 * parts, 2)]
        odd = [part + 1 for part in even]
        for i in range(lanes):
            if not i & distance:
                yield i, i + distance, (parts_of(even), parts_of(odd))
        distance *= 2


def _turned_order(lanes: int, kind: str) -> list[int]:
    """Returns, for each k, the register that holds element k of all rows after `_turning`."""
    rows = [[(i, k) for k in range(lanes)] for i in range(lanes)]
    for first, second, orders in _turning(lanes, kind_bits(kind)):
        both = rows[first] + rows[second]
        rows[first], rows[second] = ([both[p] for p in order] for order in orders)
    registers = [0] * lanes
    for register, elements in enumerate(rows):
        assert [i for i, _ in elements] == list(range(lanes))
        registers[elements[0][1]] = register
    return registers


__all__ = ["CHUNK", "VECTORS", "Micro", "Packing"]
