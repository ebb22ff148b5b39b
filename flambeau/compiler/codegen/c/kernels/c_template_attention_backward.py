"""Attention, backward: the weights are computed again, block by block, from top and sum.

Parameters: grad, query, key, value, out, top, sum, [mask,] then the gradients of query, key and
value. A chunk is some blocks of keys against some blocks of `ROWS` queries, by the launch's mode:
0, all of a head of the keys, for all gradients; 1, a block of queries, for the query's gradient; 2,
a block of keys, for the gradients of key and value. All sums have one order whatever the mode: a
query's gradient adds blocks of `KEYS` keys, those of a key and a value blocks of `DEPTH` queries
(of all heads that share the key), each block a chain of FMAs from +0, in increasing order.

Sizes: 0 to 7 as in `c_template_attention`, 8 the mode, 9 to 11 which gradients are wanted, then
strides (batch, head, row, element) of grad 12, query 16, key 20, value 24, out 28, the gradients
32, 36 and 40, mask 44. With dropout see `_with_dropout`.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels.c_attention import Attention
from flambeau.compiler.codegen.c.kernels.c_attention_dropout import (
    BITS,
    BITS_LOADED,
    KEPT,
    filled,
    replaced,
    stream,
    with_scalars,
)
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel

ROWS = 64  # queries of a block: part of the semantics
DEPTH = 32  # queries of a chain of FMAs: part of the semantics
DRAWN = 512  # queries whose bits of dropout are drawn at once

# The queries of a block, packed: see `elements` in `schedule/attention.py`.
_LAYOUT = """\
  const long long size = n[5], width = n[6];
  <T> *keys = scratch, *values = keys + (<KEYS> + <R>) * size;
  <T> *turned = values + (<KEYS> + <R>) * width, *s = turned + (size + <R>) * <KEYS>;
  <T> *change = s + (<KEYS> + <R>) * <C>, *bias = change + (<KEYS> + <R>) * <C>;
  <T> *weights = bias + <KEYS> * <C>, *changes = weights + <ROWS> * <KEYS>;
  <T> *by_key = changes + <ROWS> * <KEYS>, *by_value = by_key + (size + <R>) * <KEYS>;
  <T> *tiles = by_value + (width + <R>) * <KEYS>, *panels = tiles + (size + width + 3) * <ROWS>;
  <T> *spare = panels + (size + width + 2 * <R>) * <ROWS>;
  <T> *by_query = spare + (size + width) * <KEYS>;
"""

_QUERIES = """\
/* Rows of a block as panels of elements, [row][<R>] each. */
static void fb_kernel_panels(const <M> *from, const long long *step, long long size,
    const long long *n, const fb_kernel_work *w, long long row, long long depth, <T> *to) {
  const long long end = row + depth < w->last ? row + depth : w->last;
  for (long long d = 0; d < size; d += <R>) {
    const long long rows = size - d < <R> ? size - d : <R>;
    <T> *panel = to + d * depth;
    for (long long r = row; r < end;) {
      long long head, position;
      const long long run = fb_kernel_run(n, w, r, end, &head, &position);
      fb_kernel_copied(rows, run, size - d, from + w->batch * step[0] + head * step[1]
          + position * step[2] + d * step[3], step[2], step[3], panel + (r - row) * rows);
      r += run;
    }
    for (long long i = (end - row) * rows; i < depth * rows; ++i) panel[i] = 0;
  }
}

/* Of each query of a tile the largest score, the sum of grad * out, and 1 / the sum of weights;
   +inf and 0 where it sees nothing. */
