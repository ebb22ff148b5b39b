"""Clipping of gradients: operators over lists of tensors, whose plans any number of them shares."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau import _core
from flambeau._core import Tensor
from flambeau.autograd import no_grad
from flambeau.nn.messages import problem

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
    "get_total_norm",
]  # fmt: skip


def _gradients(parameters: Any) -> list[Any]:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


def _as_list(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _total_norm(tensors: list[Any], norm_type: float) -> Any:
    if not tensors:
        return torch.tensor(0.0)
    norms = torch._foreach_norm(tensors, norm_type)
    return torch.linalg.vector_norm(torch.stack(norms), norm_type)


def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """The p-norm of all elements of all tensors, as if they were one vector.

    Args:
        norm_type: p; `inf` for the largest absolute value.
        error_if_nonfinite: raise when it is nan or infinite.
        foreach: accepted; every list of tensors is one native loop either way.

    Raises:
        RuntimeError: the norm is not finite (with `error_if_nonfinite`).
    """
    with no_grad():
        total = _total_norm(_as_list(tensors), float(norm_type))
    if error_if_nonfinite:
        _require_finite(total, norm_type)
    return total


def _require_finite(total: Any, norm_type: float) -> None:
    if not math.isfinite(float(total)):
        text = (
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
        raise RuntimeError(problem("clip_grad_norm_", text, "look for nan in the loss"))


def _scale(gradients: list[Any], max_norm: float, total: Any) -> None:
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    factors = {dtype: factor.to(dtype) for dtype in {g.dtype for g in gradients}}
    torch._foreach_mul_(gradients, [factors[g.dtype] for g in gradients])


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None
) -> None:
    """Scales gradients by max_norm / (total_norm + 1e-6) where that is below 1."""
    gradients = _gradients(parameters)
    if gradients:
        with no_grad():
            _scale(gradients, float(max_norm), total_norm)


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Scales the gradients so that their common norm is at most `max_norm`.

    Args:
        parameters: a tensor or an iterable of tensors.
        max_norm: the limit.
        norm_type: p of the norm.
        error_if_nonfinite: raise when the norm is nan or infinite.
        foreach: accepted; every list of tensors is one native loop either way.

    Returns:
        The norm before clipping.
    """
    gradients = _gradients(parameters)
    if not gradients:
        return torch.tensor(0.0)
    with no_grad():
        total = _total_norm(gradients, float(norm_type))
        if error_if_nonfinite:
            _require_finite(total, norm_type)
        _scale(gradients, float(max_norm), total)
    return total


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Deprecated name of `clip_grad_norm_`."""
    import warnings

    warnings.warn(
        "torch.nn.utils.clip_grad_norm is now deprecated in favor of "
        "torch.nn.utils.clip_grad_norm_.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Limits every gradient element to [-clip_value, clip_value]."""
    gradients = _gradients(parameters)
    if gradients:
        limit = float(clip_value)
        with no_grad():
            _core.call_each(Tensor.clamp_, len(gradients), (gradients, -limit, limit), ())
