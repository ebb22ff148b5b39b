"""Sparse tensors permuted, sliced and joined: changes of the indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.sparse import blocks, convert
from flambeau.sparse import tensor as parts
from flambeau.sparse.reduce import wrapped
from flambeau.sparse.tensor import BLOCKS, COMPRESSED, SparseTensor, make, refuse

_TURNED = {torch.sparse_csr: torch.sparse_csc, torch.sparse_csc: torch.sparse_csr}


# ------------------------------------------------------------------------------ order of dimensions
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions of one kind exchanged; a CSR matrix becomes CSC without any work."""
    one, two = wrapped(dim0, input.dim()), wrapped(dim1, input.dim())
    if one == two:
        return input
    if input.layout in COMPRESSED or input.layout in BLOCKS:
        return _transpose_compressed(input, one, two)
    order = list(range(input.dim()))
    order[one], order[two] = two, one
    return permute(input, order)


def _transpose_compressed(tensor: Tensor, one: int, two: int) -> Tensor:
    first = parts.batch_dim(tensor)
    if {one, two} != {first, first + 1}:
        raise RuntimeError(
            "[transpose] of a compressed tensor exchanges rows and columns only, got dimensions "
            f"{one} and {two}\nhint: to_sparse_coo() first"
        )
    if tensor.layout in BLOCKS:
        return blocks.transpose(tensor)
    size = list(tensor.shape)
    size[first], size[first + 1] = size[first + 1], size[first]
    return make(_TURNED[tensor.layout], tensor._index, tensor._kept, size)


def t(input: Tensor) -> Any:
    """A matrix with its dimensions exchanged; vectors as they are."""
    if input.dim() > 2:
        raise RuntimeError(
            f"[t] expects a tensor with <= 2 dimensions, but self is {input.dim()}D\n"
            "hint: use transpose"
        )
    return input if input.dim() < 2 else transpose(input, 0, 1)


def last_two(input: Any) -> Any:
    """`mT`."""
    return transpose(input, -2, -1)


def adjoint(input: Any) -> Any:
    """`mH`."""
    turned = transpose(input, -2, -1)
    return turned.conj_physical() if turned.is_complex() else turned


def reversed_dims(input: Any) -> Any:
    """`T`."""
    return permute(input, list(range(input.dim()))[::-1])


def permute(input: Tensor, *dims: Any) -> Any:
    """Dimensions in another order; sparse ones stay before dense ones."""
    requested = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    order = [wrapped(d, input.dim()) for d in requested]
    if sorted(order) != list(range(input.dim())):
        raise RuntimeError(
            f"[permute] {list(requested)} is no order of {input.dim()} dimensions\nhint: each once"
        )
    if input.layout in COMPRESSED or input.layout in BLOCKS:
        first = parts.batch_dim(input)
        moved = [d for d, source in enumerate(order) if d != source]
        return _transpose_compressed(input, first, first + 1) if len(moved) == 2 else input
    leading = parts.sparse_dim(input)
    if any(d >= leading for d in order[:leading]):
        raise RuntimeError(
            "[permute] transpositions between sparse and dense dimensions are not allowed\n"
            "hint: to_dense() first"
        )
    indices = input._index[0][order[:leading]]
    values = input._kept.permute(0, *(d - leading + 1 for d in order[leading:]))
    unique = input._unique and order[:leading] == sorted(order[:leading])
    return make(torch.sparse_coo, (indices,), values, [input.shape[d] for d in order], unique)


