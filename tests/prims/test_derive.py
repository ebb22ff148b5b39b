"""Derivation of whole graphs: gradients, what is saved, the backward's calling convention."""

import numpy as np
import pytest

from flambeau import prims
from flambeau.derivation.derive import derive, differentiate, replay
from flambeau.ir.environment import environment
from flambeau.ir.node import Graph
from flambeau.ir.size import symbol
from flambeau.ir.size_program import ShapeEnvironment
from flambeau.prims.common import DIFFERENTIABLE
from tests.prims.composites import COMPOSITES, composite, layer_norm, make_graph, scaled, softmax
from tests.prims.graph_interpreter import bind_sizes, run_graph, run_nodes
from tests.prims.test_primitives import numeric_gradient


def values_for(graph, seed=0):
    generator = np.random.default_rng(seed)
    arrays = []
    for x in graph.inputs:
        floating = x.dtype in DIFFERENTIABLE
        draw = generator.uniform(-2, 2, x.shape) if floating else generator.integers(-2, 2, x.shape)
        arrays.append(draw)
    return arrays


def needs_of(graph):
    return tuple(x.dtype in DIFFERENTIABLE for x in graph.inputs)


def run_backward(graph, derived, arrays, grads, scalars=(), sizes=()):
    """Run forward, gather what the sources say, run backward."""
    outputs = run_graph(derived.forward, arrays, scalars, sizes)
    sizes = bind_sizes(graph, arrays, sizes)
    kinds = {
        "input": lambda k: arrays[k],
        "output": lambda k: outputs[k],
        # Saved values have no gradient in a backward that is not differentiated again.
        "grad": lambda k: grads[k] if k < len(grads) else np.zeros(np.shape(outputs[k])),
        "register": lambda k: sizes[graph.symbols[k]],
        "scalar": lambda k: scalars[k],
    }
    found = [kinds[kind](k) for kind, k in derived.sources]
    backward = derived.backward
    count, integers = len(backward.inputs), len(backward.symbols)
    named = dict(zip(backward.symbols, found[count : count + integers]))
    return run_graph(backward, found[:count], found[count + integers :], named)


def check(graph, arrays, scalars=(), sizes=(), tolerance=1e-6):
    derived = derive(graph, needs_of(graph))
    generator = np.random.default_rng(1)
    outputs = run_graph(graph, arrays, scalars, sizes)
    grads = [generator.uniform(-1, 1, o.shape) for o in outputs]
    found = run_backward(graph, derived, arrays, grads, scalars, sizes)

    def objective(moved):
        results = run_graph(graph, moved, scalars, sizes)
        return sum((r * g).sum() for r, g in zip(results, grads))

    for slot, value in zip(derived.targets, found):
        expected = numeric_gradient(objective, arrays, slot)
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)
    return derived


@pytest.mark.parametrize("name", COMPOSITES)
def test_gradients(name):
    graph = composite(name)
    derived = check(graph, values_for(graph))
    assert [graph.inputs[t].dtype for t in derived.targets] == [
        o.node.dtype for o in derived.backward.outputs
    ]


@pytest.mark.parametrize("name", COMPOSITES)
def test_double_derivative(name):
    """The gradient's own gradient: derive the replayed backward of every output at once."""
    graph = composite(name)
    derived = derive(graph, needs_of(graph))
    backward = derived.backward
    again = Graph((), backward.inputs, (), backward.outputs, backward.visible)
    arrays = values_for(again, 3)
    for k, (kind, source) in enumerate(derived.sources):
        if backward.inputs[k].dtype == "i64":
            arrays[k] = np.abs(arrays[k]) % 2
        del kind, source
    if name in ("product_and_scan", "indexing"):
        pytest.skip("saved indices are not free: covered by test_second_order")
    check(again, arrays, tolerance=1e-5)


@pytest.mark.parametrize("name", COMPOSITES)
def test_second_order(name):
    """d/dx of sum(dy/dx * c), straight through the joint program."""
    graph = composite(name)
    wanted = [x for x in graph.inputs if x.dtype in DIFFERENTIABLE]
    outputs = [o.node for o in graph.outputs]
    first = differentiate(outputs, [prims.full_like(1.0, o) * 0.7 for o in outputs], wanted)
    weights = [prims.sin(x * 3) for x in wanted]
    second = make_second(first, weights)
    arrays = values_for(graph)
    given = dict(zip(graph.inputs, arrays))
    [grad] = differentiate([second], [prims.full(1.0, (), "f64")], wanted[:1])
    [value] = run_nodes([grad], given)

    def objective(moved):
        return run_nodes([second], dict(zip(graph.inputs, moved)))[0]

    expected = numeric_gradient(objective, arrays, graph.inputs.index(wanted[0]))
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


def make_second(first, weights):
    total = prims.full(0.0, (), "f64")
    for g, w in zip(first, weights):
        total = total + prims.reduce_dims("sum", g * w, range(g.ndim))
    return total


def saved(derived):
    return [o.node for o in derived.forward.outputs[derived.forward.visible :]]


def test_pointwise_saves_nothing():
    assert saved(derive(composite("x_sin_x"), (True,))) == []


def test_softmax_uses_its_result():
    derived = derive(composite("annotated_softmax"), (True,))
    assert saved(derived) == []
    assert derived.sources == (("output", 0), ("grad", 0))


def test_reductions_are_saved_not_the_rows():
    derived = derive(composite("layer_norm"), (True, True, True))
    sizes = [node.shape for node in saved(derived)]
    assert sizes and all(shape in ((2, 1), (2,)) for shape in sizes), sizes


