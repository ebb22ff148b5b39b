"""Gradients have the memory layout of their leaf: its strides where it is dense, else row-major."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch

LEAVES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "contiguous": (lambda: torch.randn(2, 3, 4, 4), (48, 16, 4, 1)),
    "channels last": (
        lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        (48, 1, 12, 3),
    ),
    "transposed": (lambda: torch.randn(3, 2, 4, 4).transpose(0, 1), (16, 32, 4, 1)),
    "with gaps": (lambda: torch.randn(2, 3, 4, 8)[..., ::2], (48, 16, 4, 1)),
    "expanded": (lambda: torch.randn(3, 4, 4).expand(2, 3, 4, 4), (48, 16, 4, 1)),
}
FACTOR = torch.randn(2, 3, 4, 4)


def run(mode: str, x: Any) -> Any:
    def loss(x: Any) -> Any:
        return (x * FACTOR).square().sum()

    if mode == "compiled":
        torch.compile(loss)(x).backward()
    elif mode == "compiled step":
        torch.compile(lambda x: loss(x).backward())(x)
    else:
        loss(x).backward(create_graph=mode == "create_graph")
    return x.grad


@pytest.mark.parametrize("mode", ["eager", "create_graph", "compiled", "compiled step"])
@pytest.mark.parametrize("name", LEAVES)
def test_strides(name: str, mode: str) -> None:
    make, strides = LEAVES[name]
    torch.manual_seed(0)
    x = make().detach().requires_grad_()
    grad = run(mode, x)
    assert grad.stride() == strides
    assert grad.tolist() == (2 * (x * FACTOR) * FACTOR).tolist()
    assert grad.requires_grad == (mode == "create_graph")
    if mode != "create_graph":
        grad.add_(1)  # memory of its own


def test_the_first_gradient_decides() -> None:
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    x.grad = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    (x * FACTOR).sum().backward()
    assert x.grad.stride() == (48, 1, 12, 3)


def test_parameters_of_convolutions() -> None:
    layer = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    layer(torch.randn(2, 3, 8, 8)).sum().backward()
    assert layer.weight.grad.stride() == layer.weight.stride() == (27, 1, 9, 3)


def test_a_gradient_that_fits_is_not_copied() -> None:
    x = torch.randn(3, 2, requires_grad=True)
    given: list[int] = []
    x.register_hook(lambda g: given.append(g.data_ptr()))
    (x * 2).sum().backward()
    assert x.grad.data_ptr() == given[0]
