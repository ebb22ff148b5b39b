"""Derivatives of factorisations whose vectors are free up to a phase, through what is not free.

The op table's samples of these operators have no gradients: differences of a free phase, or of a
matrix that leaves the Hermitian ones, mean nothing. Here each is part of a function of any matrix.
"""

import pytest

import flambeau as torch
from flambeau.autograd import gradcheck

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
