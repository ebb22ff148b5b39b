"""Table look-ups whose gradient stores only the rows that were looked up."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.autograd import Function
from flambeau.core.tensors import Tensor
from flambeau.sparse.tensor import make


class SparseLookup(Function):
    """`F.embedding` with a sparse gradient of the table."""

    @staticmethod
    def forward(ctx: Any, indices: Tensor, table: Tensor, padding_idx: int | None) -> Tensor:
        """Rows of the table."""
        ctx.save_for_backward(indices)
        ctx.size, ctx.padding = tuple(table.shape), padding_idx
        return torch.nn.functional.embedding(indices, table)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        """A row of the gradient per row that was looked up, not added together."""
        (indices,) = ctx.saved_tensors
        rows = indices.reshape(-1).long()
        values = grads[0].reshape(-1, ctx.size[1])
        if ctx.padding is not None:
            selected = (rows != ctx.padding % ctx.size[0]).nonzero().squeeze(1)
            rows, values = rows[selected], values[selected]
        return None, make(torch.sparse_coo, (rows.unsqueeze(0),), values, ctx.size), None


def sparse_lookup(indices: Tensor, table: Tensor, padding_idx: int | None) -> Tensor:
    """Rows of `table` at `indices`; its gradient is a `sparse_coo` tensor."""
    result: Tensor = SparseLookup.apply(indices, table, padding_idx)
    return result


class SparseBags(Function):
    """`F.embedding_bag` of modes "sum" and "mean" with a sparse gradient of the table."""

    @staticmethod
    def forward(
        ctx: Any,
        indices: Tensor,
        table: Tensor,
        offsets: Tensor | None,
        mode: str,
        weights: Tensor | None,
        include_last_offset: bool,
        padding_idx: int | None,
        times: Tensor | None,
    ) -> Tensor:
        """Sums or means of rows of the table; their gradients are divided by `times`."""
        ctx.save_for_backward(indices, table, offsets, weights, times)
        ctx.mean, ctx.padding = mode == "mean", padding_idx
        options = {"include_last_offset": include_last_offset, "padding_idx": padding_idx}
        return torch.nn.functional.embedding_bag(
            indices, table, offsets, mode=mode, per_sample_weights=weights, **options
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        """A row of the gradient per row that counted, not added together."""
        indices, table, offsets, weights, times = ctx.saved_tensors
        bags, rows = _bag_of_each(indices, offsets), indices.reshape(-1).long()
        counts = bags < grads[0].shape[0]  # indices past the last offset are in no bag
        if ctx.padding is not None:
            counts &= rows != ctx.padding % table.shape[0]
        selected = counts.nonzero().squeeze(1)
        rows, bags = rows[selected], bags[selected]
        values, of_weights = grads[0][bags], None
        if ctx.mean:
            values = values / torch.bincount(bags)[bags].unsqueeze(1)
        if weights is not None:
            shares = torch.zeros(indices.numel(), dtype=weights.dtype)
            shares[selected] = (values * table[rows]).sum(1)
            of_weights = shares.reshape(weights.shape)
            values = values * weights.reshape(-1)[selected].unsqueeze(1)
        if times is not None:
            values = values / times[rows].unsqueeze(1)
        of_table = make(torch.sparse_coo, (rows.unsqueeze(0),), values, tuple(table.shape))
        return None, of_table, None, None, of_weights, None, None, None


def _bag_of_each(indices: Tensor, offsets: Tensor | None) -> Tensor:
    """The number of the bag of each index."""
    places = torch.arange(indices.numel())
    if offsets is None:
        return places // indices.shape[1]
    return torch.searchsorted(offsets.long(), places, right=True) - 1


def sparse_bags(*arguments: Any) -> Tensor:
    """`F.embedding_bag`'s result; its gradient for the table is a `sparse_coo` tensor."""
    result: Tensor = SparseBags.apply(*arguments)
    return result
