"""What the kernels of attention share: their blocks, and C text for packing, masks and softmax.

The canonical order of a row (docs/design.md): keys in blocks of `KEYS`, blocks in segments of
`SEGMENT` keys. A score is the canonical product over the head's size. A block has its maximum m,
weights exp(score - m) and their sum: key i adds to lane i mod 16, the lanes end by the tree 8, 4,
2, 1; its product with the values is one chain of FMAs from +0 per element. What came before in the
segment is scaled by exp(old m - new m) in the FMA that adds the block; segments are joined in the
same way. A block that a row does not see changes none of its bits, so it may be skipped.

Tiles hold queries along the lanes: scores [key][query], sums of values [d][query]. Every matrix
product runs in the micro-kernels of `c_micro`.
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.compiler.codegen.c.kernels.c_micro import CHUNK, Micro, Packing
from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.codegen.c.printer.c_types import HALVES, MEMORY_KIND, signed_kind
from flambeau.compiler.codegen.c.template import Value
from flambeau.compiler.targets import Target
from flambeau.compiler.templates.attention import (
    KEYS,
    LANES,
    SEGMENT,
    TILES,
    AttentionSettings,
)
from flambeau.ir.kernel import Kernel


def compute_kind(dtype: str) -> str:
    """The kind in which scores and sums are computed."""
    return "f64" if dtype == "f64" else "f32"


def names_of(settings: AttentionSettings, target: Target) -> dict[str, Value]:
    """The names that the texts of attention share.

    T, V: a number that is computed with, and a vector of `lanes` of them; I1, I: integers of the
    same width; M: an element in memory; C, R: columns and rows of a tile.
    """
    kind, tile = settings.kind, settings.tile(target)
    integer = signed_kind(kind)
    return {
        "T": f"{kind}x1",
        "V": f"{kind}x{tile.lanes}",
        "I": f"{integer}x{tile.lanes}",
        "I1": f"{integer}x1",
        "M": f"{MEMORY_KIND[settings.dtype]}x1",
        "N": tile.lanes,
        "C": tile.columns,
        "R": tile.rows,
        "KEYS": KEYS,
        "SEGMENT": SEGMENT,
        "LANES": LANES,
        "TILES": settings.tiles,
        "infinity": "__builtin_inff()" if kind == "f32" else "__builtin_inf()",
    }


class _MaskPacking(Packing):
    """Packs a bool mask as what is added to scores: 0 where True, else -inf."""

    def decode(self, value: str, lanes: int) -> str:
        """See `Packing`; other masks are packed as they are."""
        if self.stored != "bool":
            return super().decode(value, lanes)
        return f"{SYMBOL}_bias_x{lanes}({value})"


_RUN = """\
typedef struct { long long first, last, batch, head, top; } fb_kernel_work;

/* The rows from i on that lie along memory: their head, position and count. */
static inline long long fb_kernel_run(const long long *n, const fb_kernel_work *w, long long row,
    long long end, long long *head, long long *position) {
  const long long group = row / n[3];
  *position = row - group * n[3];
  *head = w->head * n[2] + group;
  const long long left = n[3] - *position;
  return left < end - row ? left : end - row;
}

"""

_QUERIES = """\
/* Packs a tile of rows that belong to queries, scaled; tells how many keys each query sees. */
static void fb_kernel_queries(const <M> *from, const long long *step, long long size,
    const long long *n, <T> scale, const fb_kernel_work *w, long long row, <T> *to,
    long long *ends) {
  const long long end = row + <C> < w->last ? row + <C> : w->last;
  for (long long r = row; r < end;) {
    long long head, position;
    const long long run = fb_kernel_run(n, w, r, end, &head, &position), i = r - row;
    const <M> *rows = from + w->batch * step[0] + head * step[1] + position * step[2];
    if (run == <C> && size >= <N>)
      for (long long j = 0; j < <C>; j += <N>)
        fb_kernel_turned(<N>, size, rows + j * step[2], step[2], step[3], to + j, <C>);
    else
      <pack>(run, r + run == end ? <C> - i : run, size, rows, step[2], step[3], to + i, <C>);
    for (long long l = 0; l < run; ++l) {
      const long long seen = position + l + 1 + n[7];
      if (ends) ends[i + l] = seen < 0 ? 0 : seen < n[4] ? seen : n[4];
    }
    r += run;
  }
  for (long long i = end - row; ends && i < <C>; ++i) ends[i] = ends[0];
  for (long long d = 0; scale != 1 && d < size * <C>; d += <N>) *(<V> *)(to + d) *= scale;
}

