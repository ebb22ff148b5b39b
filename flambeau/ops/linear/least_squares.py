"""Least squares problems: of all solutions the shortest, by LAPACK's drivers."""

from __future__ import annotations

from functools import cache
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.layout import same
from flambeau.language.samples import T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import columns, shown, static_size
from flambeau.ops.linear.factorisations import check_matrices, values_of
from flambeau.ops.linear.solutions import (
    batched,
    check_same_dtype,
    is_vector,
    precision,
    product,
    pseudo_inverse,
    pseudo_inverse_rule,
)
from flambeau.prims import linear_algebra as la

_MATRICES = "f32 f64 c64 c128"
_TALL = T(3, 2, values=[[4.0, 2.0], [1.0, 3.0], [0.5, -1.0]])


def _least_squares_rule(g: Node, y: Node, a: Node, b: Node) -> tuple[Node, Node]:
    """Those of A^+ B, whose rank is constant."""
    inverse = pseudo_inverse(a, None, None, False)
    of_inverse = product(g, la.adjoint(b))
    return pseudo_inverse_rule(of_inverse, inverse, a)[0], product(la.adjoint(inverse), g)


prims.register_rule("least_squares", _least_squares_rule)


@op(
    name="_least_squares",
    where="private",
    samples=lambda: [sample(_TALL, T(3, 2), None, "gels")],
    dtypes=_MATRICES,
)
def solve_least_squares(
    self: Tensor, b: Tensor, rcond: float | None, driver: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X with the least |A X - B|, its square where it is told, A's rank and singular values."""
    check_matrices(self, "torch.linalg.lstsq", missing="none")
    check_same_dtype("linalg.lstsq", self, b)
    vector = b.ndim < self.ndim
    _check_right_sides(self, b)
    a, right = batched("linalg.lstsq", self, prims.reshape(b, (*b.shape, 1)) if vector else b)
    limit = precision(a) * max(static_size(n) for n in a.shape[-2:]) if rcond is None else rcond
    solution, rank, values = la.least_squares(a, right, driver, limit)
    value = prims.with_derivative(solution, a, right, rule="least_squares")
    told = driver in ("gels", "gelsd", "gelss") and less(a.shape[-1], a.shape[-2])
    squares = (
        _residuals(a, value, right)
        if told
        else prims.with_derivative(prims.full(0, (0,), values.dtype), self, b, rule="flat")
    )
    return (
        columns(_as_tall(value, a, vector)),
        squares,
        prims.full(0, (0,), "i64") if driver == "gels" else _of_matrices(rank, self),
        _of_matrices(values, self)
        if driver in ("gelsd", "gelss")
        else prims.full(0, (0,), values.dtype),
    )


def _check_right_sides(a: Node, b: Node) -> None:
    """Vectors have the batch of the matrices; matrices have as many dimensions, and broadcast."""
    vector = b.ndim == a.ndim - 1 and is_vector(a, b)
    if not b.ndim or (b.ndim != a.ndim and not vector):
        raise RuntimeError(
            f"[lstsq] torch.linalg.lstsq: right sides {shown(b.shape)} are neither vectors nor "
            f"matrices for {shown(a.shape)}\nhint: input.dim() == other.dim(), or other.shape == "
            "input.shape[:-1]"
        )
    if not same(a.shape[-2], b.shape[-1 if vector else -2]):
        problem = "torch.linalg.lstsq: input.size(-2) should match other.size(-2), but got "
        problem += f"{shown(a.shape)} and {shown(b.shape)}"
        raise failure(RuntimeError, "lstsq", problem, "one right side per row")


def _of_matrices(value: Node, a: Node) -> Node:
    """One value for each matrix of `a`, whose batch was broadcast to that of the right sides."""
    batch = a.ndim - 2
    if any(same(n, 0) for n in value.shape[:batch]):
        return prims.full(0, (*a.shape[:-2], *value.shape[batch:]), value.dtype)
    for d, n in enumerate(a.shape[:-2]):
        value = value if same(n, value.shape[d]) else prims.slice(value, d, 0, n)
    return value


def _as_tall(value: Node, a: Node, vector: bool) -> Node:
    """A solution with as many rows as the right side, of which `lstsq` returns a view.

    PyTorch's has this memory order, as LAPACK overwrites right sides with solutions.
    """
    if less(a.shape[-1], a.shape[-2]):
        shape = (*value.shape[:-2], a.shape[-2] - a.shape[-1], value.shape[-1])
        value = prims.cat([value, prims.full(0, shape, value.dtype)], value.ndim - 2)
    return prims.reshape(value, value.shape[:-1]) if vector else value


def _residuals(a: Node, value: Node, right: Node) -> Node:
    off = prims.abs(product(a, value) - right)
    return prims.reduce_dims("sum", off * off, (off.ndim - 2,), False)


@cache
def _least_squares_result() -> Any:
    fields = ("solution", "residuals", "rank", "singular_values")
    return tensors.struct_sequence("linalg_lstsq", fields)


@op(
    where="linalg",
    out="cast empty",
    results="solution residuals rank singular_values",
    host=True,
    samples=lambda: [sample(_TALL, T(3, 2))],
    dtypes=_MATRICES,
    autocast="float32",
)
def lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X with the least |A X - B|, of several the shortest; "gels" is for matrices of full rank.

    Returns the residuals' squared norms where A has more rows than columns and all matrices are of
    full rank (not for the default driver "gelsy"), A's rank (not for "gels") and its singular
    values (for "gelsd" and "gelss"); else empty tensors. Gradients flow through the solution and
    the residuals.

    Args:
        self: `(*, m, n)`.
        b: `(*, m)`, with the batch of `self`, or `(*, m, k)`, whose batch broadcasts with it.
        rcond: singular values up to `rcond` times the greatest count as zero.
        driver: "gels", "gelsy" (the default), "gelsd" or "gelss".

    Raises:
        RuntimeError: no matrices, shapes that do not fit, or an unknown driver.

    Example:
        >>> torch.linalg.lstsq(torch.ones(2, 1), torch.tensor([[1.0], [3.0]])).solution.round()
        tensor([[2.]])
    """
    chosen = "gelsy" if driver is None else driver
    if chosen not in ("gels", "gelsy", "gelsd", "gelss"):
        problem = "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, "
        problem += "gelss)"
        raise failure(RuntimeError, "lstsq", problem, f"not {chosen!r}")
    solution, residuals, rank, values = solve_least_squares(self, b, rcond, chosen)
    size = self.shape[-1]
    if self.shape[-2] > size:
        solution = solution.narrow(-1 if solution.ndim < self.ndim else -2, 0, size)
        ranks = values_of(rank) if chosen in ("gelsd", "gelss") else None
        if ranks is not None and not bool((ranks == size).all()):
            residuals = residuals.new_empty(0)
    return _least_squares_result()((solution, residuals, rank, values.detach()))
