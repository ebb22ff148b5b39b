"""Floating-point operations of the primitives that are products in disguise, for profiles.

A multiply-add counts twice. Attention counts the pairs that a causal mask leaves, and all of them
where the mask is a tensor; packing, which costs time and no operations, counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.compiler.schedule.calls import RoutineCall
from flambeau.compiler.schedule.views import count
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, minimum, mul, prod


def _matmul(value: Node) -> Size:
    return prod((2, count(value.shape), value.attribute("depth")))


def _attention(value: Node) -> Size:
    """Two products forward; backward computes the weights again, and has four of its own."""
    backward = value.op == "attention_backward"
    first = int(backward)  # the gradient comes first
    query, key, given = value.attribute("shapes")[first : first + 3]
    length, keys = query[-2], key[-2]
    pairs = mul(count(query[:-2]), _pairs(length, keys, value.attribute("causal")))
    size, width = query[-1], given[-1]
    factors = 3 * size + 2 * width if backward else size + width
    return prod((2, pairs, factors))


def _pairs(length: Size, keys: Size, causal: str) -> Size:
    """Pairs of a query and a key it sees."""
    if causal == "none":
        return mul(length, keys)
    corner = minimum(length, keys)  # the diagonal's length
    beside = mul(length - corner, keys) if causal == "upper" else mul(corner, keys - corner)
    return floordiv(mul(corner, corner + 1), 2) + beside


RULES = {"matmul": _matmul, "attention": _attention, "attention_backward": _attention}


def count_flops(value: Node, calls: Sequence[RoutineCall]) -> None:
    """Says what the launches of an opaque value compute, unless its handler said so itself.

    The last launch is the one that computes; those before it pack.
    """
    rule = RULES.get(value.op)
    if rule is not None and all(call.flops == 0 for call in calls):
        calls[-1].flops = rule(value)
