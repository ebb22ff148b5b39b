"""Complex arithmetic in compiled kernels against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_reference import KK, N0, N1, P0, R, const, op, run

import flambeau
from flambeau.compiler.codegen.c.math.c_complex import RULES
from flambeau.ir import kernel as K
from flambeau.ir import size as S
from flambeau.ir.kernel import Kernel, Pass, ReducePass, RowStores

NUMPY = {"c64": np.complex64, "c128": np.complex128}
PART = {"c64": "f32", "c128": "f64"}
TOLERANCE = {"c64": 1e-5, "c128": 1e-13}
REFERENCE = {
    "neg": np.negative, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "pow": np.power, "rsqrt": lambda z: 1 / np.sqrt(z), "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}  # fmt: skip


def numbers(dtype, n=41, seed=0):
    generator = np.random.default_rng(seed)
    values = generator.uniform(-3, 3, n) + 1j * generator.uniform(-3, 3, n)
    return values.astype(NUMPY[dtype])


def elementwise(value, parameters):
    store = Pass(stores=((len(parameters) - 1, R, value),))
    return Kernel("map", tuple(parameters), 1, (), (), N0, (store,))


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("name", RULES)
def test_functions(name, dtype):
    count = 2 if name in ("add", "sub", "mul", "div", "pow") else 1
    arrays = [numbers(dtype, seed=i) for i in range(count)]
    value = op(name, *(K.load(i, R, dtype) for i in range(count)))
    out = np.zeros_like(arrays[0])
    kernel = elementwise(value, [*((dtype, "r"),) * count, (dtype, "w")])
    run(kernel, [*arrays, out], [len(out)])
    wide = [array.astype(np.complex128) for array in arrays]
    expected = REFERENCE.get(name, getattr(np, name, None))(*wide)
    np.testing.assert_allclose(out, expected, TOLERANCE[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_parts(dtype):
    part, z = PART[dtype], K.load(0, R, dtype)
    x = numbers(dtype)
    for name, expected in [("real", x.real), ("imag", x.imag), ("abs", np.abs(x))]:
        out = np.zeros(len(x), expected.dtype)
        run(elementwise(op(name, z, dtype=part), [(dtype, "r"), (part, "w")]), [x, out], [len(x)])
        np.testing.assert_allclose(out, expected, 1e-6)
    turned = op("complex", op("imag", z, dtype=part), op("real", z, dtype=part), dtype=dtype)
    out = np.zeros_like(x)
    run(elementwise(turned, [(dtype, "r"), (dtype, "w")]), [x, out], [len(x)])
    np.testing.assert_array_equal(out, x.imag + 1j * x.real)
    same = op("eq", z, const(complex(x[3]), dtype), dtype="bool")
    flags = np.zeros(len(x), np.uint8)
    run(elementwise(same, [(dtype, "r"), ("bool", "w")]), [x, flags], [len(x)])
    assert flags.tolist() == (x == x[3]).astype(int).tolist()


def test_complex_numbers_that_no_buffer_holds():
    """Real operands and results, complex numbers only between them."""
    x = np.linspace(-2, 2, 41, dtype=np.float32)
    z = op("complex", K.load(0, R, "f32"), const(0.5, "f32"), dtype="c64")
    square = op("imag", op("mul", z, z), dtype="f32")
    out = np.zeros_like(x)
    run(elementwise(square, [("f32", "r"), ("f32", "w")]), [x, out], [len(x)])
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_sums(dtype):
    for rows, length in [(3, 5), (4, 70), (2, 5000)]:
        x = numbers(dtype, rows * length).reshape(rows, length)
        along_r = K.load(0, S.add(S.mul(P0, N0), R), dtype)
        done = K.reduced("a", dtype)
        row = Kernel(
            "row", ((dtype, "r"), (dtype, "w")), 3, (), (N1,), N0,
            (Pass(reductions=(("a", "sum", along_r),)), RowStores(((1, P0, done),))),
        )  # fmt: skip
        along_k = K.load(0, S.add(S.mul(KK, N1), R), dtype)
        column = Kernel(
            "column", ((dtype, "r"), (dtype, "w")), 3, (), (), N1,
            (ReducePass(reductions=(("a", "sum", along_k),)), Pass(stores=((1, R, done),))),
            reduce=N0,
        )  # fmt: skip
        out, other = np.zeros(rows, x.dtype), np.zeros(rows, x.dtype)
        run(row, [x, out], [length, rows, 1])
        run(column, [np.ascontiguousarray(x.T), other], [length, rows, 1])
        assert out.tobytes() == other.tobytes()
        np.testing.assert_allclose(out, x.sum(1), 1e-4)


def test_extremes():
    x = np.array([1e30 + 1e30j, 0, np.inf + 1j, complex(0, np.nan), 3e-39 + 4e-39j], np.complex64)
    out = np.zeros(5, np.float32)
    run(elementwise(op("abs", K.load(0, R, "c64"), dtype="f32"), [("c64", "r"), ("f32", "w")]),
        [x, out], [5])  # fmt: skip
    np.testing.assert_allclose(out, np.abs(x), 1e-5)
    y = np.full(1, 1e30 + 1e30j, np.complex64)
    quotient = np.zeros(1, np.complex64)
    divide = op("div", K.load(0, R, "c64"), K.load(0, R, "c64"))
    run(elementwise(divide, [("c64", "r"), ("c64", "w")]), [y, quotient], [1])
    assert quotient[0] == 1


def test_what_has_no_formula_is_refused():
    kernel = elementwise(op("lgamma", K.load(0, R, "c64")), [("c64", "r"), ("c64", "w")])
    with pytest.raises(NotImplementedError, match="'lgamma' for c64"):
        run(kernel, [np.zeros(1, np.complex64)] * 2, [1])


def test_no_epilogue_has_complex_numbers():
    """What becomes of a product, with complex numbers in between, is a kernel of its own."""
    x = flambeau.linspace(-1, 1, 6).reshape(2, 3)

    def program(x):
        y = x @ x.mT
        return flambeau.complex(y, y + 1).imag

    assert flambeau.compile(program)(x).tolist() == program(x).tolist()
