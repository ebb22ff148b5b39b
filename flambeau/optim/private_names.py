"""Private helpers of `torch.optim.optimizer` that optimizers of other packages import."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.nn.parameter import Parameter

_params_doc = """params (iterable): parameters, or dicts that define groups of them"""
_foreach_doc = """foreach (bool, optional): accepted; every step updates all parameters at once"""
_fused_doc = """fused (bool, optional): accepted; every step is one program"""
_capturable_doc = """capturable (bool, optional): accepted; there are no CUDA graphs"""
_differentiable_doc = """differentiable (bool, optional): whether autograd records the step"""
_maximize_doc = """maximize (bool, optional): ascend instead of descend"""

_DEVICES = ("cuda", "xpu", "hpu", "privateuseone", "xla")


class _RequiredParameter:
    """Marks an option without a default."""

    def __repr__(self) -> str:
        return "<required parameter>"


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of `step`: gradients are enabled where `defaults["differentiable"]` says so.

    Args:
        func: the method.
    """

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(bool(self.defaults["differentiable"])):
            return func(self, *args, **kwargs)

    return step


def _default_to_fused_or_foreach(
    params: Sequence[Any], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Whether PyTorch's optimizers use their fused and foreach forms by default.

    Args:
        params: the parameters.
        differentiable: excludes both.
        use_fused: whether there is a fused form.
    """
    if differentiable:
        return False, False
    fused = use_fused and all(
        p is None or (type(p) in (Tensor, Parameter) and p.is_floating_point()) for p in params
    )
    foreach = not fused and all(
        p is None or (type(p) in (Tensor, Parameter) and p.device.type in _DEVICES) for p in params
    )
    return fused, foreach


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Types of devices on which `capturable=True` has an effect in PyTorch."""
    return [name for name in _DEVICES if supports_xla or name != "xla"]


def _view_as_real(params: list[Any], *state_and_grads: list[Any]) -> None:
    """Replaces complex tensors in lists by their parts.

    Args:
        params: decides which entries are complex.
        state_and_grads: lists of the same length.
    """
    for index, parameter in enumerate(params):
        if parameter.is_complex():
            for entries in (params, *state_and_grads):
                entries[index] = torch.view_as_real(entries[index])


def _get_value(x: Any) -> Any:
    """The number of a tensor; numbers as they are."""
    return x.item() if isinstance(x, Tensor) else x


def _stack_if_compiling(x: Any) -> Any:
    """The sequence itself: compiled steps take sequences of numbers."""
    return x


def _get_scalar_dtype(is_fused: bool | None = None) -> Any:
    """The dtype of a step's counter."""
    if is_fused:
        return torch.float32
    return torch.float64 if torch.get_default_dtype() is torch.float64 else torch.float32


def _disable_dynamo_if_unsupported(
    single_tensor_fn: Callable[..., Any] | None = None,
) -> Callable[[Any], Any]:
    """A decorator that changes nothing: every step can be compiled."""
    return lambda function: function
