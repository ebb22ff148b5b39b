"""Norms under names from before `torch.linalg`, which computes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.language.definition import op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import normalise_dim
from flambeau.ops.reduction.linalg_norms import matrix_norm, norm, vector_norm


def _frobenius_samples() -> Iterator[Sample]:
    yield sample(T(3, 4), (1,))
    yield sample(T(2, 3, 4), (0, 2), True)
    yield sample(T(3, 4), ())


@op(
    where="torch",
    out="exact",
    composite=True,
    samples=_frobenius_samples,
    errors=lambda: [ErrorSample(sample(T(2, 2, 2), (0, 1, 2)), RuntimeError, "at most 2")],
)
def frobenius_norm(self: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """Square root of the sum of squares over one or two dimensions, or all where `dim` is empty.

    Raises:
        RuntimeError: more than two dimensions, or a dtype of integers.

    Example:
        >>> torch.frobenius_norm(torch.tensor([[3.0, 4.0]]), 1)
        tensor([5.])
    """
    if len(dim) > 2:
        problem = f"Expected at most 2 dimensions, but got {len(dim)}"
        raise failure(RuntimeError, "frobenius_norm", problem, "linalg.vector_norm takes any")
    return vector_norm(self, 2, dim or None, keepdim)


def _nuclear_samples() -> Iterator[Sample]:
    yield sample(T(3, 4))
    yield sample(T(2, 3, 4), True)


@op(
    where="torch",
    out="exact",
    composite=True,
    samples=_nuclear_samples,
    errors=lambda: [ErrorSample(sample(T(4)), RuntimeError, "at least 2")],
)
def nuclear_norm(self: Tensor, keepdim: bool = False) -> Tensor:
    """Sum of the singular values of the matrices in the last two dimensions, or in two named ones.

    Raises:
        RuntimeError: fewer than two dimensions, or a dtype of integers.

    Example:
        >>> torch.nuclear_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
        tensor(7.)
    """
    return matrix_norm(self, "nuc", (-2, -1), keepdim)


@nuclear_norm.overload(samples=lambda: [sample(T(2, 3, 4), (0, 2), True)], errors=None)
def _nuclear_norm_dim(self: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    return matrix_norm(self, "nuc", dim, keepdim)


def _except_samples() -> Iterator[Sample]:
    yield sample(T(3, 4))
    yield sample(T(2, 3, 4), 2, 1)
    yield sample(T(2, 3, 4), 1, 2)
    yield sample(T(3, 4), 1, -1)


@op(
    where="torch",
    composite=True,
    samples=_except_samples,
    errors=lambda: [ErrorSample(sample(T(3, 4), 2, 5), IndexError, "out of range")],
)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The p-norm over all dimensions but one, which are kept with size 1; over all for dim = -1.

    Raises:
        IndexError: `dim` is out of range.

    Example:
        >>> torch.norm_except_dim(torch.tensor([[3.0, 4.0], [6.0, 8.0]]))
        tensor([[ 5.],
                [10.]])
    """
    if dim == -1:
        return norm(v, pow)
    axis = normalise_dim(dim, v.ndim, "norm_except_dim")
    others = tuple(d for d in range(v.ndim) if d != axis)
    return vector_norm(v, pow, others, True)


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
