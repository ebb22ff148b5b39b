"""Every primitive: record complete, type rule agrees with the reference, derivatives right."""

import numpy as np
import pytest

from flambeau import prims
from flambeau.prims import NOT_DIFFERENTIABLE, PRIMITIVES
from flambeau.prims.common import DIFFERENTIABLE
from tests.prims.graph_interpreter import NUMPY, run_nodes

IR_NAME = {"bool": "bool", "int64": "i64", "float64": "f64", "complex128": "c128"}
CASES = [
    pytest.param(name, k, id=f"{name}-{k}")
    for name, record in PRIMITIVES.items()
    for k, _ in enumerate(record.samples())
]


def sample(name, k):
    operands, constants = list(PRIMITIVES[name].samples())[k]
    arrays = [np.asarray(x) for x in operands]
    nodes = [
        prims.input_node(i, IR_NAME[str(a.dtype)], a.shape, (0,) * a.ndim)
        for i, a in enumerate(arrays)
    ]
    return prims.bind(name, *nodes, **constants), nodes, arrays


@pytest.mark.parametrize("name", PRIMITIVES)
def test_record_is_complete(name):
    record = PRIMITIVES[name]
    assert record.name == name
    assert record.derivative == NOT_DIFFERENTIABLE or callable(record.derivative)
    assert record.reference is not None
    assert record.samples is not None and list(record.samples())
    assert record.kind != "shape" or callable(record.spelling)


@pytest.mark.parametrize("name, k", CASES)
def test_type_agrees_with_reference(name, k):
    out, nodes, arrays = sample(name, k)
    [value] = run_nodes([out], dict(zip(nodes, arrays)))
    assert value.shape == out.shape and str(value.dtype) == NUMPY[out.dtype]


def scalar_objective(out, weight):
    product = out * weight
    if out.dtype == "c128":
        product = prims.real(product)
    return prims.reduce_dims("sum", product, range(out.ndim))


def gradients(out, nodes, seed):
    found = PRIMITIVES[out.op].derivative(seed, out, *out.inputs)
    assert len(found) == len(nodes)
    for node, grad in zip(nodes, found):
        assert grad is None or (grad.dtype, grad.shape) == (node.dtype, node.shape)
    return found


def numeric_gradient(function, arrays, i, step=1e-6):
    grad = np.zeros(arrays[i].shape, arrays[i].dtype)
    units = [1.0, 1j] if arrays[i].dtype.kind == "c" else [1.0]
    for place in np.ndindex(*arrays[i].shape):
        for unit in units:
            values = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[i][place] += sign * step * unit
                values.append(function(moved))
            grad[place] += unit * (values[0] - values[1]) / (2 * step)
    return grad


def check_gradients(objective, wrt, grads, given, tolerance):
    names, arrays = list(given), [np.asarray(a) for a in given.values()]
    for node, grad in zip(wrt, grads):
        if node.dtype not in DIFFERENTIABLE or grad is None:
            continue
        [value] = run_nodes([grad], given)

        def function(moved):
            return run_nodes([objective], dict(zip(names, moved)))[0]

        expected = numeric_gradient(function, arrays, names.index(node))
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)


def differentiable(name):
    return [c for c in CASES if c.values[0] == name]


SMOOTH = [
    c
    for c in CASES
    if PRIMITIVES[c.values[0]].derivative != NOT_DIFFERENTIABLE
    and sample(*c.values)[0].dtype in DIFFERENTIABLE | {"f64"}
    and c.values[0] not in ("with_derivative",)
    and any(n.dtype in DIFFERENTIABLE for n in sample(*c.values)[1])
]


def with_weight(name, k):
    out, nodes, arrays = sample(name, k)
    generator = np.random.default_rng(k)
    weight = generator.uniform(0.5, 1.5, out.shape).astype(NUMPY[out.dtype])
    node = prims.input_node(len(nodes), out.dtype, out.shape, (0,) * out.ndim)
    return out, nodes, node, dict(zip([*nodes, node], [*arrays, weight]))


@pytest.mark.parametrize("name, k", SMOOTH)
def test_derivative(name, k):
    out, nodes, weight, given = with_weight(name, k)
    if out.dtype == "c128":
        seed = prims.conj(weight)
    else:
        seed = weight
    grads = gradients(out, nodes, seed)
    check_gradients(scalar_objective(out, weight), nodes, grads, given, 1e-6)


COMPLEX_CASES = [
    name
    for name, record in PRIMITIVES.items()
    if record.kind == "pointwise" and record.derivative != NOT_DIFFERENTIABLE
]


def accepts_complex(name, count):
    x = [prims.input_node(i, "c128", (3,), (1,)) for i in range(count)]
    try:
        return prims.bind(name, *x).dtype == "c128"
    except TypeError:
        return False


@pytest.mark.parametrize(
    "name", [n for n in COMPLEX_CASES if n not in ("cast", "where", "complex")]
)
def test_complex_derivative(name):
    count = len(next(iter(PRIMITIVES[name].samples()))[0])
    if not accepts_complex(name, count):
        pytest.skip("real only")
    nodes = [prims.input_node(i, "c128", (3,), (1,)) for i in range(count)]
    weight = prims.input_node(9, "c128", (3,), (1,))
    values = np.array([[0.3 + 0.6j, -0.5 + 0.3j, 0.7 - 1.1j], [1.1 - 0.4j, 0.8 + 0.9j, 0.4 + 1j]])
    given = dict(zip([*nodes, weight], [*values[:count], values[1] * 1.3]))
    out = prims.bind(name, *nodes)
    grads = PRIMITIVES[name].derivative(prims.conj(weight), out, *nodes)
    check_gradients(scalar_objective(out, weight), nodes, grads, given, 1e-6)
