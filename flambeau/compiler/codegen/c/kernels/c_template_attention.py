"""Attention's kernels: the values that their `.c.in` files are filled in with.

The canonical order of a row (docs/design.md): keys in blocks of `KEYS`, blocks in segments of
`SEGMENT` keys. A score is the canonical product over the head's size. A block has its maximum m,
weights exp(score - m) and their sum: key i adds to lane i mod 16, the lanes end by the tree 8, 4,
2, 1; its product with the values is one chain of FMAs from +0 per element. What came before in the
segment is scaled by exp(old m - new m) in the FMA that adds the block; segments are joined in the
same way. A block that a row does not see changes none of its bits, so it may be skipped.

Tiles have queries along the lanes: scores [key][query], sums of values [d][query]. Every matrix
product runs in the micro-kernels of `c_micro`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from flambeau.compiler.codegen.c.kernels.c_attention_keys import block_names, part_bytes
from flambeau.compiler.codegen.c.kernels.c_interface import complete
from flambeau.compiler.codegen.c.kernels.c_micro import CHUNK, Micro, packing
from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.codegen.c.printer.c_types import (
    HALVES,
    MEMORY_KIND,
    kind_bits,
    signed_kind,
)
from flambeau.compiler.codegen.c.template import Value, render
from flambeau.compiler.targets import Target
from flambeau.compiler.templates import TEMPLATES
from flambeau.compiler.templates.attention import (
    BITS,
    DEPTH,
    DRAWN,
    KEYS,
    LANES,
    ROWS,
    SEGMENT,
    STATE,
    TOGETHER,
    AttentionSettings,
    pitch,
)
from flambeau.ir.kernel import Kernel
from flambeau.ir.size import stringify, symbol

# Blocks of keys that memory is prefetched before their use: for one row, which waits for memory,
# and for several, which compute for longer and then find nothing on its way.
AHEAD, AHEAD_TOGETHER = 1, 4


class _Printer:
    """Prints the kernels of some settings."""

    def __init__(self, settings: AttentionSettings, target: Target) -> None:
        self.settings, self.target = settings, target
        self.stored, self.masked = settings.dtype, bool(settings.mask)
        self.micro = Micro.of(settings.kind, target, vectors=settings.vectors)
        self.names = self._names()
        self.render: Callable[[str, Mapping[str, Value]], str] = partial(render, common=self.names)

    def _names(self) -> dict[str, Value]:
        """The names that the texts share.

        T, V: a number that is computed with, and a vector of N of them; I1, I: integers of the
        same width; M, W: an element in memory, and N of them; C, R: columns and rows of a tile.
        """
        settings, micro = self.settings, self.micro
        kind, lanes, memory = micro.kind, micro.lanes, MEMORY_KIND[self.stored]
        half = self.stored if self.stored in HALVES else ""
        vectors = [(w, w * lanes) for w in range(micro.columns // lanes)]
        return {
            "T": f"{kind}x1",
            "V": f"{kind}x{lanes}",
            "I": f"{signed_kind(kind)}x{lanes}",
            "I1": f"{signed_kind(kind)}x1",
            "M": f"{memory}x1",
            "W": f"{memory}x{lanes}",
            "MASK": f"{MEMORY_KIND[settings.mask]}x1" if self.masked else "",
            "N": lanes,
            "C": micro.columns,
            "R": micro.rows,
            "lanes": range(lanes),
            "vectors": vectors,
            "SIGN": kind_bits(kind) - 1,
            "CHUNK": CHUNK,
            "KEYS": KEYS,
            "SEGMENT": SEGMENT,
            "LANES": LANES,
            "TILES": settings.tiles,
            "BITS": BITS,
            "DRAWN": DRAWN,
            "TOGETHER": TOGETHER,
            "micro": micro.name,
            "pack": micro.packing_name(self.stored),
            "pack_computed": micro.packing_name(kind),
            "half": half,
            "bf16": half == "bf16",
            "decode": f"fb_from{half}_u16x{lanes}" if half else "",
            "decode_one": f"fb_from{half}_u16x1" if half else "",
            "encode": f"fb_to{half}_{kind}x{lanes}" if half else "",
            "infinity": "__builtin_inff()" if kind == "f32" else "__builtin_inf()",
            "masked": self.masked,
            "dropout": settings.dropout,
            "vector_bytes": 4 * lanes,
            "statistics": tuple(enumerate(("top", "sum", "lse"))),
        }

    # ------------------------------------------------------------------------- kernels

    def attention(self) -> list[str]:
        """Texts of the forward kernel."""
        return [*self._tile(), self.render("attention", {})]

    def attention_backward(self) -> list[str]:
        """Texts of the backward kernel."""
        blocks: dict[str, Value] = {"ROWS": ROWS, "DEPTH": DEPTH}
        return [*self._tile(), self.render("attention_backward", blocks)]

    def attention_decode(self) -> list[str]:
        """Texts of the kernel for few queries."""
        lanes, stream = self.micro.lanes, self.micro.kind == "f32"
        keys = block_names(self.settings.dtype, lanes, self.target)
        paired = [range(half * lanes // 2, (half + 1) * lanes // 2) for half in (0, 1)]
        low, high = (", ".join(f"{i}, {i + lanes}" for i in half) for half in paired)
        names: dict[str, Value] = {
            "stream": stream,
            "AHEAD": AHEAD,
            "AHEAD_TOGETHER": AHEAD_TOGETHER,
            "WIDE": part_bytes(lanes) * 8 // kind_bits(MEMORY_KIND[self.stored]),
            "pitch": stringify(pitch(symbol("width"), self.micro.columns), "c"),
            "low_order": low,
            "high_order": high,
            "value_sums": [self._value_sums(unit) for unit in (1, TOGETHER)],
        }
        packs = [self.micro.text(), self.micro.packing(self.stored), *self._mask()]
        streams = [self.render("attention_keys", keys)] if stream else []
        return [*packs, *streams, self.render("attention_decode", names)]

    def attention_join(self) -> list[str]:
        """Texts of the kernel that joins segments."""
        return [self.render("attention_join", {})]

    # ------------------------------------------------------------------------- parts

    def _tile(self) -> list[str]:
        """Micro-kernels, the packing of operands, of computed values and of the mask; tiles."""
        texts = [self.micro.text(), self.micro.packing(self.stored)]
        if self.stored != self.micro.kind:
            texts.append(self.micro.packing(self.micro.kind))
        texts += [*self._mask(), self.render("attention_tile", {})]
        if self.settings.dropout:
            nbytes = self.target.vector_bytes
            names: dict[str, Value] = {
                "compared": self._compared(nbytes // 8),
                "vector_bytes": nbytes,
                "each": nbytes // 4,
                "STATE": STATE,
                "ROWS": self.settings.dropout,
            }
            texts.append(self.render("attention_dropout", names))
        return texts

    def _compared(self, lanes: int) -> str:
        """A bit per draw of the vector `t` that is below `limit`."""
        below = self.target.instruction("below", "u64", lanes)
        if below is not None:
            return below(a="t", limit="limit")
        return " | ".join(f"((long long)t[{i}] < limit) << {i}" for i in range(lanes))

    def _mask(self) -> list[str]:
        """`fb_kernel_mask` packs the mask."""
        if not self.masked:
            return []
        boolean = self.settings.mask == "bool"
        decoder = f"{SYMBOL}_bias_x" if boolean else ""  # 0 where True, else -inf: added to scores
        text = packing(self.micro, f"{SYMBOL}_mask", self.settings.mask, decoder=decoder)
        if not boolean:
            return [text]
        kind, integer = self.micro.kind, signed_kind(self.micro.kind)
        counts = (1, self.micro.lanes)
        masks = [(f"{kind}x{n}", f"{integer}x{n}", n, int(n > 1)) for n in counts]
        return [self.render("attention_mask", {"masks": masks}), text]

    def _value_sums(self, unit: int) -> Value:
        """Sums of values of `unit` rows: loops over several vectors of values. Two vectors of
        bfloat16 are those of even and of odd elements, without moves."""
        lanes, bits = self.micro.lanes, kind_bits(MEMORY_KIND[self.stored])
        stepped = unit > 1 and bits >= 32
        spans = []
        for count in (8, 4, 2, 1) if unit == 1 else (4, 2, 1):
            both = self.stored == "bf16" and count > 1
            span = count * lanes
            sums = [(r, j, j * lanes) for r in range(unit) for j in range(count)]
            prefetches = range(0, span, 512 // bits) if unit > 1 and not stepped else ()
            loads = []
            for i in range(0, count, 1 + both):
                uses = [(r, j) for r in range(unit) for j in range(i, i + 1 + both)]
                loads.append((i, i + 1, i * lanes, int(both), uses))
            spans.append((span, sums, prefetches, range(unit), loads))
        return unit, int(stepped), spans


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of the kernel."""
    printer = _Printer(AttentionSettings.of(kernel), target)
    texts: list[str] = getattr(printer, kernel.template)()
    return complete(TEMPLATES[kernel.template].of(kernel, target), *texts)


__all__ = ["print_template"]
