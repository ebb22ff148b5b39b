"""The C text of convolutions with 3 x 3 taps and no stride, by Winograd's algorithm F(2x2, 3x3).

Four results of a square of 2 x 2 places need 16 products instead of 36 (Winograd 1980; Lavin & Gray
2016): a square of 4 x 4 elements of the image and the 3 x 3 weights are each turned into 16 numbers
by additions and halvings, these are multiplied and summed over the channels, 16 ordinary products,
and the 16 sums are added up to the four results:

    x:  (d0 - d2, d1 + d2, d2 - d1, d1 - d3)           along both axes of a square
    w:  (g0, (g0 + g2 + g1) / 2, (g0 + g2 - g1) / 2, g2)
    y:  (m0 + m1 + m2, m1 - m2 - m3)

A result is made of the elements of its own window only, and where those are zeros it is zero. Where
it is not finite it is computed again as the plain sum: infinite elements give infinite results. The
sum over channels is chained by 32, which keeps the error at that of the plain sum.
"""

from __future__ import annotations

# Elements of a channel sum that are one chain of FMAs: part of the semantics.
CHAIN = 32
# Squares of a gradient of the weight that are one chain.
BLOCK = 64


def _along(names: list[str], kind: str) -> list[str]:
    """One axis of a transformation: of an image's square, or of products."""
    a, b, c, d = names
    if kind == "image":
        return [f"{a} - {c}", f"{b} + {c}", f"{c} - {b}", f"{b} - {d}"]
    return [f"{a} + {b} + {c}", f"{b} - {c} - {d}"]


def square(vector: str) -> str:
    """Statements that turn x00 .. x33 (row, column) into v[0] .. v[15]."""
    lines = []
    for r in range(4):
        values = _along([f"x{r}{c}" for c in range(4)], "image")
        lines += [f"  const {vector} h{r}{c} = {value};" for c, value in enumerate(values)]
    for c in range(4):
        values = _along([f"h{r}{c}" for r in range(4)], "image")
        lines += [f"  v[{4 * r + c}] = {value};" for r, value in enumerate(values)]
    return "\n".join(lines)


def results(vector: str) -> str:
    """Statements that turn the 16 products at `m`, `pitch` apart, into y[0] .. y[3]."""
    lines = []
    for r in range(4):
        for c in range(4):
            place = f"*(const {vector} *)(m + {4 * r + c} * pitch)"
            lines.append(f"  const {vector} m{r}{c} = {place};")
        values = _along([f"m{r}{c}" for c in range(4)], "results")
        lines += [f"  const {vector} h{r}{c} = {value};" for c, value in enumerate(values)]
    for c in range(2):
        values = _along([f"h{r}{c}" for r in range(4)], "results")
        lines += [f"  y[{2 * r + c}] = {value};" for r, value in enumerate(values)]
    return "\n".join(lines)


def weights(vector: str) -> str:
    """Statements that turn g[0] .. g[8] into u[0] .. u[15]."""
    lines = [f"  const {vector} half = fb_splat_{vector}(0.5);"]

    def along(of: list[str], to: list[str], name: str) -> None:
        a, b, c = of
        lines.append(f"  const {vector} {name} = {a} + {c};")
        lines.append(f"  {to[0]} = {a};")
        lines.append(f"  {to[1]} = ({name} + {b}) * half;")
        lines.append(f"  {to[2]} = ({name} - {b}) * half;")
        lines.append(f"  {to[3]} = {c};")

    for r in range(3):
        to = [f"const {vector} h{r}{c}" for c in range(4)]
        along([f"g[{3 * r + c}]" for c in range(3)], to, f"s{r}")
    for c in range(4):
        along([f"h{r}{c}" for r in range(3)], [f"u[{4 * r + c}]" for r in range(4)], f"t{c}")
    return "\n".join(lines)


def spread(vector: str) -> str:
    """Statements that turn x00 .. x11 into v[0] .. v[15]: the transpose of `results`."""
    lines = []
    for r in range(2):
        a, b = f"x{r}0", f"x{r}1"
        for c, value in enumerate((a, f"{a} + {b}", f"{a} - {b}", f"-{b}")):
            lines.append(f"    const {vector} h{r}{c} = {value};")
    for c in range(4):
        a, b = f"h0{c}", f"h1{c}"
        for r, value in enumerate((a, f"{a} + {b}", f"{a} - {b}", f"-{b}")):
            lines.append(f"    v[{4 * r + c}] = {value};")
    return "\n".join(lines)


