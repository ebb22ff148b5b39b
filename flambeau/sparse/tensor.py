"""Sparse tensors: the indices of stored elements, and their values.

A sparse tensor is a `Tensor` by type. It holds index tensors and one tensor of values, which are
ordinary dense tensors; its own memory is a single zero that every position shows, so that sizes,
dtype and device are answered by the native type. Every operator hands a call with a sparse tensor
to `__torch_function__` here, and `sparse.dispatch` composes the result of operators on the dense
parts. So there is nothing sparse below this package: no kernel, no derivative of its own. The
gradient of a sparse tensor is the gradient of its values at the same indices.

Layouts: `sparse_coo` stores `indices` (sparse dimensions, nnz); `sparse_csr` and `sparse_csc` store
compressed rows (columns) and plain columns (rows), see `torch.sparse_compressed_tensor`;
`sparse_bsr` and `sparse_bsc` store whole blocks (`blocks.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import flambeau as torch
from flambeau.autograd.composite import Composite, hollow, zero
from flambeau.core import tensors
from flambeau.core.tensors import Tensor

ROW_MAJOR = torch.sparse_csr
COLUMN_MAJOR = torch.sparse_csc
COMPRESSED = (ROW_MAJOR, COLUMN_MAJOR)
# Layouts of blocks, and the layout of the matrix whose elements are the blocks.
BLOCKS = {torch.sparse_bsr: ROW_MAJOR, torch.sparse_bsc: COLUMN_MAJOR}
LAYOUT_NAMES = {
    torch.strided: "Strided",
    torch.sparse_coo: "Sparse",
    torch.sparse_csr: "SparseCsr",
    torch.sparse_csc: "SparseCsc",
    torch.sparse_bsr: "SparseBsr",
    torch.sparse_bsc: "SparseBsc",
}


def layout_name(tensor: Tensor) -> str:
    """How messages call the layout of a tensor."""
    return LAYOUT_NAMES[tensor.layout]


def refuse(tensor: Tensor, op: str, hint: str = "convert it with to_dense()") -> NoReturn:
    """Raises for an operator that a layout does not have."""
    raise NotImplementedError(
        f"[{op}] not implemented for tensors of layout {tensor.layout}\nhint: {hint}"
    )


class SparseTensor(Composite):
    """A tensor of which only some elements are stored; the others are zero.

    Made by `torch.sparse_coo_tensor`, `torch.sparse_csr_tensor`, `Tensor.to_sparse` and their
    relatives, not by calling the class.
    """

    _kind: Any
    _index: tuple[Any, ...]
    _unique: bool
    _made_by = ("SparseTensor", "torch.sparse_coo_tensor(...)")
    _composed_in = "flambeau.sparse"
    _called = ("sparse tensor", "to_dense()")

    # ------------------------------------------------------------------ what kind of tensor
    @property
    def layout(self) -> Any:
        """`torch.sparse_coo`, or a compressed layout: `torch.sparse_csr`, `torch.sparse_bsr` ..."""
        return self._kind

    @property
    def is_sparse(self) -> bool:
        """Whether the layout is `torch.sparse_coo`."""
        return self._kind is torch.sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the layout is `torch.sparse_csr`."""
        return self._kind is torch.sparse_csr

    # ------------------------------------------------------------------ gradients: the values'
    def _like(self, values: Any) -> Tensor:
        return like(self, values)

    def _values_of_gradient(self, gradient: Tensor) -> Any:
        """The gradient of the values that a gradient of the tensor means."""
        from flambeau.sparse.convert import values_at

        if tuple(gradient.shape) != tuple(self.shape):
            raise RuntimeError(
                f"[backward] a gradient of shape {tuple(gradient.shape)} does not fit a tensor of "
                f"shape {tuple(self.shape)}\nhint: a gradient has its tensor's shape"
            )
        return values_at(gradient, self)

    def _overwrite(self, source: Tensor) -> Tensor:
        if isinstance(self, SparseTensor):
            return take_over(self, source)
        dense = source.to_dense() if isinstance(source, SparseTensor) else source
        return self.copy_(dense)

    # ------------------------------------------------------------------ what needs memory
    def stride(self, dim: int | None = None) -> Any:
        """Zeros for `sparse_coo`.

        Raises:
            RuntimeError: compressed layouts have no strides.
        """
        if self._kind is not torch.sparse_coo:
            raise RuntimeError(
                f"[stride] {layout_name(self)} tensors do not have strides\nhint: values().stride()"
            )
        return (0,) * self.dim() if dim is None else 0

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """False: there is no memory in order."""
        del memory_format
        return False

    def untyped_storage(self) -> Any:
        """Not there.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "[untyped_storage] Cannot access storage of a sparse tensor\nhint: values().storage()"
        )

    storage = _typed_storage = untyped_storage

    @property
    def nbytes(self) -> int:
        """Not there.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "[nbytes] is not defined for sparse tensors\n"
            "hint: add the nbytes of indices and values, or multiply numel() and element_size()"
        )

    def numpy(self, *, force: bool = False) -> Any:
        """Not there.

        Raises:
            TypeError: always.
        """
        del force
        raise TypeError(
            "[numpy] can't convert Sparse layout tensor to numpy\nhint: use Tensor.to_dense() first"
        )

    def __dlpack__(self, **options: Any) -> Any:
        del options
        raise BufferError(
            "[dlpack] Can't export tensors with layout other than torch.strided\nhint: to_dense()"
        )

    def share_memory_(self) -> Tensor:
        """Moves indices and values where other processes see them."""
        for part in (*self._index, self._kept):
            part.share_memory_()
        return self

    # ------------------------------------------------------------------ one element
    def _only_element(self) -> Any:
        return self.to_dense().item()

    def __index__(self) -> int:
        return int(self.to_dense().__index__())

    def __complex__(self) -> complex:
        return complex(self.item())

    # ------------------------------------------------------------------ Python's protocols
    def __setitem__(self, key: Any, value: Any) -> None:
        refuse(self, "setitem", "make another tensor, or write to a dense one")

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        del protocol
        values, index = self._kept.detach(), self._index
        name = str(self._kind).removeprefix("torch.")
        leaf = self.requires_grad and self.is_leaf
        return rebuild, (name, index, values, tuple(self.shape), self._unique, leaf)


