"""`torch.while_loop`: a function repeated as long as a condition on data holds."""

from __future__ import annotations

from flambeau._higher_order_ops import operators
from flambeau._higher_order_ops.flat import Flat, Function, Value
from flambeau.ir.failure import failure
from flambeau.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["while_loop", "while_loop_op"]

while_loop_op = operators.while_loop


def while_loop(cond_fn: Function, body_fn: Function, carried_inputs: Value) -> tuple[Value, ...]:
    """Calls a function of its own results as long as another one returns True.

    It runs as a loop of Python; gradients go through all rounds. `make_fx` records one node with a
    graph for each function.

    Args:
        cond_fn: of the carried values: a bool, or a tensor of one element.
        body_fn: of the carried values: the next ones, of equal shapes and dtypes.
        carried_inputs: the first ones: a tuple of tensors, numbers, or containers of them.

    Returns:
        The carried values for which `cond_fn` is False.

    Raises:
        RuntimeError: the arguments are of other types, or `cond_fn` returns another type.
        UncapturedHigherOrderOpError: shapes or dtypes change from round to round.

    Example:
        >>> torch.while_loop(lambda i: i < 3, lambda i: (i + 1,), (torch.tensor(0),))
        (tensor(3),)
    """
    if not callable(cond_fn) or not callable(body_fn):
        problem = "Expect cond_fn and body_fn to be callable."
        raise failure(RuntimeError, "while_loop", problem, "pass two functions")
    if not isinstance(carried_inputs, (tuple, list)):
        problem = f"Expect carried_inputs to be a tuple, got {type(carried_inputs)}"
        raise failure(RuntimeError, "while_loop", problem, "(x,)")
    leaves, spec = tree_flatten(tuple(carried_inputs))

    def following(*values: Value) -> tuple[Value, ...]:
        results = body_fn(*values)
        return tuple(results) if isinstance(results, (tuple, list)) else (results,)

    def proceeds(*values: Value) -> Value:
        return cond_fn(*tree_unflatten(list(values), spec))

    results = operators.while_loop(proceeds, Flat(following, spec), tuple(leaves), ())
    values: tuple[Value, ...] = tree_unflatten(list(results), spec)
    return values
