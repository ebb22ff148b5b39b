"""Derivatives of factorisations whose vectors are free up to a phase, through what is not free.

The op table's samples of these operators have no gradients: differences of a free phase, or of a
matrix that leaves the Hermitian ones, mean nothing. Here each is part of a function of any matrix.
And of those with several forms: of every shape and mode, backward, forward and twice.
"""

import pytest

import flambeau as torch
from flambeau.autograd import gradcheck, gradgradcheck

MATRIX = [[0.9, 1.4, -0.3], [0.2, -1.1, 0.8], [1.3, 0.5, 2.1]]
IMAGINARY = [[0.1, -0.4, 0.6], [0.7, 0.2, -0.5], [0.3, 0.9, -0.2]]


def hermitian(x):
    return x + x.mH


def of_cholesky(x):
    return torch.linalg.cholesky(x @ x.mH + torch.eye(3, dtype=x.dtype))


def of_eigh(x):
    values, vectors = torch.linalg.eigh(hermitian(x))
    return values, vectors[:, :1] @ vectors[:, :1].mH


def of_eig(x):
    values, vectors = torch.linalg.eig(x)
    order = values.real.argsort()
    return values[order], vectors.abs()[:, order]


def of_svd(x):
    u, s, vh = torch.linalg.svd(x)
    return s, u[:, :1] @ vh[:1]


FUNCTIONS = [of_cholesky, of_eigh, of_eig, of_svd]


def matrix(dtype):
    x = torch.tensor(MATRIX, dtype=torch.float64)
    if dtype.is_complex:
        x = torch.complex(x, torch.tensor(IMAGINARY, dtype=torch.float64))
    return x.requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["f64", "c128"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_derivatives(function, dtype):
    assert gradcheck(function, matrix(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["f64", "c128"])
@pytest.mark.parametrize("rows, columns, mode", [
    (3, 2, "reduced"), (2, 3, "reduced"), (2, 3, "complete"), (3, 3, "complete"), (1, 3, "reduced"),
])  # fmt: skip
def test_derivatives_of_qr(dtype, rows, columns, mode):
    """Of wide matrices, too, whose first columns decide Q."""
    x = torch.stack([matrix(dtype), matrix(dtype).mT.cos()])[:, :rows, :columns].detach()

    def factors(x):
        return tuple(torch.linalg.qr(x, mode))

    assert gradcheck(factors, x.requires_grad_(), check_forward_ad=True)
    assert gradgradcheck(factors, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["f64", "c128"])
def test_derivatives_of_what_is_unique_in_a_complete_qr(dtype):
    """The last columns of Q are any basis of what the first leave."""
    x = torch.stack([matrix(dtype), matrix(dtype).mT.cos()])[:, :, :1].detach().requires_grad_()

    def unique(x):
        q, r = torch.linalg.qr(x, "complete")
        return q[..., :1], q[..., 1:] @ q[..., 1:].mH, r

    assert gradcheck(unique, x, check_forward_ad=True)
    assert gradgradcheck(unique, x)


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares(rows, driver):
    """Solution and residuals have gradients, the rank and the singular values none."""
    a = matrix(torch.float64)[:rows, :2].detach().requires_grad_()
    b = torch.tensor(MATRIX[2][:rows], dtype=torch.float64, requires_grad=True)
    found = torch.linalg.lstsq(a, b[:, None], driver=driver)
    assert [x.requires_grad for x in found] == [True, True, False, False]
    assert found.singular_values.shape == ((2,) if driver in ("gelsd", "gelss") else (0,))
    assert found.rank.tolist() == ([] if driver == "gels" else 2)

    def results(a, b):
        return tuple(torch.linalg.lstsq(a, b[:, None], driver=driver))[: 1 + found[1].numel()]

    assert gradcheck(results, (a, b), check_forward_ad=True)
    assert gradgradcheck(results, (a, b))
