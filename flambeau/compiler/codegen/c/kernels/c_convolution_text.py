"""The C text of the template "convolution": `$name` is a size argument, `@name@` a choice."""

from __future__ import annotations

# Elements of the sum of a convolution, or of a gradient of its input, that are one chain of FMAs:
# part of the semantics. Of bfloat16 these are pairs.
CHAIN = 64

# What windows are taken of.
IMAGE = """\
typedef struct {
  const @T@ *data;  // the group's first channel
  long long batch, channel, step[3], extent[3];
  long long places[3], stride[3];  // windows, and how far one is from the next
  long long taps[3], offset[3], tap_step[3];  // what a window reads
  long long flat;  // places are elements of memory, side by side
} @fb@_image;

static inline FB_ALWAYS long long @fb@_min(long long a, long long b) { return a < b ? a : b; }

/* One axis of places that reads and writes whole rows is as good as three. */
static void @fb@_flatten(@fb@_image *s) {
  s->flat = 0;
  for (int d = 0; d < 3; ++d)
    if (s->taps[d] != 1 || s->stride[d] != 1 || s->offset[d] || s->extent[d] != s->places[d])
      return;
  long long step = s->step[2], expected = 0, axes = 0;
  for (int d = 2; d >= 0; --d) {
    if (s->extent[d] == 1) continue;  // whatever its step
    if (axes++ == 0) step = expected = s->step[d];
    if (s->step[d] != expected) return;
    expected = s->step[d] * s->extent[d];
  }
  s->step[2] = step;
  s->extent[2] *= s->extent[1] * s->extent[0];
  s->places[2] = s->extent[2];
  s->extent[0] = s->extent[1] = s->places[0] = s->places[1] = 1;
  s->flat = s->step[2] == 1;
}

@bit_load@
/* The lanes in [first, last), the others zero and not read: 0 <= first <= last <= @L@. */
static inline FB_ALWAYS @V@ @fb@_load(const @K@x1 *from, long long first, long long last) {
@load@
}

/* Elements 0, 2, .. of the row that are in [first, last), the others zero and not read. */
static inline FB_ALWAYS @V@ @fb@_even(const @K@x1 *from, long long first, long long last) {
  const @V@ a = @fb@_load(from, @fb@_min(first, @L@), @fb@_min(last, @L@));
  const @V@ b = @fb@_load(from + @L@, first > @L@ ? first - @L@ : 0, last > @L@ ? last - @L@ : 0);
  return (@V@)FB_SHUFFLE2(@V@, a, b, @even@);
}

#if @wide@
/* Bits [low, high) of 64, of which none may be there. */
static inline FB_ALWAYS unsigned long long @fb@_columns(long long high, long long low) {
  const unsigned long long all = ~0ull;
  if (high <= 0 || low >= 64) return 0;
  return (high >= 64 ? all : ~(all << high)) & (low <= 0 ? all : all << low);
}

/* Lanes 0, stride, .. of the row from here on, those whose bits are set. */
static inline FB_ALWAYS @V@ @fb@_pick(const @T@ *from, unsigned long long inside,
                                      long long stride) {
  const @V@ a = @masked@(from, inside);
  if (stride == 1) return a;
  const @V@ b = @masked@(from + @L@, inside >> @L@);
  return (@V@)FB_SHUFFLE2(@V@, a, b, @even@);
}
#endif
"""

