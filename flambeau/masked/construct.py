"""How masked tensors are made: from data that are copied, or that are differentiated through."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.masked.tensor import MaskedTensor, aligned, announce, check, masked


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether an object is a masked tensor.

    Example:
        >>> torch.masked.is_masked_tensor(torch.ones(2))
        False
    """
    return isinstance(obj, MaskedTensor)


def masked_tensor(data: Any, mask: Any, requires_grad: bool = False) -> Tensor:
    """A masked tensor with a copy of data: a leaf of the graph of gradients.

    Args:
        data: strided, COO or CSR, of any shape; a float but no bfloat16, a signed int, or bool.
        mask: bool, of the shape and layout of the data; False for what is not there.
        requires_grad: whether gradients are wanted.

    Raises:
        TypeError: data or mask is no plain tensor, or of another dtype or layout.
        ValueError: the shapes differ.

    Example:
        >>> x = torch.masked.masked_tensor(torch.arange(3.0), torch.tensor([True, False, True]))
        >>> x.sum()
        MaskedTensor(  2.0000, True)
    """
    check(data, mask)
    announce(data, 3)
    values, places = aligned(data.detach(), mask.detach())
    return masked(values.clone(), places.clone()).requires_grad_(requires_grad)


def as_masked_tensor(data: Any, mask: Any) -> Tensor:
    """A masked tensor that is computed from data: gradients flow to them.

    What is masked out gets a gradient of zero, never NaN.

    Args:
        data: strided, COO or CSR, of any shape; a float but no bfloat16, a signed int, or bool.
        mask: bool, of the shape and layout of the data; False for what is not there.

    Raises:
        TypeError: data or mask is no plain tensor, or of another dtype or layout.
        ValueError: the shapes differ.

    Example:
        >>> x = torch.tensor([4.0, -1.0], requires_grad=True)
        >>> torch.masked.as_masked_tensor(x, torch.tensor([True, False])).sqrt().sum().backward()
        >>> x.grad
        tensor([0.2500, 0.0000])
    """
    check(data, mask)
    announce(data.detach(), 3)
    values, places = aligned(data, mask.detach())
    return masked(taken(values, places), places.clone())


def taken(data: Any, mask: Any) -> Any:
    """A copy of data through which no gradient flows where the mask is False."""
    if data.requires_grad and data.layout is torch.strided:
        return torch.where(mask, data, data.detach())
    return data.clone()
