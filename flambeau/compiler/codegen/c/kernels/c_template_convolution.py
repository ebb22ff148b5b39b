"""Convolutions' kernels: the values that their `.c.in` files are filled in with.

Convolutions are implicit products: the matrix of windows exists only as a tile in cache.

    places   out[o, place] = sum over (c, tap) of weight[o, (c, tap)] * window[(c, tap), place]:
             convolutions, and gradients of the input. Those are convolutions of the gradient, one
             per phase of the strides, with the taps that meet this phase.
    weight   dw[o, (c, tap)] = sum over places of dy[o, place] * window[(c, tap), place].

A chunk of the launch is a tile of results. For 128 elements of K at a time the windows of the tile
are gathered from the image in whole vectors, the other operand is packed as for a product, and the
micro-kernels of `c_micro` do the rest: the sum's order is that of a product over the same K. What
lies outside of the image is zero. Operands stored as bfloat16 are multiplied by pairs, into sums of
float32: windows are gathered as they are, 32 numbers to a vector, then two rows of windows,
neighbours along K, become one row of pairs; weights are packed by pairs.

Groups of one channel (`depthwise`) are rows times numbers. A band of rows of one channel is copied
with its zeros around it, columns apart by their remainder of the stride: every tap of a row of
places reads a run of memory. 3 x 3 windows are read from the image itself where the target masks
lanes (`direct_*`), with the same sums in the same order.

Winograd's algorithm F(2x2, 3x3) (Winograd 1980; Lavin & Gray 2016): four results of a square of
2 x 2 places need 16 products instead of 36. A square of 4 x 4 elements of the image and the 3 x 3
weights are each transformed into 16 numbers by additions and halvings, these are multiplied and
summed over the channels, and the 16 sums are added up to the four results:

    x:  (d0 - d2, d1 + d2, d2 - d1, d1 - d3)           along both axes of a square
    w:  (g0, (g0 + g2 + g1) / 2, (g0 + g2 - g1) / 2, g2)
    y:  (m0 + m1 + m2, m1 - m2 - m3)

A result that is not finite is computed again as the plain sum: infinite elements give infinite
results. The sum over channels is chained by 32, which bounds the error by that of the plain sum.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.compiler.codegen.c.kernels.c_interface import complete
from flambeau.compiler.codegen.c.kernels.c_micro import CHUNK, Micro
from flambeau.compiler.codegen.c.kernels.c_micro_pairs import Pairs
from flambeau.compiler.codegen.c.printer.c_epilogue import print_epilogue
from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND, kind_bits
from flambeau.compiler.codegen.c.template import Value, render
from flambeau.compiler.targets import Target
from flambeau.compiler.templates import TEMPLATES
from flambeau.compiler.templates.convolution import (
    CHAIN,
    SQUARES,
    SQUARES_CHAIN,
    ConvolutionSettings,
)
from flambeau.ir.kernel import Kernel

# The files of each kernel, in order.
_IMAGE = ("convolution/image", "convolution/gather", "convolution/windows")
_PLACES = ("convolution/result", "convolution/phase")
_WEIGHTS = ("convolution/panel", "convolution/before")
_FILES = {
    "convolution": (*_IMAGE, *_PLACES, *_WEIGHTS, "convolution/places"),
    "convolution_panels": (_IMAGE[0], *_PLACES, *_WEIGHTS, "convolution/panels"),
    "convolution_weight": (*_IMAGE[:2], "convolution/sums", "convolution/weight"),
    "convolution_parts": ("convolution/sums", "convolution/parts"),
    "convolution_winograd": (
        "winograd/geometry", "winograd/weights", "winograd/gather", "winograd/squares",
    ),
    "convolution_winograd_gradient": ("winograd/geometry", "winograd/gather", "winograd/gradient"),
    "convolution_winograd_factors": ("winograd/geometry", "winograd/weights", "winograd/pack"),
    "convolution_depthwise": (
        _IMAGE[0], *_PLACES, "convolution/band", "convolution/depthwise_taps", "direct",
        "convolution/depthwise",
    ),
    "convolution_depthwise_weight": (
        _IMAGE[0], "convolution/band", "direct_sums", "convolution/depthwise_weight",
    ),
}  # fmt: skip
_MULTIPLIES = {
    "convolution", "convolution_weight", "convolution_winograd", "convolution_winograd_gradient",
}  # fmt: skip
_PACKS = _MULTIPLIES | {"convolution_winograd_factors", "convolution_panels"}
_GATHERS = frozenset(_IMAGE)
_LANES = 16  # sums of a tap of a depthwise gradient, whatever the vector width
_TAPS = 9  # of a depthwise gradient summed at a time
# Loops of the texts: counts, and the six rows of a band of 3 x 3 windows with the result rows, and
# rows of taps, that each of them meets.
_LOOPS: dict[str, Value] = {
    "two": range(2),
    "three": range(3),
    "four": range(4),
    "steps": [(step, [(step - k, k) for k in range(3) if 0 <= step - k < 4]) for step in range(6)],
}


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of the kernel."""
    return _Printer(kernel, target).text()


