"""Products' kernels: the values that their `.c.in` files are filled in with.

The sum over K has the canonical order (docs/design.md): chunks of 128 of K, each a chain of FMAs
from +0 in increasing k, added in increasing order to the sum of a segment of 2048 of K; sums of
segments are added in increasing order. Nothing else decides about bits: not M, N, the batch,
strides, tiles, threads or the instruction set. Settings and arguments: `templates/product.py`; how
they are chosen is told by `schedule/product.py`.

A chunk of a "product" is one tile of the result. Its sums stay in scratch, in the nearest caches,
over all of K; then each row goes to the epilogue. Operands that several tiles share are packed
before; otherwise a tile packs its own part of A, and B slab by slab, or reads either in place: rows
of A, or columns if they are short, and rows of B. Up to `FEW` rows are sums of whole rows of B, or
of columns that are transposed in registers: then reading B is all the work. Up to `THIN` rows read
several packed slabs of B at a time.
"""

from __future__ import annotations

from dataclasses import replace

from flambeau.compiler.codegen.c.kernels.c_few_bytes import few_bytes
from flambeau.compiler.codegen.c.kernels.c_few_rows import few_rows
from flambeau.compiler.codegen.c.kernels.c_interface import complete
from flambeau.compiler.codegen.c.kernels.c_micro import Micro, listed
from flambeau.compiler.codegen.c.kernels.c_micro_pairs import Pairs, Quads, narrowing
from flambeau.compiler.codegen.c.printer.c_epilogue import print_epilogue
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND
from flambeau.compiler.codegen.c.printer.c_values import c_expression
from flambeau.compiler.codegen.c.template import Value, render
from flambeau.compiler.targets import Target
from flambeau.compiler.templates import TEMPLATES
from flambeau.compiler.templates.product import (
    FEW_LONG,
    PITCH,
    SEGMENT,
    THIN,
    PackSettings,
    ProductSettings,
)
from flambeau.compiler.templates.tile import VECTORS
from flambeau.ir.kernel import Kernel, Pass
from flambeau.ir.size import Size, affine_in, free_symbols