def taps(vector: str) -> str:
    """Statements that turn the 16 sums at `m` into y[0] .. y[8]: the transpose of `weights`."""
    lines = [f"  const {vector} half = fb_splat_{vector}(0.5);"]

    def along(of: list[str], to: list[str], name: str) -> None:
        a, b, c, d = of
        lines.append(f"  const {vector} {name} = ({b} + {c}) * half;")
        lines.append(f"  {to[0]} = {a} + {name};")
        lines.append(f"  {to[1]} = ({b} - {c}) * half;")
        lines.append(f"  {to[2]} = {name} + {d};")

    for r in range(4):
        for c in range(4):
            place = f"*(const {vector} *)(m + {4 * r + c} * pitch)"
            lines.append(f"  const {vector} m{r}{c} = {place};")
        to = [f"const {vector} h{r}{c}" for c in range(3)]
        along([f"m{r}{c}" for c in range(4)], to, f"s{r}")
    for c in range(3):
        along([f"h{r}{c}" for r in range(4)], [f"y[{3 * r + c}]" for r in range(3)], f"t{c}")
    return "\n".join(lines)


def rows_of_square() -> str:
    """Statements that read the four rows of a square, columns apart by parity."""
    return "\n".join(
        f"  @V@ x{r}0, x{r}1, x{r}2, x{r}3;\n"
        f"  @fb@_line(line[{r}], step, inside[{r}], wide, &x{r}0, &x{r}1, &x{r}2, &x{r}3);"
        for r in range(4)
    )


# What both passes know of the operands: the image, the weight and the result, as of a convolution
# without strides. A gradient of the input is one of the gradient, with the taps exchanged.
GEOMETRY = """\
typedef struct {
  const @T@ *data;
  long long batch, channel, step[2], extent[2], places[2], offset[2];
  long long squares[2], depth, rows;
} @fb@_image;

static inline FB_ALWAYS long long @fb@_min(long long a, long long b) { return a < b ? a : b; }

static void @fb@_geometry(const long long *n, @fb@_image *s) {
  if (!@gradient@) {
    s->batch = $xs_batch; s->channel = $xs_channel; s->step[0] = $xs1; s->step[1] = $xs2;
    s->extent[0] = $x1; s->extent[1] = $x2; s->places[0] = $y1; s->places[1] = $y2;
    s->offset[0] = -$low1; s->offset[1] = -$low2;
    s->depth = $inner; s->rows = $outer;
  } else {
    s->batch = $ys_batch; s->channel = $ys_channel; s->step[0] = $ys1; s->step[1] = $ys2;
    s->extent[0] = $y1; s->extent[1] = $y2; s->places[0] = $x1; s->places[1] = $x2;
    s->offset[0] = $low1 - 2; s->offset[1] = $low2 - 2;
    s->depth = $outer; s->rows = $inner;
  }
  s->squares[0] = (s->places[0] + 1) / 2;
  s->squares[1] = (s->places[1] + 1) / 2;
}
"""

BITS = """\
@bit_load@
"""

# The weights: for 128 channels of the sum at a time the 16 factors, for each the panels of rows as
# the micro-kernel reads them.
FACTORS = """\
static inline FB_ALWAYS void @fb@_turn(const @V@ *g, @V@ *u) {
@weights@
}

/* Factor e of a panel of rows and of `depth` channels is at to + e * pitch. */
static void @fb@_panel(const long long *n, const @T@ *weight, long long row, long long height,
                       long long first, long long depth, @K@x1 *to, long long pitch) {
  const long long row_step = @gradient@ ? $ws_inner : $ws_outer;
  const long long k_step = @gradient@ ? $ws_outer : $ws_inner;
  const @T@ *from = weight + row * row_step + first * k_step;
  for (long long k = 0; k < depth; ++k, from += k_step, to += height) {
    @V@ g[16], u[16];
#if @wide@
    if ($ws2 == 1 && $ws1 == 3) {
      const @T@ *line = from;
      for (long long i = 0; i < 16; ++i, line += i < height ? row_step : 0) {
        g[i] = @masked@(line, 511);
        __builtin_prefetch(line + 16 * k_step);
      }
      @pack@_turn(g);
    } else
#endif
      for (long long t = 0; t < 9; ++t) {
        union { @V@ v; @K@x1 t[@L@]; } e = { (@V@){0} };
        for (long long i = 0; i < height; ++i)
          e.t[i] = from[i * row_step + t / 3 * $ws1 + t % 3 * $ws2];
        g[t] = e.v;
      }
    if (@gradient@)
      for (long long t = 0; t < 4; ++t) { const @V@ e = g[t]; g[t] = g[8 - t]; g[8 - t] = e; }
    @fb@_turn(g, u);
    if (k + 1 < depth && 2 * height >= @L@)
      for (long long e = 0; e < 16; ++e) *(@V@ *)(to + e * pitch) = u[e];
    else
      for (long long e = 0; e < 16; ++e) fb_storem_@V@(to + e * pitch, u[e], height);
  }
}
"""

