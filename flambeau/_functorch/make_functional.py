"""`functorch.make_functional` and its kin: modules as functions of their parameters.

The interface before `torch.func.functional_call`; programs of that time import it from `functorch`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.func import functional_call
from flambeau.runtime import missing as _missing

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble",
    "make_functional", "make_functional_with_buffers",
]  # fmt: skip

Tensors = Sequence[Any]


def _hint(text: str, hint: str) -> RuntimeError:
    return RuntimeError(f"{text}\nhint: {hint}")


class FunctionalModuleWithBuffers(nn.Module):
    """A module as a function of its parameters and buffers; see `make_functional_with_buffers`."""

    def __init__(
        self, stateless_model: nn.Module, param_names: Sequence[str], buffer_names: Sequence[str]
    ) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = tuple(param_names), tuple(buffer_names)

    def forward(self, params: Tensors, buffers: Tensors, *args: Any, **kwargs: Any) -> Any:
        """The module's result with these parameters and buffers."""
        state = dict(zip(self.param_names, params, strict=True))
        state |= zip(self.buffer_names, buffers, strict=True)
        return functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without buffers as a function of its parameters; see `make_functional`."""

    def forward(self, params: Tensors, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """The module's result with these parameters."""
        return super().forward(params, (), *args, **kwargs)


def _state(model: nn.Module, tracking: bool) -> tuple[nn.Module, dict[str, Any], dict[str, Any]]:
    """A copy of a module without values, and copies of its parameters and buffers."""
    stateless = copy.deepcopy(model)
    params, buffers = dict(stateless.named_parameters()), dict(stateless.named_buffers())
    if not tracking:
        params = {name: p.detach() for name, p in params.items()}
    return stateless.to("meta"), params, buffers


def make_functional_with_buffers(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """A function of parameters, buffers and inputs, with copies of the module's values.

    Args:
        model: any module.
        disable_autograd_tracking: the copied parameters need no gradient.
    """
    stateless, params, buffers = _state(model, not disable_autograd_tracking)
    function = FunctionalModuleWithBuffers(stateless, tuple(params), tuple(buffers))
    return function, tuple(params.values()), tuple(buffers.values())


def make_functional(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Any, ...]]:
    """A function of parameters and inputs, with copies of the module's parameters.

    Args:
        model: a module without buffers.
        disable_autograd_tracking: the copied parameters need no gradient.

    Raises:
        RuntimeError: the module has buffers.
    """
    if next(model.buffers(), None) is not None:
        raise _hint(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead.",
            "torch.func.functional_call takes both",
        )
    stateless, params, _ = _state(model, not disable_autograd_tracking)
    return FunctionalModule(stateless, tuple(params), ()), tuple(params.values())


def combine_state_for_ensemble(
    models: Sequence[nn.Module],
) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]:
    """One function for modules of one class, with their parameters and buffers stacked.

    Raises:
        RuntimeError: no modules, modules in different modes or of different classes.
    """
    if not models:
        raise _hint("combine_state_for_ensemble: Expected at least one model, got 0.", "a list")
    if len({model.training for model in models}) > 1:
        raise _hint(
            "combine_state_for_ensemble: Expected all models to have the same training/eval mode.",
            "call train() or eval() on all of them",
        )
    if len({type(model) for model in models}) > 1:
        raise _hint(
            "combine_state_for_ensemble: Expected all models to be of the same class.",
            "one ensemble per class",
        )
    functions, params, buffers = zip(*map(make_functional_with_buffers, models), strict=True)
    stacked = [
        tuple(torch.stack(tensors).detach() for tensors in zip(*each, strict=True))
        for each in (params, buffers)
    ]
    return functions[0], stacked[0], stacked[1]


globals()["__getattr__"] = _missing.getter(__name__)
