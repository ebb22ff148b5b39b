"""Floating-point operations of products and of attention, for profiles.

A multiply-add counts twice. Attention counts the pairs of a query and a key that a causal mask
leaves, and all of them where the mask is a tensor; packing, which costs time and no operations,
counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.compiler.schedule.calls import RoutineCall
from flambeau.compiler.schedule.prepare import routine_of
from flambeau.ir.geometry import count
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, maximum, minimum, mul, prod


def count_flops(value: Node, calls: Sequence[RoutineCall]) -> None:
    """Says what the launches of an opaque value compute, where its handler did not.

    The last launch of a product is the one that computes; those before it pack.
    """
    if routine_of(value).matrices and all(call.flops == 0 for call in calls):
        calls[-1].flops = prod((2, count(value.shape), value.attribute("depth")))
    if value.attribute("causal", "none") != "none":
        first = int(value.op == "attention_backward")  # the gradient comes first
        query, key = value.attribute("shapes")[first : first + 2]
        length, keys = query[-2], key[-2]
        seen = pairs(length, keys, value.attribute("causal"))
        for call in calls:  # its handler counts every pair
            call.flops = mul(floordiv(call.flops, maximum(mul(length, keys), 1)), seen)


def pairs(length: Size, keys: Size, causal: str) -> Size:
    """Pairs of a query and a key it sees."""
    if causal == "none":
        return mul(length, keys)
    corner = minimum(length, keys)  # the diagonal's length
    beside = mul(length - corner, keys) if causal == "upper" else mul(corner, keys - corner)
    return floordiv(mul(corner, corner + 1), 2) + beside
