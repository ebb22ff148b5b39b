"""Operators that work element by element: on the values, where zero stays zero.

An operator that would turn zeros into something else makes a dense result, so PyTorch does not
have it for sparse tensors; nor is it here.
"""

from __future__ import annotations

import numbers
from typing import Any

import flambeau as torch
from flambeau.autograd.composite import mapped
from flambeau.autograd.composition import Rule, described
from flambeau.core.tensors import Tensor
from flambeau.sparse import blocks, convert
from flambeau.sparse import tensor as parts
from flambeau.sparse.tensor import SparseTensor, like, make

Scalar = (bool, int, float, complex)


def on_values(op: Rule, name: str, args: Any, kwargs: Any) -> Tensor:
    """An operator of one operand; an operator that is not linear needs each place once.

    A conversion does not coalesce, and returns a tensor that has the dtype already.
    """
    first, *others = args
    definition = described(op).definition
    assert definition is not None, name
    options = definition.options
    operand = first if options.linear or options.returns_self else _settled(first)
    result = op(operand._kept, *others, **kwargs)
    if options.returns_self and result is operand._kept:
        return operand
    return mapped(lambda values: like(operand, values), result)


def _settled(tensor: Tensor) -> Any:
    """Each place once: what is not linear needs the sums."""
    return convert.coalesce(tensor) if tensor._kind is torch.sparse_coo else tensor


def is_scalar(value: Any) -> bool:
    """A number, or a strided tensor without dimensions."""
    if isinstance(value, SparseTensor):
        return False
    if isinstance(value, torch.Tensor):
        return bool(value.dim() == 0)
    return isinstance(value, (*Scalar, numbers.Number))


