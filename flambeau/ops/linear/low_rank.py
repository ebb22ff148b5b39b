"""Decompositions of low rank by random projections.

Source: Halko, Martinsson & Tropp, Finding Structure with Randomness, SIAM Review 53, 2011,
algorithms 4.4 and 5.1. These are ordinary programs over public operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.language.definition import REGISTRY, function
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.linear import factorisations  # noqa: F401 - define what is used here
from flambeau.ops.linear.matrix import matmul
from flambeau.ops.pointwise.complex_numbers import adjoint
from flambeau.ops.random import random  # noqa: F401 - define what is used here


def _range_of(matrix: Any, rank: int, rounds: int, shift: Any) -> Any:
    """Orthonormal columns that nearly span what `matrix - shift` maps to."""
    qr, randn = REGISTRY["linalg.qr"], REGISTRY["randn"]

    def times(x: Any, forth: bool) -> Any:
        product = matmul(matrix if forth else adjoint(matrix), x)
        if shift is None:
            return product
        return product - matmul(shift if forth else adjoint(shift), x)

    # One draw for all matrices of a batch, in PyTorch's order.
    probe = randn((matrix.shape[-1], rank), dtype=matrix.dtype, device=matrix.device)
    basis = qr(times(probe, True))[0]
    for _ in range(rounds):
        basis = qr(times(basis, False))[0]
        basis = qr(times(basis, True))[0]
    return basis


# Of rank 2 within q = 2, so that the result does not depend on the draws.
_TALL = [[2.0, 0.5], [0.25, 1.0], [1.0, -1.0], [0.5, 3.0]]
_WIDE = [[2.0, 0.5, 1.0, -0.5], [0.25, 1.0, 0.0, 3.0]]


def _samples() -> Iterator[Sample]:
    yield sample(T(4, 2, values=_TALL), 2)
    yield sample(T(2, 4, values=_WIDE), 2)


def _component_samples() -> Iterator[Sample]:
    yield sample(T(4, 2, values=_TALL), 2)
    yield sample(T(2, 4, values=_WIDE), 2, center=False)


def _unwrapped(text: str, name: str) -> ValueError:
    return ValueError(f"[{name}] {text}\nhint: a rank, at most the smaller size of the matrix")


@function(where="torch", samples=_samples, dtypes="f32 f64")
def svd_lowrank(
    A: Tensor,
    q: int | None = 6,
    niter: int = 2,
    M: Tensor | None = None,  # noqa: N803
) -> tuple[Tensor, ...]:
    """The greatest singular values of a matrix (or of A - M) and their vectors, about.

    Args:
        A: (*, m, n).
        q: how many, a little more than the rank that matters.
        niter: rounds of subspace iteration.
        M: what is subtracted from A, broadcast to it.

    Returns:
        U (*, m, q), S (*, q), V (*, n, q) with A about equal to U diag(S) V^H.

    Example:
        >>> U, S, V = torch.svd_lowrank(torch.ones(4, 3), q=2)
        >>> S.shape
        torch.Size([2])
    """
    rank = 6 if q is None else q
    shift = None if M is None else M.broadcast_to(A.shape)
    wide = A.shape[-2] < A.shape[-1]
    if wide:
        A = adjoint(A)  # noqa: N806
        shift = None if shift is None else adjoint(shift)
    basis = _range_of(A, rank, niter, shift)
    small = matmul(adjoint(basis), A)
    if shift is not None:
        small = small - matmul(adjoint(basis), shift)
    left, values, right = REGISTRY["linalg.svd"](small, full_matrices=False)
    left, right = matmul(basis, left), adjoint(right)
    return (right, values, left) if wide else (left, values, right)


@function(
    where="torch",
    samples=_component_samples,
    errors=lambda: [ErrorSample(sample(T(4, 3), 5), ValueError, "q(=5)")],
    dtypes="f32 f64",
)
def pca_lowrank(
    A: Tensor,
    q: int | None = None,
    center: bool = True,
    niter: int = 2,  # noqa: N803
) -> tuple[Tensor, ...]:
    """Principal components of the rows of a matrix: `svd_lowrank` of A without its mean row.

    Args:
        A: (*, observations, variables).
        q: how many components; min(6, m, n) when None.
        center: whether the mean of the rows is subtracted.
        niter: rounds of subspace iteration.

    Raises:
        ValueError: q beyond the sizes of the matrix, or a negative niter.

    Example:
        >>> torch.pca_lowrank(torch.ones(4, 3), q=2)[2].shape
        torch.Size([3, 2])
    """
    rows, columns = A.shape[-2:]
    rank = min(6, rows, columns) if q is None else q
    if not 0 <= rank <= min(rows, columns):
        raise _unwrapped(
            f"q(={rank}) must be non-negative integer and not greater than min(m, n)="
            f"{min(rows, columns)}",
            "pca_lowrank",
        )
    if niter < 0:
        raise _unwrapped(f"niter(={niter}) must be non-negative integer", "pca_lowrank")
    if not (A.is_floating_point() or A.is_complex()):
        raise _unwrapped(f"input must have a floating-point dtype, got {A.dtype}", "pca_lowrank")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, rank, niter)
