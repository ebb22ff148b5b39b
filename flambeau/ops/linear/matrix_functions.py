"""Functions of matrices, determinants, products of reflections, linear maps between tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import minimum
from flambeau.language.definition import REGISTRY, Dense, op
from flambeau.language.layout import same
from flambeau.language.promotion import CATEGORY
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import columns, normalise_dim, same_sizes, shown, static_size
from flambeau.ops.linear.complex_products import product_along
from flambeau.ops.linear.factorisations import check_kernel, check_matrices, values_of
from flambeau.ops.linear.solutions import check_same_dtype, inverted, solved
from flambeau.prims import linear_algebra as la

_MATRICES = "f32 f64 c64 c128"
_TAYLOR = 18  # terms: below the dtype's precision for norms up to 1


def _square_samples() -> Iterator[Sample]:
    yield sample(T(2, 2, values=[[0.4, 0.2], [0.1, -0.3]]))
    yield sample(T(1, 2, 2, values=[[[1.5, 1.0], [-1.0, 2.0]]]))


def _positive_samples() -> Iterator[Sample]:
    yield sample(T(2, 2, values=[[4.0, 2.0], [1.0, 3.0]]))


def _not_square() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3)), RuntimeError, "at least 2 dimensions")
    yield ErrorSample(sample(T(3, 2)), RuntimeError, "square matrices")


def _halvings(matrices: Any) -> Any:
    """How often each matrix is halved until its norm is at most 1: (..., 1, 1), whole numbers."""
    norms = matrices.detach().abs().sum(-1).amax(-1)[..., None, None]
    usual = (norms > 1) & (norms < math.inf)
    return norms.where(usual, 1.0).log2().ceil()


def _check_tensor(name: str, x: Any) -> None:
    if not isinstance(x, tensors.Tensor):
        problem = f"input must be Tensor, not {type(x).__name__}"
        raise failure(TypeError, name, problem, "torch.tensor(input)")


def _exponential(self: Any) -> Any:
    _check_tensor("matrix_exp", self)
    if self.ndim < 2 or self.shape[-1] != self.shape[-2]:
        problem = "linalg.matrix_exp: A must be batches of square matrices, but they are "
        problem += f"{list(self.shape)}"
        raise failure(RuntimeError, "matrix_exp", problem, "the last two sizes must agree")
    if not (self.is_floating_point() or self.is_complex()):
        problem = "linalg.matrix_exp: Expected a floating point or complex tensor as input"
        raise failure(RuntimeError, "matrix_exp", problem, "convert to float32")
    if self.numel() == 0:
        return self.clone()
    halvings = _halvings(self)
    counts = values_of(halvings)
    most = int(counts.max()) if counts is not None and counts.numel() else 0
    x = self
    for step in range(most):
        x = (x * 0.5).where(halvings > step, x)
    unit = REGISTRY["diag_embed"].native(x.new_ones(x.shape[:-1]))
    value = unit + x / _TAYLOR
    for k in range(_TAYLOR - 1, 0, -1):
        value = unit + (x @ value) / k
    for step in range(most):
        value = (value @ value).where(halvings > step, value)
    return value


@op(where="torch method linalg", host=True, samples=_square_samples, dtypes=_MATRICES)  # fmt: skip
def matrix_exp(self: Tensor) -> Any:
    """The exponential of square matrices, by Taylor's series of A / 2^s, squared s times.

    Source: Moler & Van Loan, Nineteen Dubious Ways, SIAM Review 45, 2003.

    Raises:
        RuntimeError: no square matrices, or integers.

    Example:
        >>> torch.matrix_exp(torch.zeros(1, 1))
        tensor([[1.]])
    """
    return _exponential(self)


@op(
    where="linalg",
    out=True,
    host=True,
    samples=_square_samples,
    dtypes=_MATRICES,
    autocast="float32",
)
def cond(self: Tensor, p: Any = None) -> Any:
    """The condition of matrices: the norm times that of the inverse; 2-norm by default.

    Orders: None, 2, -2 (singular values), "fro", "nuc", 1, -1, inf, -inf (inverse).

    Raises:
        RuntimeError: no matrices, or not square for an order that needs an inverse.

    Example:
        >>> torch.linalg.cond(torch.eye(2))
        tensor(1.)
    """
    _check_tensor("linalg.cond", self)
    if self.ndim < 2:
        problem = "linalg.cond: The input tensor A must have at least 2 dimensions."
        raise failure(RuntimeError, "cond", problem, f"its shape is {list(self.shape)}")
    if not (p is None or isinstance(p, int | float | str)):
        raise TypeError(f"[cond] linalg.cond: p is {type(p).__name__}\nhint: a number or a name")
    if p not in (None, 1, -1, 2, -2, math.inf, -math.inf, "fro", "nuc"):
        problem = f"linalg.cond got an invalid norm type: {p}"
        raise failure(RuntimeError, "cond", problem, "see its orders")
    if not self.numel() and (self.is_floating_point() or self.is_complex()):
        return self.new_zeros(self.shape[:-2]).abs()
    if p is None or p in (2, -2):
        sizes = REGISTRY["linalg.svdvals"].native(self)
        greatest, least = sizes[..., 0], sizes[..., -1]
        return least / greatest if p == -2 else greatest / least
    inverse, info = REGISTRY["linalg.inv_ex"].native(self)
    norm, where = REGISTRY["linalg.matrix_norm"].native, REGISTRY["where"].native
    if p == "nuc":  # singular values of infinities are NaN
        regular = (info[..., None, None] == 0) & (inverse == inverse)
        return norm(self, p) * norm(where(regular, inverse, math.inf), p)
    value = norm(self, p) * norm(inverse, p)
    usual = (info == 0) & (value == value)
    return where(usual, value, value.new_full((), math.inf))


# ------------------------------------------------------------------------------------ determinants


def _signed(a: Node) -> tuple[Node, Node]:
    """U's diagonal, and the sign of the interchanges, of square matrices."""
    packed, pivots, _, _ = la.lu(a)
    moved = prims.ne(pivots, prims.iota(pivots.shape, pivots.ndim - 1, "i32") + 1)
    count = prims.reduce_dims("sum", prims.cast(moved, "i64"), (moved.ndim - 1,), False)
    even = prims.eq(prims.remainder(count, prims.full_like(2, count)), prims.zeros_like(count))
    one = prims.full(1, count.shape, a.dtype)
    return la.diagonal(packed), prims.where(even, one, -one)


