"""Every primitive: record complete, type rule agrees with the reference, derivatives right."""

from typing import get_args

import numpy as np
import pytest

from flambeau import prims
from flambeau.derivation import replay
from flambeau.prims import NOT_DIFFERENTIABLE, PRIMITIVES
from flambeau.prims.common import DIFFERENTIABLE
from flambeau.prims.record import Linearity, bind
from tests.prims.graph_interpreter import NUMPY, run_nodes

IR_NAME = dict(bool="bool", int32="i32", int64="i64", float64="f64", complex128="c128")
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
    assert record.kind != "shape" or callable(record.reads)


@pytest.mark.parametrize("name, k", CASES)
def test_type_agrees_with_reference(name, k):
    out, nodes, arrays = sample(name, k)
    [value] = run_nodes([out], dict(zip(nodes, arrays)))
    assert value.shape == out.shape and str(value.dtype) == NUMPY[out.dtype]


def operands_of_zero(linear, count):
    """Sets of operands that are zero together, and then so is the result."""
    return {
        "each": [[i] for i in range(count)],
        "first": [[0]],
        "last": [[count - 1]],
        "choice": [list(range(1, count))],
        "write": [[0, count - 1]],
    }.get(linear, [list(range(count))])


def is_linear(name, k):
    """Whether a sample's call is linear: not a maximum, minimum or product of what is written."""
    _, constants = list(PRIMITIVES[name].samples())[k]
    return PRIMITIVES[name].linear is not None and constants.get("mode", "add") in ("add", "set")


@pytest.mark.parametrize("name, k", [case for case in CASES if is_linear(*case.values)])
def test_linear_as_declared(name, k):
    """Zero operands make the result zero, and a linear map of one operand commutes with sums."""
    out, nodes, arrays = sample(name, k)
    for zeros in operands_of_zero(PRIMITIVES[name].linear, len(arrays)):
        given = [a * 0 if i in zeros else a for i, a in enumerate(arrays)]
        [value] = run_nodes([out], dict(zip(nodes, given)))
        assert not value.any()
    if PRIMITIVES[name].linear == "each" and len(arrays) == 1 and out.dtype in DIFFERENTIABLE:
        [once] = run_nodes([out], dict(zip(nodes, arrays)))
        [thrice] = run_nodes([out], dict(zip(nodes, [arrays[0] * 3])))
        np.testing.assert_allclose(thrice, once * 3)


@pytest.mark.parametrize("linear", get_args(Linearity))
def test_every_kind_of_linearity_has_a_primitive_and_a_rule(linear):
    assert any(record.linear == linear for record in PRIMITIVES.values())
    assert linear in replay._REMAINDERS


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
    # Of the latter the lower triangle stands for the whole: see test_linear_algebra.
    and c.values[0] not in ("with_derivative", "cholesky", "eigh", "eigvalsh")
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


@pytest.mark.parametrize("name, k", SMOOTH)
def test_double_derivative(name, k):
    """The gradient of a primitive's gradient, by finite differences of the gradient."""
    from flambeau.derivation.derive import differentiate

    out, nodes, weight, given = with_weight(name, k)
    wanted = [n for n in nodes if n.dtype == "f64"]
    if "c128" in {n.dtype for n in (*nodes, out)}:
        pytest.skip("covered by test_complex_derivative")
    total = prims.full(0.0, (), "f64")
    for n, grad in enumerate(differentiate([out], [weight], wanted)):
        if grad is not None:
            scale = prims.sin(prims.iota(grad.shape, 0, "f64") + n + 1) if grad.ndim else 0.7
            total = total + prims.reduce_dims("sum", grad * scale, range(grad.ndim))
    wanted = [*wanted, weight]
    second = differentiate([total], [prims.full(1.0, (), "f64")], wanted)
    check_gradients(total, wanted, second, given, 2e-5)


@pytest.mark.parametrize("name, k", [c for c in CASES if PRIMITIVES[c.values[0]].kind == "shape"])
def test_index_map(name, k):
    """A shape primitive's reads give its reference's elements."""
    out, nodes, arrays = sample(name, k)
    [expected] = run_nodes([out], dict(zip(nodes, arrays)))
    for place in np.ndindex(*out.shape):
        for read in PRIMITIVES[name].reads(out, place):
            shape = arrays[read.operand].shape
            if all(0 <= read.place[d] < shape[d] for d in read.bounded):
                assert arrays[read.operand][read.place] == expected[place]
                break
        else:
            raise AssertionError(f"nothing read at {place}")


