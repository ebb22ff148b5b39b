"""Linear systems, inverses and what is computed from singular values.

Batches broadcast. A right side is a vector where its shape is that of the matrices without their
last size. Source: Golub & Van Loan, Matrix Computations, 4th ed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.layout import same
from flambeau.language.promotion import CATEGORY
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import broadcast_sizes
from flambeau.ops.cast_rules import lower_result
from flambeau.ops.common import columns, same_sizes, shown, static_size
from flambeau.ops.linear.factorisations import (
    carrying,
    check_kernel,
    check_matrices,
    checked,
    eigh,
    raise_errors,
)
from flambeau.prims import linear_algebra as la

_MATRICES = "f32 f64 c64 c128"
SINGULAR = "The solver failed because the input matrix is singular."
_PAIR = T(2, 2, values=[[4.0, 2.0], [1.0, 3.0]])
_TALL = T(3, 2, values=[[4.0, 2.0], [1.0, 3.0], [0.5, -1.0]])


def _square_samples() -> Iterator[Sample]:
    yield sample(_PAIR)
    yield sample(T(1, 2, 2, values=[[[0.5, 1.0], [-1.0, 2.0]]]))


def _system_samples() -> Iterator[Sample]:
    yield sample(_PAIR, T(2))
    yield sample(_PAIR, T(3, 2, 4))


def _not_square() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3)), RuntimeError, "at least 2 dimensions")
    yield ErrorSample(sample(T(3, 2)), RuntimeError, "square matrices")


def transposed(x: Node) -> Node:
    """The last two dimensions swapped."""
    return prims.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def product(*factors: Node) -> Node:
    """The matrix product of batches, which broadcast."""
    result = factors[0]
    for factor in factors[1:]:
        result = prims.matmul(*batched("matmul", result, factor))
    return result


def batched(name: str, a: Node, b: Node) -> tuple[Node, Node]:
    """Both operands with the batch dimensions that theirs broadcast to."""
    batch = broadcast_sizes(name, a.shape[:-2], b.shape[:-2])
    return (
        prims.broadcast_to(a, (*batch, *a.shape[-2:])),
        prims.broadcast_to(b, (*batch, *b.shape[-2:])),
    )


def identity(like: Node) -> Node:
    """Unit matrices of the shape of square matrices."""
    rows, columns = (prims.iota(like.shape, d) for d in (like.ndim - 2, like.ndim - 1))
    return prims.cast(prims.eq(rows, columns), like.dtype)


def is_vector(a: Node, b: Node) -> bool:
    """Whether the right side b is a vector for each matrix of a."""
    return b.ndim == 1 or (b.ndim == a.ndim - 1 and same_sizes(b.shape, a.shape[:-1]))


def check_same_dtype(name: str, a: Node, b: Node) -> None:
    """Raises RuntimeError where matrices and right sides differ in dtype."""
    if a.dtype != b.dtype:
        problem = f"{name}: Expected A and B to have the same dtype, but found A of type "
        problem += f"{a.dtype} and B of type {b.dtype}"
        raise failure(RuntimeError, name, problem, "convert one of them")


def check_right_sides(name: str, b: Node) -> None:
    """Raises RuntimeError unless right sides are matrices."""
    if b.ndim < 2:
        problem = f"{name}: The input tensor B must have at least 2 dimensions."
        raise failure(RuntimeError, name, problem, f"its shape is {shown(b.shape)}")


def check_pivots(name: str, packed: Node, pivots: Node) -> None:
    """Raises RuntimeError unless there is one int32 pivot for each row of the factors."""
    if pivots.dtype != "i32":
        problem = f"{name}: pivots should be a Tensor of scalar type torch.int32"
        raise failure(RuntimeError, name, problem, "pass what the factorisation returned")
    if not same_sizes(pivots.shape, packed.shape[:-1]):
        problem = f"{name}: Expected LU.shape[:-1] and pivots.shape to be the same, but got "
        problem += f"pivots with shape {shown(pivots.shape)} instead"
        raise failure(RuntimeError, name, problem, f"{shown(packed.shape[:-1])}")


def _check_rows(name: str, a: Node, b: Node, left: bool) -> None:
    rows = b.shape[-2 if left else -1]
    if not same(rows, a.shape[-1]):
        problem = f"{name}: Incompatible shapes of A and B for the equation "
        problem += f"{'AX = B' if left else 'XA = B'} ({shown(a.shape)} and {shown(b.shape)})"
        raise failure(RuntimeError, name, problem, "as many equations as unknowns")


def _with_numbers(name: str, a: Node, b: Node, singular: str = "") -> tuple[Node, Node]:
    """X with A X = B, and of each matrix 0 or its first zero pivot's number.

    `singular`: the call raises LinAlgError with this text where a number is not 0.
    """
    packed, _, order, info = la.lu(a)
    if singular:
        info = checked(name, info, singular)
        order = carrying(order, info)
    matrices, right = batched(name, a, b)
    packed = prims.broadcast_to(packed, matrices.shape)
    places = prims.broadcast_to(order, matrices.shape[:-1])
    rows = prims.broadcast(places, right.shape, (*range(right.ndim - 2), right.ndim - 2))
    half = la.triangular_solve(
        packed, prims.gather(right, rows, right.ndim - 2), False, False, True
    )
    value = la.triangular_solve(packed, half, True)
    return prims.with_derivative(value, matrices, right, rule="solve"), info


def _solve_rule(g: Node, y: Node, a: Node, b: Node) -> tuple[Node, Node]:
    of_b = la.solve(la.adjoint(a), g)
    return -prims.matmul(of_b, la.adjoint(y)), of_b


prims.register_rule("solve", _solve_rule)


def check_system(name: str, a: Node, b: Node, left: bool) -> None:
    """Raises RuntimeError unless right sides fit the matrices, as vectors or matrices."""
    if left and is_vector(a, b):
        b = prims.reshape(b, (*b.shape, 1))
    if b.ndim < 2:
        problem = f"{name}: Vector broadcasting of the left hand side is not supported for "
        problem += "left=False."
        raise failure(RuntimeError, name, problem, "unsqueeze it")
    _check_rows(name, a, b, left)
    broadcast_sizes(name, a.shape[:-2], b.shape[:-2])


def solved(
    name: str, a: Node, b: Node, left: bool = True, check_errors: bool = False
) -> tuple[Node, Node]:
    """X with A X = B, or X A = B; and of each matrix of A 0 or its first zero pivot's number.

    `check_errors`: the call raises LinAlgError where a number is not 0.
    """
    vector = left and is_vector(a, b)
    check_system(name, a, b, left)
    right = prims.reshape(b, (*b.shape, 1)) if vector else b
    if not left:
        value, info = solved(name, transposed(a), transposed(right), True, check_errors)
        return transposed(value), info
    value, info = _with_numbers(name, a, right, SINGULAR if check_errors else "")
    return (prims.reshape(value, value.shape[:-1]) if vector else value), info


@op(where="linalg", out="exact", results="result info", samples=_system_samples, dtypes=_MATRICES)
def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """The solution of A X = B, and for each matrix 0 or the number of its first zero pivot.

    Raises:
        RuntimeError: no square matrices, or shapes that do not fit.
        torch.linalg.LinAlgError: with `check_errors`, a matrix is singular.

    Example:
        >>> torch.linalg.solve_ex(torch.eye(2), torch.ones(2)).result
        tensor([1., 1.])
    """
    check_matrices(A, "linalg.solve", True, later=True)
    check_same_dtype("linalg.solve", A, B)
    check_system("linalg.solve", A, B, left)
    check_kernel(A, "linalg.solve")
    value, info = solved("linalg.solve", A, B, left, check_errors)
    return (columns(value) if left else value), info


@op(
    where="linalg",
    out="exact",
    host=True,
    samples=_system_samples,
    dtypes=_MATRICES,
    autocast="float32",
)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Any:
    """X with A X = B, for square matrices; `left=False`: X A = B.

    Raises:
        torch.linalg.LinAlgError: a matrix is singular.
        RuntimeError: no square matrices, or shapes that do not fit.

    Example:
        >>> torch.linalg.solve(2 * torch.eye(2), torch.ones(2))
        tensor([0.5000, 0.5000])
    """
    result, info = solve_ex(A, B, left=left)
    raise_errors("linalg.solve", info, SINGULAR)
    return result


_NO_INVERSE = (
    "The diagonal element {value} is zero, the inversion could not be completed because the input "
    "matrix is singular."
)


def inverted(a: Node, check_errors: bool = False) -> tuple[Node, Node]:
    """The inverse of square matrices; and of each 0 or its first zero pivot's number.

    `check_errors`: the call raises LinAlgError where a number is not 0.
    """
    value, info = _with_numbers("linalg.inv", a, identity(a), _NO_INVERSE if check_errors else "")
    return prims.with_derivative(value, a, rule="inverse"), info


@op(
    kind="matrix",
    results="inverse info",
    samples=_square_samples,
    errors=_not_square,
    dtypes=_MATRICES,
)
def inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Inverses, and for each matrix 0 or the number of its first zero pivot.

    Raises:
        RuntimeError: no square matrices.
        torch.linalg.LinAlgError: with `check_errors`, a matrix is singular.

    Example:
        >>> torch.linalg.inv_ex(torch.eye(2)).info
        tensor(0, dtype=torch.int32)
    """
    check_matrices(A, "linalg.inv", True, "none")
    inverse, info = inverted(A, check_errors)
    return columns(inverse), info


