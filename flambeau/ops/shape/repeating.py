"""Repeating: `repeat`, `tile`, `repeat_interleave`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core.devices import has_data
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, prod
from flambeau.language.definition import op
from flambeau.language.no_data import no_data
from flambeau.language.samples import Sample, T, sample
from flambeau.language.schema import SymInt, Tensor
from flambeau.ops.common import (
    is_one,
    normalise_dim,
    shown,
)

Samples = Iterator[Sample]


def _repeat_samples() -> Samples:
    yield sample(T(2, 3), (2, 2))
    yield sample(T(3), (4, 2))
    yield sample(T(2, 3), (0, 1))
    yield sample(T(), (3,))


def _repeated(self: Node, repeats: Sequence[Size]) -> Node:
    shape = (1,) * (len(repeats) - self.ndim) + self.shape
    x = prims.reshape(self, shape)
    copies: list[Size] = []
    places: list[int] = []
    result: list[Size] = []
    for n, extent in zip(repeats, shape, strict=True):
        if not is_one(n):
            copies.append(n)
        places.append(len(copies))
        copies.append(extent)
        result.append(n * extent)
    return prims.reshape(prims.broadcast(x, copies, places), result)


@op(where="method", out=True, samples=_repeat_samples)
def repeat(self: Tensor, repeats: Sequence[SymInt]) -> Tensor:
    """Copies of the tensor, `repeats[d]` along dimension d; new dimensions come first.

    Raises:
        RuntimeError: fewer repeats than dimensions, or a negative one.

    Example:
        >>> torch.tensor([1, 2]).repeat(2)
        tensor([1, 2, 1, 2])
    """
    if len(repeats) < self.ndim:
        problem = "Number of dimensions of repeat dims can not be smaller than number of "
        problem += "dimensions of tensor"
        raise failure(RuntimeError, "repeat", problem, "give one number per dimension")
    if any(less(n, 0) for n in repeats):
        problem = f"Trying to create tensor with negative dimension: {shown(repeats)}"
        raise failure(RuntimeError, "repeat", problem, "repeats are counts")
    return _repeated(self, repeats)


@op(samples=lambda: [sample(T(2, 3), (2,)), sample(T(3), (2, 2))], reference="numpy.tile")
def tile(self: Tensor, dims: Sequence[SymInt]) -> Tensor:
    """Copies of the tensor, `dims` aligned to its last dimensions.

    Example:
        >>> torch.tensor([1, 2]).tile((2, 1)).shape
        torch.Size([2, 2])
    """
    return _repeated(self, (1,) * (self.ndim - len(dims)) + tuple(dims))


def _interleave_samples() -> Samples:
    yield sample(T(2, 3), 2)
    yield sample(T(2, 3), 3, 1)
    yield sample(T(2, 3), 0, 0)


@op(samples=_interleave_samples, varying=True)
def repeat_interleave(
    self: Tensor, repeats: SymInt, dim: int | None = None, *, output_size: SymInt | None = None
) -> Tensor:
    """Each element of a dimension repeated in place; without `dim`, of the flattened tensor.

    Args:
        repeats: one number for all elements, or a tensor with one number each.

    Raises:
        RuntimeError: negative repeats.

    Example:
        >>> torch.tensor([1, 2]).repeat_interleave(2)
        tensor([1, 1, 2, 2])
    """
    if less(repeats, 0):
        raise RuntimeError("[repeat_interleave] Repeats must be non-negative\nhint: use counts")
    x = prims.reshape(self, (prod(self.shape),)) if dim is None or self.ndim == 0 else self
    d = 0 if dim is None else normalise_dim(dim, x.ndim, "repeat_interleave")
    wide = (*x.shape[: d + 1], repeats, *x.shape[d + 1 :])
    places = [i if i <= d else i + 1 for i in range(x.ndim)]
    result = (*x.shape[:d], x.shape[d] * repeats, *x.shape[d + 1 :])
    return prims.reshape(prims.broadcast(x, wide, places), result)


@repeat_interleave.overload(
    "repeat_interleave.tensor(Tensor self, Tensor repeats, int? dim=None, *, "
    "int? output_size=None) -> Tensor",
    host=True,
)
def _interleave_tensor(
    self: Any, repeats: Any, dim: int | None = None, output_size: int | None = None
) -> Any:
    x = self.reshape(-1) if dim is None else self
    d = 0 if dim is None else normalise_dim(dim, x.ndim, "repeat_interleave")
    if not has_data(repeats) and output_size is not None:
        return x.new_empty((*x.shape[:d], output_size, *x.shape[d + 1 :]))
    places = _of_size(_repeat_places(repeats, x.shape[d]), output_size)
    return x.index_select(d, places)


@repeat_interleave.overload(
    "repeat_interleave.counts(Tensor repeats, *, int? output_size=None) -> Tensor", host=True
)
def _interleave_counts(repeats: Any, output_size: int | None = None) -> Any:
    return _of_size(_repeat_places(repeats, repeats.numel()), output_size)


def _of_size(places: Any, output_size: int | None) -> Any:
    if output_size is None or places.shape[0] == output_size:
        return places
    problem = f"the repeats make {places.shape[0]} elements, output_size is {output_size}"
    raise failure(
        RuntimeError, "repeat_interleave", problem, "output_size = repeats.sum(), or leave it out"
    )


def _repeat_places(repeats: Any, extent: int) -> Any:
    """Number i, `repeats[i]` times, for each i."""
    if repeats.is_floating_point():
        problem = f"not implemented for {repeats.dtype}"
        raise failure(NotImplementedError, "repeat_interleave", problem, "repeats.long()")
    if repeats.ndim > 1:
        problem = "repeats must be 0-dim or 1-dim tensor of integers"
        raise failure(RuntimeError, "repeat_interleave", problem, "convert with long() and ravel()")
    if not has_data(repeats):
        raise no_data(
            "[repeat_interleave] cannot repeat_interleave a meta tensor without output_size\n"
            "hint: pass output_size",
            "repeat_interleave.Tensor",
        )
    counts = repeats.tolist()
    counts = [counts] * extent if isinstance(counts, int) else counts
    counts = counts * extent if len(counts) == 1 and extent != 1 else counts
    if len(counts) != extent:
        problem = "repeats must have the same size as input along dim, but got repeats.size(0) = "
        problem += f"{len(counts)} and input.size(dim) = {extent}"
        raise failure(RuntimeError, "repeat_interleave", problem, "one count per element")
    if any(n < 0 for n in counts):
        raise RuntimeError("[repeat_interleave] repeats can not be negative\nhint: use counts")
    ends = repeats.reshape(-1).expand(extent).cumsum(0)
    from flambeau.ops.creation.creation import arange
    from flambeau.ops.indexing.search import searchsorted

    return searchsorted(ends, arange(sum(counts)), right=True)
