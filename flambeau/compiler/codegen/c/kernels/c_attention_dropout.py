"""Dropout in the kernels of attention: tiles draw again what the generator drew.

The matrix of draws is nowhere stored. What is stored are places of the generator's stream (`random`
in `prims/random.py`), one for every `Attention.dropout` rows of a head. A chunk restores the places
of its rows and draws their bits, 32 keys of a row in an integer, into scratch that is as long as a
row of the matrix: [key / 32][row], so that a vector holds the bits of the rows along its lanes.

A draw takes two words of mt19937 (Matsumoto and Nishimura, 1998); their low 53 bits are compared,
as in `fill_bernoulli` of native/random/random.cpp.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels.c_attention import Attention
from flambeau.compiler.codegen.c.printer.c_types import kind_bits
from flambeau.compiler.targets import Target

BITS = 32  # draws of an integer
WORDS = 640  # of a place; whole vectors behind the 624 of the state may be read

_STREAM = """\
typedef unsigned fb_kernel_words __attribute__((vector_size(WIDE), aligned(4), may_alias));
typedef unsigned long long fb_kernel_pairs __attribute__((vector_size(WIDE), aligned(4),
    may_alias));
typedef struct { unsigned words[2][PLACE]; long long now, next, left; } fb_kernel_stream;

static inline fb_kernel_words fb_kernel_mixed(const unsigned *from) {
  const fb_kernel_words a = *(const fb_kernel_words *)from;
  const fb_kernel_words b = *(const fb_kernel_words *)(from + 1);
  return (((a & 0x80000000u) | (b & 0x7fffffffu)) >> 1) ^ (-(b & 1u) & 0x9908b0dfu);
}

/* The next 624 words: the last vectors overlap those before. */
static void fb_kernel_twist(unsigned *from, unsigned *to) {
  for (int i = 0; i < 227; i = i + 2 * EACH > 227 && i + EACH < 227 ? 227 - EACH : i + EACH)
    *(fb_kernel_words *)(to + i) = *(const fb_kernel_words *)(from + i + 397)
        ^ fb_kernel_mixed(from + i);
  from[624] = to[0];
  for (int i = 227; i < 624; i = i + 2 * EACH > 624 && i + EACH < 624 ? 624 - EACH : i + EACH)
    *(fb_kernel_words *)(to + i) = *(const fb_kernel_words *)(to + i - 227)
        ^ fb_kernel_mixed(from + i);
}

/* The next words of the stream, or (to is null) none of them. Whole vectors are stored. */
static void fb_kernel_take(fb_kernel_stream *g, long long count, unsigned *to) {
  while (count > 0) {
    if (!g->left) {
      fb_kernel_twist(g->words[g->now], g->words[!g->now]);
      g->now = !g->now;
      g->next = 0;
      g->left = 624;
    }
    const long long taken = count < g->left ? count : g->left;
    const unsigned *from = g->words[g->now] + g->next;
    for (long long i = 0; to && i < taken; i += EACH) {
      fb_kernel_words t = *(const fb_kernel_words *)(from + i);
      t ^= t >> 11;
      t ^= (t << 7) & 0x9d2c5680u;
      t ^= (t << 15) & 0xefc60000u;
      *(fb_kernel_words *)(to + i) = t ^ (t >> 18);
    }
    g->next += taken;
    g->left -= taken;
    count -= taken;
    if (to) to += taken;
  }
}

/* Which of 32 draws are below the limit, from 64 words. */
static inline unsigned fb_kernel_drawn(const unsigned *words, long long limit) {
  unsigned bits = 0;
  for (int i = 0; i < 64; i += EACH) {
    fb_kernel_pairs t = *(const fb_kernel_pairs *)(words + i);
    t = ((t << 32) | (t >> 32)) & ((1ull << 53) - 1);
    bits |= (unsigned)(COMPARED) << (i / 2);
  }
  return bits;
}

