"""The Python side of Tensor: pickling, copying, shared memory, the operators without a kernel.

The type itself is native (`native/tensor/tensor.cpp`). Here is what needs Python objects rather
than speed; how a tensor prints is in `flambeau/core/printing.py`. This module knows the native core
and nothing of ops: the methods that need one look it up on the tensor when they are called.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_memory
from flambeau.core.printing import set_printoptions, tensor_repr
from flambeau.ir.lock import importing, late

__all__ = ["install", "rebuild_tensor", "set_printoptions", "tensor_repr"]


# ------------------------------------------------------------------------------ pickle and copy
def rebuild_tensor(
    storage: Any,
    dtype: Any,
    offset: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
) -> Any:
    """Makes the tensor that `Tensor.__reduce_ex__` described. Bounds are checked."""
    return _core.tensor_from_storage(storage, dtype, sizes, strides, offset)


def rebuild_pending(bits: int, *arguments: Any) -> Any:
    """Makes a view of conjugates or negatives that was pickled."""
    return rebuild_tensor(*arguments)._toggle(bits)


def rebuild_subclass(
    build: Any, arguments: tuple[Any, ...], cls: type, requires_grad: bool, state: Any
) -> Any:
    """Makes a tensor of a subclass and gives it its attributes back."""
    tensor = build(*arguments).as_subclass(cls)
    if requires_grad:  # only now: the subclass object itself is the leaf
        tensor.requires_grad_()
    if state:
        tensor.__dict__.update(state)
    return tensor


def rebuild_meta(
    dtype: Any, sizes: tuple[int, ...], strides: tuple[int, ...], device: str = "meta"
) -> Any:
    """Makes a tensor of a device without memory, which has no bytes to pickle."""
    return _core.tensor_empty_strided(sizes, strides, dtype, device)


def rebuild_moved(tensor: Any, device: str) -> Any:
    """Makes a tensor on a device with memory of its own from its copy on the CPU."""
    return _core.tensor_to_device(tensor, device)


def _reduce(tensor: Any, protocol: int) -> tuple[Any, ...]:
    """`Tensor.__reduce_ex__`: geometry over the shared storage, so views stay views."""
    del protocol
    requires_grad = tensor.requires_grad and tensor.is_leaf
    hollow = "_claimed_device" in tensor.__dict__  # a wrapper: what it holds is in its state
    if not hollow and not tensor.is_cpu and has_memory(tensor.device):
        build: Any = rebuild_moved
        arguments: tuple[Any, ...] = (tensor.detach().cpu(), str(tensor.device))
    elif hollow or not tensor.is_cpu:
        build = rebuild_meta
        arguments = (tensor.dtype, tuple(tensor.shape), tensor.stride())
        arguments += () if hollow or tensor.is_meta else (tensor.device.type,)
    else:
        build = rebuild_tensor
        arguments = (
            tensor.untyped_storage(),
            tensor.dtype,
            tensor.storage_offset(),
            tuple(tensor.shape),
            tensor.stride(),
        )
        bits = tensor.is_conj() + 2 * tensor.is_neg()
        if bits:
            build, arguments = rebuild_pending, (bits, *arguments)
    if type(tensor) is _core.Tensor and not tensor.__dict__ and not requires_grad:
        return build, arguments
    state = dict(tensor.__dict__)
    return rebuild_subclass, (build, arguments, type(tensor), requires_grad, state)


def _deepcopy(self: Any, memo: dict[Any, Any]) -> Any:
    """A leaf with its own memory; tensors that shared memory share the copy."""
    if not self.is_leaf:
        raise RuntimeError(
            "[deepcopy] Only Tensors created explicitly by the user (graph leaves) support the "
            "deepcopy protocol at the moment\nhint: deepcopy x.detach(), or clone() it"
        )
    if id(self) in memo:
        return memo[id(self)]
    if "_claimed_device" in self.__dict__:
        memo[id(self)] = self.detach().clone().requires_grad_(self.requires_grad)
        return memo[id(self)]
    sizes, strides = tuple(self.shape), self.stride()
    if not has_memory(self.device):
        result = rebuild_meta(self.dtype, sizes, strides, self.device.type)
    elif not self.is_cpu:
        result = self.detach().clone()
    elif self.is_conj() or self.is_neg():
        result = self.detach().resolve_conj().resolve_neg()
    else:
        storage = self.untyped_storage()
        key = ("flambeau storage", storage._cdata)
        if key not in memo:
            memo[key] = storage.clone()
        result = rebuild_tensor(memo[key], self.dtype, self.storage_offset(), sizes, strides)
    if type(self) is not _core.Tensor:
        result = result.as_subclass(type(self))
    if self.requires_grad:
        result.requires_grad_()
    memo[id(self)] = result
    if self.grad is not None:
        result.grad = copy.deepcopy(self.grad, memo)
    if self.__dict__:
        result.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return result


# ------------------------------------------------------------------------------ shared memory
def _share_memory(tensor: Any) -> Any:
    """`Tensor.share_memory_`: moves the storage where other processes see each other's writes."""
    late("flambeau.runtime.shared").share(tensor.untyped_storage())
    return tensor


