"""Masked tensors permuted, sliced, split and joined: data and masks in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.masked.pointwise import masked_operands
from flambeau.masked.tensor import MaskedTensor, masked

MOVED = """
_atleast_1d _atleast_2d _atleast_3d _broadcast_tensors _matrix_transpose _meshgrid adjoint
broadcast_to cat chunk column_stack diagonal dsplit dstack expand expand_as flatten flip hsplit
hstack index_select kron movedim narrow numpy_T permute ravel repeat reshape reshape_as roll select
slice split split_with_sizes squeeze stack swapaxes swapdims t tensor_split tile transpose unbind
unflatten unfold unsqueeze view view_as vsplit vstack
"""


def moved(op: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator that moves elements, applied to the data and to the mask.

    Raises:
        TypeError: one of the joined tensors is dense.
    """
    for group in (*args, *kwargs.values()):
        if isinstance(group, (list, tuple)) and 0 < len(masked_operands(group)) < len(group):
            raise TypeError(
                f"[{name}] masked and dense tensors cannot be joined\n"
                "hint: masked_tensor(x, torch.ones_like(x, dtype=torch.bool))"
            )
    data, mask = (
        op(*_parts(args, part), **{k: _parts(v, part) for k, v in kwargs.items()})
        for part in ("_kept", "_mask")
    )
    return paired(data, mask)


def _parts(value: Any, part: str) -> Any:
    """A value with data or masks in the place of masked tensors."""
    if isinstance(value, MaskedTensor):
        return getattr(value, part)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_parts(item, part) for item in value)
    return value


def paired(data: Any, mask: Any) -> Any:
    """Masked tensors of results, which share no memory with the operands."""
    if isinstance(data, torch.Tensor):
        if mask.dtype is not torch.bool:
            raise TypeError(
                f"[view] mask must have dtype bool, got {mask.dtype}\nhint: x.to(dtype)"
            )
        return masked(data.clone() if data._is_view() else data, mask)
    return type(data)(paired(x, m) for x, m in zip(data, mask, strict=True))


def subscript(tensor: Tensor, key: Any) -> Tensor:
    """`x[key]`.

    Raises:
        ValueError: the key is masked: it is not known what is chosen.
    """
    if masked_operands(key if isinstance(key, tuple) else (key,)):
        raise ValueError(
            "[getitem] an index cannot be a masked tensor\nhint: x[index.to_tensor(False)]"
        )
    return paired(tensor._kept[key], tensor._mask[key])
