"""How sparse tensors print: PyTorch's text."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.core import printing
from flambeau.core.tensors import Tensor
from flambeau.sparse.tensor import count

PREFIX = "tensor("
NAMES = {
    torch.sparse_coo: ("indices",),
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def text(tensor: Tensor) -> str:
    """Indices and values, then what a dense tensor notes, sizes and layout."""
    indent = len(PREFIX)
    parts = [
        _part(name, part, indent)
        for name, part in zip(
            (*NAMES[tensor.layout], "values"), (*tensor._index, tensor._kept.detach()), strict=True
        )
    ]
    notes = [f"size={tuple(tensor.shape)}", f"nnz={count(tensor)}"]
    default = torch.get_default_dtype()
    if tensor.dtype not in (default, default.to_complex(), torch.int64, torch.bool):
        notes.append(f"dtype={tensor.dtype}")
    notes.append(f"layout={tensor.layout}")
    gradient = printing.gradient_note(tensor)
    if gradient is not None:
        notes.append(gradient)
    text = PREFIX + (",\n" + " " * indent).join(parts)
    return printing.join_notes(text, notes, indent, fresh_line=tensor.is_sparse)


def _part(name: str, part: Any, indent: int) -> str:
    start = f"{name}=tensor("
    if part.numel() == 0:
        return f"{start}[], size={tuple(part.shape)})"
    return start + printing.numbers_text(part, indent + len(start)) + ")"
