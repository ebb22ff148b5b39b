"""Simplification keeps the bits and removes what it promises to."""

import numpy as np
import pytest

from flambeau import prims
from flambeau.compiler.simplify import simplify
from tests.prims.composites import COMPOSITES, composite, make_graph
from tests.prims.graph_interpreter import run_graph


def simplified(function, shape=(3, 4), dtypes=("f32",)):
    """The single result's node, and the input nodes."""
    graph = simplify(make_graph(function, list(dtypes), [shape] * len(dtypes)))
    return graph.outputs[0].node, graph.inputs


REMOVED = {
    "x * 1": lambda x: x * 1.0,
    "1 * x": lambda x: prims.full(1.0, x.shape, "f32") * x,
    "x / 1": lambda x: x / 1.0,
    "x - 0": lambda x: x - 0.0,
    "double negation": lambda x: prims.neg(prims.neg(x)),
    "transposed twice": lambda x: prims.permute(prims.permute(x, (1, 0)), (1, 0)),
    "reshaped there and back": lambda x: prims.reshape(prims.reshape(x, (12,)), (3, 4)),
    "flipped twice": lambda x: prims.flip(prims.flip(x, (0,)), (0,)),
    "widened and back": lambda x: prims.cast(prims.cast(x, "f64"), "f32"),
    "annotation": lambda x: prims.stop_gradient(x),
    "where of equals": lambda x: prims.where(x > 0.0, x, x),
    "where of a constant": lambda x: prims.where(prims.full(True, (3, 4), "bool"), x, x + 1),
}


@pytest.mark.parametrize("name", REMOVED)
def test_removed(name):
    result, inputs = simplified(REMOVED[name])
    assert result is inputs[0]


KEPT = {
    "x + 0 turns minus zero into zero": lambda x: x + 0.0,
    "x * 0 keeps NaN": lambda x: x * 0.0,
    "rounding to half": lambda x: prims.cast(prims.cast(x, "bf16"), "f32"),
    "through integers": lambda x: prims.cast(prims.cast(x, "i32"), "f32"),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name):
    graph = make_graph(KEPT[name], ["f32"], [(3, 4)])
    assert simplify(graph) is graph


def test_integer_plus_zero_goes():
    result, inputs = simplified(lambda x: x + 0, dtypes=("i64",))
    assert result is inputs[0]


def test_views_compose():
    def function(x):
        return prims.slice(prims.slice(x, 1, 1, 3, 1), 1, 0, 2, 2)

    result, inputs = simplified(function)
    assert result.inputs[0] is inputs[0] and result.attribute("step") == 2


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_keep_their_bits(name):
    graph = composite(name)
    generator = np.random.default_rng(0)
    arrays = [
        generator.uniform(-2, 2, x.shape)
        if x.dtype[0] == "f"
        else generator.integers(0, 2, x.shape)
        for x in graph.inputs
    ]
    before, after = run_graph(graph, arrays), run_graph(simplify(graph), arrays)
    for a, b in zip(before, after):
        np.testing.assert_array_equal(a, b)
