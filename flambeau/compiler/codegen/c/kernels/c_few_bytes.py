"""Products of bytes with few rows: B is read once, as it lies.

`few_bytes(micro, a, b, result)` defines `fb_kernel_few` as `c_few_rows` does, of sums in int32. The
right operand is the unsigned one of VPDPBUSD, unless only the left one can be: then 128 is added to
signed bytes where more than the lowest byte of the result counts, and 128 times the sum of the left
row is subtracted. `scratch` has room for MOST * (SEGMENT + 2 * pitch) elements.

Columns that lie along memory are multiplied along K, and added up across lanes at the end. Of rows
that lie along memory four are interleaved at a time; sums stay in that order until the end.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels.c_micro_pairs import DOT
from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.ir.template_product import MOST, SEGMENT

HEIGHTS = (4, 2, 1)
DEEP = 4 * SEGMENT  # bytes of a row of A that are copied at a time
COLUMNS = 4  # that lie along memory, side by side
GROUPS = 4  # of four rows of B that are added to sums at a time


def few_bytes(a: str, b: str, result: str) -> str:
    """C text of `fb_kernel_few` for operands of bytes."""
    unsigned_left = a == "u8" and b == "i8"
    flipped = result == "i32" and not unsigned_left and b == "i8"
    printer = _FewBytes(a, b, unsigned_left, flipped)
    parts = [_TYPES, *map(printer.along, HEIGHTS), *map(printer.across, HEIGHTS)]
    return "".join([*parts, printer.function()])


_TYPES = f"""\
typedef u8x1 {SYMBOL}_bytes __attribute__((vector_size(64), aligned(1), may_alias));
typedef u16x1 {SYMBOL}_twos __attribute__((vector_size(64), aligned(1), may_alias));
static inline FB_ALWAYS u32x16 {SYMBOL}_some(const void *from, long long m) {{
  union {{ u32x16 v; u8x1 t[64]; }} u = {{ (u32x16){{0}} }};
  if (m >= 64) return *(const u32x16 *)from;
  __builtin_memcpy(u.t, from, m);
  return u.v;
}}
"""


class _FewBytes:
    def __init__(self, a: str, b: str, unsigned_left: bool, flipped: bool) -> None:
        self.a, self.b = a, b
        self.unsigned_left, self.flipped = unsigned_left, flipped

    def dot(self, left: str, right: str, s: str) -> str:
        """One step of a sum."""
        first, second = (right, left) if self.unsigned_left else (left, right)
        return f"{s} = {DOT}({first}, {second}, {s});"

    def flip(self, value: str) -> str:
        """Bytes of B as the instruction takes them."""
        return f"({value}) ^ flip" if self.flipped else value

    def along(self, height: int) -> str:
        """Columns along memory, four at a time; `a`: rows of DEEP bytes, zeros at their ends."""
        names = [[f"s{i}_{c}" for c in range(COLUMNS)] for i in range(height)]
        lines = [
            f"FB_SHARED void {SYMBOL}_along_{height}(long long columns, long long depth, "
            f"const u8x1 *a, const {self.b}x1 *b, long long b_column, i32x1 *sum, "
            "long long pitch, long long more) {",
            "  const u32x16 flip = fb_splat_u32x16(0x80808080u);",
            f"  for (long long j = 0; j < columns; j += {COLUMNS}) {{",
            f"    const long long m = columns - j < {COLUMNS} ? columns - j : {COLUMNS};",
            *(
                f"    const {self.b}x1 *b{c} = b + (j + ({c} < m ? {c} : m - 1)) * b_column;"
                for c in range(COLUMNS)
            ),
            f"    i32x16 {', '.join(f'{s} = {{0}}' for row in names for s in row)};",
            "    long long k = 0;",
        ]
        for full in (True, False):
            test = "for (; k + 64 <= depth; k += 64)" if full else "if (k < depth)"
            lines.append(f"    {test} {{")
            for i in range(height):
                lines.append(f"      const u32x16 a{i} = *(const u32x16 *)(a + {i * DEEP} + k);")
            for c in range(COLUMNS):
                at = f"b{c} + k"
                value = f"*(const u32x16 *)({at})" if full else f"{SYMBOL}_some({at}, depth - k)"
                lines.append(f"      const u32x16 w{c} = {self.flip(value)};")
                lines += [f"      {self.dot(f'a{i}', f'w{c}', names[i][c])}" for i in range(height)]
            lines.append("    }")
        for i, row in enumerate(names):
            lines += [f"    {{ i32x1 *to = sum + {i} * pitch + j;", *_added(row), "    }"]
        return "\n".join([*lines, "  }", "}"]) + "\n"

    def across(self, height: int) -> str:
        """Rows along memory: `a` is as in `along`; of 64 columns the sums' order is `_places`."""
        lines = [
            f"FB_SHARED void {SYMBOL}_across_{height}(long long columns, long long depth, "
            f"const u8x1 *a, const {self.b}x1 *b, long long b_k, i32x1 *sum, long long pitch, "
            "long long more) {",
            "  const u32x16 flip = fb_splat_u32x16(0x80808080u);",
            f"  for (long long k = 0; k < depth; k += {4 * GROUPS}) {{",
            "    for (long long j = 0; j < columns; j += 64) {",
            "      const long long m = columns - j;",
            *(
                f"      i32x16 *to{i} = (i32x16 *)(sum + {i} * pitch + j);\n"
                f"      i32x16 {', '.join(f's{i}_{q}' for q in range(4))};"
                for i in range(height)
            ),
            "      if (k || more) {",
            *(f"        s{i}_{q} = to{i}[{q}];" for i in range(height) for q in range(4)),
            "      } else {",
            *(f"        s{i}_{q} = (i32x16){{0}};" for i in range(height) for q in range(4)),
            "      }",
            f"      if (__builtin_expect(m >= 64 && k + {4 * GROUPS} <= depth, 1)) {{",
            f"        for (long long l = k; l < k + {4 * GROUPS}; l += 4) {{",
            *self._four(height, whole=True),
            "        }",
            "      } else {",
            f"        for (long long l = k; l < k + {4 * GROUPS} && l < depth; l += 4) {{",
            *self._four(height, whole=False),
            "        }",
            "      }",
        ]
        lines += [f"      to{i}[{q}] = s{i}_{q};" for i in range(height) for q in range(4)]
        return "\n".join([*lines, "    }", "  }", "}"]) + "\n"

    def _four(self, height: int, whole: bool) -> list[str]:
        """Four rows of B."""
        lines = [f"          const {self.b}x1 *row = b + l * b_k + j;"]
        for t in range(4):
            if whole:
                value = f"*(const {SYMBOL}_bytes *)(row + {t} * b_k)"
            else:
                some = f"({SYMBOL}_bytes){SYMBOL}_some(row + {t} * b_k, m)"
                value = f"l + {t} < depth ? {some} : ({SYMBOL}_bytes){{0}}"
            lines.append(f"          const {SYMBOL}_bytes r{t} = {value};")
        lines += _interleaved()
        for i in range(height):
            factor = f"fb_splat_u32x16(*(const u32x1 *)(a + {i * DEEP} + l))"
            lines.append(f"          const u32x16 a{i} = {factor};")
        for q in range(4):
            lines.append(f"          const u32x16 w{q} = {self.flip(f'(u32x16)q{q}')};")
            lines += [f"          {self.dot(f'a{i}', f'w{q}', f's{i}_{q}')}" for i in range(height)]
        return lines

    def function(self) -> str:
        """All rows; what was added by flipping is taken back."""
        along, across = (
            "\n".join(
                f"        if (done == {h}) {SYMBOL}_{name}_{h}(columns, d, left, b + k * {step}, "
                f"{stride}, {to});"
                for h in HEIGHTS
            )
            for name, step, stride, to in (
                ("along", "b_k", "b_column", "sum + i * pitch, pitch, k"),
                ("across", "b_k", "b_k", "mixed, wide, k"),
            )
        )
        back = "128u * (u32x1)bytes[r]" if self.flipped else "0"
        return f"""\
FB_SHARED void {SYMBOL}_few(long long rows, long long columns, long long depth, const {self.a}x1 *a,
    long long a_row, long long a_k, const {self.b}x1 *b, long long b_k, long long b_column,
    i32x1 *sum, long long pitch, u32x1 *scratch) {{
  if (depth == 0) return;
  u8x1 *left = (u8x1 *)scratch;
  const long long wide = (columns + 63) / 64 * 64;
  i32x1 *mixed = (i32x1 *)(scratch + {MOST * SEGMENT});
  for (long long i = 0, done; i < rows; i += done) {{
    long long bytes[{HEIGHTS[0]}] = {{0}};
    done = rows - i >= 4 ? 4 : rows - i >= 2 ? 2 : 1;
    for (long long k = 0; k < depth; k += {DEEP}) {{
      const long long d = depth - k < {DEEP} ? depth - k : {DEEP};
      for (long long r = 0; r < done; ++r) {{
        const {self.a}x1 *from = a + (i + r) * a_row + k * a_k;
        {self.a}x1 *to = ({self.a}x1 *)left + r * {DEEP};
        for (long long l = 0; l < d; ++l) {{ to[l] = from[l * a_k]; bytes[r] += to[l]; }}
        for (long long l = d; l < {DEEP} && l < d + 64; ++l) to[l] = 0;
      }}
      if (b_column != 1) {{
{along}
      }} else {{
{across}
      }}
    }}
    for (long long r = 0; r < done; ++r) {{
      i32x1 *to = sum + (i + r) * pitch;
      const i32x1 back = (i32x1)({back});
      if (b_column != 1)
        for (long long j = 0; j < columns; ++j) to[j] -= back;
      else
        for (long long j = 0; j < columns; ++j) {{
          const long long l = j % 64, place = l % 16 / 4 * 16 + l / 16 * 4 + l % 4;
          to[j] = mixed[r * wide + j - l + place] - back;
        }}
    }}
  }}
}}
"""


