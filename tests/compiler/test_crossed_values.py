"""An expensive value that a broadcast repeats, and a reduction reads across, is computed once."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import flambeau as torch
from flambeau import _core
from flambeau.compiler.schedule import cluster

N = 40


def acceleration(x: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """The forces between bodies: weights of pairs, repeated along the three coordinates."""
    apart = x[None, :, :] - x[:, None, :]
    weight = mass[None, :] * (apart.square().sum(-1) + 0.05).pow(-1.5)
    return (apart * weight[:, :, None]).sum(1)


def gradient(x: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """Their gradient."""
    x = x.clone().requires_grad_()
    (result,) = torch.autograd.grad(acceleration(x, mass).square().sum(), x)
    return result


def kernels_with(primitive: str, function: Callable[..., object], *arguments: torch.Tensor) -> list:
    """The kernels that compute a primitive: their texts, equal ones once."""
    texts = {name: text for name, _, text in torch.compiler.stages(function, *arguments)}
    blocks = texts["lower"].split("\nlaunch ")
    return [block for block in blocks if f" = {primitive} " in block]


def bodies() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(N, 3), torch.rand(N)


def test_weights_of_pairs_are_computed_once_a_pair() -> None:
    [kernel] = kernels_with("pow", acceleration, *bodies())
    assert " sum mul " in kernel.split("buffers")[0] + " "  # with the sums over coordinates


def test_their_derivatives_are_computed_once_a_pair() -> None:
    assert len(kernels_with("pow", gradient, *bodies())) == 2


@pytest.mark.parametrize("function", [acceleration, gradient])
def test_bits_are_those_of_eager_mode(function: Callable[..., torch.Tensor]) -> None:
    arguments = bodies()
    expected = _core.tensor_bytes(function(*arguments))
    assert _core.tensor_bytes(torch.compile(function)(*arguments)) == expected


def test_values_of_a_row_stay_in_its_kernel() -> None:
    """A reduction along the row computes what is constant there once: nothing is stored."""

    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y.pow(1.7).tanh()[:, None]).sum(1)

    report = torch.compiler.explain(rows, torch.randn(8, 64), torch.rand(8))
    assert report.kernels == 1


def pooled_gradient(x: torch.Tensor) -> torch.Tensor:
    """The gradient of a function of means of squares: each is repeated for four elements."""
    x = x.clone().requires_grad_()
    y = torch.nn.functional.avg_pool2d(x, 2)
    (result,) = torch.autograd.grad((y * y + 1).pow(1.3).sum(), x)
    return result


def test_gradients_of_means_are_computed_once_a_mean() -> None:
    x = torch.randn(2, 3, 8, 6)
    kernels = kernels_with("pow", pooled_gradient, x)
    assert kernels and not any(re.search(r"\b(r|p\d)//2", kernel) for kernel in kernels)
    expected = _core.tensor_bytes(pooled_gradient(x))
    assert _core.tensor_bytes(torch.compile(pooled_gradient)(x)) == expected


def test_sums_divide_no_positions() -> None:
    """The sum of a gradient that is padded, and stored for a convolution, reads what is stored."""
    model = torch.nn.Sequential(torch.nn.Conv2d(5, 7, 1), torch.nn.AvgPool2d(2))
    x = torch.randn(2, 5, 9, 7)

    def step() -> list[torch.Tensor]:
        return list(torch.autograd.grad(model(x).square().sum(), list(model.parameters())))

    texts = {name: text for name, _, text in torch.compiler.stages(step)}
    assert cluster.DIVISION in texts["cluster"]
    expected = [_core.tensor_bytes(each) for each in step()]
    assert [_core.tensor_bytes(each) for each in torch.compile(step)()] == expected
