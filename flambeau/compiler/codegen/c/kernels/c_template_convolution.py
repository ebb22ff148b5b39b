"""Convolutions as implicit products: the matrix of windows exists only as a tile in cache.

The template "convolution" has several passes, chosen by its setting "pass", the first of which are:

    places   out[o, place] = sum over (c, tap) of weight[o, (c, tap)] * window[(c, tap), place]:
             convolutions, and gradients of the input. Those are convolutions of the gradient, one
             per phase of the strides, with the taps that meet this phase.
    weight   dw[o, (c, tap)] = sum over places of dy[o, place] * window[(c, tap), place].

A chunk of the launch is a tile of results. For 128 elements of K at a time the windows of the tile
are gathered from the image in whole vectors, the other operand is packed as for a product, and the
micro-kernels of `c_micro` do the rest: the sum's order is that of a product over the same K. What
lies outside of the image is zero. Operands stored as bfloat16 are multiplied by pairs
(`c_convolution_pairs`), into sums of float32. Which axes there are and where they lie is told by
the size arguments, in the order of `SIZES`.
"""

from __future__ import annotations

import re

from flambeau.compiler.codegen.c.kernels import c_convolution_pairs as pairs
from flambeau.compiler.codegen.c.kernels import c_convolution_text as text
from flambeau.compiler.codegen.c.kernels import c_depthwise_direct_text as direct
from flambeau.compiler.codegen.c.kernels import c_depthwise_text as depthwise
from flambeau.compiler.codegen.c.kernels import c_winograd_text as winograd
from flambeau.compiler.codegen.c.kernels.c_micro import CHUNK, Micro
from flambeau.compiler.codegen.c.kernels.c_micro_pairs import Pairs
from flambeau.compiler.codegen.c.printer.c_epilogue import EPILOGUE, print_epilogue
from flambeau.compiler.codegen.c.printer.c_forms import ARGUMENTS, SYMBOL
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND, kind_bits
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel

# The size arguments of every launch. "x" is what windows are taken of, "y" what has a place per
# window; an axis is counted 0, 1, 2, the last one along rows.
SIZES = (
    "batch", "groups", "outer", "inner",  # channels of a group: of y, of x
    "x0", "x1", "x2", "y0", "y1", "y2", "kernel0", "kernel1", "kernel2",
    "stride0", "stride1", "stride2", "dilation0", "dilation1", "dilation2", "low0", "low1", "low2",
    # strides in elements
    "xs_batch", "xs_channel", "xs0", "xs1", "xs2", "ys_batch", "ys_channel", "ys0", "ys1", "ys2",
    "ws_outer", "ws_inner", "ws0", "ws1", "ws2",
    # tiles: of columns and rows, how many, and how many elements of K are one part of a sum (of
    # places: whether weights are packed ahead)
    "columns", "rows", "column_tiles", "row_tiles", "part", "parts",
)  # fmt: skip
_NUMBER = {name: i for i, name in enumerate(SIZES)}
_SIZE = re.compile(r"\$(\w+)")
_NAME = re.compile(r"@(\w+)@")

PASSES = {
    "places": (
        text.IMAGE,
        text.GATHER,
        pairs.WINDOWS,
        text.DESTINATION,
        text.PHASE,
        text.PANEL,
        text.BEFORE,
        text.PLACES,
    ),
    "panels": (text.IMAGE, text.DESTINATION, text.PHASE, text.PANEL, text.BEFORE, text.PANELS),
    "weight": (text.IMAGE, text.GATHER, text.SUMS, text.WEIGHT),
    "parts": (text.SUMS, text.PARTS),
    "winograd": (
        winograd.BITS,
        winograd.GEOMETRY,
        winograd.FACTORS,
        winograd.GATHER,
        winograd.TILES,
    ),
    "winograd_gradient": (
        winograd.BITS,
        winograd.GEOMETRY,
        winograd.GATHER,
        winograd.WEIGHT,
    ),
    "winograd_weights": (winograd.BITS, winograd.GEOMETRY, winograd.FACTORS, winograd.PACK),
    "depthwise": (text.IMAGE, text.DESTINATION, text.PHASE, depthwise.PLANE, depthwise.ROWS),
    "depthwise_weight": (text.IMAGE, depthwise.PLANE, depthwise.WEIGHT),
}
_MULTIPLY = ("places", "weight", "winograd", "winograd_gradient")
_LANES = 16  # sums of a tap of a depthwise gradient, whatever the vector width
_TAPS = 9  # of a depthwise gradient summed at a time