# ------------------------------------------------------------------------------ making them
def make(
    layout: Any, index: Sequence[Any], values: Any, size: Sequence[int], unique: bool = False
) -> Tensor:
    """A sparse tensor of parts that fit.

    Args:
        layout: of the sparse layouts.
        index: (indices,) or (compressed, plain).
        values: of the stored elements; not detached from its autograd graph.
        size: of the result.
        unique: a `sparse_coo` tensor's indices are known to be sorted and distinct.
    """
    tensor = hollow(SparseTensor, values.dtype, size)
    fill(tensor, layout, index, values, unique)
    return tensor


def fill(target: Tensor, layout: Any, index: Sequence[Any], values: Any, unique: bool) -> None:
    """Gives a sparse tensor its parts."""
    target._kind = layout
    target._index = tuple(index)
    target._kept = values
    target._unique = unique or layout is not torch.sparse_coo or values.shape[0] < 2


def like(pattern: Tensor, values: Any) -> Tensor:
    """Other values at the indices of a sparse tensor."""
    size = (*pattern.shape[: pattern.dim() - dense_dim(pattern)], *_tail(pattern, values))
    return make(pattern._kind, pattern._index, values, size, pattern._unique)


def _tail(pattern: Tensor, values: Any) -> tuple[int, ...]:
    return tuple(values.shape[_first_dense(pattern) :])