# ------------------------------------------------------------------------------ small operators
def _iterate(tensor: Any) -> Iterator[Any] | tuple[Any, ...]:
    """Rows along the first dimension, each a differentiable view."""
    if hasattr(tensor, "unbind"):
        rows: tuple[Any, ...] = tuple(tensor.unbind(0))
        return rows
    return (tensor[position] for position in range(len(tensor)))


def _contains(tensor: Any, element: Any) -> bool:
    """`element in tensor`: some element equals it."""
    if not isinstance(element, (_core.Tensor, bool, int, float, complex)):
        raise RuntimeError(
            "[contains] Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
            f"{type(element)}\nhint: test `in tensor.tolist()`"
        )
    return bool((tensor == element).any())


def _positive(tensor: Any) -> Any:
    """`+tensor`: itself; booleans have no sign."""
    if tensor.dtype is _core.bool:
        raise RuntimeError(
            "[positive] The `+` operator, on a bool tensor is not supported.\n"
            "hint: convert it to an integer dtype"
        )
    return tensor


def _reversed(self: Any) -> Any:
    """`reversed(tensor)`: flipped along the first dimension."""
    return self if self.dim() == 0 else self.flip(0)


def _array_wrap(self: Any, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """NumPy functions applied to a tensor give a tensor."""
    del self, context, return_scalar
    return _core.as_tensor(array)


def _alias(tensor: Any) -> Any:
    """The whole tensor as a differentiable view of itself."""
    return tensor.view(tensor.shape)


def _is_nested(tensor: Any) -> bool:
    """Whether samples have sizes of their own (`torch.nested`): no."""
    del tensor
    return False


def _is_elsewhere(tensor: Any) -> bool:
    """Whether a tensor is on an unavailable kind of device: always False."""
    del tensor
    return False


def _to_dtype(tensor: Any, dtype: Any) -> Any:
    return tensor.to(dtype)


def _new_tensor(*args: Any, **kwargs: Any) -> Any:
    """`torch.Tensor(...)`: a tensor of the default dtype; given one, its data in its own dtype."""
    with importing:
        from flambeau.core.legacy import legacy_tensor

    dtype = _core.get_default_dtype()
    if len(args) == 1 and isinstance(args[0], _core.Tensor):
        dtype = args[0].dtype
    return legacy_tensor(dtype, "Tensor", args, kwargs)


def _later(module: str, name: str, kind: type = _core.Tensor) -> Callable[..., Any]:
    """A method that loads the module that replaces it, and calls the replacement."""

    def method(*args: Any, **kwargs: Any) -> Any:
        late(module)
        return getattr(kind, name)(*args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See `{module}`: loaded by the first call, which puts the method itself here."
    return method


LATER = {
    "flambeau.nested": ("to_padded_tensor",),
    "flambeau.autograd": (
        "backward", "register_hook", "register_post_accumulate_grad_hook", "retain_grad",
    ),
    "flambeau.sparse": (
        "_indices", "_nnz", "_values", "ccol_indices", "coalesce", "col_indices", "crow_indices",
        "dense_dim", "indices", "is_coalesced", "row_indices", "smm", "sparse_dim", "sparse_mask",
        "sparse_resize_", "sparse_resize_and_clear_", "sspaddmm", "to_dense", "to_sparse",
        "to_sparse_bsc", "to_sparse_bsr", "to_sparse_coo", "to_sparse_csc", "to_sparse_csr",
        "values",
    ),
    "flambeau.sparse.copies": ("resize_as_sparse_",),
    "flambeau.storage": ("_typed_storage", "storage", "storage_type"),
    "flambeau.core.absent_methods": (
        "dequantize", "int_repr", "ipu", "mtia", "q_per_channel_axis", "q_per_channel_scales",
        "q_per_channel_zero_points", "q_scale", "q_zero_point", "qscheme", "record_stream",
        "to_mkldnn", "xpu",
    ),
    "flambeau.core.older_methods": (
        "const_data_ptr", "dim_order", "eig", "lstsq", "module_load", "new", "reinforce", "solve",
        "symeig", "_autocast_to_full_precision", "_autocast_to_reduced_precision",
    ),
}  # fmt: skip
# Methods of `UntypedStorage` that `flambeau.storage` defines.
BYTES_STATIC = ("_new_shared", "from_buffer")
BYTES_LATER = (
    "_new_shared", "bfloat16", "bool", "byte", "byteswap", "char", "complex_double",
    "complex_float", "copy_", "double", "float", "from_buffer", "half", "int", "long",
    "share_memory_", "short", "to", "type",
)  # fmt: skip


# ------------------------------------------------------------------------------ subclasses
def _torch_function(
    cls: type, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """The default `__torch_function__` of subclasses: results are of the subclass.

    Args:
        func: the function, method or accessor of an attribute that was called.
        types: those of the arguments that define `__torch_function__`.
        args: positional arguments.
        kwargs: arguments by name, or None.

    Returns:
        What *func* returns, tensors as objects of this class; NotImplemented where another type
        takes part that is no base of this class.

    Example:
        >>> class Mine(torch.Tensor):
        ...     pass
        >>> type(torch.ones(2).as_subclass(Mine) + 1).__name__
        'Mine'
    """
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    result = _core._disabled_torch_function(func, types, args, kwargs)
    return result if func in _kept_plain() else _as_class(result, cls)


@cache
def _kept_plain() -> frozenset[Any]:
    """Accessors whose results are returned as they are: tensors that existed before."""
    kind = _core.Tensor
    return frozenset({kind._base.__get__, kind.grad.__get__})


def _as_class(result: Any, cls: type) -> Any:
    if cls is _core.Tensor:
        return result
    if isinstance(result, _core.Tensor):
        return result if isinstance(result, cls) else result.as_subclass(cls)
    if type(result) is _core.Size:
        return result
    if isinstance(result, (tuple, list)):
        items = [_as_class(item, cls) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result


def _make_wrapper_subclass(*args: Any, **kwargs: Any) -> Any:
    """`Tensor._make_wrapper_subclass(cls, size, ...)`: a tensor without memory of its own."""
    module = late("flambeau.utils._python_dispatch")
    return module._make_wrapper_subclass(*args, **kwargs)


def _no_name(tensor: Any) -> None:
    """Tensors have no names."""
    del tensor


def _grad_dtype(tensor: Any) -> Any:
    """The dtype of the gradient: the tensor's own."""
    return tensor.dtype


METHODS: dict[str, Any] = {
    "name": property(_no_name),
    "grad_dtype": property(_grad_dtype),
    "_make_wrapper_subclass": staticmethod(_make_wrapper_subclass),
    "__torch_function__": classmethod(_torch_function),
    "__deepcopy__": _deepcopy,
    "__reversed__": _reversed,
    "__array_wrap__": _array_wrap,
    "is_nested": property(_is_nested),
    **dict.fromkeys(
        ("is_ipu", "is_maia", "is_mtia", "is_vulkan", "is_xla", "volatile"),
        property(_is_elsewhere),
    ),
    "__array_priority__": 1000,  # prefer Tensor's operators over ndarray's
}
OPERATORS: dict[str, Callable[..., Any]] = {
    "repr": tensor_repr,
    "reduce_ex": _reduce,
    "share_memory_": _share_memory,
    "unbind": _iterate,
    "contains": _contains,
    "pos": _positive,
    "alias": _alias,
    "to_dtype": _to_dtype,
    "new": _new_tensor,
}


def install() -> None:
    """Gives the native type its Python methods; idempotent, runs on import of the package."""
    for name, value in METHODS.items():
        asked = callable(value) and not isinstance(value, (classmethod, staticmethod))
        setattr(_core.Tensor, name, _core.shield(value, False, True) if asked else value)
    for module, names in LATER.items():
        for name in names:
            if not hasattr(_core.Tensor, name):
                setattr(_core.Tensor, name, _core.shield(_later(module, name), False, True))
    for name in BYTES_LATER:
        if not hasattr(_core.UntypedStorage, name):
            method: Any = _later("flambeau.storage", name, _core.UntypedStorage)
            method = staticmethod(method) if name in BYTES_STATIC else method
            setattr(_core.UntypedStorage, name, method)
    for name, function in OPERATORS.items():
        _core.set_operator(name, _core.shield(function))
