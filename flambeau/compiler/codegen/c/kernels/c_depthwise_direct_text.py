"""The C text of 3 x 3 windows of one channel per group that are read from the image itself.

Masks stand for the zeros around an image, where lanes can be masked: no band is filled, and images
narrower than a vector take half vectors. The sums are those of `c_depthwise_text`, in the same
order, so that no bit tells which of the two ran. Functions that end in a number of lanes are there
once per vector width `@N@`. `$name` is a size argument, `@name@` a choice, as in
`c_convolution_text`.
"""

from __future__ import annotations

from flambeau.compiler.targets.description import Target

# Lanes of rows.
LANES = """\
/* The lanes whose bits are set, the others zero and not read. */
static inline FB_ALWAYS @N@ @fb@_part@n@(const @T@ *from, unsigned long long inside) {
  return (@N@)@part@;
}

typedef struct { @N@ x0, x1, x2; } @fb@_taps@n@;  // of a row

static inline FB_ALWAYS @fb@_taps@n@ @fb@_row_of@n@(const @T@ *weight, long long step) {
  return (@fb@_taps@n@){fb_splat_@N@(weight[0]), fb_splat_@N@(weight[step]),
                        fb_splat_@N@(weight[2 * step])};
}

/* What three taps side by side read of a row: @n@ windows, `stride` apart. */
static inline FB_ALWAYS @fb@_taps@n@ @fb@_read@n@(const @T@ *line, long long there,
                                                  const unsigned long long *inside,
                                                  long long stride) {
  @fb@_taps@n@ r = {{0}, {0}, {0}};
  if (!there) return r;
  if (stride == 1) {
    r.x0 = @fb@_part@n@(line, inside[0]);
    r.x1 = @fb@_part@n@(line + 1, inside[1]);
    r.x2 = @fb@_part@n@(line + 2, inside[2]);
    return r;
  }
  const @N@ a = @fb@_part@n@(line, inside[0]), b = @fb@_part@n@(line + @n@, inside[0] >> @n@);
  const @N@ c = @fb@_part@n@(line + 2, inside[2]);
  const @N@ d = @fb@_part@n@(line + 2 + @n@, inside[2] >> @n@);
  r.x0 = (@N@)FB_SHUFFLE2(@N@, a, b, @even@);
  r.x1 = (@N@)FB_SHUFFLE2(@N@, a, b, @odd@);
  r.x2 = (@N@)FB_SHUFFLE2(@N@, c, d, @even@);
  return r;
}

"""

MASKS = """\
/* Which columns are inside of the image under each of three taps of windows `stride` apart. */
static inline FB_ALWAYS void @fb@_masks(long long extent, long long first, long long stride,
                                        long long windows, unsigned long long *inside) {
  for (int t = 0; t < 3; ++t)
    inside[t] = @fb@_columns(@fb@_min(extent - first - t, stride * windows), -first - t);
}
"""

