"""Reductions of jagged tensors, softmax, and what else runs along one dimension.

Over regular dimensions they are the operator on the values. Over the ragged one samples are filled
up with the operator's neutral element; over the batch and the ragged dimension together the values
are reduced over their rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.autograd.composite import mapped
from flambeau.core.tensors import Tensor
from flambeau.ir.lock import importing
from flambeau.nested import padded
from flambeau.nested.tensor import jagged, refuse


def _lowest(x: Tensor) -> Any:
    if x.dtype is torch.bool:
        return False
    return -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min


def _highest(x: Tensor) -> Any:
    if x.dtype is torch.bool:
        return True
    return math.inf if x.is_floating_point() else torch.iinfo(x.dtype).max


# The padding of short samples, which does not change the result.
NEUTRAL: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: 0, "nansum": lambda x: 0, "mean": lambda x: 0, "prod": lambda x: 1,
    "any": lambda x: False, "all": lambda x: True, "count_nonzero": lambda x: 0,
    "amax": _lowest, "max": _lowest, "argmax": _lowest, "logsumexp": _lowest,
    "amin": _highest, "min": _highest, "argmin": _highest, "norm": lambda x: 0,
}  # fmt: skip
# Reductions that have none run over regular dimensions, or over everything.
REDUCTIONS = frozenset({*NEUTRAL, "var", "std", "var_mean", "std_mean", "median", "nanmedian",
                        "nanmean", "aminmax", "vector_norm"})  # fmt: skip
ALONG = frozenset({
    "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "argsort", "topk", "glu",
    "softmax", "log_softmax", "softmin", "_safe_softmax", "flip", "renorm", "kthvalue", "mode",
})  # fmt: skip
FIRST_DIM = {"norm": 2, "vector_norm": 2, "topk": 2, "kthvalue": 2}  # position of `dim`
LAST_BY_DEFAULT = frozenset({"sort", "argsort", "topk", "glu", "kthvalue", "mode"})


def _take_dim(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The dims of a call, taken out of its arguments."""
    for key in ("dim", "axis", "dims"):
        if key in kwargs:
            return kwargs.pop(key)
    at = FIRST_DIM.get(name, 1)
    if len(args) > at and not isinstance(args[at], (bool, torch.dtype)):
        return args.pop(at)
    return None


def _normal(name: str, tensor: Tensor, dim: Any) -> tuple[int, ...]:
    ndim = tensor.dim()
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    for d in dims:
        if not -ndim <= d < ndim:
            raise IndexError(
                f"[{name}] Dimension out of range (expected to be in range of [{-ndim}, "
                f"{ndim - 1}], but got {d})\nhint: the batch is dimension 0"
            )
    return tuple(sorted({d % ndim for d in dims}))


