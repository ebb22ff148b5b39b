"""How target languages write pointwise primitives: each record's `spelling`, as printers see it.

A primitive is one record in `flambeau.prims`; registering it fills `SPELLINGS`, as it fills
`graph_grammar.TYPE_RULES`. This module must not know any primitive.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

# Rough length of the code of one vector, in instructions; decides whether loops are unrolled.
ONE, FEW, MANY = 1, 2, 64


class Spelling(NamedTuple):
    """How one pointwise primitive is written.

    A template per class of the first operand's dtype ("f" float, "i" integer, "b" bool mask, "c"
    complex bits; that of `where` goes by its result). In it {a} {b} {c} are operands, {V} the
    result's C type, {A} the first operand's, {I} its signed integer type, {L} "x<lanes>". A
    template that begins with "?" gives a mask as wide as its first operand; the printer widens it.

    Attributes:
        c: templates of C.
        exact: results on half types need no rounding.
        length: rough length of the code, in instructions of a vector.
        compares: whether it orders its operands.
        converts: whether its result is its operand in another dtype.
    """

    c: Mapping[str, str] = MappingProxyType({})
    exact: bool = False
    length: int = MANY
    compares: bool = False
    converts: bool = False

    @property
    def moves(self) -> bool:
        """Whether it computes nothing: bits are selected, or taken for another type's."""
        return not self.c or self.selects

    @property
    def selects(self) -> bool:
        """Whether it selects the bits of one of its operands, by another one."""
        return "c" in self.c

    @property
    def conjoins(self) -> bool:
        """Whether its result on masks is that all of its operands are true."""
        return self.c.get("b") == "({a} & {b})"

    @property
    def is_operator(self) -> bool:
        """Whether C has an operator for it on floats."""
        return "f" in self.c and "(" not in self.c["f"]


def spelled(exact: bool = False, length: int = MANY, **c: str) -> Spelling:
    """A `Spelling` with templates per dtype class: `spelled(f="{a} / {b}", length=FEW)`."""
    return Spelling(c, exact, length)


def spelling_of(name: str) -> Spelling:
    """How a primitive is written; of what is none, nothing."""
    return SPELLINGS.get(name, BY_PRINTER)


def function(name: str, operands: int = 1, exact: bool = False, length: int = MANY) -> Spelling:
    """A call of the C library's `fb_<name>` on floats."""
    arguments = ", ".join(("{a}", "{b}", "{c}")[:operands])
    return Spelling({"f": f"fb_{name}_{{A}}({arguments})"}, exact, length)


# Left to the printers, which look at more than operands: conversions, parts of complex numbers.
BY_PRINTER = Spelling()

SPELLINGS: dict[str, Spelling] = {}