@op(
    where="linalg",
    out="exact",
    host=True,
    samples=_square_samples,
    dtypes=_MATRICES,
    autocast="float32",
)
def inv(A: Tensor) -> Any:
    """The inverse of square matrices.

    Raises:
        torch.linalg.LinAlgError: a matrix is singular.
        RuntimeError: no square matrices.

    Example:
        >>> torch.linalg.inv(2 * torch.eye(1))
        tensor([[0.5000]])
    """
    result, info = inv_ex(A)
    raise_errors("linalg.inv", info, _NO_INVERSE)
    return result


# No alias of `linalg.inv`: it has other homes, and its argument another name.
@op(out="exact", host=True, samples=_square_samples, dtypes=_MATRICES, autocast="float32")
def inverse(input: Tensor) -> Any:
    """The same as `torch.linalg.inv`.

    Raises:
        torch.linalg.LinAlgError: a matrix is singular.

    Example:
        >>> torch.inverse(2 * torch.eye(1))
        tensor([[0.5000]])
    """
    return inv(input)


# ------------------------------------------------------------------------------------ triangles


def triangular(a: Node, b: Node, upper: bool, left: bool, unit: bool, name: str) -> Node:
    """X with T X = B, or X T = B, of a triangle of A; in A's dtype where no caller checks it."""
    check_matrices(a, name, True, "all", later=True)
    check_right_sides(name, b)
    _check_rows(name, a, b, left)
    broadcast_sizes(name, a.shape[:-2], b.shape[:-2])
    check_kernel(a, name)
    b = prims.cast(b, a.dtype)
    if left:
        return la.triangular_solve(*batched(name, a, b), upper, False, unit)
    value = la.triangular_solve(
        *batched(name, transposed(a), transposed(b)), not upper, False, unit
    )
    return transposed(value)


