"""`map`: a function of each slice along the first axis."""

from __future__ import annotations

import flambeau as torch
from flambeau._higher_order_ops import operators
from flambeau._higher_order_ops.flat import Flat, Function, Value
from flambeau._higher_order_ops.slices import leaves_of
from flambeau.ir.failure import failure
from flambeau.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["map", "map_impl"]

map_impl = operators.map_impl


def map(f: Function, xs: Value, *args: Value) -> Value:  # noqa: A001 - PyTorch's name
    """Calls a function with each slice along the first axis.

    Args:
        f: of a slice and the other arguments; returns tensors.
        xs: tensors to slice: one, or a container of some.
        args: other arguments, the same in each call.

    Returns:
        The results, stacked along a new first axis.

    Raises:
        RuntimeError: no tensors, or first axes that differ or are empty.
        UncapturedHigherOrderOpError: the function returns no tensors.

    Example:
        >>> torch._higher_order_ops.map(lambda x, y: x * y, torch.tensor([1, 2]), torch.ones(2))
        tensor([[1., 1.],
                [2., 2.]])
    """
    leaves, spec = leaves_of("map", xs)
    shapes = [leaf.shape for leaf in leaves]
    if not all(shape and shape[0] == shapes[0][0] for shape in shapes):
        problem = f"Leading dimensions of mapped xs must be consistent. Got shapes {shapes}."
        raise failure(RuntimeError, "map", problem, "one slice of each per call")
    if shapes[0][0] == 0:
        problem = "Leading dimensions of mapped xs cannot be 0."
        raise failure(RuntimeError, "map", problem, "skip the map where there is nothing to map")
    others, other_spec = tree_flatten(args)
    tensors = [value for value in others if isinstance(value, torch.Tensor)]

    def call(slices: Value, *values: Value) -> Value:
        following = iter(values)
        leaves = [next(following) if isinstance(x, torch.Tensor) else x for x in others]
        return f(slices, *tree_unflatten(leaves, other_spec))

    flat = Flat(call, tree_flatten((tree_unflatten(leaves, spec), *tensors))[1])
    return flat.structured(operators.map_impl(flat, leaves, tensors))
