"""Scans by an associative function, in a number of steps that grows with the length's logarithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["associative_scan"]


def _parts(xs: Any, dim: int) -> tuple[list[Any], Any, int]:
    leaves, spec = tree_flatten(xs)
    if not leaves:
        raise RuntimeError("Expected at least 1 xs leaf\nhint: a tensor, or a container of some")
    return leaves, spec, leaves[0].shape[dim]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:  # fmt: skip
    """Every prefix of an axis combined, in a number of steps that grows with its logarithm.

    Blelloch, "Prefix sums and their applications", 1990.

    Args:
        combine_fn: of two equal containers of tensors; associative.
        xs: the tensors.
        dim: the axis.
        reverse: suffixes instead.
        combine_mode: "pointwise" or "generic": what PyTorch may assume of `combine_fn`.

    Raises:
        ValueError: another mode.

    Example:
        >>> scan = torch._higher_order_ops.associative_scan
        >>> scan(lambda a, b: a + b, torch.arange(4), 0)
        tensor([0, 1, 3, 6])
    """
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', got {combine_mode}")
    leaves, spec, _ = _parts(xs, dim)
    leaves = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        leaves = [leaf.flip(0) for leaf in leaves]

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        result = combine_fn(tree_unflatten(left, spec), tree_unflatten(right, spec))
        return list(tree_flatten(result)[0])

    leaves = _prefixes(combine, leaves)
    if reverse:
        leaves = [leaf.flip(0) for leaf in leaves]
    return tree_unflatten([leaf.movedim(0, dim) for leaf in leaves], spec)


def _prefixes(combine: Callable[[list[Any], list[Any]], list[Any]], xs: list[Any]) -> list[Any]:
    length = len(xs[0])
    if length < 2:
        return xs
    pairs = combine([x[: length - 1 : 2] for x in xs], [x[1::2] for x in xs])
    odd = _prefixes(combine, pairs)
    before = [x[:-1] for x in odd] if length % 2 == 0 else odd
    even = combine(before, [x[2::2] for x in xs])
    even = [torch.cat([x[:1], e]) for x, e in zip(xs, even, strict=True)]
    return [_interleave(e, o) for e, o in zip(even, odd, strict=True)]


def _interleave(even: Any, odd: Any) -> Any:
    shape = odd.shape[1:]
    both = torch.stack([even[: len(odd)], odd], 1).reshape(2 * len(odd), *shape)
    return both if len(even) == len(odd) else torch.cat([both, even[len(odd) :]])
