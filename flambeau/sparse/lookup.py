"""Table look-ups whose gradient keeps only the rows that were looked up."""

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
            kept = (rows != ctx.padding % ctx.size[0]).nonzero().squeeze(1)
            rows, values = rows[kept], values[kept]
        return None, make(torch.sparse_coo, (rows.unsqueeze(0),), values, ctx.size), None


def sparse_lookup(indices: Tensor, table: Tensor, padding_idx: int | None) -> Tensor:
    """Rows of `table` at `indices`; its gradient is a `sparse_coo` tensor."""
    found: Tensor = SparseLookup.apply(indices, table, padding_idx)
    return found
