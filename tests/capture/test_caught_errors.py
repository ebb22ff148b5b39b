"""What eager mode raises at a call can be caught there in a compiled function, too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn


def _bad() -> Any:
    return torch.tensor([1, 9])


# Each fails on data alone: with indices that are given, and with ones that the region computes.
FAULTS: dict[str, Callable[[Any, Any], Any]] = {
    "subscript": lambda x, i: x[i],
    "gather": lambda x, i: x.gather(0, i),
    "take": lambda x, i: x.take(i),
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: F.embedding(i, x.reshape(2, 2)),
    "cross_entropy": lambda x, i: F.cross_entropy(x.reshape(2, 2), i),
    "nll_loss": lambda x, i: F.nll_loss(x.reshape(2, 2), i, ignore_index=5),
    "index_add": lambda x, i: x.index_add(0, i, torch.ones(2)),
    "scatter": lambda x, i: x.scatter(0, i, 1.0),
    "one_hot": lambda x, i: x.sum() + F.one_hot(i, 4).sum(),
    "cholesky": lambda x, i: torch.linalg.cholesky(-x.reshape(2, 2) - i.sum()),
    "solve": lambda x, i: torch.linalg.solve(x.reshape(2, 2) * 0 + i.sum(), x.reshape(2, 2)),
    "inverse": lambda x, i: torch.linalg.inv(x.reshape(2, 2) * 0 + i.sum()),
    "multinomial": lambda x, i: torch.multinomial(x * 0 - i.sum(), 1),
    "bincount": lambda x, i: torch.bincount(-i),
    "divide": lambda x, i: i // (i - i),
}
ERRORS = (IndexError, RuntimeError, ValueError)


def _try(fault: Any, x: Any, i: Any, log: list[Any]) -> Any:
    before = x * 3
    try:
        y = fault(x, i)
        log.append("after")
        x.add_(1)
    except ERRORS as error:
        log.append(type(error))
        y = before * 2
    return y


def _suppress(fault: Any, x: Any, i: Any, log: list[Any]) -> Any:
    with contextlib.suppress(*ERRORS):
        y = fault(x, i)
        x.mul_(y.sum())
    return x + 1


def _finally(fault: Any, x: Any, i: Any, log: list[Any]) -> Any:
    x.add_(1)
    y = x * 2
    try:
        z = fault(y, i)
    finally:
        log.append(y.sum().item())
        x.sub_(1)
    x.zero_()
    return z


@contextlib.contextmanager
def _noting(log: list[Any]) -> Iterator[None]:
    try:
        yield
    except ERRORS:
        log.append("noted")


def _manager(fault: Any, x: Any, i: Any, log: list[Any]) -> Any:
    y = x.exp()
    with _noting(log):
        y = y + fault(x, i).sum()
        log.append("after")
    return y


def _outer_frame(fault: Any, x: Any, i: Any, log: list[Any]) -> Any:
    def inner() -> Any:
        return [fault(x, index).sum() for index in (i % 2 if i.ndim else i, i)]

    try:
        return inner()
    except ERRORS:
        try:
            return fault(x, i)
        except ERRORS:
            return [x + 1]


def _uncaught(fault: Any, x: Any, i: Any, log: list[Any]) -> Any:
    x.add_(1)
    log.append(x * 2)
    y = fault(x, i)
    x.add_(100)
    return y


def _uncaught_backward(fault: Any, x: Any, i: Any, log: list[Any]) -> Any:
    w = torch.ones(4).requires_grad_()
    log.append(w)
    (w * 2).sum().backward()
    return (fault(w * x, i) * 1.0).sum().backward()


PROGRAMS = [_try, _suppress, _finally, _manager, _outer_frame, _uncaught, _uncaught_backward]


def _outcome(program: Any, fault: Any, compute: bool, wrap: Any) -> list[Any]:
    x, log = torch.arange(1.0, 5.0), []
    index = _bad()

    def body(x: Any, index: Any) -> Any:
        return program(fault, x, index + (x[0] * 0).long() if compute else index, log)

    try:
        result = wrap(body)(x, index)
    except ERRORS as error:
        result = str(error).splitlines()[0]
    return [_plain(value) for value in (result, x, *log)]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, torch.Tensor):
        return value.tolist(), _plain(value.grad) if value.requires_grad else None
    return value


@pytest.mark.parametrize("compute", [False, True], ids=["given", "computed"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", FAULTS)
def test_as_in_eager_mode(name: str, program: Any, compute: bool) -> None:
    fault = FAULTS[name]
    expected = _outcome(program, fault, compute, lambda f: f)
    for _ in range(2):
        assert _outcome(program, fault, compute, torch.compile) == expected


def test_models_stay_whole() -> None:
    """Look-ups and losses whose indices are given are recorded also inside of `try` and `with`."""
    model = nn.Embedding(10, 4)
    classes = torch.tensor([1, 2])

    def step(ids: Any) -> Any:
        try:
            with torch.no_grad():
                return F.cross_entropy(model(ids).relu(), classes)
        finally:
            pass

    assert torch.compiler.explain(step, torch.tensor([3, 4])).graph_break_count == 0


def test_computed_indices_are_recorded_where_nobody_catches() -> None:
    def route(x: Any) -> Any:
        return x.gather(0, x.topk(2).indices).relu()

    assert torch.compiler.explain(route, torch.arange(5.0)).graph_break_count == 0


def test_positions_are_looked_at() -> None:
    """Indices made of integers inside of the region are known when they are used."""
    table, outside = nn.Embedding(8, 4), torch.zeros(3)

    def look_up(x: Any) -> Any:
        places = torch.arange(x.shape[1]).unsqueeze(0) + 1
        found = table(places) + x[..., None]
        outside.add_(1)
        return found

    assert torch.compiler.explain(look_up, torch.ones(2, 7)).graph_break_count == 0
    with pytest.raises(IndexError):
        torch.compile(look_up)(torch.ones(2, 8))
    assert outside.tolist() == [1, 1, 1]
