"""Convolutions of bfloat16 numbers by the instruction that adds products of pairs of them.

Windows are gathered as they are, 32 numbers to a vector, then two rows of windows, neighbours along
K, become one row of pairs; weights are packed by pairs. The sums are float32, as are those of any
other convolution, and so is all that becomes of them. Beside that, the gathering of windows of
images whose channels lie along memory, which differs most. `$name` is a size argument, `@name@` a
choice, as in `c_convolution_text`.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels import c_convolution_text as text
from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.targets.description import Target

_BY_CHANNELS = """\
#if @wide@ && @channels@
/* As below for images whose channels lie along memory: blocks of them are turned in registers. */
static void @fb@_gather_turned(const @fb@_image *s, const @fb@_piece *pieces, int found,
                               long long width, long long pitch, long long row, long long rows,
                               @K@x1 *to) {
  const long long taps = s->taps[0] * s->taps[1] * s->taps[2];
  const long long low = row / taps, low_tap = row % taps;
  const long long high = (row + rows) / taps, high_tap = (row + rows) % taps;
  long long t0 = 0, t1 = 0, t2 = -1;
  for (long long tap = 0; tap < taps; ++tap) {
    if (++t2 == s->taps[2]) { t2 = 0; if (++t1 == s->taps[1]) { t1 = 0; ++t0; } }
    const long long c = low + (tap < low_tap), end = high + (tap < high_tap);
    if (c >= end) continue;
    @K@x1 *line = to + (c * taps + tap - row) * pitch;
    for (int i = 0; i < found; ++i) {
      const @fb@_piece *e = pieces + i;
      const long long z = e->at[0] * s->stride[0] + s->offset[0] + t0 * s->tap_step[0];
      const long long y = e->at[1] * s->stride[1] + s->offset[1] + t1 * s->tap_step[1];
      const long long x = e->at[2] * s->stride[2] + s->offset[2] + t2 * s->tap_step[2];
      const long long room = width - e->lane;
      const long long outside = e->batch < 0 || z < 0 || z >= s->extent[0] || y < 0 ||
                                y >= s->extent[1];
      const @T@ *from = s->data + e->batch * s->batch + z * s->step[0] + y * s->step[1];
"""

# The gathering of windows of images whose channels lie along memory.
BY_CHANNELS = (
    _BY_CHANNELS
    + """\
      for (long long k = c; k < end; k += @L@) {
        const long long count = @fb@_min(@L@, end - k);
        @V@ r[@L@];
        for (long long l = 0; l < @L@; ++l) {
          const long long at = x + l * s->stride[2];
          r[l] = (@V@){0};
          if (!outside && l < e->count && at >= 0 && at < s->extent[2])
            r[l] = @masked@(from + at * s->step[2] + k, @fb@_columns(count, 0));
        }
        @pack@_turn(r);
        @K@x1 *out = line + (k - c) * taps * pitch + e->lane;
        for (long long l = 0; l < count; ++l, out += taps * pitch)
          if (room >= @L@) *(@V@ *)out = r[l]; else @storem@(out, r[l], room);
      }
    }
  }
}
#endif
"""
)

# The same for elements that are half as wide as sums: they are turned as wide as those.
BY_CHANNELS_OF_PAIRS = (
    _BY_CHANNELS
    + """\
      for (long long k = c; k < end; k += 16) {
        const long long count = @fb@_min(16, end - k);
        for (long long h = 0; h < room && h <= 16; h += 16) {
          u32x16 r[16];
          for (long long l = 0; l < 16; ++l) {
            const long long at = x + (h + l) * s->stride[2];
            r[l] = (u32x16){0};
            if (!outside && h + l < e->count && at >= 0 && at < s->extent[2])
              r[l] = fb_to_u32x16(fb_loadm_u16x16(from + at * s->step[2] + k, count));
          }
          @turn@((f32x16 *)r);
          u16x1 *out = line + (k - c) * taps * pitch + e->lane + h;
          for (long long l = 0; l < count; ++l, out += taps * pitch)
            fb_storem_u16x16(out, fb_to_u16x16(r[l]), room - h);
        }
      }
    }
  }
}
#endif
"""
)

# Windows of a slab as the micro-kernel takes them.
WINDOWS = """\
static inline FB_ALWAYS void @fb@_windows(const @fb@_image *s, long long column, long long columns,
                                          long long row, long long rows, @T@ *line, @P@x1 *to) {
  (void)line;
  @fb@_gather(s, column, columns, @W@, @W@, row, rows, to);
}
"""

# The same where two rows are one of pairs, by way of `line`.
WINDOWS_OF_PAIRS = """\
static void @fb@_windows(const @fb@_image *s, long long column, long long columns, long long row,
                         long long rows, @T@ *line, @P@x1 *to) {
  @fb@_gather(s, column, columns, @W@, @W@, row, rows, line);
  for (long long k = 0; k < rows; k += 2, line += 2 * @W@, to += @W@) {
    const @fb@_row even = *(const @fb@_row *)line;
    @fb@_row odd = {0};
    if (k + 1 < rows) odd = *(const @fb@_row *)(line + @W@);
    *(@fb@_row *)to = (@fb@_row)FB_SHUFFLE2(@fb@_row, even, odd, @first_pairs@);
    *(@fb@_row *)(to + @W@ / 2) = (@fb@_row)FB_SHUFFLE2(@fb@_row, even, odd, @last_pairs@);
  }
}
"""

# Weights by pairs.
PANEL_OF_PAIRS = (
    text.PANEL_IN_LINE
    + """\
  for (long long k = 0; k < depth; k += 2, to += height) {
    const @T@ *of[2] = {from, from};
    for (long long e = 0; e < 2 && k + e < depth; ++e) {
      long long rest = first + k + e;
      for (int d = 2; d >= 0; --d) {
        of[e] += rest % w->taps[d] * w->step[d];
        rest /= w->taps[d];
      }
      of[e] += rest * w->channel;
    }
    if (k + 1 < depth)
      for (long long i = 0; i < height; ++i)
        to[i] = of[0][i * w->row] | (@P@x1)of[1][i * w->row] << 16;
    else
      for (long long i = 0; i < height; ++i) to[i] = of[0][i * w->row];
  }
}
"""
)

OF_PAIRS = {WINDOWS: WINDOWS_OF_PAIRS, text.PANEL: PANEL_OF_PAIRS}


def halves(lanes: int, target: Target) -> dict[str, str]:
    """What gathering calls its vectors where elements are half as wide as sums."""
    row, even = f"{SYMBOL}_row", [2 * i for i in range(lanes)]
    halves = [[first + i // 2 + lanes * (i % 2) for i in range(lanes)] for first in (0, lanes // 2)]
    types = (
        f"typedef unsigned short {row} __attribute__((vector_size({2 * lanes}), aligned(2), "
        "may_alias));\n"
    )
    load, store = (target.instruction(name, "u16", lanes) for name in ("load", "store"))
    assert load is not None and store is not None  # of a target that multiplies pairs
    functions = (
        f"static inline FB_ALWAYS {row} {SYMBOL}_masked(const u16x1 *from, "
        f"unsigned long long inside) {{\n"
        f"  return ({row}){load(p='from', other='{0}', bits='inside')};\n}}\n"
        f"static inline FB_ALWAYS void {row}_store(u16x1 *to, {row} x, long long m) {{\n"
        f"  if (m >= {lanes}) *({row} *)to = x;\n"
        f"  else {store(p='to', v='x', bits='(1u << m) - 1u')};\n}}\n"
    )
    return {
        "K": "u16", "V": row, "L": str(lanes), "storem": f"{row}_store",
        "bit_load": types + functions,
        "load": f"  return {SYMBOL}_masked(from, (1ull << last) - (1ull << first));",
        "even": ", ".join(map(str, even)),
        "first_pairs": ", ".join(map(str, halves[0])),
        "last_pairs": ", ".join(map(str, halves[1])),
    }  # fmt: skip