def determinant(a: Node) -> Node:
    """The determinant of square matrices."""
    pivots, sign = _signed(a)
    return sign * product_along(pivots, pivots.ndim - 1)


@op(where="linalg", out="exact", samples=_square_samples, errors=_not_square, dtypes=_MATRICES)
def det(A: Tensor) -> Tensor:
    """The determinant of square matrices.

    Raises:
        RuntimeError: no square matrices.

    Example:
        >>> torch.linalg.det(2 * torch.eye(2))
        tensor(4.)
    """
    check_matrices(A, "linalg.det", True)
    return determinant(A)


@op(name="det", samples=_square_samples, errors=_not_square, dtypes=_MATRICES)  # fmt: skip
def old_det(self: Tensor) -> Tensor:
    """The same as `torch.linalg.det`.

    Raises:
        RuntimeError: no square matrices.

    Example:
        >>> torch.det(2 * torch.eye(2))
        tensor(4.)
    """
    return det(self)


def _sign_and_log(a: Node) -> tuple[Node, Node]:
    pivots, sign = _signed(a)
    size = prims.abs(pivots)
    last = (pivots.ndim - 1,)
    total = prims.reduce_dims("sum", prims.log(size), last, False)
    if CATEGORY[a.dtype] == 3:
        zero = prims.eq(size, prims.zeros_like(size))
        divisor = prims.where(zero, prims.full_like(1, size), size)
        phases = pivots / prims.cast(divisor, pivots.dtype)
    else:
        phases = prims.sign(pivots)
    return sign * product_along(phases, phases.ndim - 1), total


@op(
    where="linalg torch method",
    out="exact",
    results="sign logabsdet",
    samples=_square_samples,
    errors=_not_square,
    dtypes=_MATRICES,
)
def slogdet(A: Tensor) -> tuple[Tensor, Tensor]:
    """The sign (or phase) of the determinant and the logarithm of its magnitude.

    Raises:
        RuntimeError: no square matrices.

    Example:
        >>> torch.linalg.slogdet(torch.eye(2)).sign
        tensor(1.)
    """
    check_matrices(A, "linalg.slogdet", True, "none")
    return _sign_and_log(A)


