"""Generating kernels twice gives the same text; the replay tool notices any difference."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tools import process_replay

PROGRAM = """
import json, sys
from tools.process_replay import collect
print(json.dumps(list(collect(sys.argv[1:]).items())))
"""
OPERATORS = ("add", "sum", "nn.functional.softmax", "cumsum", "nn.functional.gelu", "layer_norm")


def texts(seed):
    """Kernel texts of the operators in a process of its own, with another order of sets."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *OPERATORS],
        cwd=process_replay.ROOT,
        env=os.environ | {"PYTHONHASHSEED": seed},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(run.stdout)


def test_kernels_are_reproducible():
    first = texts("1")
    assert all(found for name, found in first if name.endswith("f32")) and first
    assert first == texts("2")


def test_compare_reports_changes():
    old = {"add f32": ["a\nb"], "sub f32": ["c"], "mul f32": ["same"]}
    new = {"add f32": ["a\nB"], "div f32": ["d"], "mul f32": ["same"]}
    report = "\n".join(process_replay.compare(old, new))
    assert "add f32: 1 kernels, now 1" in report and "-b" in report and "+B" in report
    assert "sub f32: gone" in report and "div f32: new" in report
    assert "mul" not in report


def test_equal_dumps_compare_equal(tmp_path, capsys):
    dump = tmp_path / "dump"
    dump.write_text(json.dumps({"add f32": ["text"]}))
    assert process_replay.main(["compare", str(dump), str(dump)]) == 0
    assert "every kernel is the same" in capsys.readouterr().out