# The gathering of windows as rows of a matrix.
GATHER = """\
typedef struct { int lane, count, batch, at[3]; } @fb@_piece;

/* Runs of places that lie in one row, at most a vector long; then nothing, up to `width`. */
static int @fb@_pieces(const @fb@_image *s, long long column, long long columns, long long width,
                       @fb@_piece *out) {
  int found = 0;
  long long at[3], rest = column;
  for (int d = 2; d >= 0; --d) { at[d] = rest % s->places[d]; rest /= s->places[d]; }
  for (long long lane = 0; lane < width;) {
    long long count = @fb@_min(@L@, width - lane);
    if (lane < columns) {
      count = @fb@_min(count, @fb@_min(columns - lane, s->places[2] - at[2]));
      out[found++] = (@fb@_piece){(int)lane, (int)count, (int)rest,
                                  {(int)at[0], (int)at[1], (int)at[2]}};
      at[2] += count;
      for (int d = 2; d > 0 && at[d] == s->places[d]; --d) { at[d] = 0; ++at[d - 1]; }
      if (at[0] == s->places[0]) { at[0] = 0; ++rest; }
    } else {
      out[found++] = (@fb@_piece){(int)lane, (int)count, -1, {0, 0, 0}};
    }
    lane += count;
  }
  return found;
}

/* One piece of `count` channels: lanes [first, last) are inside of the image, others zero. All
   `room` lanes up to the end of the row may be written: what comes next lies behind. */
static void @fb@_lines(const @T@ *from, long long step, long long channel, long long first,
                       long long last, long long count, @K@x1 *to, long long to_step,
                       long long room) {
  if (last <= first) {
    for (long long c = 0; c < count; ++c, to += to_step)
      if (room >= @L@) *(@V@ *)to = (@V@){0}; else @storem@(to, (@V@){0}, room);
    return;
  }
  if (step == 1) {
    if (first == 0 && last == @L@) {
      for (long long c = 0; c < count; ++c, from += channel, to += to_step)
        *(@V@ *)to = *(const @V@ *)from;
      return;
    }
    for (long long c = 0; c < count; ++c, from += channel, to += to_step) {
      const @V@ x = @fb@_load(from, first, last);
      if (room >= @L@) *(@V@ *)to = x; else @storem@(to, x, room);
    }
    return;
  }
  if (step == 2) {
    for (long long c = 0; c < count; ++c, from += channel, to += to_step) {
      const @V@ x = @fb@_even(from, 2 * first, 2 * last - 1);
      if (room >= @L@) *(@V@ *)to = x; else @storem@(to, x, room);
    }
    return;
  }
  if (room > @L@) room = @L@;
  for (long long c = 0; c < count; ++c, from += channel, to += to_step) {
    for (long long l = 0; l < first; ++l) to[l] = 0;
    for (long long l = first; l < last; ++l) to[l] = from[l * step];
    for (long long l = last; l < room; ++l) to[l] = 0;
  }
}

#if @wide@
/* One piece of `count` channels: lanes whose bits are set are inside of the image. */
static inline FB_ALWAYS void @fb@_masked_lines(const @T@ *from, unsigned long long inside,
                                               long long stride, long long channel,
                                               long long count, @K@x1 *to, long long to_step,
                                               long long room) {
  if (room >= @L@)
    for (; count > 0; --count, from += channel, to += to_step)
      *(@V@ *)to = @fb@_pick(from, inside, stride);
  else
    for (; count > 0; --count, from += channel, to += to_step)
      @storem@(to, @fb@_pick(from, inside, stride), room);
}

/* As below, row by row: where rows are hardly more than taps. */
static void @fb@_gather_rows(const @fb@_image *s, const @fb@_piece *pieces, int found,
                             long long width, long long pitch, long long row, long long rows,
                             @K@x1 *to) {
  const @T@ *from[32];
  unsigned long long masks[32][16], there[32];
  for (int i = 0; i < found; ++i) {
    const @fb@_piece *e = pieces + i;
    const long long z = e->at[0] * s->stride[0] + s->offset[0];
    const long long y = e->at[1] * s->stride[1] + s->offset[1];
    const long long x = e->at[2] * s->stride[2] + s->offset[2];
    const unsigned long long used = @fb@_columns(s->stride[2] * (e->count - 1) + 1, 0);
    from[i] = s->data + e->batch * s->batch + z * s->step[0] + y * s->step[1] + x;
    there[i] = 0;
    for (long long t = 0; t < s->taps[1]; ++t) {
      const long long at = y + t * s->tap_step[1];
      const long long inside = e->batch >= 0 && z >= 0 && z < s->extent[0] && at >= 0 &&
                               at < s->extent[1];
      there[i] |= (unsigned long long)inside << t;
    }
    for (long long t = 0; t < s->taps[2]; ++t) {
      const long long at = x + t * s->tap_step[2];
      masks[i][t] = @fb@_columns(s->extent[2] - at, -at) & used;
    }
  }
  const long long taps = s->taps[1] * s->taps[2];
  long long c = row / taps, t1 = row % taps / s->taps[2], t2 = row % s->taps[2];
  for (long long r = 0; r < rows; ++r, to += pitch) {
    const long long shift = c * s->channel + t1 * s->tap_step[1] * s->step[1] +
                            t2 * s->tap_step[2];
    for (int i = 0; i < found; ++i) {
      const unsigned long long inside = there[i] >> t1 & 1 ? masks[i][t2] : 0;
      const long long room = width - pieces[i].lane;
      @V@ x = {0};
      if (inside) x = @fb@_pick(from[i] + shift, inside, s->stride[2]);
      @K@x1 *out = to + pieces[i].lane;
      if (room >= @L@) *(@V@ *)out = x; else @storem@(out, x, room);
    }
    if (++t2 == s->taps[2]) { t2 = 0; if (++t1 == s->taps[1]) { t1 = 0; ++c; } }
  }
}

/* As below for images whose rows lie along memory, with a stride of 1 or 2 along them. */
static void @fb@_gather_wide(const @fb@_image *s, const @fb@_piece *pieces, int found,
                             long long width, long long pitch, long long row, long long rows,
                             @K@x1 *to) {
  const long long taps = s->taps[0] * s->taps[1] * s->taps[2], stride = s->stride[2];
  const long long low = row / taps, low_tap = row % taps;
  const long long high = (row + rows) / taps, high_tap = (row + rows) % taps;
  for (int i = 0; i < found; ++i) {
    const @fb@_piece *e = pieces + i;
    const long long z0 = e->at[0] * s->stride[0] + s->offset[0];
    const long long y0 = e->at[1] * s->stride[1] + s->offset[1];
    const long long x0 = e->at[2] * stride + s->offset[2], room = width - e->lane;
    const unsigned long long used = @fb@_columns(stride * (e->count - 1) + 1, 0);
    const @T@ *image = s->data + e->batch * s->batch;
    unsigned long long masks[@CHUNK@];
    for (long long x = 0; x < s->taps[2] && x < @CHUNK@; ++x) {
      const long long at = x0 + x * s->tap_step[2];
      masks[x] = @fb@_columns(s->extent[2] - at, -at) & used;
    }
    long long tap = 0;
    for (long long t0 = 0; t0 < s->taps[0]; ++t0)
      for (long long t1 = 0; t1 < s->taps[1]; ++t1) {
        const long long z = z0 + t0 * s->tap_step[0], y = y0 + t1 * s->tap_step[1];
        const long long there = e->batch >= 0 && z >= 0 && z < s->extent[0] && y >= 0 &&
                                y < s->extent[1];
        const @T@ *line = image + z * s->step[0] + y * s->step[1] + x0;
        for (long long t2 = 0; t2 < s->taps[2]; ++t2, ++tap) {
          const long long c = low + (tap < low_tap), end = high + (tap < high_tap);
          if (c >= end) continue;
          const long long at = x0 + t2 * s->tap_step[2];
          unsigned long long inside = 0;
          if (there && t2 < @CHUNK@) inside = masks[t2];
          else if (there) inside = @fb@_columns(s->extent[2] - at, -at) & used;
          const @T@ *from = line + t2 * s->tap_step[2] + c * s->channel;
          @K@x1 *out = to + (c * taps + tap - row) * pitch + e->lane;
          if (inside == 0)
            @fb@_lines(from, 1, 0, 0, 0, end - c, out, taps * pitch, room);
          else if (stride == 1)
            @fb@_masked_lines(from, inside, 1, s->channel, end - c, out, taps * pitch, room);
          else
            @fb@_masked_lines(from, inside, 2, s->channel, end - c, out, taps * pitch, room);
        }
      }
  }
}
#endif

@by_channels@
/* to[r * pitch + j] = what the window at place `column + j` has under (channel, tap) `row + r`. */
static void @fb@_gather(const @fb@_image *s, long long column, long long columns, long long width,
                        long long pitch, long long row, long long rows, @K@x1 *to) {
  @fb@_piece pieces[@CHUNK@ + 8];
  const int found = @fb@_pieces(s, column, columns, width, pieces);
#if @wide@
  if (s->stride[2] <= 2 && s->step[2] == 1) {
    if (found <= 32 && s->taps[0] == 1 && s->taps[1] <= 16 && s->taps[2] <= 16 &&
        rows < 3 * s->taps[1] * s->taps[2])
      @fb@_gather_rows(s, pieces, found, width, pitch, row, rows, to);
    else @fb@_gather_wide(s, pieces, found, width, pitch, row, rows, to);
    return;
  }
#if @channels@
  if (s->channel == 1) {
    @fb@_gather_turned(s, pieces, found, width, pitch, row, rows, to);
    return;
  }
#endif
#endif
  const long long taps = s->taps[0] * s->taps[1] * s->taps[2];
  for (long long tap = 0; tap < taps; ++tap) {
    const long long c = row > tap ? (row - tap + taps - 1) / taps : 0;
    const long long end = row + rows > tap ? (row + rows - tap + taps - 1) / taps : 0;
    if (c >= end) continue;
    long long shift[3], rest = tap;
    for (int d = 2; d >= 0; --d) {
      shift[d] = s->offset[d] + rest % s->taps[d] * s->tap_step[d];
      rest /= s->taps[d];
    }
    @K@x1 *line = to + (c * taps + tap - row) * pitch;
    for (int i = 0; i < found; ++i) {
      const @fb@_piece *e = pieces + i;
      const long long z = e->at[0] * s->stride[0] + shift[0];
      const long long y = e->at[1] * s->stride[1] + shift[1];
      const long long x = e->at[2] * s->stride[2] + shift[2], step = s->stride[2];
      long long first = x < 0 ? (-x + step - 1) / step : 0;
      long long last = (s->extent[2] - x + step - 1) / step;
      if (x >= s->extent[2]) last = 0;
      if (last > e->count) last = e->count;
      if (e->batch < 0 || z < 0 || z >= s->extent[0] || y < 0 || y >= s->extent[1]) last = 0;
      const long long where = e->batch * s->batch + z * s->step[0] + y * s->step[1] +
                              x * s->step[2] + c * s->channel;
      @fb@_lines(s->data + where, step * s->step[2], s->channel, first, last, end - c,
                 line + e->lane, taps * pitch, width - e->lane);
    }
  }
}
"""

