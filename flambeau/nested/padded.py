"""Conversions between jagged tensors and dense ones with padding.

Operators along the ragged dimension run on the dense form. The padding is their neutral element and
follows the sample, so a sample has the bits it would have alone (docs/design.md § 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor


def rows_first(values: Any, ragged_dim: int) -> Any:
    """Values with their ragged dimension in front."""
    return values if ragged_dim == 1 else values.movedim(ragged_dim - 1, 0)


def to_dense(tensor: Tensor, padding: Any) -> Any:
    """(B, ..., longest, ...): a jagged tensor's samples, filled up."""
    ragged, r = tensor._ragged, tensor._ragged_idx
    values = rows_first(tensor._kept, r)
    batch, longest, tail = ragged.batch, ragged.longest, tuple(values.shape[1:])
    if 0 in (batch, longest, values.shape[0]):
        empty = values.new_full((batch, longest, *tail), padding)
        return empty if r == 1 else empty.movedim(1, r)
    rows, inside = ragged.slots()
    padded = values.index_select(0, rows.reshape(-1)).reshape(batch, longest, *tail)
    padded = padded.masked_fill(~inside.reshape(batch, longest, *(1,) * len(tail)), padding)
    return padded if r == 1 else padded.movedim(1, r)


def to_values(dense: Any, ragged: Any, r: int, rows: int) -> Any:
    """The values of the samples in a dense tensor whose dimension `r` was filled up."""
    batched = dense if r == 1 else dense.movedim(r, 1)
    flat = batched.reshape(batched.shape[0] * batched.shape[1], *batched.shape[2:])
    if flat.shape[0] == 0 or rows == 0:
        values = flat.new_zeros((rows, *flat.shape[1:]))
    else:
        values = flat.index_select(0, ragged.places(rows))
    return values if r == 1 else values.movedim(0, r - 1)


def stacked(parts: Sequence[Any], padding: Any) -> Any:
    """(B, largest sizes): samples that may differ in every dimension, filled up."""
    if not parts:
        return torch.empty(0)
    largest = [max(sizes) for sizes in zip(*(p.shape for p in parts), strict=True)]
    return torch.stack([enlarged(part, padding, largest) for part in parts])


def enlarged(dense: Any, padding: Any, sizes: Sequence[int]) -> Any:
    """A dense tensor filled up behind its end in every dimension.

    Raises:
        RuntimeError: it is larger than these sizes.
    """
    room = [target - have for target, have in zip(sizes, dense.shape, strict=True)]
    if any(n < 0 for n in room):
        raise RuntimeError(
            "[to_padded_tensor] Value in output_size is less than NestedTensor padded size. "
            f"Truncation is not supported: {tuple(sizes)} < {tuple(dense.shape)}\n"
            "hint: leave output_size out"
        )
    if not any(room):
        return dense
    widths = [w for n in reversed(room) for w in (0, n)]
    return torch.nn.functional.pad(dense, widths, value=padding)
