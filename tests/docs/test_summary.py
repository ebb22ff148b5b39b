"""The table of measurements in the README is made from the result files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import summary

ROW = {"ours": 1.0, "theirs": 4.0, "threads": 1, "note": ""}


def test_table(tmp_path: Path) -> None:
    machine = {"processor": "P", "python": "3.11", "torch": "2.13"}
    rows = [ROW | {"name": "a", "ratio": 0.25}, ROW | {"name": "b", "ratio": 1.0}]
    tables = {"Small": rows, "Empty": []}
    (tmp_path / "x.json").write_text(json.dumps({"machine": machine, "tables": tables}))
    lines = summary.summary(tmp_path).splitlines()
    assert lines[2:] == [
        "| x: Small | 2 | **0.50** | 0.25 a | 1.00 b |",
        "",
        "Measured on P, Python 3.11, PyTorch 2.13.",
    ]


def test_without_results(tmp_path: Path) -> None:
    assert summary.summary(tmp_path) == summary.EMPTY


def test_markers() -> None:
    text = summary.filled(f"a\n{summary.BEGIN}\nold\n{summary.END}\nb\n", "new")
    assert text == f"a\n{summary.BEGIN}\nnew\n{summary.END}\nb\n"
    assert summary.filled(summary.README.read_text(), "x")
    with pytest.raises(ValueError, match="lacks"):
        summary.filled("no markers", "x")
