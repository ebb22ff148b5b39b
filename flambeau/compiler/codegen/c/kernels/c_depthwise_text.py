"""The C text of convolutions whose groups have one channel: no product, but rows times numbers.

A band of rows of one channel is copied with its zeros around it, columns apart by what is left when
they are divided by the stride: then every tap of a row of places reads a run of memory.
"""

from __future__ import annotations

PLANE = """\
/* A band of a channel: taps[0] slices of `height` rows of stride[2] runs of `width` columns. */
typedef struct {
  long long base[3], height, width;
  long long low[@runs@], high[@runs@];  // of the columns of each run, those inside of the image
} @fb@_band;

/* Columns v in [low, high) have first + v * stride in [0, extent). */
static void @fb@_inside(long long extent, long long first, long long stride, long long width,
                        long long *low, long long *high) {
  *low = first < 0 ? @fb@_min((-first + stride - 1) / stride, width) : 0;
  *high = first < extent ? @fb@_min((extent - first + stride - 1) / stride, width) : 0;
  if (*high < *low) *high = *low;
}

static void @fb@_shape(const @fb@_image *s, long long rows, @fb@_band *b) {
  for (int d = 0; d < 3; ++d) {
    const long long reach = (s->taps[d] - 1) * s->tap_step[d];
    b->base[d] = s->offset[d] + (reach < 0 ? reach : 0);
  }
  const long long r1 = (s->taps[1] - 1) * s->tap_step[1], r2 = (s->taps[2] - 1) * s->tap_step[2];
  b->height = (rows - 1) * s->stride[1] + (r1 < 0 ? -r1 : r1) + 1;
  b->width = (s->places[2] + @L@ - 1) / @L@ * @L@ + (r2 < 0 ? -r2 : r2) / s->stride[2];
  for (long long f = 0; f < s->stride[2] && f < @runs@; ++f)
    @fb@_inside(s->extent[2], b->base[2] + f, s->stride[2], b->width, b->low + f, b->high + f);
}

/* Where the run of a tap begins in a band. */
static void @fb@_offsets(const @fb@_image *s, const @fb@_band *b, long long *out) {
  for (long long z = 0; z < s->taps[0]; ++z)
    for (long long y = 0; y < s->taps[1]; ++y)
      for (long long x = 0; x < s->taps[2]; ++x) {
        const long long row = s->offset[1] - b->base[1] + y * s->tap_step[1];
        const long long at = s->offset[2] - b->base[2] + x * s->tap_step[2];
        *out++ = ((z * b->height + row) * s->stride[2] + at % s->stride[2]) * b->width +
                 at / s->stride[2];
      }
}

/* to[v] = from[(first + v * stride) * step] for v in [low, high), else 0. */
static inline FB_ALWAYS void @fb@_run(const @T@ *from, long long step, long long extent,
                                      long long first, long long stride, long long low,
                                      long long high, long long width, @K@x1 *to) {
  for (long long v = 0; v < low; v += @L@) { *(@V@ *)(to + v) = (@V@){0}; FB_PLAIN; }
  long long v = low;
  if (stride * step == 1) {
    for (; v < high; v += @L@)
      *(@V@ *)(to + v) = @fb@_load(from + first + v, 0, @fb@_min(@L@, high - v));
  } else {
    if (stride == 2 && step == 1)
      for (; v < high; v += @L@) {
        const long long at = first + 2 * v;
        const long long end = @fb@_min(extent - at, 2 * @fb@_min(@L@, high - v));
        *(@V@ *)(to + v) = @fb@_even(from + at, 0, end);
      }
    for (; v < high; ++v) to[v] = from[(first + v * stride) * step];
  }
  for (; v < width; v += @L@) { *(@V@ *)(to + v) = (@V@){0}; FB_PLAIN; }
}

/* Whether a window has 3 x 3 taps side by side, met in the order of the kernel's rows. */
static inline FB_ALWAYS long long @fb@_is_nine(const @fb@_image *s, long long taps) {
  const long long step = @backward@ ? -1 : 1;
  return taps == 9 && s->taps[1] == 3 && s->taps[2] == 3 && s->stride[1] == s->stride[2] &&
         s->tap_step[1] == step && s->tap_step[2] == step;
}

/* Whether such windows are read from the image: masks cost nothing there. */
static inline FB_ALWAYS long long @fb@_is_direct(const @fb@_image *s, long long taps) {
#if @wide@
  return @fb@_is_nine(s, taps) && s->stride[1] <= 2 && s->step[2] == 1 && s->extent[0] == 1 &&
         s->places[0] == 1 && s->offset[0] == 0 && s->taps[0] == 1;
#else
  return (long long)s & taps & 0;
#endif
}

/* Fills a band for places (place0, row ..): what is written last spills into what comes next. */
static void @fb@_fill(const @fb@_image *s, const @fb@_band *b, const @T@ *channel, long long place0,
                      long long row, long long height, @K@x1 *to) {
  for (long long z = 0; z < s->taps[0]; ++z) {
    const long long i0 = place0 * s->stride[0] + s->offset[0] + z * s->tap_step[0];
    @K@x1 *line = to + z * b->height * s->stride[2] * b->width;
    for (long long y = 0; y < height; ++y) {
      const long long i1 = row * s->stride[1] + b->base[1] + y;
      const long long inside = i0 >= 0 && i0 < s->extent[0] && i1 >= 0 && i1 < s->extent[1];
      const @T@ *from = channel + i0 * s->step[0] + i1 * s->step[1];
      for (long long f = 0; f < s->stride[2]; ++f, line += b->width) {
        long long low = b->low[f % @runs@], high = b->high[f % @runs@];
        if (f >= @runs@)
          @fb@_inside(s->extent[2], b->base[2] + f, s->stride[2], b->width, &low, &high);
        if (!inside) low = high = 0;
        @fb@_run(from, s->step[2], s->extent[2], b->base[2] + f, s->stride[2], low, high, b->width,
                 line);
      }
    }
  }
}
"""

