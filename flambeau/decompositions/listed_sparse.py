"""Inner operators of sparse tensors, made of public ones and of what `flambeau.sparse` shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.decompositions.inner_gradients import gradients
from flambeau.decompositions.listed import listed
from flambeau.ir.failure import failure
from flambeau.sparse import convert, copies, invariants, methods, pointwise, reduce
from flambeau.sparse import tensor as parts

__all__: list[str] = []

Tensor = Any
Value = Any


def _options(values: Value) -> Value:
    dtype, _, device, _ = values[:4]
    return {"dtype": dtype, "device": device}


@listed("_sparse_coo_tensor_with_dims_and_tensors")
def _with_dims_and_tensors(
    sparse_dim: int, dense_dim: int, size: Value, indices: Tensor, values: Tensor, *options: Value
) -> Tensor:
    flag = {"is_coalesced": options[4]}
    return torch.sparse_coo_tensor(indices, values, tuple(size), **_options(options), **flag)


@listed("_sparse_coo_tensor_unsafe")
def _sparse_coo_tensor_unsafe(
    indices: Tensor, values: Tensor, size: Value, *options: Value
) -> Tensor:
    flag = {"is_coalesced": options[4]}
    return torch.sparse_coo_tensor(indices, values, tuple(size), **_options(options), **flag)


def _compressed(name: str) -> None:
    def run(first: Tensor, second: Tensor, values: Tensor, size: Value, *options: Value) -> Tensor:
        make = getattr(torch, f"sparse_{name}_tensor")
        return make(first, second, values, tuple(size), **_options(options))

    listed(f"_sparse_{name}_tensor_unsafe")(run)


for _name in ("csr", "csc", "bsr", "bsc"):
    _compressed(_name)


@listed("_dimI")
def _dim_i(self: Tensor) -> int:
    return int(self.sparse_dim())


@listed("_dimV")
def _dim_v(self: Tensor) -> int:
    return int(self.dense_dim())


@listed("_coalesce")
def _coalesce(self: Tensor) -> Tensor:
    return self.coalesce()


@listed("_indices_copy")
def _indices_copy(self: Tensor) -> Tensor:
    return self._indices().clone()


@listed("_values_copy")
def _values_copy(self: Tensor) -> Tensor:
    return self._values().clone()


def _converted(name: str) -> None:
    def run(self: Tensor, *values: Value) -> Tensor:
        return getattr(self, name)(*[x for x in values if x is not None])

    listed(f"_{name}")(run)


for _name in ("to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc"):
    _converted(_name)


@listed("_to_sparse.sparse_dim")
def _to_sparse_dim(self: Tensor, sparse_dim: int) -> Tensor:
    return self.to_sparse(sparse_dim)


@listed("_to_sparse")
def _to_sparse(self: Tensor, layout: Value, blocksize: Value, dense_dim: Value) -> Tensor:
    return self.to_sparse(layout=layout, blocksize=blocksize, dense_dim=dense_dim)


@listed("_to_dense")
def _to_dense(self: Tensor, dtype: Value, masked_grad: Value) -> Tensor:
    return self.to_dense(dtype, masked_grad=masked_grad)


@listed("to_dense_backward")
def _to_dense_backward(grad: Tensor, input: Tensor, masked_grad: Value) -> Tensor:  # noqa: A002
    if masked_grad is False or input.layout is torch.strided:
        return grad
    return grad.sparse_mask(input.coalesce() if input.layout is torch.sparse_coo else input)


@listed("_sparse_mm", "_sparse_mm.reduce", "_sparse_sparse_matmul")
def _sparse_mm(sparse: Tensor, dense: Tensor, *reduce: str) -> Tensor:
    return torch.sparse.mm(sparse, dense, *reduce)


@listed("_sparse_sum")
def _sparse_sum(self: Tensor) -> Tensor:
    return torch.sparse.sum(self)


@listed("_sparse_sum.dim")
def _sparse_sum_dim(self: Tensor, dim: Value) -> Tensor:
    return torch.sparse.sum(self, dim)


@listed("_sparse_sum.dtype")
def _sparse_sum_dtype(self: Tensor, dtype: Value) -> Tensor:
    return torch.sparse.sum(self, dtype=dtype)


@listed("_sparse_sum.dim_dtype")
def _sparse_sum_dim_dtype(self: Tensor, dim: Value, dtype: Value) -> Tensor:
    return torch.sparse.sum(self, dim, dtype)


@listed("_sparse_softmax.int")
def _sparse_softmax_int(self: Tensor, dim: int, dtype: Value) -> Tensor:
    return torch.sparse.softmax(self, dim, dtype=dtype)


@listed("_sparse_softmax")
def _sparse_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.sparse.softmax(self, dim)


@listed("_sparse_log_softmax.int")
def _sparse_log_softmax_int(self: Tensor, dim: int, dtype: Value) -> Tensor:
    return torch.sparse.log_softmax(self, dim, dtype=dtype)


@listed("_sparse_log_softmax")
def _sparse_log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.sparse.log_softmax(self, dim)


@listed("_spdiags")
def _spdiags(diagonals: Tensor, offsets: Tensor, shape: Value, layout: Value) -> Tensor:
    return torch.sparse.spdiags(diagonals, offsets, tuple(shape), layout)


@listed("sparse_sampled_addmm")
def _sparse_sampled_addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, beta: Value, alpha: Value
) -> Tensor:
    return torch.sparse.sampled_addmm(self, mat1, mat2, beta=beta, alpha=alpha)


# ------------------------------------------------------------------------------ parts
@listed("_coalesced_")
def _coalesced_(self: Tensor, coalesced: bool) -> Tensor:
    self._unique = coalesced
    return self


@listed("_coalesced")
def _coalesced(self: Tensor, coalesced: bool) -> Tensor:
    return _coalesced_(self.clone(), coalesced)


def _copied(name: str, method: Callable[..., Tensor]) -> None:
    """An operator in place as a function of the tensor."""

    def run(self: Tensor, *values: Value) -> Tensor:
        return method(self.clone(), *values)

    listed(name)(run)


_copied("resize_as_sparse", copies.resize_as_sparse_)
_copied("sparse_resize", methods.sparse_resize_)
_copied("sparse_resize_and_clear", methods.sparse_resize_and_clear_)
_copied("copy_sparse_to_sparse", pointwise.copy_)
listed("copy_sparse_to_sparse_")(pointwise.copy_)


@listed("_sparse_coo_tensor_with_dims")
def _with_dims(sparse_dim: int, dense_dim: int, size: Value, *options: Value) -> Tensor:
    if options[1] is not torch.sparse_coo:
        problem = f"layout {options[1]} is none of sparse_coo"
        hint = "layout=torch.sparse_coo"
        raise failure(NotImplementedError, "_sparse_coo_tensor_with_dims", problem, hint)
    indices = torch.zeros((sparse_dim, 0), dtype=torch.int64)
    values = torch.zeros((0, *size[sparse_dim:]), **_options(options))
    return torch.sparse_coo_tensor(indices, values, tuple(size), is_coalesced=True)


@listed("_sparse_compressed_tensor_unsafe")
def _sparse_compressed_tensor_unsafe(
    compressed: Tensor, plain: Tensor, values: Tensor, size: Value, *options: Value
) -> Tensor:
    make = torch.sparse_compressed_tensor
    return make(
        compressed, plain, values, tuple(size), layout=options[1], check_invariants=False,
        **_options(options),
    )  # fmt: skip


@listed("_sparse_compressed_tensor_with_dims")
def _compressed_with_dims(
    count: int, dense_dim: int, size: Value, blocksize: Value, index_dtype: Value, *options: Value
) -> Tensor:
    batch, sparse = size[: len(size) - dense_dim - 2], size[len(size) - dense_dim - 2 :]
    lines = sparse[0] if options[1] in (torch.sparse_csr, torch.sparse_bsr) else sparse[1]
    block = tuple(blocksize)
    if block:
        lines //= block[options[1] is torch.sparse_bsc]
    compressed = torch.zeros((*batch, lines + 1), dtype=index_dtype)
    compressed[..., 1:] = count  # elements of the first line: PyTorch leaves indices undefined
    plain = torch.arange(count, dtype=index_dtype).expand(*batch, count)
    values = torch.zeros((*batch, count, *block, *sparse[2:]), **_options(options))
    return parts.make(options[1], (compressed, plain), values, tuple(size), True)


# ------------------------------------------------------------------------------ checks
@listed("_validate_sparse_coo_tensor_args")
def _validate_coo(indices: Tensor, values: Tensor, size: Value, unique: Value, pin: Value) -> None:
    invariants.check(torch.sparse_coo, (indices,), values, tuple(size), bool(unique))


@listed("_validate_sparse_compressed_tensor_args")
def _validate_compressed(
    compressed: Tensor, plain: Tensor, values: Tensor, size: Value, layout: Value, pin: Value
) -> None:
    invariants.check(layout, (compressed, plain), values, tuple(size), True)


def _validated(name: str) -> None:
    def run(compressed: Tensor, plain: Tensor, values: Tensor, size: Value, pin: Value) -> None:
        layout = getattr(torch, f"sparse_{name}")
        _validate_compressed(compressed, plain, values, size, layout, pin)

    listed(f"_validate_sparse_{name}_tensor_args")(run)


for _name in ("csr", "csc", "bsr", "bsc"):
    _validated(_name)


@listed("_validate_compressed_sparse_indices")
def _validate_indices(
    is_rows: bool, compressed: Tensor, plain: Tensor, lines: int, across: int, count: int
) -> None:
    layout, size = (torch.sparse_csr, (lines, across))
    if not is_rows:
        layout, size = torch.sparse_csc, (across, lines)
    batch = tuple(compressed.shape[:-1])
    values = torch.empty((*batch, count), device="meta")
    invariants.check(layout, (compressed, plain), values, (*batch, *size), True)


# ------------------------------------------------------------------------------ arithmetic
@listed("_sparse_broadcast_to")
def _sparse_broadcast_to(self: Tensor, size: Value) -> Tensor:
    first = len(size) - self.dense_dim()  # dimensions of the result that are sparse
    lead = first - self.sparse_dim()
    indices = torch.nn.functional.pad(self._indices(), (0, 0, lead, 0))
    values = self._values()
    values = values.expand(values.shape[0], *size[first:])
    enlarged = [d for d in range(first) if d < lead or self.shape[d - lead] != size[d]]
    for dim in enlarged:
        places = torch.arange(size[dim]).repeat(values.shape[0]).unsqueeze(0)
        indices = indices.repeat_interleave(size[dim], 1)
        indices = torch.cat([indices[:dim], places, indices[dim + 1 :]])
        values = values.repeat_interleave(size[dim], 0)
    ordered = enlarged == list(range(first - len(enlarged), first))
    unique = self.is_coalesced() and ordered
    return parts.make(torch.sparse_coo, (indices,), values, tuple(size), unique)


def _lines(
    self: Tensor, name: str, combine: str, dim: Value, keepdim: bool, dtype: Value
) -> Tensor:
    """A reduction of the stored elements of a CSR matrix; the result is one, too."""
    if not keepdim:
        problem = "reduction operations on CSR tensors with keepdim=False is unsupported"
        raise failure(RuntimeError, name, problem, "keepdim=True")
    dims = {d % 2 for d in dim} or {0, 1}
    rows, columns = convert.coordinates(self)
    zero = torch.zeros_like(rows)
    keys = (zero if 0 in dims else rows) * self.shape[1] + (zero if 1 in dims else columns)
    lines, group = torch.unique(keys, return_inverse=True)
    values = self._kept if dtype is None else self._kept.to(dtype)
    start = values.new_full(lines.shape, combine == "prod")
    total = start.scatter_reduce(0, group, values, combine)
    size = tuple(1 if d in dims else n for d, n in enumerate(self.shape))
    places = torch.stack([lines // self.shape[1], lines % self.shape[1]])
    result = torch.sparse_coo_tensor(places, total, size, is_coalesced=True).to_sparse_csr()
    index = [x.to(self._index[0].dtype) for x in result._index]
    return parts.make(torch.sparse_csr, index, total, size, True)


@listed("_sparse_csr_sum.dim_dtype")
def _sparse_csr_sum(self: Tensor, dim: Value, keepdim: bool, dtype: Value) -> Tensor:
    return _lines(self, "_sparse_csr_sum", "sum", dim, keepdim, dtype)


@listed("_sparse_csr_prod.dim_dtype")
def _sparse_csr_prod(self: Tensor, dim: Value, keepdim: bool, dtype: Value) -> Tensor:
    return _lines(self, "_sparse_csr_prod", "prod", dim, keepdim, dtype)


@listed("_sparse_mask_projection")
def _sparse_mask_projection(self: Tensor, mask: Tensor, accumulate: bool) -> Tensor:
    """The elements of `mask` at the indices of `self`; 0 where it has none."""
    return parts.like(self, convert.values_at(mask.coalesce(), self))


@listed("_sparse_mm_reduce_impl")
def _sparse_mm_reduce_impl(self: Tensor, other: Tensor, mode: str) -> Value:
    result = torch.sparse.mm(self, other, mode)
    places = torch.empty((0,), dtype=torch.int64)
    if mode in ("amax", "amin") and (self.requires_grad or other.requires_grad):
        places = _selected_elements(self.detach(), other.detach(), result.detach())
    return result, places


# ------------------------------------------------------------------------------ gradients
def _selected_elements(one: Tensor, other: Tensor, result: Tensor) -> Tensor:
    """The first stored element of each row whose product a largest or smallest one is."""
    rows, columns = convert.coordinates(one)
    terms = one._kept.unsqueeze(1) * other[columns]
    count = terms.shape[0]
    numbers = torch.arange(count).unsqueeze(1).expand(terms.shape)
    numbers = torch.where(terms == result[rows], numbers, count)
    places = torch.full(result.shape, count)
    return places.index_reduce(0, rows, numbers, "amin")


@listed("_sparse_mm_reduce_impl_backward")
def _sparse_mm_reduce_impl_backward(
    self: Tensor, grad: Tensor, weight: Tensor, mode: str, places: Tensor, mask: Value
) -> Value:
    def product(values: Tensor, dense: Tensor) -> Tensor:
        return torch.sparse.mm(parts.like(self, values), dense, mode)

    of_values, of_dense = gradients(product, [self.values(), weight], grad)
    return parts.like(self, of_values) if mask[0] else None, of_dense if mask[1] else None


def _of_softmax(name: str, function: Callable[..., Tensor]) -> None:
    def run(grad: Tensor, output: Tensor, dim: int, self: Tensor) -> Tensor:
        def values(stored: Tensor) -> Tensor:
            return function(parts.like(pattern, stored), dim).values()

        pattern = self.coalesce()
        factors = convert.values_at(grad.coalesce(), pattern)
        return parts.like(pattern, gradients(values, [pattern.values()], factors)[0])

    listed(name)(run)


_of_softmax("_sparse_softmax_backward_data", reduce.softmax)
_of_softmax("_sparse_log_softmax_backward_data", reduce.log_softmax)


@listed("_sparse_sum_backward")
def _sparse_sum_backward(grad: Tensor, self: Tensor, dim: Value) -> Tensor:
    dims = {d % self.dim() for d in dim}
    if grad.layout is torch.strided and len([d for d in dims if d < self.sparse_dim()]) < (
        self.sparse_dim()
    ):
        problem = "expected grad_ Tensor to be sparse, but got dense"
        raise failure(RuntimeError, "_sparse_sum_backward", problem, "the gradient of sparse.sum")
    dense = grad.to_dense() if grad.layout is not torch.strided else grad
    for d in sorted(dims):
        dense = dense.unsqueeze(d)
    return dense.expand(self.shape).sparse_mask(self)
