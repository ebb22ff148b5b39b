"""Names of `torch.multiprocessing.reductions` beside the ones that this package pickles with."""

from __future__ import annotations

import weakref
from typing import Any

import flambeau as torch
from flambeau.storage import TypedStorage

__all__ = [
    "SharedCache", "StorageWeakRef", "rebuild_nested_tensor", "rebuild_sparse_compressed_tensor",
    "rebuild_sparse_coo_tensor", "rebuild_typed_storage", "rebuild_typed_storage_child",
    "reduce_nested_tensor", "reduce_sparse_tensor", "reduce_typed_storage",
    "reduce_typed_storage_child", "shared_cache", "storage_from_cache",
]  # fmt: skip


class StorageWeakRef:
    """A reference that does not hold a storage; equal for equal storages.

    Args:
        storage: the storage that it refers to.
    """

    def __init__(self, storage: Any) -> None:
        untyped = getattr(storage, "_untyped_storage", storage)
        self.cdata = int(untyped._cdata)
        try:
            self._reference: Any = weakref.ref(untyped)
        except TypeError:  # the object is a view of the storage, made anew at each access
            self._reference = None

    def expired(self) -> bool:
        """Whether the storage object is known to be gone."""
        return self._reference is not None and self._reference() is None

    def __hash__(self) -> int:
        return self.cdata

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageWeakRef) and self.cdata == other.cdata


class SharedCache(dict[Any, StorageWeakRef]):
    """Storages that this process shares, by key; those that are gone are dropped."""

    limit = 128

    def __setitem__(self, key: Any, storage_ref: StorageWeakRef) -> None:
        super().__setitem__(key, storage_ref)
        if len(self) > self.limit:
            self.free_dead_references()

    def free_dead_references(self) -> None:
        """Drops references to storages that are gone."""
        for key, reference in list(self.items()):
            if reference.expired():
                del self[key]


shared_cache = SharedCache()


def storage_from_cache(cls: Any, key: Any) -> Any:
    """The storage of a key, or None."""
    reference = shared_cache.get(key)
    return reference._reference() if reference and reference._reference else None


def rebuild_typed_storage(storage: Any, dtype: Any) -> Any:
    """A typed storage of bytes."""
    return TypedStorage(wrap_storage=storage, dtype=dtype)


def reduce_typed_storage(storage: Any) -> Any:
    """How a typed storage is pickled for another process."""
    return rebuild_typed_storage, (storage._untyped_storage, storage.dtype)


def rebuild_typed_storage_child(storage: Any, storage_type: Any) -> Any:
    """A storage of an older class of bytes."""
    return storage_type(wrap_storage=storage)


def reduce_typed_storage_child(storage: Any) -> Any:
    """How a storage of an older class is pickled for another process."""
    if type(storage) is TypedStorage:
        return reduce_typed_storage(storage)
    return rebuild_typed_storage_child, (storage._untyped_storage, type(storage))


def rebuild_nested_tensor(
    rebuild_buffer_func: Any, rebuild_buffer_args: Any, rebuild_sizes_func: Any,
    rebuild_sizes_args: Any, rebuild_strides_func: Any, rebuild_strides_args: Any,
    rebuild_offsets_func: Any, rebuild_offsets_args: Any,
) -> Any:  # fmt: skip
    """A nested tensor of its buffer, sizes, strides and offsets, each a function and arguments."""
    buffer = rebuild_buffer_func(*rebuild_buffer_args)
    sizes = rebuild_sizes_func(*rebuild_sizes_args)
    strides = rebuild_strides_func(*rebuild_strides_args)
    offsets = rebuild_offsets_func(*rebuild_offsets_args)
    parts = [
        torch.as_strided(buffer, size, stride, int(offset))
        for size, stride, offset in zip(sizes.tolist(), strides.tolist(), offsets, strict=True)
    ]
    return torch.nested.as_nested_tensor(parts)


def _whole(tensor: Any) -> Any:
    return tensor


def reduce_nested_tensor(nt: Any) -> Any:
    """How a nested tensor is pickled for another process."""
    parts = [part.contiguous() for part in nt.unbind()]
    buffer = torch.cat([part.flatten() for part in parts]) if parts else torch.empty(0)
    sizes = torch.tensor([list(part.shape) for part in parts])
    strides = torch.tensor([list(part.stride()) for part in parts])
    offsets = torch.tensor([0, *(part.numel() for part in parts[:-1])]).cumsum(0)
    arguments = [(_whole, (value,)) for value in (buffer, sizes, strides, offsets)]
    return rebuild_nested_tensor, tuple(item for pair in arguments for item in pair)


def rebuild_sparse_coo_tensor(
    rebuild_indices_func: Any, rebuild_indices_args: Any, rebuild_values_func: Any,
    rebuild_values_args: Any, shape: Any, is_coalesced: bool,
) -> Any:  # fmt: skip
    """A sparse tensor of indices and values, each a function and arguments."""
    indices = rebuild_indices_func(*rebuild_indices_args)
    values = rebuild_values_func(*rebuild_values_args)
    return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=is_coalesced)


def rebuild_sparse_compressed_tensor(
    rebuild_compressed_indices_func: Any, rebuild_compressed_indices_args: Any,
    rebuild_plain_indices_func: Any, rebuild_plain_indices_args: Any, rebuild_values_func: Any,
    rebuild_values_args: Any, shape: Any, layout: Any,
) -> Any:  # fmt: skip
    """A compressed sparse tensor of its parts, each a function and arguments."""
    return torch.sparse_compressed_tensor(
        rebuild_compressed_indices_func(*rebuild_compressed_indices_args),
        rebuild_plain_indices_func(*rebuild_plain_indices_args),
        rebuild_values_func(*rebuild_values_args), shape, layout=layout,
    )  # fmt: skip


def reduce_sparse_tensor(sparse: Any) -> Any:
    """How a sparse tensor is pickled for another process."""
    if sparse.layout is torch.sparse_coo:
        pairs = ((_whole, (sparse._indices(),)), (_whole, (sparse._values(),)))
        parts = tuple(item for pair in pairs for item in pair)
        return rebuild_sparse_coo_tensor, (*parts, sparse.shape, sparse.is_coalesced())
    by_rows = sparse.layout in (torch.sparse_csr, torch.sparse_bsr)
    compressed = sparse.crow_indices() if by_rows else sparse.ccol_indices()
    plain = sparse.col_indices() if by_rows else sparse.row_indices()
    parts = (_whole, (compressed,), _whole, (plain,), _whole, (sparse.values(),))
    return rebuild_sparse_compressed_tensor, (*parts, sparse.shape, sparse.layout)
