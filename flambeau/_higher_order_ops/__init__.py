"""`torch._higher_order_ops`: operators that take functions: `cond`, `while_loop`, `scan`, `map`.

They run as the Python control flow that they stand for, differentiable and inside of compiled
regions: a branch is chosen when its condition is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
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


def _parts(xs: Any, dim: int) -> tuple[list[Any], Any, int]:
    leaves, spec = tree_flatten(xs)
    if not leaves:
        raise RuntimeError("Expected at least 1 xs leaf\nhint: a tensor, or a container of some")
    return leaves, spec, leaves[0].shape[dim]


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


_HOMES = {"flex_attention": "flambeau.nn.attention.flex_attention"}
_refusing = _missing.getter(__name__)


def __getattr__(name: str) -> Any:
    if name == "flex_attention":
        return getattr(_late(_HOMES[name]), name)
    return _refusing(name)
