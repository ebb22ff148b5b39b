"""Products with few rows: as fast as B can be read, as it lies, without packing.

`few_rows(micro, stored, target)` defines, K standing for the kind of sums, P for that of packed
elements (`Micro.packed`), T for what memory holds,

    void fb_kernel_few(long long rows, long long columns, long long depth, const Tx1 *a,
                       long long a_row, long long a_k, const Tx1 *b, long long b_k,
                       long long b_column, Kx1 *sum, long long pitch, Px1 *scratch)

    sum[i * pitch + j] = the canonical sum over k of a[i * a_row + k * a_k] * b[k * b_k + j *
    b_column], for b_column == 1 or b_k == 1. `scratch` has room for MOST * (SEGMENT + 2 * pitch)
    elements; rows of `sum` have room for whole vectors.

The rows of A are copied, group by group along K, a segment at a time. Rows of B that lie along
memory are read whole and in order, several at a time, and added to the sums in the nearest cache.
Where columns lie along memory, as many of them as a vector has lanes are read side by side to their
ends, in blocks that are turned in registers.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels.c_micro import CHUNK, Micro, turning
from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND
from flambeau.compiler.targets import Target
from flambeau.ir.template_product import MOST, SEGMENT


def few_rows(micro: Micro, stored: str, target: Target) -> str:
    """C text of `fb_kernel_few` and its parts."""
    heights, shared = target.gemv_heights, target.gemv_heights[0]
    printer = _FewRows(micro, stored)
    parts = [
        printer.helpers(),
        *map(printer.rows, heights),
        *map(printer.turned, (shared, 1)),
    ]
    return "".join([*parts, printer.function(heights, shared)])


class _FewRows:
    def __init__(self, micro: Micro, stored: str) -> None:
        self.micro, self.stored, self.group = micro, stored, micro.group
        self.lanes, self.memory = micro.lanes, f"{MEMORY_KIND[stored]}x1"
        self.v, self.t = f"{micro.kind}x{micro.lanes}", f"{micro.kind}x1"
        self.w, self.e = f"{micro.packed}x{micro.lanes}", f"{micro.packed}x1"
        self.halves = stored in ("f16", "bf16") and self.group == 1

    # ------------------------------------------------------------------------ elements

    def decode(self, value: str, lanes: int) -> str:
        """Decodes memory to a packed element, where groups are single elements."""
        return f"fb_from{self.stored}_u16x{lanes}({value})" if self.halves else value

    def helpers(self) -> str:
        """One packed element of A, and a vector of them of B, element by element."""
        n, kind = self.lanes, MEMORY_KIND[self.stored]
        head = f"static inline FB_ALWAYS {self.e} {SYMBOL}_one(const {self.memory} *at, "
        tail = (
            f"static inline FB_ALWAYS {self.w} {SYMBOL}_last(const {self.memory} *at, "
            f"long long step, long long m, long long left) {{\n"
        )
        if self.group == 1:
            gathered = self.decode(f"fb_gatherm_{kind}x{n}(at, step, m)", n)
            return (
                f"{head}long long step, long long left) {{\n"
                f"  return {self.decode('*at', 1)};\n}}\n{tail}  return {gathered};\n}}\n"
            )
        return (
            f"{head}long long step, long long left) {{\n"
            f"  {self.e} x = at[0];\n  return left > 1 ? x | ({self.e})at[step] << 16 : x;\n}}\n"
            f"{tail}  union {{ {self.w} v; {self.e} t[{n}]; }} u = {{ ({self.w}){{0}} }};\n"
            f"  for (int l = 0; l < {n} && l < m; ++l)\n"
            f"    u.t[l] = {SYMBOL}_one(at + l * step, 1, left);\n  return u.v;\n}}\n"
        )

    def factor(self, row: int, height: int, k: str) -> str:
        """An element of A in all lanes."""
        return self.micro.splat(f"a[{k} * {height} + {row}]")

    # ---------------------------------------------------------------- rows along memory

    def rows(self, height: int) -> str:
        """One chunk of K: whole rows of B, that lie along memory, are added to the sums."""
        steps = 8 if height == 1 else 4
        n = self.lanes * self.group  # columns of whole steps
        lines = [
            f"FB_SHARED void {SYMBOL}_rows_{height}(long long columns, long long depth, "
            f"const {self.e} *a, const {self.memory} *b, long long b_k, {self.t} *sum, "
            "long long pitch) {",
            f"  const long long groups = (depth + {self.group - 1}) / {self.group};",
            f"  const long long full = depth / {self.group};",
            "  long long k = 0;",
        ]
        for count in (steps, 1):
            limit = "full" if count > 1 else "groups"
            lines.append(f"  for (; k + {count} <= {limit}; k += {count}) {{")
            for i in range(height):
                for s in range(count):
                    factor = self.factor(i, height, f"(k + {s})")
                    lines.append(f"    const {self.w} a{i}_{s} = {factor};")
            lines.append(f"    const {self.memory} *row = b + k * {self.group} * b_k;")
            lines.append("    long long j = 0;")
            if count > 1:
                lines.append(f"    for (; j + {n} <= columns; j += {n}) {{")
                lines += [*self._whole_step(height, count), "    }"]
            lines.append(f"    for (; j < columns; j += {self.lanes}) {{")
            lines += [*self._part_step(height, count), "    }", "  }"]
        return "\n".join([*lines, "}"]) + "\n"

    def _sums(self, height: int, vectors: int) -> tuple[list[str], list[str]]:
        """Declarations of sums, which start from nothing at the first k, and their stores."""
        starts, stores = [], []
        for i in range(height):
            for q in range(vectors):
                place = f"*({self.v} *)(sum + {i} * pitch + j + {q * self.lanes})"
                starts.append(f"      {self.v} s{i}_{q} = k ? {place} : ({self.v}){{0}};")
                stores.append(f"      {place} = s{i}_{q};")
        return starts, stores

    def _whole_step(self, height: int, count: int) -> list[str]:
        """Whole vectors of columns of so many rows (or pairs of rows) of B."""
        n = self.lanes
        lines, stores = self._sums(height, self.group)
        if self.group == 2:
            lines.insert(0, "      typedef u16x1 row_of __attribute__((vector_size(64), "
                         "aligned(2), may_alias));")  # fmt: skip
        for s in range(count):
            at = f"row + {s * self.group} * b_k + j"
            if self.group == 1:
                memory = f"{self.memory[:-2]}x{n}"
                value = self.decode(f"*(const {memory} *)({at})", n)
                lines.append(f"      const {self.w} b{s}_0 = {value};")
            else:
                pair = f"*(const row_of *)({at}), *(const row_of *)({at} + b_k)"
                for q in (0, 1):
                    order = ", ".join(str(16 * q + i // 2 + 32 * (i % 2)) for i in range(32))
                    value = f"({self.w})FB_SHUFFLE2(row_of, {pair}, {order})"
                    lines.append(f"      const {self.w} b{s}_{q} = {value};")
            for i in range(height):
                for q in range(self.group):
                    chained = self.micro.chained(f"a{i}_{s}", f"b{s}_{q}", f"s{i}_{q}")
                    lines.append(f"      s{i}_{q} = {chained};")
        return lines + stores

    def _part_step(self, height: int, count: int) -> list[str]:
        """A part of a vector of columns."""
        n, memory = self.lanes, f"{self.memory[:-2]}x{self.lanes}"
        lines, stores = self._sums(height, 1)
        for s in range(count):
            at = f"row + {s * self.group} * b_k + j"
            if self.group == 1:
                value = self.decode(f"fb_loadm_{memory}({at}, columns - j)", n)
                lines.append(f"      const {self.w} b{s} = {value};")
            else:
                low, high = (
                    f"fb_to_{self.w}(fb_loadm_{memory}({place}, columns - j))"
                    for place in (at, f"{at} + b_k")
                )
                lines.append(f"      {self.w} b{s} = {low};")
                lines.append(f"      if (k + {s} < full) b{s} |= {high} << 16;")
            for i in range(height):
                chained = self.micro.chained(f"a{i}_{s}", f"b{s}", f"s{i}_0")
                lines.append(f"      s{i}_0 = {chained};")
        return lines + stores

    # ------------------------------------------------------------- columns along memory

    def turned(self, height: int) -> str:
        """All chunks of a segment, for columns that lie along memory; `kept` rows are stored."""
        v, n, group = self.v, self.lanes, self.group
        names = [f"s{i}" for i in range(height)]
        totals = [f"t{i}" for i in range(height)]
        stores = [
            f"    if ({i} < kept) *({v} *)(sum + {i} * pitch + j) = {t};"
            for i, t in enumerate(totals)
        ]
        lines = [
            f"FB_SHARED void {SYMBOL}_turned_{height}(long long columns, long long depth, "
            f"const {self.e} *a, const {self.memory} *b, long long b_column, {self.t} *sum, "
            "long long pitch, long long kept) {",
            f"  for (long long j = 0; j < columns; j += {n}) {{",
            f"    {v} {', '.join(f'{t} = {{0}}' for t in totals)};",
            f"    const long long m = columns - j < {n} ? columns - j : {n};",
            f"    {self.memory} block[{n * CHUNK}];",
            "    if (m < {n}) __builtin_memset(block, 0, sizeof block);".replace("{n}", str(n)),
            f"    for (long long first = 0; first < depth; first += {CHUNK}) {{",
            f"      {v} {', '.join(f'{s} = {{0}}' for s in names)};",
            f"      const long long d = depth - first < {CHUNK} ? depth - first : {CHUNK};",
            f"      const {self.memory} *from = b + j * b_column + first;",
            "      long long step = b_column, k = 0;",
            f"      if (m < {n}) {{",
            "        for (long long l = 0; l < m; ++l)",
            f"          __builtin_memcpy(block + l * {CHUNK}, from + l * step, d * sizeof *from);",
            f"        from = block; step = {CHUNK};",
            "      }",
            *(f"      const {self.memory} *f{q} = from + {4 * q} * step;" for q in range(n // 4)),
            "      const long long step3 = 3 * step;",
            f"      for (; (k + {n}) * {group} <= d; k += {n}) {{",
            *self._block(height),
            "      }",
            f"      for (; k * {group} < d; ++k) {{",
            f"        const {self.w} r = {SYMBOL}_last(f0, step, m, d - k * {group});",
            f"        f0 += {group};",
            *self._step(height, "r", "k"),
            "      }",
            f"      a += (d + {group - 1}) / {group} * {height};",
            *(f"      if (first) {t} += {s}; else {t} = {s};" for t, s in zip(totals, names)),
            "    }",
            f"    a -= (depth + {group - 1}) / {group} * {height};",
        ]
        return "\n".join([*lines, *stores, "  }", "}"]) + "\n"

    def _block(self, height: int) -> list[str]:
        """A square block of packed elements, turned in registers."""
        n, lines = self.lanes, []
        through = "f32x16" if self.group == 2 else self.w
        kind = "f32" if self.group == 2 else self.micro.kind
        memory = through if self.group == 2 else f"{self.memory[:-2]}x{n}"
        for row in range(n):
            below = ("", " + step", " + 2 * step", " + step3")[row % 4]
            place = f"*(const {memory} *)(f{row // 4}{below})"
            lines.append(f"        {through} r{row} = {self.decode(place, n)};")
        lines += [f"      {x}" for x in turning(through, kind, n, [f"r{i}" for i in range(n)])]
        for s in range(n):
            lines += self._step(height, f"({self.w})r{s}", f"(k + {s})")
        lines.append("        " + " ".join(f"f{q} += {n * self.group};" for q in range(n // 4)))
        return lines

    def _step(self, height: int, value: str, k: str) -> list[str]:
        """The products of one packed element of K."""
        return [
            f"        s{i} = {self.micro.chained(self.factor(i, height, k), value, f's{i}')};"
            for i in range(height)
        ]

    # ------------------------------------------------------------------------- together

    def function(self, heights: tuple[int, ...], shared: int) -> str:
        """All rows, chunks and segments."""
        group, least = self.group, SEGMENT // self.group
        rows = "\n".join(
            f"          if (done == {h}) {SYMBOL}_rows_{h}(columns, dc, left + c / {group} * {h}, "
            f"right + c * b_k, b_k, place, pitch);"
            for h in heights
        )
        turned = "(columns, d, left, right, b_column, to, pitch, done);"
        most = f"rows - i < {shared} ? rows - i : {shared}"
        return f"""\
