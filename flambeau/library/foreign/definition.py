"""How the operators of another package are defined: a schema and a function on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.library.registration import Library

Tensor = Any


def define(library: Library, schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates the function that computes an operator of this schema."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        library.impl(library.define(schema), function, "CompositeExplicitAutograd")
        return function

    return register


def gradients(
    function: Callable[..., Tensor], operands: tuple[Tensor, ...], cotangent: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of a function of tensors with respect to all of them; zeros where it has none."""
    with torch.enable_grad():
        leaves = [operand.detach().requires_grad_() for operand in operands]
        result = function(*leaves)
        return torch.autograd.grad(
            result, leaves, cotangent, allow_unused=True, materialize_grads=True
        )
