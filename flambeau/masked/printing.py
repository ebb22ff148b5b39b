"""How masked tensors print: PyTorch's text, with two dashes for what is not there."""

from __future__ import annotations

from typing import Any

from flambeau.core.tensors import Tensor

LEAST = 8  # columns of a gap


def text(tensor: Tensor) -> str:
    """All elements; those that are not there as `--`."""
    dense = tensor.detach().to_dense()
    data, mask = dense._kept.tolist(), dense._mask.tolist()
    if tensor.dim() == 0:
        return f"MaskedTensor({_element(data) if mask else '--'}, {mask})"
    return f"MaskedTensor(\n{_body(data, mask, 1)}\n)"


def _element(value: Any) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _row(data: list[Any], mask: list[bool]) -> str:
    """One line; a gap is as wide as the widest element of its row."""
    texts = [_element(x) if m else None for x, m in zip(data, mask, strict=True)]
    gap = "--".rjust(max((LEAST if t is None else len(t) for t in texts), default=LEAST))
    return "[" + ", ".join(gap if t is None else t for t in texts) + "]"


def _body(data: Any, mask: Any, depth: int) -> str:
    """Rows on a line each, `depth` levels deep."""
    margin = "  " * depth
    if not data or not isinstance(data[0], list):
        return margin + _row(data, mask)
    inner = (_body(x, m, depth + 1) for x, m in zip(data, mask, strict=True))
    return f"{margin}[\n" + ",\n".join(inner) + f"\n{margin}]"
