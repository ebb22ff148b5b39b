"""Factorisations of matrices: Cholesky, LU, QR, eigenvalues, singular values.

Bodies compute on batches `[*B, M, N]`; their derivatives are those of the primitives
(`prims/linear_algebra.py`). An operator that may fail for a matrix exists twice: the `_ex` form
returns an error number for each matrix, and the plain one raises `LinAlgError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

from flambeau import prims
from flambeau.core import tensors
from flambeau.core.devices import has_data
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.lock import importing, late
from flambeau.ir.node import Node
from flambeau.language import layout
from flambeau.language.definition import function, op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import columns, shown, static_size
from flambeau.prims import linear_algebra as la

_MATRICES = "f32 f64 c64 c128"


Missing = Literal["halves", "all", "none"]


class _LinAlgError(RuntimeError):
    """A matrix that has no such decomposition, solution or inverse."""


LinAlgError = _LinAlgError


def check_matrices(
    x: Node, name: str, square: bool = False, missing: Missing = "halves", later: bool = False
) -> None:
    """Raises unless x is a batch of (square) matrices of a float or complex dtype.

    `missing` are the dtypes for which NotImplementedError is raised, as PyTorch does where it has
    no kernel; for others that LAPACK does not take it is RuntimeError. `later`: not now, by
    `check_kernel` where the other operands were checked.

    Raises:
        RuntimeError: too few dimensions, not square, or another dtype.
        NotImplementedError: one of the `missing` dtypes.
    """
    if x.ndim < 2:
        problem = f"{name}: The input tensor A must have at least 2 dimensions."
        raise failure(RuntimeError, name, problem, f"its shape is {shown(x.shape)}")
    rows, columns = x.shape[-2:]
    if square and (less(rows, columns) or less(columns, rows)):
        problem = f"{name}: A must be batches of square matrices, but they are "
        problem += f"{shown(x.shape[-2:])[1:-1].replace(', ', ' by ')} matrices"
        raise failure(RuntimeError, name, problem, "the last two sizes")
    if x.dtype not in la.LAPACK and not (later and _is_missing(x, missing)):
        raise _wrong_dtype(x, name, missing)


def check_kernel(x: Node, name: str) -> None:
    """Raises NotImplementedError for dtypes that `check_matrices` left for later.

    Raises:
        NotImplementedError: LAPACK does not take the dtype.
    """
    if x.dtype not in la.LAPACK:
        raise _wrong_dtype(x, name, "all")


def _is_missing(x: Node, missing: Missing) -> bool:
    return missing == "all" or (missing == "halves" and x.dtype in ("f16", "bf16"))


def _wrong_dtype(x: Node, name: str, missing: Missing) -> Exception:
    return (NotImplementedError if _is_missing(x, missing) else RuntimeError)(
        f"[{name}] {name}: Expected a floating point or complex tensor as input. Got "
        f"{x.dtype}\nhint: convert to float32 or float64"
    )


def values_of(x: Any) -> Any:
    """The numbers a check may look at: of all samples at once under `vmap`; None on meta."""
    with importing:
        from flambeau.autograd.transforms.wrappers import inside

    x = inside(x).detach()
    return None if not has_data(x) else x


def raise_errors(name: str, info: Any, meaning: str) -> None:
    """Raises for the first matrix whose error number is not 0; meta tensors have none.

    Raises:
        LinAlgError: naming the matrix of the batch and the number.
    """
    info = values_of(info)
    if info is None or not bool((info != 0).any()):
        return
    numbers = info.flatten()
    place = int((numbers != 0).nonzero()[0].item())
    where = f"(Batch element {place}): " if info.ndim else ""
    number = int(numbers[place].item())
    text = meaning.format(value=number)
    raise failure(LinAlgError, name, f"{name}: {where}{text}", "see its condition")


def _positive_samples() -> Iterator[Sample]:
    """No gradients: finite differences would leave the Hermitian matrices."""
    yield sample(T(2, 2, values=[[4.0, 2.0], [2.0, 3.0]], grad=False))
    yield sample(T(1, 2, 2, values=[[[5.0, 1.0], [1.0, 2.0]]], grad=False))


def _vector_samples() -> Iterator[Sample]:
    """No gradients: vectors are unique up to a phase only."""
    yield sample(T(2, 2, values=[[4.0, 2.0], [1.0, 3.0]], grad=False))
    yield sample(T(1, 2, 2, values=[[[0.5, 1.0], [-1.0, 2.0]]], grad=False))


def _square_samples() -> Iterator[Sample]:
    yield sample(T(2, 2, values=[[4.0, 2.0], [1.0, 3.0]]))
    yield sample(T(1, 2, 2, values=[[[0.5, 1.0], [-1.0, 2.0]]]))


def _tall_samples() -> Iterator[Sample]:
    yield sample(T(3, 2, values=[[4.0, 2.0], [1.0, 3.0], [0.5, -1.0]]))
    yield sample(T(1, 2, 2, values=[[[0.5, 1.0], [-1.0, 2.0]]]))


def _not_matrices() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3)), RuntimeError, "at least 2 dimensions")


def _not_square() -> Iterator[ErrorSample]:
    yield from _not_matrices()
    yield ErrorSample(sample(T(3, 2)), RuntimeError, "square matrices")


# ------------------------------------------------------------------------------------ Cholesky


def checked(name: str, info: Node, meaning: str, error: str = "linalg") -> Node:
    """The error numbers; the call raises for the first one that is not 0, which `{value}` names.

    `error` is the kind of exception: "linalg" for `LinAlgError`, "runtime" for RuntimeError.
    """
    message = f"[{name}] {name}: {meaning}\nhint: see its condition"
    return prims.cast(
        prims.check_index(info, 1, name, message, error=error, strict=True), info.dtype
    )


NOT_POSITIVE = (
    "The factorization could not be completed because the input is not positive-definite "
    "(the leading minor of order {value} is not positive-definite)."
)


@op(
    kind="matrix", results="L info", samples=_positive_samples, errors=_not_square, dtypes=_MATRICES
)
def cholesky_ex(
    self: Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """Cholesky factors and, for each matrix, 0 or the order of the minor that is not positive.

    Raises:
        RuntimeError: no square matrices.
        torch.linalg.LinAlgError: with `check_errors`, a matrix is not positive definite.

    Example:
        >>> torch.linalg.cholesky_ex(torch.eye(2)).info
        tensor(0, dtype=torch.int32)
    """
    check_matrices(self, "linalg.cholesky", True)
    factor, info = _factor_positive(self, upper)
    return factor, checked("linalg.cholesky", info, NOT_POSITIVE) if check_errors else info


def _factor_positive(a: Node, upper: bool) -> tuple[Node, Node]:
    factor, info = la.cholesky(la.adjoint(a) if upper else a)
    return columns(la.adjoint(factor) if upper else factor), info


@op(where="private", results="L info", samples=_positive_samples, dtypes=_MATRICES)
def _old_cholesky_ex(self: Tensor, *, upper: bool = False) -> tuple[Tensor, Tensor]:
    """As `cholesky_ex`, with the errors of `torch.cholesky`."""
    check_matrices(self, "cholesky", True, "all")
    return _factor_positive(self, upper)


@op(
    where="linalg",
    out="exact",
    host=True,
    samples=_positive_samples,
    dtypes=_MATRICES,
    autocast="float32",
)
def cholesky(input: Tensor, *, upper: bool = False) -> Any:
    """The lower triangular L with A = L L^H, for Hermitian positive definite matrices.

    Only one triangle of A, the input, is read. `upper=True` gives L^H.

    Raises:
        torch.linalg.LinAlgError: a matrix is not positive definite.

    Example:
        >>> torch.linalg.cholesky(torch.tensor([[4.0]]))
        tensor([[2.]])
    """
    factor, info = cholesky_ex(input, upper=upper)
    raise_errors("linalg.cholesky", info, NOT_POSITIVE)
    return factor


@op(
    name="cholesky",
    out="cast contiguous",
    host=True,
    samples=_positive_samples,
    dtypes=_MATRICES,
    autocast="float32",
)
def old_cholesky(self: Tensor, upper: bool = False) -> Any:
    """The same as `torch.linalg.cholesky`.

    Raises:
        torch.linalg.LinAlgError: a matrix is not positive definite.

    Example:
        >>> torch.cholesky(torch.tensor([[4.0]]))
        tensor([[2.]])
    """
    late("flambeau.core.warned").warn_once(
        "torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be removed in a "
        "future PyTorch release."
    )
    if not self.numel():
        return self.clone()
    factor, info = _old_cholesky_ex(self, upper=upper)
    raise_errors("cholesky", info, NOT_POSITIVE)
    return factor


# ------------------------------------------------------------------------------------ LU


def permutation_matrix(order: Node, dtype: str) -> Node:
    """P with P L U = A, where A[order] = L U."""
    shape = (*order.shape[:-1], order.shape[-1], order.shape[-1])
    rows = prims.iota(shape, len(shape) - 2)
    chosen = prims.broadcast(order, shape, (*range(len(shape) - 2), len(shape) - 1))
    return prims.cast(prims.eq(rows, chosen), dtype)


def triangles(packed: Node) -> tuple[Node, Node]:
    """L with ones on the diagonal, and U, of packed factors [*B, M, N]."""
    least = min(static_size(n) for n in packed.shape[-2:])
    rows, columns = packed.ndim - 2, packed.ndim - 1
    below = la.lower_triangle(prims.slice(packed, columns, 0, least), strict=True)
    ones = prims.cast(
        prims.eq(prims.iota(below.shape, rows), prims.iota(below.shape, columns)), packed.dtype
    )
    return below + ones, la.upper_triangle(prims.slice(packed, rows, 0, least))


def _check_pivot(a: Node, pivot: bool, name: str) -> None:
    if not pivot and not any(layout.same(n, 0) for n in a.shape):
        problem = f"{name}: LU without pivoting is not implemented on the CPU"
        raise failure(RuntimeError, name, problem, "pivot=True")


@op(
    where="linalg",
    out="exact",
    results="LU pivots info",
    samples=_square_samples,
    errors=_not_matrices,
    dtypes=_MATRICES,
)
def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Packed L and U, the interchanges of rows (from 1), and 0 or the first zero pivot's number.

    Raises:
        RuntimeError: no matrices, or pivot=False; with `check_errors`, a pivot is zero.

    Example:
        >>> torch.linalg.lu_factor_ex(torch.eye(2)).pivots
        tensor([1, 2], dtype=torch.int32)
    """
    return _factor_general(A, pivot, check_errors)