class _Printer:
    """Prints a kernel."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.settings = ConvolutionSettings.of(kernel)
        self.plain = Micro.of(self.settings.kind, target)
        self.micro = Pairs.for_target(target) if self.settings.pairwise else self.plain
        self.names = self._names()

    def text(self) -> str:
        """C text."""
        name, plain, micro = self.kernel.template, self.plain, self.micro
        parts = [micro.text()] if name in _MULTIPLIES else []
        if name in _PACKS:
            parts.append(plain.packing(plain.kind))
            if self.settings.pairwise:
                parts.append(micro.packing(self.settings.stored))
        if name in ("convolution", "convolution_winograd"):
            parts.append(self._narrow())
        if self.settings.fused:
            parts.append(print_epilogue(self.kernel, self.target))
        for file in _FILES[name]:
            parts += self._file(file)
        return complete(TEMPLATES[name].of(self.kernel, self.target), *parts)

    def _file(self, file: str) -> Iterator[str]:
        if file == "direct":
            yield from self._direct()
        elif file == "direct_sums":
            yield from self._direct_sums()
        elif file in _GATHERS and self.settings.pairwise:
            yield render(file, {}, self.names | self._pair_names())
        elif file == "convolution/depthwise_weight":
            yield render(file, self._sums(), self.names)
        else:
            yield render(file, {}, self.names)

    def _names(self) -> dict[str, Value]:
        """The names that the texts share.

        K: kind of sums; V: a vector of L of them; T, O: an operand's and a result's element in
        memory; P, Q: a packed element, and L of them, of which one has G elements of K; W, R:
        columns and rows of a tile.
        """
        settings, micro = self.settings, self.micro
        lanes, v = micro.lanes, f"{micro.kind}x{micro.lanes}"
        masks, gradient, channels = micro.masks, settings.gradient, settings.channels
        fused, transposed = settings.fused, settings.turned
        depthwise = self.kernel.template == "convolution_depthwise"
        interleaved = [str(i // 2 + lanes * (i % 2)) for i in range(2 * lanes)]
        return {
            "K": micro.kind,
            "T": MEMORY_KIND[settings.stored] + "x1",
            "O": MEMORY_KIND[settings.result] + "x1",
            "P": micro.packed,
            "Q": f"{micro.packed}x{lanes}",
            "G": micro.group,
            "groups": "depth" if micro.group == 1 else "((depth + 1) / 2)",
            "V": v,
            "storem": f"fb_storem_{v}",
            "L": lanes,
            "W": micro.columns,
            "R": micro.rows,
            "CHUNK": CHUNK,
            "chain": CHAIN,
            "chain_of_squares": SQUARES_CHAIN,
            "block_of_squares": SQUARES,
            "runs": 8,
            "lanes": _LANES,
            "block": _TAPS,
            "micro": micro.name,
            "chained": micro.chain,
            "pack": micro.packing_name(settings.stored),
            "turn": self.plain.packing_name(self.plain.kind) + "_turn",
            "result": "0" if fused else "p->result",
            "gradient": int(gradient),
            "fused": int(fused),
            "plain": int(not fused),
            "channels": int(channels),
            "transposed": int(transposed),
            "squares": int(transposed or (channels and not fused)),
            "channel_results": int(channels and not fused),
            "runs_of_results": int(fused and not transposed),
            "masks": int(masks),
            "masked_gradient": int(masks and gradient),
            "by_channels": int(masks and channels),
            "backward": int(gradient and depthwise),
            "pairs": int(settings.pairwise),
            "load": self._instruction("load", p="from", other="{0}", bits="inside"),
            "store": "",
            "first_pairs": "",
            "last_pairs": "",
            "between": self._between(),
            "spreads": self._spreads(),
            "even": ", ".join(str(2 * i) for i in range(lanes)),
            "odd": ", ".join(str(2 * i + 1) for i in range(lanes)),
            "first": ", ".join(interleaved[:lanes]),
            "second": ", ".join(interleaved[lanes:]),
            **_LOOPS,
        }

    def _instruction(self, operation: str, kind: str = "", lanes: int = 0, **operands: str) -> str:
        """The target's spelling for its vectors, or others; "" if it does not mask lanes."""
        if not self.micro.masks:
            return ""
        kind, lanes = kind or self.micro.kind, lanes or self.micro.lanes
        instruction = self.target.instruction(operation, kind, lanes)
        assert instruction is not None
        return instruction(**operands)

    def _pair_names(self) -> dict[str, Value]:
        """Returns the names of gathered vectors whose elements are half as wide as sums."""
        lanes = self.micro.columns
        orders = [
            ", ".join(str(first + i // 2 + lanes * (i % 2)) for i in range(lanes))
            for first in (0, lanes // 2)
        ]
        load = self._instruction("load", "u16", lanes, p="from", other="{0}", bits="inside")
        store = self._instruction("store", "u16", lanes, p="to", v="x", bits="(1u << m) - 1u")
        return {
            "K": "u16",
            "V": f"{SYMBOL}_row",
            "L": lanes,
            "storem": f"{SYMBOL}_row_store",
            "load": load,
            "store": store,
            "even": ", ".join(str(2 * i) for i in range(lanes)),
            "first_pairs": orders[0],
            "last_pairs": orders[1],
        }

    def _between(self) -> str:
        """The expression that reads lanes [first, last), if the target has one."""
        kind, lanes = self.micro.kind, self.micro.lanes
        instruction = self.target.instruction("between", kind, lanes)
        if instruction is None:
            return ""
        integer = f"i{kind_bits(kind)}"
        here = f"({integer}x{lanes}){{{', '.join(map(str, range(lanes)))}}}"
        inside = f"({here} >= ({integer}x1)first) & ({here} < ({integer}x1)last)"
        return instruction(p="from", inside=f"({integer}x{lanes})({inside})")

    def _spreads(self) -> list[str]:
        """Statements that write the lanes of `x` two apart."""
        lanes, v, stores = self.micro.lanes, f"{self.micro.kind}x{self.micro.lanes}", []
        for half in (0, 1):
            order = ", ".join(str(half * lanes // 2 + i // 2) for i in range(lanes))
            bits = f"(0x55555555u & m){f' >> {lanes}' if half else ''}"
            value = f"FB_SHUFFLE({v}, x, {order})"
            stores.append(
                self._instruction("store", p=f"(to + {half * lanes})", v=value, bits=bits)
            )
        return stores

    def _narrow(self) -> str:
        """The micro-kernel for the last slab of a tile that has places for one vector only."""
        micro, heights = self.micro, []
        for height in micro.heights:
            if height in (micro.rows, 4, 1):
                heights.append((height, range(height)))
        return render("convolution/narrow", {"heights": heights}, self.names)

    def _sums(self) -> dict[str, Value]:
        """The loops of the sums of a depthwise gradient of the weight. The lanes of every sum are
        added pairwise: those far apart first."""
        lanes = self.micro.lanes
        vectors = [(h, h * lanes) for h in range(_LANES // lanes)]
        joined, count = [], len(vectors)
        while count > 1:
            count //= 2
            joined += [
                (f"s{e}_{h}", f"s{e}_{h + count}") for e in range(_TAPS) for h in range(count)
            ]
        folded, step = [], lanes // 2
        while step:
            order = ", ".join(str((lane + step) % lanes) for lane in range(lanes))
            folded += [(e, order) for e in range(_TAPS)]
            step //= 2
        return {
            "vectors": vectors,
            "sums": [(e, h, at) for e in range(_TAPS) for h, at in vectors],
            "joined": joined,
            "folded": folded,
            "block_taps": range(_TAPS),
        }

    # ------------------------------------------------------------------------- direct windows

    def _widths(self) -> dict[int, dict[str, Value]]:
        """The names of a vector width, by lanes: 8, and those of a register. Functions that end in
        a number of lanes exist once for each."""
        widths: dict[int, dict[str, Value]] = {}
        kind = self.micro.kind
        for n in sorted({8, self.micro.lanes}):
            steps = range(n)
            widths[n] = self.names | {
                "N": f"{kind}x{n}",
                "n": n,
                "part": self._instruction("load", kind, n, p="from", other="{0}", bits="inside"),
                "keep": self._instruction("store", kind, n, p="to", v="value", bits="inside"),
                "low": ", ".join(str(i // 2 + i % 2 * n) for i in steps),
                "high": ", ".join(str((n + i) // 2 + i % 2 * n) for i in steps),
                "even": ", ".join(str(2 * i) for i in steps),
                "odd": ", ".join(str(2 * i + 1) for i in steps),
            }
        return widths

    def _direct(self) -> Iterator[str]:
        """The functions that read windows from the image itself, where lanes are masked."""
        if not self.micro.masks:
            return
        yield render("convolution/direct_masks", {}, self.names)
        phases = ("convolution/direct_phases",) if self.settings.gradient else ()
        for names in self._widths().values():
            for file in ("convolution/direct_lanes", *phases, "convolution/direct_rows"):
                yield render(file, {}, names)
        if phases:
            yield render("convolution/direct_whole", {}, self.names)

    def _direct_sums(self) -> Iterator[str]:
        """Likewise the sums of gradients of the weight: of rows of 8 lanes, and of 16."""
        if not self.micro.masks:
            return
        yield render("convolution/direct_masks", {}, self.names)
        widths = self._widths()
        for names in widths.values():
            yield render("convolution/direct_lanes", {}, names)
        for lanes in (8, _LANES):
            vector = min(lanes, self.micro.lanes)
            names = widths[vector] | {"lanes": lanes}
            yield render("convolution/direct_sums", _direct_loops(vector, lanes), names)


def _direct_loops(vector: int, lanes: int) -> dict[str, Value]:
    """The loops of the sums of `lanes` lanes, in registers of `vector` of them.

    At the end the lanes of all sums are added pairwise, those far apart first: lanes of two sums
    share a register after every step. What rows of at most 8 elements would have in lanes from 8 on
    is left out: they are zeros, and totals that begin at zero never differ in a zero's sign.
    """
    vectors = [(h, h * vector) for h in range(lanes // vector)]
    products = [[(3 * k + t, h, t) for h, _ in vectors for t in range(3)] for k in range(3)]
    tests = ("i < rows", "i > 0 && i <= rows", "i > 1")
    joined = [(f"s{e}_0", f"s{e}_1") for e in range(_TAPS)] if lanes == 2 * vector else []
    folded, sums, live = [], [f"s{e}_0" for e in range(_TAPS)], vector
    while live > 1:
        half, firsts = live // 2, sums[::2]
        low, high = (
            ", ".join(str(lane // half * live + lane % half + side) for lane in range(vector))
            for side in (0, half)
        )
        last = len(sums) - 1
        folded += [(a, sums[min(2 * i + 1, last)], low, high) for i, a in enumerate(firsts)]
        sums, live = firsts, half
    return {
        "vectors": vectors,
        "sums": [(e, h) for e in range(_TAPS) for h, _ in vectors],
        "kernel_rows": [(k, int(k > 0), products[k]) for k in range(3)],
        "gradient_rows": list(zip(tests, "gpq", products)),
        "joined": joined,
        "folded": folded,
        "saved": [(i * vector, name) for i, name in enumerate(sums)],
    }


__all__ = ["print_template"]
