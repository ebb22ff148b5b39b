"""Scans by an associative function, in a number of steps that grows with the length's logarithm."""

from __future__ import annotations

from collections.abc import Callable

import flambeau as torch
from flambeau._higher_order_ops import operators
from flambeau._higher_order_ops.flat import Value
from flambeau._higher_order_ops.prefixes import prefixes
from flambeau._higher_order_ops.slices import dimension, leaves_of
from flambeau.ir.failure import failure
from flambeau.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["associative_scan", "associative_scan_op"]

associative_scan_op = operators.associative_scan


def associative_scan(
    combine_fn: Callable[[Value, Value], Value], xs: Value, dim: int, reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Value:  # fmt: skip
    """Every prefix of an axis combined, in a number of steps that grows with its logarithm.

    The numbers are those of a loop only where the function is associative in them: sums of floats
    are added in another order.

    Args:
        combine_fn: of two equal containers of tensors; associative.
        xs: the tensors.
        dim: the axis.
        reverse: suffixes instead.
        combine_mode: "generic": the function is called for a pair of slices, by `vmap`;
            "pointwise": it is elementwise, and called with all pairs at once.

    Raises:
        ValueError: another mode, no function, or axes of different lengths.
        RuntimeError: no tensors.
        UncapturedHigherOrderOpError: the function returns other containers, shapes or dtypes.

    Example:
        >>> scan = torch._higher_order_ops.associative_scan
        >>> scan(lambda a, b: a + b, torch.arange(4), 0)
        tensor([0, 1, 3, 6])
    """
    if not callable(combine_fn):
        problem = f"Combine_fn must be a callable, but got {combine_fn}"
        raise failure(ValueError, "associative_scan", problem, "a function of two slices")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', got {combine_mode}")
    leaves, spec = leaves_of("associative_scan", xs)
    dim = dimension(leaves, dim)
    if len({leaf.shape[dim] for leaf in leaves}) > 1:
        problem = f"axis {dim} has different lengths: {[tuple(x.shape) for x in leaves]}"
        raise failure(ValueError, "associative_scan", problem, "tensors of equal lengths")
    leaves = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        leaves = [leaf.flip([0]) for leaf in leaves]
    leaves = prefixes(_pairs(combine_fn, spec, combine_mode == "generic"), leaves)
    if reverse:
        leaves = [leaf.flip([0]) for leaf in leaves]
    return tree_unflatten([leaf.movedim(0, dim) for leaf in leaves], spec)


def _pairs(function: Callable[[Value, Value], Value], spec: Value, by_slice: bool) -> Value:
    """The function of all pairs of a step, as lists of leaves."""

    def combine(left: list[Value], right: list[Value]) -> list[Value]:
        first, second = tree_unflatten(left, spec), tree_unflatten(right, spec)
        if not by_slice:
            result = function(first, second)
        elif operators.recording() is None:
            result = torch.vmap(function)(first, second)
        else:
            result = _by_pair(function, left, right, spec)
        results, structure = tree_flatten(result)
        if structure != spec:
            problem = f"xs is {spec}, the function returns {structure}"
            raise operators.uncaptured("associative_scan", problem, "return one value per operand")
        operators.require_equal("associative_scan", "xs", left, results)
        return results

    return combine


def _by_pair(
    function: Callable[[Value, Value], Value], left: list[Value], right: list[Value], spec: Value
) -> Value:
    """As `torch.vmap(function)`, by calls of their own, which `make_fx` records."""
    columns = []
    for index in range(len(left[0])):
        pair = [tree_unflatten([x[index] for x in side], spec) for side in (left, right)]
        results, structure = tree_flatten(function(*pair))
        columns.append(results)
    return tree_unflatten([torch.stack(each) for each in zip(*columns, strict=True)], structure)
