"""Sums of gradients of a tensor's disjoint parts, as the parts joined.

`split` and `unbind` give every part of their operand to a result of its own, so the operand's
gradient is a sum of parts padded with zeros. Of n parts that would be n sums over the whole tensor,
and a part's negative zeros would become positive ones; joined, it is one copy.
"""

from __future__ import annotations

from flambeau import prims
from flambeau.ir.environment import less
from flambeau.ir.node import Node
from flambeau.ir.size import Size, known_equal, known_less
from flambeau.prims.common import is_constant


def join_parts(value: Node) -> Node:
    """`value`, or the same gradient as a `cat` where it is a sum of disjoint padded parts."""
    terms = _terms(value)
    if len(terms) < 2:
        return value
    dimension = _common_dimension(terms)
    if dimension is None:
        return value
    for ordered in (terms, terms[::-1]):
        pieces = _pieces(ordered, dimension)
        if pieces is not None:
            return prims.cat(pieces, dimension)
    return value


def _terms(value: Node) -> list[Node]:
    """The padded parts of a sum; nothing where a summand is anything else."""
    terms: list[Node] = []
    while value.op == "add" and value.inputs[1].op == "pad":
        terms.append(value.inputs[1])
        value = value.inputs[0]
    terms.append(value)
    return terms if all(t.op == "pad" and is_constant(t.inputs[1], 0) for t in terms) else []


def _common_dimension(terms: list[Node]) -> int | None:
    """The one dimension in which all terms are padded."""
    padded = {
        d
        for term in terms
        for d, (low, high) in enumerate(
            zip(term.attribute("low"), term.attribute("high"), strict=True)
        )
        if not (low == 0 and high == 0)
    }
    return padded.pop() if len(padded) == 1 else None


def _pieces(terms: list[Node], dimension: int) -> list[Node] | None:
    """The parts in this order with zeros between them; None where they overlap."""
    pieces: list[Node] = []
    end: Size = 0
    for term in terms:
        start, part = term.attribute("low")[dimension], term.inputs[0]
        if not _fill(pieces, part, dimension, end, start):
            return None
        pieces.append(part)
        end = start + part.shape[dimension]
    return pieces if _fill(pieces, part, dimension, end, terms[0].shape[dimension]) else None


def _fill(pieces: list[Node], like: Node, dimension: int, end: Size, start: Size) -> bool:
    """Zeros from `end` to `start`; False where a part would begin before the last one ends."""
    if known_equal(end, start) is True:
        return True
    if known_less(start, end) is True or less(start, end):
        return False
    if less(end, start):
        shape = (*like.shape[:dimension], start - end, *like.shape[dimension + 1 :])
        pieces.append(prims.full(0, shape, like.dtype))
    return True
