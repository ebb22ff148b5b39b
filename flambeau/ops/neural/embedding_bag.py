"""`embedding_bag`: rows of a table summed, averaged or maximised per bag, without a table of rows.

Rows are added in the order of the indices, so sums and gradients are deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.core.devices import has_data
from flambeau.ir.environment import same_size
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.ir.size import Size, prod
from flambeau.language.definition import function, op
from flambeau.language.dtypes import name_of
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.indexing.sorting import bincount
from flambeau.ops.neural.embedding import bound_rows

_F = "nn.functional"
MODES = ("sum", "mean", "max")
_OUTSIDE = (
    "[embedding_bag] the input has a value that is not in the valid range [0, {size}): "
    "{value}\nhint: indices are rows of the table"
)


def _bags(input: Node, offsets: Node | None, count: Size) -> tuple[Node, Size]:
    """Bag of each index, and the number of bags."""
    places = prims.iota((count,), 0, "i64")
    if offsets is None:
        width = prims.constant(input.shape[1], places)
        return prims.floor_div(places, width), input.shape[0]
    ends = prims.cast(offsets, "i64")
    return prims.searchsorted(ends, places, right=True) + -1, offsets.shape[0]


@op(
    name="_embedding_bag",
    where="private",
    samples=lambda: [
        sample(T(3, 2, dtype="i64", low=0, high=6), T(6, 4), None, "sum", None, False, None)
    ],
)
def bags_of(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None,
    mode: str,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> Tensor:
    """(B, D) from checked arguments."""
    if input.ndim == 2 and mode != "max" and input.shape[1] != 0:
        return _even_bags(input, weight, mode, per_sample_weights, padding_idx)
    count = prod(input.shape)
    index = prims.reshape(input, (count,))
    rows_at = prims.check_index(
        index, weight.shape[0], "embedding_bag", _OUTSIDE, error="runtime", strict=True
    )
    shares = per_sample_weights
    if shares is not None:
        shares = prims.reshape(shares, (count,))
    if mode != "max" and weight.dtype in ("f32", "f64") and offsets is not None:
        return _sums(rows_at, weight, offsets, mode, shares, include_last_offset, padding_idx)
    bags, number = _bags(input, offsets, count)
    wide = weight if weight.dtype in ("f32", "f64") else prims.cast(weight, "f32")
    rows = prims.take(wide, rows_at, 0)
    if shares is not None:
        rows = rows * prims.unsqueeze(prims.cast(shares, wide.dtype), 1)
    counted = _kept(rows_at, weight, padding_idx)
    total = _combined(rows, bags, counted, number, mode)
    if include_last_offset:
        total = prims.slice(total, 0, 0, number - 1)
    return prims.cast(total, weight.dtype)


def _sums(
    rows_at: Node,
    weight: Node,
    offsets: Node,
    mode: str,
    shares: Node | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> Node:
    """Sums or means of bags of any sizes."""
    starts, number = prims.cast(offsets, "i64"), offsets.shape[0]
    if same_size(number, 0):
        return prims.slice(weight, 0, 0, 0)
    after = prims.slice(starts, 0, 1, number - 1)
    if include_last_offset:
        starts, ends = prims.slice(starts, 0, 0, number - 1), after
    else:
        last = prims.full(0, (1,), "i64")
        ends = prims.cat([after, prims.constant(rows_at.shape[0], last)], 0)
    if padding_idx is not None:
        counted = _kept(rows_at, weight, padding_idx)
        rows_at = prims.where(counted, rows_at, prims.full_like(-1, rows_at))
    total = prims.bag_sum(weight, rows_at, starts, ends, shares)
    if mode == "sum":
        return total
    sizes = prims.unsqueeze(prims.cast(ends - starts, weight.dtype), 1)
    if padding_idx is not None:
        sizes = prims.bag_sizes(rows_at, starts, ends, weight.shape[0], weight.dtype)
    return total / prims.maximum(sizes, prims.full_like(1, sizes))


def _kept(rows_at: Node, weight: Node, padding_idx: int | None) -> Node:
    """Returns the mask of the indices that count."""
    if padding_idx is None:
        return prims.full(True, rows_at.shape, "bool")
    padding = padding_idx if padding_idx >= 0 else padding_idx + weight.shape[0]
    return prims.ne(rows_at, prims.constant(padding, rows_at))


def _even_bags(
    input: Node, weight: Node, mode: str, per_sample_weights: Node | None, padding_idx: int | None
) -> Node:
    """Sums or means of bags of one size: a reduction that reads the rows where they are."""
    rows_at = prims.check_index(
        input, weight.shape[0], "embedding_bag", _OUTSIDE, error="runtime", strict=True
    )
    wide = weight if weight.dtype in ("f32", "f64") else prims.cast(weight, "f32")
    rows = prims.take(wide, rows_at, 0)
    if per_sample_weights is not None:
        share = prims.unsqueeze(prims.cast(per_sample_weights, wide.dtype), 2)
        rows = rows * share
    sizes = prims.constant(input.shape[1], prims.full(0.0, (input.shape[0], 1), rows.dtype))
    if padding_idx is not None:
        counts_rows = _kept(rows_at, weight, padding_idx)
        shown = prims.broadcast(counts_rows, rows.shape, (0, 1))
        rows = prims.where(shown, rows, prims.full_like(0, rows))
        counted = prims.unsqueeze(prims.sum(prims.cast(counts_rows, rows.dtype), axis=1), 1)
        sizes = prims.maximum(counted, prims.full_like(1, counted))
    total = prims.sum(rows, axis=1)
    if mode == "mean":
        total = total / sizes
    return prims.cast(total, weight.dtype)


def _combined(rows: Node, bags: Node, counted: Node, number: Size, mode: str) -> Node:
    mask = prims.broadcast(counted, rows.shape, (0,))
    ones = prims.cast(counted, rows.dtype)
    empty = prims.full(0.0, (number,), rows.dtype)
    sizes = prims.unsqueeze(prims.take_add(empty, bags, ones, 0), 1)
    if mode == "max":
        base = prims.full(-math.inf, (number, rows.shape[1]), rows.dtype)
        hidden = prims.where(mask, rows, prims.full_like(-math.inf, rows))
        best = prims.put_nd(base, (bags,), hidden, (0,), "max")
        filled = prims.broadcast_to(sizes > 0, best.shape)
        return prims.where(filled, best, prims.full_like(0, best))
    base = prims.full(0.0, (number, rows.shape[1]), rows.dtype)
    shown = prims.where(mask, rows, prims.full_like(0, rows))
    total = prims.take_add(base, bags, shown, 0)
    if mode == "sum":
        return total
    return total / prims.maximum(sizes, prims.full_like(1, sizes))


def _samples() -> Iterator[Sample]:
    table = T(6, 4)
    yield sample(T(3, 2, dtype="i64", low=0, high=6), table)
    yield sample(T(3, 2, dtype="i64", low=0, high=6), table, mode="max")
    yield sample(T(3, 2, dtype="i64", low=0, high=6), table, padding_idx=1)
    weighted = T(3, 2, dtype="i64", low=0, high=6)
    yield sample(weighted, table, mode="sum", per_sample_weights=T(3, 2))
    starts = T(3, values=[0, 2, 2], dtype="i64")
    for mode in MODES:
        yield sample(T(5, dtype="i64", low=0, high=6), table, starts, mode=mode)
    yield sample(
        T(5, dtype="i64", low=0, high=6), table, starts, mode="sum", per_sample_weights=T(5)
    )
    yield sample(T(5, dtype="i64", low=0, high=6), table, starts, padding_idx=2)
    ends = T(4, values=[0, 2, 2, 5], dtype="i64")
    yield sample(T(5, dtype="i64", low=0, high=6), table, ends, include_last_offset=True)


def _errors() -> Iterator[ErrorSample]:
    flat, table = T(2, dtype="i64", low=0, high=3), T(3, 2)
    yield ErrorSample(sample(flat, table), ValueError, "offsets")
    pair = T(1, 2, dtype="i64", low=0, high=3)
    yield ErrorSample(sample(pair, table, mode="median"), ValueError, "mode")
    yield ErrorSample(sample(pair, T(3)), ValueError, "2D")
    yield ErrorSample(sample(T(1, 2), table), RuntimeError, "Long or Int")
    yield ErrorSample(sample(pair, table, padding_idx=3), RuntimeError, "padding_idx")
    weights = sample(pair, table, mode="sum", per_sample_weights=T(1, 2, dtype="f64"))
    yield ErrorSample(weights, RuntimeError, "same type")


def _check_offsets(input: Any, offsets: Any) -> None:
    if input.ndim == 2:
        if offsets is not None:
            problem = "if input is 2D, then offsets has to be None, as input is treated is a "
            problem += "mini-batch of fixed length sequences. However, found offsets of type "
            problem += f"{type(offsets)}"
            raise failure(ValueError, "embedding_bag", problem, "drop offsets")
        return
    if input.ndim != 1:
        problem = f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}"
        raise failure(ValueError, "embedding_bag", problem, "indices")
    if offsets is None or offsets.ndim != 1:
        problem = "offsets has to be a 1D Tensor but got "
        problem += f"{None if offsets is None else list(offsets.shape)}"
        raise failure(ValueError, "embedding_bag", problem, "where each bag starts")
    _check_starts(input, offsets)


def _check_starts(input: Any, offsets: Any) -> None:
    if not has_data(offsets):
        return
    if offsets.numel() and int(offsets[0]) != 0:
        problem = "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to "
        problem += f"start from position 0. However, got {int(offsets[0])}"
        raise failure(RuntimeError, "embedding_bag", problem, "start at 0")
    if offsets.numel() and int(offsets[-1]) > input.shape[0]:
        problem = f"offsets[-1] can not be greater than input's length {input.shape[0]} but got "
        problem += f"offsets[-1] of {int(offsets[-1])}"
        raise failure(RuntimeError, "embedding_bag", problem, "positions in input")


def _check_table(input: Any, weight: Any, per_sample_weights: Any, padding_idx: int | None) -> None:
    if weight.ndim != 2:
        problem = f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}"
        raise failure(ValueError, "embedding_bag", problem, "(V, D)")
    _check_rows(input, weight, per_sample_weights, padding_idx)


def _check_rows(input: Any, weight: Any, per_sample_weights: Any, padding_idx: int | None) -> None:
    if name_of(input.dtype) not in ("i32", "i64") or not weight.is_floating_point():
        problem = "indices have to be Long or Int, and the table a floating type; got "
        problem += f"{input.dtype} and {weight.dtype}"
        raise failure(RuntimeError, "embedding_bag", problem, "input.long(), weight.float()")
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        problem = f"expected weight ({weight.dtype}) to have the same type as per_sample_weights "
        problem += f"({per_sample_weights.dtype})"
        raise failure(RuntimeError, "embedding_bag", problem, "convert one of them")
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        problem = f"padding_idx must be within the number of embeddings, {-weight.shape[0]} "
        problem += f"through {weight.shape[0] - 1}, but got {padding_idx}"
        raise failure(RuntimeError, "embedding_bag", problem, "a row of the table")


def check_places(
    input: Any, weight: Any, offsets: Any, per_sample_weights: Any, padding_idx: int | None
) -> None:
    """The checks of one-dimensional indices that both signatures make.

    Raises:
        RuntimeError: dtypes, offsets or a padding_idx that do not fit.
    """
    _check_rows(input, weight, per_sample_weights, padding_idx)
    _check_starts(input, offsets)


def _check_options(
    input: Any, mode: str, per_sample_weights: Any, scale_grad_by_freq: bool, sparse: bool
) -> None:
    if mode not in MODES:
        problem = f"mode has to be one of sum, mean or max, got {mode!r}"
        raise failure(ValueError, "embedding_bag", problem, "'mean'")
    if mode == "max" and (scale_grad_by_freq or sparse):
        problem = "max mode does not support scaling the gradient by the frequency, nor sparse "
        problem += "gradients"
        raise failure(ValueError, "embedding_bag", problem, "mode='sum'")
    if per_sample_weights is None:
        return
    if tuple(per_sample_weights.shape) != tuple(input.shape):
        problem = "If per_sample_weights is not None, then it must have the same shape as the "
        problem += f"input ({tuple(input.shape)}), got {tuple(per_sample_weights.shape)}"
        raise failure(ValueError, "embedding_bag", problem, "one weight per index")
    if mode != "sum":
        problem = f"per_sample_weights is only supported for mode='sum' (got mode='{mode}')"
        raise failure(NotImplementedError, "embedding_bag", problem, "use mode='sum'")


@function(where=_F, samples=_samples, errors=_errors)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sums, means or maxima of bags of rows of `weight`.

    Shape: `(B, L)` indices, or `(n)` with offsets `(B)`; weight `(V, D)` -> `(B, D)`. Empty bags
    are zero.

    Args:
        offsets: where each bag starts in a 1-D input.
        per_sample_weights: factor of each row, mode "sum" only.
        include_last_offset: the last offset is the end, not a bag.
        padding_idx: this row counts in no bag.
        max_norm, norm_type: as in `embedding`.
        scale_grad_by_freq: a row's gradient is divided by how often it is looked up.
        sparse: the gradient of `weight` is a `sparse_coo` tensor that keeps the rows looked up.

    Raises:
        ValueError: ranks, offsets or mode that do not fit.
        RuntimeError: dtypes or a padding_idx that do not fit.
        IndexError: an index is outside of the table.

    Example:
        >>> F.embedding_bag(torch.tensor([[0, 1]]), torch.tensor([[1.0], [3.0]]))
        tensor([[2.]])
    """
    _check_options(input, mode, per_sample_weights, scale_grad_by_freq, sparse)
    _check_offsets(input, offsets)
    _check_table(input, weight, per_sample_weights, padding_idx)
    if max_norm is not None:
        bound_rows(input, weight, max_norm, norm_type)
    options = (mode, per_sample_weights, include_last_offset, padding_idx)
    return looked_up(input, weight, offsets, options, scale_grad_by_freq, sparse)


def looked_up(
    input: Any,
    weight: Any,
    offsets: Any,
    options: tuple[Any, ...],
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Any:
    """`bags_of` with the gradient of `weight` that was asked for."""
    times = None
    if scale_grad_by_freq and weight.requires_grad:
        times = bincount(input.reshape(-1), minlength=weight.shape[0]).clamp_min(1)
    if sparse and weight.requires_grad:
        sparse_bags = late("flambeau.sparse.lookup").sparse_bags
        return sparse_bags(input, weight, offsets, *options, times)
    table = weight
    if times is not None:
        table = weight.view_as(weight)
        table.register_hook(lambda grad: grad / times.unsqueeze(-1))
    return bags_of(input, table, offsets, *options)
