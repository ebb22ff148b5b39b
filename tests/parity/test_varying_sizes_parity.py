"""Calls of a backend where sizes vary, beside PyTorch's: their number, and inputs of the graphs."""

from __future__ import annotations

import copy
import importlib
import re
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
from tests.capture.size_programs import programs  # noqa: E402

for library in ("torch", "flambeau"):
    importlib.import_module(f"{library}._dynamo.testing")
pytestmark = pytest.mark.filterwarnings("ignore")


class Graphs:
    """A backend that stores what it is called with."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.inputs: list[list[str]] = []

    def __call__(self, module: Any, inputs: Any) -> Any:
        self.graphs.append(module)
        self.inputs.append([type(x).__name__ for x in inputs])
        return module.forward


def run(library: Any, name: str) -> Graphs:
    """The graphs of a program's calls."""
    library._dynamo.reset()
    function, calls, options = programs(library)[name]
    backend = Graphs()
    compiled = library.compile(function, backend=backend, **options)
    for args in copy.deepcopy(calls):
        compiled(*args)
    library._dynamo.reset()
    return backend


def placeholders(module: Any) -> list[str]:
    """Kinds and sizes of the inputs, with symbols in the order in which they occur."""
    names: dict[str, str] = {}
    texts = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            value = node.meta["example_value"]
            shape = list(value.shape) if hasattr(value, "shape") else value
            texts.append(str(shape))
    return [
        re.sub(r"\bs\d+\b", lambda m: names.setdefault(m[0], f"s{len(names)}"), text)
        for text in texts
    ]


# PyTorch reads weights before the input; `range(n)` makes the size a number there, and so does
# `reshape` to a number, which stays a guard here.
OTHER_INPUTS = ("module", "module, dynamic", "images", "loop", "reads, dynamic")


@pytest.mark.parametrize("name", programs(torch))
def test_graphs(name: str) -> None:
    ours, theirs = run(flambeau, name), run(torch, name)
    assert len(ours.graphs) == len(theirs.graphs)
    if name in OTHER_INPUTS:
        return
    for one, two in zip(ours.graphs, theirs.graphs, strict=True):
        assert placeholders(one) == placeholders(two)
    assert ours.inputs == theirs.inputs
