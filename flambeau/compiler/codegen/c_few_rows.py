"""Products with few rows: as fast as B can be read, as it lies, without packing.

`few_rows(micro, target)` defines, K standing for the kind,

    void fb_kernel_few(long long rows, long long columns, long long depth, const Kx1 *a,
                       long long a_row, long long a_k, const Kx1 *b, long long b_k,
                       long long b_column, Kx1 *sum, long long pitch, Kx1 *scratch)

    sum[i * pitch + j] = the canonical sum over k of a[i * a_row + k * a_k] * b[k * b_k + j *
    b_column], for b_column == 1 or b_k == 1. `scratch` has room for CHUNK * 2 + pitch * 4
    elements; rows of `sum` have room for whole vectors.

Rows of B that lie along memory are read whole and in order, several at a time, and added to the
sums in the nearest cache. Where columns lie along memory, blocks of them are turned in registers.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c_forms import SYMBOL
from flambeau.compiler.codegen.c_micro import CHUNK, Micro
from flambeau.compiler.targets import Target

TURNED = 2  # rows that share the turning of a block: more would wait for the FMAs


def few_rows(micro: Micro, target: Target) -> str:
    """C text of `fb_kernel_few` and its parts."""
    heights = (4, 2, 1) if target.name == "avx512" else (2, 1)
    printer = _FewRows(micro)
    parts = [*map(printer.rows, heights), *(printer.turned(h) for h in range(1, TURNED + 1))]
    return "".join([*parts, printer.function(heights)])


class _FewRows:
    def __init__(self, micro: Micro) -> None:
        self.micro = micro
        self.v, self.t, self.lanes = f"{micro.kind}x{micro.lanes}", f"{micro.kind}x1", micro.lanes

    def rows(self, height: int) -> str:
        """One chunk of K: whole rows of B, that lie along memory, are added to the sums."""
        v, t, n = self.v, self.t, self.lanes
        steps = 8 if height == 1 else 4
        lines = [
            f"static void {SYMBOL}_rows_{height}(long long columns, long long depth, const {t} *a, "
            f"long long a_row, long long a_k, const {t} *b, long long b_k, {t} *sum, "
            "long long pitch) {",
            "  long long k = 0;",
        ]
        for count in (steps, 1):
            lines.append(f"  for (; k + {count} <= depth; k += {count}) {{")
            for i in range(height):
                for s in range(count):
                    place = f"a[{i} * a_row + (k + {s}) * a_k]"
                    lines.append(f"    const {v} a{i}_{s} = fb_splat_{v}({place});")
            lines += [f"    const {t} *row = b + k * b_k;", "    long long j = 0;"]
            if count > 1:
                lines.append(f"    for (; j + {n} <= columns; j += {n}) {{")
                lines += [*self._row_step(height, count, "*(const {v} *)({at})"), "    }"]
            lines.append(f"    for (; j < columns; j += {n}) {{")
            lines += self._row_step(height, count, "fb_loadm_{v}({at}, columns - j)")
            lines += ["    }", "  }"]
        return "\n".join([*lines, "}"]) + "\n"

    def _row_step(self, height: int, count: int, load: str) -> list[str]:
        """A vector of columns of so many rows of B; the first ones start the sums."""
        v = self.v
        places = [f"*({v} *)(sum + {i} * pitch + j)" for i in range(height)]
        lines = [f"      {v} s{i} = k ? {place} : ({v}){{0}};" for i, place in enumerate(places)]
        for s in range(count):
            lines.append(f"      const {v} b{s} = {load.format(v=v, at=f'row + {s} * b_k + j')};")
            for i in range(height):
                lines.append(f"      s{i} = {self.micro.chained(f'a{i}_{s}', f'b{s}', f's{i}')};")
        return lines + [f"      {place} = s{i};" for i, place in enumerate(places)]

    def turned(self, height: int) -> str:
        """One chunk of K for columns that lie along memory; the last of them are gathered."""
        v, t, n = self.v, self.t, self.lanes
        turn = f"{self.micro.packing_name(self.micro.kind)}_turn"
        sums = f"    {v} {', '.join(f's{i} = {{0}}' for i in range(height))};"
        stores = [f"    *({v} *)(sum + {i} * pitch + j) = s{i};" for i in range(height)]
        lines = [
            f"static void {SYMBOL}_turned_{height}(long long columns, long long depth, "
            f"const {t} *a, const {t} *b, long long b_column, {t} *sum, long long pitch) {{",
            f"  for (long long j = 0; j < columns; j += {n}) {{",
            sums,
            "    const long long m = columns - j;",
            f"    const long long whole = m < {n} ? 0 : depth / {n} * {n};",
            f"    const {t} *from = b + j * b_column;",
            f"    for (long long k = 0; k < whole; k += {n}) {{",
            f"      {v} r[{n}];",
        ]
        for row in range(n):
            lines.append(f"      r[{row}] = *(const {v} *)(from + {row} * b_column + k);")
        lines.append(f"      {turn}(r);")
        for s in range(n):
            lines += self._step(height, f"r[{s}]", f"(k + {s})")
        lines += ["    }", "    for (long long k = whole; k < depth; ++k) {"]
        lines.append(f"      const {v} r = fb_gatherm_{v}(from + k, b_column, m);")
        return (
            "\n".join([*lines, *self._step(height, "r", "k"), "    }", *stores, "  }", "}"]) + "\n"
        )

    def _step(self, height: int, value: str, k: str) -> list[str]:
        """The products of one k."""
        lines = []
        for i in range(height):
            factor = f"fb_splat_{self.v}(a[{k} * {height} + {i}])"
            lines.append(f"      s{i} = {self.micro.chained(factor, value, f's{i}')};")
        return lines

    def function(self, heights: tuple[int, ...]) -> str:
        """All rows and chunks."""
        v, t, n = self.v, self.t, self.lanes
        lines = [
            f"static void {SYMBOL}_few(long long rows, long long columns, long long depth, "
            f"const {t} *a, long long a_row, long long a_k, const {t} *b, long long b_k, "
            f"long long b_column, {t} *sum, long long pitch, {t} *scratch) {{",
            f"  {t} *part = scratch + {CHUNK * TURNED};",
            f"  for (long long k = 0; k < depth; k += {CHUNK}) {{",
            f"    const long long d = depth - k < {CHUNK} ? depth - k : {CHUNK};",
            "    for (long long i = 0, done; i < rows; i += done) {",
            f"      {t} *to = k ? part : sum + i * pitch;",
            f"      const {t} *left = a + i * a_row + k * a_k, *right = b + k * b_k;",
            "      const long long high = rows - i;",
            "      if (b_column != 1) {",
            f"        done = high < {TURNED} ? high : {TURNED};",
            "        for (long long l = 0; l < d; ++l)",
            "          for (long long r = 0; r < done; ++r)",
            "            scratch[l * done + r] = left[r * a_row + l * a_k];",
            *(
                f"        if (done == {h})\n          {SYMBOL}_turned_{h}"
                "(columns, d, scratch, right, b_column, to, pitch);"
                for h in range(1, TURNED + 1)
            ),
            "      }",
        ]
        for h in heights:
            call = f"{SYMBOL}_rows_{h}(columns, d, left, a_row, a_k, right, b_k, to, pitch);"
            test = f"else if (high >= {h})" if h > 1 else "else"
            lines.append(f"      {test} {{ done = {h}; {call} }}")
        return "\n".join(
            [
                *lines,
                "      if (k)",
                "        for (long long r = 0; r < done; ++r)",
                f"          for (long long j = 0; j < columns; j += {n})",
                f"            *({v} *)(sum + (i + r) * pitch + j) += "
                f"*({v} *)(part + r * pitch + j);",
                "    }",
                "  }",
                "}",
                "",
            ]
        )
