"""Every prefix of a first axis combined, in a number of steps that grows with its logarithm.

Blelloch, "Prefix sums and their applications", 1990.
"""

from __future__ import annotations

from collections.abc import Callable

import flambeau as torch
from flambeau._higher_order_ops.flat import Value

Combine = Callable[[list[Value], list[Value]], list[Value]]


def prefixes(combine: Combine, xs: list[Value]) -> list[Value]:
    """Combines neighbours, then the prefixes of these pairs, then what is between.

    Args:
        combine: of two lists of tensors whose first axes count pairs; associative.
        xs: tensors of equal first axes.
    """
    length = len(xs[0])
    if length < 2:
        return xs
    pairs = combine([x[: length - 1 : 2] for x in xs], [x[1::2] for x in xs])
    odd = prefixes(combine, pairs)
    first = [x[:1] for x in xs]
    if length == 2:
        return [_interleave(e, o) for e, o in zip(first, odd, strict=True)]
    before = [x[:-1] for x in odd] if length % 2 == 0 else odd
    even = combine(before, [x[2::2] for x in xs])
    even = [torch.cat([x, e]) for x, e in zip(first, even, strict=True)]
    return [_interleave(e, o) for e, o in zip(even, odd, strict=True)]


def _interleave(even: Value, odd: Value) -> Value:
    shape = odd.shape[1:]
    both = torch.stack([even[: len(odd)], odd], 1).reshape(2 * len(odd), *shape)
    return both if len(even) == len(odd) else torch.cat([both, even[len(odd) :]])