PACK = """\
void @fb@(@arguments@) {
  @fb@_image s;
  @fb@_geometry(n, &s);
  const long long panels = (s.rows + @R@ - 1) / @R@;
  for (long long chunk = begin; chunk < end; ++chunk) {
    const long long row = chunk % panels * @R@, first = chunk / panels * @CHUNK@;
    const long long height = @fb@_min(@R@, s.rows - row);
    const long long depth = @fb@_min(@CHUNK@, s.depth - first);
    @K@x1 *to = (@K@x1 *)p[1] + first * 16 * s.rows + first / @CHUNK@ * 512;
    @fb@_panel(n, (const @T@ *)p[0], row, height, first, depth, to + row * depth,
               s.rows * depth + 32);
  }
}
"""

# The factors of the image: read by what multiplies them.
GATHER = """\
#if @wide@
/* Bits [low, high) of 64, of which none may be there. */
static inline FB_ALWAYS unsigned long long @fb@_columns(long long high, long long low) {
  const unsigned long long all = ~0ull;
  if (high <= 0 || low >= 64) return 0;
  return (high >= 64 ? all : ~(all << high)) & (low <= 0 ? all : all << low);
}
#endif

/* Squares that lie side by side, at most a vector of them. */
typedef struct { long long lane, count, batch, at[2]; } @fb@_piece;

static int @fb@_pieces(const @fb@_image *s, long long column, long long count, @fb@_piece *out) {
  long long x = column % s->squares[1], y = column / s->squares[1] % s->squares[0];
  long long batch = column / s->squares[1] / s->squares[0];
  int found = 0;
  for (long long lane = 0; lane < count;) {
    const long long run = @fb@_min(@fb@_min(@L@, count - lane), s->squares[1] - x);
    out[found++] = (@fb@_piece){lane, run, batch, {y, x}};
    lane += run;
    x += run;
    if (x == s->squares[1]) { x = 0; if (++y == s->squares[0]) { y = 0; ++batch; } }
  }
  return found;
}

/* Elements 0, 2, ..; 1, 3, ..; 2, 4, ..; 3, 5, .. of a row; what is not inside is zero. */
static inline FB_ALWAYS void @fb@_line(const @T@ *from, long long step, unsigned long long inside,
                                       int wide, @V@ *x0, @V@ *x1, @V@ *x2, @V@ *x3) {
  @V@ a, b = {0}, c, d = {0};
#if @wide@
  if (step == 1) {
    a = @masked@(from, inside);
    c = @masked@(from + 2, inside >> 2);
    if (wide) {
      b = @masked@(from + @L@, inside >> @L@);
      d = @masked@(from + @L@ + 2, inside >> (@L@ + 2));
    }
  } else
#endif
  if (step == 1 && inside == (1ull << (2 * @L@ + 2)) - 1) {
    a = *(const @V@ *)from;
    b = *(const @V@ *)(from + @L@);
    c = *(const @V@ *)(from + 2);
    d = *(const @V@ *)(from + @L@ + 2);
  } else {
    @K@x1 t[2 * @L@ + 2];
    for (int l = 0; l < 2 * @L@ + 2; ++l) t[l] = inside >> l & 1 ? from[l * step] : 0;
    a = *(const @V@ *)t;
    b = *(const @V@ *)(t + @L@);
    c = *(const @V@ *)(t + 2);
    d = *(const @V@ *)(t + @L@ + 2);
  }
  *x0 = (@V@)FB_SHUFFLE2(@V@, a, b, @even@);
  *x1 = (@V@)FB_SHUFFLE2(@V@, a, b, @odd@);
  *x2 = (@V@)FB_SHUFFLE2(@V@, c, d, @even@);
  *x3 = (@V@)FB_SHUFFLE2(@V@, c, d, @odd@);
}

static inline FB_ALWAYS void @fb@_square(const @T@ *const *line, long long step,
                                         const unsigned long long *inside, int wide, @V@ *v) {
@read@
@square@
}

/* The 16 factors of `depth` channels of a piece: to[f * pitch + k * row]. The channels ahead are
   asked for: they lie too far apart for the processor to guess them. */
static inline FB_ALWAYS void @fb@_channels(const @T@ **line, long long channel, long long step,
                                           const unsigned long long *inside, int wide,
                                           long long depth, @K@x1 *to, long long pitch,
                                           long long row, long long room) {
  for (long long k = 0; k < depth; ++k, to += row) {
    @V@ v[16];
    @fb@_square(line, step, inside, wide, v);
    for (int r = 0; r < 4; ++r) {
      const @T@ *ahead = line[r] + (inside[r] ? 4 * channel : 0);
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + 16);
      line[r] += inside[r] ? channel : 0;
    }
    if (room >= @L@)
      for (int e = 0; e < 16; ++e) *(@V@ *)(to + e * pitch) = v[e];
    else
      for (int e = 0; e < 16; ++e) fb_storem_@V@(to + e * pitch, v[e], room);
  }
}

static void @fb@_factors(const @fb@_image *s, const @fb@_piece *e, long long first,
                         long long depth, @K@x1 *to, long long pitch, long long row) {
  const @T@ *line[4];
  unsigned long long inside[4], columns = 0;
  const long long x = 2 * e->at[1] + s->offset[1], y = 2 * e->at[0] + s->offset[0];
  const @T@ *from = s->data + e->batch * s->batch + first * s->channel;
  for (long long l = 0; l < 2 * e->count + 2; ++l)
    if (x + l >= 0 && x + l < s->extent[1]) columns |= 1ull << l;
  for (long long r = 0; r < 4; ++r) {
    inside[r] = y + r >= 0 && y + r < s->extent[0] ? columns : 0;
    line[r] = inside[r] ? from + (y + r) * s->step[0] + x * s->step[1] : s->data;
  }
  const long long room = row - e->lane;
  to += e->lane;
  if (s->step[1] == 1 && e->count <= @L@ / 2)
    @fb@_channels(line, s->channel, 1, inside, 0, depth, to, pitch, row, room);
  else if (s->step[1] == 1)
    @fb@_channels(line, s->channel, 1, inside, 1, depth, to, pitch, row, room);
  else
    @fb@_channels(line, s->channel, s->step[1], inside, 1, depth, to, pitch, row, room);
}
"""