static void fb_kernel_statistics(char *const *p, const long long *n, const fb_kernel_work *w,
    long long row, const <T> *grad, <T> *out, <T> *state) {
  const long long end = row + <C> < w->last ? row + <C> : w->last;
  fb_kernel_queries((const <M> *)p[4], n + 28, n[6], n, 1, w, row, out, 0);
DOT  for (long long i = 0; i < <C>; ++i) state[i] = <infinity>, state[2 * <C> + i] = 0;
  for (long long r = row; r < end;) {
    long long head, position;
    const long long run = fb_kernel_run(n, w, r, end, &head, &position);
    const long long known = (w->batch * n[1] * n[2] + head) * n[3] + position;
    for (long long l = 0; l < run; ++l) {
      const <T> sum = ((const <T> *)p[6])[known + l];
      if (sum == 0) continue;
      state[r - row + l] = ((const <T> *)p[5])[known + l];
      state[2 * <C> + r - row + l] = 1 / sum;
    }
    r += run;
  }
}
"""

_DOT = """\
  { <V> sum = {0};
    for (long long d = 0; d < n[6] * <C>; d += <C>)
      sum = fb_fma_<V>(*(const <V> *)(grad + d + <at>), *(const <V> *)(out + d + <at>), sum);
    *(<V> *)(state + <C> + <at>) = sum; }
"""

_CHANGES = """\
/* Weights in place of scores, and the scores' gradients in place of the weights'. */
static void fb_kernel_changes(long long count, const <T> *state, <T> *s, <T> *change) {
LOADED  for (long long j = 0; j < count * <C>; j += <C>) {
EACH  }
}
"""

_LOADED = """\
  const <V> top<w> = *(const <V> *)(state + <at>), dot<w> = *(const <V> *)(state + <C> + <at>);
  const <V> part<w> = *(const <V> *)(state + 2 * <C> + <at>);
"""

_EACH = """\
    const <V> e<w> = fb_exp_<V>(*(const <V> *)(s + j + <at>) - top<w>) * part<w>;
    *(<V> *)(s + j + <at>) = e<w>;
    { <V> *t = (<V> *)(change + j + <at>); *t = e<w> * (*t - dot<w>); }
"""

_CHUNK = """\
/* c[d][key] += sum over the rows of a[row][d] * b[row][key], a in panels. */
static void fb_kernel_gather(long long size, long long count, long long first, long long rows,
    long long depth, const <T> *a, const <T> *b, <T> *c) {
  for (long long d = 0; d < size; d += <R>) {
    const long long high = size - d < <R> ? size - d : <R>;
    for (long long j = 0; j < count; j += <C>)
      for (long long r = first, next; r < first + rows; r = next) {
        next = r / <DEPTH> * <DEPTH> + <DEPTH>;
        next = next < first + rows ? next : first + rows;
        <micro>(high, next - r, a + d * depth + r * high, b + r * <KEYS> + j, <KEYS>,
            c + d * <KEYS> + j, <KEYS>, 1);
      }
  }
}

/* A tile's [key][query] as [query][key], zeros behind the keys seen. */
static void fb_kernel_by_row(long long seen, long long wide, const <T> *from, <T> *to) {
  long long j = 0;
  for (; j + <N> <= seen; j += <N>)
    for (long long i = 0; i < <C>; i += <N>)
      fb_kernel_computed(from + j * <C> + i, <C>, <N> - 1, to + i * <KEYS> + j, <KEYS>);
  if (j < wide)
    <turn>(seen - j, wide - j, <C>, from + j * <C>, <C>, 1, to + j, <KEYS>);
}

/* A gradient of keys or values, [d][key], to its memory. */
static void fb_kernel_give(long long count, long long size, <T> scale, <T> *from, <T> *rows,
    char *to, const long long *step, const fb_kernel_work *w, long long key) {
  for (long long i = 0; i < size * <KEYS>; i += <N>) *(<V> *)(from + i) *= scale;
  fb_kernel_rows(count, size, from, <KEYS>, rows, (<M> *)to + w->batch * step[0]
      + w->head * step[1] + key * step[2], step[2], step[3]);
}

