"""`torch.embedding_bag`: bags of rows with PyTorch's inner signature and its four results.

The sums themselves are those of `nn.functional.embedding_bag`; what its backward step would need
in PyTorch - the bag of each index, sizes, places of maxima - is computed beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.language.definition import op
from flambeau.language.dtypes import name_of
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.ops.indexing.search import searchsorted
from flambeau.ops.neural.embedding_bag import MODES, check_places, looked_up

_INDICES = T(5, dtype="i64", values=[0, 1, 1, 3, 2])
_OFFSETS = T(3, dtype="i64", values=[0, 2, 2])
_ENDS = T(4, dtype="i64", values=[0, 2, 2, 5])
_TABLE = T(4, 3)
_SIGNATURE = (
    "embedding_bag{}(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq{}, "
    "int mode{}, bool sparse{}, Tensor? per_sample_weights{}, bool include_last_offset{}"
)


def _samples() -> Iterator[Sample]:
    for mode in (0, 1, 2):
        yield sample(_TABLE, _INDICES, _OFFSETS, False, mode)
        yield sample(_TABLE, _INDICES, _ENDS, False, mode, False, None, True)
        yield sample(_TABLE, _INDICES, _OFFSETS, False, mode, False, None, False, 1)
    yield sample(_TABLE, _INDICES, _OFFSETS, False, 0, False, T(5), False, -3)
    yield sample(_TABLE, _INDICES, _OFFSETS, per_sample_weights=T(5))
    yield sample(_TABLE, _INDICES, _OFFSETS, True, 1, False, None, False, None)
    yield sample(_TABLE, T(3, dtype="i32", values=[3, 3, 0]), T(2, dtype="i32", values=[0, 1]))


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(4), _INDICES, _OFFSETS), RuntimeError, "2D")
    yield ErrorSample(sample(_TABLE, _INDICES, _OFFSETS, mode=3), RuntimeError, "mode")
    yield ErrorSample(sample(_TABLE, T(5, dtype="f32"), _OFFSETS), RuntimeError, "Long or Int")
    late = T(2, dtype="i64", values=[1, 2])
    yield ErrorSample(sample(_TABLE, _INDICES, late), RuntimeError, "offsets")
    beyond = T(2, dtype="i64", values=[0, 9])
    yield ErrorSample(sample(_TABLE, _INDICES, beyond), RuntimeError, "offsets")
    outside = sample(_TABLE, _INDICES, _OFFSETS, False, 0, False, None, False, 4)
    yield ErrorSample(outside, RuntimeError, "padding_idx")
    yield ErrorSample(
        sample(_TABLE, _INDICES, _OFFSETS, False, 1, False, T(5)), RuntimeError, "mode='sum'"
    )
    yield ErrorSample(
        sample(_TABLE, _INDICES, _OFFSETS, per_sample_weights=T(4)), RuntimeError, "per_sample"
    )
    nothing = T(0, dtype="i64")
    last = sample(_TABLE, _INDICES, nothing, include_last_offset=True)
    yield ErrorSample(last, RuntimeError, "at least 1")


def _check(
    indices: Any, weight: Any, offsets: Any, mode: int, shares: Any, last: bool, padding: int | None
) -> None:
    problem = ""
    if mode not in (0, 1, 2):
        problem = f"mode must be 0, 1 or 2 (sum, mean, max), got {mode}"
    elif offsets.ndim != 1 or weight.ndim != 2:
        problem = (
            "offsets have to be 1D and the weight 2D, got "
            f"{list(offsets.shape)} and {list(weight.shape)}"
        )
    elif last and offsets.shape[0] == 0:
        problem = "include_last_offset: number of offsets should be at least 1"
    elif shares is not None and mode != 0:
        problem = "per_sample_weights only supported with mode='sum' (0)"
    elif shares is not None and shares.numel() != indices.numel():
        problem = f"per_sample_weights: {shares.numel()} of them for {indices.numel()} indices"
    if problem:
        raise RuntimeError(f"[embedding_bag] {problem}\nhint: see nn.functional.embedding_bag")
    check_places(indices.reshape(-1), weight, offsets, shares, padding)


def _bag_of_each(places: Any, starts: Any) -> Any:
    """Returns the bag of each index."""
    steps = places.new_ones(places.shape).cumsum(0) - 1
    return searchsorted.native(starts, steps.to(starts.dtype), right=True) - 1


def _first_maxima(table: Any, indices: Any, bags: Any, used: Any, result: Any, dtype: Any) -> Any:
    """(B, D): the row of the table that gave each maximum; 0 where a bag is empty."""
    entries = table.detach()[indices]
    maxima = result[bags]
    equal = ((entries == maxima) | (entries.isnan() & maxima.isnan())) & used.unsqueeze(1)
    count = indices.shape[0]
    steps = (indices.new_ones(indices.shape).cumsum(0) - 1).unsqueeze(1)
    places = steps.where(equal, indices.new_full((), count))
    first = places.new_full(result.shape, count)
    where = bags.unsqueeze(1).expand(places.shape)
    first = first.scatter_reduce(0, where, places, "amin")
    rows = indices[first.clamp(max=max(count - 1, 0))] if count else first
    return rows.where(first < count, rows.new_zeros(())).to(dtype)


def _beside(
    table: Any, indices: Any, offsets: Any, mode: int, padding: int | None, last: bool, result: Any
) -> tuple[Any, Any, Any]:
    """The bag of each index, sizes of bags, and where maxima came from."""
    starts = offsets[:-1] if last else offsets
    wide = "i64" in (name_of(indices.dtype), name_of(offsets.dtype))
    dtype = (indices if name_of(indices.dtype) == "i64" or not wide else offsets).dtype
    if mode == 0:
        # Without a gradient, PyTorch counts the end as a bag here.
        counted = starts if table.requires_grad else offsets
        nothing = offsets.new_zeros(counted.shape, dtype=dtype)
        plain = padding is None and name_of(table.dtype) != "f64"
        if plain:  # the sums need no list of bags
            return offsets.new_zeros((0,), dtype=dtype), nothing, nothing.clone()
    bags = _bag_of_each(indices, starts)
    if mode == 0:
        return bags.to(dtype), nothing, nothing.clone()
    row = None if padding is None else padding % table.shape[0]
    used = indices != row if row is not None else indices == indices
    sizes = starts.new_zeros(starts.shape, dtype=dtype).index_add(0, bags, used.to(dtype))
    if mode == 1:
        return bags.to(dtype), sizes, sizes.clone()
    maxima = _first_maxima(table, indices, bags, used, result, dtype)
    return bags.to(dtype), sizes, maxima


@op(
    _SIGNATURE.format("", "=False", "=0", "=False", "=None", "=False")
    + ") -> (Tensor, Tensor, Tensor, Tensor)",
    where="torch",
    host=True,
    samples=_samples,
    errors=_errors,
)
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """`nn.functional.embedding_bag` with PyTorch's inner signature.

    Shape: `(V, D)` table, `(n)` indices, `(B)` offsets -> `(B, D)`; `(n)`: the bag of each index
    (empty where sums need it not); `(B)`: sizes of bags (zeros for sums); the rows that gave maxima
    `(B, D)`, or the sizes again. Only the first result has a gradient.

    Args:
        mode: 0 sum, 1 mean, 2 max.
        scale_grad_by_freq, sparse: as there; they do not concern maxima.

    Raises:
        RuntimeError: ranks, dtypes, offsets, mode or padding_idx that do not fit.
        IndexError: an index is outside of the table.

    Example:
        >>> weight, indices = torch.tensor([[1.0], [3.0]]), torch.tensor([0, 1, 1])
        >>> torch.embedding_bag(weight, indices, torch.tensor([0, 2]), mode=1)
        (tensor([[2.],
                [3.]]), tensor([0, 0, 1]), tensor([2, 1]), tensor([2, 1]))
    """
    _check(indices, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx)
    indices = indices.reshape(-1)
    options = (MODES[mode], per_sample_weights, include_last_offset, padding_idx)
    asked = (scale_grad_by_freq and mode != 2, sparse and mode != 2)
    result = looked_up(indices, weight, offsets, options, *asked)
    places = (indices, offsets, mode, padding_idx, include_last_offset)
    beside = _beside(weight, *places, result.detach())
    return (result, *beside)