# Where results go.
DESTINATION = """\
typedef struct {
  @O@ *data;  // the group's first channel
  long long batch, channel, step[3], places[3];
  long long plain;  // places of a channel lie side by side
} @fb@_result;

/* to[2 * l] = x[l] for l < count; what lies between stays. */
static inline FB_ALWAYS void @fb@_spread(@O@ *to, @V@ x, long long count) {
@spread@
  for (long long l = 0; l < count; ++l) to[2 * l] = ((const @K@x1 *)&x)[l];
}

/* Places [column, column + count) of one channel. */
static void @fb@_put(const @fb@_result *s, const @K@x1 *from, @O@ *to, long long column,
                     long long count) {
  long long at[3], rest = column;
  for (int d = 2; d >= 0; --d) { at[d] = rest % s->places[d]; rest /= s->places[d]; }
  while (count > 0) {
    long long run = @fb@_min(count, s->places[2] - at[2]);
    @O@ *out = to + rest * s->batch;
    if (s->plain) {
      const long long here = (at[0] * s->places[1] + at[1]) * s->places[2] + at[2];
      run = @fb@_min(count, s->places[0] * s->places[1] * s->places[2] - here);
      __builtin_memcpy(out + here, from, run * sizeof(@O@));
      at[0] = at[1] = at[2] = 0;
      ++rest;
    } else {
      out += at[0] * s->step[0] + at[1] * s->step[1] + at[2] * s->step[2];
      long long i = 0;
      if (s->step[2] == 1) __builtin_memcpy(out, from, (i = run) * sizeof(@O@));
      if (s->step[2] == 2)
        for (; i + @L@ <= run; i += @L@) @fb@_spread(out + 2 * i, *(const @V@ *)(from + i), @L@);
      for (; i < run; ++i) out[i * s->step[2]] = from[i];
      at[2] = 0;
      if (++at[1] == s->places[1]) { at[1] = 0; ++at[0]; }
      if (at[0] == s->places[0]) { at[0] = 0; ++rest; }
    }
    from += run;
    count -= run;
  }
}
"""

