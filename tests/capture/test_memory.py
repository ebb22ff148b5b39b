"""Compiled regions give back all memory."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import _core


def allocated() -> int:
    """Bytes that live tensors occupy."""
    return int(_core.memory_stats()["allocated_bytes.all.current"])


@pytest.mark.usefixtures("no_garbage")
def test_results_of_a_region_are_freed() -> None:
    compiled = torch.compile(lambda x: (x + 1, (x * 2).sum()))
    x = torch.randn(64, 64)
    for _ in range(2):
        compiled(x)
    before = allocated()
    for _ in range(5):
        compiled(x)
    assert allocated() == before
