"""From one layout to another, and the methods of tensors that tell of theirs.

Coordinates (`sparse_coo`) are what every other layout is converted through.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.sparse import blocks
from flambeau.sparse import tensor as parts
from flambeau.sparse.tensor import SparseTensor, layout_name, linear, make, unlinear


# ------------------------------------------------------------------------------ coordinates
def coordinates(tensor: Tensor) -> Any:
    """(dimensions, n) int64: indices of all stored elements, batch dimensions of CSR included."""
    if tensor._kind is torch.sparse_coo:
        return tensor._index[0]
    if tensor._kind in parts.BLOCKS:
        return blocks.coordinates(tensor)
    compressed, plain = (part.long() for part in tensor._index)
    nnz, batches = plain.shape[-1], tuple(compressed.shape[:-1])
    if not batches:
        return torch.stack(_pair(tensor, groups(compressed[1:], nnz), plain))
    number = math.prod(batches)
    before = torch.arange(0, number * nnz, max(nnz, 1))[:number].reshape(*batches, 1)
    ends = (compressed[..., 1:] + before).reshape(-1)
    along = groups(ends, number * nnz) % max(compressed.shape[-1] - 1, 1)
    batch = torch.arange(number).repeat_interleave(nnz)
    pair = torch.stack(_pair(tensor, along, plain.reshape(-1)))
    return torch.cat([unlinear(batch, batches), pair])


def _pair(tensor: Tensor, along: Any, across: Any) -> list[Any]:
    """Rows and columns of compressed and plain indices."""
    return [along, across] if tensor._kind is torch.sparse_csr else [across, along]


def groups(ends: Any, total: int) -> Any:
    """The group of each of `total` elements, where group k ends before element `ends[k]`."""
    marks = torch.zeros(total + 1, dtype=torch.int64)
    return marks.index_add(0, ends, torch.ones_like(ends))[:-1].cumsum(0)


def flat_values(tensor: Tensor) -> Any:
    """Values of all stored elements, one dimension for batches and elements together."""
    first = parts.batch_dim(tensor) + (2 if tensor._kind in parts.BLOCKS else 0)
    return tensor._kept.flatten(0, first) if first else tensor._kept


def ordered_sum(keys: Any, values: Any, size: int) -> Any:
    """Sums of the values of equal keys, in their order; (size, *dense)."""
    tail = tuple(values.shape[1:])
    if values.dtype is torch.bool:
        return ordered_sum(keys, values.long(), size) != 0
    return torch.zeros((size, *tail), dtype=values.dtype).index_add(0, keys, values)


def coalesce(tensor: Tensor) -> Tensor:
    """Each place once, in row-major order; values of one place are added in their order."""
    if tensor._unique:
        return tensor
    sizes = parts.sparse_size(tensor)
    indices, values = tensor._index[0], tensor._kept
    if not sizes:
        return make(torch.sparse_coo, (indices[:, :1],), values.sum(0, keepdim=True).to(
            values.dtype), tensor.shape, True)  # fmt: skip
    keys, inverse = torch.unique(linear(indices, sizes), return_inverse=True)
    summed = ordered_sum(inverse, values, keys.shape[0])
    return make(torch.sparse_coo, (unlinear(keys, sizes),), summed, tensor.shape, True)


def to_coordinates(tensor: Tensor) -> Tensor:
    """The tensor as `sparse_coo`, in the order of its values."""
    if tensor._kind is torch.sparse_coo:
        return tensor
    indices, values = coordinates(tensor), flat_values(tensor)
    sorted_ = tensor._kind is torch.sparse_csr
    return make(torch.sparse_coo, (indices,), values, tensor.shape, sorted_)


def to_compressed(tensor: Tensor, layout: Any) -> Tensor:
    """A coalesced `sparse_coo` matrix (of dense elements) as CSR or CSC."""
    if parts.sparse_dim(tensor) != 2:
        raise RuntimeError(
            f"[to_{str(layout)[6:]}] Only tensors with two sparse dimensions can be converted to "
            f"the {parts.LAYOUT_NAMES[layout]} layout, got sparse_dim {parts.sparse_dim(tensor)}\n"
            "hint: to_dense() first"
        )
    coalesced = coalesce(tensor)
    (row, column), values = coalesced._index[0], coalesced._kept
    along, across, extent = row, column, tensor.shape[0]
    if layout is torch.sparse_csc:
        order = torch.argsort(column * max(tensor.shape[0], 1) + row, stable=True)
        along, across, values = column[order], row[order], values[order]
        extent = tensor.shape[1]
    return make(layout, (_compressed(along, extent), across), values, tensor.shape)


def _compressed(along: Any, extent: int) -> Any:
    counts = torch.bincount(along, minlength=extent)
    return torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])


# ------------------------------------------------------------------------------ dense
def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool = True) -> Tensor:
    """The tensor with all its elements; a strided tensor itself.

    Args:
        dtype: must be left out for sparse tensors, as in PyTorch.
        masked_grad: accepted: gradients are those of the stored elements.

    Raises:
        RuntimeError: a dtype for a sparse tensor.

    Example:
        >>> torch.sparse_coo_tensor([[0, 0, 2]], [1.0, 2.0, 3.0], (4,)).to_dense()
        tensor([3., 0., 3., 0.])
    """
    del masked_grad
    if not isinstance(self, SparseTensor):
        return self if dtype is None else self.to(dtype)
    if dtype is not None:
        raise RuntimeError(
            "[to_dense] dtype argument is not supported by sparse_to_dense\nhint: .to(dtype) after"
        )
    return dense(self)


def dense(tensor: Tensor) -> Any:
    """The strided tensor of a sparse one."""
    if tensor._kind in parts.BLOCKS:
        return blocks.to_dense(tensor)
    return added(torch.zeros(tuple(tensor.shape), dtype=tensor.dtype), tensor)


def added(base: Any, tensor: Tensor, inplace: bool = False) -> Any:
    """A strided tensor plus a sparse one of its shape: only stored elements are added."""
    indices, values = coordinates(tensor), flat_values(tensor)
    if values.dtype is torch.bool:
        total = added(base.long(), parts.like(tensor, tensor._kept.long())) != 0
        return base.copy_(total) if inplace else total
    if indices.shape[0] == 0:
        total = values.sum(0)
        return base.add_(total) if inplace else base + total
    write = base.index_put_ if inplace else base.index_put
    return write(tuple(indices), values.to(base.dtype), accumulate=True)


def values_at(source: Any, pattern: Tensor) -> Any:
    """Values of a (strided or sparse) tensor at a sparse one's indices, in its values' shape.

    An element that a sparse source does not store is zero.
    """
    shape = tuple(pattern._kept.shape)
    places = coordinates(pattern)
    if not isinstance(source, SparseTensor):
        values = source[tuple(places)] if places.shape[0] else source.unsqueeze(0)
        return values.reshape(shape)
    if same_places(source, pattern) and source._unique:
        return source._kept
    coalesced = coalesce(to_coordinates(source))
    if parts.sparse_dim(coalesced) != places.shape[0]:
        return values_at(dense(source), pattern)
    position, present = find(coalesced, places)
    if coalesced._kept.shape[0] == 0:
        return torch.zeros(shape, dtype=source.dtype)
    column = (-1, *(1,) * (coalesced._kept.dim() - 1))
    values = coalesced._kept[position]
    return torch.where(present.reshape(column), values, torch.zeros_like(values)).reshape(shape)


def same_places(one: Tensor, other: Any) -> bool:
    """Whether two sparse tensors share their index tensors."""
    pairs = zip(one._index, other._index, strict=False)
    return one._kind is other._kind and all(a is b for a, b in pairs)


def find(coalesced: Tensor, places: Any) -> tuple[Any, Any]:
    """Positions of indices in a coalesced tensor, and whether it stores them."""
    sizes = parts.sparse_size(coalesced)
    keys, targets = linear(coalesced._index[0], sizes), linear(places, sizes)
    if keys.shape[0] == 0:
        return torch.zeros_like(targets), torch.zeros_like(targets, dtype=torch.bool)
    position = torch.searchsorted(keys, targets).clamp(max=keys.shape[0] - 1)
    return position, keys[position] == targets


# ------------------------------------------------------------------------------ to sparse
def to_sparse(
    self: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: Any = None,
    blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:
    """A sparse copy of a tensor.

    Args:
        sparse_dim: number of leading dimensions that are sparse; default: all.
        layout: `torch.sparse_coo` (the default), `torch.sparse_csr`, `torch.sparse_csc`,
            `torch.sparse_bsr` or `torch.sparse_bsc`.
        blocksize: of the layouts with blocks: two sizes, or one for both.
        dense_dim: number of trailing dimensions that are dense, of compressed layouts.

    Raises:
        RuntimeError: arguments that do not fit the tensor or each other.

    Example:
        >>> torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
        tensor(indices=tensor([[0],
                               [1]]),
               values=tensor([2.]),
               size=(2, 2), nnz=1, layout=torch.sparse_coo)
    """
    target = torch.sparse_coo if layout is None else layout
    if sparse_dim is not None and (layout is not None or blocksize is not None):
        raise RuntimeError(
            "[to_sparse] sparse_dim is given together with layout or blocksize\nhint: only one"
        )
    if blocksize is not None or target in (torch.sparse_bsr, torch.sparse_bsc):
        if target in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
            raise RuntimeError(
                f"[to_sparse] conversion to {target} does not use specified blocksize\n"
                "hint: leave it out"
            )
        return _to_blocks(self, target, blocksize, dense_dim)
    if target is torch.strided:
        return to_dense(self)
    if not isinstance(self, SparseTensor):
        return _from_dense(self, target, sparse_dim, dense_dim)
    return _from_sparse(self, target, sparse_dim, dense_dim)


def _to_blocks(tensor: Any, target: Any, blocksize: Any, dense_dim: int | None) -> Tensor:
    if blocksize is None:
        raise RuntimeError(
            f"[to_sparse] conversion to {target} requires blocksize\nhint: blocksize=(2, 2)"
        )
    if isinstance(tensor, SparseTensor):
        return blocks.of_sparse(tensor, target, blocksize)
    return blocks.of_dense(tensor, target, blocksize, dense_dim or 0)


def _from_sparse(tensor: Tensor, target: Any, sparse_dim: int | None, dense_dim: int | None) -> Any:
    if sparse_dim is not None and sparse_dim != parts.sparse_dim(tensor):
        raise RuntimeError(
            f"[to_sparse] conversion from {layout_name(tensor)} to {parts.LAYOUT_NAMES[target]} "
            "with sparse_dim argument !=self.sparse_dim() is not supported\nhint: to_dense() first"
        )
    if dense_dim is not None and dense_dim != parts.dense_dim(tensor):
        raise RuntimeError(
            "[to_sparse] dense_dim argument is only for strided tensors\nhint: to_dense() first"
        )
    if tensor._kind is target:
        return tensor
    if tensor._kind in parts.BLOCKS and target is not torch.sparse_coo:
        raise RuntimeError(
            f"[to_sparse] {layout_name(tensor)} to {parts.LAYOUT_NAMES[target]}: expected "
            f"SparseCsr or SparseCsc layout but got {layout_name(tensor)}\nhint: {blocks.HINT}"
        )
    if parts.batch_dim(tensor) and target is not torch.sparse_coo:
        return _from_dense(dense(tensor), target, None, parts.dense_dim(tensor))
    coordinate = to_coordinates(tensor)
    return coordinate if target is torch.sparse_coo else to_compressed(coordinate, target)


def _from_dense(tensor: Any, target: Any, sparse_dim: int | None, dense_dim: int | None) -> Tensor:
    if target is not torch.sparse_coo:
        return compressed_of_dense(tensor, target, dense_dim or 0)
    ndim = tensor.dim()
    chosen = ndim if sparse_dim is None else sparse_dim
    if dense_dim is not None:
        chosen = ndim - dense_dim
    if not 0 <= chosen <= ndim:
        raise RuntimeError(
            f"[to_sparse] sparse_dim argument must be in [0,{ndim}] range, but {chosen} is given\n"
            "hint: it counts the leading dimensions"
        )
    if chosen == 0 and ndim > 0:
        raise RuntimeError(
            "[to_sparse] sparse_dim argument must be in >0 when self.dim()>0\nhint: at least 1"
        )
    if ndim == 0:
        indices = torch.zeros((0, int(bool(tensor != 0))), dtype=torch.int64)
        element = tensor.reshape(1)[: indices.shape[1]]
        return make(torch.sparse_coo, (indices,), element, (), True)
    indices = _occupied(tensor, chosen).nonzero().t().contiguous()
    values = tensor[tuple(indices)]
    return make(torch.sparse_coo, (indices,), values, tensor.shape, True)


def _occupied(tensor: Any, leading: int) -> Any:
    """Where a tensor has something else than zeros, over its leading dimensions."""
    mask = tensor.detach() != 0
    return mask.flatten(leading).any(-1) if tensor.dim() > leading else mask


def compressed_of_dense(tensor: Any, layout: Any, dense_dim: int) -> Tensor:
    """A strided tensor in compressed form, its last `dense_dim` dimensions dense."""
    name = "to_" + str(layout).removeprefix("torch.")
    if tensor.dim() < 2:
        raise IndexError(
            f"[{name}] a tensor of {tensor.dim()} dimensions has no rows and columns\n"
            "hint: unsqueeze it"
        )
    if not 0 <= dense_dim <= tensor.dim() - 2:
        raise RuntimeError(
            f"[{name}] dense_dim argument must be in [0,{tensor.dim() - 2}] range, but "
            f"{dense_dim} is given\nhint: it counts the trailing dimensions"
        )
    batch = tensor.dim() - 2 - dense_dim
    turned = tensor.transpose(batch, batch + 1) if layout is torch.sparse_csc else tensor
    mask = _occupied(turned, batch + 2)
    if not batch:
        places = mask.nonzero().t().contiguous()
        index = (_compressed(places[0], turned.shape[0]), places[1])
        return make(layout, index, turned[tuple(places)], tensor.shape)
    batches = tuple(tensor.shape[:batch])
    counts = mask.sum(-1)
    totals = counts.flatten(batch).sum(-1).reshape(-1)
    nnz = int(totals[0]) if totals.numel() else 0
    if bool((totals != nnz).any()):
        raise RuntimeError(
            f"[{name}] Expect the same number of specified elements per batch.\n"
            "hint: convert the matrices one by one"
        )
    places = mask.nonzero().t().contiguous()
    compressed = torch.cat([counts.new_zeros((*batches, 1)), counts.cumsum(-1)], -1)
    plain = places[-1].reshape(*batches, nnz)
    values = turned[tuple(places)].reshape(*batches, nnz, *tensor.shape[batch + 2 :])
    return make(layout, (compressed, plain), values, tensor.shape)


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """Returns the tensor's elements at the indices of the sparse tensor `mask`.

    Shape: both have one shape; the result is sparse, of `mask`'s layout.

    Raises:
        RuntimeError: shapes differ.
        NotImplementedError: `mask` is not sparse.

    Example:
        >>> mask = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).to_sparse()
        >>> torch.tensor([[1.0, 2.0], [3.0, 4.0]]).sparse_mask(mask).values()
        tensor([1., 4.])
    """
    if not isinstance(mask, SparseTensor):
        raise NotImplementedError(
            "[sparse_mask] not implemented for a strided mask\nhint: mask.to_sparse()"
        )
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(
            f"[sparse_mask] operands have incompatible sizes; self has size {list(self.shape)} "
            f"but mask has size {list(mask.shape)}\nhint: they must be equal"
        )
    return parts.like(mask, values_at(self, mask))