# Convolutions, and gradients of the input whose stride is 1.
PLANE = """\
/* a + the products of three taps side by side. */
static inline FB_ALWAYS @N@ @fb@_add@n@(@fb@_taps@n@ w, @fb@_taps@n@ r, @N@ a) {
  a = fb_fma_@N@(w.x0, @gradient@ ? r.x2 : r.x0, a);
  a = fb_fma_@N@(w.x1, r.x1, a);
  return fb_fma_@N@(w.x2, @gradient@ ? r.x0 : r.x2, a);
}

static inline FB_ALWAYS void @fb@_write@n@(char *const *p, const long long *n, const fb_scalar *x,
                                           const @fb@_image *s, const @fb@_result *out,
                                           long long batch, long long channel, long long row,
                                           long long column, @T@ *to, @N@ value) {
  const long long count = @fb@_min(@n@, s->places[2] - column);
#if @fused@
  const long long first = row * s->places[2] + column;
  @epilogue@(p, n, x, batch, channel, first, first + count, (const @K@x1 *)&value - first);
#else
  fb_storem_@N@(to + row * out->step[1] + column, value, count);
#endif
}

/* A channel's places: every row of the image is read once. In a gradient rows go from below. */
static inline FB_ALWAYS void @fb@_plane@n@(char *const *p, const long long *n, const fb_scalar *x,
                                           const @fb@_image *s, const @fb@_result *out,
                                           const @T@ *weight, const long long *step_of,
                                           long long batch, long long channel, @T@ *to,
                                           const @T@ *image, long long stride) {
  const long long step = @gradient@ ? -1 : 1, rows = s->places[1], pitch = s->step[1];
  const long long start = @gradient@ ? rows - 1 : 0;
  const unsigned long long extent = s->extent[1];
  const @N@ none = {0};
  const @fb@_taps@n@ w0 = @fb@_row_of@n@(weight, step_of[2]);
  const @fb@_taps@n@ w1 = @fb@_row_of@n@(weight + step_of[1], step_of[2]);
  const @fb@_taps@n@ w2 = @fb@_row_of@n@(weight + 2 * step_of[1], step_of[2]);
  for (long long j = 0; j < s->places[2]; j += @n@) {
    const long long first = j * stride + s->offset[2] - (@gradient@ ? 2 : 0);
    unsigned long long inside[3];
    @fb@_masks(s->extent[2], first, stride, @n@, inside);
    const @T@ *from = image + first;
    unsigned long long u = start * stride + s->offset[1];
#define FB_READ(u) @fb@_read@n@(from + (long long)(u) * pitch, (u) < extent, inside, stride)
#define FB_WRITE(i, a) \\
  @fb@_write@n@(p, n, x, s, out, batch, channel, start + (i) * step, j, to, a)
    @fb@_taps@n@ r = FB_READ(u);
    if (stride == 2) {
      for (long long i = 0; i < rows; ++i, u += 2) {
        @N@ a = @fb@_add@n@(w0, r, none);
        r = FB_READ(u + 1);
        a = @fb@_add@n@(w1, r, a);
        r = FB_READ(u + 2);
        FB_WRITE(i, @fb@_add@n@(w2, r, a));
      }
      continue;
    }
    @N@ a = @fb@_add@n@(w0, r, none), b;
    u += step;
    r = FB_READ(u);
    a = @fb@_add@n@(w1, r, a);
    b = @fb@_add@n@(w0, r, none);
    for (long long i = 0; i < rows; ++i) {
      u += step;
      r = FB_READ(u);
      const @N@ sum = @fb@_add@n@(w2, r, a);
      if (i + 1 < rows) a = @fb@_add@n@(w1, r, b);
      if (i + 2 < rows) b = @fb@_add@n@(w0, r, none);
      FB_WRITE(i, sum);
    }
#undef FB_READ
#undef FB_WRITE
  }
}
"""

# Gradients of the input whose stride is 2: the results of four phases come from the same elements.
PHASES = """\
/* Lanes whose bits are set. */
static inline FB_ALWAYS void @fb@_keep@n@(@T@ *to, @N@ value, unsigned long long inside) {
  @keep@;
}

/* A row of results: of the single tap of their column, and of both, in turn. */
static inline FB_ALWAYS void @fb@_both@n@(@T@ *to, @N@ one, @N@ two, unsigned long long inside) {
  @fb@_keep@n@(to, (@N@)FB_SHUFFLE2(@N@, one, two, @low@), inside);
  if (inside >> @n@)
    @fb@_keep@n@(to + @n@, (@N@)FB_SHUFFLE2(@N@, one, two, @high@), inside >> @n@);
}

/* Elements (i, j) .. (i + 1, j + 1) of y make those of x from 2 (i, j) + 1 - low on. */
static inline FB_ALWAYS void @fb@_phases@n@(const long long *n, const @T@ *y, const @T@ *weight,
                                            @T@ *x) {
  const @fb@_taps@n@ w0 = @fb@_row_of@n@(weight, $ws2);
  const @fb@_taps@n@ w1 = @fb@_row_of@n@(weight + $ws1, $ws2);
  const @fb@_taps@n@ w2 = @fb@_row_of@n@(weight + 2 * $ws1, $ws2);
  const @N@ none = {0};
  for (long long i = ($low1 - 1) >> 1; 2 * i + 1 - $low1 < $x1; ++i) {
    const long long to1 = 2 * i + 1 - $low1;
    const unsigned long long up = i >= 0 && i < $y1 ? ~0ull : 0;
    const unsigned long long down = i + 1 >= 0 && i + 1 < $y1 ? ~0ull : 0;
    for (long long j = ($low2 - 1) >> 1; 2 * j + 1 - $low2 < $x2; j += @n@) {
      const long long to2 = 2 * j + 1 - $low2;
      const unsigned long long here = @fb@_columns($y2 - j, -j);
      const unsigned long long next = @fb@_columns($y2 - j - 1, -j - 1);
      const unsigned long long kept = @fb@_columns($x2 - to2, -to2);
      const @T@ *from = y + i * $ys1 + j;
      const @N@ a0 = @fb@_part@n@(from, here & up);
      const @N@ a1 = @fb@_part@n@(from + 1, next & up);
      const @N@ b0 = @fb@_part@n@(from + $ys1, here & down);
      const @N@ b1 = @fb@_part@n@(from + $ys1 + 1, next & down);
      const @N@ one = fb_fma_@N@(w1.x1, a0, none);
      const @N@ right = fb_fma_@N@(w1.x2, a0, fb_fma_@N@(w1.x0, a1, none));
      const @N@ below = fb_fma_@N@(w2.x1, a0, fb_fma_@N@(w0.x1, b0, none));
      @N@ all = fb_fma_@N@(w0.x2, b0, fb_fma_@N@(w0.x0, b1, none));
      all = fb_fma_@N@(w2.x2, a0, fb_fma_@N@(w2.x0, a1, all));
      @T@ *to = x + to1 * $xs1 + to2;
      if (to1 >= 0) @fb@_both@n@(to, one, right, kept);
      if (to1 + 1 < $x1) @fb@_both@n@(to + $xs1, below, all, kept);
    }
  }
}
"""

