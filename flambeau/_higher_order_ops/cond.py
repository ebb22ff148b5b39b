"""`torch.cond`: one of two functions, chosen by a condition on data."""

from __future__ import annotations

import flambeau as torch
from flambeau._higher_order_ops import operators
from flambeau._higher_order_ops.flat import Flat, Function, Value
from flambeau.ir.failure import failure
from flambeau.runtime.symbolic import is_symbolic
from flambeau.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = ["cond", "cond_op"]

cond_op = operators.cond


def cond(pred: Value, true_fn: Function, false_fn: Function, operands: Value = ()) -> Value:
    """Calls one of two functions.

    Only the branch that is taken runs, as ordinary code: gradients of any order, effects and
    further calls follow. `make_fx` records a node with a graph for each branch. Under `vmap` a
    condition that differs between samples computes both branches and selects.

    Args:
        pred: a bool, a number, or a tensor of one element.
        true_fn, false_fn: called where it is true, or not.
        operands: their arguments: a tuple of tensors, or of containers of tensors.

    Raises:
        RuntimeError: `pred` is something else, or an argument is none of these; under `make_fx`,
            if results of the branches differ in number, shape or dtype.

    Example:
        >>> torch.cond(torch.tensor(True), torch.sin, torch.cos, (torch.zeros(1),))
        tensor([0.])
    """
    if not isinstance(operands, (tuple, list)) or not all(
        isinstance(leaf, torch.Tensor) for leaf in tree_leaves(operands)
    ):
        problem = (
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists "
            f"of tensor leaves, but got {operands}."
        )
        raise failure(RuntimeError, "cond", problem, "(x,); other values from a closure")
    tensor = isinstance(pred, torch.Tensor) or is_symbolic(pred)
    if not tensor or operators.recording() is None:
        return operators.cond.run(pred, true_fn, false_fn, operands)
    leaves, spec = tree_flatten(tuple(operands))
    branches = [Flat(function, spec) for function in (true_fn, false_fn)]
    results = operators.cond(pred, *branches, leaves)
    specs = [branch.spec for branch in branches if branch.spec is not None]
    if len({str(spec) for spec in specs}) > 1:
        problem = f"true_fn returns {specs[0]}, false_fn {specs[1]}"
        raise failure(RuntimeError, "cond", problem, "return equal containers from both")
    return tree_unflatten(list(results), specs[0])