static void fb_kernel_chunk(char *const *p, const long long *n, <T> scale, fb_kernel_work *w,
    long long key_first, long long key_last, <T> *scratch) {
LAYOUT  long long ends[<ROWS>], packed_row = -1;
  const long long of_query = n[8] != 2 && n[9], of_key = n[8] != 1 && n[10];
  const long long of_value = n[8] != 1 && n[11];
  const <M> *from_k = (const <M> *)p[2] + w->batch * n[20] + w->head * n[21];
  const <M> *from_v = (const <M> *)p[3] + w->batch * n[24] + w->head * n[25];
  const long long count = (w->last - w->first + <ROWS> - 1) / <ROWS>;
  if (of_query) for (long long i = 0; i < count * <ROWS> * size; ++i) by_query[i] = 0;
  for (long long key = key_first; key < key_last; key += <KEYS>) {
    const long long packed = key_last - key < <KEYS> ? key_last - key : <KEYS>;
    const long long wide = (packed + <C> - 1) / <C> * <C>;
    for (long long j = 0; j < packed; j += <R>) {
      const long long rows = packed - j < <R> ? packed - j : <R>;
      fb_kernel_turned(rows, size, from_k + (key + j) * n[22], n[22], n[23], keys + j * size, rows);
      fb_kernel_turned(rows, width, from_v + (key + j) * n[26], n[26], n[27], values + j * width,
          rows);
    }
    for (long long d = 0; of_query && d < size; d += <R>) {
      const long long rows = size - d < <R> ? size - d : <R>;
      fb_kernel_copied(rows, packed, size - d, from_k + key * n[22] + d * n[23], n[22], n[23],
          turned + d * packed);
    }
    for (long long i = 0; i < size * <KEYS>; ++i) by_key[i] = 0;
    for (long long i = 0; i < width * <KEYS>; ++i) by_value[i] = 0;
    for (long long row = w->first; row < w->last; row += <ROWS>) {
      const long long used = (w->last - row < <ROWS> ? w->last - row : <ROWS>) + <C> - 1;
      const long long depth = used / <C> * <C>;
      if (packed_row != row) {
        for (long long r = 0; r < depth; r += <C>) {
          <T> *tile = tiles + r * (size + width + 3), *grad = tile + size * <C>;
          fb_kernel_queries((const <M> *)p[1], n + 16, size, n, scale, w, row + r, tile, ends + r);
          fb_kernel_queries((const <M> *)p[0], n + 12, width, n, 1, w, row + r, grad, 0);
          fb_kernel_statistics(p, n, w, row + r, grad, spare, grad + width * <C>);
        }
        if (of_key) fb_kernel_panels((const <M> *)p[1], n + 16, size, n, w, row, depth, panels);
        if (of_value)
          fb_kernel_panels((const <M> *)p[0], n + 12, width, n, w, row, depth,
              panels + (size + <R>) * <ROWS>);
        packed_row = row;
      }
      long long first = depth, last = 0;
      for (long long r = 0; r < depth; r += <C>) {
        long long seen, least;
        <I1> end[<C>] FB_ALIGNED;
        fb_kernel_seen(ends + r, key, packed, end, &seen, &least);
        <T> *tile = tiles + r * (size + width + 3), *grad = tile + size * <C>;
        int live = seen > 0;
MASKED        if (!live) {
          for (long long i = 0; first < depth && i < <C> * <KEYS>; ++i)
            weights[r * <KEYS> + i] = changes[r * <KEYS> + i] = 0;
          continue;
        }
        first = first < r ? first : r;
        last = r + <C>;
        fb_kernel_scores(seen, packed, size, keys, tile, s);
        if (BIAS || least < seen) fb_kernel_hide(seen, BIAS, least < seen ? end : 0, s);
        fb_kernel_scores(seen, packed, width, values, grad, change);
        fb_kernel_changes(seen, grad + width * <C>, s, change);
        for (long long d = 0; of_query && d < size; d += <R>) {
          const long long rows = size - d < <R> ? size - d : <R>;
          <micro>(rows, seen, turned + d * packed, change, <C>,
              by_query + ((row - w->first + r) * size + d * <C>), <C>, 1);
        }
        if (of_value) fb_kernel_by_row(seen, wide, s, weights + r * <KEYS>);
        if (of_key) fb_kernel_by_row(seen, wide, change, changes + r * <KEYS>);
      }
      if (first >= last) continue;
      if (of_key)
        fb_kernel_gather(size, wide, first, last - first, depth, panels, changes, by_key);
      if (of_value)
        fb_kernel_gather(width, wide, first, last - first, depth, panels + (size + <R>) * <ROWS>,
            weights, by_value);
    }
    if (of_key) fb_kernel_give(packed, size, scale, by_key, spare, p[BY_KEY], n + 36, w, key);
    if (of_value) fb_kernel_give(packed, width, 1, by_value, spare, p[BY_VALUE], n + 40, w, key);
  }
  for (long long row = w->first; of_query && row < w->last; row += <C>) {
    <T> *tile = by_query + (row - w->first) * size;
    const long long end = row + <C> < w->last ? row + <C> : w->last;
    for (long long i = 0; i < size * <C>; i += <N>) *(<V> *)(tile + i) *= scale;
    for (long long r = row; r < end;) {
      long long head, position;
      const long long run = fb_kernel_run(n, w, r, end, &head, &position);
      fb_kernel_rows(run, size, tile + r - row, <C>, spare, (<M> *)p[BY_QUERY] + w->batch * n[32]
          + head * n[33] + position * n[34], n[34], n[35]);
      r += run;
    }
  }
}