# The launch of those: a chunk in four is a plane.
WHOLE = """\
static long long @fb@_is_whole(const long long *n) {
  return $x0 == 1 && $y0 == 1 && $kernel0 == 1 && $stride0 == 1 && $low0 == 0 && $outer == 1 &&
         $kernel1 == 3 && $kernel2 == 3 && $stride1 == 2 && $stride2 == 2 && $dilation1 == 1 &&
         $dilation2 == 1 && $ys2 == 1 && $xs2 == 1;
}

static void @fb@_whole(char *const *p, const long long *n, long long begin, long long end) {
  for (long long plane = (begin + 3) / 4; plane < (end + 3) / 4; ++plane) {
    const long long channel = plane % $groups, batch = plane / $groups;
    const @T@ *y = (const @T@ *)p[0] + batch * $ys_batch + channel * $ys_channel;
    const @T@ *weight = (const @T@ *)p[1] + channel * $ws_outer;
    @T@ *x = (@T@ *)p[2] + batch * $xs_batch + channel * $xs_channel;
    if ($y2 <= 8) @fb@_phases8(n, y, weight, x);
    else @fb@_phases@L@(n, y, weight, x);
  }
}
"""

# Gradients of the weight.
SUMS = """\
/* Adds the sums of a channel's planes, some rows at a time, to the totals: of @lanes@ lanes. */
static inline FB_ALWAYS void @fb@_sums@lanes@(const long long *n, const @fb@_image *s,
                                              const @T@ *gradient, const @T@ *image,
                                              long long stride, @K@x1 *totals) {
  const long long pitch = s->step[1], bands = (s->places[1] + $rows - 1) / $rows;
  const unsigned long long extent = s->extent[1];
  long long masked = -1, band = 0;
@masks@
  for (long long left = $batch * bands; left > 0; --left) {
    const long long rows = @fb@_min($rows, s->places[1] - band * $rows);
    const unsigned long long top = band * $rows * stride + s->offset[1];
    const @T@ *from = gradient + band * $rows * $ys1;
@declare@
    for (long long j = 0; j < s->places[2]; j += @lanes@) {
      if (j != masked) {
        masked = j;
@mask@
      }
      if (stride == 2) {
@first@
        for (long long i = 0; i < rows; ++i) {
@gradient2@
@rows2@
        }
        continue;
      }
@before@
      for (long long i = 0; i < rows + 2; ++i) {
@gradient1@
        if (top + i < extent) {
@rows1@
        }
@after@
      }
    }
@save@
    if (++band == bands) {
      band = 0;
      gradient += $ys_batch;
      image += $xs_batch;
    }
  }
}
"""


