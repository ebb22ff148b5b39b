"""Matches of patterns beside PyTorch's: their number, their nodes, what the handlers get."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
sys.path.insert(0, str(Path(__file__).parents[1] / "fx"))
from matched import CASES, REPLACEMENTS, Library, matches, replaced  # noqa: E402

THEIRS, OURS = Library("torch"), Library("flambeau")


@pytest.mark.parametrize("name", CASES)
def test_matches(name):
    assert matches(OURS, name) == matches(THEIRS, name)


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_replacements(name):
    number, counts, calls, _ = replaced(OURS, name)
    expected = replaced(THEIRS, name)
    assert (number, counts) == expected[:2]
    if not name.startswith("joint"):  # derivatives are written with other operators
        assert calls == expected[2]
