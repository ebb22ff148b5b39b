"""The methods that tensors of every layout have: parts of sparse tensors, and conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.core import tensors
from flambeau.core.tensors import Tensor
from flambeau.sparse import convert
from flambeau.sparse import tensor as parts
from flambeau.sparse.tensor import SparseTensor, layout_name

_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def _expect(tensor: Tensor, name: str, layouts: tuple[Any, ...], what: str) -> Tensor:
    if tensor.layout not in layouts:
        raise RuntimeError(
            f"[{name}] expected sparse {what} tensor layout but got {layout_name(tensor)}\n"
            "hint: convert it with to_sparse(layout=...)"
        )
    return tensor


def _known(tensor: Tensor, name: str) -> Tensor:
    """A sparse tensor; PyTorch does not have the method for strided ones."""
    if not isinstance(tensor, SparseTensor):
        parts.refuse(tensor, name, "convert it with to_sparse()")
    return tensor


def _coordinate(tensor: Tensor, name: str) -> Tensor:
    return _expect(tensor, name, (torch.sparse_coo,), "coordinate")


def coalesce(self: Tensor) -> Tensor:
    """A `sparse_coo` tensor that stores every index once, in row-major order.

    Values of one place are added in their order. A coalesced tensor is returned itself.

    Raises:
        RuntimeError: the layout is another.

    Example:
        >>> torch.sparse_coo_tensor([[1, 1]], [2.0, 3.0], (3,)).coalesce()
        tensor(indices=tensor([[1]]),
               values=tensor([5.]),
               size=(3,), nnz=1, layout=torch.sparse_coo)
    """
    return convert.coalesce(_coordinate(self, "coalesce"))


def is_coalesced(self: Tensor) -> bool:
    """Whether a `sparse_coo` tensor is known to store every index once, in order."""
    return bool(_coordinate(self, "is_coalesced")._unique)


def _known_unique(tensor: Tensor, name: str) -> Tensor:
    if not _coordinate(tensor, name)._unique:
        raise RuntimeError(
            f"[{name}] Cannot get {name} on an uncoalesced tensor, please call .coalesce() first\n"
            f"hint: x.coalesce().{name}()"
        )
    return tensor


def indices(self: Tensor) -> Tensor:
    """(sparse dimensions, nnz) int64: the indices of a coalesced `sparse_coo` tensor.

    Raises:
        RuntimeError: it is not coalesced, or the layout is another.
    """
    return _known_unique(self, "indices")._index[0]


def values(self: Tensor) -> Tensor:
    """(nnz, *dense): the stored elements; differentiable.

    Raises:
        RuntimeError: a `sparse_coo` tensor is not coalesced, or the layout is strided.
    """
    if self.layout in (*parts.COMPRESSED, *parts.BLOCKS):
        return self._kept
    return _known_unique(self, "values")._kept


def _indices(self: Tensor) -> Tensor:
    """The indices of a `sparse_coo` tensor, coalesced or not."""
    return _coordinate(_known(self, "_indices"), "_indices")._index[0]


def _values(self: Tensor) -> Tensor:
    """The values of a `sparse_coo` tensor, coalesced or not, outside of the autograd graph."""
    return _coordinate(_known(self, "_values"), "_values")._kept.detach()


def _nnz(self: Tensor) -> int:
    """Number of stored elements (per batch)."""
    return parts.count(_known(self, "_nnz"))


def crow_indices(self: Tensor) -> Tensor:
    """(*batch, rows + 1): where each row of a `sparse_csr` tensor begins among the values.

    Raises:
        RuntimeError: the layout is another.
    """
    return _expect(self, "crow_indices", _ROWS, "row compressed")._index[0]


def col_indices(self: Tensor) -> Tensor:
    """(*batch, nnz): the columns of a `sparse_csr` tensor's values."""
    return _expect(self, "col_indices", _ROWS, "row compressed")._index[1]


def ccol_indices(self: Tensor) -> Tensor:
    """(*batch, columns + 1): where each column of a `sparse_csc` tensor begins."""
    return _expect(self, "ccol_indices", _COLUMNS, "column compressed")._index[0]


def row_indices(self: Tensor) -> Tensor:
    """(*batch, nnz): the rows of a `sparse_csc` tensor's values."""
    return _expect(self, "row_indices", _COLUMNS, "column compressed")._index[1]