def _added(row: list[str]) -> list[str]:
    """Sums of the lanes of four vectors, added to `to` or stored there; only m of them."""
    pairs = [(row[0], row[1], "x"), (row[2], row[3], "y")]
    low, high = ([4 * p + i for p in range(4) for i in part] for part in ((0, 1), (2, 3)))
    lines = []
    for v, w, name in pairs:
        order = (
            [i + 16 * t for i in low for t in (0, 1)],
            [i + 16 * t for i in high for t in (0, 1)],
        )
        first, second = (", ".join(map(str, o)) for o in order)
        lines.append(
            f"      const i32x16 {name} = FB_SHUFFLE2(i32x16, {v}, {w}, {first}) + "
            f"FB_SHUFFLE2(i32x16, {v}, {w}, {second});"
        )
    first = ", ".join(str(4 * p + i + 16 * t) for p in range(4) for t in (0, 1) for i in (0, 1))
    second = ", ".join(str(4 * p + i + 16 * t) for p in range(4) for t in (0, 1) for i in (2, 3))
    lines.append(
        f"      const i32x16 z = FB_SHUFFLE2(i32x16, x, y, {first}) + "
        f"FB_SHUFFLE2(i32x16, x, y, {second});"
    )
    return [
        *lines,
        "      for (long long c = 0; c < m; ++c) {",
        "        const i32x1 whole = z[c] + z[c + 4] + z[c + 8] + z[c + 12];",
        "        to[c] = more ? to[c] + whole : whole;",
        "      }",
    ]


def _interleaved() -> list[str]:
    """Four rows of 64 bytes become four vectors of groups, inside of parts of 128 bits."""
    lines = []
    for place in (0, 1):
        for high in (0, 8):
            order = ", ".join(
                str(16 * p + high + i // 2 + 64 * (i % 2)) for p in range(4) for i in range(16)
            )
            rows = f"r{2 * place}, r{2 * place + 1}"
            lines.append(
                f"          const {SYMBOL}_twos {'lh'[high // 8]}{place} = "
                f"({SYMBOL}_twos)FB_SHUFFLE2({SYMBOL}_bytes, {rows}, {order});"
            )
    for number, (name, high) in enumerate((("l", 0), ("l", 4), ("h", 0), ("h", 4))):
        order = ", ".join(
            str(8 * p + high + i // 2 + 32 * (i % 2)) for p in range(4) for i in range(8)
        )
        lines.append(
            f"        const {SYMBOL}_twos q{number} = FB_SHUFFLE2({SYMBOL}_twos, {name}0, {name}1, "
            f"{order});"
        )
    return lines


__all__ = ["few_bytes"]
