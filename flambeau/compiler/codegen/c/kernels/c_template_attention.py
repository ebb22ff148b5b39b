"""Attention, forward, for many queries: tiles of queries against packed blocks of keys.

Parameters: query, key, value, [mask,] out, top, sum, lse. Queries of the heads that share keys
are one list of rows (head, position). A chunk is `tiles` (a setting, default `TILES`)
tiles of these rows.

Sizes: 0 batch, 1 heads of the keys, 2 heads of the query for each of them, 3 queries, 4 keys, 5 and
6 sizes of a query and of a value, 7 how many keys more than its number a query sees, 8 whether top
(1), sum (2) and lse (4) are wanted, then strides (batch, head, row, element) of query 9, key 13,
value 17, out 21, mask 25. With dropout places are the last parameter, their strides the last sizes,
and there are two more scalars, see `_with_dropout`.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels.c_attention import Attention
from flambeau.compiler.codegen.c.kernels.c_attention_dropout import (
    BITS,
    drop,
    replaced,
    stream,
    with_scalars,
)
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel

# Scratch of a chunk, in elements; the tiles' parts come last. See `scratch_elements`.
_LAYOUT = """\
  <T> *keys = scratch, *values = keys + (<KEYS> + <R>) * size;
  <T> *s = values + (width + <R>) * <KEYS>, *bias = s + (<KEYS> + <R>) * <C>;
  <T> *chain = bias + <KEYS> * <C>, *tiles = chain + (width + <R>) * <C>;
  const long long tile_size = (size + 2 * width + 8) * <C>;
"""

_TILE = """\
/* The sums of a block without keys of weight zero: so infinite values at keys that a query does
   not see change nothing, whether the keys are skipped or not. */
static __attribute__((noinline)) void fb_kernel_seen_only(long long count, long long packed,
    const long long *n, const <T> *values, const <T> *s, <T> *chain) {
  for (long long d = 0; d < n[6]; ++d) {
    const long long first = d / <R> * <R>, rows = n[6] - first < <R> ? n[6] - first : <R>;
    const <T> *panel = values + first * packed + (d - first);
SEEN  }
}

/* Adds a block of keys to a tile's sums. */
static void fb_kernel_add(long long count, long long packed, const long long *n, const <T> *values,
    const <T> *s, <T> *chain, <T> *sums, const <T> *state) {
  for (long long d = 0; d < n[6]; d += <R>) {
    const long long rows = n[6] - d < <R> ? n[6] - d : <R>;
    <micro>(rows, count, values + d * packed, s, <C>, chain + d * <C>, <C>, 0);
  }
  <V> odd = {0};
  for (long long i = 0; i < n[6] * <C>; i += <N>)
    odd = fb_fma_<V>(*(const <V> *)(chain + i), fb_splat_<V>(0), odd);
  const <I> any = (<I>)(odd != odd);
  if (__builtin_expect(fb_any_<I>(any), 0))
    fb_kernel_seen_only(count, packed, n, values, s, chain);
  for (long long d = 0; d < n[6]; ++d) {
ADD  }
}

/* A segment's sums join those of the segments before it. */
static void fb_kernel_join(long long width, <T> *sums, <T> *state, <T> *total) {
  <T> *whole = state + 4 * <C>;
JOIN}

/* Divides by the sums of weights and writes the results. */
static void fb_kernel_finish(char *const *p, const long long *n, const fb_kernel_work *w,
    long long row, <T> *sums, <T> *state, <T> *rows) {
FINISH  const long long end = row + <C> < w->last ? row + <C> : w->last;
  for (long long r = row; r < end;) {
    long long head, position;
    const long long run = fb_kernel_run(n, w, r, end, &head, &position), i = r - row;
    <M> *to = (<M> *)p[OUT] + w->batch * n[21] + head * n[22] + position * n[23];
    fb_kernel_rows(run, n[6], sums + i, <C>, rows, to, n[23], n[24]);
    const long long known = (w->batch * n[1] * n[2] + head) * n[3] + position;
    for (int j = 0; j < 3; ++j)
      for (long long l = 0; (n[8] >> j & 1) && l < run; ++l)
        ((<T> *)p[TOP + j])[known + l] = state[j * <C> + i + l];
    r += run;
  }
}
"""

_ADD = """\
    { const <V> live = *(const <V> *)(state + 3 * <C> + <at>);
      const <V> part = (<V>)((<I>)*(const <V> *)(chain + d * <C> + <at>) & (<I>)live);
      <V> *sum = (<V> *)(sums + d * <C> + <at>);
      *sum = fb_fma_<V>(*sum, *(const <V> *)(state + 2 * <C> + <at>), part); }
