"""Tensors that another thread was computing when the process forked."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import _core
from flambeau.prims.record import PRIMITIVES
from tests.core.test_locks import FORKS, child_of

pytestmark = FORKS
Program = Callable[[Any, list[Any]], Any]


class Gate:
    """Holds whoever passes in this process; children go through."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.inside, self.leave = threading.Event(), threading.Event()

    def wait(self) -> None:
        if os.getpid() == self.process:
            self.inside.set()
            assert self.leave.wait(20)


gate = Gate()


@torch.library.custom_op("forked_flushes::slow", mutates_args=())
def slow(x: torch.Tensor) -> torch.Tensor:
    """x + 1, when the gate is open."""
    gate.wait()
    return x + 1


@slow.register_fake
def _(x: Any) -> Any:
    return torch.empty_like(x)


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator stands for a long kernel in a stream: it is not run at its call."""
    from flambeau.library import opaque  # noqa: F401 - enters the record

    record = PRIMITIVES["custom_op"]._replace(raises=False)
    monkeypatch.setitem(PRIMITIVES, "custom_op", record)


@pytest.fixture(params=["fused", "one by one"])
def stream_compiler(request: Any) -> Iterator[None]:
    """With and without a Plan of the whole stream."""
    if request.param == "one by one":
        _core.stream_clear()
        _core.set_stream_compiler(lambda *description: None)
    yield
    if request.param == "one by one":
        _core.set_stream_compiler(torch._compile_stream)
        _core.stream_clear()


def while_flushed(program: Program, x: Any, child: Callable[[list[Any]], bool]) -> list[Any]:
    """Forks while another thread is inside of the run of a compiled program; what it shares."""
    global gate
    gate = Gate()
    shared: list[Any] = []
    worker = threading.Thread(target=torch.compile(lambda: program(x, shared)))
    worker.start()
    try:
        assert gate.inside.wait(20)
        assert child_of(lambda: child(shared))
    finally:
        gate.leave.set()
        worker.join()
    return shared


def share(shared: list[Any], *tensors: Any) -> Any:
    shared.extend(tensors)
    return tensors[-1]


def plain(x: Any, shared: list[Any]) -> Any:
    y = x * 2
    return share(shared, y, slow(y), slow(y) * 3)


def writes_inside(x: Any, shared: list[Any]) -> Any:
    y = x * 2
    z = slow(y)
    y.add_(z)
    return share(shared, y, slow(y))


def writes_outside(x: Any, shared: list[Any]) -> Any:
    y = x * 2
    x.add_(1)
    return share(shared, y)


def draws(x: Any, shared: list[Any]) -> Any:
    y = x * 2
    return share(shared, y, slow(y) + torch.rand(3))


@pytest.mark.usefixtures("stream_compiler")
@pytest.mark.parametrize("program", [plain, writes_inside])
def test_children_compute_again(program):
    """What the other thread would have computed, whichever tensor is read first."""
    numbers = {plain: [[2, 4, 6], [3, 5, 7], [9, 15, 21]], writes_inside: [[5, 9, 13], [6, 10, 14]]}
    expected = numbers[program]
    for first in range(len(expected)):

        def child(shared: list[Any], first: int = first) -> bool:
            found = shared[first].tolist() == expected[first]
            return found and [t.tolist() for t in shared] == expected

        shared = while_flushed(program, torch.tensor([1.0, 2, 3]), child)
        assert [t.tolist() for t in shared] == expected


@pytest.mark.parametrize("program", [writes_outside, draws])
def test_children_of_flushes_that_cannot_be_repeated(program):
    """Half of the writes, or of the draws, may have happened: the child is told."""

    def child(shared: list[Any]) -> bool:
        for t in shared:
            for _ in range(2):
                with pytest.raises(RuntimeError, match="when the process forked"):
                    t.tolist()
        return torch.ones(3).sum().item() == 3  # all else works

    _core.stream_clear()
    _core.set_stream_compiler(lambda *description: gate.wait())
    try:
        shared = while_flushed(program, torch.tensor([1.0, 2, 3]), child)
    finally:
        _core.set_stream_compiler(torch._compile_stream)
        _core.stream_clear()
    assert shared[0].tolist() == [2, 4, 6]


def test_children_of_differentiated_regions():
    """The region's results have no history yet: computed again, or the child is told."""

    def program(x: Any, shared: list[Any]) -> Any:
        y = x * 2
        return share(shared, y, (y.exp() + slow(x.detach())).sum())

    def child(shared: list[Any]) -> bool:
        try:
            return shared[0].tolist() == [2, 4, 6]
        except RuntimeError as error:
            return "when the process forked" in str(error)

    x = torch.tensor([1.0, 2, 3], requires_grad=True)
    shared = while_flushed(program, x, child)
    shared[1].backward()
    assert x.grad.tolist() == ((x * 2).exp() * 2).tolist()


def test_threads_see_no_value_half_computed():
    """Records that run one by one: what a later one still writes is not shown."""
    _core.stream_clear()
    _core.set_stream_compiler(lambda *description: None)
    global gate
    gate = Gate()
    shared: list[Any] = []
    seen: list[Any] = []
    program = torch.compile(lambda: writes_inside(torch.tensor([1.0, 2, 3]), shared))
    worker = threading.Thread(target=program)
    reader = threading.Thread(target=lambda: seen.append(shared[0].tolist()))
    try:
        worker.start()
        assert gate.inside.wait(20)
        reader.start()
        reader.join(0.05)
        gate.leave.set()
        worker.join()
        reader.join()
    finally:
        gate.leave.set()
        _core.set_stream_compiler(torch._compile_stream)
        _core.stream_clear()
    assert seen == [[5, 9, 13]]