/* The bits of rows of the matrix of draws, up to the last key that a row sees. */
static __attribute__((noinline)) void fb_kernel_draw(const int *places, const long long *step,
    const long long *n, const fb_kernel_work *w, <I1> *to, long long pitch) {
  fb_kernel_stream g;
  unsigned words[1024 + 64];
  for (long long r = w->first; r < w->last;) {
    long long head, position;
    const long long run = fb_kernel_run(n, w, r, w->last, &head, &position);
    for (long long row = position; row < position + run; ++row, ++r) {
      const long long ahead = row % ROWS, end = row + 1 + n[7];
      const long long seen = end < 0 ? 0 : end < n[4] ? end : n[4];
      if (row == position || !ahead) {
        const int *from = places + w->batch * step[0] + head * step[1] + row / ROWS * step[2];
        for (int i = 0; i < 624; ++i) g.words[0][i] = (unsigned)from[i * step[3]];
        g.now = 0;
        g.next = from[624 * step[3]];
        g.left = from[625 * step[3]];
        fb_kernel_take(&g, 2 * ahead * n[4], 0);
      }
      for (long long key = 0; key < seen; key += 512) {
        const long long count = seen - key < 512 ? seen - key : 512;
        fb_kernel_take(&g, 2 * count, words);
        for (long long j = 0; j < count; j += BITS)
          to[(key + j) / BITS * pitch + r - w->first] = (<I1>)fb_kernel_drawn(words + 2 * j,
              w->limit);
      }
      fb_kernel_take(&g, 2 * (n[4] - seen), 0);
    }
  }
}
"""

_DROP = """\
/* Drops weights of a tile: [key][query]. */
static void fb_kernel_drop(long long count, const <I1> *bits, long long pitch, <T> *s) {
  for (long long j = 0; j < count; j += BITS, bits += pitch) {
    const long long last = count - j < BITS ? count : j + BITS;
LOADED    for (long long k = j; k < last; ++k) {
EACH    }
  }
}
"""

BITS_LOADED = "    const <I> b<w> = *(const <I> *)(bits + <at>);\n"
KEPT = "((b<w> << (TOP - (k - j))) >> TOP)"  # all bits of a lane where a weight is kept
_COMPARED = {
    64: "__builtin_ia32_ucmpq512_mask((FB_SIGNED)t, (FB_SIGNED)(t * 0 + limit), 1, 255)",
    32: "__builtin_ia32_movmskpd256((FB_REAL)((FB_SIGNED)t < limit))",
    16: "((long long)t[0] < limit) | ((long long)t[1] < limit) << 1",
}
_TYPES = {
    64: (("FB_SIGNED", "long long"),),
    32: (("FB_SIGNED", "long long"), ("FB_REAL", "double")),
    16: (),
}
WORK = "top; } fb_kernel_work;"  # of `Attention.run`


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """A text with parts changed, all of which are there."""
    for old, new in pairs:
        assert old in text, f"{old!r} is not there"
        text = text.replace(old, new)
    return text


def filled(made: Attention, text: str) -> str:
    """A text of dropout with names put in."""
    text = text.replace("BITS", str(BITS)).replace("TOP", str(kind_bits(made.kind) - 1))
    return made.fill(text)


def stream(made: Attention, target: Target) -> str:
    """`fb_kernel_draw`, by vectors that the target has registers for."""
    nbytes = target.vector_bytes
    types = "".join(
        f"typedef {kind} {name} __attribute__((vector_size({nbytes})));\n"
        for name, kind in _TYPES[nbytes]
    )
    text = _STREAM.replace("COMPARED", _COMPARED[nbytes]).replace("EACH", str(nbytes // 4))
    text = text.replace("WIDE", str(nbytes)).replace("PLACE", str(WORDS))
    text = (types + text).replace("ROWS", str(made.dropout))
    for name in ("FB_SIGNED", "FB_REAL"):
        text = text.replace(name, f"fb_kernel_{name[3:].lower()}")
    return filled(made, text)


def drop(made: Attention) -> str:
    """`fb_kernel_drop`."""
    kept = f"      {{ <V> *t = (<V> *)(s + k * <C> + <at>); *t = (<V>)((<I>)*t & {KEPT}); }}\n"
    text = _DROP.replace("LOADED", made.per_vector(BITS_LOADED))
    return filled(made, text.replace("EACH", made.per_vector(kept)))


def with_scalars(text: str) -> str:
    """`fb_kernel_work` with the limit of draws and with what kept weights are multiplied by."""
    return replaced(text, (WORK, f"top, limit; <T> inverse; {WORK[5:]}"))


__all__ = ["BITS", "BITS_LOADED", "KEPT", "drop", "filled", "replaced", "stream", "with_scalars"]