/* How many keys of a block each query of a tile sees, the most and the least of them. */
static void fb_kernel_seen(const long long *ends, long long key, long long packed, <I1> *end,
    long long *most, long long *least) {
  *most = 0;
  *least = packed;
  for (long long i = 0; i < <C>; ++i) {
    const long long left = ends[i] - key, seen = left < 0 ? 0 : left < packed ? left : packed;
    end[i] = (<I1>)seen;
    *most = seen > *most ? seen : *most;
    *least = seen < *least ? seen : *least;
  }
}
"""

_BIAS = """\
/* Packs a tile's part of the mask; false where no query sees any of the keys. */
static int fb_kernel_biases(const char *from, const long long *step, const long long *n,
    const fb_kernel_work *w, long long row, long long key, long long count, <T> *bias) {
  const long long end = row + <C> < w->last ? row + <C> : w->last;
  for (long long r = row; r < end;) {
    long long head, position;
    const long long run = fb_kernel_run(n, w, r, end, &head, &position), i = r - row;
    const MASK *row_mask = (const MASK *)from + w->batch * step[0] + head * step[1]
        + position * step[2] + key * step[3];
    fb_kernel_mask(run, r + run == end ? <C> - i : run, count, row_mask, step[2], step[3], bias + i,
        <C>);
    r += run;
  }
  for (long long i = end - row; i < <C>; ++i)
    for (long long j = 0; j < count; ++j) bias[j * <C> + i] = bias[j * <C>];
  <V> top = *(const <V> *)bias;
  for (long long j = 0; j < count * <C>; j += <N>) {
    const <V> t = *(const <V> *)(bias + j);
    top = fb_select_<V>((<I>)(t != -<infinity>), t, top);
  }
  const <I> live = (<I>)(top != -<infinity>);
  return fb_any_<I>(live);
}
"""


@dataclass(frozen=True)
class Attention:
    """Names and C text of one attention kernel.

    Attributes:
        stored: dtype of query, key, value and result.
        mask: dtype of the mask, or "".
        micro: the micro-kernels.
        tiles: of queries that share a packed block of keys.
        dropout: rows from one place of the stream of draws to the next; 0: no weights are dropped.
    """

    stored: str
    mask: str
    micro: Micro
    tiles: int = TILES
    dropout: int = 0

    @staticmethod
    def of(kernel: Kernel, target: Target) -> Attention:
        """The text of a kernel's settings."""
        stored, mask = kernel.setting("dtype"), kernel.setting("mask")
        tiles = dict(kernel.settings).get("tiles", TILES)
        dropout = int(dict(kernel.settings).get("dropout", 0))
        micro = Micro.of(compute_kind(stored), target)
        return Attention(stored, mask, micro, int(tiles), dropout)

    @property
    def kind(self) -> str:
        """Kind of scores and sums."""
        return self.micro.kind

    @property
    def names(self) -> dict[str, str | int]:
        """What the texts below are formatted with."""
        kind, lanes = self.kind, self.micro.lanes
        integer = signed_kind(kind)
        return {
            "T": f"{kind}x1",
            "V": f"{kind}x{lanes}",
            "I": f"{integer}x{lanes}",
            "I1": f"{integer}x1",
            "M": f"{MEMORY_KIND[self.stored]}x1",
            "N": lanes,
            "C": self.micro.columns,
            "R": self.micro.rows,
            "CHUNK": CHUNK,
            "KEYS": KEYS,
            "SEGMENT": SEGMENT,
            "LANES": LANES,
            "TILES": self.tiles,
            "micro": self.micro.name,
            "pack": self.micro.packing_name(self.stored),
            "turn": self.micro.packing_name(self.kind),
            "infinity": "__builtin_inff()" if kind == "f32" else "__builtin_inf()",
        }

    def fill(self, text: str) -> str:
        """A text with names put in, where it has <name>."""
        for name, value in self.names.items():
            text = text.replace(f"<{name}>", str(value))
        return text

    def per_vector(self, line: str) -> str:
        """A line once for every vector of a tile's row, <w> being its number."""
        return "".join(
            line.replace("<w>", str(w)).replace("<at>", str(w * self.micro.lanes))
            for w in range(self.micro.columns // self.micro.lanes)
        )

    def packing(self) -> str:
        """Micro-kernels, and the packing of operands, of computed values and of the mask."""
        texts = [self.micro.text(), self.micro.packing(self.stored)]
        if self.stored != self.kind:
            texts.append(self.micro.packing(self.kind))
        if self.mask:
            texts.append(self.mask_packing())
        return "".join([*texts, self.panels()])

    def block(self, stored: str, name: str, ahead: bool = False) -> str:
        """`name(from, step, last, to, to_step)`: turns a square of elements in registers.

        Rows behind `last` are taken as the last; `ahead` rows further, memory is fetched.
        """
        micro, memory = self.micro, MEMORY_KIND[stored]
        n, packing = micro.lanes, micro.packing_name(stored)
        value = f"*(const {memory}x{n} *)(from + ROW * step)"
        if stored in HALVES:
            value = f"fb_from{stored}_u16x{n}({value})"
        lines = [
            f"static inline FB_ALWAYS void {name}(const {memory}x1 *from, long long step, "
            f"long long last, {'long long ahead, ' * ahead}<T> *to, long long to_step) {{",
            f"  <V> r[{n}];",
        ]
        for row in range(n):
            at = f"({row} < last ? {row} : last)"
            lines.append(f"  r[{row}] = {value.replace('ROW', at)};")
            if ahead:  # into the second cache: there memory can deliver more lines at a time
                lines.append(f"  __builtin_prefetch(from + (ahead + {row}) * step, 0, 2);")
        lines.append(f"  {packing}_turn(r);")
        lines += [f"  *(<V> *)(to + {row} * to_step) = r[{row}];" for row in range(n)]
        return self.fill("\n".join([*lines, "}", ""]))

    def panels(self) -> str:
        """`fb_kernel_turned` and `fb_kernel_copied`: panels of the micro-kernel from rows.

        Whole vectors are stored: what they overrun is written later, or is spare.
        """
        n, memory = self.micro.lanes, MEMORY_KIND[self.stored]
        whole, part = f"*(const {memory}x{n} *)row", f"fb_loadm_{memory}x{n}(row, left)"
        if self.stored in HALVES:
            whole, part = (f"fb_from{self.stored}_u16x{n}({x})" for x in (whole, part))
        return self.block(self.stored, "fb_kernel_square", ahead=True) + self.fill(f"""\
/* to[d][i] = from[i][d] for i < rows, at most as many as a vector has lanes. */
static void fb_kernel_turned(long long rows, long long size, const <M> *from, long long step,
    long long d_step, <T> *to, long long to_step) {{
  long long d = 0;
  if (d_step == 1 && rows <= <N>)
    for (; d + <N> <= size; d += <N>)
      fb_kernel_square(from + d, step, rows - 1, 32, to + d * to_step, to_step);
  if (d < size)
    <pack>(rows, rows, size - d, from + d * d_step, step, d_step, to + d * to_step, to_step);
}}

/* to[k][i] = from[k][i] for i < rows; `left` elements of each row may be read. */
static void fb_kernel_copied(long long rows, long long depth, long long left, const <M> *from,
    long long step, long long d_step, <T> *to) {{
  const <M> *row = from;
  if (d_step != 1 || rows > <N>)
    <pack>(rows, rows, depth, from, d_step, step, to, rows);
  else if (left >= <N>)
    for (long long k = 0; k < depth; ++k, row += step, to += rows) {{
      *(<V> *)to = {whole};
      __builtin_prefetch(row + 16 * step, 0, 2);
    }}
  else
    for (long long k = 0; k < depth; ++k, row += step, to += rows) *(<V> *)to = {part};
}}
""")

    # ------------------------------------------------------------------------- masks

    def mask_packing(self) -> str:
        """The packing function of the mask, `fb_kernel_mask`."""
        packing = _MaskPacking(self.micro, self.mask)
        text = packing.text().replace(packing.name, f"{SYMBOL}_mask")
        if self.mask != "bool":
            return text
        lines = []
        for lanes in {1, self.micro.lanes}:
            v, i = f"{self.kind}x{lanes}", f"{signed_kind(self.kind)}x{lanes}"
            wide = f"fb_to_{i}(m)" if lanes > 1 else "m"
            lines.append(
                f"static inline FB_ALWAYS {v} {SYMBOL}_bias_x{lanes}(u8x{lanes} m) {{\n"
                f"  return fb_select_{v}(({i}){self._test(wide, lanes)}, fb_splat_{v}(0), "
                f"fb_splat_{v}(-{self.names['infinity']}));\n}}\n"
            )
        return "".join([*lines, text])

    def _test(self, value: str, lanes: int) -> str:
        return f"({value} != 0)" if lanes > 1 else f"-({value} != 0)"

    def masks(self) -> str:
        """`fb_kernel_biases`: a tile's part of the mask."""
        if not self.mask:
            return ""
        return self.fill(_BIAS.replace("MASK", self.mask_memory))

    @property
    def mask_memory(self) -> str:
        """C type of an element of the mask."""
        return f"{MEMORY_KIND[self.mask]}x1" if self.mask else ""

    @property
    def stored_kind(self) -> str:
        """Kind of an element in memory."""
        return MEMORY_KIND[self.stored]

    # ------------------------------------------------------------------------- tiles

    def run(self) -> str:
        """`fb_kernel_work`, what a chunk works on, and `fb_kernel_run`."""
        return self.fill(_RUN)

    def queries(self) -> str:
        """`run`, `fb_kernel_queries` and `fb_kernel_seen`."""
        return self.fill(_RUN + _QUERIES)

    def scores(self) -> str:
        """`fb_kernel_scores`: s[key][query] from panels of keys and a tile of queries."""
        return self.fill("""\
static void fb_kernel_scores(long long count, long long width, long long depth, const <T> *keys,
    const <T> *queries, <T> *s) {
  for (long long j = 0; j < count; j += <R>) {
    const long long rows = width - j < <R> ? width - j : <R>;
    long long d = 0;
    do {
      const long long part = depth - d < <CHUNK> ? depth - d : <CHUNK>;
      <micro>(rows, part, keys + j * depth + d * rows, queries + d * <C>, <C>, s + j * <C>, <C>,
          d > 0);
      d += <CHUNK>;
    } while (d < depth);
  }
}
""")

    def hide(self) -> str:
        """`fb_kernel_hide`: the scores with masks applied. A change of the scores (a function of
        score, batch, head, query and key, as a printed sub-graph) has its place in front of it."""
        bias = self.per_vector("""\
      { const <V> b = *(const <V> *)(bias + j * <C> + <at>);
        <V> *t = (<V> *)(s + j * <C> + <at>);
        *t = fb_select_<V>((<I>)(b == hidden), hidden, *t + b); }
""")
        late = self.per_vector("""\
      { <V> *t = (<V> *)(s + j * <C> + <at>);
        *t = fb_select_<V>((<I>)(key < *(const <I> *)(end + <at>)), *t, hidden); }
""")
        return self.fill(f"""\
static void fb_kernel_hide(long long count, const <T> *bias, const <I1> *end, <T> *s) {{
  const <V> hidden = fb_splat_<V>(-<infinity>);
  if (bias)
    for (long long j = 0; j < count; ++j) {{
{bias}    }}
  if (end)
    for (long long j = 0; j < count; ++j) {{
      const <I> key = (<I1>)j - (<I>){{0}};
{late}    }}
}}
""")

    def softmax(self) -> str:
        """`fb_kernel_softmax`: weights of a block in place of its scores, and its statistics.

        state: rows of C elements: maximum, sum, factor of what came before, and whether (all bits
        set) a query sees any key of the block.
        """
        w = self.per_vector
        return self.fill(
            "static void fb_kernel_softmax(long long count, <T> *s, <T> *state) {\n"
            "  <T> lanes[<LANES> * <C>] FB_ALIGNED;\n"
            + w("  <V> top<w> = fb_splat_<V>(-<infinity>);\n")
            + "  for (long long j = 0; j < count; ++j) {\n"
            + w(
                "    { const <V> t = *(const <V> *)(s + j * <C> + <at>);\n"
                "      top<w> = fb_select_<V>((<I>)(top<w> < t), t, top<w>); }\n"
            )
            + "  }\n"
            + w("""\
  *(<I> *)(state + 3 * <C> + <at>) = (<I>)(top<w> != -<infinity>);
  { const <V> before = *(const <V> *)(state + <at>);
    top<w> = fb_select_<V>((<I>)(top<w> < before), before, top<w>);
    *(<V> *)(state + <at>) = top<w>;
    top<w> = fb_select_<V>((<I>)(top<w> == -<infinity>), fb_splat_<V>(0), top<w>);
    *(<V> *)(state + 2 * <C> + <at>) = fb_exp_<V>(before - top<w>); }
""")
            + "  for (long long i = 0; i < <LANES>; ++i) {\n"
            + w("    <V> sum<w> = {0};\n")
            + "    for (long long j = i; j < count; j += <LANES>) {\n"
            + w("      <V> *t<w> = (<V> *)(s + j * <C> + <at>);\n")
            + w("      const <V> e<w> = fb_exp_<V>(*t<w> - top<w>);\n")
            + w("      *t<w> = e<w>; sum<w> += e<w>;\n")
            + "    }\n"
            + w("    *(<V> *)(lanes + i * <C> + <at>) = sum<w>;\n")
            + "  }\n"
            "  for (long long h = <LANES> / 2; h; h /= 2)\n"
            "    for (long long i = 0; i < h * <C>; i += <N>)\n"
            "      *(<V> *)(lanes + i) += *(const <V> *)(lanes + i + h * <C>);\n"
            + w("""\
  { <V> *sum = (<V> *)(state + <C> + <at>);
    *sum = fb_fma_<V>(*sum, *(const <V> *)(state + 2 * <C> + <at>), *(const <V> *)(lanes + <at>)); }
""")
            + "}\n"
        )

    def rows(self) -> str:
        """`fb_kernel_rows`: columns of a computed tile to rows of stored elements."""
        n, memory = self.micro.lanes, MEMORY_KIND[self.stored]
        value = "*(const <V> *)(rows + i * size + d)"
        if self.stored in HALVES:
            value = f"fb_to{self.stored}_<V>({value})"
        return self.block(self.kind, "fb_kernel_computed") + self.fill(f"""\
static void fb_kernel_rows(long long count, long long size, const <T> *tile, long long pitch,
    <T> *rows, <M> *to, long long step, long long d_step) {{
  const long long direct = {int(self.stored == self.kind)} && d_step == 1;
  <T> *out = direct ? (<T> *)to : rows;
  const long long out_step = direct ? step : size;
  long long d = 0;
  for (; count % <N> == 0 && d + <N> <= size; d += <N>)
    for (long long i = 0; i < count; i += <N>)
      fb_kernel_computed(tile + d * pitch + i, pitch, <N> - 1, out + i * out_step + d, out_step);
  if (d < size)
    <turn>(size - d, size - d, count, tile + d * pitch, pitch, 1, out + d, out_step);
  if (direct) return;
  for (long long i = 0; i < count; ++i)
    for (long long d = 0; d < size; d += <N>) {{
      const {memory}x{n} v = {value};
      if (d_step == 1) fb_storem_{memory}x{n}(to + i * step + d, v, size - d);
      else fb_scatterm_{memory}x{n}(to + i * step + d * d_step, d_step, v, size - d);
    }}
}}
""")


__all__ = ["KEYS", "LANES", "SEGMENT", "TILES", "Attention", "compute_kind", "names_of"]
