"""Steps that PyTorch's own programs are made of, and that some programs call: backward steps of
dropout and pooling, softmax of rows that are masked whole, reads and writes at masked places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.environment import same_shape
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import prod
from flambeau.language.definition import op
from flambeau.language.samples import Sample, T, sample
from flambeau.language.schema import DType, Scalar, Tensor
from flambeau.ops.broadcasting import is_float
from flambeau.ops.common import dtype_or, normalise_dim, shown
from flambeau.ops.creation.creation import filled
from flambeau.ops.indexing.indexing import index, index_put
from flambeau.ops.neural.unpooling import no_place
from flambeau.ops.pointwise.activation import softmax
from flambeau.ops.pointwise.choice import check_mask

_INNER = "ops.aten"

# ------------------------------------------------------------------------------------ softmax


@op(
    where=_INNER,
    promote="keep",
    samples=lambda: [
        sample(T(3, 4), 1),
        sample(T(2, 2, dtype="f32", values=[[-math.inf, -math.inf], [0.0, -math.inf]]), -1),
    ],
)
def _safe_softmax(self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """`softmax`, but zeros (instead of NaN) where a whole row is -inf: nothing is left to see.

    Example:
        >>> torch.ops.aten._safe_softmax(torch.full((2,), -torch.inf), 0)
        tensor([0., 0.])
    """
    x = prims.cast(self, dtype_or(dtype, self.dtype))
    x = x if is_float(x) else prims.cast(x, dtype_or(None))
    axis = normalise_dim(dim, x.ndim, "_safe_softmax")
    if x.ndim == 0:
        return prims.full_like(1, x)
    masked = prims.all(prims.eq(x, prims.full_like(-math.inf, x)), axis)
    hidden = prims.spread(masked, x, axis)
    seen = softmax(prims.where(hidden, prims.zeros_like(x), x), axis)
    return prims.where(hidden, prims.zeros_like(seen), seen)


# ------------------------------------------------------------------------------------ backward


@op(
    kind="pointwise",
    where=_INNER,
    out="exact",
    overlap="copy",
    participants="grad_output scale",
    runtime="scale",
    samples=lambda: [sample(T(3, 4), T(3, 4, dtype="bool", low=0, high=2, grad=False), 2.0)],
)
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: Scalar) -> Tensor:
    """The gradient of dropout's operand: that of its result where it was kept, times scale.

    Example:
        >>> torch.ops.aten.native_dropout_backward(torch.ones(1), torch.tensor([True]), 2.0)
        tensor([2.])
    """
    grad, selected = prims.broadcast_all(grad_output, prims.cast(mask, grad_output.dtype))
    return grad * selected * prims.constant(scale, grad)


@op(kind="reduction", where=_INNER, layout="images", samples=lambda: [sample(
                T(2, 1, 1, 2), T(2, 1, 3, 4), (2,), (2,), (0,), (1,), False,
                T(2, 1, 1, 2, dtype="i64", values=[[[[5, 2]]], [[[0, 7]]]], grad=False),
            )])  # fmt: skip
def max_pool2d_with_indices_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """The gradient of max pooling's operand: each result's is added where its maximum was found.

    `indices` count within a plane (H, W), as `max_pool2d(..., return_indices=True)` gives them.

    Example:
        >>> x = torch.tensor([[[[1.0, 2.0]]]])
        >>> y, at = torch.nn.functional.max_pool2d(x, (1, 2), return_indices=True)
        >>> pool = (1, 2), (1, 2), (0, 0), (1, 1)
        >>> torch.ops.aten.max_pool2d_with_indices_backward(y, x, *pool, False, at)
        tensor([[[[0., 2.]]]])
    """
    lead, plane = self.shape[:-2], self.shape[-2:]
    rows = (prod(lead), prod(grad_output.shape[-2:]))
    # Zeros that depend on the operand, whose gradient is zero rather than missing.
    x = prims.reshape(self, (rows[0], prod(plane)))
    base = prims.where(prims.full(False, x.shape, "bool"), x, prims.zeros_like(x))
    name = "max_pool2d_with_indices_backward"
    if indices.dtype != "i64" or not same_shape(indices.shape, grad_output.shape):
        problem = f"expected int64 indices of the gradient's shape {shown(grad_output.shape)}, "
        problem += f"got {shown(indices.shape)}"
        raise failure(RuntimeError, name, problem, "pass those of max_pool2d(return_indices=True)")
    places, grad = prims.reshape(indices, rows), prims.reshape(grad_output, rows)
    places = prims.check_index(
        places, prod(plane), name, no_place(name), error="runtime", strict=True
    )
    return prims.reshape(prims.scatter(base, places, grad, 1, "add"), self.shape)


# ------------------------------------------------------------------------------------ masked places


def _places(mask: Node, indices: Sequence[Node | None]) -> list[Node | None]:
    """The indices, 0 where the mask is false: those may lie anywhere."""
    check_mask(mask, "_unsafe_masked_index")

    def kept(positions: Node) -> Node:
        inside, place = prims.broadcast_all(mask, positions)
        return prims.where(inside, place, prims.zeros_like(place))

    return [None if i is None else kept(i) for i in indices]


def _masked_samples(last: Callable[[], Any]) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        mask = T(2, 3, dtype="bool", values=[[1, 0, 1], [1, 1, 0]], grad=False)
        rows = T(2, 1, dtype="i64", values=[[0], [3]], grad=False)
        columns = T(1, 3, dtype="i64", values=[[2, 99, 1]], grad=False)
        outside = T(2, 3, dtype="bool", values=[[1, 0, 1], [1, 0, 0]], grad=False)
        yield sample(
            T(4, 5), mask, [rows, T(1, 3, dtype="i64", values=[[2, 4, 1]], grad=False)], last()
        )
        yield sample(T(4, 5), outside, [rows, columns], last())

    return make


@op(where="torch", runtime="fill", samples=_masked_samples(lambda: 1.5))
def _unsafe_masked_index(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Scalar
) -> Tensor:
    """Elements at index tensors where the mask is true, `fill` elsewhere; see `index`.

    Indices where the mask is false may lie outside.

    Raises:
        IndexError: an index outside where the mask is true.

    Example:
        >>> x, mask = torch.tensor([5.0, 6.0]), torch.tensor([True, False])
        >>> torch._unsafe_masked_index(x, mask, [torch.tensor([1, 9])], 0)
        tensor([6., 0.])
    """
    gathered = index(self, _places(mask, indices))
    inside = prims.broadcast_to(mask, gathered.shape)
    return prims.where(inside, gathered, filled(fill, gathered.shape, self.dtype))


@op(where="torch", samples=_masked_samples(lambda: T(2, 3)))
def _unsafe_masked_index_put_accumulate(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    """A copy with values added at index tensors where the mask is true; see `index_put`.

    Raises:
        IndexError: an index outside where the mask is true.

    Example:
        >>> x, mask, at = torch.zeros(2), torch.tensor([True, False]), [torch.tensor([1, 9])]
        >>> torch._unsafe_masked_index_put_accumulate(x, mask, at, torch.ones(2))
        tensor([0., 1.])
    """
    inside, source = prims.broadcast_all(mask, values)
    masked = prims.where(inside, source, prims.zeros_like(source))
    return index_put(self, _places(mask, indices), masked, True)
