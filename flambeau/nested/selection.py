"""Elements of jagged tensors that a mask or index tensors name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.nested.ragged import Ragged
from flambeau.nested.tensor import JaggedTensor, NestedTensor, jagged, refuse


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """Selects the elements of every sample (a vector) where its mask is True: (B, n) -> (B, fewer).

    Raises:
        ValueError: samples are not contiguous.
        RuntimeError: samples are no vectors, or the mask is not bool or of another shape.
    """
    if input._ragged_idx != 1 or not input.is_contiguous():
        raise ValueError(
            "[masked_select] expected a contiguous jagged nested tensor\nhint: x.contiguous()"
        )
    if input.dim() != 2:
        refuse("masked_select", "masked_select only supports 2-D selections, samples are vectors")
    if not isinstance(mask, JaggedTensor) or mask.shape != input.shape:
        refuse(
            "masked_select",
            f"a mask of shape {tuple(mask.shape)} does not fit {tuple(input.shape)}",
            "the mask has the offsets of the tensor: x > 0, say",
        )
    if mask.dtype is not torch.bool:
        refuse("masked_select", f"expected a bool mask, got {mask.dtype}", "mask.bool()")
    values, offsets = mask._kept, input._ragged.offsets
    before = torch.nn.functional.pad(values.cumsum(0, dtype=offsets.dtype), (1, 0))
    ends = before.index_select(0, offsets)
    return jagged(input._kept.masked_select(values), Ragged(ends), 1)


def index_put(
    input: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Tensor:
    """The tensor with *values* written at index tensors, one per dimension.

    An index of the ragged dimension counts from the begin of its sample, a negative one from its
    end. The index of the batch alone means every row of these samples.

    Raises:
        IndexError: there is no such sample.
        RuntimeError: a sample has no such row.
    """
    _check_target(input, values)
    return input._like(input._kept.index_put(_places(input, indices), values, accumulate))


def index_put_(
    input: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Tensor:
    """`index_put` that writes to the tensor."""
    _check_target(input, values)
    input._kept.index_put_(_places(input, indices), values, accumulate)
    return input


def _check_target(target: Tensor, values: Any) -> None:
    if not isinstance(target, JaggedTensor) or isinstance(values, NestedTensor):
        raise ValueError(
            "[index_put] expected a jagged nested tensor, and dense values\n"
            "hint: apply it to the samples of x.unbind()"
        )


def _places(tensor: Tensor, indices: Sequence[Any]) -> list[Any]:
    """Index tensors of the values for those of a nested tensor."""
    r, ragged = tensor._ragged_idx, tensor._ragged
    if not all(isinstance(x, torch.Tensor) for x in indices):
        raise TypeError(
            "[index_put] indices of a nested tensor are tensors, one for every dimension up to "
            "the last that is named\nhint: leave out those behind it only"
        )
    if any(isinstance(x, NestedTensor) or x.dtype is torch.bool for x in indices):
        raise ValueError(
            "[index_put] indices of a nested tensor are dense integers\n"
            "hint: torch.where(mask, value, x) writes by a mask"
        )
    batch = _wrapped(indices[0], ragged.batch, "sample", IndexError)
    if len(indices) == 1 and r == 1:
        return [_rows_of(ragged, batch)]
    if len(indices) <= r:
        raise NotImplementedError(
            f"[index_put] not implemented for {len(indices)} indices of a nested tensor whose "
            f"ragged dimension is {r}\nhint: give an index for every dimension up to it"
        )
    counts = ragged.counts().index_select(0, batch.reshape(-1)).reshape(batch.shape)
    within = _wrapped(indices[r], counts, "row", RuntimeError)
    begins = ragged.offsets.index_select(0, batch.reshape(-1)).reshape(batch.shape)
    return [*indices[1:r], begins + within, *indices[r + 1 :]]


def _wrapped(index: Any, count: Any, what: str, error: type[Exception]) -> Any:
    """Indices counted from the front; *error* where one is out of bounds."""
    outside = (index < -count) | (index >= count)
    if bool(outside.any()):
        raise error(
            f"[index_put] some indices are out of bounds: there is no such {what} in the nested "
            f"tensor: {index.tolist()}\nhint: x.offsets().diff() are the lengths of the samples"
        )
    return torch.where(index < 0, index + count, index)


def _rows_of(ragged: Ragged, batch: Any) -> Any:
    """The rows of the values that belong to samples, one after the other."""
    spans = [ragged.spans[i] for i in batch.reshape(-1).tolist()]
    rows = [row for begin, count in spans for row in range(begin, begin + count)]
    return torch.tensor(rows, dtype=torch.int64, device=ragged.offsets.device)