# One phase of a convolution or of a gradient of its input.
PHASE = """\
typedef struct {
  const @T@ *data;  // the group's first row
  long long row, channel, step[3], taps[3];
} @fb@_weight;

/* The image, the weight and the result of one phase: of a gradient (the remainder of a place of x
   divided by the strides), or all there is. Returns K. */
static long long @fb@_phase(char *const *p, const long long *n, long long phase, long long group,
                            @fb@_image *s, @fb@_weight *w, @fb@_result *out) {
  const long long x[3] = {$x0, $x1, $x2}, y[3] = {$y0, $y1, $y2};
  const long long kernel[3] = {$kernel0, $kernel1, $kernel2}, low[3] = {$low0, $low1, $low2};
  const long long stride[3] = {$stride0, $stride1, $stride2};
  const long long dilation[3] = {$dilation0, $dilation1, $dilation2};
  const long long xs[3] = {$xs0, $xs1, $xs2}, ys[3] = {$ys0, $ys1, $ys2};
  const long long ws[3] = {$ws0, $ws1, $ws2};
  const @T@ *of = (const @T@ *)p[0], *weight = (const @T@ *)p[1];
  @O@ *to = (@O@ *)p[@out@];
  const long long outer = group * $outer, inner = group * $inner;
  w->data = weight + outer * $ws_outer;
  long long taps = 1, at = 0;
  if (!@gradient@) {
    s->data = of + inner * $xs_channel; s->batch = $xs_batch; s->channel = $xs_channel;
    out->data = to + outer * $ys_channel; out->batch = $ys_batch; out->channel = $ys_channel;
    w->row = $ws_outer; w->channel = $ws_inner;
  } else {
    s->data = of + outer * $ys_channel; s->batch = $ys_batch; s->channel = $ys_channel;
    out->data = to + inner * $xs_channel; out->batch = $xs_batch; out->channel = $xs_channel;
    w->row = $ws_inner; w->channel = $ws_outer;
  }
  for (int d = 2; d >= 0; --d) {
    if (!@gradient@) {
      s->extent[d] = x[d]; s->step[d] = xs[d]; s->places[d] = y[d]; s->stride[d] = stride[d];
      s->taps[d] = kernel[d]; s->offset[d] = -low[d]; s->tap_step[d] = dilation[d];
      out->step[d] = ys[d];
      w->step[d] = ws[d];
    } else {
      const long long f = phase % stride[d];
      long long first = 0, count = 0, between = 1;
      phase /= stride[d];
      for (long long k = 0; k < kernel[d]; ++k)
        if ((f + low[d] - k * dilation[d]) % stride[d] == 0) {
          if (count == 0) first = k;
          if (count == 1) between = k - first;
          ++count;
        }
      s->extent[d] = y[d]; s->step[d] = ys[d]; s->stride[d] = 1; s->taps[d] = count;
      s->places[d] = x[d] > f ? (x[d] - f + stride[d] - 1) / stride[d] : 0;
      s->offset[d] = (f + low[d] - first * dilation[d]) / stride[d];
      s->tap_step[d] = -(between * dilation[d]) / stride[d];
      out->data += f * xs[d];
      out->step[d] = xs[d] * stride[d];
      w->step[d] = ws[d] * between;
      at += first * ws[d];
    }
    out->places[d] = s->places[d];
    w->taps[d] = s->taps[d];
    taps *= s->taps[d];
  }
  w->data += at;
  out->plain = out->step[2] == 1 && (out->places[1] == 1 || out->step[1] == out->places[2]) &&
               (out->places[0] == 1 || out->step[0] == out->places[1] * out->places[2]);
  return taps * (@gradient@ ? $outer : $inner);
}
"""

