"""Derivatives of factorisations, real and complex, through functions they leave well-defined."""

import numpy as np
import pytest

from flambeau import prims
from flambeau.derivation.derive import differentiate
from tests.prims.graph_interpreter import run_nodes
from tests.prims.test_primitives import check_gradients


def hermitian(x):
    return (x + prims.adjoint(x)) * 0.5


def positive(x):
    eye = prims.with_diagonal(prims.zeros_like(x), prims.full_like(5.0, prims.diagonal(x)))
    return prims.matmul(x, prims.adjoint(x)) + eye


def scaled_columns(x, values):
    columns = prims.broadcast(prims.cast(values, x.dtype), x.shape, [x.ndim - 1])
    return x * columns


def of_eigh(x):
    values, vectors = prims.eigh(hermitian(x))
    return prims.matmul(scaled_columns(vectors, prims.sin(values)), prims.adjoint(vectors))


def of_eigenvalues(x):
    return prims.sin(prims.eigvalsh(hermitian(x)))


def of_eig(x):
    values, vectors = prims.eig(x)
    left = scaled_columns(vectors, prims.sin(values))
    return prims.adjoint(prims.solve(prims.adjoint(vectors), prims.adjoint(left)))


def of_svd(x):
    u, s, vh = prims.svd(x)
    return prims.matmul(scaled_columns(u, prims.sin(s)), vh)


def of_wide_svd(x):
    return of_svd(prims.adjoint(x))


def of_qr(x):
    q, r = prims.qr(x)
    return prims.matmul(q * prims.sin(q), prims.exp(r * 0.1))


def of_wide_qr(x):
    q, r = prims.qr(prims.adjoint(x))
    return prims.matmul(q * prims.sin(q), prims.exp(r * 0.1))


def of_complete_qr(x):
    """Of more rows than columns the last columns of Q are any basis of their span."""
    q, r = prims.qr(x, True)
    first, last = prims.slice(q, 1, 0, 3), prims.slice(q, 1, 3, 1)
    span = prims.matmul(last, prims.adjoint(last))
    return prims.matmul(prims.sin(span), prims.matmul(prims.sin(first), prims.slice(r, 0, 0, 3)))


def of_lu(x):
    packed, _, order, _ = prims.lu(x)
    rows = prims.broadcast(prims.cast(order, x.dtype), x.shape, [0])
    return prims.sin(packed) + rows


def of_cholesky(x):
    factor, _ = prims.cholesky(positive(x))
    return prims.sin(factor)


def of_triangular(x):
    return prims.triangular_solve(positive(x), x, upper=True, adjointed=True)


def of_norm(x):
    """Singular values alone: well-defined for wide and tall matrices."""
    return prims.sin(prims.svd(prims.adjoint(x))[1])


FUNCTIONS = [
    of_eigh, of_eigenvalues, of_eig, of_svd, of_wide_svd, of_qr, of_wide_qr, of_complete_qr,
    of_lu, of_cholesky, of_triangular,
]  # fmt: skip
TALL = (of_svd, of_wide_svd, of_qr, of_wide_qr, of_complete_qr, of_norm)


@pytest.mark.parametrize("dtype", ["f64", "c128"])
@pytest.mark.parametrize("function", [*FUNCTIONS, of_norm])
def test_derivative(function, dtype):
    shape = (4, 3) if function in TALL else (3, 3)
    generator = np.random.default_rng(7)
    value = generator.standard_normal(shape)
    if dtype == "c128":
        value = value + 1j * generator.standard_normal(shape)
    x = prims.input_node(0, dtype, shape, (shape[1], 1))
    out = function(x)
    weight = prims.sin(prims.iota(out.shape, 0, "f64") * 2 + 1)
    if out.ndim > 1:
        weight = weight + prims.cos(prims.iota(out.shape, 1, "f64") * 3)
    if out.dtype == "c128":
        weight = prims.complex(weight, weight * 0.3)
    product = prims.real(out * weight) if out.dtype == "c128" else out * weight
    objective = prims.reduce_dims("sum", product, range(out.ndim))
    [grad] = differentiate([objective], [prims.full(1.0, (), "f64")], [x])
    check_gradients(objective, [x], [grad], {x: value}, 1e-5)


def test_factorisations_multiply_to_the_matrix():
    x = prims.input_node(0, "f64", (2, 4, 3), (12, 3, 1))
    value = np.random.default_rng(0).standard_normal((2, 4, 3))
    q, r = prims.qr(x)
    u, s, vh = prims.svd(x)
    found = run_nodes([prims.matmul(q, r), u, s, vh], {x: value})
    np.testing.assert_allclose(found[0], value, atol=1e-12)
    np.testing.assert_allclose((found[1] * found[2][:, None]) @ found[3], value, atol=1e-12)


def test_lu_rows():
    x = prims.input_node(0, "f64", (3, 3), (3, 1))
    value = np.random.default_rng(0).standard_normal((3, 3))
    packed, pivots, order, info = run_nodes(prims.lu(x), {x: value})
    lower = np.tril(packed, -1) + np.eye(3)
    np.testing.assert_allclose(lower @ np.triu(packed), value[order], atol=1e-12)
    assert pivots.min() >= 1 and info == 0