static inline FB_ALWAYS void {SYMBOL}_more(long long rows, long long columns, {self.t} *to,
    const {self.t} *from, long long pitch) {{
  for (long long r = 0; r < rows; ++r)
    for (long long j = 0; j < columns; j += {self.lanes})
      *({self.v} *)(to + r * pitch + j) += *(const {self.v} *)(from + r * pitch + j);
}}
FB_SHARED void {SYMBOL}_few(long long rows, long long columns, long long depth,
    const {self.memory} *a, long long a_row, long long a_k, const {self.memory} *b,
    long long b_k, long long b_column, {self.t} *sum, long long pitch, {self.e} *left) {{
  {self.t} *part = ({self.t} *)left + {MOST * SEGMENT}, *segment = part + {MOST} * pitch;
  for (long long k = 0; k < depth; k += {SEGMENT}) {{
    const long long d = depth - k < {SEGMENT} ? depth - k : {SEGMENT};
    const {self.memory} *right = b + k * b_k;
    for (long long i = 0, done; i < rows; i += done) {{
      {self.t} *to = k ? segment : sum + i * pitch;
      done = {" : ".join(f"rows - i >= {h} ? {h}" for h in heights[:-1])} : 1;
      if (b_column != 1) done = {most};
      const long long high = b_column == 1 || done == 1 ? done : {shared};
      for (long long l = 0; l < {least} && l * {group} < d; ++l)
        for (long long r = 0; r < high; ++r)
          left[l * high + r] = r < done ? {SYMBOL}_one(a + (i + r) * a_row
            + (k + l * {group}) * a_k, a_k, d - l * {group}) : 0;
      if (b_column != 1) {{
        if (high > 1) {SYMBOL}_turned_{shared}{turned}
        else {SYMBOL}_turned_1{turned}
      }} else {{
        for (long long c = 0; c < d; c += {CHUNK}) {{
          const long long dc = d - c < {CHUNK} ? d - c : {CHUNK};
          {self.t} *place = c ? part : to;
{rows}
          if (c) {SYMBOL}_more(done, columns, to, part, pitch);
        }}
      }}
      if (k) {SYMBOL}_more(done, columns, sum + i * pitch, segment, pitch);
    }}
  }}
}}
"""


__all__ = ["few_rows"]