def spelled(text: str, names: dict[str, str]) -> str:
    """C text with `$size` as the size argument and `@name@` as what the names say."""
    text = _SIZE.sub(lambda found: f"n[{_NUMBER[found[1]]}]", text)
    return _NAME.sub(lambda found: names[found[1]], text)


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of the kernel.

    Settings: "pass", "gradient" (of places: of the input), "stored" (element type of the operands),
    "result" (of the results).
    """
    stored, which = str(kernel.setting("stored")), str(kernel.setting("pass"))
    plain = Micro.of("f64" if stored == "f64" else "f32", target)
    of_pairs = stored == "bf16"
    micro = Pairs.for_target(target) if of_pairs else plain
    names = _names(kernel, micro) | {"turn": plain.packing_name(plain.kind) + "_turn"}
    gathering = names | (pairs.halves(micro.columns, target) if of_pairs else {})
    by_channels = pairs.BY_CHANNELS_OF_PAIRS if of_pairs else pairs.BY_CHANNELS
    gathering["by_channels"] = spelled(by_channels, gathering)
    parts = [micro.text()] if which in _MULTIPLY else []
    if parts or which in ("winograd_weights", "panels"):
        parts.append(plain.packing(plain.kind))
        if of_pairs:
            parts.append(micro.packing(stored))
    if which in ("places", "winograd"):
        parts.append(_narrow(micro))
    if kernel.body:
        parts.append(print_epilogue(kernel, target))
    for part in PASSES[which]:
        gathers = part in (text.IMAGE, text.GATHER, pairs.WINDOWS)
        chosen = pairs.OF_PAIRS.get(part, part) if of_pairs else part
        parts.append(spelled(chosen, gathering if gathers else names))
    return "".join(parts)


def _names(kernel: Kernel, micro: Micro) -> dict[str, str]:
    """What the names in the texts stand for."""
    stored, which = str(kernel.setting("stored")), str(kernel.setting("pass"))
    vector = f"{micro.kind}x{micro.lanes}"
    names = {
        "K": micro.kind,
        "T": MEMORY_KIND[stored] + "x1",
        "O": MEMORY_KIND[str(kernel.setting("result"))] + "x1",
        "P": micro.packed,
        "G": str(micro.group),
        "groups": "depth" if micro.group == 1 else "((depth + 1) / 2)",
        "V": vector,
        "storem": f"fb_storem_{vector}",
        "L": str(micro.lanes),
        "W": str(micro.columns),
        "R": str(micro.rows),
        "CHUNK": str(CHUNK),
        "chain": str(text.CHAIN),
        "out": "3" if which == "places" else "2",
        "fb": SYMBOL,
        "micro": micro.name,
        "pack": micro.packing_name(stored),
        "arguments": ARGUMENTS,
        "gradient": "1" if kernel.setting("gradient") else "0",
        "fused": "1" if kernel.body else "0",
        "channels": "1" if dict(kernel.settings).get("channels") else "0",
        "turned": "1" if dict(kernel.settings).get("turned") else "0",
        "epilogue": EPILOGUE,
        "bit_load": _bit_load(micro),
        "load": _masked_load(micro),
        "even": ", ".join(str(2 * i) for i in range(micro.lanes)),
        "runs": "8",
        "wide": str(int(micro.masks)),
        "masked": f"{SYMBOL}_masked",
        "backward": "1" if kernel.setting("gradient") and which == "depthwise" else "0",
        "nine": _nine(vector),
        "spread": _spread(micro),
        **_sums(micro),
        **winograd.choices(vector, micro.lanes),
    }
    names["read"] = spelled(names["read"], names)
    names["direct"] = _direct(which, micro, names) if which.startswith("depthwise") else ""
    return names


def _direct(which: str, micro: Micro, names: dict[str, str]) -> str:
    """The functions that read windows from the image itself: none where lanes are not masked."""
    if not micro.masks:
        return ""
    widths = direct.widths(micro.kind, micro.lanes, micro.target)
    of_width = {
        "depthwise": (direct.PHASES if int(names["gradient"]) else "", direct.PLANE),
        "depthwise_weight": (),
    }[which]
    parts = [direct.MASKS]
    for width in widths.values():
        parts += [spelled(part, names | width) for part in (direct.LANES, *of_width)]
    if which == "depthwise_weight":
        for lanes in (8, _LANES):
            vector = min(lanes, micro.lanes)
            texts = direct.sums(micro.kind, vector, lanes)
            given = names | widths[vector] | {"lanes": str(lanes)}
            unrolled = {name: spelled(part, given) for name, part in texts.items()}
            parts.append(spelled(direct.SUMS, given | unrolled))
    elif int(names["gradient"]):
        parts.append(direct.WHOLE)
    return spelled("".join(parts), names)


def _narrow(micro: Micro) -> str:
    """The micro-kernel for the last slab of a tile that has places for one vector only."""
    v, t, name = f"{micro.kind}x{micro.lanes}", f"{micro.kind}x1", f"{SYMBOL}_narrow"
    w, e = f"{micro.packed}x{micro.lanes}", f"{micro.packed}x1"
    parts = []
    heights = [h for h in micro.heights if h in (micro.rows, 4, 1)]
    for height in heights:
        sums = [f"s{i}" for i in range(height)]
        lines = [
            f"static void {name}_{height}(long long width, long long depth, const {e} *a, "
            f"const {e} *b, {t} *c, long long c_step, long long accumulate) {{",
            f"  {v} {', '.join(f'{s} = {{0}}' for s in sums)};",
            f"  for (long long k = 0; k < depth; ++k, a += width, b += {micro.columns}) {{",
            f"    const {w} x = *(const {w} *)b;",
            *[
                f"    {s} = {micro.chained(micro.splat(f'a[{i}]'), 'x', s)};"
                for i, s in enumerate(sums)
            ],
            "  }",
        ]
        for i, s in enumerate(sums):
            place = f"*({v} *)(c + {i} * c_step)"
            lines.append(f"  if (accumulate) {s} = {place} + {s};")
            lines.append(f"  {place} = {s};")
        parts.append("\n".join([*lines, "}"]) + "\n")
    calls = [
        f"  for (; left >= {h}; left -= {h}, a += {h}, c += {h} * c_step)\n"
        f"    {name}_{h}(width, depth, a, b, c, c_step, accumulate);"
        for h in heights
    ]
    head = (
        f"static void {name}(long long width, long long depth, const {e} *a, const {e} *b, "
        f"{t} *c, long long c_step, long long accumulate) {{\n  long long left = width;"
    )
    return "".join([*parts, "\n".join([head, *calls, "}"]), "\n"])


def _nine(v: str) -> str:
    """Six rows of a band, each of which is tap row k of the result row so many steps before."""
    lines = []
    for step in range(6):
        lines.append("  {")
        lines.append(f"    long long u = {SYMBOL}_min(start ? 5 - {step} : {step}, last) * pitch;")
        lines.append(f"    x0 = *(const {v} *)(c0 + u);")
        lines.append(f"    x1 = *(const {v} *)(c1 + u);")
        lines.append(f"    x2 = *(const {v} *)(c2 + u);")
        for k in range(3):
            if 0 <= step - k < 4:
                a = f"a{step - k}"
                lines += [f"    {a} = fb_fma_{v}(w[{3 * k + x}], x{x}, {a});" for x in range(3)]
        lines.append("  }")
    return "\n".join(lines)


def _sums(micro: Micro) -> dict[str, str]:
    """The unrolled parts of the sums of a depthwise gradient of the weight."""
    v, lanes = f"{micro.kind}x{micro.lanes}", micro.lanes
    parts = range(_LANES // lanes)
    names = {(e, h): f"s{e}_{h}" for e in range(_TAPS) for h in parts}

    def step(left: str, right: str) -> list[str]:
        lines = [f"        const {v} g{h} = {left.format(at=h * lanes)};" for h in parts]
        for (e, h), name in names.items():
            value = right.format(tap=e, at=h * lanes)
            lines.append(f"        {name} = fb_fma_{v}(g{h}, {value}, {name});")
        return lines

    def full(pointer: str) -> str:
        return f"*(const {v} *)({pointer} + {{at}})"

    def partial(pointer: str) -> str:
        left = f"{SYMBOL}_min({lanes}, m - {{at}})"
        return f"{SYMBOL}_load({pointer} + {{at}}, 0, m > {{at}} ? {left} : 0)"

    run = "line + offsets[{tap}]"
    lines = [
        f"      {micro.kind}x1 turned[{_LANES}];",
        f"      const {micro.kind}x1 *of = left;",
        "      if (column != 1) {",
        "        for (long long l = 0; l < m; ++l) turned[l] = left[l * column];",
        "        of = turned;",
        "      }",
        f"      if (m == {_LANES}) {{",
        *step(full("of"), full(run)),
        "      } else {",
        *step(partial("of"), partial(run)),
        "      }",
    ]
    return {
        "lanes": str(_LANES),
        "block": str(_TAPS),
        "declare": f"  {v} {', '.join(f'{x} = {{0}}' for x in names.values())};",
        "step": "\n".join(lines),
        "save": "\n".join(_saved(v, lanes, parts)),
    }


def _saved(v: str, lanes: int, parts: range) -> list[str]:
    """Statements that add the lanes of every sum pairwise: those far apart first."""
    lines = []
    for e in range(_TAPS):
        rest = [f"s{e}_{h}" for h in parts]
        while len(rest) > 1:
            half = len(rest) // 2
            lines += [f"  {a} = {a} + {b};" for a, b in zip(rest[:half], rest[half:])]
            rest = rest[:half]
    step = lanes // 2
    while step:
        order = ", ".join(str((lane + step) % lanes) for lane in range(lanes))
        for e in range(_TAPS):
            lines.append(f"  s{e}_0 = s{e}_0 + ({v})FB_SHUFFLE({v}, s{e}_0, {order});")
        step //= 2
    return [*lines, *(f"  sums[{e}] = s{e}_0[0];" for e in range(_TAPS))]


def _spread(micro: Micro) -> str:
    """Statements that write lanes of `x` two apart where the target can."""
    kind, lanes, v = micro.kind, micro.lanes, f"{micro.kind}x{micro.lanes}"
    store = micro.target.instruction("store", kind, lanes)
    if store is None or not micro.masks:
        return ""
    lines = ["  const unsigned m = (1u << 2 * (count - 1)) * 2 - 1;"]
    for half in (0, 1):
        order = ", ".join(str(half * lanes // 2 + i // 2) for i in range(lanes))
        bits = f"(0x55555555u & m){f' >> {lanes}' if half else ''}"
        to, value = f"(to + {half * lanes})", f"FB_SHUFFLE({v}, x, {order})"
        lines.append(f"  {store(p=to, v=value, bits=bits)};")
    return "\n".join([*lines, "  return;"])


def _bit_load(micro: Micro) -> str:
    """The function that reads the lanes whose bits are set, where the target has such a thing."""
    load, v = (
        micro.target.instruction("load", micro.kind, micro.lanes),
        f"{micro.kind}x{micro.lanes}",
    )
    if load is None or not micro.masks:
        return ""
    return (
        f"static inline FB_ALWAYS {v} {SYMBOL}_masked(const {micro.kind}x1 *from, "
        f"unsigned long long inside) {{\n  return ({v})"
        f"{load(p='from', other='{0}', bits='inside')};\n}}\n"
    )


def _masked_load(micro: Micro) -> str:
    """Statements that return the lanes of `from` in [first, last), the others zero."""
    kind, lanes, v = micro.kind, micro.lanes, f"{micro.kind}x{micro.lanes}"
    if micro.masks:
        bounds = f"(u{lanes}x1)(((1u << last) - 1u) & ~((1u << first) - 1u))"
        return f"  return {SYMBOL}_masked(from, {bounds});"
    plain = (
        f"  union {{ {v} v; {kind}x1 t[{lanes}]; }} u = {{ ({v}){{0}} }};\n"
        f"  for (int l = 0; l < {lanes}; ++l) if (l >= first && l < last) u.t[l] = from[l];\n"
        "  return u.v;\n"
    )
    integer = f"i{kind_bits(kind)}"
    here = f"({integer}x{lanes}){{{', '.join(map(str, range(lanes)))}}}"
    inside = f"({here} >= ({integer}x1)first) & ({here} < ({integer}x1)last)"
    operands = {"p": "from", "inside": f"({integer}x{lanes})({inside})"}
    return micro.target.spelled("between", kind, lanes, f"return ({v}){{}};", plain, **operands)