# Tiles of results.
TILES = """\
/* The four results of a vector of squares. */
static inline FB_ALWAYS void @fb@_add(const @K@x1 *m, long long pitch, @V@ *y) {
@results@
}

/* Whether a result is not finite. */
static inline FB_ALWAYS int @fb@_wild(const @V@ *y) {
  const @V@ none = (y[0] - y[0]) + (y[1] - y[1]) + (y[2] - y[2]) + (y[3] - y[3]);
  long long bits = 0;
  for (unsigned long i = 0; i < sizeof none / 8; ++i) bits |= ((const long long *)&none)[i];
  return bits != 0;
}

/* One result as the sum of its products: differences of infinite elements are not numbers. */
static @K@x1 @fb@_plain(char *const *p, const long long *n, const @fb@_image *s, long long batch,
                        long long row, long long at0, long long at1) {
  const long long row_step = @gradient@ ? $ws_inner : $ws_outer;
  const long long k_step = @gradient@ ? $ws_outer : $ws_inner;
  const @T@ *from = s->data + batch * s->batch, *w = (const @T@ *)p[1] + row * row_step;
  @K@x1 sum = 0;
  for (long long k = 0; k < s->depth; ++k, from += s->channel, w += k_step)
    for (long long t = 0; t < 9; ++t) {
      const long long y = at0 + s->offset[0] + t / 3, x = at1 + s->offset[1] + t % 3;
      if (y < 0 || y >= s->extent[0] || x < 0 || x >= s->extent[1]) continue;
      const long long tap = @gradient@ ? 8 - t : t;
      sum += from[y * s->step[0] + x * s->step[1]] * w[tap / 3 * $ws1 + tap % 3 * $ws2];
    }
  return sum;
}

static void __attribute__((noinline)) @fb@_tame(char *const *p, const long long *n,
                                                const @fb@_image *s, const @fb@_piece *e,
                                                long long row, @V@ *y) {
  for (long long r = 0; r < 4; ++r)
    for (long long l = 0; l < e->count; ++l) {
      @K@x1 *found = (@K@x1 *)&y[r] + l;
      const long long at0 = 2 * e->at[0] + r / 2, at1 = 2 * (e->at[1] + l) + r % 2;
      if (*found - *found != 0 && at0 < s->places[0] && at1 < s->places[1])
        *found = @fb@_plain(p, n, s, e->batch, row, at0, at1);
    }
}

/* Two rows of results of a vector of squares, at line and line + 2 vectors. */
static inline FB_ALWAYS void @fb@_square_rows(char *const *p, const long long *n,
                                              const @fb@_image *s, const @fb@_piece *e,
                                              long long row, const @K@x1 *m, long long pitch,
                                              @V@ *line) {
  @V@ y[4];
  @fb@_add(m + e->lane, pitch, y);
  if (@fb@_wild(y)) @fb@_tame(p, n, s, e, row, y);
  for (int r = 0; r < 2; ++r) {
    line[2 * r] = (@V@)FB_SHUFFLE2(@V@, y[2 * r], y[2 * r + 1], @first@);
    line[2 * r + 1] = (@V@)FB_SHUFFLE2(@V@, y[2 * r], y[2 * r + 1], @second@);
  }
}

/* How many results a piece has in a row, and whether it has a second row. */
static inline FB_ALWAYS long long @fb@_wide(const @fb@_image *s, const @fb@_piece *e) {
  return @fb@_min(2 * e->count, s->places[1] - 2 * e->at[1]);
}
static inline FB_ALWAYS int @fb@_two(const @fb@_image *s, const @fb@_piece *e) {
  return 2 * e->at[0] + 1 < s->places[0];
}

#if @fused@ && !@turned@
/* Results of a channel that lie side by side, at line + from: what is the same for a channel is
   found once for all of them. */
typedef struct { long long batch, first, count, from; } @fb@_run;

/* The runs of all pieces; to[e][r] is where row r of a piece comes to lie. */
static int @fb@_runs(const @fb@_image *s, const @fb@_piece *pieces, int found, @fb@_run *runs,
                     long long (*to)[2]) {
  int count = 0;
  long long from = 0;
  for (int e = 0, end; e < found; e = end) {
    const @fb@_piece *a = pieces + e;
    for (end = e + 1; end < found; ++end)
      if (pieces[end].at[0] != a->at[0] || pieces[end].batch != a->batch) break;
    for (int r = 0; r <= @fb@_two(s, a); ++r) {
      const long long first = (2 * a->at[0] + r) * s->places[1] + 2 * a->at[1];
      @fb@_run *last = runs + count - 1;
      if (!count || last->batch != a->batch || last->first + last->count != first) {
        last = runs + count++;
        *last = (@fb@_run){a->batch, first, 0, from};
      }
      for (int i = e; i < end; ++i) {
        to[i][r] = from;
        from += @fb@_wide(s, pieces + i);
      }
      last->count = from - last->from;
    }
  }
  return count;
}

/* The results of channels [row, row + height) of all pieces. */
static void @fb@_finish(char *const *p, const long long *n, const fb_scalar *x,
                        const @fb@_image *s, const @fb@_piece *pieces, int found, long long row,
                        long long height, const @K@x1 *m, long long pitch) {
  @fb@_run runs[2 * @W@];
  long long to[@W@][2];
  const int count = @fb@_runs(s, pieces, found, runs, to);
  @K@x1 whole[4 * @W@ + @L@] __attribute__((aligned(64)));
  for (long long i = 0; i < height; ++i, m += @W@) {
    for (int e = 0; e < found; ++e) {
      @V@ line[4];
      @fb@_square_rows(p, n, s, pieces + e, row + i, m, pitch, line);
      const long long wide = @fb@_wide(s, pieces + e);
      for (int r = 0; r <= @fb@_two(s, pieces + e); ++r) {
        @K@x1 *out = whole + to[e][r];
        if (wide >= @L@) *(@V@ *)out = line[2 * r];
        else fb_storem_@V@(out, line[2 * r], wide);
        if (wide == 2 * @L@) *(@V@ *)(out + @L@) = line[2 * r + 1];
        else if (wide > @L@) fb_storem_@V@(out + @L@, line[2 * r + 1], wide - @L@);
      }
    }
    for (const @fb@_run *run = runs; run < runs + count; ++run)
      @epilogue@(p, n, x, run->batch, row + i, run->first, run->first + run->count,
                 whole + run->from - run->first);
  }
}
#else
/* Two rows of results of channels [row, row + height) of a piece. */
static void @fb@_piece_rows(char *const *p, const long long *n, const fb_scalar *x,
                            const @fb@_image *s, const @fb@_piece *e, long long row,
                            long long height, const @K@x1 *m, long long pitch) {
  const long long batch = e->batch, at0 = 2 * e->at[0], at1 = 2 * e->at[1];
  const long long count = @fb@_wide(s, e), two = @fb@_two(s, e);
#if !@fused@
  const long long channel = @gradient@ ? $xs_channel : $ys_channel;
  const long long step0 = @gradient@ ? $xs1 : $ys1, step1 = @gradient@ ? $xs2 : $ys2;
  @T@ *to = (@T@ *)p[3] + batch * (@gradient@ ? $xs_batch : $ys_batch) + row * channel +
            at0 * step0 + at1 * step1;
#else
  const long long place = at0 * s->places[1] + at1;
#endif
  @K@x1 lines[@L@][2][2 * @L@] __attribute__((aligned(64)));
  for (long long i = 0; i < height; ++i) {
    @V@ *line = (@V@ *)lines[i];
    @fb@_square_rows(p, n, s, e, row + i, m + i * @W@, pitch, line);
#if !@fused@
    if (step1 == 1)
      for (int r = 0; r <= two; ++r) {
        @T@ *out = to + i * channel + r * step0;
        if (count >= @L@) *(@V@ *)out = line[2 * r];
        else fb_storem_@V@(out, line[2 * r], count);
        if (count > @L@) fb_storem_@V@(out + @L@, line[2 * r + 1], count - @L@);
      }
#endif
  }
#if !@fused@
  if (step1 == 1) return;
#endif
  for (int r = 0; r <= two; ++r)
    for (long long done = 0; done < count; done += @L@) {
      @V@ v[@L@];
      for (long long i = 0; i < @L@; ++i)
        v[i] = *(const @V@ *)(lines[i < height ? i : 0][r] + done);
      @pack@_turn(v);
      for (long long l = 0; l < @L@ && done + l < count; ++l) {
#if @fused@
        @epilogue@(p, n, x, batch, place + r * s->places[1] + done + l, row, row + height,
                   (const @K@x1 *)&v[l] - row);
#else
        @T@ *out = to + r * step0 + (done + l) * step1;
        if (channel == 1) fb_storem_@V@(out, v[l], height);
        else
          for (long long i = 0; i < height; ++i) out[i * channel] = ((const @K@x1 *)&v[l])[i];
#endif
      }
    }
}

/* The results of channels [row, row + height) of all pieces. */
static void @fb@_finish(char *const *p, const long long *n, const fb_scalar *x,
                        const @fb@_image *s, const @fb@_piece *pieces, int found, long long row,
                        long long height, const @K@x1 *m, long long pitch) {
  for (int e = 0; e < found; ++e)
    @fb@_piece_rows(p, n, x, s, pieces + e, row, height, m, pitch);
}
#endif

/* Products of panels [row, row + rows) with a slab, in chains; sums of 128 are added at last. */
static void @fb@_multiply(long long rows, long long depth, long long count, const @K@x1 *panel,
                          const @K@x1 *slab, @K@x1 *sum, @K@x1 *block, long long more) {
  for (; rows > 0; rows -= @R@, panel += @R@ * depth, sum += @R@ * @W@) {
    const long long height = @fb@_min(@R@, rows);
    @K@x1 *c = more ? block : sum;
    for (long long k = 0; k < depth; k += @chain_of_squares@) {
      const long long part = @fb@_min(@chain_of_squares@, depth - k);
      const @K@x1 *a = panel + k * height, *b = slab + k * @W@;
      if (count > @L@) @micro@(height, part, a, b, @W@, c, @W@, k > 0);
      else @fb@_narrow(height, part, a, b, c, @W@, k > 0);
    }
    if (more)
      for (long long j = 0; j < height * @W@; j += @L@)
        *(@V@ *)(sum + j) = *(@V@ *)(sum + j) + *(@V@ *)(block + j);
  }
}

void @fb@(@arguments@) {
  const long long pitch = @CHUNK@ * @W@ + 32, sums = $rows * @W@ + 32;
  const long long panel_pitch = @CHUNK@ * @R@ + 32;
  @K@x1 *factors = (@K@x1 *)scratch, *tile = factors + 16 * pitch, *block = tile + 16 * sums;
  @K@x1 *panel = block + @R@ * @W@;
  @fb@_image s;
  @fb@_piece pieces[@W@];
  @fb@_geometry(n, &s);
  s.data = (const @T@ *)p[0];
  const long long total = $batch * s.squares[0] * s.squares[1];
  for (long long chunk = begin; chunk < end; ++chunk) {
    const long long row = chunk / $column_tiles * $rows, column = chunk % $column_tiles * @W@;
    const long long rows = @fb@_min($rows, s.rows - row), count = @fb@_min(@W@, total - column);
    if (rows <= 0 || count <= 0) continue;
    const int found = @fb@_pieces(&s, column, count, pieces);
    if (count < @W@) __builtin_memset(factors, 0, 16 * pitch * sizeof(@K@x1));
    for (long long k = 0; k < s.depth; k += @CHUNK@) {
      const long long depth = @fb@_min(@CHUNK@, s.depth - k);
      for (int i = 0; i < found; ++i)
        @fb@_factors(&s, pieces + i, k, depth, factors, pitch, @W@);
      if ($column_tiles == 1) {
        for (long long i = 0; i < rows; i += @R@) {
          const long long height = @fb@_min(@R@, rows - i);
          @fb@_panel(n, (const @T@ *)p[1], row + i, height, k, depth, panel, panel_pitch);
          for (long long f = 0; f < 16; ++f)
            @fb@_multiply(height, depth, count, panel + f * panel_pitch, factors + f * pitch,
                          tile + f * sums + i * @W@, block, k > 0);
        }
        continue;
      }
      const @K@x1 *weights = (const @K@x1 *)p[2] + k * 16 * s.rows + k / @CHUNK@ * 512;
      for (long long f = 0; f < 16; ++f)
        @fb@_multiply(rows, depth, count, weights + f * (s.rows * depth + 32) + row * depth,
                      factors + f * pitch, tile + f * sums, block, k > 0);
    }
    for (long long i = 0; i < rows; i += @R@)
      @fb@_finish(p, n, x, &s, pieces, found, row + i, @fb@_min(@R@, rows - i), tile + i * @W@,
                  sums);
  }
}
"""