"""

_SEEN = """\
    { <V> sum = {0};
      for (long long j = 0; j < count; ++j) {
        const <V> weight = *(const <V> *)(s + j * <C> + <at>);
        const <V> more = fb_fma_<V>(fb_splat_<V>(panel[j * rows]), weight, sum);
        sum = fb_select_<V>((<I>)(weight != 0), more, sum);
      }
      *(<V> *)(chain + d * <C> + <at>) = sum; }
"""

_JOIN = """\
  { const <V> before = *(<V> *)(whole + <at>), here = *(<V> *)(state + <at>);
    const <V> top = fb_select_<V>((<I>)(before < here), here, before);
    const <V> base = fb_select_<V>((<I>)(top == -<infinity>), fb_splat_<V>(0), top);
    const <V> a = fb_exp_<V>(before - base), b = fb_exp_<V>(here - base);
    *(<V> *)(whole + <at>) = top;
    <V> *sum = (<V> *)(whole + <C> + <at>);
    *sum = fb_fma_<V>(*(<V> *)(state + <C> + <at>), b, *sum * a);
    for (long long d = 0; d < width; ++d) {
      <V> *t = (<V> *)(total + d * <C> + <at>);
      *t = fb_fma_<V>(*(<V> *)(sums + d * <C> + <at>), b, *t * a);
      *(<V> *)(sums + d * <C> + <at>) = fb_splat_<V>(0);
    }
    *(<V> *)(state + <at>) = fb_splat_<V>(-<infinity>);
    *(<V> *)(state + <C> + <at>) = fb_splat_<V>(0); }
"""

_FINISH = """\
  { const <V> sum = *(const <V> *)(state + <C> + <at>);
    const <I> none = (<I>)(sum == 0);
    const <V> factor = fb_select_<V>(none, fb_splat_<V>(0), 1 / sum);
    if (n[8] & 4)  /* in place of the last block's factors */
      *(<V> *)(state + 2 * <C> + <at>) = fb_select_<V>(none, fb_splat_<V>(<infinity>),
          *(const <V> *)(state + <at>) + fb_log_<V>(sum));
    for (long long d = 0; d < n[6]; ++d) {
      <V> *t = (<V> *)(sums + d * <C> + <at>);
      *t = *t * factor + 0;
    } }
"""

_CHUNK = """\
/* Everything that a block of keys, packed, does to a tile. */
static void fb_kernel_block(char *const *p, const long long *n, const fb_kernel_work *w,
    long long row, long long key, long long packed, const long long *ends, const <T> *keys,
    const <T> *values, <T> *s, <T> *bias, <T> *chain, <T> *tile) {
  long long count, least;
  <I1> end[<C>] FB_ALIGNED;
  fb_kernel_seen(ends, key, packed, end, &count, &least);
  if (!count) return;
  <T> *sums = tile + n[5] * <C>, *state = sums + 2 * n[6] * <C>;
MASKED  fb_kernel_scores(count, packed, n[5], keys, tile, s);
  if (BIAS || least < count) fb_kernel_hide(count, BIAS, least < count ? end : 0, s);
  fb_kernel_softmax(count, s, state);
  fb_kernel_add(count, packed, n, values, s, chain, sums, state);
}

static void fb_kernel_chunk(char *const *p, const long long *n, <T> scale, fb_kernel_work *w,
    <T> *scratch) {
  const long long size = n[5], width = n[6];
LAYOUT  long long ends[<TILES>][<C>];
  const long long count = (w->last - w->first + <C> - 1) / <C>;
  w->top = 0;
  for (long long t = 0; t < count; ++t) {
    <T> *tile = tiles + t * tile_size, *rest = tile + size * <C>;
    fb_kernel_queries((const <M> *)p[0], n + 9, size, n, scale, w, w->first + t * <C>, tile,
        ends[t]);
    for (long long i = 0; i < <C>; ++i) if (ends[t][i] > w->top) w->top = ends[t][i];
    for (long long i = 0; i < (2 * width + 8) * <C>; i += <N>) *(<V> *)(rest + i) = fb_splat_<V>(0);
    for (long long i = 0; i < <C>; i += <N>) {
      *(<V> *)(rest + 2 * width * <C> + i) = fb_splat_<V>(-<infinity>);
      *(<V> *)(rest + (2 * width + 4) * <C> + i) = fb_splat_<V>(-<infinity>);
    }
  }
  const <M> *from_k = (const <M> *)p[1] + w->batch * n[13] + w->head * n[14];
  const <M> *from_v = (const <M> *)p[2] + w->batch * n[17] + w->head * n[18];
  for (long long key = 0; key < w->top; key += <KEYS>) {
    const long long packed = w->top - key < <KEYS> ? w->top - key : <KEYS>;
    for (long long j = 0; j < packed; j += <R>) {
      const long long rows = packed - j < <R> ? packed - j : <R>;
      fb_kernel_turned(rows, size, from_k + (key + j) * n[15], n[15], n[16], keys + j * size, rows);
    }
    for (long long d = 0; d < width; d += <R>) {
      const long long rows = width - d < <R> ? width - d : <R>;
      fb_kernel_copied(rows, packed, width - d, from_v + key * n[19] + d * n[20], n[19], n[20],
          values + d * packed);
    }
    for (long long t = 0; t < count; ++t) {
      <T> *tile = tiles + t * tile_size, *sums = tile + size * <C>;
      if (key && key % <SEGMENT> == 0)
        fb_kernel_join(width, sums, sums + 2 * width * <C>, sums + width * <C>);
      fb_kernel_block(p, n, w, w->first + t * <C>, key, packed, ends[t], keys, values, s, bias,
          chain, tile);
    }
  }
  for (long long t = 0; t < count; ++t) {
    <T> *sums = tiles + t * tile_size + size * <C>, *state = sums + 2 * width * <C>;
    if (w->top > <SEGMENT>) {
      fb_kernel_join(width, sums, state, sums + width * <C>);
      state += 4 * <C>;
      sums += width * <C>;
    }
    fb_kernel_finish(p, n, w, w->first + t * <C>, sums, state, s);
  }
}