# A panel of weights: those that a step leads through.
PANEL_IN_LINE = """\
/* to[k * height + i] = the weight of row `row + i` and (channel, tap) `first + k`. */
static void @fb@_panel(const @fb@_weight *w, long long row, long long height, long long first,
                       long long depth, @P@x1 *to) {
  const @T@ *from = w->data + row * w->row;
  const long long taps = w->taps[0] * w->taps[1] * w->taps[2];
  long long linear = 0, expected = 0, axes = 0;
  for (int d = 2; d >= -1; --d) {
    const long long step = d < 0 ? w->channel : w->step[d], count = d < 0 ? 2 : w->taps[d];
    if (count == 1) continue;
    if (axes++ == 0) linear = expected = step;
    if (step != expected) linear = -1;
    expected = step * count;
    if (linear < 0) break;
  }
  if (linear >= 0 && (!@gradient@ || linear == 1 || w->row == 1)) {
    @pack@(height, height, depth, from + first * linear, w->row, linear, to, height);
    return;
  }
"""

# Any others.
PANEL = (
    PANEL_IN_LINE
    + """\
#if @wide@ && @gradient@
  if (taps > 4 && taps <= @L@ && height <= @L@ && w->step[2] == 1 &&
      (w->taps[1] == 1 || w->step[1] == w->taps[2]) &&
      (w->taps[0] == 1 || w->step[0] == w->taps[1] * w->taps[2])) {
    const @T@ *block = from + first / taps * w->channel;
    for (long long k = first, tap = first % taps; k < first + depth; k += taps - tap, tap = 0) {
      const long long count = @fb@_min(taps - tap, first + depth - k);
      const @T@ *line = block + tap;
      @V@ r[@L@];
      for (long long i = 0; i < @L@; ++i, line += i < height ? w->row : 0)
        r[i] = @masked@(line, (1u << count) - 1);
      block += w->channel;
      @turn@(r);
      for (long long t = 0; t < count; ++t)
        fb_storem_@V@(to + (k - first + t) * height, r[t], height);
    }
    return;
  }
#endif
#if @gradient@
  if (taps <= @CHUNK@) {
    long long offsets[@CHUNK@];
    for (long long t = 0; t < taps; ++t)
      offsets[t] = t / (w->taps[1] * w->taps[2]) * w->step[0] +
                   t / w->taps[2] % w->taps[1] * w->step[1] + t % w->taps[2] * w->step[2];
    const @T@ *block = from + first / taps * w->channel;
    long long tap = first % taps;
    for (long long k = 0; k < depth; tap = 0, block += w->channel) {
      const @T@ *next = block + 4 * w->channel;
      for (long long e = 0; e < @fb@_min(height * w->row, 512); e += 16)
        __builtin_prefetch(next + e);
      for (; tap < taps && k < depth; ++tap, ++k)
        for (long long i = 0; i < height; ++i)
          to[k * height + i] = block[offsets[tap] + i * w->row];
    }
    return;
  }
#endif
  for (long long tap = 0; tap < taps; ++tap) {
    const long long c = first > tap ? (first - tap + taps - 1) / taps : 0;
    const long long end = first + depth > tap ? (first + depth - tap + taps - 1) / taps : 0;
    if (c >= end) continue;
    long long where = c * w->channel, rest = tap;
    for (int d = 2; d >= 0; --d) { where += rest % w->taps[d] * w->step[d]; rest /= w->taps[d]; }
    @pack@(height, height, end - c, from + where, w->row, w->channel,
           to + (c * taps + tap - first) * height, taps * height);
  }
}
"""
)