# ------------------------------------------------------------------------------ parts
def _position(index: int, extent: int, dim: int) -> int:
    if not -extent <= index < extent:
        raise IndexError(
            f"[select] index {index} out of range for tensor of size {extent} at dimension {dim}\n"
            "hint: count from 0, or from -1 backwards"
        )
    return index % extent


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Selects one index along a dimension, and removes the dimension."""
    if input.dim() == 0:
        raise IndexError("[select] cannot be applied to a 0-dim tensor\nhint: it has no dimensions")
    place = wrapped(dim, input.dim())
    at = _position(int(index), input.shape[place], place)
    if input.layout in COMPRESSED:
        if place < parts.batch_dim(input):
            index_parts = tuple(part.select(place, at) for part in input._index)
            size = [n for d, n in enumerate(input.shape) if d != place]
            return make(input.layout, index_parts, input._kept.select(place, at), size)
        input = convert.to_coordinates(input)  # noqa: A001
    leading = parts.sparse_dim(input)
    size = [n for d, n in enumerate(input.shape) if d != place]
    if place >= leading:
        values = input._kept.select(place - leading + 1, at)
        return make(torch.sparse_coo, input._index, values, size, input._unique)
    mine = (input._index[0][place] == at).nonzero().squeeze(1)
    if leading == 1:
        return input._kept[mine].sum(0).to(input.dtype)
    rows = [d for d in range(leading) if d != place]
    indices = input._index[0][rows][:, mine]
    return make(torch.sparse_coo, (indices,), input._kept[mine], size, input._unique)


def narrow(input: Any, dim: int, start: Any, length: int) -> Any:
    """`narrow_copy`: `length` elements from `start` on along a dimension."""
    place = wrapped(dim, input.dim())
    extent = input.shape[place]
    first = int(start) + extent if int(start) < 0 else int(start)
    if not 0 <= first <= extent - length or length < 0:
        raise RuntimeError(
            f"[narrow] start ({start}) + length ({length}) exceeds dimension size ({extent}).\n"
            "hint: stay inside"
        )
    source = convert.to_coordinates(input)
    leading = parts.sparse_dim(source)
    size = list(source.shape)
    size[place] = length
    if place >= leading:
        values = source._kept.narrow(place - leading + 1, first, length)
        return make(torch.sparse_coo, source._index, values, size, source._unique)
    row = source._index[0][place]
    mine = ((row >= first) & (row < first + length)).nonzero().squeeze(1)
    indices = source._index[0][:, mine]
    offset = torch.zeros((leading, 1), dtype=torch.int64)
    offset[place] = first
    return make(torch.sparse_coo, (indices - offset,), source._kept[mine], size, source._unique)


def index_select(input: Any, dim: int, index: Any) -> Any:
    """The slices along a dimension that `index` names, in its order."""
    if input.layout in COMPRESSED:
        refuse(input, "index_select", "convert it with to_sparse_coo()")
    place = wrapped(dim, input.dim())
    leading = parts.sparse_dim(input)
    chosen = index.reshape(-1).long()
    size = list(input.shape)
    extent, size[place] = size[place], chosen.shape[0]
    if place >= leading:
        values = input._kept.index_select(place - leading + 1, chosen)
        return make(torch.sparse_coo, input._index, values, size, input._unique)
    if bool(((chosen < 0) | (chosen >= extent)).any()):
        raise IndexError("[index_select] index out of range in self\nhint: indices lie in [0, n)")
    # Every stored element is paired with the entries of `index` that name its slice.
    named, order = torch.sort(chosen, stable=True)
    row = input._index[0][place].contiguous()
    first = torch.searchsorted(named, row)
    repeats = torch.searchsorted(named, row, right=True) - first
    ends = repeats.cumsum(0)
    term = convert.groups(ends, int(ends[-1]) if row.shape[0] else 0)
    within = torch.arange(term.shape[0]) - (ends - repeats)[term]
    rows = list(input._index[0][:, term])
    rows[place] = order[first[term] + within]
    return make(torch.sparse_coo, (torch.stack(rows),), input._kept[term], size)


def unbind(input: Any, dim: int = 0) -> tuple[Any, ...]:
    """All slices along a dimension."""
    place = wrapped(dim, input.dim())
    return tuple(select(input, place, k) for k in range(input.shape[place]))


def subscript(tensor: Tensor, key: Any) -> Tensor:
    """`tensor[key]` for integers, None, Ellipsis and slices of step 1.

    Raises:
        NotImplementedError: masks, index tensors, other steps.
        IndexError: too many indices, or one out of range.
    """
    items = list(key) if isinstance(key, tuple) else [key]
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > tensor.dim():
        raise IndexError(
            f"[getitem] too many indices for tensor of dimension {tensor.dim()}\nhint: drop some"
        )
    if Ellipsis in [item for item in items if not isinstance(item, torch.Tensor)]:
        at = next(k for k, item in enumerate(items) if item is Ellipsis)
        items[at : at + 1] = [slice(None)] * (tensor.dim() - used)
    dim = 0
    for item in items:
        if item is None:
            tensor, dim = tensor.unsqueeze(dim), dim + 1
        elif isinstance(item, slice):
            tensor, dim = _sliced(tensor, dim, item), dim + 1
        elif _is_integer(item):
            tensor = tensor.select(dim, int(item))
        else:
            refuse(tensor, "getitem", "integers and slices select; use index_select for lists")
    return tensor


def _is_integer(item: Any) -> bool:
    if isinstance(item, torch.Tensor):
        integral = not item.is_floating_point() and item.dtype is not torch.bool
        return bool(item.dim() == 0 and integral)
    return isinstance(item, int) and not isinstance(item, bool)


def _sliced(tensor: Tensor, dim: int, item: slice) -> Any:
    start, stop, step = item.indices(tensor.shape[dim])
    if step != 1:
        if not isinstance(tensor, SparseTensor):
            return tensor[(slice(None),) * dim + (item,)]
        refuse(tensor, "getitem", "slices have step 1; use index_select")
    if (start, stop) == (0, tensor.shape[dim]):
        return tensor
    return tensor.narrow(dim, start, max(stop - start, 0))


# ------------------------------------------------------------------------------ more dimensions
def unsqueeze(input: Any, dim: int) -> Any:
    """A dimension of size 1 more; a sparse one if it is inserted among the sparse ones."""
    if input.layout in COMPRESSED:
        refuse(input, "unsqueeze", "convert it with to_sparse_coo()")
    place = wrapped(dim, input.dim() + 1)
    size = list(input.shape)
    size.insert(place, 1)
    leading = parts.sparse_dim(input)
    if place > leading:
        values = input._kept.unsqueeze(place - leading + 1)
        return make(torch.sparse_coo, input._index, values, size, input._unique)
    rows = input._index[0]
    zeros = torch.zeros((1, rows.shape[1]), dtype=torch.int64)
    indices = torch.cat([rows[:place], zeros, rows[place:]])
    return make(torch.sparse_coo, (indices,), input._kept, size, input._unique)


def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Sparse tensors of one kind joined along a dimension."""
    for position, item in enumerate(tensors):
        if not isinstance(item, SparseTensor) or item.layout is not torch.sparse_coo:
            raise RuntimeError(
                f"[cat] Concatenating sparse tensors, but a {item.layout} tensor was found at "
                f"position {position}.\nhint: convert it with to_sparse_coo()"
            )
    first = tensors[0]
    place, leading = wrapped(dim, first.dim()), parts.sparse_dim(first)
    _check_joinable(tensors, place)
    size = list(first.shape)
    size[place] = sum(item.shape[place] for item in tensors)
    if place >= leading:
        return _cat_dense(tensors, place, size)
    indices, start = [], 0
    for item in tensors:
        offset = torch.zeros((leading, 1), dtype=torch.int64)
        offset[place] = start
        indices.append(item._index[0] + offset)
        start += item.shape[place]
    values = torch.cat([item._kept for item in tensors])
    return make(torch.sparse_coo, (torch.cat(indices, 1),), values, size)


