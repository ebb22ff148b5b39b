"""The declarations of a target: registers, tile sizes, and the C of its instructions.

A target is one module beside this one that builds `Target` objects from numbers and tables. The
text of kernels exists once, in C with vector extensions; where a target declares an instruction,
the text uses it, and the portable spelling otherwise. Both give the same bits.

An instruction is C text over named operands, written `$name`. These are the operations that texts
look for, by kind of element and number of lanes:

    fma a b c · sqrt a · rint, floor, ceil, trunc a · min, max a b (b if one is NaN)
    select mask a b      per lane; "loop": a loop over the lanes compiles to the instruction
    any mask             whether a bit is set
    bits mask active     the signs of the lanes as a number, of those in `active`
    load p other bits    lanes whose bits are set, `other` in the rest, which are not read
    store p v bits       lanes whose bits are set
    between p inside     lanes whose mask `inside` is set, zero in the rest, which are not read
    widen a              float32 as float64
    from_half, to_half a float16 to float32 and back
    dot_pairs a b c      statement: adds the products of pairs of bfloat16 to c, the odd one first
    dot_quads a b c      statement: adds the products of fours of bytes, b unsigned, a signed, to c
    narrow a y           statement: float32 as bfloat16, unless `narrow_fails`
    narrow_fails a       a number, not zero where `narrow` does not round as this project does
    below a limit        a bit per lane that is below a number
    concat a b           one vector of two of half its lanes, which are in memory
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# No contraction of a*b + c and no errno (the promise about numbers); wrapping integers; buffers of
# one memory are read as several types. Stack protectors and unwind tables only cost time here.
COMMON_FLAGS = (
    "-O2",
    "-fPIC",
    "-std=gnu11",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-flax-vector-conversions",
    "-fno-strict-aliasing",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
)
# Flags of GCC only. Equal functions of two kernels of a unit are not merged: the merged function
# is called from both, not inlined, and a kernel's speed would depend on its neighbours.
GCC_FLAGS = ("-fno-ipa-icf",)


class Instruction(NamedTuple):
    """The C spelling of an instruction.

    Attributes:
        text: an expression or a statement over `$operands`.
        gcc: whether only GCC compiles it; other compilers take the portable spelling.
        extension: the processor's flag in /proc/cpuinfo, where not all machines of the target have
            the instruction.
    """

    text: str
    gcc: bool = True
    extension: str = ""

    def __call__(self, **operands: str) -> str:
        """The text with these operands."""
        import string  # here: who reads stored plans loads targets, too, and prints nothing

        return string.Template(self.text).substitute(operands)


Table = Mapping[tuple[str, str, int], Instruction]


class Fused(NamedTuple):
    """Limits of a kernel that several small independent ones become.

    Attributes:
        buffers: that it uses at most.
        work: its estimated time at most, in nanoseconds, where it has reductions.
        map_work: likewise where it has none; 0: launches cost less.
    """

    buffers: int = 48
    work: int = 300
    map_work: int = 0


class Target:
    """One instruction set.

    Args:
        name: the value of FLAMBEAU_TARGET that selects it.
        vector_bytes: width of a vector register.
        heights: rows of the tiles of products that have code of their own, the largest first: it
            uses all but a few registers.
        complex_heights: likewise of complex numbers.
        gemv_heights: likewise of products with few rows; the first is how many share one reading
            of the right operand.
        gemv_transposed: rows up to which a right operand whose columns are contiguous is
            transposed in registers instead of packed.
        flags: compiler flags that select it.
        machines: `os.uname().machine` of the machines that run it; none: all.
        features: flags in /proc/cpuinfo that it takes.
        masks: whether loads and stores of whole registers may leave lanes out at no cost.
        fused: limits of kernels that several small independent ones become.
        table: instructions by operation, kind and lanes.
    """

    def __init__(
        self,
        name: str,
        vector_bytes: int,
        heights: tuple[int, ...],
        complex_heights: tuple[int, ...],
        gemv_heights: tuple[int, ...],
        gemv_transposed: int,
        flags: tuple[str, ...] = (),
        machines: tuple[str, ...] = (),
        features: frozenset[str] = frozenset(),
        masks: bool = False,
        fused: Fused | None = None,
        table: Table | None = None,
    ) -> None:
        self.name = name
        self.vector_bytes = vector_bytes
        self.heights = heights
        self.complex_heights = complex_heights
        self.gemv_heights = gemv_heights
        self.gemv_transposed = gemv_transposed
        self.flags = flags
        self.machines = machines
        self.features = features
        self.masks = masks
        self.fused = fused or Fused()
        self.table = table or {}

    def lanes(self, element_bytes: int) -> int:
        """Lanes of a vector whose largest element has this size: 4, 8 or 16."""
        return max(4, min(16, self.vector_bytes // max(element_bytes, 4)))

    def instruction(self, operation: str, kind: str, lanes: int) -> Instruction | None:
        """The instruction for an operation on `<kind>x<lanes>`, if the target declares one."""
        return self.table.get((operation, kind, lanes))

    def spelled(
        self, operation: str, kind: str, lanes: int, statement: str, portable: str, **operands: str
    ) -> str:
        """Lines of C: a statement with the instruction in place of `{}`, or the portable lines
        where the target or the compiler does not have it."""
        instruction = self.instruction(operation, kind, lanes)
        if instruction is None:
            return portable
        native = f"  {statement.replace('{}', instruction(**operands))}\n"
        return (
            f"#ifndef __clang__\n{native}#else\n{portable}#endif\n" if instruction.gcc else native
        )

    def masks_lanes(self, kind: str, lanes: int) -> bool:
        """Whether loads and stores of such a vector may leave lanes out at no cost."""
        return self.masks and int(kind[1:]) * lanes == 8 * self.vector_bytes

    @property
    def gcc_flags(self) -> tuple[str, ...]:
        """Flags that other compilers do not have."""
        return GCC_FLAGS

    @property
    def all_flags(self) -> tuple[str, ...]:
        """Every compiler flag that changes code."""
        return COMMON_FLAGS + GCC_FLAGS + self.flags


__all__ = ["COMMON_FLAGS", "GCC_FLAGS", "Fused", "Instruction", "Table", "Target"]
