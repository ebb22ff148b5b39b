"""Graphs, generated code and names of `torch.fx` beside PyTorch's, for the same programs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

from examples.models import CLASSES, build  # noqa: E402
from tests.fx.programs import programs  # noqa: E402

OURS, THEIRS = programs(flambeau), programs(torch)


def facts(graph):
    """Everything about a graph that has a text."""
    return [
        (
            node.op,
            node.name,
            node._pretty_print_target(node.target),
            node.format_node(),
            [user.name for user in node.users],
            [each.name for each in node.all_input_nodes],
            [(k, path) for k, (path, _) in node.meta.get("nn_module_stack", {}).items()],
        )
        for node in graph.nodes
    ]


@pytest.mark.parametrize("name", [name for name in THEIRS if name != "leaf"])
def test_same_graph_and_code(name):
    ours = flambeau.fx.symbolic_trace(OURS[name][0])
    theirs = torch.fx.symbolic_trace(THEIRS[name][0])
    assert str(ours.graph) == str(theirs.graph)
    assert ours.code == theirs.code
    assert facts(ours.graph) == facts(theirs.graph)
    assert str(ours) == str(theirs)
    code = [m.graph.python_code("self") for m in (ours, theirs)]
    assert code[0]._lineno_map == code[1]._lineno_map
    assert list(code[0].globals) == list(code[1].globals)


@pytest.mark.parametrize("name", CLASSES)
def test_same_graph_of_example_models(name):
    results = []
    for library, fx in (("flambeau", flambeau.fx), ("torch", torch.fx)):
        try:
            traced = fx.symbolic_trace(build(name, library))
            results.append((str(traced.graph), traced.code))
        except Exception as error:
            results.append((type(error).__name__, str(error).splitlines()[0]))
    assert results[0] == results[1]
