"""Tensors that change shape in place inside a region: what was recorded before saw the old one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch


def _out(m: Any, x: Any) -> Any:
    before = m * 2
    torch.add(x, x, out=m)
    return before, m + 1


def _twice(m: Any, x: Any) -> Any:
    before = m * 2
    m.unsqueeze_(0)
    between = m + 1
    m.squeeze_(0).t_()
    return before, between, m * 3


def _of_a_view(m: Any, x: Any) -> Any:
    view = m[1:]
    before = view * 2
    view.unsqueeze_(0)
    return before + view, m


def _of_a_result(m: Any, x: Any) -> Any:
    made = m * 2
    before = made + 1
    made.t_().mul_(3)
    return before, made


def _changed(change: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def program(m: Any, x: Any) -> Any:
        before = m * 2
        change(m, x)
        return before, m + 1

    return program


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "unsqueeze_": _changed(lambda m, x: m.unsqueeze_(1)),
    "squeeze_": _changed(lambda m, x: m.unsqueeze_(1).squeeze_()),
    "t_": _changed(lambda m, x: m.t_()),
    "transpose_": _changed(lambda m, x: m.transpose_(0, 1)),
    "swapdims_": _changed(lambda m, x: m.swapdims_(0, 1).add_(1)),
    "as_strided_": _changed(lambda m, x: m.as_strided_((2, 2), (1, 2))),
    "resize_": _changed(lambda m, x: m.resize_(2, 2)),
    "set_": _changed(lambda m, x: m.set_(x)),
    "data": _changed(lambda m, x: setattr(m, "data", x)),
    "out": _out,
    "twice": _twice,
    "of a view": _of_a_view,
    "of a result": _of_a_result,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shape", [(3, 4), (4, 3)])
def test_programs(name: str, shape: tuple[int, int]) -> None:
    def run(program: Callable[[Any, Any], Any]) -> list[Any]:
        m, x = torch.arange(12.0).reshape(shape) + 0, torch.ones(3, 4)
        return [*program(m, x), m]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of `out=` that is resized
        expected = run(PROGRAMS[name])
        compiled = torch.compile(PROGRAMS[name])
        for _ in range(2):
            for found, wanted in zip(run(compiled), expected, strict=True):
                assert torch.equal(found, wanted)
                assert found.stride() == wanted.stride()


@pytest.mark.parametrize("name", ["unsqueeze_", "t_", "transpose_", "swapdims_", "as_strided_"])
def test_gradients(name: str) -> None:
    def run(compiled: bool) -> Any:
        x = torch.arange(12.0).reshape(3, 4).requires_grad_()

        def program(x: Any) -> Any:
            before, after = PROGRAMS[name](x * 1.5, None)
            return (before.sum() * 2 + (after * after).sum()).sin()

        (torch.compile(program) if compiled else program)(x).backward()
        return x.grad

    assert torch.equal(run(True), run(False))