def _cat_dense(tensors: Sequence[Any], place: int, size: list[int]) -> Any:
    """Values widened by zeros: every element of one operand has only its part of the sizes."""
    leading = parts.sparse_dim(tensors[0])
    inner, values, start = place - leading + 1, [], 0
    for item in tensors:
        shape = list(item._kept.shape)
        shape[inner] = start
        after = list(item._kept.shape)
        after[inner] = size[place] - start - item.shape[place]
        around = (item._kept.new_zeros(shape), item._kept.new_zeros(after))
        values.append(torch.cat([around[0], item._kept, around[1]], inner))
        start += item.shape[place]
    indices = torch.cat([item._index[0] for item in tensors], 1)
    return make(torch.sparse_coo, (indices,), torch.cat(values), size)


def _check_joinable(tensors: Sequence[Any], place: int) -> None:
    first = tensors[0]
    for item in tensors[1:]:
        same = item.dim() == first.dim() and parts.sparse_dim(item) == parts.sparse_dim(first)
        if not same or any(
            a != b
            for d, (a, b) in enumerate(zip(item.shape, first.shape, strict=True))
            if d != place
        ):
            raise RuntimeError(
                f"[cat] All tensors must have the same shape: {list(first.shape)} (except in the "
                f"concatenating dimension), but found shape: {list(item.shape)}\n"
                "hint: and the same number of sparse dimensions"
            )


def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Sparse tensors of one shape joined along a new sparse dimension."""
    return cat([unsqueeze(item, dim) for item in tensors], dim)


def vstack(tensors: Sequence[Any]) -> Any:
    """Joined along the first dimension."""
    return cat([unsqueeze(item, 0) if item.dim() < 2 else item for item in tensors], 0)


def hstack(tensors: Sequence[Any]) -> Any:
    """Joined along the second dimension (the first of vectors)."""
    return cat(list(tensors), 0 if tensors[0].dim() == 1 else 1)