SHORT = 8  # k, or groups of them, of all slabs that are packed together
SHALLOW = 16  # k: up to so many, packing a slab of B takes as long as its sums
NEAREST = 16384  # bytes of A between its first and last element that the nearest cache holds
PAGE = 4096  # bytes: lines so far apart share a set of the nearest cache
_NARROWED = ("i8", "u8", "i16", "f16", "bf16")  # results that are rounded on the way to memory


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of the kernel."""
    tiles = kernel.template == "product"
    texts = _Tiles(kernel, target).texts() if tiles else _packing(kernel, target)
    return complete(TEMPLATES[kernel.template].of(kernel, target), *texts)


def _dimensions(batch: int) -> dict[str, Value]:
    """The loops over batch dimensions; those but the first, the innermost first."""
    return {
        "batched": batch > 0,
        "dimensions": range(batch),
        "inner_dimensions": range(batch - 1, 0, -1),
    }


def _packing(kernel: Kernel, target: Target) -> list[str]:
    """The texts of "product_pack": slabs of B, or panels of A."""
    settings = PackSettings.of(kernel)
    swapped, micro = settings.unit == "swapped", Micro.of(settings.kind, target, settings.planes)
    if settings.unit == "dot":
        micro = Pairs.for_target(target)
    elif settings.unit == "quads":
        micro = Quads.for_packing(settings.flipped, target)
    names: dict[str, Value] = {
        "T": f"{MEMORY_KIND[settings.stored]}x1",
        "pack": micro.packing_name(settings.stored, left=settings.flipped),
        "planes": settings.planes,
        "even": 2 if swapped else micro.group,  # ranges of k do not part groups
        "SHORT": SHORT * micro.group,
    }
    shared = micro.names | _dimensions(settings.batch)
    return [micro.packing(settings.stored, swapped), render("product/operand", names, shared)]


class _Tiles:
    """Prints a kernel "product": the product and its epilogue, tile by tile."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.settings = settings = ProductSettings.of(kernel)
        self.destination = self._destination()
        micro = Micro.of(settings.kind, target, settings.planes)
        if settings.unit == "dot":
            micro = Pairs.for_target(target)
        elif settings.unit == "quads":
            micro = Quads.for_operands(settings.a, settings.b, settings.result, target)
        self.micro = replace(micro, staged=True, rounded=self._rounded())

    def texts(self) -> list[str]:
        """The texts, callees first."""
        settings, micro = self.settings, self.micro
        swapped, names = settings.unit == "swapped", self._names()
        parts = [*self._finish(), micro.text()]
        for dtype in dict.fromkeys((settings.a, settings.b)):
            parts.append(micro.packing(dtype, swapped))
        if settings.takes_rows:
            width = self.target.vector_bytes
            copied: dict[str, Value] = {"bytes": width, "bits": f"u32x{width // 4}"}
            parts.append(render("product/copy", copied, micro.names))
        if settings.few_rows and settings.unit == "quads":
            parts.append(few_bytes(settings.a, settings.b, settings.result))
        elif settings.few_rows:
            parts.append(few_rows(micro, settings.a, self.target))
        parts += [render(f"product/{file}", {}, names) for file in ("place", "sums")]
        if names["stored"]:
            parts.append(render("product/destination", self.destination, names))
        if not names["narrow"]:
            parts.append(print_epilogue(self.kernel, self.target))
        return [*parts, render("product/tiles", {}, names)]

    def _names(self) -> dict[str, Value]:
        """The names that the texts share, beside those of the micro-kernel.

        A, B, O: elements of the operands and the result in memory; `step`: numbers of a slab per k.
        """
        settings, micro, planes = self.settings, self.micro, self.settings.planes
        quads, several = settings.unit == "quads", bool(self.destination)
        stores_sums = several and settings.result == settings.kind
        narrow = several and settings.result in _NARROWED
        return {
            **micro.names,
            **_dimensions(settings.batch),
            "A": MEMORY_KIND[settings.a],
            "B": MEMORY_KIND[settings.b],
            "O": MEMORY_KIND[settings.result],
            "planes": planes,
            "step": micro.columns * planes,
            "complex": planes == 2,
            "exchangeable": settings.a == settings.b,
            "few_rows": settings.few_rows,
            "few_transposed": FEW_LONG if quads else self.target.gemv_transposed,
            "slabs": settings.few_rows and not quads,
            "side": 0 if quads else THIN,
            "in_place": settings.reads_in_place,
            "takes_rows": settings.takes_rows,
            "lies": settings.takes_rows and not quads,
            "segments": settings.segments,
            "stored": stores_sums or narrow,
            "stores_sums": stores_sums,
            "narrow": narrow,
            "chunk": micro.chunk,
            "next": micro.chunk // micro.group,
            "parts": -(-micro.rows * planes // micro.lanes),  # of a panel, a vector per k each
            "pack_a": micro.packing_name(settings.a, left=True),
            "pack_b": micro.packing_name(settings.b),
            "FEW_LONG": FEW_LONG,
            "PITCH": PITCH,
            "SEGMENT": SEGMENT,
            "VECTORS": VECTORS,
            "PAGE": PAGE,
            "LINE": PAGE // 4,
            "NEAREST": NEAREST,
            "SHALLOW": SHALLOW,
            "single": int(micro.group == 1),
            "halves": (micro.rows + 2) // 2 in micro.heights and micro.rows > 2,
        }

    def _rounded(self) -> str:
        """The half type that micro-kernels round sums to, where that is an instruction."""
        settings = self.settings
        native = self.target.instruction("to_half", "f32", 16) is not None
        cheap = settings.result == "f16" and native and settings.unit == "plain"
        suits = cheap or (settings.result == "bf16" and settings.unit == "dot")
        return settings.result if suits and self.destination else ""

    def _destination(self) -> dict[str, Value]:
        """Buffer, row stride and start of the only store, where it is of the results themselves;
        else nothing."""
        (statement,) = self.kernel.body
        assert isinstance(statement, Pass)
        if len(statement.stores) != 1:
            return {}
        parameter, position, value = statement.stores[0]
        row = f"p{self.settings.batch}"
        affine = affine_in(position, (row, "r"))
        if value.op != "k.kept" or affine is None or affine[0].get("r") != 1:
            return {}
        sizes: tuple[Size, Size] = affine[0].get(row, 0), affine[1]
        used = sorted({name for size in sizes for name in free_symbols(size) if name[0] == "n"})
        return {
            "parameter": parameter,
            "row_step": c_expression(sizes[0]),
            "start": c_expression(sizes[1]),
            "numbers": [name[1:] for name in used],
        }

    def _finish(self) -> list[str]:
        """A row of sums becomes one of the result's dtype."""
        settings, lanes = self.settings, self.micro.lanes
        result, convert, texts = settings.result, "", []
        if result == "bf16" and settings.unit == "dot":
            texts, convert = [narrowing(self.target)], "fb_kernel_round"
        elif result in ("f16", "bf16"):
            convert = f"fb_to{result}_u16x{lanes}"
        elif result in _NARROWED:
            convert = f"fb_to_{result}x{lanes}"
        names: dict[str, Value] = {
            "O": MEMORY_KIND[result],
            "complex": settings.planes == 2,
            "convert": convert,
            "low": listed(i // 2 + lanes * (i % 2) for i in range(lanes)),
            "high": listed((lanes + i) // 2 + lanes * (i % 2) for i in range(lanes)),
        }
        return [*texts, render("product/finish", names, self.micro.names)]


__all__ = ["print_template"]
