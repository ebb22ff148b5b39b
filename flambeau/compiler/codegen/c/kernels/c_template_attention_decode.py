"""Attention for few queries and many keys: a chunk is a segment of keys, read once.

Parameters: query, key, value, [mask,] parts. Sizes: 0 to 7 as in `c_template_attention`, strides of
query 9, key 13, value 17, mask 21. The rows are the queries of all heads that share keys, at most
as many as a panel of the micro-kernel holds. Scores are [row][key], a block of keys being turned on
its way; sums of values are [row][d]. The operations on each element are those of
`c_template_attention`, in its order, hence the bits.

parts[batch, head of keys, segment, row] has 2 + width elements: maximum, sum of weights, sums of
values. `c_template_attention_join` puts segments together.
"""

from __future__ import annotations

from itertools import product

from flambeau.compiler.codegen.c.kernels.c_attention import Attention
from flambeau.compiler.codegen.c.kernels.c_attention_keys import TOGETHER, block_of_keys, part_bytes
from flambeau.compiler.codegen.c.printer.c_types import HALVES, MEMORY_KIND, kind_bits
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel

# Blocks of keys that memory is fetched before their use: for one row, which waits for memory, and
# for several, which compute for longer and then find nothing on its way.
AHEAD, AHEAD_TOGETHER = 1, 4

_STREAM = """\
    if (used == <C> && d_step == 1 && size % <WIDE> == 0) {
      fb_kernel_block_of_keys(from, step, size, next < 0 ? from + far * step
          : after + next * after_step, next < 0 ? step : after_step, rows, queries, s + j);
      continue;
    }
"""

# Values for several rows of queries, in steps of few kilobytes, as keys (see `c_attention_keys`).
_STEP = """\
  for (long long r = 0; r < <TOGETHER>; ++r)
    for (long long d = 0; d < width; d += <N>) *(<V> *)(chain + r * pitch + d) = fb_splat_<V>(0);
  const long long most = 512 / (8 * (long long)sizeof(<M>));
  for (long long first = 0, last; first < count; first = last) {
  last = count - first < most ? count : first + most;
  for (long long k = first; k < last; ++k)
    for (long long d = 0; d < width; d += 64 / (long long)sizeof(<M>))
      __asm__ volatile("" : : "r"(*(const volatile <M> *)(values + k * step + d)));""".split("\n")

_ROW = """\
/* Weights of a row in place of its scores: -inf where a key is not seen. Returns the factor of what
   came before, or -1 where the row sees none of the keys. */
static <T> fb_kernel_row(long long count, <T> *s, <T> *state) {
  <T> lanes[<LANES>] FB_ALIGNED;
  <V> top = fb_splat_<V>(-<infinity>);
  for (long long j = 0; j < count; j += <N>) {
    const <V> t = *(const <V> *)(s + j);
    top = fb_select_<V>((<I>)(top < t), t, top);
  }
  *(<V> *)lanes = top;
  <T> most = lanes[0];
  for (int i = 1; i < <N>; ++i) most = most < lanes[i] ? lanes[i] : most;
  if (most == -<infinity>) {
    <T> nan = 0;
    for (long long j = 0; j < count; ++j) nan = s[j] == s[j] ? nan : s[j];
    if (nan == nan) {
      for (long long j = 0; j < count; ++j) s[j] = 0;
      return -1;
    }
  }
  most = most < state[0] ? state[0] : most;
  const <T> base = most == -<infinity> ? 0 : most, factor = fb_exp_<T>(state[0] - base);
  for (int i = 0; i < <LANES>; i += <N>) {
    <V> sum = {0};
    for (long long j = i; j < count; j += <LANES>) {
      const <V> e = fb_exp_<V>(*(const <V> *)(s + j) - base);
      *(<V> *)(s + j) = e;
      sum += e;
    }
    *(<V> *)(lanes + i) = sum;
  }
  for (int h = <LANES> / 2; h; h /= 2)
    for (int i = 0; i < h; ++i) lanes[i] += lanes[i + h];
  state[0] = most;
  state[1] = fb_fma_<T>(state[1], factor, lanes[0]);
  return factor;
}
"""

