"""The scheduler's kernels compute what the graph means; bit for bit where the order is fixed."""

import numpy as np
import pytest

from flambeau import prims
from flambeau.compiler.pipeline import schedule
from flambeau.ir.node import Graph, GraphOutput
from flambeau.ir.size import symbol
from tests.compiler.kernel_interpreter import check_graph
from tests.prims.composites import COMPOSITES, composite, layer_norm, make_graph, softmax

S0, S1, S2 = (symbol(f"s{i}", minimum=2) for i in range(3))


def draw(shape, dtype="f32", seed=0):
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype[0] in "iu":
        return (
            generator.integers(-3, 3, shape) if dtype != "u8" else generator.integers(0, 5, shape)
        )
    return generator.uniform(-2, 2, shape)


def check(function, shapes, symbolic=None, dtypes=None, **more):
    """Checks a function on inputs of concrete `shapes`, traced with `symbolic` shapes."""
    dtypes = dtypes or ["f32"] * len(shapes)
    graph = make_graph(function, dtypes, symbolic or shapes, ("s0", "s1", "s2"), **more)
    tensors = [draw(s, d, i) for i, (s, d) in enumerate(zip(shapes, dtypes))]
    return check_graph(graph, tensors)


def kernels(made):
    return [launch.kernel for launch in made.launches if launch.kernel is not None]


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites(name):
    graph = composite(name)
    tensors = [draw(x.shape, x.dtype, i) for i, x in enumerate(graph.inputs)]
    check_graph(graph, tensors)


def test_pointwise_is_one_flat_kernel():
    made = check(lambda x, y: prims.exp(x) * y + 1, [(3, 5), (3, 5)], [(S0, S1)] * 2)
    [kernel] = kernels(made)
    assert kernel.form == "map" and not kernel.rows


def test_rank_does_not_change_the_kernel():
    two = check(lambda x, y: x + y, [(3, 5)] * 2, [(S0, S1)] * 2)
    three = check(lambda x, y: x + y, [(3, 5, 2)] * 2, [(S0, S1, S2)] * 2)
    assert kernels(two)[0].text() == kernels(three)[0].text()


def test_softmax_is_one_row_kernel():
    made = check(softmax, [(3, 37)], [(S0, S1)])
    [kernel] = kernels(made)
    assert kernel.form == "row" and len(kernel.body) == 3


def test_layer_norm_is_one_kernel():
    made = check(layer_norm, [(3, 37), (37,), (37,)], [(S0, S1), (S1,), (S1,)])
    [kernel] = kernels(made)
    assert kernel.form == "row"


def column_softmax(x):
    shifted = prims.exp(x - prims.reduce_dims("max", x, [0], keepdim=True))
    return shifted / prims.reduce_dims("sum", shifted, [0], keepdim=True)


def test_reduction_over_a_strided_axis_is_a_column_kernel():
    made = check(column_softmax, [(7, 65)], [(S0, S1)])
    [kernel] = kernels(made)
    assert kernel.form == "column"
    made = check(lambda x, y: prims.sum(x * y, 1), [(2, 7, 5)] * 2, [(S0, S1, S2)] * 2)
    assert kernels(made)[0].form == "column" and len(kernels(made)[0].rows) == 1


def test_full_reduction_in_blocks():
    made = check(lambda x: prims.reduce_dims("sum", x, [0, 1]), [(90, 101)], [(S0, S1)])
    assert [x.form for x in kernels(made)] == ["row", "row"]
    made = check(lambda x: prims.argmax(x, 0), [(9000,)], [(S0,)])
    made = check(lambda x: prims.argmin(x * 0, 0), [(9000,)], [(S0,)])
    check(lambda x: prims.reduce_dims("prod", x * 0.1 + 1, [0]), [(5000,)], [(S0,)])


def test_mean_and_map_share_a_kernel():
    def function(x):
        y = prims.exp(x)
        return y, prims.sum(y, 1)

    [kernel] = kernels(check(function, [(3, 9)], [(S0, S1)]))
    assert kernel.form == "row"


def test_norm_backward():
    def function(g, x, weight):
        n = prims.constant(x.shape[-1], prims.full(0.0, (), "f32"))

        def total(v):
            return prims.reduce_dims("sum", v, [1], keepdim=True)

        mean = total(x) / n
        centred = x - mean
        rstd = prims.rsqrt(total(centred * centred) / n + 1e-5)
        normal = centred * rstd
        gw = g * weight
        dx = (gw - total(gw) / n - normal * (total(gw * normal) / n)) * rstd
        return dx, prims.reduce_dims("sum", g * normal, [0]), prims.reduce_dims("sum", g, [0])

    made = check(function, [(5, 13), (5, 13), (13,)], [(S0, S1), (S0, S1), (S1,)])
    assert sorted(x.form for x in kernels(made)) == ["column", "row"]


