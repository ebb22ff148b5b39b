"""Programs that never repeat: what is known of streams stays bounded, in the core and in Python."""

from __future__ import annotations

import itertools
from typing import Any

import flambeau as torch
from flambeau import _core
from flambeau.capture import stream
from flambeau.ir import node

OPS = [torch.sin, torch.cos, torch.exp, torch.neg]


def test_streams_that_never_repeat() -> None:
    """Kernels are few, streams many: the oldest are forgotten, one that is in use stays known."""
    _core.set_stream_limit(64)
    try:
        _run_many()
    finally:
        _core.set_stream_limit(4096)


def _run_many() -> None:
    operands = [torch.rand(n) for n in (3, 5, 7, 9)]
    often = torch.compile(lambda: [op(x) for op, x in zip(OPS, operands, strict=True)])
    often()
    nodes: list[int] = []
    for number, choice in enumerate(itertools.product(OPS, repeat=4)):
        if choice == tuple(OPS):
            continue
        torch.compile(_apply)(choice, operands)
        stats = _core.stream_stats()
        assert stats["entries"] <= 64
        assert stats["plans"] <= 64
        assert len(stream._histories) <= 64 + len(often._explanations)  # they hold its plan
        if number % 64 == 63:
            nodes.append(len(node._table))
        if number % 16 == 0:
            builds = stats["builds"]
            often()
            assert _core.stream_stats()["builds"] == builds
    assert max(nodes[1:]) <= nodes[0] + 16


def _apply(choice: Any, operands: Any) -> list[Any]:
    return [op(x) for op, x in zip(choice, operands, strict=True)]


def test_reports_are_kept_for_those_who_ask() -> None:
    report = torch.compiler.explain(lambda x: x.sin() * 2, torch.ones(3))
    assert report.plans == 1
    assert not stream._watchers


def test_reading_values_keeps_nothing() -> None:
    """`item` ends a stream each time."""
    x = torch.ones(3)

    def loop() -> float:
        return sum((x[k % 3] * 2).item() for k in range(300))

    compiled = torch.compile(loop)
    assert compiled() == 600
    before = _counts()
    assert compiled() == 600
    assert loop() == 600
    assert _counts() == before


def _counts() -> tuple[int, ...]:
    stats, memory = _core.stream_stats(), _core.memory_stats()
    return (
        stats["entries"],
        stats["plans"],
        stats["recorders"],
        memory["allocation.all.current"],
        len(node._table),
    )
