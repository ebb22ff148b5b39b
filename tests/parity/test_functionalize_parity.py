"""Graphs of functions without writes beside PyTorch's: operators, names and what reads what."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
from tests.fx.functional_programs import programs  # noqa: E402

for library in ("torch", "flambeau"):
    importlib.import_module(f"{library}.fx.experimental.proxy_tensor")


def recorded(library, name, remove):
    """The graph's nodes as texts, and the module."""
    function, args = programs(library)[name]
    functional = library.func.functionalize(function, remove=remove)
    make_fx = library.fx.experimental.proxy_tensor.make_fx
    module = make_fx(functional)(*[x.clone() for x in args])
    nodes = [
        (node.op, node.name, str(node.target), [each.name for each in node.all_input_nodes])
        for node in module.graph.nodes
    ]
    return nodes, module


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("name", programs(torch))
def test_graphs(name, remove):
    ours, module = recorded(flambeau, name, remove)
    theirs, _ = recorded(torch, name, remove)
    assert ours == theirs
