"""Runs the files of programs under both frameworks and compares what they print."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path.stem for path in Path(__file__).parent.glob("programs_*.py"))
TOLERANCE = 3e-4
FLOAT = re.compile(r"(?<![\w.])-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)(?!\w)")
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")

# Notes of PyTorch about its own parts, which nothing here corresponds to.
NOTES = (
    "`torch.jit.script` is deprecated",  # its decompositions are scripted when first used
    "`torch.jit.trace_method` is deprecated",  # tracing a module calls it
    "Attempted to insert a get_attr Node",  # graphs of `linearize`
    "is extremely slow",  # a list of arrays is one copy here
    "doesn't accept a copy keyword",  # `Tensor.__array__` takes it here
    "not supported with oneDNN",
    "is in beta",
    "is in prototype stage",
    "ComplexHalf support is experimental",
    "Singular sample detected",  # PyTorch's first check of Wishart samples is negated
)

# Programs that differ on purpose, with the reason: at most ten.
LISTED: dict[str, str] = {
    "programs_structures.kinds_of_tensors": "sparse, nested tensors are classes, composed, here",
    "programs_frameworks.methods_and_functions": "a method and its function are one object here",
    "programs_graphs.profiled_step": "parts of a composed operator are one kernel, and one event",
    "programs_algorithms.strides_of_einsum": "results of einsum are contiguous here",
    "programs_distributions.kumaraswamy_mode": "PyTorch takes the logarithm of a negative number",
    "programs_numerics.matrix_exponential_node": "matrix_exp is composed of several operators here",
}


@dataclass
class Comparison:
    """The number of programs in a file and the lines that differ, by program."""

    programs: int
    differences: dict[str, list[str]]


def results(name: str, framework: str, programs: list[str]) -> list[dict[str, Any]]:
    """What the programs of a file do under a framework."""
    alias = ["-m", "flambeau"] if framework == "flambeau" else []
    command = [sys.executable, *alias, "-m", "tests.differential.child", name, *programs]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )
    if process.returncode != 0:
        raise RuntimeError(f"{name} under {framework}: {process.stderr[-2000:]}")
    text: list[dict[str, Any]] = json.loads(process.stdout.rpartition("\n")[2])
    return text


def close(ours: str, theirs: str) -> bool:
    """Whether two lines say the same, up to rounding of numbers with a decimal point."""
    if ours == theirs:
        return True
    ours, theirs = ADDRESS.sub("0x", ours), ADDRESS.sub("0x", theirs)
    if " ".join(FLOAT.sub("#", ours).split()) != " ".join(FLOAT.sub("#", theirs).split()):
        return False
    return all(
        math.isclose(float(a), float(b), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for a, b in zip(FLOAT.findall(ours), FLOAT.findall(theirs), strict=True)
    )


def lines_of(result: dict[str, Any]) -> list[str]:
    """The lines of a result: output, the categories of warnings, the type of an exception."""
    lines = result["output"].splitlines()
    lines += [
        f"warning {category}"
        for category, text in result["warnings"]
        if not any(part in text for part in NOTES)
    ]
    if result["error"]:
        lines.append(f"raised {result['error'].partition(':')[0]}")
    return lines


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The lines of one program that differ."""
    left, right = lines_of(ours), lines_of(theirs)
    if len(left) == len(right) and all(close(a, b) for a, b in zip(left, right, strict=True)):
        return []
    matching = {b: a for a, b in zip(left, right, strict=False) if close(a, b)}
    right = [matching.get(line, line) for line in right]
    lines = [line for line in difflib.unified_diff(right, left, "PyTorch", "Flambeau", "", "", n=0)]
    notes = [f"PyTorch: {text}" for _, text in theirs["warnings"]]
    notes += [f"Flambeau: {text}" for _, text in ours["warnings"]]
    notes += [
        f"{name}: {one['error']}"
        for name, one in (("PyTorch", theirs), ("Flambeau", ours))
        if one["error"]
    ]
    return [line.rstrip() for line in lines[2:]] + [note[:600] for note in notes]


def compare_file(name: str, programs: list[str] | None = None) -> Comparison:
    """What differs between the frameworks in the programs of a file."""
    ours = results(name, "flambeau", programs or [])
    theirs = results(name, "torch", programs or [])
    found = {
        a["name"]: lines for a, b in zip(ours, theirs, strict=True) if (lines := differences(a, b))
    }
    return Comparison(len(ours), found)
