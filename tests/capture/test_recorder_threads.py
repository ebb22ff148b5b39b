"""Threads and recorded regions: pending values that another thread wants, recorders that go."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import _core


@pytest.fixture
def busy_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _chain(x: Any, k: int, meanwhile: Any) -> Any:
    y = (x * 2 + k).sin()
    wait = meanwhile(y)
    z = y
    for _ in range(60):
        z = z * 1.0 + x * 0.0
    z = z + torch.ones(3 + k % 5).sum()
    wait()
    return z


@pytest.mark.usefixtures("busy_switching")
def test_another_thread_flushes_a_region_that_goes_on() -> None:
    for k in range(40):
        sums: list[float] = []

        def start(y: Any, sums: list[float] = sums) -> Any:
            begun = threading.Event()

            def read() -> None:
                begun.set()
                sums.append(y.sum().item())

            thread = threading.Thread(target=read)
            thread.start()
            begun.wait()
            return thread.join

        x = torch.linspace(0, 1, 100 + k)
        found = torch.compile(_chain)(x, k, start)
        assert torch.equal(found, _chain(x, k, lambda y: lambda: None))
        assert sums == [(x * 2 + k).sin().sum().item()]


@pytest.mark.usefixtures("busy_switching")
def test_several_threads_dissolve_one_node() -> None:
    """What backward saved is computed again, by all who want gradients of gradients at once."""
    f = torch.compile(lambda x: (x * 3).exp().sin().sum())
    for k in range(10):
        x = torch.linspace(0, 1, 50 + k).requires_grad_()
        result = f(x)
        found: list[Any] = []

        def differentiate(x: Any = x, result: Any = result, found: list[Any] = found) -> None:
            (grad,) = torch.autograd.grad(result, x, create_graph=True)
            found.append(torch.autograd.grad(grad.sum(), x, retain_graph=True)[0])

        threads = [threading.Thread(target=differentiate) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (grad,) = torch.autograd.grad((x * 3).exp().sin().sum(), x, create_graph=True)
        expected = torch.autograd.grad(grad.sum(), x)[0]
        assert len(found) == 4
        assert all(torch.equal(each, expected) for each in found)


def test_threads_leave_no_recorders() -> None:
    compiled = torch.compile(lambda x: x * 1.5 + 1)

    def run(count: int) -> int:
        for _ in range(count):
            thread = threading.Thread(target=compiled, args=(torch.ones(4),))
            thread.start()
            thread.join()
        return int(_core.stream_stats()["recorders"])

    before = run(10)
    assert run(100) == before