ROWS = """\
/* Four rows of a vector of places: any taps. Of fewer rows the last one is computed again. */
static inline FB_ALWAYS void @fb@_taps(const @K@x1 *at, long long pitch, long long left,
                                       const long long *offsets, const @K@x1 *weights,
                                       long long taps, @V@ *found) {
  const long long y1 = left > 1 ? pitch : 0, y2 = left > 2 ? 2 * pitch : y1;
  const long long y3 = left > 3 ? 3 * pitch : y2;
  @V@ a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0};
  for (long long t = 0; t < taps; ++t) {
    const @V@ w = fb_splat_@V@(weights[t]);
    const @K@x1 *here = at + offsets[t];
    a0 = fb_fma_@V@(w, *(const @V@ *)here, a0);
    a1 = fb_fma_@V@(w, *(const @V@ *)(here + y1), a1);
    a2 = fb_fma_@V@(w, *(const @V@ *)(here + y2), a2);
    a3 = fb_fma_@V@(w, *(const @V@ *)(here + y3), a3);
  }
  found[0] = a0; found[1] = a1; found[2] = a2; found[3] = a3;
}

/* The same for 3 x 3 taps side by side: every vector of the band is read once. In a gradient the
   rows are met from below. */
static inline FB_ALWAYS void @fb@_nine(const @K@x1 *at, long long pitch, long long left,
                                       const long long *offsets, const @V@ *w, @V@ *found) {
  const long long last = left < 4 ? left + 1 : 5, start = @gradient@ ? 5 : 0;
  const @K@x1 *from = at - (@gradient@ ? 2 * pitch : 0);
  const @K@x1 *c0 = from + offsets[0], *c1 = from + offsets[1], *c2 = from + offsets[2];
  @V@ a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0}, x0, x1, x2;
@nine@
  found[@gradient@ ? 3 : 0] = a0; found[@gradient@ ? 2 : 1] = a1;
  found[@gradient@ ? 1 : 2] = a2; found[@gradient@ ? 0 : 3] = a3;
}

@direct@/* Rows [row, row + rows) of a channel's places, from a band. */
static void @fb@_rows(char *const *p, const long long *n, const fb_scalar *x,
                      const @fb@_image *s, const @fb@_band *b, const @fb@_result *out,
                      const long long *offsets, const @K@x1 *weights, long long taps,
                      long long batch, long long channel, @T@ *to, long long place0, long long row,
                      long long rows, const @K@x1 *band) {
  const long long pitch = s->stride[1] * s->stride[2] * b->width, width = s->places[2];
  const long long nine = @fb@_is_nine(s, taps) && s->stride[1] == 1;
  @V@ w[9], found[4];
  for (int t = 0; t < 9 && nine; ++t) w[t] = fb_splat_@V@(weights[t]);
  for (long long j = 0; j < width; j += @L@) {
    for (long long i = 0; i < rows; i += 4) {
      const long long left = rows - i;
      const @K@x1 *at = band + i * pitch + j;
      if (nine) @fb@_nine(at, pitch, left, offsets, w, found);
      else @fb@_taps(at, pitch, left, offsets, weights, taps, found);
      const long long count = @fb@_min(@L@, width - j);
      for (long long l = 0; l < 4 && l < left; ++l) {
#if @fused@
        const long long first = (place0 * s->places[1] + row + i + l) * width + j;
        const @K@x1 *value = (const @K@x1 *)&found[l];
        @epilogue@(p, n, x, batch, channel, first, first + count, value - first);
#else
        @T@ *line = to + place0 * out->step[0] + (row + i + l) * out->step[1] + j * out->step[2];
        if (out->step[2] == 1) fb_storem_@V@(line, found[l], count);
        else if (out->step[2] == 2) @fb@_spread(line, found[l], count);
        else
          for (long long m = 0; m < count; ++m)
            line[m * out->step[2]] = ((const @K@x1 *)&found[l])[m];
#endif
      }
    }
  }
}

void @fb@(@arguments@) {
  const long long rows_of = @gradient@ ? 1 : $outer;
  const long long channels = $groups * rows_of, planes = channels * $batch;
  @fb@_image s;
  @fb@_weight w;
  @fb@_result out;
  @fb@_band b;
  @K@x1 weights[@CHUNK@];
  long long offsets[@CHUNK@], taps = 0, before = -1;
  long long phase = begin / planes, batch = begin % planes / channels;
  long long channel = begin % channels - 1, group = (channel + 1) / rows_of;
  long long row_of = (channel + 1) % rows_of - 1, direct = 0;
#if @wide@ && @gradient@
  if (@fb@_is_whole(n)) {
    @fb@_whole(p, n, begin, end);
    return;
  }
#endif
  for (long long chunk = begin; chunk < end; ++chunk) {
    ++channel;
    if (++row_of == rows_of) { row_of = 0; ++group; }
    if (channel == channels) {
      channel = group = row_of = 0;
      if (++batch == $batch) { batch = 0; ++phase; }
    }
    if (phase != before) {
      taps = @fb@_phase(p, n, phase, 0, &s, &w, &out);
      @fb@_shape(&s, $rows, &b);
      @fb@_offsets(&s, &b, offsets);
      direct = @fb@_is_direct(&s, taps) && (out.step[2] == 1 || @fused@);
      before = phase;
    }
    const @T@ *weight = w.data + group * $outer * $ws_outer + row_of * w.row;
    const @T@ *from = s.data + group * s.channel + batch * s.batch;
    @T@ *to = out.data + channel * out.channel + batch * out.batch;
#if @wide@
    if (direct) {
#define FB_PLANE(lanes, stride) \\
  @fb@_plane##lanes(p, n, x, &s, &out, weight, w.step, batch, channel, to, from, stride)
      if (s.places[2] <= 8) {
        if (@gradient@ || s.stride[1] == 1) FB_PLANE(8, 1); else FB_PLANE(8, 2);
      } else if (@gradient@ || s.stride[1] == 1) FB_PLANE(@L@, 1);
      else FB_PLANE(@L@, 2);
#undef FB_PLANE
      continue;
    }
#endif
    @K@x1 *to_weight = weights;
    for (long long t0 = 0; t0 < w.taps[0]; ++t0)
      for (long long t1 = 0; t1 < w.taps[1]; ++t1)
        for (long long t2 = 0; t2 < w.taps[2]; ++t2)
          *to_weight++ = weight[t0 * w.step[0] + t1 * w.step[1] + t2 * w.step[2]];
    for (long long z = 0; z < s.places[0]; ++z)
      for (long long row = 0; row < s.places[1]; row += $rows) {
        const long long rows = @fb@_min($rows, s.places[1] - row);
        if (taps > 0)
          @fb@_fill(&s, &b, from, z, row, b.height - ($rows - rows) * s.stride[1],
                    (@K@x1 *)scratch);
        @fb@_rows(p, n, x, &s, &b, &out, offsets, weights, taps, batch, channel, to, z, row, rows,
                  (const @K@x1 *)scratch);
      }
  }
}
"""

