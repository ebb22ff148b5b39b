"""`torch._higher_order_ops`: operators that take functions: `cond`, `while_loop`, `scan`, `map`.

They run as the Python control flow that they stand for, differentiable and inside of compiled
regions: a branch is chosen when its condition is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau._higher_order_ops.associative_scan import _parts, associative_scan
from flambeau.ir.lock import late as _late
from flambeau.runtime import missing as _missing
from flambeau.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["associative_scan", "cond", "flex_attention", "map", "scan", "while_loop"]


def _chosen(name: str, pred: Any) -> bool:
    if isinstance(pred, torch.Tensor):
        if pred.numel() != 1:
            raise RuntimeError(
                f"[{name}] Expected pred to be bool or single-element tensor, but got {pred}.\n"
                "hint: .any() or .all()"
            )
        return bool(pred)
    if not isinstance(pred, (bool, int, float)):
        raise RuntimeError(
            f"[{name}] Expected pred to be bool or tensor, but got {pred}.\nhint: a comparison"
        )
    return bool(pred)


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()
) -> Any:
    """Calls one of two functions.

    Args:
        pred: a bool, a number, or a tensor of one element.
        true_fn, false_fn: called where it is true, or not.
        operands: their arguments.

    Raises:
        RuntimeError: `pred` is something else, or an argument is none of these.

    Example:
        >>> torch.cond(torch.tensor(True), torch.sin, torch.cos, (torch.zeros(1),))
        tensor([0.])
    """
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(
            f"[cond] Expect operands to be a tuple of tensors, but got {type(operands).__name__}\n"
            "hint: (x,)"
        )
    return (true_fn if _chosen("cond", pred) else false_fn)(*operands)


def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any, *more: Any) -> Any:
    """Calls a function of its own results while another one says so.

    Args:
        cond_fn: of the carried values: whether to go on.
        body_fn: of the carried values: the next ones.
        carried_inputs: the first ones, a tuple.

    Raises:
        RuntimeError: the arguments are of other types.

    Example:
        >>> torch.while_loop(lambda i: i < 3, lambda i: (i + 1,), (torch.tensor(0),))
        (tensor(3),)
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("[while_loop] Expect cond_fn and body_fn to be callable.\nhint: lambdas")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(
            f"[while_loop] Expect carried_inputs to be a tuple, got {type(carried_inputs)}\n"
            "hint: (x,)"
        )
    values: Any = tuple(carried_inputs)
    while _chosen("while_loop", cond_fn(*values)):
        values = body_fn(*values)
        values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    return values


def _stacked(results: list[Any], dim: int) -> Any:
    spec = tree_flatten(results[0])[1]
    columns = zip(*(tree_flatten(each)[0] for each in results), strict=True)
    return tree_unflatten([torch.stack(column, dim) for column in columns], spec)


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """Carries a value along an axis.

    Args:
        combine_fn: of the carried value and a slice: the next value and an output.
        init: the first value.
        xs: tensors to slice.
        dim: the axis.
        reverse: from the end.

    Returns:
        The last value, and the outputs stacked along a first axis.
    """
    leaves, spec, length = _parts(xs, dim)
    carry, outputs = init, []
    order = range(length)
    for index in reversed(order) if reverse else order:
        slices = [leaf.select(dim, index) for leaf in leaves]
        carry, output = combine_fn(carry, tree_unflatten(slices, spec))
        outputs.append(output)
    if reverse:
        outputs.reverse()
    return carry, _stacked(outputs, 0)


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:  # noqa: A001 - PyTorch's name
    """Calls a function with each slice along the first axis.

    Args:
        f: of a slice and the other arguments.
        xs: tensors to slice.
        args: other arguments.

    Returns:
        The results, stacked.
    """
    leaves, spec, length = _parts(xs, 0)
    return _stacked(
        [f(tree_unflatten([x[i] for x in leaves], spec), *args) for i in range(length)], 0
    )


_HOMES = {"flex_attention": "flambeau.nn.attention.flex_attention"}
_refusing = _missing.getter(__name__)


def __getattr__(name: str) -> Any:
    if name == "flex_attention":
        return getattr(_late(_HOMES[name]), name)
    return _refusing(name)