def reduction(op: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """A reduction of a jagged tensor.

    Raises:
        RuntimeError: it would reduce the batch but not the ragged dimension.
    """
    arguments, options = list(args), dict(kwargs)
    tensor = arguments[0]
    dim = _take_dim(name, arguments, options)
    extra = arguments[1:]
    compact = _without_holes(tensor)
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return op(compact._kept, *extra, **options)
    dims, r = _normal(name, tensor, dim), tensor._ragged_idx
    one = isinstance(dim, int)
    if extra and isinstance(extra[0], bool):  # keepdim as a positional argument
        options["keepdim"], extra = extra[0], extra[1:]
    if 0 in dims and r not in dims:
        text = "reducing along the batch dimension but not the ragged dimension is not supported"
        refuse(name, f"{name}(): {text} for nested tensors", "reduce over both, or pad")
    if 0 in dims:
        return _over_batch(op, name, compact, dims, extra, options)
    if r in dims:
        if len(dims) > 1:
            text = "reducing along a ragged and non-batch dimension is not supported"
            refuse(name, f"{name}(): {text} for nested tensors", "reduce them one by one")
        return _over_ragged(op, name, tensor, dims if not one else r, extra, options)
    return _over_regular(op, name, tensor, dims, one, extra, options)


def _at(name: str, values: Any, dim: Any, args: Any, options: Any, op: Any) -> Any:
    """The call with its dims; `norm` and its like have an argument in front of them."""
    front = FIRST_DIM.get(name, 1) - 1
    order = {"p": args[0]} if front and args and name == "norm" else {}
    order = {"ord": args[0]} if front and args and name == "vector_norm" else order
    return op(values, *(() if front else args), dim=dim, **order, **options)


def _over_regular(
    op: Any, name: str, tensor: Tensor, dims: tuple[int, ...], one: bool, args: Any, options: Any
) -> Tensor:
    inner = [d - 1 for d in dims]
    result = _at(name, tensor._kept, inner[0] if one else inner, args, options, op)
    before = 0 if options.get("keepdim") else sum(d < tensor._ragged_idx for d in dims)
    return _again(result, tensor._ragged, tensor._ragged_idx - before)


def _again(result: Any, ragged: Any, r: int) -> Any:
    return mapped(lambda x: jagged(x, ragged, r), result)


def _over_batch(
    op: Any, name: str, tensor: Any, dims: tuple[int, ...], args: Any, options: Any
) -> Any:
    inner = [d - 1 for d in dims if d]
    result = _at(name, tensor._kept, inner[0] if len(inner) == 1 else inner, args, options, op)
    return result.unsqueeze(0) if options.get("keepdim") else result


def _over_ragged(op: Any, name: str, tensor: Tensor, dim: Any, args: Any, options: Any) -> Any:
    if name not in NEUTRAL:
        raise NotImplementedError(
            f"[{name}] not implemented along the ragged dimension of nested tensors\n"
            "hint: apply it to each sample of x.unbind()"
        )
    if name == "mean":
        return _mean(tensor, args, options)
    dense = padded.to_dense(tensor, NEUTRAL[name](tensor))
    return _at(name, dense, dim, args, options, op)


def _mean(tensor: Tensor, args: Any, options: Any) -> Any:
    r, kind = tensor._ragged_idx, options.get("dtype") or (args[0] if args else None)
    keepdim = bool(options.get("keepdim"))
    if kind is None and not (tensor.is_floating_point() or tensor.is_complex()):
        raise RuntimeError(
            "[mean] mean(): could not infer output dtype. Input dtype must be either a floating "
            f"point or complex dtype. Got: {tensor.dtype}\nhint: mean(dtype=torch.float32)"
        )
    dense = padded.to_dense(tensor, 0)
    total = dense.sum(r, keepdim=True, dtype=kind)
    counts = tensor._ragged.counts().reshape(-1, *(1,) * (total.dim() - 1))
    mean = total / counts.to(total.dtype)
    return mean if keepdim else mean.squeeze(r)


def _without_holes(tensor: Tensor) -> Any:
    with importing:
        from flambeau.nested.geometry import contiguous

    return tensor if tensor._ragged.lengths is None else contiguous(tensor)


def along(op: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """Applies an operator along one dimension of a jagged tensor that retains the others."""
    arguments, options = list(args), dict(kwargs)
    tensor = arguments[0]
    dim = _take_dim(name, arguments, options)
    if dim is None:
        dim = -1 if name in LAST_BY_DEFAULT else tensor.dim() - 1
    (d,), r = _normal(name, tensor, dim), tensor._ragged_idx
    if d == 0:
        refuse(name, f"{name}(): not supported for NestedTensor on dim=0")
    if d != r:
        result = _placed(op, name, tensor._kept, d - 1, arguments[1:], options)
        return _again(result, tensor._ragged, r)
    if name not in ("softmax", "log_softmax", "softmin", "_safe_softmax"):
        raise NotImplementedError(
            f"[{name}] not implemented along the ragged dimension of nested tensors\n"
            "hint: apply it to each sample of x.unbind()"
        )
    fill = math.inf if name == "softmin" else -math.inf
    dense = _placed(op, name, padded.to_dense(tensor, fill), r, arguments[1:], options)
    rows = tensor._kept.shape[r - 1]
    return jagged(padded.to_values(dense, tensor._ragged, r, rows), tensor._ragged, r)


def _placed(op: Any, name: str, values: Any, d: int, args: Any, options: Any) -> Any:
    if name == "flip":
        return op(values, [d])
    at = FIRST_DIM.get(name, 1) - 1
    return op(values, *args[:at], d, *args[at:], **options)