_SEGMENT = """\
/* Scores of a segment, [row][key]: its keys come from memory in one stream, its values later in
   another one, which begins at `after`. */
static void fb_kernel_few(const <M> *keys, long long step, long long d_step, long long size,
    long long rows, long long count, const <M> *after, long long after_step, const <T> *queries,
    <T> *slab, <T> *s) {
  const long long unit = rows == 1 ? 1 : <TOGETHER>;
  const long long far = (rows == 1 ? <AHEAD> : <AHEAD_TOGETHER>) * <C>;
  for (long long j = 0; j < count; j += <C>) {
    const long long used = count - j < <C> ? count - j : <C>, next = j + far - count;
    const <M> *from = keys + j * step;
STREAM    <pack>(used, <C>, size, from, step, d_step, slab, <C>);
    for (long long r = 0; r < rows; r += unit) {
      long long d = 0;
      do {
        const long long part = size - d < <CHUNK> ? size - d : <CHUNK>;
        <micro>(unit, part, queries + r * size + d * unit, slab + d * <C>, <C>,
            s + r * <SEGMENT> + j, <SEGMENT>, d > 0);
        d += <CHUNK>;
      } while (d < size);
    }
  }
}

VALUES
/* As in `c_template_attention`: keys of weight zero do not count where values are not finite. */
static void fb_kernel_seen_only(long long count, long long width, const <M> *values,
    long long step, long long d_step, const <T> *weights, <T> *chain) {
  <V> odd = {0};
  for (long long d = 0; d < width; d += <N>)
    odd = fb_fma_<V>(*(const <V> *)(chain + d), fb_splat_<V>(0), odd);
  const <I> any = (<I>)(odd != odd);
  if (__builtin_expect(!fb_any_<I>(any), 1)) return;
  for (long long d = 0; d < width; ++d) {
    <T> sum = 0;
    for (long long j = 0; j < count; ++j)
      if (weights[j] != 0) {
        const <M> given = values[j * step + d * d_step];
        sum = fb_fma_<T>(GIVEN, weights[j], sum);
      }
    chain[d] = sum;
  }
}

static void fb_kernel_chunk(char *const *p, const long long *n, <T> scale,
    const fb_kernel_work *w, <T> *parts, <T> *scratch) {
  const long long rows = w->last, size = n[5], width = n[6], part_size = width + 2;
  const long long pitch = (width + <C> - 1) / <C> * <C> + <C>;  /* whole slabs spill */
  <T> *queries = scratch, *slab = queries + <HIGH> * size, *given = slab + <C> * size;
  <T> *all = given + <C> * <KEYS>, *panel = all + <HIGH> * <SEGMENT>;
  <T> *chain = panel + <R> * <KEYS>, *sums = chain + <HIGH> * pitch, *bias = sums + <R> * pitch;
  <T> state[2 * <R>], factors[<SEGMENT> / <KEYS> * <R>];
  long long ends[<R>];
  const long long unit = rows == 1 ? 1 : <TOGETHER>;
  for (long long i = 0; i < (rows + unit - 1) / unit * unit * size; ++i) queries[i] = 0;
  for (long long r = 0; r < rows; ++r) {
    const long long group = r / n[3], position = r - group * n[3], seen = position + 1 + n[7];
    const <M> *from = (const <M> *)p[0] + w->batch * n[9] + (w->head * n[2] + group) * n[10]
        + position * n[11];
    for (long long d = 0; d < size; ++d) {
      const <M> given = from[d * n[12]];
      queries[r / unit * unit * size + d * unit + r % unit] = GIVEN * scale;
    }
    ends[r] = seen < w->top ? seen : w->top;
  }
  for (long long r = 0; r < rows; ++r) { state[2 * r] = -<infinity>; state[2 * r + 1] = 0; }
  for (long long i = 0; i < rows * pitch; ++i) sums[i] = 0;
  const <M> *from_k = (const <M> *)p[1] + w->batch * n[13] + w->head * n[14];
  const <M> *from_v = (const <M> *)p[2] + w->batch * n[17] + w->head * n[18];
  if (w->first < w->top)
    fb_kernel_few(from_k + w->first * n[15], n[15], n[16], size, rows, w->top - w->first,
        from_v + w->first * n[19], n[19], queries, slab, all);
  /* All weights before the first value, so that values come from memory in one stream. */
  for (long long key = w->first; key < w->top; key += <KEYS>) {
    const long long count = w->top - key < <KEYS> ? w->top - key : <KEYS>;
    const long long whole = (count + <LANES> - 1) / <LANES> * <LANES>;
    for (long long r = 0; r < rows; ++r) {
      <T> *row = all + (key - w->first) + r * <SEGMENT>;
MASKED      long long end = ends[r] - key < 0 ? 0 : ends[r] - key < count ? ends[r] - key : count;
      for (; end < whole; ++end) row[end] = -<infinity>;
      factors[(key - w->first) / <KEYS> * <R> + r] = fb_kernel_row(whole, row, state + 2 * r);
    }
  }
  for (long long key = w->first; key < w->top; key += <KEYS>) {
    const long long count = w->top - key < <KEYS> ? w->top - key : <KEYS>;
    const <T> *s = all + (key - w->first), *factor = factors + (key - w->first) / <KEYS> * <R>;
    const <M> *block = from_v + key * n[19];
    const long long follow = ((long long)(from_k + w->top * n[15]) - (long long)block)
        / (long long)sizeof(<M>);  /* behind a segment's last values, the keys of the next one */
    const long long left = w->top - key - count, direct = n[20] == 1 ? width / <N> * <N> : 0;
    for (long long r = 0; direct && r < rows; r += unit)
      (unit == 1 ? fb_kernel_values_1 : fb_kernel_values_<TOGETHER>)(count, direct, block, n[19],
          r ? 0 : left > 0 ? count * n[19] : follow, s + r * <SEGMENT>, chain + r * pitch, pitch);
    for (long long r = 0; direct < width && r < rows; ++r)
      for (long long j = 0; j < count; ++j) panel[j * rows + r] = s[r * <SEGMENT> + j];
    for (long long d = direct; d < width; d += <C>) {
      const long long used = width - d < <C> ? width - d : <C>;
      <pack>(used, <C>, count, block + d * n[20], n[20], n[19], given, <C>);
      <micro>(rows, count, panel, given, <C>, chain + d, pitch, 0);
    }
    for (long long r = 0; r < rows; ++r) {
      if (factor[r] == -1) continue;
      fb_kernel_seen_only(count, width, block, n[19], n[20], s + r * <SEGMENT>,
          chain + r * pitch);
      for (long long d = r * pitch; d < r * pitch + width; d += <N>)
        *(<V> *)(sums + d) = fb_fma_<V>(*(<V> *)(sums + d), fb_splat_<V>(factor[r]),
            *(<V> *)(chain + d));
    }
  }
  for (long long r = 0; r < rows; ++r) {
    <T> *to = parts + r * part_size;
    to[0] = state[2 * r];
    to[1] = state[2 * r + 1];
    for (long long d = 0; d < width; ++d) to[2 + d] = sums[r * pitch + d];
  }
}

void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin,
    long long end, char *scratch) {
  const long long rows = n[2] * n[3], segments = (n[4] + <SEGMENT> - 1) / <SEGMENT>;
  for (long long c = begin; c < end; ++c) {
    const long long both = c / segments, first = c % segments * <SEGMENT>;
    const long long last = first + <SEGMENT> < n[4] ? first + <SEGMENT> : n[4];
    fb_kernel_work w = { first, rows, both / n[1], both % n[1], last };
    const long long seen = n[3] + n[7];
    if (seen < last) w.top = seen;
    fb_kernel_chunk(p, n, (<T>)x[0].d, &w, (<T> *)p[PARTS] + c * rows * (n[6] + 2),
        (<T> *)scratch);
  }
}
"""