def _triangle_samples() -> Iterator[Sample]:
    yield sample(_PAIR, T(2, 3), upper=True)
    yield sample(_PAIR, T(1, 3, 2), upper=False, left=False)


@op(where="linalg", out="exact", overlap="partial B", samples=_triangle_samples, dtypes=_MATRICES)
def solve_triangular(
    self: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X with T X = B (`left=False`: X T = B), T being a triangle of A; the rest is not read.

    The result has A's dtype.

    Raises:
        RuntimeError: no square matrices, or shapes that do not fit.

    Example:
        >>> torch.linalg.solve_triangular(torch.eye(1), torch.ones(1, 2), upper=True)
        tensor([[1., 1.]])
    """
    return columns(triangular(self, B, upper, left, unitriangular, "linalg.solve_triangular"))


@op(
    out="exact",
    results="solution cloned_coefficient",
    samples=lambda: [sample(T(2, 3), _PAIR), sample(T(2, 3), _PAIR, False, True)],
    dtypes=_MATRICES,
    autocast="float32",
)
def triangular_solve(
    self: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Tensor, Tensor]:
    """X with T X = B, or T^T X = B, and a copy of A; see `torch.linalg.solve_triangular`.

    Raises:
        RuntimeError: no square matrices, or shapes that do not fit.

    Example:
        >>> torch.triangular_solve(torch.ones(1, 2), torch.eye(1)).solution
        tensor([[1., 1.]])
    """
    late("flambeau.core.warned").warn_once(
        "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangular and will "
        "be removed in a future PyTorch release."
    )
    check_matrices(A, "triangular_solve", True, "all", later=True)
    check_right_sides("triangular_solve", self)
    check_same_dtype("triangular_solve", A, self)
    a, b = batched("triangular_solve", A, self)
    turned, up = (transposed(a), not upper) if transpose else (a, upper)
    solution = triangular(turned, b, up, True, unitriangular, "triangular_solve")
    return columns(solution), columns(a)


def _by_cholesky(b: Node, factor: Node, upper: bool, name: str) -> Node:
    low = la.adjoint(factor) if upper else factor
    check_same_dtype(name, factor, b)
    half = triangular(low, b, False, True, False, name)
    value = triangular(la.adjoint(low), half, True, True, False, name)
    factors, right = batched(name, factor, b)
    return prims.with_derivative(value, factors, right, rule="by_cholesky", upper=upper)


def _by_cholesky_rule(g: Node, y: Node, factor: Node, b: Node) -> tuple[Node, Node]:
    """Both triangles of the factor get a gradient, though one is read: as in PyTorch."""
    upper = y.attribute("upper")
    of_b = _by_cholesky(g, factor, upper, "cholesky_solve")
    product = prims.matmul(of_b, la.adjoint(y))
    both = product + la.adjoint(product)
    return -(prims.matmul(factor, both) if upper else prims.matmul(both, factor)), of_b


prims.register_rule("by_cholesky", _by_cholesky_rule)


# No gradients but of size 1: differences see that one triangle is not read.
_LOW = T(2, 2, values=[[2.0, 0.0], [1.0, 1.5]], grad=False)
_ONE = T(1, 1, values=[[2.0]])


@op(
    out="cast contiguous",
    samples=lambda: [sample(T(2, 3), _LOW), sample(T(1, 3), _ONE, True)],
    dtypes=_MATRICES,
    autocast="float32",
)
def cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """X with A X = B, given the Cholesky factor of A.

    Raises:
        RuntimeError: no square matrices, or shapes that do not fit.

    Example:
        >>> torch.cholesky_solve(torch.ones(1, 1), torch.tensor([[2.0]]))
        tensor([[0.2500]])
    """
    return columns(_by_cholesky(self, input2, upper, "cholesky_solve"))


@op(
    out="cast empty",
    samples=lambda: [sample(_LOW), sample(_ONE, True)],
    dtypes=_MATRICES,
    autocast="float32",
)
def cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a matrix, given its Cholesky factor.

    Raises:
        RuntimeError: no square matrices.
        torch.linalg.LinAlgError: an element of a factor's diagonal is zero.

    Example:
        >>> torch.cholesky_inverse(torch.tensor([[2.0]]))
        tensor([[0.2500]])
    """
    check_matrices(self, "cholesky_inverse", True, "all")
    pivots = la.diagonal(self)
    numbers = prims.iota(pivots.shape, pivots.ndim - 1, "i64") + 1
    zero = prims.eq(pivots, prims.zeros_like(pivots))
    info = prims.where(zero, numbers, prims.zeros_like(numbers))
    info = checked("cholesky_inverse", info, _NO_INVERSE)
    unit = identity(self)
    unit = unit + prims.cast(prims.broadcast(info, unit.shape, (*range(info.ndim),)), unit.dtype)
    return columns(_by_cholesky(unit, self, upper, "cholesky_inverse"))


def _by_lu(packed: Node, pivots: Node, b: Node, left: bool, adjointed: bool, name: str) -> Node:
    if not left:
        turned = _by_lu(packed, pivots, la.adjoint(b), True, not adjointed, name)
        return la.adjoint(turned)
    batch = broadcast_sizes(name, packed.shape[:-2], b.shape[:-2])
    a = prims.broadcast_to(packed, (*batch, *packed.shape[-2:]))
    right = prims.broadcast_to(b, (*batch, *b.shape[-2:]))
    places = prims.broadcast_to(pivots, (*batch, pivots.shape[-1]))
    order = la.pivot_order(places, packed.shape[-2])
    rows = prims.broadcast(order, right.shape, (*range(right.ndim - 2), right.ndim - 2))
    if not adjointed:
        moved = prims.gather(right, rows, right.ndim - 2)
        half = la.triangular_solve(a, moved, False, False, True)
        return la.triangular_solve(a, half, True, False, False)
    half = la.triangular_solve(a, right, True, True, False)
    solved = la.triangular_solve(a, half, False, True, True)
    return prims.scatter(prims.zeros_like(solved), rows, solved, solved.ndim - 2, "set")


def _check_factors(name: str, packed: Node, pivots: Node, b: Node, left: bool) -> None:
    check_matrices(packed, name, True, later=True)
    check_right_sides(name, b)
    check_same_dtype(name, packed, b)
    check_pivots(name, packed, pivots)
    _check_rows(name, packed, b, left)
    broadcast_sizes(name, packed.shape[:-2], b.shape[:-2])
    check_kernel(packed, name)


def _factored_samples() -> Iterator[Sample]:
    pivots = T(2, dtype="i32", values=[2, 2], grad=False)
    yield sample(_PAIR, pivots, T(2, 3))
    yield sample(_PAIR, pivots, T(2, 3), adjoint=True)


@op(where="linalg", out="exact", samples=_factored_samples, dtypes=_MATRICES)
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with A X = B, given what `lu_factor` returned for A; adjoint: A^H X = B.

    Raises:
        RuntimeError: no square matrices, or shapes that do not fit.

    Example:
        >>> torch.linalg.lu_solve(*torch.linalg.lu_factor(torch.eye(1)), torch.ones(1, 2))
        tensor([[1., 1.]])
    """
    _check_factors("linalg.lu_solve", LU, pivots, B, left)
    value = _by_lu(LU, pivots, B, left, adjoint, "linalg.lu_solve")
    return columns(value) if left else value


@op(
    name="lu_solve",
    out="exact",
    samples=lambda: [sample(T(2, 3), _PAIR, T(2, dtype="i32", values=[2, 2], grad=False))],
    dtypes=_MATRICES,
    autocast="float32",
)
def old_lu_solve(self: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X with A X = B, given A's packed factors; see `torch.linalg.lu_solve`.

    Raises:
        RuntimeError: no square matrices, or shapes that do not fit.

    Example:
        >>> torch.lu_solve(torch.ones(1, 2), *torch.linalg.lu_factor(torch.eye(1)))
        tensor([[1., 1.]])
    """
    _check_factors("lu_solve", LU_data, LU_pivots, self, True)
    return columns(_by_lu(LU_data, LU_pivots, self, True, False, "lu_solve"))


# ------------------------------------------------------------------------------------ rank


def _spectrum(a: Node, hermitian: bool) -> Node:
    return prims.abs(la.eigvalsh(a)) if hermitian else la.svdvals(a)


def precision(x: Node) -> float:
    """The distance from 1 to the next number of x's real dtype."""
    return 2.0**-23 if x.dtype in ("f32", "c64") else 2.0**-52


def _limit(a: Node, sizes: Node, atol: Any, rtol: Any) -> Node:
    """Returns the lower limit of singular values, for each matrix, with a last size of 1."""
    default = precision(sizes) * max(static_size(n) for n in a.shape[-2:])
    absolute = _tolerance(0.0 if atol is None else atol, sizes)
    if rtol is None:
        relative = _tolerance(default, sizes)
        if isinstance(atol, Node):
            stated = prims.gt(absolute, prims.zeros_like(absolute))
            relative = prims.where(*_common(stated, prims.zeros_like(relative), relative))
        elif atol is not None and atol > 0:
            relative = prims.zeros_like(relative)
    else:
        relative = _tolerance(rtol, sizes)
    greatest = prims.reduce_dims("max", sizes, (sizes.ndim - 1,), True)
    return prims.maximum(*_common(absolute, relative * greatest))


def _common(*values: Node) -> list[Node]:
    shape = broadcast_sizes("tolerance", *(v.shape for v in values))
    return [prims.broadcast_to(v, shape) for v in values]


def _tolerance(value: Any, sizes: Node) -> Node:
    if isinstance(value, Node):
        if CATEGORY[value.dtype] == 3:
            problem = "tolerance tensor of complex type is not supported"
            raise failure(RuntimeError, "linalg", problem, "atol and rtol are real")
        return prims.cast(prims.reshape(value, (*value.shape, 1)), sizes.dtype)
    return prims.full(value, (1,) * sizes.ndim, sizes.dtype)


def _rank(a: Node, atol: Any, rtol: Any, hermitian: bool, name: str) -> Node:
    check_matrices(a, name, hermitian and not any(same(n, 0) for n in a.shape), "none")
    if any(same(n, 0) for n in a.shape[-2:]):
        return prims.full(0, a.shape[:-2], "i64")
    sizes = _spectrum(a, hermitian)
    counted = prims.gt(*_common(sizes, _limit(a, sizes, atol, rtol)))
    return prims.reduce_dims("sum", prims.cast(counted, "i64"), (counted.ndim - 1,), False)


@op(
    kind="matrix",
    out=True,
    differentiable=False,
    samples=lambda: [sample(_PAIR, atol=T(low=0.1, high=0.2))],
    errors=lambda: [ErrorSample(sample(T(3)), RuntimeError, "at least 2 dimensions")],
    dtypes=_MATRICES,
)
def matrix_rank(
    input: Tensor, *, atol: Tensor | None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """How many singular values exceed the tolerance max(atol, rtol * the greatest).

    Without tolerances rtol is the dtype's precision times the greater size.

    Raises:
        RuntimeError: no matrices.

    Example:
        >>> torch.linalg.matrix_rank(torch.ones(3, 3))
        tensor(1)
    """
    return _rank(input, atol, rtol, hermitian, "linalg.matrix_rank")


@matrix_rank.overload()
def _rank_number(
    self: Tensor, *, atol: float | None = None, rtol: float | None = None, hermitian: bool = False
) -> Tensor:
    return _rank(self, atol, rtol, hermitian, "linalg.matrix_rank")


@matrix_rank.overload()
def _rank_tol(self: Tensor, tol: float, hermitian: bool = False) -> Tensor:
    return _rank(self, tol, 0.0, hermitian, "linalg.matrix_rank")


@matrix_rank.overload()
def _rank_tol_tensor(input: Tensor, tol: Tensor, hermitian: bool = False) -> Tensor:
    return _rank(input, tol, 0.0, hermitian, "linalg.matrix_rank")


def pseudo_inverse(a: Node, atol: Any, rtol: Any, hermitian: bool) -> Node:
    """V S^+ U^H: singular values below the tolerance count as 0."""
    filled = not any(same(n, 0) for n in a.shape)
    check_matrices(a, "linalg.pinv", hermitian and filled, "none")
    if any(same(n, 0) for n in a.shape[-2:]):
        empty = prims.full(0, (*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
        return prims.with_derivative(empty, a, rule="flat")
    if hermitian:
        values, u = eigh(a)
        v, sizes = u, prims.abs(values)
    else:
        u, values, vh = la.svd(a)
        v, sizes = la.adjoint(vh), values
    used = prims.gt(*_common(sizes, _limit(a, sizes, atol, rtol)))
    one = prims.full_like(1, values)
    weights = prims.where(used, one / prims.where(used, values, one), prims.zeros_like(values))
    scale = prims.cast(prims.reshape(weights, (*weights.shape[:-1], 1, weights.shape[-1])), a.dtype)
    value = prims.matmul(v * prims.broadcast_to(scale, v.shape), la.adjoint(u))
    return prims.with_derivative(value, a, rule="pseudo_inverse")


def pseudo_inverse_rule(g: Node, y: Node, a: Node) -> tuple[Node]:
    """Source: Golub & Pereyra, SIAM Journal on Numerical Analysis 10, 1973; of constant rank."""
    of_rows = product(la.adjoint(y), y, la.adjoint(g) - product(la.adjoint(g), y, a))
    columns_only = la.adjoint(g) - product(a, y, la.adjoint(g))
    of_columns = product(columns_only, y, la.adjoint(y))
    return (of_rows + of_columns - product(la.adjoint(y), g, la.adjoint(y)),)


prims.register_rule("pseudo_inverse", pseudo_inverse_rule)


@op(
    where="linalg",
    out=True,
    autocast=lower_result,
    samples=lambda: [sample(_PAIR, atol=T(low=0.01, high=0.02, grad=False))],
    dtypes=_MATRICES,
)
def pinv(
    self: Tensor, *, atol: Tensor | None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """The pseudo-inverse of matrices, by their singular values.

    Singular values of at most max(atol, rtol * the greatest) count as 0.

    Raises:
        RuntimeError: no matrices.

    Example:
        >>> torch.linalg.pinv(torch.tensor([[2.0], [0.0]]))
        tensor([[0.5000, 0.0000]])
    """
    return pseudo_inverse(self, atol, rtol, hermitian)


@pinv.overload()
def _pinv_number(
    self: Tensor, *, atol: float | None = None, rtol: float | None = None, hermitian: bool = False
) -> Tensor:
    return pseudo_inverse(self, atol, rtol, hermitian)


@pinv.overload()
def _pinv_rcond(self: Tensor, rcond: float, hermitian: bool = False) -> Tensor:
    return pseudo_inverse(self, 0.0, rcond, hermitian)


@pinv.overload()
def _pinv_rcond_tensor(self: Tensor, rcond: Tensor, hermitian: bool = False) -> Tensor:
    return pseudo_inverse(self, 0.0, rcond, hermitian)


@op(samples=lambda: [sample(_PAIR)], dtypes=_MATRICES, autocast="float32")
def pinverse(self: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse; see `torch.linalg.pinv`.

    Raises:
        RuntimeError: no matrices.

    Example:
        >>> torch.pinverse(torch.tensor([[2.0]]))
        tensor([[0.5000]])
    """
    return pseudo_inverse(self, 0.0, rcond, False)
