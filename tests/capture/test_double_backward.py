"""Derivatives of gradients: a compiled function has the bits of an eager one, however often it is
differentiated, on one thread or two. Networks: `tests/parity/test_double_backward_parity.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from tests.capture.conftest import same_bits

F = torch.nn.functional
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    """Tests change the number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def leaves(shapes: Any) -> list[Any]:
    """The same leaves each time."""
    torch.manual_seed(4)
    return [torch.randn(*shape, requires_grad=True) for shape in shapes]


def same(function: Function, measure: Function, shapes: Any) -> None:
    """Compiled and eager, on one thread and two."""
    compiled = torch.compile(function)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results += [measure(f, shapes) for f in (function, compiled)]
    for other in results[1:]:
        assert all(same_bits(a.detach(), b.detach()) for a, b in zip(results[0], other))


def test_third_derivative() -> None:
    def measure(function: Function, shapes: Any) -> list[Any]:
        args = leaves(shapes)
        found = function(*args).sum()
        for _ in range(3):
            found = torch.autograd.grad((found * found).sum(), args[:1], create_graph=True)[0]
        return [found]

    same(lambda x, w: x * w * x, measure, [(4, 6)] * 2)


def test_hessian() -> None:
    def measure(function: Function, shapes: Any) -> list[Any]:
        x = leaves(shapes)[0].detach()
        return [torch.func.hessian(function)(x), *torch.autograd.functional.hvp(function, x, x)]

    same(lambda x: (x * x * x).sum(), measure, [(6,)])


def test_observers_of_a_result_outlive_its_node() -> None:
    """Hooks and kept gradients of results go over to the calls' nodes."""
    results = []
    for call in (torch.sin, torch.compile(torch.sin)):
        seen: list[Any] = []
        (x,) = leaves([(4, 6)])
        y = call(x)
        y.register_hook(lambda g, seen=seen: seen.append(g.detach().clone()))
        y.retain_grad()
        (slope,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
        y.register_hook(lambda g, seen=seen: seen.append(g.detach() * 2))
        (slope * y).sum().backward()
        results.append([*seen, y.grad.detach(), x.grad])
    assert len(results[0]) == 5
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))


def test_draws_are_made_again() -> None:
    """The numbers are those of the call, and the generator stays where it is."""

    def measure(function: Function, shapes: Any) -> list[Any]:
        args = leaves(shapes)
        result = function(*args).square()
        after = torch.rand(2)
        slope = torch.autograd.grad(result.sum(), args, create_graph=True)[0]
        return [*torch.autograd.grad((slope * result).sum(), args), after, torch.rand(2)]

    same(lambda x: F.dropout(x, 0.5) * x * torch.rand(6), measure, [(4, 6)])


def test_freed_graph_is_refused() -> None:
    (x,) = leaves([(4, 6)])
    y = torch.compile(torch.sin)(x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y.sum(), x, create_graph=True)
