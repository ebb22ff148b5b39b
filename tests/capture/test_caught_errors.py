"""What eager mode raises at a call can be caught there in a compiled function, too."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn


def _bad() -> Any:
    return torch.tensor([1, 9])


@torch.library.custom_op("test_caught_errors::refuse", mutates_args=())
def _refuse(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("[refuse] deliberate")


_refuse.register_fake(torch.empty_like)


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
    "inv_ex": lambda x, i: torch.linalg.inv_ex(x.outer(x) + i.sum() * 0, check_errors=True)[0],
    "lu_factor": lambda x, i: torch.linalg.lu_factor(x.reshape(2, 2) * 0 + i.sum()).LU,
    "ldl_factor": lambda x, i: torch.linalg.ldl_factor(x.reshape(2, 2) * 0 * i.sum()).LD,
    "matrix_power": lambda x, i: torch.matrix_power(x.outer(x) + i.sum() * 0, -2),
    "lu_unpack": lambda x, i: torch.lu_unpack(x.reshape(2, 2), (i * 0).int()).P,
    "multinomial": lambda x, i: torch.multinomial(x * 0 - i.sum(), 1),
    "bincount": lambda x, i: torch.bincount(-i),
    "eigh": lambda x, i: torch.linalg.eigh(x.outer(x) * math.nan + i.sum()).eigenvalues,
    "svdvals": lambda x, i: torch.linalg.svdvals(x.outer(x) * math.nan + i.sum()),
    "custom": lambda x, i: _refuse(x + i.sum()),
    "divide": lambda x, i: i // (i - i),
    "divide_by_number": lambda x, i: (i + 1) // 0,
    "divide_by_wrapped": lambda x, i: (i + 1).int() // (1 << 32),
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


def _effects(fault: Any, x: Any, i: Any, log: list[Any]) -> Any:
    log.append("before")
    y = fault(x * 2, i)
    log.append("after")
    return y


def _later_handler(fault: Any, x: Any, i: Any, log: list[Any]) -> Any:
    y = fault(x.sin(), i)
    try:
        return y.sum().item()
    except ERRORS:
        return "too late"


PROGRAMS = [
    _effects,
    _later_handler,
    _try,
    _suppress,
    _finally,
    _manager,
    _outer_frame,
    _uncaught,
    _uncaught_backward,
]


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


LOOK_UPS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "topk": (0, lambda x: x.gather(1, x.topk(1).indices.expand(-1, 2)).relu()),
    "argsort": (0, lambda x: x.t()[x.sum(0).argsort().flip(0)] * 2),
    "argmax": (0, lambda x: F.embedding(x.argmax(0), x) + (x.argmax(0)[:, None].int() + 1) // 2),
    "classes": (0, lambda x: F.cross_entropy(x, x.exp().argmax(-1))),
    "fewer": (1, lambda x: x.index_select(0, x.argmax(1)) * 2),
    "written": (1, lambda x: x.index_select(0, x.argmax(0).sub_(1).abs_()) * 2),
    "floats": (1, lambda x: x[x.sum(1).clamp(0, 1).long()] * 2),
    "quotient": (1, lambda x: (x.long() + 1) // (x.long() + 2)),
    "values": (1, lambda x: torch.linalg.svdvals(x * 2) + 1),
}


@pytest.mark.parametrize("name", LOOK_UPS)
def test_how_often_a_region_runs_early(name: str) -> None:
    """Results of `topk` and its kind are places of what was sorted: nobody has to look at them."""
    flushes, function = LOOK_UPS[name]
    x = torch.tensor([[0.5, 1.0, 0.0], [1.0, 0.5, 0.2]])
    assert torch.compiler.explain(function, x).graph_break_count == flushes
    assert torch.equal(torch.compile(function, fullgraph=True)(x), function(x))


DRAWS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "below": (0, lambda x: x[torch.randint(0, 3, (5,))] * 2),
    "from 0": (0, lambda x: x[torch.randint(2, (5,))] * 2),
    "some of them": (0, lambda x: x.index_select(0, torch.randint(1, 3, (5,)).view(5)) * 2),
    "as int32": (1, lambda x: F.embedding(torch.randint(0, 3, (5,)).int(), x) * 2),
    "negative": (1, lambda x: x[torch.randint(-2, 3, (5,))] * 2),
    "too high": (1, lambda x: x[torch.randint(0, 4, (5,)).clamp(max=2)] * 2),
}


@pytest.mark.parametrize("name", DRAWS)
def test_drawn_places_are_known(name: str) -> None:
    """Integers that are drawn from an interval inside of what they index need no look."""
    flushes, function = DRAWS[name]
    x = torch.randn(3, 2)
    assert torch.compiler.explain(function, x).graph_break_count == flushes
    torch.manual_seed(3)
    expected = [function(x) for _ in range(3)]
    torch.manual_seed(3)
    compiled = torch.compile(function)
    assert all(torch.equal(compiled(x), y) for y in expected)


def test_places_drawn_from_too_much() -> None:
    compiled = torch.compile(lambda x, n: x[torch.randint(0, n, (50,))] * 2)
    assert compiled(torch.randn(3, 2), 3).shape == (50, 2)
    with pytest.raises(IndexError):
        compiled(torch.randn(3, 2), 1000)


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


def test_results_that_are_operands() -> None:
    """A call that returns what it took is passed over on the way to what made an index."""
    table = torch.randn(12, 4)

    def look_up(ids: Any) -> Any:
        places = torch.cat((torch.arange(5, 8).repeat(ids.size(0), 1), ids), 1).contiguous()
        return F.embedding(places.contiguous(), table)

    ids = torch.randint(0, 9, (2, 8))
    assert torch.equal(torch.compile(look_up)(ids), look_up(ids))
    assert torch.compiler.explain(look_up, ids).graph_break_count == 0
    with pytest.raises(IndexError):
        torch.compile(look_up)(ids + 9)
