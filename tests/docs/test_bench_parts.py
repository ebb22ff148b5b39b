"""`python -m bench`: what stands on its command line are parts, no words of theirs."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pytest

from bench import __main__ as bench


def test_a_part_sees_nothing_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """`whole_models` would take its own name for that of a model."""
    seen = []
    part = SimpleNamespace(main=lambda: seen.append(sys.argv[1:]))
    monkeypatch.setattr(importlib, "import_module", lambda name: part)
    monkeypatch.setattr(sys, "argv", ["bench", "whole_models", "rest"])
    bench.main()
    assert seen == [[], []]


def test_an_unknown_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "whole_models", "resnet"])
    with pytest.raises(SystemExit, match="unknown part 'resnet'"):
        bench.main()
