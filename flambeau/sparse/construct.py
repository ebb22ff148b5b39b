"""New sparse tensors of their parts: `torch.sparse_coo_tensor` and its compressed relatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.sparse import invariants
from flambeau.sparse.tensor import BLOCKS, COMPRESSED, LAYOUT_NAMES, ROW_MAJOR, make

Data = Any


class Options(TypedDict, total=False):
    """The named options of the constructors of one compressed layout, as of `sparse_coo_tensor`."""

    dtype: Any
    layout: Any
    device: Any
    pin_memory: bool
    requires_grad: bool
    check_invariants: bool | None


def _index_tensor(data: Data, default: Any = torch.int64) -> Any:
    """Indices as given, PyTorch's way: lists and other numbers become int64."""
    if isinstance(data, Tensor):
        return data.detach() if data.dtype in (torch.int32, torch.int64) else data.long()
    return torch.tensor(data, dtype=default)


def _value_tensor(data: Data, dtype: Any, device: Any, requires_grad: bool) -> Any:
    """Values as a tensor of their own place in the graph, over the memory that was given."""
    if not isinstance(data, Tensor):
        values = torch.tensor(data, dtype=dtype, device=device)
    else:
        values = data if dtype is None else data.to(dtype)
        values = values if device is None else values.to(device)
        tracked = values.requires_grad and torch.is_grad_enabled() and not requires_grad
        values = values.view(values.shape) if tracked else values.detach()
    if not values.is_cpu:
        raise NotImplementedError(
            f"[sparse] sparse tensors on {values.device} are not supported\nhint: use the CPU"
        )
    return values.requires_grad_() if requires_grad else values


def _checked_size(size: Any) -> tuple[int, ...]:
    sizes = tuple(int(extent) for extent in size)
    if any(extent < 0 for extent in sizes):
        raise RuntimeError(
            f"[sparse] sizes must not be negative, got {list(sizes)}\nhint: count elements"
        )
    return sizes