def widths(kind: str, lanes: int, target: Target) -> dict[int, dict[str, str]]:
    """What the names of a vector width stand for, by lanes: 8, and those of a register."""
    found = {}
    for n in sorted({8, lanes}):
        steps = range(n)
        load, store = (target.instruction(name, kind, n) for name in ("load", "store"))
        assert load is not None and store is not None  # of a target that masks lanes
        found[n] = {
            "N": f"{kind}x{n}",
            "n": str(n),
            "part": load(p="from", other="{0}", bits="inside"),
            "keep": store(p="to", v="value", bits="inside"),
            "even": ", ".join(str(2 * i) for i in steps),
            "odd": ", ".join(str(2 * i + 1) for i in steps),
            "low": ", ".join(str(i // 2 + i % 2 * n) for i in steps),
            "high": ", ".join(str((n + i) // 2 + i % 2 * n) for i in steps),
        }
    return found


def sums(kind: str, vector: int, lanes: int) -> dict[str, str]:
    """The unrolled parts of `SUMS`: of `lanes` lanes, in registers of `vector` of them."""
    v, parts = f"{kind}x{vector}", range(lanes // vector)
    names = {(e, h): f"s{e}_{h}" for e in range(9) for h in parts}

    def row(k: int, of: str) -> list[str]:
        """Adds the products of a row of the gradient and the row of the image under tap row k."""
        return [
            f"{names[3 * k + t, h]} = fb_fma_{v}({of}{h}, r{h}.x{t}, {names[3 * k + t, h]});"
            for h in parts
            for t in range(3)
        ]

    def read(u: str) -> list[str]:
        line = f"image + (long long)({u}) * pitch + first"
        return [f"r{h} = @fb@_read{vector}({line}{h}, 1, inside{h}, stride);" for h in parts]

    def gradient(h: int) -> str:
        return f"g{h} = @fb@_part{vector}(from + i * $ys1 + j + {h * vector}, used{h});"

    under = [f"if (top + 2 * i + {k} < extent) {{" for k in range(3)]
    return {
        "declare": f"    {v} {', '.join(f'{s} = {{0}}' for s in names.values())};",
        "masks": _indented(2, [
            f"long long first{h} = 0; unsigned long long used{h} = 0, inside{h}[3] = {{0}};"
            for h in parts
        ]),
        "mask": _indented(8, [line for h in parts for line in _masks(h, vector)]),
        "before": _indented(6, [
            f"{v} g{h} = {{0}}, p{h} = {{0}}, q{h} = {{0}}; @fb@_taps{vector} r{h};" for h in parts
        ]),
        "gradient1": _indented(8, ["if (i < rows) {", *map(gradient, parts), "}"]),
        "rows1": _indented(10, [
            *read("top + i"), "if (i < rows) {", *row(0, "g"), "}",
            "if (i > 0 && i <= rows) {", *row(1, "p"), "}", "if (i > 1) {", *row(2, "q"), "}",
        ]),
        "after": _indented(8, [f"q{h} = p{h}; p{h} = g{h};" for h in parts]),
        "first": _indented(8, [
            *(f"@fb@_taps{vector} r{h} = {{{{0}}, {{0}}, {{0}}}};" for h in parts),
            "if (top < extent) {", *read("top"), "}",
        ]),
        "gradient2": _indented(10, [f"const {v} {gradient(h)}" for h in parts]),
        "rows2": _indented(10, [
            under[0], *row(0, "g"), "}",
            under[1], *read("top + 2 * i + 1"), *row(1, "g"), "}",
            under[2], *read("top + 2 * i + 2"), *row(2, "g"), "}",
        ]),
        "save": _indented(4, _added(v, vector, lanes)),
    }  # fmt: skip


def _indented(spaces: int, lines: list[str]) -> str:
    return "\n".join(" " * spaces + line for line in lines)


def _masks(h: int, vector: int) -> list[str]:
    """What part `h` of a vector of windows reads."""
    windows = f"@fb@_min(s->places[2] - j - {h * vector}, {vector})"
    return [
        f"first{h} = (j + {h * vector}) * stride + s->offset[2];",
        f"used{h} = @fb@_columns({windows}, 0);",
        f"@fb@_masks(s->extent[2], first{h}, stride, {windows}, inside{h});",
    ]


def _added(v: str, vector: int, lanes: int) -> list[str]:
    """Statements that add the lanes of all sums pairwise, those far apart first: lanes of two sums
    share a register after every step. What rows of at most 8 elements would have in lanes from 8 on
    is left out: they are zeros, and totals that begin at zero never differ in a zero's sign."""
    lines, rest, live = [], [f"s{e}_0" for e in range(9)], vector
    if lanes == 2 * vector:
        lines = [f"s{e}_0 = s{e}_0 + s{e}_1;" for e in range(9)]
    while live > 1:
        half, paired = live // 2, []
        orders = [
            ", ".join(str(lane // half * live + lane % half + side) for lane in range(vector))
            for side in (0, half)
        ]
        for i in range(0, len(rest), 2):
            a, b = rest[i], rest[min(i + 1, len(rest) - 1)]
            low, high = (f"({v})FB_SHUFFLE2({v}, {a}, {b}, {order})" for order in orders)
            lines.append(f"{a} = {low} + {high};")
            paired.append(a)
        rest, live = paired, half
    for i, name in enumerate(rest):
        lines.append(f"*({v} *)(totals + {i * vector}) += {name};")
    return lines