void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin,
    long long end, char *scratch) {
  const long long rows = n[2] * n[3], mode = n[8];
  const long long edge = mode == 1 ? <ROWS> : rows, length = mode == 2 ? <KEYS> : n[4];
  const long long extent = mode == 1 ? rows : mode == 2 ? n[4] : 1;
  const long long step = mode == 1 ? edge : length;
  const long long blocks = mode ? (extent + step - 1) / step : 1;
  for (long long c = begin; c < end; ++c) {
    const long long both = c / blocks, block = c % blocks;
    const long long first = mode == 1 ? block * edge : 0, key = mode == 2 ? block * length : 0;
    fb_kernel_work w = { first, first + edge < rows ? first + edge : rows, both / n[1],
        both % n[1], 0 };
    fb_kernel_chunk(p, n, (<T>)x[0].d, &w, key, key + length < n[4] ? key + length : n[4],
        (<T> *)scratch);
  }
}
"""


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of the kernel."""
    made = Attention.of(kernel, target)
    masked = bool(made.mask)
    queries = _QUERIES.replace("DOT", made.per_vector(_DOT))
    changes = _CHANGES.replace("LOADED", made.per_vector(_LOADED))
    changes = changes.replace("EACH", made.per_vector(_EACH))
    test = (
        "        live = live && fb_kernel_biases(p[7], n + 44, n, w, row + r, key, seen, bias);\n"
    )
    chunk = _CHUNK.replace("LAYOUT", _LAYOUT).replace("MASKED", test if masked else "")
    chunk = chunk.replace("BIAS", "bias" if masked else "0")
    for number, name in enumerate(("BY_QUERY", "BY_KEY", "BY_VALUE")):
        chunk = chunk.replace(name, str(7 + masked + number))
    both = made.queries()
    if made.dropout:
        both, changes, chunk = _with_dropout(made, target, both, chunk)
    parts = [
        made.packing(),
        made.scores(),
        made.hide(),
        made.rows(),
        both,
        made.masks(),
        *(made.fill(text) for text in (queries, changes, chunk)),
    ]
    return "".join(parts).replace("<ROWS>", str(ROWS)).replace("<DEPTH>", str(DEPTH))


_DROPPED = """\
/* The same with dropout: weights in place of scores are those that are kept, not divided yet. */
static void fb_kernel_changes(long long count, const <T> *state, <T> *s, <T> *change,
    const <I1> *bits, <T> inverse) {
LOADED  for (long long j = 0; j < count; j += BITS, bits += <DRAWN>) {
    const long long last = count - j < BITS ? count : j + BITS;
LOADBITS    for (long long k = j; k < last; ++k) {
EACH    }
  }
}
"""