_BIAS = """\
      const long long group = r / n[3], position = r - group * n[3];
      fb_kernel_mask(count, count, 1, (const MASK *)p[3] + w->batch * n[21]
          + (w->head * n[2] + group) * n[22] + position * n[23] + key * n[24], n[24], 0, bias, 0);
      for (long long j = 0; j < count; ++j)
        row[j] = bias[j] == -<infinity> ? bias[j] : row[j] + bias[j];
"""


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of the kernel."""
    made = Attention.of(kernel, target)
    stream = made.kind == "f32"
    segment = _SEGMENT.replace("STREAM", _STREAM if stream else "")
    segment = segment.replace("MASKED", _BIAS if made.mask else "")
    segment = segment.replace("MASK", made.mask_memory).replace("PARTS", str(3 + bool(made.mask)))
    half = made.stored in HALVES
    given = f"fb_from{made.stored}_u16x1(given)" if half else "given"
    segment = segment.replace("GIVEN", given)
    values = "".join(_values(made, unit) for unit in (1, TOGETHER))
    for name, blocks in (("<AHEAD>", AHEAD), ("<AHEAD_TOGETHER>", AHEAD_TOGETHER)):
        segment = segment.replace(name, str(blocks))
    segment = segment.replace("VALUES", values)
    wide = part_bytes(made.micro.lanes) * 8 // kind_bits(MEMORY_KIND[made.stored])
    segment = segment.replace("<WIDE>", str(wide)).replace("<TOGETHER>", str(TOGETHER))
    segment = segment.replace("<HIGH>", str(high(made.micro.rows)))
    masks = made.mask_packing() if made.mask else ""
    keys = block_of_keys(made) if stream else ""
    parts = [made.micro.text(), made.micro.packing(made.stored), masks, made.run(), keys]
    return "".join([*parts, made.fill(_ROW), made.fill(segment)])


def high(rows: int) -> int:
    """Rows in whole groups of those that are worked on together."""
    return -(-rows // TOGETHER) * TOGETHER


def _values(made: Attention, unit: int) -> str:
    """Sums of values of `unit` rows: loops over some vectors of values at once, then over what is
    left of them. What the next block needs is fetched from memory meanwhile."""
    n, paired = made.micro.lanes, made.stored == "bf16"
    bits = kind_bits(MEMORY_KIND[made.stored])
    stepped = unit > 1 and bits >= 32
    start, end = ("first", "last") if stepped else ("0", "count")
    lines = [
        f"static __attribute__((noinline)) void fb_kernel_values_{unit}(long long count, "
        "long long width, const <M> *values, long long step, long long ahead, "
        "const <T> *weights, <T> *chain, long long pitch) {",
        *(_STEP if stepped else ()),
        "  long long d = 0;",
    ]
    for vectors in (8, 4, 2, 1) if unit == 1 else (4, 2, 1):
        pairs = paired and vectors > 1
        places = [
            (r, i, f"chain + {r} * pitch + d + {i * n}")
            for r, i in product(range(unit), range(vectors))
        ]
        zero = [f"*(<V> *)({place})" if stepped else "{0}" for *_, place in places]
        sums = ", ".join(f"t{r}_{i} = {z}" for (r, i, _), z in zip(places, zero))
        lines += [
            f"  for (; d + {vectors * n} <= width; d += {vectors * n}) {{",
            f"    <V> {sums};",
            f"    const <M> *row = values + {start} * step + d;",
            f"    for (long long k = {start}; k < {end}; ++k, row += step) {{",
        ]
        if unit > 1 and not stepped:
            parts = range(0, vectors * n, 512 // bits)
            lines += [f"      __builtin_prefetch(row + ahead + {i}, 0, 2);" for i in parts]
        for r in range(unit):
            lines.append(f"      const <V> w{r} = fb_splat_<V>(weights[{r} * <SEGMENT> + k]);")
        for i in range(0, vectors, 1 + pairs):
            lines += _loaded(made, i, pairs)
            for r in range(unit):
                for j in range(i, i + 1 + pairs):
                    lines.append(f"      t{r}_{j} = fb_fma_<V>(w{r}, v{j}, t{r}_{j});")
        lines.append("    }")
        for r in range(unit):
            lines += _kept(n, r, vectors, pairs)
        lines.append("  }")
    lines += ["  }"] * stepped
    return "\n".join([*lines, "}", ""])


def _loaded(made: Attention, i: int, pairs: bool) -> list[str]:
    """A vector of values, or two of bfloat16: of even and of odd elements, without moves."""
    memory, n = MEMORY_KIND[made.stored], made.micro.lanes
    if pairs:
        place = f"(const fb_kernel_w{4 * n} *)(row + {i * n})"
        return [
            f"      const u32x{n} both{i} = (u32x{n})*{place};",
            f"      const <V> v{i} = (<V>)(both{i} << 16), v{i + 1} = "
            f"(<V>)(both{i} & 0xffff0000u);",
        ]
    loaded = f"*(const {memory}x{n} *)(row + {i * n})"
    if made.stored in HALVES:
        loaded = f"fb_from{made.stored}_u16x{n}({loaded})"
    return [f"      const <V> v{i} = {loaded};"]


def _kept(n: int, r: int, vectors: int, pairs: bool) -> list[str]:
    """A row's sums to their places."""
    lines = []
    for j in range(vectors):
        first, half = j // 2 * 2, j % 2 * (n // 2)
        order = ", ".join(str(half + k // 2 + k % 2 * n) for k in range(n))
        value = f"FB_SHUFFLE2(<V>, t{r}_{first}, t{r}_{first + 1}, {order})"
        value = value if pairs else f"t{r}_{j}"
        lines.append(f"    *(<V> *)(chain + {r} * pitch + d + {j * n}) = {value};")
    return lines


__all__ = ["high", "print_template"]