def test_cross_entropy():
    def function(x, target):
        shifted = x - prims.reduce_dims("max", x, [1], keepdim=True)
        total = prims.log(prims.reduce_dims("sum", prims.exp(shifted), [1], keepdim=True))
        logs = shifted - total
        picked = prims.gather(logs, prims.reshape(target, (x.shape[0], 1)), 1)
        return -prims.reshape(picked, (x.shape[0],))

    graph = make_graph(function, ["f32", "i64"], [(S0, S1), (S0,)], ("s0", "s1"))
    made = check_graph(graph, [draw((4, 11)), np.array([3, 0, 10, 7])])
    assert len(kernels(made)) == 1


SHAPES = {
    "transpose": lambda x: prims.permute(x, (1, 0)) + 1,
    "slice": lambda x: prims.slice(x, 1, 1, 3, 1) * 2,
    "strided slice": lambda x: prims.slice(x, 0, 1, 2, 2) + 0.5,
    "flip": lambda x: prims.flip(x, (0, 1)) + 0.0,
    "pad": lambda x: prims.pad(x, (1, 0), (0, 2), 0.5),
    "pad and crop": lambda x: prims.pad(x, (-1, 1), (2, -1), 0.5) * 3,
    "cat": lambda x: prims.cat([x, prims.exp(x)], 1),
    "cat of many": lambda x: prims.cat([x, prims.exp(x), x * 2], 0),
    "cat in the middle": lambda x: prims.cat([x, x + 1, x * 2], 1) * 2,
    "reshape": lambda x: prims.reshape(x, (x.shape[1], x.shape[0])) + 1,
    "reshape of transpose": lambda x: prims.reshape(prims.permute(x, (1, 0)), (20,)) + 1,
    "windows": lambda x: prims.windows(x, 1, 3, 1) + 1,
    "broadcast": lambda x: prims.broadcast(prims.sum(x, 1), (5, 4), (1,)) + 1,
    "iota": lambda x: x + prims.iota(x.shape, 1, "f32"),
    "constant": lambda x: (prims.full(2.5, (3, 2), "f32"), prims.neg(prims.full(0.0, (2,), "f32"))),
    "identity": lambda x: x,
    "twice": lambda x: (x + 1, x + 1),
    "copy of a transpose": lambda x: prims.permute(x, (1, 0)),
    "sum of everything": lambda x: prims.reduce_dims("sum", x, [0, 1]),
    "keepdim": lambda x: prims.reduce_dims("max", x, [1], keepdim=True),
    "extent 1": lambda x: prims.sum(prims.reshape(x, (4, 1, 5)), 1),
    "any": lambda x: prims.any_(x > 1, 1) if hasattr(prims, "any_") else prims.any(x > 1, 1),
    "cumulative": lambda x: prims.cumsum(prims.exp(x), 0) * 2,
    "scan of scan": lambda x: prims.cumsum(prims.cumsum(x, 1) + 1, 1),
    "linear scan": lambda x: prims.linear_scan(x * 0.5, x + 1, 1),
    "mean of reduced": lambda x: prims.sum(prims.sum(x, 1), 0),
    "two reductions": lambda x: prims.sum(x, 1) * prims.reduce_dims("sum", x, [0, 1]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    check(SHAPES[name], [(4, 5)])


@pytest.mark.parametrize("name", ["transpose", "flip", "cat of many", "cumulative", "keepdim"])
def test_shapes_symbolic(name):
    check(SHAPES[name], [(4, 5)], [(S0, S1)])


def test_zero_sizes():
    check(lambda x: prims.exp(x), [(0, 5)])
    check(lambda x: prims.sum(x, 0), [(0, 5)])
    check(lambda x: prims.sum(x, 1), [(0, 5)])
    check(lambda x: prims.reduce_dims("sum", x, [0, 1]), [(0, 5)])
    check(lambda x, y: prims.matmul(x, y), [(0, 5), (5, 2)])


def test_matmul_takes_views_without_copies():
    def function(x, y):
        return prims.matmul(prims.permute(x, (1, 0)), prims.slice(y, 1, 1, 2, 1))

    graph = make_graph(function, ["f64", "f64"], [(3, 4), (3, 4)])
    made = check_graph(graph, [draw((3, 4)), draw((3, 4), seed=1)])
    assert [kernel.template for kernel in kernels(made)] == ["product"]
    assert len(made.launches) == 1


def test_scatter():
    def function(x, index, source):
        return prims.scatter(x * 1.5, index, source, 1, "add"), prims.exp(x)

    graph = make_graph(function, ["f32", "i64", "f32"], [(2, 3), (2, 4), (2, 4)])
    check_graph(graph, [draw((2, 3)), np.array([[0, 2, 2, 1]] * 2), draw((2, 4), seed=1)])

    def put(x, index, source):
        return prims.take_add(x, index, source, 0)

    graph = make_graph(put, ["f32", "i64", "f32"], [(5, 3), (4,), (4, 3)])
    check_graph(graph, [draw((5, 3)), np.array([0, 2, 2, 4]), draw((4, 3), seed=1)])


def test_in_place():
    def function(x, y):
        return x * 2 + y

    graph = make_graph(function, ["f32"] * 2, [(S0, S1)] * 2, ("s0", "s1"), targets=[0])
    made = check_graph(graph, [draw((3, 4)), draw((3, 4), seed=1)])
    assert len(kernels(made)) == 1

    def update(x, y):
        new = y * 0.9 + x
        return new, x - new

    graph = make_graph(update, ["f32"] * 2, [(S0, S1)] * 2, ("s0", "s1"), targets=[1, 0])
    made = check_graph(graph, [draw((3, 4)), draw((3, 4), seed=1)])
    assert len(kernels(made)) == 1

    graph = make_graph(lambda x: softmax(x), ["f32"], [(S0, S1)], ("s0", "s1"), targets=[0])
    made = check_graph(graph, [draw((3, 40))])
    assert len(kernels(made)) == 1


def test_in_place_with_another_order_of_elements():
    graph = make_graph(lambda x: prims.permute(x, (1, 0)) + x, ["f32"], [(4, 4)], targets=[0])
    made = check_graph(graph, [draw((4, 4))])
    assert len(kernels(made)) == 2

    def function(x):
        return prims.flip(x, (0,)), prims.sum(prims.exp(x), 0)

    check_graph(make_graph(function, ["f32"], [(4, 5)], targets=[0, None]), [draw((4, 5))])


def test_strided_inputs_and_outputs():
    x = prims.input_node(0, "f32", (3, 4), (1, 3))
    y = prims.input_node(1, "f32", (3, 4), (8, 2))
    graph = Graph((), (x, y), (), (GraphOutput(x + y, (1, 3)), GraphOutput(x * y, (4, 1))), 2)
    check_graph(graph, [draw((3, 4)), draw((3, 4), seed=1)])


def test_transposing_map_is_tiled():
    made = check(SHAPES["transpose"], [(4, 5)], [(S0, S1)])
    [kernel] = kernels(made)
    assert kernel.tiled


def test_run_time_scalars():
    graph = make_graph(
        lambda x, a: prims.sin(x * prims.constant(a, x)), ["f32"], [(3, 4)], scalars=("f64",)
    )
    check_graph(graph, [draw((3, 4))], [0.75])


def test_equal_layers_give_equal_kernels():
    def function(x, *weights):
        for weight in weights:
            x = prims.matmul(softmax(x), weight)
        return x

    graph = make_graph(function, ["f64"] * 4, [(3, 4)] + [(4, 4)] * 3)
    made = check_graph(graph, [draw((3, 4))] + [draw((4, 4), seed=i) for i in range(3)])
    texts = {x.text() for x in kernels(made)}
    assert len(kernels(made)) == 6 and len(texts) == 2


def test_long_chains_are_cut():
    def function(x):
        for _ in range(300):
            x = prims.sin(x) + x
        return x

    graph = make_graph(function, ["f32"], [(7,)])
    schedule(graph)
    check_graph(graph, [draw((7,))])


def test_attention_over_heads():
    def heads(x):
        return prims.permute(prims.reshape(x, (2, 5, 3, 4)), (0, 2, 1, 3))

    def function(q, k, v):
        q, k, v = heads(q * 2.0), heads(k), heads(v + 1)
        p = softmax(prims.matmul(q, prims.permute(k, (0, 1, 3, 2))))
        o = prims.reshape(prims.permute(prims.matmul(p, v), (0, 2, 1, 3)), (2, 5, 12))
        back = prims.matmul(prims.permute(p, (0, 1, 3, 2)), q)
        return o, back, prims.matmul(prims.permute(q, (0, 1, 3, 2)), v)

    graph = make_graph(function, ["f64"] * 3, [(2, 5, 12)] * 3)
    made = check_graph(graph, [draw((2, 5, 12), seed=i) for i in range(3)])
    assert len(made.launches) <= 9


def test_routines_in_place():
    graph = make_graph(prims.matmul, ["f64"] * 2, [(3, 3)] * 2, targets=[0])
    made = check_graph(graph, [draw((3, 3)), draw((3, 3), seed=1)])
    assert len(made.launches) == 2

    def scatter(x, index, source):
        return prims.scatter(x, index, source, 1, "add")

    graph = make_graph(scatter, ["f32", "i64", "f32"], [(2, 3), (2, 3), (2, 3)], targets=[0])
    arrays = [draw((2, 3)), np.array([[0, 2, 2]] * 2), draw((2, 3), seed=1)]
    made = check_graph(graph, arrays)
    assert [launch.routine for launch in made.launches] == ["scatter_add_f32"]

    def from_itself(x, index):
        return prims.scatter(x, index, prims.slice(x, 1, 0, 2, 1), 1, "add")

    graph = make_graph(from_itself, ["f32", "i64"], [(2, 3), (2, 2)], targets=[0])
    check_graph(graph, [draw((2, 3)), np.array([[0, 0], [1, 2]])])


def test_embedding_is_one_kernel():
    def function(weight, places):
        return prims.take(weight, prims.check_index(places, weight.shape[0], "embedding"), 0)

    graph = make_graph(function, ["f32", "i32"], [(S0, S1), (S2, 3)], ("s0", "s1", "s2"))
    places = np.array([[0, -1, 4], [1, 2, -5]])
    made = check_graph(graph, [draw((5, 4)), places])
    assert len(made.launches) == 1
    assert [b.kind for b in made.buffers].count("error") == 1
