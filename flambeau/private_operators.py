"""Private operators of PyTorch that other packages call: shapes, indices, draws."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ir.lock import late

__all__ = [
    "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "_sample_dirichlet",
    "_shape_as_tensor",
]  # fmt: skip


def _shape_as_tensor(input: Any) -> Any:  # noqa: A002 - PyTorch's name
    """The sizes of a tensor, as a tensor.

    Example:
        >>> torch._shape_as_tensor(torch.zeros(2, 3))
        tensor([2, 3])
    """
    return torch.tensor(list(input.shape), dtype=torch.int64)


def _convert_indices_from_coo_to_csr(input: Any, size: int, *, out_int32: bool = False) -> Any:  # noqa: A002
    """Where each row's elements begin, from the elements' sorted rows.

    Args:
        input: row of each element.
        size: number of rows.
        out_int32: whether the result is int32 instead of int64.

    Raises:
        RuntimeError: the rows are no vector.
        NotImplementedError: they are no integers.
    """
    if input.dim() > 1:
        raise RuntimeError(
            f"Input is supposed to be a vector, but got {input.dim()} dimensional tensor."
        )
    if input.is_floating_point() or input.is_complex() or input.dtype is torch.bool:
        raise NotImplementedError(
            f'"convert_indices_from_coo_to_csr_cpu" not implemented for {input.dtype}\n'
            "hint: rows are integers"
        )
    dtype = torch.int32 if out_int32 else torch.int64
    counts = torch.bincount(input, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(dtype)


def _convert_indices_from_csr_to_coo(
    crow_indices: Any, col_indices: Any, *, out_int32: bool = False, transpose: bool = False
) -> Any:
    """Rows and columns of the elements of a matrix in rows.

    Args:
        crow_indices: where each row's elements begin.
        col_indices: columns of the elements.
        out_int32: whether the result is int32 instead of int64.
        transpose: columns come first.

    Raises:
        NotImplementedError: matrices in a batch.
    """
    if crow_indices.dim() != 1:
        raise NotImplementedError(
            "[_convert_indices_from_csr_to_coo] batches of matrices are not supported: "
            f"{crow_indices.dim()} dimensions\nhint: convert each matrix"
        )
    dtype = torch.int32 if out_int32 else torch.int64
    rows = torch.arange(crow_indices.numel() - 1).repeat_interleave(crow_indices.diff())
    pair = [col_indices, rows] if transpose else [rows, col_indices]
    return torch.stack([indices.to(dtype) for indices in pair])


def _sample_dirichlet(self: Any, generator: Any = None) -> Any:
    """Samples of Dirichlet distributions, without a gradient.

    Args:
        self: concentrations.
        generator: draws the numbers.
    """
    return late("flambeau.distributions.dirichlet").draw(self, generator)
