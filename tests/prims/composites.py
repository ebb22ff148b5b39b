"""Composite functions in primitives, used as test programs."""

from flambeau import prims
from flambeau.ir.node import Graph, GraphOutput


def make_graph(function, dtypes, shapes, symbols=(), scalars=(), targets=None):
    """Trace `function(*tensor nodes, *scalar nodes)` into a Graph."""
    inputs = tuple(
        prims.input_node(i, d, s, prims.contiguous_strides(s))
        for i, (d, s) in enumerate(zip(dtypes, shapes))
    )
    numbers = tuple(prims.scalar_node(i, d) for i, d in enumerate(scalars))
    results = function(*inputs, *numbers)
    results = results if isinstance(results, tuple) else (results,)
    targets = targets or [None] * len(results)
    outputs = tuple(
        GraphOutput(r, prims.contiguous_strides(r.shape), target=t)
        for r, t in zip(results, targets)
    )
    return Graph(symbols, inputs, numbers, outputs, len(results))


def x_sin_x(x):
    return x * prims.sin(x)


def softmax(x):
    shifted = prims.exp(x - prims.reduce_dims("max", x, [x.ndim - 1], keepdim=True))
    return shifted / prims.reduce_dims("sum", shifted, [x.ndim - 1], keepdim=True)


def annotated_softmax(x):
    return prims.with_derivative(softmax(x), x, rule="test softmax")


def _softmax_rule(g, y, x):
    total = prims.reduce_dims("sum", g * y, [x.ndim - 1], keepdim=True)
    return ((g - total) * y,)


prims.register_rule("test softmax", _softmax_rule)


def layer_norm(x, weight, bias):
    last = [x.ndim - 1]
    count = prims.constant(x.shape[-1], prims.full(0.0, (), x.dtype))
    mean = prims.reduce_dims("sum", x, last, keepdim=True) / count
    centred = x - mean
    variance = prims.reduce_dims("sum", centred * centred, last, keepdim=True) / count
    return centred * prims.rsqrt(variance + 1e-5) * weight + bias


def gelu_linear(x, weight, bias):
    h = prims.matmul(x, prims.permute(weight, (1, 0))) + bias
    return h * 0.5 * (prims.erf(h * 0.7071067811865476) + 1)


def attention(q, k, v):
    scores = prims.matmul(q, prims.transpose(k, 0, 1)) * 0.5
    return prims.matmul(softmax(scores), v)


def convolution(x, weight):
    """1-d: x [B, C, L], weight [O, C, K]."""
    b, c, _ = x.shape
    o, _, k = weight.shape
    unfolded = prims.windows(prims.pad(x, (0, 0, 1), (0, 0, 1)), 2, k, 2)
    length = unfolded.shape[2]
    columns = prims.reshape(prims.permute(unfolded, (0, 2, 1, 3)), (b * length, c * k))
    out = prims.matmul(columns, prims.permute(prims.reshape(weight, (o, c * k)), (1, 0)))
    return prims.permute(prims.reshape(out, (b, length, o)), (0, 2, 1))


def two_results(x, y):
    total = prims.reduce_dims("sum", x * y, [1])
    return prims.tanh(x) * y, prims.exp(total * 0.1)


def product_and_scan(x):
    return prims.prod(x, 1), prims.cumprod(x, 1), prims.cummax(x, 1)


def indexing(x, places):
    wrapped = prims.check_index(places, x.shape[0], "take")
    rows = prims.take(x, wrapped, 0)
    values, order = prims.sort(rows, 1)
    return values * rows + prims.gather(rows, order, 1)


def scaled(x, alpha):
    return prims.sin(x * prims.constant(alpha, x))


COMPOSITES = {
    "x_sin_x": (x_sin_x, [("f64", (2, 3))]),
    "softmax": (softmax, [("f64", (2, 5))]),
    "annotated_softmax": (annotated_softmax, [("f64", (2, 5))]),
    "layer_norm": (layer_norm, [("f64", (2, 5)), ("f64", (5,)), ("f64", (5,))]),
    "gelu_linear": (gelu_linear, [("f64", (3, 4)), ("f64", (2, 4)), ("f64", (2,))]),
    "attention": (attention, [("f64", (3, 4)), ("f64", (5, 4)), ("f64", (5, 2))]),
    "convolution": (convolution, [("f64", (2, 3, 7)), ("f64", (4, 3, 3))]),
    "two_results": (two_results, [("f64", (2, 3)), ("f64", (2, 3))]),
    "product_and_scan": (product_and_scan, [("f64", (2, 4))]),
    "indexing": (indexing, [("f64", (4, 3)), ("i64", (2,))]),
}


def composite(name):
    function, types = COMPOSITES[name]
    return make_graph(function, [d for d, _ in types], [s for _, s in types])
