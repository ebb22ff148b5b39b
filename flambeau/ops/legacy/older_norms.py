"""Norms under names from before `torch.linalg`, which computes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.language.definition import REGISTRY, op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import normalise_dim
from flambeau.ops.reduction import linalg_norms  # noqa: F401 - defines the norms


def _linalg(name: str) -> Any:
    return REGISTRY[f"linalg.{name}"].native


def _frobenius_samples() -> Iterator[Sample]:
    yield sample(T(3, 4), (1,))
    yield sample(T(2, 3, 4), (0, 2), True)
    yield sample(T(3, 4), ())


@op(
    where="torch",
    out="exact",
    host=True,
    samples=_frobenius_samples,
    errors=lambda: [ErrorSample(sample(T(2, 2, 2), (0, 1, 2)), RuntimeError, "at most 2")],
)
def frobenius_norm(self: Tensor, dim: Sequence[int], keepdim: bool = False) -> Any:
    """Square root of the sum of squares over one or two dimensions, or all where `dim` is empty.

    Raises:
        RuntimeError: more than two dimensions, or a dtype of integers.

    Example:
        >>> torch.frobenius_norm(torch.tensor([[3.0, 4.0]]), 1)
        tensor([5.])
    """
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) > 2:
        problem = f"Expected at most 2 dimensions, but got {len(dims)}"
        raise failure(RuntimeError, "frobenius_norm", problem, "linalg.vector_norm takes any")
    return _linalg("vector_norm")(self, 2, dims or None, keepdim)


def _nuclear_samples() -> Iterator[Sample]:
    yield sample(T(3, 4))
    yield sample(T(2, 3, 4), True)
    yield sample(T(2, 3, 4), (0, 2), True)


@op(
    where="torch",
    out="exact",
    host=True,
    samples=_nuclear_samples,
    errors=lambda: [ErrorSample(sample(T(4)), RuntimeError, "at least 2")],
)
def nuclear_norm(self: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Sum of the singular values of the matrices in two dimensions, the last ones by default.

    Args:
        dim: two dimensions; in their place `keepdim` may stand.

    Raises:
        RuntimeError: fewer than two dimensions, or a dtype of integers.

    Example:
        >>> torch.nuclear_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
        tensor(7.)
    """
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return _linalg("matrix_norm")(self, "nuc", (-2, -1) if dim is None else tuple(dim), keepdim)


def _except_samples() -> Iterator[Sample]:
    yield sample(T(3, 4))
    yield sample(T(2, 3, 4), 2, 1)
    yield sample(T(2, 3, 4), 1, 2)
    yield sample(T(3, 4), 1, -1)


@op(
    where="torch",
    host=True,
    samples=_except_samples,
    errors=lambda: [ErrorSample(sample(T(3, 4), 2, 5), IndexError, "out of range")],
)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Any:
    """The p-norm over all dimensions but one, which are kept with size 1; over all for dim = -1.

    Raises:
        IndexError: `dim` is out of range.

    Example:
        >>> torch.norm_except_dim(torch.tensor([[3.0, 4.0], [6.0, 8.0]]))
        tensor([[ 5.],
                [10.]])
    """
    if dim == -1:
        return v.norm(pow)
    v.size(dim)  # raises where there is no such dimension
    others = tuple(d for d in range(v.ndim) if d != dim % v.ndim)
    return _linalg("vector_norm")(v, pow, others, True)


def _weight_norm_samples() -> Iterator[Sample]:
    yield sample(T(3, 4), T(3, 1))
    yield sample(T(2, 3, 4), T(1, 1, 4), 2)


@op(
    name="_weight_norm",
    where="torch",
    samples=_weight_norm_samples,
    errors=lambda: [ErrorSample(sample(T(3, 4), T(3, 1), 5), IndexError, "out of range")],
)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """`v * (g / norm)`, with the 2-norms of v over all dimensions but one.

    Source: Salimans and Kingma, Weight Normalization, 2016.

    Raises:
        IndexError: `dim` is out of range.
    """
    axis = normalise_dim(dim, v.ndim, "_weight_norm")
    others = tuple(d for d in range(v.ndim) if d != axis)
    norm = prims.sqrt(prims.reduce_dims("sum", v * v, others, True))
    return v * (g / norm)
