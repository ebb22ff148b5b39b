"""Writes through views of complex numbers: parts, pairs, conjugates and negatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch

# From y = 1.5 x, three complex numbers, to the view of it that is written.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "pairs": torch.view_as_real,
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "some": lambda x: torch.view_as_real(x)[1:, 1],
    "transposed": lambda x: torch.view_as_real(x).t()[:, ::2],
    "conjugates": lambda x: x.conj(),
    "imag of conjugates": lambda x: x.conj().imag,
    "real of conjugates": lambda x: x.conj().real,
    "pairs again": lambda x: torch.view_as_complex(torch.view_as_real(x))[:2],
    "negatives": lambda x: x._neg_view()[1:],
    "imag of negatives": lambda x: x._neg_view().imag,
    "two steps": lambda x: x[1:].conj()[:1].imag,
}
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "mul": lambda v, w: v.mul_(w[: v.numel()].reshape(v.shape)),
    "copy": lambda v, w: v.copy_(w[: v.numel()].reshape(v.shape) * 2),
    "zero": lambda v, w: v.zero_(),
    "square": lambda v, w: v.add_(v.clone().square()),
    "item": lambda v, w: v.__setitem__(0, w[0]),
}


def numbers() -> Any:
    return torch.tensor([2 + 1j, -1 + 0.5j, 0.3 - 1j], dtype=torch.complex128)


def weights() -> Any:
    return torch.tensor([0.5, -1.5, 2.0, 0.7, 1.1, -0.4], dtype=torch.float64)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_gradients(view: str, write: str) -> None:
    def program(x: Any, w: Any) -> tuple[Any, Any]:
        y = x * 1.5
        part = VIEWS[view](y)
        before = VIEWS[view](y)  # a view made earlier follows, too
        WRITES[write](part, w)
        return y * (1 + 2j), part * before

    operands = numbers().requires_grad_(), weights().requires_grad_()
    assert torch.autograd.gradcheck(program, operands)
    assert torch.autograd.gradgradcheck(program, operands)


@pytest.mark.parametrize("offset", [0, 1])
def test_complex_views_of_real_numbers(offset: int) -> None:
    def program(x: Any, w: Any) -> tuple[Any, Any]:
        y = (x * 2)[offset:]
        part = torch.view_as_complex(y[offset : 4 + offset].reshape(2, 2))
        part.mul_(torch.complex(w[:2], w[2:4]))
        return y.square(), part.conj() * part

    operands = weights().requires_grad_(), weights().requires_grad_()
    assert torch.autograd.gradcheck(program, operands)
    assert torch.autograd.gradgradcheck(program, operands)


def test_setters_and_a_compiled_function() -> None:
    def program(x: Any) -> Any:
        y = x.clone()
        y.real = y.imag * 3
        y.imag.mul_(x.real)
        return (y * y.conj()).real.sum()

    gradients = []
    for function in (program, torch.compile(program)):
        x = numbers().requires_grad_()
        function(x).backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
    assert torch.autograd.gradcheck(program, (numbers().requires_grad_(),))


def test_views_of_bits_are_refused() -> None:
    x = weights().requires_grad_() * 1
    with pytest.raises(NotImplementedError, match="a view of another dtype"):
        x.view(torch.float32).mul_(2)


def test_leaves_are_refused() -> None:
    x = numbers().requires_grad_()
    for view in VIEWS.values():
        with pytest.raises(RuntimeError, match="leaf Variable"):
            view(x).zero_()