def test_reshape_index_map_needs_no_division_where_groups_match():
    from flambeau.ir.geometry import reshape_groups
    from flambeau.ir.size import symbol

    a, b = symbol("a", minimum=2), symbol("b", minimum=2)
    assert reshape_groups((a, 4, b), (a, 2, 2, b)) == [([0], [0]), ([1], [1, 2]), ([2], [3])]
    assert reshape_groups((a, b, 3), (a * b, 3)) == [([0, 1], [0]), ([2], [1])]
    assert reshape_groups((1, a), (a, 1)) == [([1], [0])]
    assert reshape_groups((6, 1), (1, 2, 3)) == [([0], [1, 2])]


def test_prod_gradient_with_many_zeros():
    from flambeau.derivation.derive import differentiate

    for row in ([2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]):
        x = prims.input_node(0, "f64", (3,), (1,))
        [grad] = differentiate([prims.prod(x, 0)], [prims.full(1.0, (), "f64")], [x])
        [value] = run_nodes([grad], {x: np.array(row)})
        others = [row[1] * row[2], row[0] * row[2], row[0] * row[1]]
        np.testing.assert_array_equal(value, others)


@pytest.mark.parametrize("length", [1, 31, 33, 513, 4096, 4097, 10000, 140000])
def test_canonical_sum(length):
    """The canonical order, spelled out element by element for the first two levels."""
    from flambeau.prims.reduce import canonical

    x = np.random.default_rng(length).standard_normal(length).astype("float32")

    def level(values, chunk):
        results = []
        for start in range(0, len(values), 4096):
            lanes = [np.float32(0)] * 32
            block = values[start : start + 4096]
            for first in range(0, len(block), chunk):
                part = [np.float32(0)] * 32
                for i, v in enumerate(block[first : first + chunk]):
                    part[i % 32] = part[i % 32] + v
                lanes = [whole + more for whole, more in zip(lanes, part)]
            for width in (16, 8, 4, 2, 1):
                lanes = [lanes[i] + lanes[i + width] for i in range(width)]
            results.append(lanes[0])
        return results if len(results) == 1 else level(results, 4096)

    [expected] = level(list(x), 512)
    assert canonical(x, 0, np.add, 0) == expected


def test_reduce_dims_groups_adjacent_dimensions_innermost_first():
    x = prims.input_node(0, "f32", (2, 3, 4, 5), (60, 20, 5, 1))
    out = prims.reduce_dims("sum", x, (0, 2, 3))
    assert out.shape == (3,) and out.op == "sum" and out.attribute("axis") == 0
    inner = out.inputs[0]
    assert inner.op == "sum" and inner.inputs[0].shape == (2, 3, 20)
    assert prims.reduce_dims("sum", x, (0, 2, 3), keepdim=True).shape == (1, 3, 1, 1)
    assert prims.reduce_dims("sum", x, ()) is x


def test_operators_broadcast_but_do_not_promote():
    x = prims.input_node(0, "f32", (2, 3), (3, 1))
    y = prims.input_node(1, "f32", (3,), (1,))
    assert (x + y).shape == (2, 3) and (2 - y).shape == (3,)
    assert (x > 1).dtype == "bool"
    with pytest.raises(TypeError, match="dtypes differ"):
        x + prims.cast(y, "f64")
    with pytest.raises(ValueError, match="sizes must be equal"):
        x + prims.full(1.0, (4,), "f32")
    with pytest.raises(TypeError, match=r"\[full\] 0.5 is no i64"):
        prims.iota((3,), 0) * 0.5


@pytest.mark.parametrize("op", ["convolution", "convolution_input", "convolution_weight"])
def test_squares_are_of_float32(op):
    """The kernels of Winograd's algorithm hold a panel of rows in one vector."""
    x, w = (prims.input_node(i, "f64", (32, 32, 3, 3), (288, 9, 3, 1)) for i in (0, 1))
    geometry = {name: (1, 1) for name in ("stride", "low", "dilation")}
    with pytest.raises(TypeError, match=rf"\[{op}\] not defined for f64"):
        bind(op, x, w, **geometry, groups=1, method="winograd", size=(3, 3))


def test_torch_conventions_of_gradients():
    """abs at 0 is 0, maximum splits ties, relu written with where, NaN as in PyTorch."""
    from flambeau.derivation.derive import differentiate

    x = prims.input_node(0, "f64", (3,), (1,))
    y = prims.input_node(1, "f64", (3,), (1,))
    one = prims.full(1.0, (3,), "f64")
    given = {x: np.array([0.0, np.nan, 2.0]), y: np.array([0.0, 1.0, 1.0])}

    def grads(out, wanted):
        return [v.tolist() for v in run_nodes(differentiate([out], [one], wanted), given)]

    assert grads(prims.abs(x), [x]) == [[0.0, 0.0, 1.0]]
    assert grads(prims.maximum(x, y), [x, y]) == [[0.5, 1.0, 1.0], [0.5, 1.0, 0.0]]
    assert grads(prims.atan2(y, y), [y]) == [[0.0, 0.0, 0.0]]
