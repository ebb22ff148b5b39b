"""Graphs print as Python that gives back the very same nodes; the verifier quotes what is wrong."""

import math

import pytest

from flambeau import prims
from flambeau.derivation.derive import derive
from flambeau.ir.environment import environment
from flambeau.ir.graph_grammar import GraphError, verify_graph
from flambeau.ir.node import Graph, GraphOutput, attributes, node
from flambeau.ir.printer import parse_graph, print_graph
from flambeau.ir.size import minimum, symbol
from flambeau.ir.size_program import eq
from flambeau.prims import PRIMITIVES
from flambeau.prims.common import DIFFERENTIABLE
from tests.prims.composites import COMPOSITES, composite, layer_norm, make_graph, scaled
from tests.prims.test_primitives import CASES, sample


def round_trip(graph):
    verify_graph(graph)
    text = print_graph(graph)
    again = parse_graph(text)
    assert again == graph
    assert all(a.node is b.node for a, b in zip(again.outputs, graph.outputs))
    assert print_graph(again) == text
    return text


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_and_their_derivatives(name):
    graph = composite(name)
    round_trip(graph)
    derived = derive(graph, [x.dtype in DIFFERENTIABLE for x in graph.inputs])
    round_trip(derived.forward)
    round_trip(derived.backward)


@pytest.mark.parametrize("name, k", CASES)
def test_every_primitive(name, k):
    out, nodes, _ = sample(name, k)
    nodes = [prims.input_node(i, n.dtype, n.shape, (0,) * n.ndim) for i, n in enumerate(nodes)]
    out = prims.bind(name, *nodes, **dict(out.attributes))
    round_trip(Graph((), tuple(nodes), (), (GraphOutput(out),), 1))
    if callable(PRIMITIVES[name].derivative) and out.dtype in DIFFERENTIABLE:
        grads = PRIMITIVES[name].derivative(out, out, *nodes)
        outputs = tuple(GraphOutput(g) for g in grads if g is not None)
        round_trip(Graph((), tuple(nodes), (), outputs, len(outputs)))


def test_symbolic_graph():
    s0, s1 = symbol("s0", minimum=2), symbol("s1", minimum=2)
    shapes = [(s0, s1), (s1,), (s1,)]
    graph = make_graph(layer_norm, ["f32"] * 3, shapes, symbols=("s0", "s1"))
    text = round_trip(graph)
    assert "# f32[s0, s1]" in text and 's0 = symbol("s0", minimum=2)' in text
    derived = derive(graph, (True, True, True))
    round_trip(derived.forward)
    round_trip(derived.backward)


def test_guards_scalars_outputs_and_absent_inputs():
    s0, s1 = symbol("s0"), symbol("s1")
    x = prims.input_node(0, "f64", (s0,), (s1,))
    alpha = prims.scalar_node(0, "f64")
    part = prims.slice(x, 0, 1, minimum(s0 - 1, 5))
    value = scaled(x, alpha)
    outputs = (
        GraphOutput(value, (1,), target=0),
        GraphOutput(part, (s1,), alias=0, offset=s1),
        GraphOutput(value, (1,)),
    )
    guards = (eq(s0, 3 * s1),)
    graph = Graph(("s0", "s1"), (x, None), (alpha,), outputs, 2, guards, 1, "a b")
    text = round_trip(graph)
    assert "saved(" in text and "alias=0" in text and "guards=" in text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 0.1, 1e300])
def test_constants(value):
    x = prims.full(value, (2,), "f64")
    round_trip(Graph((), (), (), (GraphOutput(x),), 1))


def test_minus_zero_and_dtypes_are_kept_apart():
    assert prims.full(-0.0, (), "f32") is not prims.full(0.0, (), "f32")
    assert prims.full(1, (), "f32") is prims.full(1.0, (), "f32")
    assert prims.full(1, (), "i64") is not prims.full(True, (), "bool")
    assert prims.full(math.nan, (), "f32") is prims.full(float("nan"), (), "f32")


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "x = ().__class__",
        "x = prims.exp.__globals__",
        "x = [y for y in z]",
        "x = __import__('os')",
    ],
)
def test_other_python_is_refused(text):
    with pytest.raises(ValueError):
        parse_graph(text)


def broken(build):
    x = prims.input_node(0, "f32", (2, 3), (3, 1))
    y = prims.exp(prims.sin(x))
    out = prims.tanh(build(y))
    return Graph((), (x,), (), (GraphOutput(out),), 1)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda y: node("neg", (y,), (), "f64", y.shape), "operands give f32"),
        (lambda y: node("neg", (y,), (), "f32", (3, 2)), "operands give"),
        (lambda y: node("gelu", (y,), (), "f32", (2, 3)), "unknown primitive"),
        (lambda y: node("sum", (y,), attributes(axis=7), "f32", (2, 3)), "axis 7"),
        (lambda y: node("broadcast", (y,), (), "f32", (2, 3)), "KeyError"),
        (lambda y: y + prims.input_node(1, "f32", (2, 3), (3, 1)), "not one of the graph's"),
        (lambda y: prims.bind("full", value=1.0, shape=(symbol("q"),), dtype="f32"), "symbols q"),
    ],
)
def test_verifier_quotes_the_place(build, message):
    with pytest.raises(GraphError) as error:
        verify_graph(broken(build))
    assert message in str(error.value)
    marked = [line for line in str(error.value).splitlines() if line.startswith("> ")]
    assert len(marked) == 1 or "not one of" in message


def test_a_draw_happens_once():
    with environment(None):
        a = prims.random("uniform", (2,), "f32", 0, 1, sequence=0)
        b = prims.random("uniform", (3,), "f32", 0, 1, sequence=0)
    with pytest.raises(GraphError, match="twice"):
        verify_graph(Graph((), (), (), (GraphOutput(a), GraphOutput(b)), 2))


def test_source_lines_are_shown():
    x = prims.input_node(0, "f32", (2,), (1,))
    y = node("exp", (x,), (), "f32", (2,), source="train.py:12")
    assert "# f32[2]  train.py:12" in print_graph(Graph((), (x,), (), (GraphOutput(y),), 1))