@op(samples=_positive_samples, errors=_not_square, dtypes=_MATRICES)  # fmt: skip
def logdet(self: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where it is negative.

    Raises:
        RuntimeError: no square matrices.

    Example:
        >>> torch.logdet(torch.eye(2))
        tensor(0.)
    """
    check_matrices(self, "logdet", True, "none")
    sign, size = _sign_and_log(self)
    return prims.log(sign) + prims.cast(size, sign.dtype)


# ------------------------------------------------------------------------------------ reflections


def _check_reflections(name: str, packed: Node, tau: Node) -> None:
    if not tau.ndim:
        raise IndexError(f"[{name}] {name}: tau has no dimensions\nhint: pass what geqrf returned")
    if tau.dtype != packed.dtype:
        problem = f"{name}: tau dtype {tau.dtype} does not match input dtype {packed.dtype}"
        raise failure(RuntimeError, name, problem, "pass what geqrf returned")
    if tau.ndim != packed.ndim - 1:
        problem = f"{name}: Expected tau to have one dimension less than input, but got tau.ndim "
        problem += f"equal to {tau.ndim} and input.ndim is equal to {packed.ndim}"
        raise failure(RuntimeError, name, problem, "pass what geqrf returned")
    if not same_sizes(tau.shape[:-1], packed.shape[:-2]):
        problem = f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but "
        problem += f"got {shown(tau.shape[:-1])}"
        raise failure(RuntimeError, name, problem, "pass what geqrf returned")


def _check_reflected(packed: Node, tau: Node, other: Node, left: bool) -> None:
    name, dim = "torch.ormqr", -2 if left else -1
    if other.dtype != packed.dtype:
        problem = f"{name}: Expected input and other to have the same dtype, but input has dtype "
        problem += f"{packed.dtype} and other has dtype {other.dtype}"
        raise failure(RuntimeError, name, problem, "convert one of them")
    if other.ndim < 2:
        problem = f"{name}: other must have at least 2 dimensions."
        raise failure(RuntimeError, name, problem, "unsqueeze it")
    if not same(other.shape[dim], packed.shape[-2]):
        problem = f"{name}: other.shape[{dim}] must be equal to input.shape[-2], but they are "
        problem += f"{shown(other.shape)} and {shown(packed.shape)}"
        raise failure(RuntimeError, name, problem, "see the argument left")
    if not same(tau.shape[-1], minimum(other.shape[dim], packed.shape[-1])):
        problem = f"{name}: tau.shape[-1] must be equal to min(other.shape[{dim}], "
        problem += f"input.shape[-1]), but it is {shown(tau.shape[-1:])}"
        raise failure(RuntimeError, name, problem, "pass what geqrf returned")
    if not same_sizes(other.shape[:-2], packed.shape[:-2]):
        problem = f"{name}: Expected batch dimensions of other to be equal to input.shape[:-2], "
        problem += f"but got {shown(other.shape[:-2])}"
        raise failure(RuntimeError, name, problem, "expand it")


def _packed_samples() -> Iterator[Sample]:
    yield sample(T(3, 2), T(2))
    yield sample(T(1, 3, 3), T(1, 2))


@op(
    kind="matrix",
    out="cast empty",
    samples=_packed_samples,
    errors=lambda: [ErrorSample(sample(T(3), T(1)), RuntimeError, "at least 2 dimensions")],
    dtypes=_MATRICES,
)
def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of reflections I - tau v v^H, packed as `geqrf` does.

    Raises:
        RuntimeError: no matrices, fewer rows than columns, or too many reflections.

    Example:
        >>> torch.linalg.householder_product(torch.ones(2, 1), torch.zeros(1))
        tensor([[1.],
                [0.]])
    """
    name = "torch.linalg.householder_product"
    check_matrices(input, name, missing="all", later=True)
    _check_reflections(name, input, tau)
    rows, width = input.shape[-2:]
    if less(rows, width) or less(width, tau.shape[-1]):
        problem = f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1], and "
        problem += "that to tau.shape[-1]"
        raise failure(RuntimeError, "householder_product", problem, "as geqrf gives them")
    check_kernel(input, name)
    shape = (*input.shape[:-2], rows, width)
    row, column = (prims.iota(shape, d) for d in (len(shape) - 2, len(shape) - 1))
    unit = prims.cast(prims.eq(row, column), input.dtype)
    return columns(la.reflect(input, tau, unit))


@op(
    out="cast empty",
    results="a tau",
    samples=lambda: [sample(T(3, 2, grad=False)), sample(T(2, 3, 4, grad=False))],
    errors=lambda: [ErrorSample(sample(T(3)), RuntimeError, "at least 2 dimensions")],
    dtypes=_MATRICES,
    autocast="float32",
)
def geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    """The QR decomposition as LAPACK packs it, for `orgqr` and `ormqr`.

    `a` holds R in its upper triangle and the vectors v of the reflections I - tau v v^H, whose
    product is Q, below it (their first elements are 1). It has no derivative: use `linalg.qr`.

    Raises:
        RuntimeError: no matrices.

    Example:
        >>> torch.geqrf(torch.ones(1, 1)).tau
        tensor([0.])
    """
    check_matrices(self, "torch.geqrf", missing="all")
    packed, tau = la.geqrf(self)
    return columns(packed), tau