_EACH_DROPPED = """\
      const <V> e<w> = fb_exp_<V>(*(const <V> *)(s + k * <C> + <at>) - top<w>) * part<w>;
      const <I> kept<w> = KEPT;
      *(<V> *)(s + k * <C> + <at>) = (<V>)((<I>)e<w> & kept<w>);
      { <V> *t = (<V> *)(change + k * <C> + <at>);
        *t = e<w> * ((<V>)((<I>)*t & kept<w>) * inverse - dot<w>); }
"""

_HEADS = """\
  const long long rows = n[2] * n[3];
  for (long long c = begin; c < end; ++c) {
    long long first = 0;
    do {
      const long long last = first + <DRAWN> < rows ? first + <DRAWN> : rows;
      fb_kernel_work w = { first, last, c / n[1], c % n[1], 0, (long long)x[2].d, (<T>)x[1].d };
      fb_kernel_chunk(p, n, (<T>)x[0].d, &w, 0, n[4], (<T> *)scratch);
      first += <DRAWN>;
    } while (first < rows);
  }
}
"""


def _with_dropout(
    made: Attention, target: Target, queries: str, chunk: str
) -> tuple[str, str, str]:
    """The texts of a kernel that drops weights. A chunk is a head; the mode is always 0. It goes
    over its queries in parts, whose bits are drawn first, so the gradients of all its keys wait in
    scratch. Places are the last parameter, their strides the last sizes; the scalars are those of
    the forward kernel."""
    masked = bool(made.mask)
    queries = made.fill(with_scalars(queries)) + stream(made, target)
    changes = _DROPPED.replace("LOADED", made.per_vector(_LOADED))
    changes = changes.replace("LOADBITS", made.per_vector(BITS_LOADED))
    changes = changes.replace("EACH", made.per_vector(_EACH_DROPPED.replace("KEPT", KEPT)))
    places, strides = 10 + masked, 44 + 4 * masked
    draw = f"""\
  const long long keys_size = (size + width + 2 * <R>) * <KEYS>;
  <T> *by_keys = by_query + <DRAWN> * size;
  <I1> *bits = (<I1> *)(by_keys + (n[4] + <KEYS> - 1) / <KEYS> * keys_size);
  fb_kernel_draw((const int *)p[{places}], n + {strides}, n, w, bits, <DRAWN>);
"""
    start = chunk.index("  const long long rows = n[2] * n[3], mode")
    zeros = "for (long long i = 0; i < {} * <KEYS>; ++i) by_{}[i] = 0;"
    pairs = [
        (zeros.format(size, name), zeros.format(size, name).replace("; i <", "; !w->first && i <"))
        for size, name in (("size", "key"), ("width", "value"))
    ]
    pairs += [
        (
            f"if (of_{name}) fb_kernel_give",
            f"if (of_{name} && w->last == n[2] * n[3]) fb_kernel_give",
        )
        for name in ("key", "value")
    ]
    wide = "    const long long wide = (packed + <C> - 1) / <C> * <C>;\n"
    split = "    by_key = by_keys + key / <KEYS> * keys_size;\n"
    split += "    by_value = by_key + (size + <R>) * <KEYS>;\n"
    at = f"bits + key / {BITS} * <DRAWN> + row - w->first + r, w->inverse"
    last = "<T> *by_query = spare + (size + width) * <KEYS>;\n"
    chunk = replaced(
        chunk[:start] + _HEADS,
        *pairs,
        (last, last + draw),
        (wide, wide + split),
        ("width * <C>, s, change);", f"width * <C>, s, change, {at});"),
        ("give(packed, width, 1,", "give(packed, width, w->inverse,"),
    )
    changes, chunk = (x.replace("<DRAWN>", str(DRAWN)) for x in (changes, chunk))
    return queries, filled(made, changes), chunk