# Where packed weights are.
BEFORE = """\
/* Where the packed weights of a phase and group begin. */
static long long @fb@_before(const long long *n, long long phase, long long group,
                             long long k_all) {
  const long long kernel[3] = {$kernel0, $kernel1, $kernel2}, low[3] = {$low0, $low1, $low2};
  const long long stride[3] = {$stride0, $stride1, $stride2};
  const long long dilation[3] = {$dilation0, $dilation1, $dilation2};
  long long found = 0;
  for (long long e = 0; e < phase; ++e) {
    long long taps = 1, rest = e;
    for (int d = 2; d >= 0; --d) {
      const long long f = rest % stride[d];
      long long count = 0;
      rest /= stride[d];
      for (long long k = 0; k < kernel[d]; ++k)
        count += (f + low[d] - k * dilation[d]) % stride[d] == 0;
      taps *= count;
    }
    found += taps * $outer * $inner * $groups;
  }
  return found + group * (@gradient@ ? $inner : $outer) * k_all;
}
"""

# Weights that several columns of tiles share, packed once: the panels of every phase and group.
PANELS = """\
void @fb@(@arguments@) {
  const long long rows_of = @gradient@ ? $inner : $outer, panels = (rows_of + @R@ - 1) / @R@;
  char *const operands[3] = {p[0], p[0], p[0]};
  @fb@_image s;
  @fb@_weight w;
  @fb@_result out;
  const long long phases = @gradient@ ? $stride0 * $stride1 * $stride2 : 1;
  for (long long chunk = begin; chunk < end; ++chunk) {
    const long long row = chunk % panels * @R@, height = @fb@_min(@R@, rows_of - row);
    const long long group = chunk / panels;
    for (long long phase = 0; phase < phases; ++phase) {
      const long long k_all = @fb@_phase(operands, n, phase, group, &s, &w, &out);
      @P@x1 *to = (@P@x1 *)p[1] + @fb@_before(n, phase, group, k_all);
      for (long long k = 0; k < k_all; k += @CHUNK@) {
        const long long depth = @fb@_min(@CHUNK@, k_all - k);
        @fb@_panel(&w, row, height, k, depth, to + k / @G@ * rows_of + row * @groups@);
      }
    }
  }
}
"""