void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin,
    long long end, char *scratch) {
  const long long rows = n[2] * n[3], edge = <TILES> * <C>, blocks = (rows + edge - 1) / edge;
  for (long long c = begin; c < end; ++c) {
    const long long both = c / blocks, first = (blocks - 1 - c % blocks) * edge;
    fb_kernel_work w = { first, first + edge < rows ? first + edge : rows, both / n[1],
        both % n[1], 0 };
    fb_kernel_chunk(p, n, (<T>)x[0].d, &w, (<T> *)scratch);
  }
}
"""


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of the kernel."""
    made = Attention.of(kernel, target)
    masked = bool(made.mask)
    tile = _TILE.replace("ADD", made.per_vector(_ADD), 1)
    tile = tile.replace("SEEN", made.per_vector(_SEEN), 1)
    tile = tile.replace("JOIN", made.per_vector(_JOIN), 1)
    tile = tile.replace("FINISH", made.per_vector(_FINISH), 1)
    tile = tile.replace("OUT", str(3 + masked)).replace("TOP", str(4 + masked))
    test = "  if (!fb_kernel_biases(p[3], n + 25, n, w, row, key, count, bias)) return;\n"
    chunk = _CHUNK.replace("LAYOUT", _LAYOUT).replace("MASKED", test if masked else "")
    chunk = chunk.replace("BIAS", "bias" if masked else "0")
    queries = made.queries()
    if made.dropout:
        queries, tile, chunk = _with_dropout(made, target, queries, tile, chunk)
    parts = [
        made.packing(),
        made.scores(),
        made.hide(),
        made.softmax(),
        made.rows(),
        queries,
        made.masks(),
        made.fill(tile),
        made.fill(chunk),
    ]
    return "".join(parts)


def _with_dropout(
    made: Attention, target: Target, queries: str, tile: str, chunk: str
) -> tuple[str, str, str]:
    """The texts of a kernel that drops weights after their sum is known. Its scalars are the scale,
    what kept weights are multiplied by, and the limit of the 53 bits of a draw."""
    masked = bool(made.mask)
    queries = made.fill(with_scalars(queries)) + stream(made, target) + drop(made)
    tile = replaced(tile, ("fb_splat_<V>(0), 1 / sum)", "fb_splat_<V>(0), w->inverse / sum)"))
    draw = f"""\
  <I1> *bits = (<I1> *)(tiles + <TILES> * tile_size);
  fb_kernel_draw((const int *)p[{7 + masked}], n + {25 + 4 * masked}, n, w, bits, <TILES> * <C>);
"""
    later = "const <M> *from_k = "
    chunk = replaced(
        chunk,
        ("<T> *chain, <T> *tile) {", "<T> *chain, <T> *tile, const <I1> *bits) {"),
        (
            "fb_kernel_softmax(count, s, state);\n",
            "fb_kernel_softmax(count, s, state);\n"
            "  fb_kernel_drop(count, bits, <TILES> * <C>, s);\n",
        ),
        (f"  {later}", f"{draw}  {later}"),
        ("chain, tile);", f"chain, tile, bits + (key / {BITS} * <TILES> + t) * <C>);"),
        ("both % n[1], 0 };", "both % n[1], 0, (long long)x[2].d, (<T>)x[1].d };"),
    )
    return queries, tile, chunk
