"""Operands that backward does not read: they may be written after the call, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.language.definition import REGISTRY
from tests.ops.inputs import arguments, leaves, tensor_builder
from tests.ops.table import TABLE, resolve


def _unsaved(key: str) -> bool:
    return any(overload.options.unsaved for overload in REGISTRY[key].overloads)


NAMES = sorted(key for key in TABLE if _unsaved(key))


def derivatives(name: str, sample: Any, write: bool) -> list[Any]:
    """First and second derivatives; the operands are written after the call where asked for."""
    args, kwargs = arguments(sample, tensor_builder(torch, grad=True), "f64")
    given = [x for x in leaves([args, [*kwargs.values()]]) if isinstance(x, torch.Tensor)]
    wanted = [x for x in given if x.requires_grad]
    result = leaves(resolve(torch, name)(*args, **kwargs))[0]
    if write:
        overload = REGISTRY[name].overloads[0]
        names = [argument.name for argument in overload.schema.arguments]
        unsaved = {names.index(n) for n in overload.options.unsaved}
        with torch.no_grad():
            for position, x in enumerate(args):
                if position in unsaved and isinstance(x, torch.Tensor):
                    x.add_(1)
    length = (result * result.conj()).real.sum() if result.is_complex() else (result**2).sum()
    first = torch.autograd.grad(length, wanted, create_graph=True, allow_unused=True)
    again = [g for g in first if g is not None and g.requires_grad]
    second: tuple[Any, ...] = ()
    if again:
        sums = sum((g * torch.arange(1.0, g.numel() + 1).view(g.shape)).sum() for g in again)
        second = torch.autograd.grad(sums, wanted, allow_unused=True)
    return [None if g is None else g.tolist() for g in (*first, *second)]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_call(name: str) -> None:
    sample = next(iter(TABLE[name].samples(1)))
    expected = derivatives(name, sample, write=False)
    assert any(g is not None for g in expected)
    assert repr(derivatives(name, sample, write=True)) == repr(expected)


@pytest.mark.parametrize("name", ["reciprocal", "linalg.inv", "linalg.inv_ex", "inverse"])
def test_a_gradient_from_the_result(name: str) -> None:
    """What is saved is the result, so that it must not be written."""
    x = (torch.eye(3, dtype=torch.float64) * 2 + 1).requires_grad_()
    function = resolve(torch, name)

    def call(value: torch.Tensor) -> Any:
        return leaves(function(value))[0]

    assert torch.autograd.gradcheck(call, x) and torch.autograd.gradgradcheck(call, x)
    y = call(x)
    with torch.no_grad():
        x.zero_()
    y.sum().backward()
    z = call(torch.eye(2).requires_grad_())
    z.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        z.sum().backward()