# ------------------------------------------------------------------------------ sums
def add(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Sums: of sparse tensors of one layout, and of a strided tensor with a sparse one."""
    if not isinstance(other, SparseTensor):
        if isinstance(input, SparseTensor) and input._kind is not torch.sparse_coo:
            if isinstance(other, torch.Tensor) and other.dim():
                return convert.added(_scaled(other, alpha), input)
        _refuse_dense_addend()
    if not isinstance(input, SparseTensor):
        if not isinstance(input, torch.Tensor) or input.dim() == 0 < other.dim():
            _refuse_dense_addend()
        _check_same_size("add", input, other)
        wide = torch.promote_types(input.dtype, other.dtype)
        return convert.added(input.to(wide), like(other, _scaled(other._kept, alpha).to(wide)))
    _check_same_size("add", input, other)
    if convert.same_places(input, other):
        return like(input, input._kept + _scaled(other._kept, alpha))
    one, two = convert.to_coordinates(input), convert.to_coordinates(other)
    if parts.sparse_dim(one) != parts.sparse_dim(two):
        raise RuntimeError(
            "[add] sparse tensors with different numbers of sparse dimensions cannot be added\n"
            "hint: to_dense() one of them"
        )
    total = _joined(one, two, alpha)
    if input._kind in parts.BLOCKS:
        return blocks.of_sparse(total, input._kind, blocks.block_size(input))
    return total if input._kind is torch.sparse_coo else total.to_sparse(layout=input._kind)


def _joined(one: Any, two: Any, alpha: Any) -> Any:
    wide = torch.promote_types(one.dtype, two.dtype)
    values = torch.cat([one._kept.to(wide), _scaled(two._kept, alpha).to(wide)])
    indices = torch.cat([one._index[0], two._index[0]], 1)
    total = make(torch.sparse_coo, (indices,), values, one.shape)
    return convert.coalesce(total) if one._unique and two._unique else total


def _scaled(values: Any, alpha: Any) -> Any:
    return values if isinstance(alpha, (int, float)) and alpha == 1 else values * alpha


def _refuse_dense_addend() -> None:
    raise RuntimeError(
        "[add] add(sparse, dense) is not supported. Use add(dense, sparse) instead.\n"
        "hint: swap the operands, or convert with to_dense()"
    )


def _check_same_size(name: str, one: Any, other: Any) -> None:
    if tuple(one.shape) != tuple(other.shape):
        raise RuntimeError(
            f"[{name}] expected sizes of the operands to match, but {list(one.shape)} and "
            f"{list(other.shape)} do not\nhint: sparse tensors are not broadcast here"
        )


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Differences; see `add`."""
    return add(input, other, alpha=-alpha)


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """other - alpha * input."""
    return sub(other, input, alpha=alpha)


def add_(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Sums in place; a strided tensor is written only at the indices that `other` stores."""
    if isinstance(self, SparseTensor):
        return parts.take_over(self, add(self, other, alpha=alpha))
    _check_same_size("add_", self, other)
    return convert.added(self, like(other, _scaled(other._kept, alpha)), inplace=True)


def sub_(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Differences in place; see `add_`."""
    return add_(self, other, alpha=-alpha)


# ------------------------------------------------------------------------------ products
def mul(input: Tensor, other: Any) -> Tensor:
    """Products with a number, a strided tensor, or a sparse tensor of the same shape."""
    if is_scalar(other):
        return like(input, input._kept * other)
    if is_scalar(input):
        return like(other, input * other._kept)
    if isinstance(input, SparseTensor) and isinstance(other, SparseTensor):
        return _intersection(input, other)
    sparse, strided = (input, other) if isinstance(input, SparseTensor) else (other, input)
    if strided.dim() > sparse.dim():
        raise NotImplementedError(
            f"[mul] a sparse tensor of shape {tuple(sparse.shape)} would be broadcast by one of "
            f"{tuple(strided.shape)}\nhint: only the strided operand is broadcast; use to_dense()"
        )
    factor = convert.values_at(strided.expand(sparse.shape), sparse)
    return like(sparse, sparse._kept * factor)


def _intersection(input: Any, other: Any) -> Any:
    _check_same_size("mul", input, other)
    if convert.same_places(input, other) and input._unique and other._unique:
        return like(input, input._kept * other._kept)
    one = convert.coalesce(convert.to_coordinates(input))
    two = convert.coalesce(convert.to_coordinates(other))
    if parts.sparse_dim(one) != parts.sparse_dim(two):
        raise NotImplementedError(
            "[mul] sparse tensors with different numbers of sparse dimensions\n"
            "hint: to_dense() one of them"
        )
    position, present = convert.find(two, one._index[0])
    mine = present.nonzero().squeeze(1)
    values = one._kept[mine] * two._kept[position[mine]]
    result = make(torch.sparse_coo, (one._index[0][:, mine],), values, one.shape, True)
    return result if input._kind is torch.sparse_coo else result.to_sparse(layout=input._kind)


def mul_(self: Any, other: Any) -> Tensor:
    """Products in place."""
    if isinstance(self, SparseTensor):
        return parts.take_over(self, mul(self, other))
    return self.mul_(convert.dense(other))


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """Quotients by a number or a strided tensor without dimensions."""
    _check_divisor(input, other)
    operand = input if rounding_mode is None else _settled(input)
    return like(operand, torch.div(operand._kept, other, rounding_mode=rounding_mode))


def floor_divide(input: Any, other: Any) -> Any:
    """Quotients rounded down, by a number or a strided tensor without dimensions."""
    _check_divisor(input, other)
    operand = _settled(input)
    return like(operand, torch.floor_divide(operand._kept, other))


def _check_divisor(input: Any, other: Any) -> None:
    if isinstance(input, SparseTensor) and is_scalar(other):
        return
    if not isinstance(input, SparseTensor):
        parts.refuse(other, "div", "a sparse divisor has zeros: convert it with to_dense()")
    raise RuntimeError(
        "[div] Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
        f"{list(other.shape)} for divisor)\nhint: multiply by the reciprocal"
    )


def power(input: Any, exponent: Any) -> Any:
    """Powers; the exponent is a number that is not zero."""
    if not isinstance(input, SparseTensor) or isinstance(exponent, SparseTensor):
        parts.refuse(exponent, "pow", "only exponents that are numbers keep zeros")
    if not is_scalar(exponent):
        parts.refuse(input, "pow", "only exponents that are numbers keep zeros")
    if exponent == 0:
        raise RuntimeError(
            "[pow] cannot raise to zeroth power on sparse tensor; it would make the result tensor "
            "dense\nhint: convert it with to_dense()"
        )
    operand = _settled(input)
    return like(operand, torch.pow(operand._kept, exponent))


# ------------------------------------------------------------------------------ copies, dtypes
def to(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Another dtype or device, on the values."""
    if args and isinstance(args[0], SparseTensor):
        return to(self, args[0].dtype)
    if not isinstance(self, SparseTensor):  # only the example of the dtype is sparse
        return self.to(self.dtype)
    moved = self._kept.to(*args, **kwargs)
    return self if moved is self._kept else like(self, moved)


def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with memory of its own."""
    del memory_format
    index = tuple(part.clone() for part in input._index)
    return make(input._kind, index, input._kept.clone(), input.shape, input._unique)


def copy_(self: Any, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Copies indices and values of another sparse tensor of the same layout."""
    del non_blocking
    if not (isinstance(self, SparseTensor) and isinstance(src, SparseTensor)):
        raise RuntimeError(
            "[copy_] copy_() between dense and sparse Tensors is not implemented! Found self "
            f"layout = {self.layout} and src layout = {src.layout}\nhint: src.to_dense()"
        )
    source = src if src._kind is self._kind else src.to_sparse(layout=self._kind)
    return parts.take_over(self, clone(source.to(self.dtype)))


def zero_(self: Any) -> Tensor:
    """Removes all elements (`sparse_coo`), or sets zeros at the same indices."""
    return parts.take_over(self, zeros_like(self))


def zeros_like(input: Tensor, *, dtype: Any = None, **options: Any) -> Tensor:
    """A tensor of these sizes and layout that stores no element."""
    del options
    kind = dtype or input.dtype
    if input._kind is torch.sparse_coo:
        indices = torch.zeros((parts.sparse_dim(input), 0), dtype=torch.int64)
        values = torch.zeros((0, *parts.dense_size(input)), dtype=kind)
        return make(torch.sparse_coo, (indices,), values, input.shape, True)
    compressed, plain = (torch.zeros_like(part) for part in input._index)
    first = parts.batch_dim(input)
    values = torch.zeros(input._kept.shape[:first] + (0,) + input._kept.shape[first + 1 :],
                         dtype=kind)  # fmt: skip
    return make(input._kind, (compressed, plain[..., :0]), values, input.shape)


def new_zeros(self: Any, *size: Any, dtype: Any = None, **options: Any) -> Any:
    """A tensor of the same layout and of other sizes, which stores no element.

    Raises:
        RuntimeError: rows are compressed, or columns, and the sizes have no two dimensions.
    """
    del options
    sizes = tuple(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    if self._kind is torch.sparse_coo:
        return torch.sparse_coo_tensor(sizes, dtype=dtype or self.dtype)
    if len(sizes) < 2:
        raise RuntimeError(
            "[new_zeros] Only batched sparse compressed (non-block) tensors are supported, but "
            f"got size {list(sizes)}\nhint: (*, rows, columns)"
        )
    (*batch, rows, columns), kind = sizes, self._index[0].dtype
    along = rows if self._kind is torch.sparse_csr else columns
    index = (torch.zeros((*batch, along + 1), dtype=kind), torch.zeros((*batch, 0), dtype=kind))
    return make(self._kind, index, torch.zeros((*batch, 0), dtype=dtype or self.dtype), sizes)
