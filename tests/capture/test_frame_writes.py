"""Tier 2 and memory: explained calls write what the function writes, and no dry run reads data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from tests.capture.frames import CALLS, explained, skips

STATE = torch.tensor(2)
NUMBERS = [1, 2, 3, 4, 5, 6]


def counted(x: Any) -> Any:
    """Writes to a global tensor, then reads it."""
    STATE.add_(1)
    return x * STATE


def two_writes(x: Any) -> Any:
    """Two writes to one tensor, and a result that is the tensor."""
    x.mul_(2)
    x.add_(1)
    return x


def test_global_tensors_are_written() -> None:
    compiled = explained(counted, torch.ones(2))
    for _ in range(CALLS):
        before, version = STATE.item(), STATE._version
        result, skipped = skips(compiled, torch.ones(2))
        assert skipped and result.tolist() == [before + 1] * 2
        assert STATE.item() == before + 1 and STATE._version == version + 1


def test_arguments_are_written() -> None:
    compiled = torch.compile(two_writes)
    for _ in range(2 * CALLS):
        x = torch.ones(3)
        assert compiled(x) is x and x.tolist() == [3.0] * 3 and x._version == 2
    assert compiled._hits > 0


def test_a_dry_run_writes_nothing() -> None:
    x = torch.ones(3)
    explanation = torch.compiler.explain(two_writes, x)
    assert explanation.guards and x.tolist() == [3.0] * 3 and x._version == 2


def test_memory_that_is_shared_is_recorded() -> None:
    def writes(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2

    compiled = explained(writes, torch.ones(2), torch.ones(2))
    x = torch.ones(2)
    result, skipped = skips(compiled, x, x.view(2))
    assert not skipped and result.tolist() == [4.0, 4.0]
    both = torch.ones(4)
    result, skipped = skips(compiled, both[:2], both[2:])
    assert not skipped and result.tolist() == [2.0, 2.0] and both.tolist() == [2, 2, 1, 1]
    result, skipped = skips(compiled, torch.ones(2), torch.ones(2))
    assert skipped and result.tolist() == [2.0, 2.0]


def test_memory_of_a_constant_that_is_replaced() -> None:
    holder = nn.Module()
    holder.a, holder.b = torch.ones(2), torch.ones(2)

    def writes(x: Any) -> Any:
        holder.a.add_(x)
        return holder.b * 2

    compiled = explained(writes, torch.ones(2))
    holder.a.data = holder.b  # from now on a write to one is a write to both
    holder.b.fill_(1)
    assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("training", [True, False])
def test_statistics_of_batches(training: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True)).train(training)
    eager = copy.deepcopy(layer)
    compiled = torch.compile(layer.__call__)
    for _ in range(2 * CALLS):
        x = torch.randn(2, 3, 6, 6)
        results = []
        for call, module in ((compiled, layer), (eager, eager)):
            module.zero_grad()
            y = call(x)
            (gradient,) = torch.autograd.grad(y.sin().sum(), module[0].weight, create_graph=True)
            (second,) = torch.autograd.grad(gradient.square().sum(), module[0].weight)
            results.append([y, gradient, second, *module.buffers()])
        assert all(map(torch.equal, *results))
    assert compiled._hits > CALLS


def test_errors_of_writes_are_those_of_the_function() -> None:
    compiled = explained(lambda x: x.add_(1), torch.ones(2))
    x = torch.ones(2, requires_grad=True)
    for _ in range(CALLS):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            compiled(x)
    y = torch.ones(2, requires_grad=True) * 2
    assert torch.equal(compiled(y), torch.full((2,), 3.0))


READS: dict[str, Callable[[Any, Any], Any]] = {
    "float": lambda x, s: x * float(s),
    "int": lambda x, s: x * int(s),
    "complex": lambda x, s: x * complex(s).real,
    "index": lambda x, s: x * NUMBERS[s],
    "range": lambda x, s: x * sum(1 for _ in range(s)),
    "slice": lambda x, s: x[:s],
    "size": lambda x, s: torch.ones(s),
    "repeat": lambda x, s: x.repeat(s),
    "number": lambda x, s: x.add(x, alpha=s),
    "branch": lambda x, s: x + 1 if s - 2 else x,
    "branch of a global": lambda x, s: x + 1 if STATE > 1000 else x * s,
    "not": lambda x, s: x * (not (s - 2)),
    "item": lambda x, s: x * s.item(),
    "list": lambda x, s: x * s.view(1).tolist()[0],
    "text": lambda x, s: x * len(f"{s}"),
}


@pytest.mark.parametrize("name", READS)
def test_numbers_that_are_read_are_read_in_every_call(name: str) -> None:
    """A guard says that a tensor is the same, not what it holds."""
    number = torch.tensor(2)
    x = torch.arange(6.0)
    function = lambda v: READS[name](v, number)  # noqa: E731
    compiled = torch.compile(function)
    for _ in range(2 * CALLS):
        compiled(x)
    number.add_(1)
    assert torch.equal(compiled(x), function(x))
