"""Copies with one part replaced: select_scatter, slice_scatter, diagonal_scatter."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau import prims
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language.definition import op
from flambeau.language.samples import Sample, T, sample
from flambeau.language.schema import SymInt, Tensor
from flambeau.ops.common import is_one, normalise_dim
from flambeau.ops.shape.convert import broadcast_source

Samples = Iterator[Sample]


@op(
    layout="first",
    samples=lambda: [sample(T(3, 4), T(3), 1, 2), sample(T(3, 4), T(4), 0, -1)],
    varying=True,
)
def select_scatter(self: Tensor, src: Tensor, dim: int, index: SymInt) -> Tensor:
    """A copy with `select(dim, index)` replaced by src.

    Raises:
        IndexError: outside of the dimension.

    Example:
        >>> torch.zeros(2, 2).select_scatter(torch.ones(2), 0, 1)
        tensor([[0., 0.],
                [1., 1.]])
    """
    from flambeau.ops.indexing.slices import position

    d = normalise_dim(dim, self.ndim, "select_scatter")
    source = prims.unsqueeze(src, d)
    return _replaced(self, prims.cast(source, self.dtype), d, position(self, d, index), 1, 1)


@op(
    layout="first",
    out="exact",
    overlap="copy",
    samples=lambda: [sample(T(6, 2), T(2, 2), 0, 1, 5, 2), sample(T(6, 2), T(6, 1), 1, 1)],
    varying=True,
)
def slice_scatter(
    self: Tensor,
    src: Tensor,
    dim: int = 0,
    start: SymInt | None = None,
    end: SymInt | None = None,
    step: SymInt = 1,
) -> Tensor:
    """A copy with the slice `start:end:step` of a dimension replaced by src.

    Example:
        >>> torch.zeros(3).slice_scatter(torch.ones(2), 0, 1)
        tensor([0., 1., 1.])
    """
    from flambeau.ops.indexing.slices import slice_of

    d = normalise_dim(dim, self.ndim, "slice_scatter")
    part = slice_of(self, d, start, end, step)
    first = part.attribute("start") if part.op == "slice" else 0
    source = prims.broadcast_to(prims.cast(src, self.dtype), part.shape)
    return _replaced(self, source, d, first, part.shape[d], step)


def _replaced(x: Node, source: Node, d: int, start: Size, length: Size, step: Size) -> Node:
    """`x` with every `step`-th element of a dimension from `start` on replaced."""
    places = prims.iota((length,), 0)
    if not is_one(step):
        places = places * prims.constant(step, places)
    places = places + prims.constant(start, places)
    return prims.put_nd(x, (places,), source, (d,), "set")


@op(
    layout="first",
    samples=lambda: [sample(T(3, 4), T(3)), sample(T(3, 4), T(3), 1)],
    varying=True,
)
def diagonal_scatter(
    self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy with a diagonal replaced by src.

    Example:
        >>> torch.zeros(2, 2).diagonal_scatter(torch.ones(2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    from flambeau.ops.indexing.slices import diagonal

    a = normalise_dim(dim1, self.ndim, "diagonal_scatter")
    b = normalise_dim(dim2, self.ndim, "diagonal_scatter")
    others = [d for d in range(self.ndim) if d not in (a, b)]
    order = [*others, a, b]
    x = prims.permute(self, order)
    part = diagonal(self, offset, dim1, dim2)
    source = broadcast_source(src, part, "diagonal_scatter")
    places = prims.iota((part.shape[-1],), 0)
    rows = places + prims.constant(max(-offset, 0), places)
    columns = places + prims.constant(max(offset, 0), places)
    written = prims.put_nd(x, (rows, columns), source, (len(others), len(others) + 1), "set")
    return prims.permute(written, sorted(range(self.ndim), key=order.__getitem__))