def _factor_general(a: Node, pivot: bool, check_errors: bool) -> tuple[Node, Node, Node]:
    check_matrices(a, "linalg.lu_factor", missing="all")
    _check_pivot(a, pivot, "linalg.lu_factor")
    packed, pivots, _, info = la.lu(a)
    if check_errors:
        info = checked("linalg.lu_factor", info, _ZERO_PIVOT, "runtime")
    return columns(packed), pivots, info


_ZERO_PIVOT = (
    "U[{value},{value}] is zero and using it on lu_solve would result in a division by zero. If "
    "you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
    "linalg.lu_factor_ex(A, pivot)"
)


def carrying(value: Node, info: Node) -> Node:
    """The integers `value`, whose computation checks the error numbers `info` of their matrices."""
    shape = value.shape
    zero = prims.broadcast(prims.cast(info, value.dtype), shape, range(info.ndim))
    return value + zero


@op(
    where="linalg",
    out="exact",
    results="LU pivots",
    samples=_square_samples,
    errors=_not_matrices,
    dtypes=_MATRICES,
)
def lu_factor(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    """Packed L and U with A = P L U, and the interchanges of rows, counted from 1.

    Raises:
        RuntimeError: no matrices, pivot=False, or a matrix is singular.

    Example:
        >>> torch.linalg.lu_factor(torch.eye(2)).LU
        tensor([[1., 0.],
                [0., 1.]])
    """
    packed, pivots, info = _factor_general(A, pivot, True)
    return packed, carrying(pivots, info)


@op(
    where="linalg",
    out="exact",
    results="P L U",
    samples=_square_samples,
    errors=_not_matrices,
    dtypes=_MATRICES,
)
def lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """P, L, U with A = P L U: a permutation, ones on L's diagonal.

    Raises:
        RuntimeError: no matrices, or pivot=False.

    Example:
        >>> torch.linalg.lu(torch.tensor([[0.0, 2.0], [1.0, 0.0]])).P
        tensor([[0., 1.],
                [1., 0.]])
    """
    check_matrices(A, "linalg.lu", missing="all")
    _check_pivot(A, pivot, "linalg.lu")
    packed, _, order, _ = la.lu(A)
    first = permutation_matrix(order, A.dtype) if pivot else prims.full(0, (0,), A.dtype)
    return (first, *triangles(packed))


_NO_ROW = (
    "[lu_unpack] torch.lu_unpack: pivots must be between 1 and LU.size(-2) = {size} "
    "inclusive\nhint: pass what lu_factor returned"
)


def _unpack_samples() -> Iterator[Sample]:
    yield sample(T(2, 2), T(2, dtype="i32", values=[2, 2], grad=False))


@op(where="torch", out="exact", results="P L U", samples=_unpack_samples, dtypes=_MATRICES)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U of what `torch.linalg.lu_factor` returns; what is not asked for is empty.

    Raises:
        RuntimeError: the pivots are not int32, or one is not the number of a row, from 1.

    Example:
        >>> torch.lu_unpack(*torch.linalg.lu_factor(torch.eye(2))).U
        tensor([[1., 0.],
                [0., 1.]])
    """
    if LU_data.ndim < 2:
        problem = "torch.lu_unpack: Expected tensor with 2 or more dimensions. Got size: "
        problem += f"{shown(LU_data.shape)} instead"
        raise failure(RuntimeError, "lu_unpack", problem, "pass what lu_factor returned")
    if unpack_pivots and LU_pivots.dtype != "i32":
        problem = "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of "
        problem += "torch.int32 dtype."
        raise failure(RuntimeError, "lu_unpack", problem, "pass what lu_factor returned")
    empty = prims.full(0, (0,), LU_data.dtype)
    low, up = triangles(LU_data) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return empty, low, up
    fits = LU_pivots.ndim and LU_pivots.ndim < LU_data.ndim
    if not fits or not all(
        layout.same(n, 1) or layout.same(n, m)
        for n, m in zip(LU_pivots.shape[-2::-1], LU_data.shape[-3::-1])
    ):
        problem = f"torch.lu_unpack: pivots {shown(LU_pivots.shape)} do not fit factors "
        problem += f"{shown(LU_data.shape)}"
        raise failure(RuntimeError, "lu_unpack", problem, "pass what lu_factor returned")
    rows = LU_data.shape[-2]
    places = prims.check_index(
        LU_pivots - 1, rows, "lu_unpack", _NO_ROW, error="runtime", strict=True
    )
    pivots = prims.cast(places, "i32") + 1
    pivots = prims.broadcast_to(pivots, (*LU_data.shape[:-2], LU_pivots.shape[-1]))
    order = la.pivot_order(pivots, rows)
    return permutation_matrix(order, LU_data.dtype), low, up


@function(
    name="lu",
    out="any contiguous",
    samples=_square_samples,
    dtypes=_MATRICES,
    autocast="float32",
)
def old_lu(self: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """Packed factors and pivots, and with `get_infos` the error numbers.

    Raises:
        RuntimeError: no matrices, or pivot=False.

    Example:
        >>> len(torch.lu(torch.eye(2)))
        2
    """
    late("flambeau.core.warned").warn_once(
        "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and "
        "will be removed in a future PyTorch release."
    )
    factors = lu_factor_ex(self, pivot=pivot)
    return _lu_with_info()(tuple(factors)) if get_infos else tuple(factors)[:2]


@cache
def _lu_with_info() -> Any:
    return tensors.struct_sequence("_lu_with_info", ("LU", "pivots", "info"))


# ------------------------------------------------------------------------------------ QR


_QR_MODES = ("reduced", "complete", "r")


@op(kind="matrix", results="Q R", samples=_tall_samples, errors=_not_matrices, dtypes=_MATRICES)
def qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Q with orthonormal columns and R upper triangular with A = Q R.

    mode: "reduced", "complete" (Q square) or "r" (Q is empty).

    Raises:
        RuntimeError: no matrices, or an unknown mode.

    Example:
        >>> torch.linalg.qr(torch.tensor([[3.0], [4.0]])).R
        tensor([[-5.]])
    """
    check_matrices(A, "linalg.qr", later=True)
    if mode not in _QR_MODES:
        problem = f"qr received unrecognized mode '{mode}'"
        raise failure(RuntimeError, "qr", problem, f"one of {', '.join(_QR_MODES)}")
    check_kernel(A, "linalg.qr")
    q, r = la.qr(A, mode == "complete")
    return columns(prims.full(0, (0,), A.dtype) if mode == "r" else q), columns(r)


@op(
    name="qr",
    out="exact",
    results="Q R",
    samples=_tall_samples,
    errors=_not_matrices,
    dtypes=_MATRICES,
    autocast="float32",
)
def old_qr(self: Tensor, some: bool = True) -> tuple[Tensor, Tensor]:
    """The same as `torch.linalg.qr`; `some=False` makes Q square.

    Raises:
        RuntimeError: no matrices.

    Example:
        >>> torch.qr(torch.tensor([[3.0], [4.0]])).R
        tensor([[-5.]])
    """
    late("flambeau.core.warned").warn_once(
        "torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future "
        "PyTorch release."
    )
    check_matrices(self, "qr")
    q, r = la.qr(self, not some)
    return columns(q), columns(r)


# ------------------------------------------------------------------------------------ eigenvalues


def _hermitian(x: Node, uplo: str, name: str) -> Node:
    """Square matrices whose lower triangle is the one to read."""
    check_matrices(x, name, True, "all", later=True)
    if uplo.upper() not in ("L", "U"):
        problem = f"Expected UPLO argument to be 'L' or 'U', but got {uplo}"
        raise failure(RuntimeError, name, problem, "'L' or 'U'")
    check_kernel(x, name)
    return la.adjoint(x) if uplo.upper() == "U" else x


@op(
    kind="matrix",
    results="eigenvalues eigenvectors",
    samples=_positive_samples,
    errors=_not_square,
    dtypes=_MATRICES,
)
def eigh(self: Tensor, UPLO: str = "L") -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues and orthonormal eigenvectors (columns) of Hermitian matrices.

    Only the triangle `UPLO` is read. Vectors are unique up to a phase.

    Raises:
        RuntimeError: no square matrices, or an unknown triangle.

    Example:
        >>> torch.linalg.eigh(torch.eye(2)).eigenvalues
        tensor([1., 1.])
    """
    values, vectors = la.eigh(_hermitian(self, UPLO, "linalg.eigh"))
    return values, columns(vectors)


@op(kind="matrix", samples=_positive_samples, errors=_not_square, dtypes=_MATRICES)
def eigvalsh(self: Tensor, UPLO: str = "L") -> Tensor:
    """Ascending eigenvalues of Hermitian matrices, of which one triangle is read.

    Raises:
        RuntimeError: no square matrices, or an unknown triangle.

    Example:
        >>> torch.linalg.eigvalsh(torch.eye(2))
        tensor([1., 1.])
    """
    return la.eigvalsh(_hermitian(self, UPLO, "linalg.eigvalsh"))


@op(
    kind="matrix",
    out="cast empty",
    results="eigenvalues eigenvectors",
    samples=_vector_samples,
    errors=_not_square,
    dtypes=_MATRICES,
)
def eig(self: Tensor) -> tuple[Tensor, Tensor]:
    """Complex eigenvalues, in no particular order, and eigenvectors (columns of norm 1).

    Raises:
        RuntimeError: no square matrices.

    Example:
        >>> torch.linalg.eig(torch.eye(2)).eigenvalues
        tensor([1.+0.j, 1.+0.j])
    """
    check_matrices(self, "linalg.eig", True)
    values, vectors = la.eig(self)
    return values, columns(vectors)


@op(
    kind="matrix",
    out=True,
    unsaved="self",
    samples=_square_samples,
    errors=_not_square,
    dtypes=_MATRICES,
)
def eigvals(self: Tensor) -> Tensor:
    """Complex eigenvalues of square matrices, in no particular order.

    Raises:
        RuntimeError: no square matrices.

    Example:
        >>> torch.linalg.eigvals(torch.eye(2))
        tensor([1.+0.j, 1.+0.j])
    """
    check_matrices(self, "linalg.eigvals", True)
    return la.eigvals(self)


# ------------------------------------------------------------------------------------ singular


def _refuse_driver(a: Node, driver: str | None, name: str) -> None:
    if driver is not None and not any(layout.same(n, 0) for n in a.shape):
        problem = "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs "
        problem += "with cuSOLVER backend."
        raise failure(RuntimeError, "svd", problem, "leave it out")


@op(
    kind="matrix", results="U S Vh", samples=_vector_samples, errors=_not_matrices, dtypes=_MATRICES
)
def svd(
    A: Tensor, full_matrices: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """U, descending singular values S, and V^H, with A = U diag(S) V^H.

    `full_matrices=False` leaves out the columns that meet no singular value. Vectors are unique up
    to a common phase.

    Raises:
        RuntimeError: no matrices, or a driver (they belong to CUDA).

    Example:
        >>> torch.linalg.svd(torch.eye(2)).S
        tensor([1., 1.])
    """
    check_matrices(A, "linalg.svd", later=True)
    _refuse_driver(A, driver, "linalg.svd")
    check_kernel(A, "linalg.svd")
    u, s, vh = la.svd(A, full_matrices)
    return columns(u), s, columns(vh)


@op(kind="matrix", unsaved="A", samples=_tall_samples, errors=_not_matrices, dtypes=_MATRICES)
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """Descending singular values of matrices.

    Raises:
        RuntimeError: no matrices.

    Example:
        >>> torch.linalg.svdvals(torch.eye(2))
        tensor([1., 1.])
    """
    check_matrices(A, "linalg.svdvals", later=True)
    _refuse_driver(A, driver, "linalg.svdvals")
    check_kernel(A, "linalg.svdvals")
    return la.svdvals(A)


@op(
    name="svd",
    out="exact",
    results="U S V",
    samples=_vector_samples,
    errors=_not_matrices,
    dtypes=_MATRICES,
    autocast="float32",
)
def old_svd(
    self: Tensor, some: bool = True, compute_uv: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V (not its adjoint) with A = U diag(S) V^H; see `torch.linalg.svd`.

    Raises:
        RuntimeError: no matrices.

    Example:
        >>> torch.svd(torch.eye(2)).S
        tensor([1., 1.])
    """
    check_matrices(self, "svd")
    if compute_uv:
        u, s, vh = la.svd(self, not some)
        return columns(u), s, la.adjoint(vh)
    batch, (m, n) = self.shape[:-2], self.shape[-2:]
    left, right = (prims.full(0, (*batch, k, k), self.dtype) for k in (m, n))
    return left, la.svdvals(self), columns(right)