def take_over(target: Tensor, source: Tensor) -> Tensor:
    """An in-place operator: `target` becomes `source`, its dtype and sizes included.

    Raises:
        RuntimeError: `target` is a leaf that requires a gradient, or the dtypes differ.
    """
    if target.requires_grad and target.is_leaf and torch.is_grad_enabled():
        raise RuntimeError(
            "[in-place] a leaf Variable that requires grad is being used in an in-place operation."
            "\nhint: do it under no_grad()"
        )
    if target.dtype is not source.dtype:
        raise RuntimeError(
            f"[in-place] result type {source.dtype} can't be cast to the desired output type "
            f"{target.dtype}\nhint: use the operator that makes a new tensor"
        )
    if tuple(target.shape) != tuple(source.shape):
        strides = (0,) * source.dim()
        memory = zero(source.dtype).untyped_storage()
        tensors.set_geometry(target, memory, tuple(source.shape), strides, 0)
    values = source._kept
    if target.requires_grad and target.is_leaf:  # without a graph: it stays the leaf it is
        target._kept.data, values = values, target._kept
    fill(target, source._kind, source._index, values, source._unique)
    return target


def rebuild(
    layout: str,
    index: tuple[Any, ...],
    values: Any,
    size: tuple[int, ...],
    unique: bool,
    requires_grad: bool,
) -> Tensor:
    """Rebuilds a tensor of checked parts, for unpickling and `load`."""
    from flambeau.sparse.invariants import check

    kind = {str(each): each for each in LAYOUT_NAMES}[f"torch.{layout}"]
    check(kind, index, values, tuple(size), unique)
    return make(kind, index, values, size, unique).requires_grad_(requires_grad)


# ------------------------------------------------------------------------------ sizes
def batch_dim(tensor: Tensor) -> int:
    """Number of batch dimensions; none of `sparse_coo`."""
    return 0 if tensor._kind is torch.sparse_coo else int(tensor._index[0].dim()) - 1


def sparse_dim(tensor: Tensor) -> int:
    """Number of sparse dimensions."""
    return int(tensor._index[0].shape[0]) if tensor._kind is torch.sparse_coo else 2


def dense_dim(tensor: Tensor) -> int:
    """Number of dense dimensions, which every stored element has."""
    return int(tensor._kept.dim()) - _first_dense(tensor)


def _first_dense(tensor: Tensor) -> int:
    """Number of dimensions of the values that are no dense ones: batches, elements, blocks."""
    return batch_dim(tensor) + (3 if tensor._kind in BLOCKS else 1)


def count(tensor: Tensor) -> int:
    """Number of stored elements (per batch)."""
    return int(tensor._kept.shape[batch_dim(tensor)])


def sparse_size(tensor: Tensor) -> tuple[int, ...]:
    """Sizes of the sparse dimensions."""
    first = batch_dim(tensor)
    return tuple(tensor.shape[first : first + sparse_dim(tensor)])


def dense_size(tensor: Tensor) -> tuple[int, ...]:
    """Sizes of the dense dimensions."""
    return tuple(tensor._kept.shape[_first_dense(tensor) :])


def linear_strides(sizes: Sequence[int]) -> list[int]:
    """Row-major strides of sizes."""
    return [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]


def linear(indices: Any, sizes: Sequence[int]) -> Any:
    """Row-major numbers of multi-dimensional indices: `indices` (dimensions, n) -> (n,)."""
    if indices.shape[0] == 1:
        return indices[0]
    strides = torch.tensor(linear_strides(sizes), dtype=torch.int64)
    return (indices * strides.unsqueeze(1)).sum(0)


def unlinear(keys: Any, sizes: Sequence[int]) -> Any:
    """The inverse of `linear`."""
    if len(sizes) == 1:
        return keys.unsqueeze(0)
    strides = torch.tensor(linear_strides(sizes), dtype=torch.int64).clamp(min=1)
    extents = torch.tensor(list(sizes), dtype=torch.int64).clamp(min=1)
    return (keys // strides.unsqueeze(1)) % extents.unsqueeze(1)
