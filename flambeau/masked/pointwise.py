"""Operators element by element: they are applied to the data; masks have to agree."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.autograd.composition import operands
from flambeau.core.tensors import Tensor
from flambeau.masked.construct import taken
from flambeau.masked.tensor import MaskedTensor, masked
from flambeau.sparse.tensor import SparseTensor, like

# Operators that preserve the elements: other dtypes, devices and copies of them.
KEPT = """
alias bfloat16 bool byte char clone conj contiguous cpu cuda double float half int long real
resolve_conj resolve_neg short to type type_as type_of
"""


masked_operands = functools.partial(operands, MaskedTensor)  # the masked tensors of arguments


def require_same(name: str, one: Tensor, two: Tensor) -> None:
    """Raises ValueError where two masked tensors do not have the same layout and mask."""
    if one.layout is not two.layout:
        raise ValueError(
            f"[{name}] masked operands must have the same layout, got {one.layout} and "
            f"{two.layout}\nhint: x.to_dense(), or x.to_sparse_coo()"
        )
    if one._mask is two._mask:
        return
    if tuple(one.shape) != tuple(two.shape) or not torch.equal(_dense(one), _dense(two)):
        raise ValueError(
            f"[{name}] Input masks must match\n"
            "hint: masked_tensor(x.get_data(), mask) with the same mask for both"
        )


def _dense(x: Tensor) -> Any:
    return x._mask.to_dense() if x.layout is not torch.strided else x._mask


def unary(op: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """An operator of one masked tensor; what else it takes are numbers.

    Raises:
        TypeError: another argument is a tensor.
    """
    first, *others = args
    if any(isinstance(x, torch.Tensor) for x in (*others, *kwargs.values())):
        raise TypeError(
            f"[{name}] of a masked tensor does not take further tensors\nhint: pass a number"
        )
    return _applied(op, name, first, (first, *others), kwargs)


def binary(op: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """An operator of two operands: masked ones with the same mask; a dense one takes it on.

    Raises:
        ValueError: layouts or masks differ.
    """
    pattern = masked_operands((*args, *kwargs.values()))[0]
    return _applied(op, name, pattern, args, kwargs)


def _applied(op: Callable[..., Any], name: str, pattern: Tensor, args: Any, kwargs: Any) -> Tensor:
    def inner(x: Any) -> Any:
        if isinstance(x, MaskedTensor):
            require_same(name, pattern, x)
            return _values(x)
        if isinstance(x, torch.Tensor):
            return _joined(name, pattern, x)
        return x

    result = op(*map(inner, args), **{k: inner(v) for k, v in kwargs.items()})
    if name.endswith("_"):
        return pattern
    if isinstance(pattern._kept, SparseTensor):
        return masked(like(pattern._kept, result), pattern._mask)
    return masked(result, pattern._mask.expand(result.shape))


def _values(x: Tensor) -> Any:
    return x._kept.values() if isinstance(x._kept, SparseTensor) else x._kept


def _joined(name: str, pattern: Tensor, x: Any) -> Any:
    """A dense operand, of which only what the mask is True for takes part."""
    if x.dim() == 0 and not x.requires_grad:
        return x
    if pattern.layout is not torch.strided:
        raise ValueError(
            f"[{name}] an operand of layout {x.layout} does not fit a masked tensor of layout "
            f"{pattern.layout}\nhint: make the masked tensor dense with to_dense()"
        )
    return taken(x.to(torch.result_type(pattern._kept, x)), pattern._mask) if x.requires_grad else x


def kept(op: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """Copies and conversions: of the data; the mask goes to their device."""
    del name
    first = args[0]
    if not isinstance(first, MaskedTensor):  # `dense.to(masked)` means its dtype and device
        return op(*(x._kept if isinstance(x, MaskedTensor) else x for x in args), **kwargs)
    operands = (x._kept if isinstance(x, MaskedTensor) else x for x in args[1:])
    result = op(first._kept, *operands, **kwargs)
    if not isinstance(result, torch.Tensor):  # type() without an argument is a text
        return result
    return masked(result, first._mask.to(result.device))


def copy_(target: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
    """Writes data into a masked tensor, whose mask does not change."""
    if not isinstance(target, MaskedTensor):
        raise TypeError(
            "[copy_] a dense tensor cannot take a masked one\nhint: copy x.to_tensor(value)"
        )
    if isinstance(source, MaskedTensor):
        require_same("copy_", target, source)
        source = source._kept
    target._kept.copy_(source, non_blocking)
    return target


def where(condition: Any, input: Any, other: Any) -> Tensor:
    """Elements of two tensors with their masks; a dense one has no gaps.

    Raises:
        TypeError: the condition is masked.
    """
    if isinstance(condition, MaskedTensor):
        raise TypeError(
            "[where] the condition is a masked tensor\nhint: condition.to_tensor(False)"
        )
    parts = [x.to_dense() if isinstance(x, MaskedTensor) else x for x in (input, other)]
    data = torch.where(condition, *(x._kept if isinstance(x, MaskedTensor) else x for x in parts))
    full = torch.ones((), dtype=torch.bool, device=data.device)
    masks = (x._mask if isinstance(x, MaskedTensor) else full for x in parts)
    return masked(data, torch.where(condition, *masks).expand(data.shape))