# Gradients of the weight: squares of 2 x 2 places of the gradient are spread to 16 numbers, which
# are multiplied by the factors of the image, summed over squares and added up to 3 x 3 taps.
WEIGHT = """\
/* The 16 numbers of `depth` channels of a piece of the gradient: to[f * pitch + k * row]. */
static void @fb@_spread(const @fb@_image *g, const @fb@_piece *e, long long first,
                        long long depth, @K@x1 *to, long long pitch, long long row) {
  const @T@ *from = g->data + e->batch * g->batch + first * g->channel, *line[2];
  unsigned long long inside[2], columns = 0;
  const long long x = 2 * e->at[1], y = 2 * e->at[0], room = row - e->lane;
  for (long long l = 0; l < 2 * e->count; ++l)
    if (x + l < g->extent[1]) columns |= 1ull << l;
  for (long long r = 0; r < 2; ++r) {
    inside[r] = y + r < g->extent[0] ? columns : 0;
    line[r] = inside[r] ? from + (y + r) * g->step[0] + x * g->step[1] : g->data;
  }
  to += e->lane;
  for (long long k = 0; k < depth; ++k, to += row) {
    @V@ x00, x01, x10, x11, c, d, v[16];
    @fb@_line(line[0], g->step[1], inside[0], 1, &x00, &x01, &c, &d);
    @fb@_line(line[1], g->step[1], inside[1], 1, &x10, &x11, &c, &d);
@spread_square@
    for (int r = 0; r < 2; ++r) line[r] += inside[r] ? g->channel : 0;
    if (room >= @L@)
      for (int f = 0; f < 16; ++f) *(@V@ *)(to + f * pitch) = v[f];
    else
      for (int f = 0; f < 16; ++f) fb_storem_@V@(to + f * pitch, v[f], room);
  }
}

/* Blocks of a vector of channels by a vector of squares: channels become the inner index. */
static void @fb@_turned(const @K@x1 *block, long long used, long long height, @K@x1 *to,
                        long long pitch, long long width) {
  for (long long f = 0; f < 16; ++f, block += @L@ * (@L@ + 1), to += pitch) {
    @V@ r[@L@];
    for (long long i = 0; i < @L@; ++i) r[i] = *(const @V@ *)(block + i * @L@);
    @pack@_turn(r);
    for (long long l = 0; l < used; ++l)
      if (height >= @L@) *(@V@ *)(to + l * width) = r[l];
      else fb_storem_@V@(to + l * width, r[l], height);
  }
}

/* The nine taps of a vector of channels. */
static inline FB_ALWAYS void @fb@_taps(const @K@x1 *m, long long pitch, @V@ *y) {
@taps@
}

/* Sums of one row become weights of channels [first, first + count). */
static void @fb@_place(const @K@x1 *m, long long pitch, long long count, @T@ *out,
                       long long channel, long long step1, long long step2) {
  for (long long j = 0; j < count; j += @L@, m += @L@) {
    @V@ y[16] = {{0}};
    @fb@_taps(m, pitch, y);
    const long long used = @fb@_min(@L@, count - j);
#if @wide@
    if (step2 == 1 && step1 == 3) {
      @pack@_turn(y);
      for (long long l = 0; l < used; ++l, out += channel) fb_storem_@V@(out, y[l], 9);
      continue;
    }
#endif
    for (long long l = 0; l < used; ++l, out += channel)
      for (long long t = 0; t < 9; ++t)
        out[t / 3 * step1 + t % 3 * step2] = ((const @K@x1 *)&y[t])[l];
  }
}

void @fb@(@arguments@) {
  const long long tiles = $column_tiles * $row_tiles;
  const long long left_pitch = $rows * @block_of_squares@ + 32, sums = $rows * $columns + 32;
  const long long slab_pitch = @block_of_squares@ * @W@ + 32, block_pitch = @L@ * (@L@ + 1);
  @K@x1 *left = (@K@x1 *)scratch, *slab = left + 16 * left_pitch;
  @K@x1 *tile = slab + 16 * slab_pitch, *block = tile + 16 * sums;
  @fb@_image s, g;
  @fb@_piece pieces[@block_of_squares@ / @L@][@L@];
  int found[@block_of_squares@ / @L@];
  @fb@_geometry(n, &s);
  g = s;
  g.batch = $ys_batch; g.channel = $ys_channel; g.step[0] = $ys1; g.step[1] = $ys2;
  g.extent[0] = $y1; g.extent[1] = $y2;
  g.data = (const @T@ *)p[0];
  s.data = (const @T@ *)p[1];
  const long long total = $batch * s.squares[0] * s.squares[1];
  __builtin_memset(block, 0, 16 * block_pitch * sizeof(@K@x1));
  for (long long chunk = begin; chunk < end; ++chunk) {
    const long long part = chunk / tiles, column = chunk % $column_tiles * $columns;
    const long long row = chunk % tiles / $column_tiles * $rows;
    const long long rows = @fb@_min($rows, $outer - row);
    const long long count = @fb@_min($columns, $inner - column);
    const long long first = part * $part, last = @fb@_min(total, first + $part);
    if (rows <= 0 || count <= 0) continue;
    if (first >= last)
      for (long long i = 0; i < 16 * sums; ++i) tile[i] = 0;
    for (long long k = first; k < last; k += @block_of_squares@) {
      const long long depth = @fb@_min(@block_of_squares@, last - k);
      for (long long q = 0; q < depth; q += @L@) {
        const long long used = @fb@_min(@L@, depth - q);
        found[q / @L@] = @fb@_pieces(&s, k + q, used, pieces[q / @L@]);
        for (long long i = 0; i < rows; i += @R@) {
          const long long height = @fb@_min(@R@, rows - i);
          for (int e = 0; e < found[q / @L@]; ++e)
            @fb@_spread(&g, pieces[q / @L@] + e, row + i, height, block, block_pitch, @L@);
          @fb@_turned(block, used, height, left + i * @block_of_squares@ + q * height, left_pitch,
                      height);
        }
      }
      for (long long j = 0; j < count; j += @W@) {
        for (long long q = 0; q < depth; q += @L@)
          for (long long h = 0; h < @W@ && j + h < count; h += @L@) {
            const long long channels = @fb@_min(@L@, count - j - h);
            for (int e = 0; e < found[q / @L@]; ++e)
              @fb@_factors(&s, pieces[q / @L@] + e, column + j + h, channels, block, block_pitch,
                           @L@);
            @fb@_turned(block, @fb@_min(@L@, depth - q), @L@, slab + q * @W@ + h, slab_pitch, @W@);
          }
        for (long long f = 0; f < 16; ++f)
          for (long long i = 0; i < rows; i += @R@)
            @micro@(@fb@_min(@R@, rows - i), depth,
                    left + f * left_pitch + i * @block_of_squares@, slab + f * slab_pitch, @W@,
                    tile + f * sums + i * $columns + j, $columns, k > first);
      }
    }
    for (long long i = 0; i < rows; ++i) {
      const @K@x1 *m = tile + i * $columns;
      if ($parts == 1)
        @fb@_place(m, sums, count,
                   (@T@ *)p[2] + (row + i) * $ws_outer + column * $ws_inner, $ws_inner, $ws1, $ws2);
      else
        @fb@_place(m, sums, count,
                   (@K@x1 *)p[3] + ((part * $outer + row + i) * $inner + column) * 9, 9, 3, 1);
    }
  }
}
"""


def choices(vector: str, lanes: int) -> dict[str, str]:
    """What the texts above leave open."""
    pairs = [str(i // 2 + lanes * (i % 2)) for i in range(2 * lanes)]
    return {
        "chain_of_squares": str(CHAIN),
        "odd": ", ".join(str(2 * i + 1) for i in range(lanes)),
        "first": ", ".join(pairs[:lanes]),
        "second": ", ".join(pairs[lanes:]),
        "square": square(vector),
        "results": results(vector),
        "weights": weights(vector),
        "read": rows_of_square(),
        "block_of_squares": str(BLOCK),
        "spread_square": spread(vector),
        "taps": taps(vector),
    }