# Convolutions, and gradients of their input.
PLACES = """\
#if @channels@
/* Places [column, column + count) of channels that lie side by side. */
static void @fb@_put_turned(const @fb@_result *s, const @K@x1 *from, long long pitch,
                            long long height, @O@ *to, long long column, long long count) {
  long long at[3], rest = column;
  for (int d = 2; d >= 0; --d) { at[d] = rest % s->places[d]; rest /= s->places[d]; }
  while (count > 0) {
    const long long run = @fb@_min(@L@, @fb@_min(count, s->places[2] - at[2]));
    @O@ *out = to + rest * s->batch + at[0] * s->step[0] + at[1] * s->step[1] + at[2] * s->step[2];
    @V@ r[@L@];
    for (long long i = 0; i < @L@; ++i)
      r[i] = *(const @V@ *)(from + (i < height ? i : 0) * pitch);
    @turn@(r);
    for (long long i = 0; i < run; ++i) fb_storem_@V@(out + i * s->step[2], r[i], height);
    for (at[2] += run; at[2] == s->places[2]; ++rest, at[0] = 0) {
      at[2] = 0;
      if (++at[1] < s->places[1]) break;
      at[1] = 0;
      if (++at[0] < s->places[0]) break;
    }
    from += run;
    count -= run;
  }
}
#endif

/* Results of rows [row, row + height), places [column, column + count). */
static void @fb@_finish(char *const *p, const long long *n, const fb_scalar *x,
                        const @fb@_result *out, long long channel, long long row, long long height,
                        long long column, long long count, const @K@x1 *tile, long long pitch) {
#if @turned@ || @channels@ && !@fused@
  // A square of the tile is turned at a time: tiles may have more rows than a vector has lanes.
  const long long squares = (height + @L@ - 1) / @L@;
#endif
#if @turned@
  const long long size = out->places[0] * out->places[1] * out->places[2];
  for (long long e = 0; e < squares; ++e, tile += @L@ * pitch) {
    const long long used = @fb@_min(@L@, height - e * @L@), first = channel + row + e * @L@;
    for (long long done = 0; done < count; done += @L@) {
      @V@ r[@L@];
      for (long long i = 0; i < @L@; ++i)
        r[i] = *(const @V@ *)(tile + (i < used ? i : 0) * pitch + done);
      @turn@(r);
      for (long long i = 0; i < @L@ && done + i < count; ++i) {
        const long long at = column + done + i;
        @epilogue@(p, n, x, at / size, at % size, first, first + used,
                   (const @K@x1 *)&r[i] - first);
      }
    }
  }
  return;
#endif
#if @channels@ && !@fused@
  if (out->channel == 1 && !out->plain) {
    for (long long e = 0; e < squares; ++e)
      @fb@_put_turned(out, tile + e * @L@ * pitch, pitch, @fb@_min(@L@, height - e * @L@),
                      out->data + row + e * @L@, column, count);
    return;
  }
#endif
  for (long long i = 0; i < height; ++i, tile += pitch) {
#if @fused@
    const long long size = out->places[0] * out->places[1] * out->places[2];
    for (long long done = 0; done < count;) {
      const long long batch = (column + done) / size, first = (column + done) % size;
      const long long last = @fb@_min(size, first + count - done);
      @epilogue@(p, n, x, batch, channel + row + i, first, last, tile + done - first);
      done += last - first;
    }
#else
    @fb@_put(out, tile, out->data + (row + i) * out->channel, column, count);
#endif
  }
}

void @fb@(@arguments@) {
  const long long rows_of = @gradient@ ? $inner : $outer;
  const long long tiles = $column_tiles * $row_tiles, slabs = $columns / @W@;
  @P@x1 *windows = (@P@x1 *)scratch, *panel = windows + slabs * @CHUNK@ * @W@;
  @K@x1 *tile = (@K@x1 *)(panel + @CHUNK@ * 16);
  @fb@_image s;
  @fb@_weight w;
  @fb@_result out;
  const @P@x1 *packed = 0;
  long long k_all = 0, before = -1;
  for (long long chunk = begin; chunk < end; ++chunk) {
    const long long part = chunk / tiles, group = part % $groups;
    if (part != before) {
      k_all = @fb@_phase(p, n, part / $groups, group, &s, &w, &out);
      @fb@_flatten(&s);
      packed = (const @P@x1 *)p[2] + @fb@_before(n, part / $groups, group, k_all);
      before = part;
    }
    const long long row = chunk % tiles / $column_tiles * $rows;
    const long long column = chunk % $column_tiles * $columns;
    const long long total = $batch * s.places[0] * s.places[1] * s.places[2];
    const long long count = @fb@_min($columns, total - column);
    const long long rows = @fb@_min($rows, rows_of - row);
    if (count <= 0 || rows <= 0) continue;
    if (k_all == 0)
      for (long long i = 0; i < rows * $columns; ++i) tile[i] = 0;
    for (long long k = 0; k < k_all || k == 0; k += @CHUNK@) {
      const long long depth = @fb@_min(@CHUNK@, k_all - k), groups = @groups@;
      for (long long j = 0; j < count && depth > 0; j += @W@)
        @fb@_windows(&s, column + j, @fb@_min(@W@, count - j), k, depth, (@T@ *)panel,
                     windows + j * groups);
      for (long long i = 0; i < rows; i += @R@) {
        const long long height = @fb@_min(@R@, rows - i);
        if (depth > 0 && !$part) @fb@_panel(&w, row + i, height, k, depth, panel);
        const @P@x1 *weights = panel;
        if ($part) weights = packed + k / @G@ * rows_of + (row + i) * groups;
        for (long long j = 0; j < count && depth > 0; j += @W@)
          for (long long c = 0; c < groups; c += @chain@) {
            const long long part = @fb@_min(@chain@, groups - c), more = k + c > 0;
            const @P@x1 *a = weights + c * height, *b = windows + j * groups + c * @W@;
            @K@x1 *sums = tile + i * $columns + j;
            if (count - j > @L@) @micro@(height, part, a, b, @W@, sums, $columns, more);
            else @fb@_narrow(height, part, a, b, sums, $columns, more);
          }
        if (k + @CHUNK@ >= k_all)
          @fb@_finish(p, n, x, &out, group * rows_of, row + i, height, column, count,
                      tile + i * $columns, $columns);
      }
    }
  }
}
"""

# Where sums of a gradient of the weight go.
SUMS = """\
/* Sums of rows [row, row + rows) and (channel, tap) [first, first + count) go where they belong. */
static void @fb@_place(const long long *n, const @K@x1 *tile, long long pitch, long long row,
                       long long rows, long long first, long long count, @O@ *out) {
  const long long taps = $kernel0 * $kernel1 * $kernel2;
  const long long dense = ($kernel2 == 1 || $ws2 == 1) && ($kernel1 == 1 || $ws1 == $kernel2) &&
                          ($kernel0 == 1 || $ws0 == $kernel1 * $kernel2) &&
                          ($inner == 1 || $ws_inner == taps);
  for (long long i = 0; i < rows; ++i, tile += pitch) {
    @O@ *line = out + (row + i) * $ws_outer;
    if (dense) {
      __builtin_memcpy(line + first, tile, count * sizeof(@O@));
      continue;
    }
    for (long long j = 0; j < count; ++j) {
      const long long tap = (first + j) % taps, c = (first + j) / taps;
      line[c * $ws_inner + tap / ($kernel1 * $kernel2) * $ws0 +
           tap / $kernel2 % $kernel1 * $ws1 + tap % $kernel2 * $ws2] = tile[j];
    }
  }
}
"""