# No alias: it has other homes, and its arguments other names.
@op(out="cast empty", samples=_packed_samples, dtypes=_MATRICES, autocast="float32")
def orgqr(self: Tensor, input2: Tensor) -> Tensor:
    """The same as `torch.linalg.householder_product`.

    Args:
        self: `(*, m, n)`, m >= n: reflections below the diagonal, as `torch.geqrf` packs them.
        input2: `(*, k)`, k <= n: their scales.

    Raises:
        RuntimeError: no matrices, fewer rows than columns, or too many reflections.

    Example:
        >>> torch.orgqr(torch.ones(2, 1), torch.zeros(1))
        tensor([[1.],
                [0.]])
    """
    return columns(householder_product(self, input2))


@op(
    out="exact empty",
    samples=lambda: [sample(T(3, 2), T(2), T(3, 4)), sample(T(3, 2), T(2), T(4, 3), False)],
    dtypes=_MATRICES,
    autocast="float32",
)
def ormqr(
    self: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """The product of reflections times a matrix (`left=False`: the matrix times it).

    `transpose=True` takes the adjoint of the product of reflections.

    Raises:
        RuntimeError: no matrices.

    Example:
        >>> torch.ormqr(torch.ones(2, 1), torch.zeros(1), torch.ones(2, 1))
        tensor([[1.],
                [1.]])
    """
    check_matrices(self, "torch.ormqr", missing="all", later=True)
    _check_reflections("torch.ormqr", self, input2)
    _check_reflected(self, input2, input3, left)
    check_kernel(self, "torch.ormqr")
    if left:
        return columns(la.reflect(self, input2, input3, transpose))
    return columns(la.adjoint(la.reflect(self, input2, la.adjoint(input3), not transpose)))


# ------------------------------------------------------------------------------------ tensors


def _rows_of(x: Node, count: int) -> int:
    return math.prod(static_size(n) for n in x.shape[:count])


@op(
    kind="matrix",
    out="cast contiguous",
    samples=lambda: [sample(T(2, 3, 6), 2)],
    dtypes=_MATRICES,
)
def tensorinv(self: Tensor, ind: int = 2) -> Tensor:
    """The inverse of `tensordot` with a tensor whose first `ind` dimensions are its rows.

    Raises:
        RuntimeError: ind is not positive, or rows and columns differ in number.
        torch.linalg.LinAlgError: there is no inverse.

    Example:
        >>> torch.linalg.tensorinv(2 * torch.eye(2), 1)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """
    if ind <= 0:
        problem = f"Expected a strictly positive integer for 'ind', got {ind}"
        raise failure(RuntimeError, "tensorinv", problem, "ind > 0")
    if ind > self.ndim:
        problem = f"'ind' is {ind}, the tensor has {self.ndim} dimensions"
        raise failure(RuntimeError, "tensorinv", problem, "ind <= ndim")
    rows = _rows_of(self, ind)
    columns = math.prod(static_size(n) for n in self.shape[ind:])
    if rows != columns:
        problem = "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
        problem += f"prod(self.shape[:ind]), but got {columns} != {rows}"
        raise failure(RuntimeError, "tensorinv", problem, "choose another ind")
    matrix = prims.reshape(self, (rows, rows))
    check_matrices(matrix, "linalg.inv", True, "none")
    value = prims.reshape(inverted(matrix, True)[0], (*self.shape[ind:], *self.shape[:ind]))
    return Dense(value, (*range(self.ndim - ind, self.ndim), *range(self.ndim - ind)))


@op(kind="matrix", out=True, samples=lambda: [sample(T(2, 3, 6), T(2, 3))], dtypes=_MATRICES)
def tensorsolve(self: Tensor, other: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B; `dims` of A are moved to its end first.

    Raises:
        RuntimeError: rows and columns differ in number.
        torch.linalg.LinAlgError: there is no single solution.

    Example:
        >>> torch.linalg.tensorsolve(2 * torch.eye(2), torch.ones(2))
        tensor([0.5000, 0.5000])
    """
    moved = tuple(normalise_dim(d, self.ndim, "tensorsolve") for d in dims or ())
    if len(set(moved)) < len(moved):
        raise failure(RuntimeError, "tensorsolve", f"repeated dim in {dims}", "name each once")
    remaining = tuple(d for d in range(self.ndim) if d not in moved)
    a = prims.permute(self, (*remaining, *moved))
    shape = a.shape[other.ndim :]
    rows, columns = _rows_of(other, other.ndim), math.prod(static_size(n) for n in shape)
    if rows != columns:
        problem = "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
        problem += f"prod(self.shape[:other.ndim]), but got {columns} != {rows}"
        raise failure(RuntimeError, "tensorsolve", problem, "see dims")
    matrix, right = prims.reshape(a, (rows, columns)), prims.reshape(other, (rows, 1))
    check_matrices(matrix, "linalg.solve", True)
    check_same_dtype("linalg.solve", matrix, right)
    return prims.reshape(solved("linalg.solve", matrix, right, check_errors=True)[0], shape)
