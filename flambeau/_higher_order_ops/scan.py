"""`scan`: a value carried along an axis, with an output at each step."""

from __future__ import annotations

from collections.abc import Callable

from flambeau._higher_order_ops import operators
from flambeau._higher_order_ops.flat import Value
from flambeau._higher_order_ops.slices import dimension, leaves_of
from flambeau.ir.failure import failure
from flambeau.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["scan", "scan_op"]

scan_op = operators.scan


def scan(
    combine_fn: Callable[[Value, Value], tuple[Value, Value]], init: Value, xs: Value, *,
    dim: int = 0, reverse: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    """Carries a value along an axis.

    It runs as a loop of Python, so that gradients of any order are those of the loop. `make_fx`
    records one node with the graph of a step.

    Args:
        combine_fn: of the carried value and a slice: the next value, of equal shapes and dtypes,
            and an output.
        init: the first value: a tensor, or a container of some.
        xs: tensors to slice: one, or a container of some.
        dim: the axis.
        reverse: from the end.

    Returns:
        The last value, and the outputs stacked along `dim`.

    Raises:
        RuntimeError: no function, no tensors, or an axis without elements; `reverse` is no bool.
        UncapturedHigherOrderOpError: the function returns no pair, or other shapes or dtypes.

    Example:
        >>> scan = torch._higher_order_ops.scan
        >>> scan(lambda c, x: (c + x, c * x), torch.tensor(0), torch.tensor([1, 2, 3]))
        (tensor(6), tensor([0, 2, 9]))
    """
    if not callable(combine_fn):
        problem = f"Combine_fn must be a callable, but got {combine_fn}"
        raise failure(RuntimeError, "scan", problem, "a function of the carry and a slice")
    if not isinstance(reverse, bool):
        problem = f"Reverse must be a bool, but got {type(reverse)}"
        raise failure(RuntimeError, "scan", problem, "True or False")
    carries, carry_spec = tree_flatten(init)
    if not carries:
        problem = "scan() operator requires init leaves."
        raise failure(RuntimeError, "scan", problem, "a tensor; map needs no carry")
    leaves, spec = leaves_of("scan", xs)
    dim = dimension(leaves, dim)
    length = leaves[0].shape[dim]
    if not all(leaf.shape[dim] for leaf in leaves):
        problem = (
            "All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0"
        )
        raise failure(RuntimeError, "scan", problem, "skip the scan where there is nothing to scan")
    step = _Step(combine_fn, carry_spec, spec)
    if operators.recording() is None:
        order = range(length)[::-1] if reverse else range(length)
        results = operators.scan.run(step, carries, leaves, (), order, dim)
    else:
        results = _recorded(step, carries, leaves, dim, reverse)
    carry = tree_unflatten(list(results[: len(carries)]), carry_spec)
    return carry, tree_unflatten(list(results[len(carries) :]), step.outputs)


class _Step:
    """A step of a scan as a function of the leaves of its arguments.

    Args:
        function: of the carried value and a slice.
        carry: the structure of the carried value.
        xs: the structure of the slices.

    Attributes:
        outputs: the structure of the last step's output.
    """

    def __init__(self, function: Callable[[Value, Value], Value], carry: Value, xs: Value) -> None:
        self.function = function
        self.carry, self.xs = carry, xs
        self.outputs: Value = None

    def __call__(self, *leaves: Value) -> list[Value]:
        """Calls the function; returns the next carry's leaves and the output's."""
        count = self.carry.num_leaves
        result = self.function(
            tree_unflatten(list(leaves[:count]), self.carry),
            tree_unflatten(list(leaves[count:]), self.xs),
        )
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            problem = f"Expect combine_fn to return a tuple (next_carry, y) but got {result}."
            raise operators.uncaptured("scan", problem, "return two values")
        carry, spec = tree_flatten(result[0])
        if spec != self.carry:
            problem = f"init is {self.carry}, the next carry {spec}"
            raise operators.uncaptured("scan", problem, "return a carry structured like init")
        outputs, self.outputs = tree_flatten(result[1])
        return [*carry, *outputs]


def _recorded(
    step: _Step, carries: list[Value], leaves: list[Value], dim: int, reverse: bool
) -> Value:
    """As one node, which scans a first axis from its start."""

    def moved(x: Value, before: int, after: int) -> Value:
        return x if before == after else x.movedim(before, after)

    leaves = [moved(leaf, dim, 0) for leaf in leaves]
    if reverse:
        leaves = [leaf.flip([0]) for leaf in leaves]
    results = list(operators.scan(step, carries, leaves, ()))
    outputs = results[len(carries) :]
    if reverse:
        outputs = [output.flip([0]) for output in outputs]
    return [*results[: len(carries)], *(moved(output, 0, dim) for output in outputs)]