WEIGHT = """\
@direct@
/* Sums of rows of the gradient times the runs of up to @block@ taps: @lanes@ lanes each, column by
   column of vectors, then the lanes pairwise. */
static void @fb@_sums(const @fb@_image *s, const @fb@_band *b, const @T@ *gradient, long long row,
                      long long column, const long long *offsets, long long rows,
                      const @K@x1 *band, @K@x1 *sums) {
  const long long pitch = s->stride[1] * s->stride[2] * b->width, width = s->places[2];
@declare@
  for (long long j = 0; j < width; j += @lanes@) {
    const long long m = @fb@_min(@lanes@, width - j);
    for (long long i = 0; i < rows; ++i) {
      const @T@ *left = gradient + i * row + j * column;
      const @K@x1 *line = band + i * pitch + j;
@step@
    }
  }
@save@
}

void @fb@(@arguments@) {
  const long long taps = $kernel0 * $kernel1 * $kernel2;
  @fb@_image s;
  @fb@_band b;
  long long offsets[@CHUNK@ + @block@];
  @K@x1 sums[@block@], totals[@CHUNK@];
  for (int d = 0; d < 3; ++d) {
    s.extent[d] = (&$x0)[d]; s.step[d] = (&$xs0)[d]; s.places[d] = (&$y0)[d];
    s.stride[d] = (&$stride0)[d]; s.taps[d] = (&$kernel0)[d]; s.offset[d] = -(&$low0)[d];
    s.tap_step[d] = (&$dilation0)[d];
  }
  @fb@_shape(&s, $rows, &b);
  @fb@_offsets(&s, &b, offsets);
  for (long long t = taps; t < taps + @block@; ++t) offsets[t] = offsets[taps - 1];
  const long long direct = $ys2 == 1 && @fb@_is_direct(&s, taps);
  for (long long channel = begin; channel < end; ++channel) {
    for (long long t = 0; t < taps || t < 16; ++t) totals[t] = 0;
    const @T@ *of_image = (const @T@ *)p[1] + channel / $outer * $xs_channel;
    const @T@ *of_gradient = (const @T@ *)p[0] + channel * $ys_channel;
#if @wide@
#define FB_SUMS(lanes, stride) \\
  @fb@_sums##lanes(n, &s, of_gradient, of_image, stride, totals)
    if (!direct) {}
    else if (s.places[2] <= 8) {
      if (s.stride[1] == 1) FB_SUMS(8, 1); else FB_SUMS(8, 2);
    } else if (s.stride[1] == 1) FB_SUMS(@lanes@, 1);
    else FB_SUMS(@lanes@, 2);
#undef FB_SUMS
#endif
    for (long long batch = 0; batch < $batch && !direct; ++batch)
      for (long long z = 0; z < s.places[0]; ++z)
        for (long long row = 0; row < s.places[1]; row += $rows) {
          const long long rows = @fb@_min($rows, s.places[1] - row);
          const @T@ *from = of_image + batch * $xs_batch;
          const @T@ *gradient = of_gradient + batch * $ys_batch + z * $ys0 + row * $ys1;
          @fb@_fill(&s, &b, from, z, row, b.height - ($rows - rows) * s.stride[1],
                    (@K@x1 *)scratch);
          for (long long t = 0; t < taps; t += @block@) {
            @fb@_sums(&s, &b, gradient, $ys1, $ys2, offsets + t, rows, (const @K@x1 *)scratch,
                      sums);
            for (long long e = 0; e < @block@ && t + e < taps; ++e) totals[t + e] += sums[e];
          }
        }
    @T@ *out = (@T@ *)p[2] + channel * $ws_outer;
    const @K@x1 *total = totals;
    for (long long t0 = 0; t0 < $kernel0; ++t0)
      for (long long t1 = 0; t1 < $kernel1; ++t1)
        for (long long t2 = 0; t2 < $kernel2; ++t2)
          out[t0 * $ws0 + t1 * $ws1 + t2 * $ws2] = *total++;
  }
}
"""
