"""Helpers of the programs: one line that says what a tensor is, the type of an exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def describe(tensor: torch.Tensor) -> str:
    """The dtype, shape, strides and graph of a tensor."""
    graph = type(tensor.grad_fn).__name__ if tensor.grad_fn is not None else "-"
    strides = tuple(tensor.stride()) if tensor.layout == torch.strided else tensor.layout
    return f"{tensor.dtype} {tuple(tensor.shape)} {strides} {tensor.requires_grad} {graph}"


def raised(call: Callable[..., Any], *args: Any, **keywords: Any) -> str:
    """The name of the type that a call raises, or what it returns."""
    try:
        value = call(*args, **keywords)
    except Exception as error:
        return type(error).__name__
    kind = torch.Tensor if isinstance(value, torch.Tensor) else type(value)
    return f"returned {kind.__name__}"


def numbers(tensor: torch.Tensor, digits: int = 4) -> Any:
    """The values of a tensor as a list, rounded; complex numbers as pairs."""
    values = tensor.detach()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    values = values.to_dense() if values.layout != torch.strided else values
    if values.dtype == torch.bool or not values.is_floating_point():
        return values.tolist()
    return _rounded(values.double().tolist(), digits)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, list):
        return [_rounded(item, digits) for item in value]
    return round(value, digits) + 0.0