def test_matmul_is_saved_once():
    derived = derive(composite("gelu_linear"), (True, True, True))
    assert [x.op for x in saved(derived)] in (["matmul"], ["add"])


def test_random_is_saved():
    def dropout(x):
        mask = prims.random("bernoulli", x.shape, "f64", 0.5)
        return x * mask

    with environment(None):
        graph = make_graph(dropout, ["f64"], [(4, 4)])
    derived = derive(graph, (True,))
    assert [x.op for x in saved(derived)] == ["random"]


def test_overwritten_input_is_not_free():
    graph = make_graph(lambda x, y: x * y, ["f64"] * 2, [(3,)] * 2, targets=[0])
    derived = derive(graph, (True, True))
    assert [x.op for x in saved(derived)] == ["input"]
    assert ("input", 0) not in derived.sources


def test_only_needed_gradients():
    derived = derive(composite("layer_norm"), (False, False, True))
    assert derived.targets == (2,)
    assert derived.sources == (("grad", 0),)
    assert derive(composite("layer_norm"), (False, False, False)) is None


def test_not_differentiable_gives_no_gradient():
    graph = make_graph(lambda x: x < 0.5, ["f64"], [(3,)])
    assert derive(graph, (True,)) is None


def test_piecewise_constant_gives_zeros():
    graph = make_graph(prims.floor, ["f64"], [(3,)])
    derived = derive(graph, (True,))
    assert derived.backward.outputs[0].node is prims.full(0.0, (3,), "f64")


def test_half_is_computed_in_float_and_returned_in_half():
    def body(x):
        return prims.cast(prims.exp(prims.cast(x, "f32")), "f16")

    derived = derive(make_graph(body, ["f16"], [(3,)]), (True,))
    assert derived.backward.outputs[0].node.dtype == "f16"


def test_scalars_are_passed_on():
    graph = make_graph(scaled, ["f64"], [(3,)], scalars=("f64",))
    derived = check(graph, values_for(graph), scalars=(1.7,))
    assert ("scalar", 0) in derived.sources


SYMBOLS = ("s0", "s1")


def symbolic(function, count=1):
    s0, s1 = (symbol(n, minimum=2) for n in SYMBOLS)
    shapes = [(s0, s1), (s1,), (s1,)][:count]
    return make_graph(function, ["f64"] * count, shapes, symbols=SYMBOLS)


def concrete(graph, sizes):
    return Graph((), tuple(sizes), (), graph.outputs, graph.visible)


@pytest.mark.parametrize("function, count", [(softmax, 1), (layer_norm, 3)])
def test_symbolic_sizes(function, count):
    graph = symbolic(function, count)
    generator = np.random.default_rng(0)
    arrays = [generator.uniform(-1, 1, s) for s in [(3, 4), (4,), (4,)][:count]]
    derived = check(graph, arrays)
    assert all(kind != "register" for kind, _ in derived.sources)


def test_sizes_no_tensor_shows_are_passed_as_integers():
    graph = symbolic(lambda x: prims.reduce_dims("sum", x, (0, 1)))
    derived = derive(graph, (True,))
    assert derived.sources == (("grad", 0), ("register", 0), ("register", 1))
    assert derived.backward.symbols == SYMBOLS
    arrays = [np.ones((3, 4))]
    [grad] = run_backward(graph, derived, arrays, [np.asarray(2.0)])
    assert grad.shape == (3, 4) and (grad == 2).all()


def test_replay_on_other_sizes():
    graph = symbolic(softmax)
    n = symbol("n", minimum=2)
    x = prims.input_node(0, "f64", (n, 7), (7, 1))
    [out] = replay(graph, [x])
    assert out.shape == (n, 7)
    assert out is softmax(x)


def test_replay_guards_equal_sizes():
    shapes = ShapeEnvironment()
    a, b = (shapes.create_symbol(5, name, specialise=True) for name in ("a", "b"))
    graph = symbolic(lambda x, y: x * prims.broadcast_to(y, x.shape), 2)
    with environment(shapes):
        x = prims.input_node(0, "f64", (3, a), (a, 1))
        y = prims.input_node(1, "f64", (b,), (1,))
        replay(graph, [x, y])
    assert len(shapes.guards) == 1


def test_replay_without_a_gradient():
    graph = composite("two_results")
    backward = derive(graph, (True, True)).backward
    derived = derive(graph, (True, True))
    nodes = list(backward.inputs)
    absent = [n for n, (kind, k) in enumerate(derived.sources) if (kind, k) == ("grad", 1)]
    for n in absent:
        nodes[n] = None
    outputs = replay(backward, nodes)
    expected = derive(graph, (True, True), (True, False))
    arrays = values_for(graph)
    grads = [np.ones((2, 3)), np.ones((2,))]
    found = run_backward(graph, expected, arrays, grads)
    full = run_graph(derived.forward, arrays)
    lookup = {"input": arrays, "output": full, "grad": grads}
    given = {node: lookup[kind][k] for node, (kind, k) in zip(backward.inputs, derived.sources)}
    for a, b in zip(run_nodes(outputs, given), found):
        np.testing.assert_array_equal(a, b)
    nodes = [None if kind == "grad" else n for n, (kind, _) in zip(nodes, derived.sources)]
    assert replay(backward, nodes) == [None, None]


def test_replay_numbers_draws_anew():
    with environment(None):
        graph = make_graph(
            lambda x: x * prims.random("bernoulli", x.shape, "f64", 0.5), ["f64"], [(4,)]
        )
    with environment(None):
        [first] = replay(graph, graph.inputs)
        [second] = replay(graph, graph.inputs)
    assert first is not second
