"""Planning costs the same per node, whatever the size of the program.

Costs are counted, not timed: calls of functions, Python's and C's, while a region is compiled.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn, prims
from flambeau.capture import stream
from flambeau.compiler import pipeline
from flambeau.derivation import replay as replaying
from flambeau.ir.node import Graph, GraphOutput
from flambeau.ir.size import symbol

WIDTH = 8


class Layer(nn.Module):
    """A residual layer whose first weight is read as three slices, as attention's is."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 3 * WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        """(rows, WIDTH) -> (rows, WIDTH)."""
        gate, value, shift = self.up(self.norm(x)).chunk(3, dim=1)
        return x + self.down(torch.relu(gate) * value + shift)


def training_step(layers: int) -> Any:
    """A compiled step over so many layers: forward, backward and update are one region."""
    model = nn.Sequential(*[Layer() for _ in range(layers)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    x = torch.ones(4, WIDTH)

    def step() -> Any:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return torch.compile(step)


def calls_of(function: Any) -> int:
    """How many functions are called while one runs."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_visits_per_node_do_not_grow() -> None:
    """Four and sixteen times the layers: at most 1.2 times the calls per layer."""
    for layers in (2, 3):  # what every program needs once: plans of the operators
        training_step(layers)()
    counts = {}
    for layers in (1, 4, 16):
        step = training_step(layers)
        counts[layers] = calls_of(lambda step=step: step().item())
    small = (counts[4] - counts[1]) / 3
    large = (counts[16] - counts[4]) / 12
    assert large <= 1.2 * small, counts
    assert counts[16] <= 1.2 * 16 * counts[1], counts


def test_a_trace_starts_again_early(monkeypatch: Any) -> None:
    """Sizes of the data that a first layer says are constants cost a part of a trace, not all."""
    replayed: list[int] = []
    run = stream.StreamTrace.run

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return run(self, *args, **options)
        finally:
            replayed.append(len(self._sizes))

    monkeypatch.setattr(stream.StreamTrace, "run", counted)
    training_step(16)().item()
    first, *others = replayed
    assert len(others) == 1 and first < 0.3 * others[0], replayed


def _reversed_in_place(tensors: Any) -> Any:
    """Every kernel would overwrite what it still has to read."""
    for x in tensors:
        x.copy_(x.flip(0))
    return [x.sum() for x in tensors]


def _read_behind_writes(tensors: Any) -> Any:
    """Products of what was written, times what had been there before."""
    results = []
    for x in tensors:
        before = x * 1.5
        x.add_(1)
        results.append((x @ x) * before)
    return results


@pytest.mark.parametrize(
    ("function", "conflicts"), ((_reversed_in_place, 1), (_read_behind_writes, 0))
)
def test_conflicts_are_found_together(function: Any, conflicts: int, monkeypatch: Any) -> None:
    """A program with many writes that need a copy is scheduled as often as one with a few: once
    where only the order of launches is in conflict."""
    runs: list[int] = []
    prepare = pipeline.prepare

    def counted(graph: Any, indirect: Any) -> Any:
        runs.append(len(indirect))
        return prepare(graph, indirect)

    monkeypatch.setattr(pipeline, "prepare", counted)
    rounds = []
    for count in (3, 12):
        ours = [torch.arange(64.0).reshape(8, 8) + i for i in range(count)]
        same = [x.clone() for x in ours]
        expected = function(same)
        runs.clear()
        compiled = torch.compile(function)(ours)
        assert all(torch.equal(a, b) for a, b in zip(compiled, expected, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(ours, same, strict=True))
        assert max(runs) == conflicts * count  # all of them at once
        rounds.append(len([n for n in runs if n]))
    assert rounds[0] == rounds[1]


def test_replays_on_equal_sizes_share_their_forms() -> None:
    """Shapes and attributes are computed once per binding of sizes, and few are stored."""
    rows = symbol("rows", minimum=2)
    x = prims.input_node(0, "f32", (rows, 4), (4, 1))
    body = prims.reshape(prims.exp(x), (rows * 4,))
    graph = Graph(("rows",), (x,), (), (GraphOutput(body),), 1)
    for count in (7, 7, 8, 7, *range(10, 10 + 2 * replaying.FORMS)):
        operand = prims.input_node(0, "f32", (count, 4), (4, 1))
        (result,) = replaying.replay(graph, [operand], (), {"rows": count})
        assert result is prims.reshape(prims.exp(operand), (count * 4,))
        assert 1 <= len(graph.notes["forms"]) <= replaying.FORMS
