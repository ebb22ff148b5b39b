"""Micro-kernels over groups along K: pairs of bfloat16, quads of bytes, one instruction per group.

The packed element is a `u32` that holds a whole group, the lowest k in the lowest bits, zeros
behind the end of K. `Micro.group` elements of K are one step of a chain.

*Pairs* of bfloat16, sums in float32: a chain of FMAs that takes the odd element of each pair first,
then the even one: what VDPBF16PS computes, so that machines without it get the same bits from
float32 FMAs (`Micro.packing("bf16", swapped=True)`). The instruction treats subnormal numbers as
zeros.

*Quads* of bytes, sums in int32, modulo 2^32: exact in any order, so that machines without VPDPBUSD
get the same bits from int32 products. The instruction multiplies unsigned by signed bytes. Of two
signed operands the left one is packed with 128 added, and sums start from -128 times the sum of the
right one's bytes (`biased`; `fb_kernel_start` computes them). Where only the lowest byte of a
result is kept, signs do not matter.

The interface is that of `c_micro`, with `depth`, `b_step` and `to_step` in groups; the packing
function takes `depth` in elements, all of it in whole groups but the last. Micro-kernels of biased
quads have one more argument, the sums' start: a row of `columns`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flambeau.compiler.codegen.c.kernels.c_micro import Micro, listed, transposition
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND, kind_bits
from flambeau.compiler.codegen.c.template import Value, render
from flambeau.compiler.targets.description import Target
from flambeau.compiler.templates.product import CHUNK


def statement(target: Target, operation: str, kind: str, **operands: str) -> str:
    """The C of an instruction over 16 lanes, which the target's kernels of groups rely on."""
    instruction = target.instruction(operation, kind, 16)
    assert instruction is not None
    return instruction(**operands).removesuffix(";")


def narrowing(target: Target) -> str:
    """C text of the functions that round float32 to bfloat16 where products of pairs are an
    instruction: so is this, for most numbers."""
    names: dict[str, Value] = {
        "fails": statement(target, "narrow_fails", "f32", a="x"),
        "narrow": statement(target, "narrow", "f32", a="x", y="y"),
    }
    return render("product/narrow", names)


@dataclass(frozen=True)
class Groups(Micro):
    """The base of micro-kernels over groups; see `Micro`."""

    operation = ""  # of the target: one step of a chain

    @property
    def packed(self) -> str:
        """Kind of a packed element."""
        return "u32"

    @property
    def chain(self) -> str:
        """The C function of one step of a chain."""
        return "fb_kernel_dot"

    def text(self) -> str:
        """C text of the micro-kernels, and of the function that prepares sums."""
        dot = statement(self.target, self.operation, self.kind, a="a", b="b", c="c")
        return render("product/dot", {"dot": dot}, self.names) + super().text()

    def packing(self, stored: str, swapped: bool = False) -> str:
        """C text of the packing functions: rows of groups."""
        assert not swapped
        bits = kind_bits(MEMORY_KIND[stored])
        names: dict[str, Value] = {
            "pack": Micro.packing_name(self, stored),
            "T": f"{MEMORY_KIND[stored]}x1",
            "U": f"u{bits}",
            "pairs": self.group == 2,
            "shifts": [(t, bits * t) for t in range(self.group)],
            "biased": self.starts,
            **_slab_of_pairs(),
            **_slab_of_quads(),
            **transposition(16, "f32"),
        }
        return render("product/pack_groups", names, self.names)


def _slab_of_pairs() -> dict[str, Value]:
    """Two rows of 32 columns: results and the orders of their halves."""
    orders = [[16 * half + i // 2 + 32 * (i % 2) for i in range(32)] for half in (0, 1)]
    return {"halves": [(16 * half, listed(order)) for half, order in enumerate(orders)]}


def _slab_of_quads() -> dict[str, Value]:
    """Four rows of 32 columns: bytes of two rows are interleaved, then pairs of bytes of four, all
    inside of parts of 128 bits; then whole parts are put in order."""
    twos, fours, quarters = [], [], []
    for place in (0, 1):
        for name, high in (("l", 0), ("h", 8)):
            order = [16 * p + high + i // 2 + 32 * (i % 2) for p in (0, 1) for i in range(16)]
            rows = f"r{2 * place}", f"r{2 * place + 1}"
            twos.append((f"{name}{place}", *rows, listed(order)))
    for number, (name, high) in enumerate((("l", 0), ("l", 4), ("h", 0), ("h", 4))):
        order = [8 * p + high + i // 2 + 16 * (i % 2) for p in (0, 1) for i in range(8)]
        fours.append((f"q{number}", f"{name}0", f"{name}1", listed(order)))
    for number in range(4):
        part, pair = number // 2, 2 * (number % 2)
        order = [4 * part + i % 4 + 8 * (i // 4) for i in range(8)]
        quarters.append((8 * number, f"q{pair}", f"q{pair + 1}", listed(order)))
    return {"members": range(4), "twos": twos, "fours": fours, "quarters": quarters}


@dataclass(frozen=True)
class Pairs(Groups):
    """The micro-kernels of bfloat16 pairs."""

    operation = "dot_pairs"

    @staticmethod
    def for_target(target: Target) -> Pairs:
        """The micro-kernels; the target has AVX-512 and its bfloat16 instructions."""
        return Pairs("f32", 16, target.heights, target)

    @property
    def group(self) -> int:
        """Elements of K per packed element."""
        return 2


@dataclass(frozen=True)
class Quads(Groups):
    """The micro-kernels of quads of bytes.

    Attributes:
        biased: the left operand is packed with 128 added.
        signed_left: the right operand is the unsigned one.
    """

    biased: bool = False
    signed_left: bool = False

    operation = "dot_quads"

    @staticmethod
    def for_packing(flipped: bool, target: Target) -> Quads:
        """To pack one operand; `flipped`: with 128 added. The target has AVX-512 and VPDPBUSD."""
        return Quads("i32", 16, target.heights, target, biased=flipped)

    @staticmethod
    def for_operands(a: str, b: str, result: str, target: Target) -> Quads:
        """The micro-kernels for operands of bytes."""
        wide = result == "i32"
        quads = Quads.for_packing(wide and a == b == "i8", target)
        return replace(quads, signed_left=wide and (a, b) == ("i8", "u8"))

    @property
    def group(self) -> int:
        """Elements of K per packed element."""
        return 4

    @property
    def chunk(self) -> int:
        """Elements of K of one call of the micro-kernel: integers may be summed in any order."""
        return 4 * CHUNK

    @property
    def starts(self) -> bool:
        """Whether sums have a start of their own."""
        return self.biased

    @property
    def exchanged(self) -> bool:
        """Whether the element of B, the signed one, is the first operand of a step."""
        return not self.signed_left

    def packing_name(self, stored: str, left: bool = False) -> str:
        """The packing function's name; `left`: the operand whose rows are panels."""
        return super().packing_name(stored) + ("_left" if left and self.biased else "")


__all__ = ["Groups", "Pairs", "Quads", "narrowing", "statement"]