def sparse_dim(self: Tensor) -> int:
    """Number of sparse dimensions; 0 of a strided tensor."""
    return parts.sparse_dim(self) if isinstance(self, SparseTensor) else 0


def dense_dim(self: Tensor) -> int:
    """Number of dense dimensions; all of a strided tensor."""
    return parts.dense_dim(self) if isinstance(self, SparseTensor) else self.dim()


def to_sparse_coo(self: Tensor) -> Tensor:
    """The tensor as `sparse_coo`; see `to_sparse`."""
    return convert.to_sparse(self)


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The tensor as `sparse_csr`; see `to_sparse`.

    Example:
        >>> torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse_csr().crow_indices()
        tensor([0, 1, 1])
    """
    return convert.to_sparse(self, layout=torch.sparse_csr, dense_dim=dense_dim)


def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The tensor as `sparse_csc`; see `to_sparse`."""
    return convert.to_sparse(self, layout=torch.sparse_csc, dense_dim=dense_dim)


def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The tensor as `sparse_bsr`: blocks by rows.

    Args:
        blocksize: sizes of a block, which divide the matrix.
        dense_dim: number of trailing dimensions that are dense.

    Example:
        >>> x = torch.tensor([[1.0, 2.0, 0.0, 0.0]])
        >>> x.to_sparse_bsr((1, 2)).values()
        tensor([[[1., 2.]]])
    """
    return convert.to_sparse(
        self, layout=torch.sparse_bsr, blocksize=blocksize, dense_dim=dense_dim
    )


def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The tensor as `sparse_bsc`: blocks by columns; see `to_sparse_bsr`."""
    return convert.to_sparse(
        self, layout=torch.sparse_bsc, blocksize=blocksize, dense_dim=dense_dim
    )


def sparse_resize_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Gives a `sparse_coo` tensor other sizes in place; every stored element must fit.

    Raises:
        RuntimeError: dimensions change their kind, or shrink while elements are stored.
    """
    sizes = tuple(size)
    tensor = _coordinate(self, "sparse_resize_")
    if len(sizes) != sparse_dim + dense_dim:
        raise RuntimeError(
            f"[sparse_resize_] {len(sizes)} sizes, {sparse_dim} sparse and {dense_dim} dense "
            "dimensions do not fit\nhint: one size per dimension"
        )
    same = (sparse_dim, dense_dim) == (parts.sparse_dim(tensor), parts.dense_dim(tensor))
    if parts.count(tensor):
        grows = same and all(n >= o for n, o in zip(sizes, tensor.shape, strict=True))
        if not grows or sizes[sparse_dim:] != parts.dense_size(tensor):
            raise RuntimeError(
                "[sparse_resize_] shrinking sizes, dense sizes or another number of dimensions "
                "is not supported while elements are kept\nhint: sparse_resize_and_clear_"
            )
        resized = parts.make(torch.sparse_coo, tensor._index, tensor._kept, sizes, tensor._unique)
        return parts.take_over(self, resized)
    return sparse_resize_and_clear_(self, sizes, sparse_dim, dense_dim)


def sparse_resize_and_clear_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Gives a `sparse_coo` tensor other sizes in place and removes all elements."""
    _coordinate(self, "sparse_resize_and_clear_")
    sizes = tuple(size)
    if len(sizes) != sparse_dim + dense_dim:
        raise RuntimeError(
            "[sparse_resize_and_clear_] number of sizes must be sparse_dim + dense_dim\n"
            "hint: one size per dimension"
        )
    places = torch.zeros((sparse_dim, 0), dtype=torch.int64)
    values = torch.zeros((0, *sizes[sparse_dim:]), dtype=self.dtype)
    return parts.take_over(self, parts.make(torch.sparse_coo, (places,), values, sizes, True))


METHODS: tuple[Callable[..., Any], ...] = (
    coalesce, is_coalesced, indices, values, _indices, _values, _nnz, crow_indices, col_indices,
    ccol_indices, row_indices, sparse_dim, dense_dim, convert.to_sparse, to_sparse_coo,
    to_sparse_csr, to_sparse_csc, to_sparse_bsr, to_sparse_bsc, convert.to_dense,
    convert.sparse_mask, sparse_resize_, sparse_resize_and_clear_,
)  # fmt: skip


def install() -> None:
    """Gives tensors the methods; `core.tensor` calls it on the first access to one of them."""
    for method in METHODS:
        tensors.define_method(method.__name__, method)
