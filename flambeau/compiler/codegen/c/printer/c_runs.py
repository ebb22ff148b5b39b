"""Runs of vectors along which comparisons of indices do not change.

A rolled, padded or concatenated operand is a choice between loads, by a comparison of r with an
edge. Only the vector that an edge falls into has lanes of both kinds. All others come in runs:
there such a comparison is one scalar, computed once per run, and the choice is one of pointers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flambeau.compiler.codegen.c.printer.c_index import index_difference
from flambeau.ir import size as sizes
from flambeau.ir.kernel import LOAD
from flambeau.ir.node import Node, node, topological
from flambeau.ir.size import Size
from flambeau.ir.spelling import spelling_of

EDGES_LIMIT = 6  # more edges leave few vectors between them
# Opposites of comparisons, and where their results change as left - right grows: at 0, behind it.
_COMPARISONS = {
    "lt": ("ge", (0,)), "ge": ("lt", (0,)), "le": ("gt", (1,)), "gt": ("le", (1,)),
    "eq": ("ne", (0, 1)), "ne": ("eq", (0, 1)),
}  # fmt: skip


def edges_of(comparison: Node) -> list[Size] | None:
    """The values of r from which on a comparison of indices has another result; None if it is no
    such comparison, or r has another factor than 1 and -1."""
    compared = index_difference(comparison, 1)
    split = None if compared is None else sizes.affine_in(compared[0], ("r",))
    if split is None or split[0].get("r") not in (1, -1):
        return None
    zero = sizes.mul(-split[0]["r"], split[1])  # where both sides are equal
    _, steps = _COMPARISONS[comparison.op]
    if split[0]["r"] == -1:
        steps = tuple([1 - step for step in reversed(steps)])
    return [sizes.add(zero, step) for step in steps]


def find_edges(roots: Iterable[Node]) -> dict[Node, list[Size]]:
    """The comparisons with edges that choose what is loaded; none if there are too many edges."""
    masks = [
        value
        for value in topological(roots)
        if LOAD.matches(value) and value.attribute("masked", False)
    ]
    conditions = topological([load.inputs[-1] for load in masks])
    compared = {value: edges_of(value) for value in conditions}
    edges = {value: several for value, several in compared.items() if several is not None}
    distinct = {edge for several in edges.values() for edge in several}
    return edges if len(distinct) <= EDGES_LIMIT else {}


def opposite(comparison: Node) -> Node | None:
    """The comparison that is true where this one is false; None for other values, and floats."""
    facts = _COMPARISONS.get(comparison.op)
    if facts is None or comparison.inputs[0].dtype[0] == "f":
        return None
    return node(facts[0], comparison.inputs, (), "bool")


def conjuncts(mask: Node) -> Sequence[Node]:
    """The conditions that a mask is the conjunction of."""
    if spelling_of(mask.op).conjoins and mask.dtype == "bool":
        return [*conjuncts(mask.inputs[0]), *conjuncts(mask.inputs[1])]
    return [mask]


def sources(value: Node, facts: frozenset[Node] = frozenset()) -> list[Node] | None:
    """The loads that a value is a choice of, and the choices, if each load is chosen only where
    its mask is true: `facts` are conditions that hold where the value is chosen. Else None."""
    if LOAD.matches(value):
        masked = value.attribute("masked", False)
        inside = not masked or facts.issuperset(conjuncts(value.inputs[-1]))
        return [value] if inside and len(value.inputs) == masked else None
    if not spelling_of(value.op).selects:
        return None
    condition, first, second = value.inputs
    left = sources(first, facts | {*conjuncts(condition)})
    against = opposite(condition)
    right = sources(second, facts if against is None else facts | {against})
    return None if left is None or right is None else [*left, *right, value]