def sparse_coo_tensor(
    indices: Data,
    values: Data = None,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A tensor in coordinate form: `result[indices[:, k]] += values[k]` for every k.

    Args:
        indices: (sparse dimensions, nnz) integers; or, alone, the size of an empty tensor.
        values: (nnz, *dense sizes).
        size: of the result; default: the smallest that holds all indices.
        dtype: of the values; default: that of `values`.
        device: "cpu".
        pin_memory: accepted; there is no pinned memory.
        requires_grad: the result is a leaf that requires a gradient.
        check_invariants: read the indices and raise where they are out of range; default: the
            state of `torch.sparse.check_sparse_tensor_invariants`.
        is_coalesced: the indices are sorted and distinct.

    Raises:
        RuntimeError: sizes of the parts do not fit, or an index is found out of range.

    Example:
        >>> s = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
        >>> s
        tensor(indices=tensor([[0, 1, 1],
                               [2, 0, 2]]),
               values=tensor([3., 4., 5.]),
               size=(2, 3), nnz=3, layout=torch.sparse_coo)
        >>> s.to_dense()
        tensor([[0., 0., 3.],
                [4., 0., 5.]])
    """
    del pin_memory
    if values is None:
        return _empty(indices, dtype, device).requires_grad_(requires_grad)
    places = _index_tensor(indices).long()
    stored = _value_tensor(values, dtype, device, requires_grad)
    places = places.unsqueeze(0) if places.dim() == 1 and size is None else places
    stored = stored.unsqueeze(0) if stored.dim() == 0 else stored
    if places.dim() == 1:  # a vector is one index with as many dimensions: then sizes do not fit
        places = places.unsqueeze(1)
    sizes = _smallest_size(places, stored) if size is None else _checked_size(size)
    invariants.check_coordinate_shapes(places, stored, sizes)
    unique = bool(is_coalesced)
    if invariants.wanted(check_invariants):
        invariants.check(torch.sparse_coo, (places,), stored, sizes, unique)
    return make(torch.sparse_coo, (places,), stored, sizes, unique)


def _empty(size: Any, dtype: Any, device: Any) -> Any:
    """A tensor that stores no element."""
    sizes = _checked_size(size)
    indices = torch.zeros((len(sizes), 0), dtype=torch.int64)
    values = torch.zeros(0, dtype=dtype, device=device)
    return make(torch.sparse_coo, (indices,), values, sizes, True)


def _smallest_size(indices: Any, values: Any) -> tuple[int, ...]:
    dense = tuple(values.shape[1:])
    if indices.numel() == 0:
        return (0,) * indices.shape[0] + dense
    for dim, low in enumerate(indices.amin(1).tolist()):
        if low < 0:
            raise invariants.problem(
                torch.sparse_coo, f"found negative index {low} for dim {dim}", "count from 0"
            )
    return (*(high + 1 for high in indices.amax(1).tolist()), *dense)


def sparse_compressed_tensor(
    compressed_indices: Data,
    plain_indices: Data,
    values: Data,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A tensor in compressed form: rows (`torch.sparse_csr`) or columns (`torch.sparse_csc`).

    Of `torch.sparse_bsr` and `torch.sparse_bsc` an element is a block: indices count blocks, and
    values are (*batch, nnz, height, width, *dense sizes).

    The elements of row i are `values[compressed[i] : compressed[i + 1]]`, in the columns
    `plain[compressed[i] : compressed[i + 1]]`. Leading dimensions of all parts are batches.

    Args:
        compressed_indices: (*batch, rows + 1) int32 or int64.
        plain_indices: (*batch, nnz), sorted within a row.
        values: (*batch, nnz, *dense sizes).
        size: (*batch, rows, columns, *dense sizes); default: the smallest that fits.
        layout: `torch.sparse_csr`, `torch.sparse_csc`, `torch.sparse_bsr` or `torch.sparse_bsc`.
        dtype, device, pin_memory, requires_grad, check_invariants: as in `sparse_coo_tensor`.

    Raises:
        RuntimeError: sizes of the parts do not fit, or indices are out of range or order.

    Example:
        >>> c = torch.sparse_compressed_tensor(
        ...     [0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], (2, 3), layout=torch.sparse_csr)
        >>> c.to_dense()
        tensor([[0., 0., 3.],
                [4., 0., 5.]])
    """
    del pin_memory
    _check_layout(layout)
    parts = (_index_tensor(compressed_indices), _index_tensor(plain_indices))
    stored = _value_tensor(values, dtype, device, requires_grad)
    if size is None:
        sizes = _smallest_compressed(layout, *parts, stored)
    else:
        sizes = _checked_size(size)
    invariants.check_compressed_shapes(layout, *parts, stored, sizes)
    if invariants.wanted(check_invariants):
        invariants.check(layout, parts, stored, sizes, True)
    return make(layout, parts, stored, sizes, True)


def _check_layout(layout: Any) -> None:
    if layout in COMPRESSED or layout in BLOCKS:
        return
    name = "none" if layout is None else LAYOUT_NAMES[layout]
    raise RuntimeError(
        "[sparse_compressed_tensor] expected sparse compressed tensor layout but got "
        f"{name}\nhint: layout=torch.sparse_csr"
    )


def _of_layout(layout: Any, parts: tuple[Any, ...], options: Options) -> Tensor:
    """Constructs a tensor of one layout; `layout=` may name that layout, too.

    Raises:
        RuntimeError: `layout=` names another.
    """
    named = options.get("layout")
    if named not in (None, layout):
        raise RuntimeError(
            f"[{str(layout).rpartition('.')[2]}_tensor] layout must be {layout} but got {named}\n"
            "hint: sparse_compressed_tensor takes every compressed layout"
        )
    return sparse_compressed_tensor(*parts, **{**options, "layout": layout})


def _smallest_compressed(layout: Any, compressed: Any, plain: Any, values: Any) -> tuple[int, ...]:
    if compressed.dim() == 0 or values.dim() < compressed.dim():
        return ()
    batch = compressed.dim() - 1
    along = max(compressed.shape[-1] - 1, 0)
    across = int(plain.max()) + 1 if plain.numel() else 0
    rows, columns = (along, across) if BLOCKS.get(layout, layout) is ROW_MAJOR else (across, along)
    first = batch + 1
    if layout in BLOCKS:
        if values.dim() < batch + 3:
            return ()
        rows, columns = rows * values.shape[first], columns * values.shape[first + 1]
        first += 2
    return (*compressed.shape[:-1], rows, columns, *values.shape[first:])


def sparse_csr_tensor(
    crow_indices: Data,
    col_indices: Data,
    values: Data,
    size: Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """A tensor in compressed sparse row form; see `torch.sparse_compressed_tensor`.

    Example:
        >>> torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], (2, 3))
        tensor(crow_indices=tensor([0, 1, 3]),
               col_indices=tensor([2, 0, 2]),
               values=tensor([3., 4., 5.]), size=(2, 3), nnz=3,
               layout=torch.sparse_csr)
    """
    return _of_layout(torch.sparse_csr, (crow_indices, col_indices, values, size), options)


def sparse_csc_tensor(
    ccol_indices: Data,
    row_indices: Data,
    values: Data,
    size: Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """A tensor in compressed sparse column form; see `torch.sparse_compressed_tensor`.

    Example:
        >>> torch.sparse_csc_tensor([0, 1, 1, 2], [1, 0], [4.0, 5.0], (2, 3)).to_dense()
        tensor([[0., 0., 5.],
                [4., 0., 0.]])
    """
    return _of_layout(torch.sparse_csc, (ccol_indices, row_indices, values, size), options)


def sparse_bsr_tensor(
    crow_indices: Data,
    col_indices: Data,
    values: Data,
    size: Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """A matrix of blocks by rows; see `torch.sparse_compressed_tensor`.

    Example:
        >>> torch.sparse_bsr_tensor([0, 1], [1], [[[1.0, 2.0]]], (1, 4)).to_dense()
        tensor([[0., 0., 1., 2.]])
    """
    return _of_layout(torch.sparse_bsr, (crow_indices, col_indices, values, size), options)


def sparse_bsc_tensor(
    ccol_indices: Data,
    row_indices: Data,
    values: Data,
    size: Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """A matrix of blocks by columns; see `torch.sparse_compressed_tensor`.

    Example:
        >>> torch.sparse_bsc_tensor([0, 0, 1], [0], [[[1.0, 2.0]]], (1, 4)).to_dense()
        tensor([[0., 0., 1., 2.]])
    """
    return _of_layout(torch.sparse_bsc, (ccol_indices, row_indices, values, size), options)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> Tensor:
    """A matrix with the rows of `diagonals` along its diagonals.

    Args:
        diagonals: (k, n), or (n,) for one: element j of a row is in column j.
        offsets: (k,) int64, distinct: which diagonals; positive above the main one.
        shape: two sizes.
        layout: of the result; default `torch.sparse_coo`.

    Raises:
        RuntimeError: shapes do not fit, offsets repeat, or the layout is no sparse one.

    Example:
        >>> torch.sparse.spdiags(torch.ones(1, 3), torch.tensor([1]), (3, 3)).to_dense()
        tensor([[0., 1., 0.],
                [0., 0., 1.],
                [0., 0., 0.]])
    """
    rows = diagonals.unsqueeze(0) if diagonals.dim() == 1 else diagonals
    places = offsets.reshape(-1)
    _check_diagonals(rows, offsets, places, shape, layout)
    height, width = shape
    column = torch.arange(min(rows.shape[1], width)).expand(rows.shape[0], -1)
    row = column - places.unsqueeze(1)
    inside = (row >= 0) & (row < height)
    indices = torch.stack([row[inside], column[inside]])
    values = rows[:, : column.shape[1]][inside]
    result = make(torch.sparse_coo, (indices,), values, (height, width))
    return result if layout in (None, torch.sparse_coo) else result.to_sparse(layout=layout)


def _check_diagonals(rows: Any, offsets: Any, places: Any, shape: Any, layout: Any) -> None:
    def need(holds: bool, what: str) -> None:
        if not holds:
            raise RuntimeError(f"[spdiags] {what}\nhint: (k, n) diagonals, (k,) offsets")

    need(rows.dim() == 2, "Diagonals must be vector or matrix")
    need(offsets.dim() <= 1, "Offsets must be scalar or vector")
    need(len(shape) == 2, "Output shape must be 2d")
    need(
        rows.shape[0] == places.shape[0],
        f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets "
        f"({places.shape[0]})",
    )
    need(places.dtype is torch.int64, f"Offset Tensor must have dtype Long but got {places.dtype}")
    need(len(set(places.tolist())) == places.shape[0], "Offset tensor contains duplicate values")
    fine = (None, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
    need(layout in fine, f"Only output layouts (Sparse, SparseCsc, SparseCsr) supported: {layout}")
