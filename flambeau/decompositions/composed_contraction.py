"""The composition of `einsum`: batches of products over labelled dimensions; see `composites`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flambeau.decompositions.composites import composes, reshape
from flambeau.ops import aten

Tensor = Any


@composes("_einsum")
def _einsum(equation: str, tensors: Sequence[Tensor]) -> Tensor:
    text = equation.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if not arrow:
        letters = inputs.replace(",", "")
        output = "".join(sorted(s for s in set(letters) if letters.count(s) == 1))
    if "." in text or any(len(set(term)) < len(term) for term in (*terms, output)):
        return NotImplemented
    if len(terms) == 1:
        return NotImplemented
    order = output + "".join(sorted(set("".join(terms)) - set(output)))
    operands = [_aligned(x, term, order) for x, term in zip(tensors, terms, strict=True)]
    last = {s: k for k, term in enumerate(terms) for s in term}
    result = operands[0]
    output_rank = len(output)
    alone = [d for d in range(output_rank, len(order)) if last[order[d]] == 0]
    if alone:
        result = aten.sum(result, alone, True)
    for k, operand in enumerate(operands[1:], 1):
        sums = [d for d in range(output_rank, len(order)) if last[order[d]] == k]
        result = _paired(result, operand, sums) if sums else aten.mul(result, operand)
    if len(order) > output_rank:
        result = reshape(result, tuple(result.shape[:output_rank]))
    return result


def _aligned(x: Tensor, term: str, order: str) -> Tensor:
    """An operand with a dimension for every label, in their order."""
    places = list(term)
    for label in order:
        if label not in places:
            x = aten.unsqueeze(x, len(places))
            places.append(label)
    return aten.permute(x, [places.index(label) for label in order])


def _paired(a: Tensor, b: Tensor, sums: list[int]) -> Tensor:
    """Two operands multiplied and summed over dimensions, which remain with size 1."""
    for d in list(sums):
        if (a.shape[d] == 1) != (b.shape[d] == 1):
            sums.remove(d)
            if a.shape[d] == 1:
                b = aten.sum(b, [d], True)
            else:
                a = aten.sum(a, [d], True)
    both, left, right = [], [], []
    for d in range(a.ndim):
        if d in sums:
            continue
        if a.shape[d] != 1 and b.shape[d] != 1:
            both.append(d)
        elif a.shape[d] != 1:
            left.append(d)
        else:
            right.append(d)
    batch, rows = _count(a, both), _count(a, left)
    middle, columns = _count(a, sums), _count(b, right)
    first = reshape(aten.permute(a, both + left + sums + right), (batch, rows, middle))
    second = reshape(aten.permute(b, both + sums + right + left), (batch, middle, columns))
    product = aten.bmm(first, second)
    sizes = [a.shape[d] for d in both + left] + [1] * len(sums) + [b.shape[d] for d in right]
    places = both + left + sums + right
    return aten.permute(aten.view(product, tuple(sizes)), [places.index(d) for d in range(a.ndim)])


def _count(x: Tensor, dims: list[int]) -> int:
    return math.prod(x.shape[d] for d in dims)
