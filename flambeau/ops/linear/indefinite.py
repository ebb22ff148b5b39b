"""Systems of symmetric and Hermitian matrices that need not be positive: A = L D L^H.

D is made of blocks of one and two rows, so that no pivot vanishes (Bunch & Kaufman, Mathematics of
Computation 31, 1977). They have no derivative: `torch.linalg.solve` has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.layout import same
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import broadcast_sizes
from flambeau.ops.common import columns, shown
from flambeau.ops.linear.factorisations import carrying, check_kernel, check_matrices, checked
from flambeau.ops.linear.solutions import check_pivots
from flambeau.prims import linear_algebra as la

_MATRICES = "f32 f64 c64 c128"
_WHOLE = T(3, 3, values=[[0.5, 2.0, 1.0], [2.0, 0.25, 3.0], [1.0, 3.0, -1.0]], grad=False)
_BATCH = T(1, 2, 2, values=[[[0.0, 1.0], [1.0, 0.0]]], grad=False)


def _samples() -> Iterator[Sample]:
    yield sample(_WHOLE)
    yield sample(_BATCH, hermitian=True)


def _not_square() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3)), RuntimeError, "at least 2 dimensions")
    yield ErrorSample(sample(T(3, 2)), RuntimeError, "square matrices")


@op(
    where="linalg",
    out="exact",
    results="LD pivots info",
    samples=_samples,
    errors=_not_square,
    dtypes=_MATRICES,
)
def ldl_factor_ex(
    self: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Packed L and D, pivots, and for each matrix 0 or the number of its first zero pivot.

    Args:
        self: `(*, n, n)`; only the lower triangles are read.
        hermitian: whether complex matrices are Hermitian; else they are symmetric.

    Raises:
        RuntimeError: no square matrices; with `check_errors`, a pivot is zero.

    Example:
        >>> torch.linalg.ldl_factor_ex(torch.eye(2)).pivots
        tensor([1, 2], dtype=torch.int32)
    """
    return _factor(self, hermitian, check_errors)


def _factor(a: Node, hermitian: bool, check_errors: bool) -> tuple[Any, Node, Node]:
    check_matrices(a, "linalg.ldl_factor", True)
    packed, pivots, info = la.ldl(a, hermitian)
    if check_errors:
        info = checked("linalg.ldl_factor", info, _ZERO_PIVOT, "runtime")
    return columns(la.lower_triangle(packed)), pivots, info


_ZERO_PIVOT = (
    "D[{value},{value}] is zero and using it on ldl_solve would result in a division by zero. If "
    "you still want to perform the factorization, consider calling linalg.ldl_factor_ex(A)"
)


@op(
    where="linalg",
    out="exact",
    results="LD pivots",
    samples=_samples,
    errors=_not_square,
    dtypes=_MATRICES,
)
def ldl_factor(self: Tensor, *, hermitian: bool = False) -> tuple[Tensor, Tensor]:
    """Packed L and D with A = L D L^T (`hermitian=True`: L D L^H), and LAPACK's pivots.

    Args:
        self: `(*, n, n)`; only the lower triangles are read.

    Returns:
        LD `(*, n, n)`, with D's blocks on the diagonal, and pivots `(*, n)`, int32: row k was
        swapped with row pivots[k], counted from 1; two equal negative numbers are a block of two
        rows, the second of which was swapped.

    Raises:
        RuntimeError: no square matrices, or a matrix is singular.

    Example:
        >>> torch.linalg.ldl_factor(torch.tensor([[2.0, 0.0], [1.0, 3.0]])).LD
        tensor([[2.0000, 0.0000],
                [0.5000, 2.5000]])
    """
    packed, pivots, info = _factor(self, hermitian, True)
    return packed, carrying(pivots, info)


def _solve_samples() -> Iterator[Sample]:
    low = T(2, 2, values=[[2.0, 0.0], [0.5, 3.0]], grad=False)
    pivots = T(2, dtype="i32", values=[1, 2], grad=False)
    yield sample(low, pivots, T(2, 3, grad=False))
    pair = T(2, dtype="i32", values=[-2, -2], grad=False)
    yield sample(low, pair, T(2, 2, 3, grad=False), hermitian=True)


@op(where="linalg", out="exact", samples=_solve_samples, dtypes=_MATRICES)
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X with A X = B, given what `ldl_factor` returned for A; batches broadcast.

    Raises:
        RuntimeError: no square matrices, pivots that are not int32, or shapes that do not fit.

    Example:
        >>> factors = torch.linalg.ldl_factor(2 * torch.eye(2))
        >>> torch.linalg.ldl_solve(*factors, torch.ones(2, 1))
        tensor([[0.5000],
                [0.5000]])
    """
    name = "linalg.ldl_solve"
    check_matrices(LD, name, True, later=True)
    check_matrices(B, name, later=True)
    if not same(LD.shape[-1], B.shape[-2]):
        problem = "Incompatible matrix sizes for torch.linalg.ldl_solve: each A matrix is "
        problem += f"{shown(LD.shape[-2:])} but each b matrix is {shown(B.shape[-2:])}"
        raise failure(RuntimeError, name, problem, "as many equations as unknowns")
    check_pivots(f"torch.{name}", LD, pivots)
    if LD.dtype != B.dtype:
        problem = f"torch.linalg.ldl_solve: LD dtype {LD.dtype} does not match b dtype {B.dtype}"
        raise failure(RuntimeError, name, problem, "convert one of them")
    check_kernel(LD, name)
    batch = broadcast_sizes(name, LD.shape[:-2], B.shape[:-2])
    packed = prims.broadcast_to(LD, (*batch, *LD.shape[-2:]))
    right = prims.broadcast_to(B, (*batch, *B.shape[-2:]))
    places = prims.broadcast_to(pivots, (*batch, *pivots.shape[-1:]))
    return columns(la.ldl_solve(packed, places, right, hermitian))
