"""How index expressions run along the lanes of a vector.

A vector covers r, r + 1, .., r + count - 1 with r a multiple of count. So `r // 64` is the same in
all lanes and `r % 64` grows by one, and an index made of them still addresses memory in order.
"""

from __future__ import annotations

from flambeau.ir.kernel import CONST, INDEX
from flambeau.ir.node import Node
from flambeau.ir.size import Size, SizeExpr, affine_in, free_symbols, sub
from flambeau.ir.size_core import from_terms, terms_of
from flambeau.ir.spelling import spelling_of

NEAR = 1 << 20  # differences are clamped to this before they are compared lane by lane


def lane_step(a: Size, count: int) -> Size | None:
    """Returns the step of an index from lane to lane; None if it is not one number.

    Args:
        a: an expression of r.
        count: lanes; r is a multiple of it.
    """
    if "r" not in free_symbols(a):
        return 0
    total: Size = 0
    for monomial, number in terms_of(a).items():
        inside = [atom for atom in monomial if "r" in free_symbols(atom)]
        if not inside:
            continue
        steps = [_atom_step(atom, count) for atom in inside]
        if any(step is None for step in steps):
            return None
        if any(steps):
            if len(inside) > 1:
                return None
            others = from_terms({tuple(x for x in monomial if x is not inside[0]): number})
            total = total + others
    return total


def _atom_step(atom: SizeExpr, count: int) -> int | None:
    if atom.kind == "symbol":
        return 1  # r itself
    if all(lane_step(operand, count) == 0 for operand in atom.operands):
        return 0
    first, second = atom.operands[0], atom.operands[-1]
    multiple = isinstance(second, int) and second % count == 0
    if atom.kind in ("floordiv", "mod") and multiple and _is_r(first, count):
        return 0 if atom.kind == "floordiv" else 1
    return None


def _is_r(a: Size, count: int) -> bool:
    """Whether an expression is r plus a multiple of the lane count."""
    split = affine_in(a, ("r",))
    if split is None or split[0].get("r") != 1:
        return False
    return all(number % count == 0 for number in terms_of(split[1]).values())


def index_difference(node: Node, count: int) -> tuple[Size, int] | None:
    """For a comparison of two indices: (left - right, what that grows by from lane to lane)."""
    if not spelling_of(node.op).compares:
        return None
    left, right = (_index_of(operand) for operand in node.inputs)
    if left is None or right is None:
        return None
    difference = sub(left, right)
    step = lane_step(difference, count)
    if not isinstance(step, int) or abs(step) * count >= NEAR:
        return None
    return difference, step


def _index_of(node: Node) -> Size | None:
    if INDEX.matches(node) and not node.inputs:
        index: Size = node.attribute("expression")
        return index
    if CONST.matches(node) and node.dtype == "i64":
        return int(node.attribute("value"))
    return None
