"""How nested tensors print: PyTorch's text."""

from __future__ import annotations

from flambeau.core import printing
from flambeau.core.tensors import Tensor
from flambeau.nested.tensor import JaggedTensor


def text(tensor: Tensor) -> str:
    """Sizes and offsets of a jagged tensor; the samples of one of layout strided."""
    gradient = printing.gradient_note(tensor)
    if isinstance(tensor, JaggedTensor):
        sizes = "(" + ", ".join(map(repr, tensor.shape)) + ")"
        notes = f"size={sizes}, offsets={tensor._ragged.offsets}"
        notes += "" if gradient is None else f", {gradient}"
        return f"NestedTensor({notes}, contiguous={tensor.is_contiguous()})"
    parts = [_indented(repr(part)) for part in tensor.detach()._parts()]
    body = ",\n".join(parts)
    return f"nested_tensor([\n{body}\n]" + ("" if gradient is None else f", {gradient}") + ")"


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))