# Gradients of the weight.
WEIGHT = """\
/* to[k * height + i] = the gradient of channel `row + i` at place `first + k`, by way of `line`. */
static void @fb@_turned(const @fb@_image *s, long long row, long long height, long long width,
                        long long first, long long depth, @T@ *line, @P@x1 *to) {
  const long long at = first % s->places[2];
  if (s->flat && at + depth <= s->places[2]) {
    const @T@ *from = s->data + first / s->places[2] * s->batch + row * s->channel + at;
    @pack@(height, width, depth, from, s->channel, 1, to, width);
    return;
  }
  @fb@_gather(s, first, depth, depth, @CHUNK@, row, height, line);
  @pack@(height, width, depth, line, @CHUNK@, 1, to, width);
}

void @fb@(@arguments@) {
  const long long taps = $kernel0 * $kernel1 * $kernel2, all = $inner * taps;
  const long long tiles = $column_tiles * $row_tiles;
  const long long panels = ($rows + @R@ - 1) / @R@;
  @P@x1 *left = (@P@x1 *)scratch, *slab = left + panels * @CHUNK@ * @R@;
  @T@ *line = (@T@ *)(slab + @CHUNK@ * @W@);
  @K@x1 *tile = (@K@x1 *)(slab + 2 * @CHUNK@ * @W@);
  @fb@_image s, g;
  for (int d = 0; d < 3; ++d) {
    s.extent[d] = n[4 + d]; s.step[d] = (&$xs0)[d]; s.places[d] = (&$y0)[d];
    s.stride[d] = (&$stride0)[d]; s.taps[d] = (&$kernel0)[d]; s.offset[d] = -(&$low0)[d];
    s.tap_step[d] = (&$dilation0)[d];
    g.extent[d] = g.places[d] = s.places[d]; g.step[d] = (&$ys0)[d];
    g.stride[d] = g.taps[d] = 1; g.offset[d] = g.tap_step[d] = 0;
  }
  s.batch = $xs_batch; s.channel = $xs_channel; g.batch = $ys_batch; g.channel = $ys_channel;
  @fb@_flatten(&s);
  @fb@_flatten(&g);
  const long long k_all = $batch * s.places[0] * s.places[1] * s.places[2];
  for (long long chunk = begin; chunk < end; ++chunk) {
    const long long part = chunk / tiles % $parts, group = chunk / tiles / $parts;
    const long long row = chunk % tiles / $column_tiles * $rows;
    const long long column = chunk % $column_tiles * $columns;
    const long long rows = @fb@_min($rows, $outer - row);
    const long long count = @fb@_min($columns, all - column);
    const long long first = part * $part, last = @fb@_min(k_all, first + $part);
    if (rows <= 0 || count <= 0) continue;
    g.data = (const @T@ *)p[0] + group * $outer * $ys_channel;
    s.data = (const @T@ *)p[1] + group * $inner * $xs_channel;
    if (first >= last)
      for (long long i = 0; i < rows * $columns; ++i) tile[i] = 0;
    for (long long k = first; k < last; k += @CHUNK@) {
      const long long depth = @fb@_min(@CHUNK@, last - k), groups = @groups@;
      for (long long i = 0; i < rows; i += @R@) {
        const long long height = @fb@_min(@R@, rows - i);
        @fb@_turned(&g, row + i, height, height, k, depth, line, left + i * @CHUNK@);
      }
      for (long long j = 0; j < count; j += @W@) {
        @fb@_turned(&s, column + j, @fb@_min(@W@, count - j), @W@, k, depth, line, slab);
        for (long long i = 0; i < rows; i += @R@)
          @micro@(@fb@_min(@R@, rows - i), groups, left + i * @CHUNK@, slab, @W@,
                  tile + i * $columns + j, $columns, k > first);
      }
    }
    if ($parts == 1) {
      @O@ *out = (@O@ *)p[2] + group * $outer * $ws_outer;
      @fb@_place(n, tile, $columns, row, rows, column, count, out);
    } else {
      @K@x1 *out = (@K@x1 *)p[3] + ((part * $groups + group) * $outer + row) * all + column;
      for (long long i = 0; i < rows; ++i)
        __builtin_memcpy(out + i * all, tile + i * $columns, count * sizeof(@K@x1));
    }
  }
}
"""

# Sums of the parts of a gradient of the weight, in their order.
PARTS = """\
void @fb@(@arguments@) {
  const long long taps = $kernel0 * $kernel1 * $kernel2, all = $inner * taps;
  const long long rows = $groups * $outer, total = rows * all;
  const @K@x1 *parts = (const @K@x1 *)p[0];
  @K@x1 *line = (@K@x1 *)scratch;
  for (long long row = begin; row < end; ++row) {
    const @K@x1 *from = parts + row * all;
    for (long long j = 0; j < all; ++j) line[j] = from[j];
    for (long long part = 1; part < $parts; ++part) {
      from += total;
      for (long long j = 0; j < all; ++j) { line[j] += from[j]; }
    }
    @fb@_place(n, line, all, row, 1, 0, all, (@O@ *)p[1]);
  }
}
"""
