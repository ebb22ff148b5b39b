"""The functions that pickles of PyTorch call: `torch._utils._rebuild_*`, with checked arguments.

A file's numbers are not to be trusted: each function either makes a tensor within the bounds of its
storage or raises. None of them runs code that a file names.
"""

from __future__ import annotations

import codecs
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.core.devices import has_data
from flambeau.ir.lock import importing
from flambeau.language.dtypes import DTYPE_OBJECTS
from flambeau.serialization.sources import check_geometry, check_sizes, damaged, view

__all__: list[str] = []
_LAYOUTS = {str(v): v for v in vars(_core).values() if isinstance(v, _core.layout)}


def storage_and_dtype(storage: Any) -> tuple[Any, Any]:
    """The bytes of a storage of either kind, and the dtype of its elements."""
    untyped = getattr(storage, "_untyped_storage", storage)
    if not isinstance(untyped, _core.UntypedStorage):
        raise damaged("a tensor has no storage")
    return untyped, getattr(storage, "dtype", DTYPE_OBJECTS["u8"])


def _tensor(storage: Any, dtype: Any, offset: Any, size: Any, stride: Any) -> Any:
    shape, strides = check_sizes(size, "size"), check_sizes(stride, "stride")
    [begin] = check_sizes([offset], "storage offset")
    return view(storage, dtype, begin, shape, strides)


def _leaf(tensor: Any, requires_grad: Any, hooks: Any = None) -> Any:
    """The tensor, with its hooks, as a leaf that may require a gradient."""
    if requires_grad is True:
        tensor.requires_grad_()
    if isinstance(hooks, dict) and hooks:
        tensor._backward_hooks = hooks
    return tensor


def _rebuild_tensor(storage: Any, storage_offset: Any, size: Any, stride: Any) -> Any:
    return _tensor(*storage_and_dtype(storage), storage_offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    backward_hooks: Any,
    metadata: Any = None,
) -> Any:
    tensor = _rebuild_tensor(storage, storage_offset, size, stride)
    return _leaf(_pending(tensor, metadata), requires_grad, backward_hooks)


def _pending(tensor: Any, metadata: Any) -> Any:
    """The view of conjugates or negatives that the metadata of a tensor ask for."""
    if not isinstance(metadata, dict):
        return tensor
    bits = (metadata.get("conj") is True) + 2 * (metadata.get("neg") is True)
    if bits & 1 and not tensor.is_complex():
        raise damaged("a tensor without imaginary parts is conjugated")
    return tensor._toggle(bits) if bits else tensor


def _rebuild_tensor_v3(
    storage: Any,
    storage_offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    backward_hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Any:
    untyped, _ = storage_and_dtype(storage)
    tensor = _tensor(untyped, _checked_dtype(dtype), storage_offset, size, stride)
    return _leaf(_pending(tensor, metadata), requires_grad, backward_hooks)


def _checked_dtype(dtype: Any) -> Any:
    if not isinstance(dtype, _core.dtype):
        raise damaged("a tensor has no dtype")
    return dtype


def _dense(tensor: Any) -> Any:
    """A plain tensor on the CPU or on meta."""
    if not isinstance(tensor, _core.Tensor) or tensor.layout is not _core.strided:
        raise damaged("a part of a tensor is no tensor")
    return tensor


def _rebuild_parameter(data: Any, requires_grad: Any, backward_hooks: Any) -> Any:
    with importing:
        from flambeau.nn.parameter import Parameter

    if not isinstance(data, _core.Tensor):
        raise damaged("a parameter is no tensor")
    parameter = Parameter(data, requires_grad is True)
    if isinstance(backward_hooks, dict) and backward_hooks:
        parameter._backward_hooks = backward_hooks
    return parameter


def _rebuild_parameter_with_state(
    data: Any, requires_grad: Any, backward_hooks: Any, state: Any
) -> Any:
    return set_attributes(_rebuild_parameter(data, requires_grad, backward_hooks), state)


def _get_layout(name: Any) -> Any:
    if not isinstance(name, str) or name not in _LAYOUTS:
        raise damaged(f"{str(name)[:40]!r} is no layout")
    return _LAYOUTS[name]


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    """A sparse tensor of any layout; PyTorch's order of its parts."""
    with importing:
        from flambeau.sparse.tensor import rebuild

    if layout not in _LAYOUTS.values() or layout is _core.strided or not isinstance(data, tuple):
        raise damaged("a sparse tensor has no layout")
    index: tuple[Any, ...]
    if layout is _core.sparse_coo:
        if len(data) not in (3, 4):
            raise damaged("a sparse tensor has the wrong parts")
        index, values, size = (data[0],), data[1], data[2]
        unique = len(data) == 4 and data[3] is True
    else:
        if len(data) != 4:
            raise damaged("a sparse tensor has the wrong parts")
        index, values, size, unique = data[:2], data[2], data[3], False
    parts = tuple(_dense(part) for part in index)
    sizes = check_sizes(size, "size of a sparse tensor")
    if math.prod(max(n, 1) for n in sizes) >= 2**62:
        raise damaged("a sparse tensor has an impossible size")
    name = str(layout).removeprefix("torch.")
    return rebuild(name, parts, _dense(values), sizes, unique, False)


def _rebuild_sparse_csr_tensor(layout: Any, data: Any) -> Any:
    return _rebuild_sparse_tensor(layout, data)


def _rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
    shape, strides = check_sizes(size, "size"), check_sizes(stride, "stride")
    kind = _checked_dtype(dtype)
    check_geometry(shape, strides, kind.itemsize)
    return _leaf(_core.tensor_empty_strided(shape, strides, kind, "meta"), requires_grad)


def _rebuild_device_tensor_from_cpu_tensor(
    data: Any, dtype: Any, device: Any, requires_grad: Any
) -> Any:
    kind = _checked_dtype(dtype)
    if _dense(data).dtype is not kind:
        raise damaged("a tensor has another dtype than its data")
    return _leaf(data.to(device=_core.device(device)), requires_grad)


def _rebuild_nested_tensor(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> Any:
    """A nested tensor of layout strided, whose samples lie one behind the other."""
    with importing:
        from flambeau.nested.tensor import rebuild_strided

    parts = [_dense(part) for part in (buffer, sizes, strides, offsets)]
    bad = any(p.dtype is not DTYPE_OBJECTS["i64"] or not has_data(p) for p in parts[1:])
    if bad or buffer.dim() > 1:
        raise damaged("a nested tensor has no sizes")
    if sum(part.numel() for part in parts[1:]) > 3 * 2**24:
        raise damaged("a nested tensor has too many samples")
    shapes = [check_sizes(row, "sizes of a sample") for row in parts[1].tolist()]
    steps, begins = parts[2].tolist(), check_sizes_of_offsets(parts[3].tolist())
    if len(steps) != len(shapes) or len(begins) != len(shapes):
        raise damaged("a nested tensor has samples without a place")
    samples = []
    for shape, step, begin in zip(shapes, steps, begins, strict=True):
        strides_of = check_sizes(step, "strides of a sample")
        reach = check_geometry(shape, strides_of, 1)
        if begin + reach > buffer.numel():
            raise damaged("a sample reaches beyond its nested tensor")
        samples.append(buffer.detach().as_strided(shape, strides_of, begin))
    total = sum(sample.numel() for sample in samples)
    if total > buffer.numel():
        raise damaged("the samples of a nested tensor overlap")
    values = buffer.detach()
    if not _follow(shapes, steps, begins) or total != values.numel():
        values = _core.tensor_empty((total,), buffer.dtype)
        position = 0
        for sample in samples:
            values[position : position + sample.numel()].copy_(sample.reshape(-1))
            position += sample.numel()
    return rebuild_strided(values, tuple(shapes), buffer.requires_grad)


def check_sizes_of_offsets(values: Any) -> list[int]:
    """Offsets of samples: a list of numbers that are not negative."""
    if not isinstance(values, list) or any(type(v) is not int or v < 0 for v in values):
        raise damaged("a nested tensor has no offsets")
    return values


def _follow(shapes: Any, strides: Any, begins: Any) -> bool:
    """Whether samples are contiguous and follow one another."""
    position = 0
    for shape, stride, begin in zip(shapes, strides, begins, strict=True):
        step = math.prod(shape)
        if begin != position:
            return False
        for n, s in zip(shape, stride, strict=True):
            step //= max(n, 1)
            if n > 1 and s != step:
                return False
        position += math.prod(shape)
    return True


# ------------------------------------------------------------------------------ composed tensors
class JaggedTensor:
    """Represents PyTorch's class of nested tensors of layout jagged, where a pickle names it."""


class MaskedTensor:
    """Represents PyTorch's class of masked tensors, where a pickle names it."""


class DimRange(NamedTuple):
    """Bounds of a size that PyTorch's compiler noted; stored as an attribute."""

    dim: int
    min: int
    max: int


# Attributes of PyTorch's nested tensors that stand for their parts.
_JAGGED = {
    "values", "offsets", "lengths", "requires_grad", "_values", "_offsets", "_lengths",
    "_ragged_idx", "_metadata_cache",
}  # fmt: skip


def _rebuild_njt(parts: Any) -> Any:
    """A nested tensor of layout jagged, of the parts that PyTorch names."""
    with importing:
        from flambeau.nested.tensor import rebuild

    if not isinstance(parts, dict):
        raise damaged("a nested tensor has no parts")
    offsets, lengths = parts.get("offsets"), parts.get("lengths")
    values = _dense(parts.get("values"))
    dim, cache = parts.get("_ragged_idx", 1), parts.get("_metadata_cache") or {}
    integer_dtypes = {DTYPE_OBJECTS["i64"], DTYPE_OBJECTS["i32"]}
    index = [part for part in (offsets, lengths) if part is not None]
    for part in index:
        _dense(part)
    if (
        any(part.dtype not in integer_dtypes or part.dim() != 1 for part in index)
        or offsets is None
    ):
        raise damaged("a nested tensor has no offsets")
    if type(dim) is not int or not 1 <= dim <= values.dim() or not isinstance(cache, dict):
        raise damaged("a nested tensor has no ragged dimension")
    shortest, longest = (_length(cache.get(f"{name}_seqlen")) for name in ("min", "max"))
    return rebuild(
        values.detach(),
        offsets,
        lengths,
        dim,
        shortest,
        longest,
        parts.get("requires_grad") is True,
    )


def _length(bound: Any) -> int | None:
    """A length that PyTorch stores as the size of a tensor without elements."""
    if isinstance(bound, _core.Tensor):
        return int(bound.shape[0]) if bound.dim() == 2 else None
    return bound if type(bound) is int else None


class _Hollow(NamedTuple):
    """A tensor made of others, before its attributes come."""

    cls: Any
    dtype: Any
    size: Any
    stride: Any
    layout: Any
    device: Any
    requires_grad: bool


def _rebuild_wrapper_subclass(
    cls: Any,
    dtype: Any,
    size: Any,
    stride: Any,
    storage_offset: Any,
    layout: Any,
    device: Any,
    requires_grad: Any,
) -> Any:
    del storage_offset
    sizes, strides = check_sizes(size, "size"), check_sizes(stride, "stride")
    check_geometry(sizes, strides, _checked_dtype(dtype).itemsize)
    return _Hollow(cls, dtype, sizes, strides, layout, device, requires_grad is True)


def _materialized(hollow: _Hollow, cls: Any, state: Any) -> Any:
    """The tensor of a class that holds others."""
    if cls is MaskedTensor:
        with importing:
            from flambeau.masked.tensor import rebuild

        if not isinstance(state, dict):
            raise damaged("a masked tensor has no parts")
        data, mask = state.get("_masked_data"), state.get("_masked_mask")
        if not isinstance(data, _core.Tensor) or not isinstance(mask, _core.Tensor):
            raise damaged("a masked tensor has no parts")
        return rebuild(data, mask, hollow.requires_grad)
    _check_class(cls)
    tensor = _core.Tensor._make_wrapper_subclass(
        cls,
        hollow.size,
        strides=hollow.stride,
        dtype=hollow.dtype,
        device=hollow.device,
        requires_grad=hollow.requires_grad,
    )
    return set_attributes(tensor, state)


def _check_class(cls: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, _core.Tensor)):
        raise damaged("a tensor has no class")


def _rebuild_from_type_v2(func: Any, new_type: Any, args: Any, state: Any) -> Any:
    """A tensor of a subclass or with attributes: made by *func*, then given both."""
    if not callable(func) or not isinstance(args, tuple):
        raise damaged("a tensor cannot be made")
    tensor = func(*args)
    if new_type is JaggedTensor:
        state = state if isinstance(state, dict) else {}
        return set_attributes(tensor, {n: v for n, v in state.items() if n not in _JAGGED})
    if isinstance(tensor, _Hollow):
        return _materialized(tensor, new_type, state)
    if not isinstance(tensor, _core.Tensor):
        raise damaged("a tensor cannot be made")
    _check_class(new_type)
    if new_type is not _core.Tensor and type(tensor) is not new_type:
        requires_grad = tensor.requires_grad
        tensor = tensor.detach().as_subclass(new_type)
        if requires_grad:  # only now: the subclass object itself is the leaf
            tensor.requires_grad_()
    return set_attributes(tensor, state)


def set_attributes(tensor: Any, state: Any) -> Any:
    """Gives a tensor the attributes that were set on it when it was saved.

    Raises:
        RuntimeError: an attribute without a name, or one that is a part of the tensor.
    """
    with importing:
        from flambeau.serialization.container import own_names

    if state is None:
        return tensor
    own, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    for attributes in (own, slots):
        if attributes is None:
            continue
        if not isinstance(attributes, dict) or any(type(n) is not str for n in attributes):
            raise damaged("a tensor's attributes have no names")
        if attributes.keys() & own_names(tensor):
            raise damaged("an attribute stands for a part of its tensor")
    attributes = dict(own or {})
    if attributes.pop("requires_grad", False) is True:  # of a sparse tensor
        tensor.requires_grad_()
    tensor.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        setattr(tensor, name, value)
    return tensor


# ------------------------------------------------------------------------------ other values
def make_bytearray(*args: Any) -> bytearray:
    """`bytearray` of bytes, or of text and its encoding; never of a length."""
    if not args:
        return bytearray()
    if len(args) == 2 and args[1] in ("latin-1", "latin1") and isinstance(args[0], str):
        return bytearray(args[0].encode("latin-1"))
    if len(args) != 1 or not isinstance(args[0], (bytes, bytearray)):
        raise damaged("a bytearray has no bytes")
    return bytearray(args[0])


def encode(text: Any, encoding: Any = "latin1") -> bytes:
    """`_codecs.encode` of text whose characters are bytes: how pickles of protocol 2 hold bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise damaged("bytes are written in another encoding than latin1")
    return codecs.encode(text, "latin1")


def make_complex(*args: Any) -> complex:
    """`complex` of two numbers."""
    if len(args) > 2 or any(type(value) not in (int, float) for value in args):
        raise damaged("a complex number has no parts")
    return complex(*args)


def make_size(*args: Any) -> Any:
    """`torch.Size` of a tuple of sizes."""
    return _core.Size(check_sizes(args[0] if len(args) == 1 else (), "a torch.Size"))


def make_device(*args: Any) -> Any:
    """`torch.device` of a name and an index."""
    texts = all(isinstance(value, (str, int)) for value in args)
    if not 1 <= len(args) <= 2 or not texts or len(str(args[0])) > 64:
        raise damaged("a device has no name")
    return _core.device(*args)


def _pairs(args: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    if not args:
        return []
    [source] = args
    if isinstance(source, dict):
        return list(source.items())
    if not isinstance(source, (list, tuple)) or any(
        not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in source
    ):
        raise damaged("a dict has no pairs")
    return [(pair[0], pair[1]) for pair in source]


def maker_of_mapping(cls: type, check_key: Callable[[Any], None]) -> Callable[..., Any]:
    """`OrderedDict` or `Counter` of pairs whose keys are checked before they are hashed."""

    def make(*args: Any) -> Any:
        if len(args) > 1:
            raise damaged("a dict has several sources")
        if cls is Counter and args and not isinstance(args[0], dict):
            raise damaged("a Counter has no counts")
        pairs = _pairs(args)
        for key, _ in pairs:
            check_key(key)
        return OrderedDict(pairs) if cls is OrderedDict else cls(dict(pairs))

    return make


def maker_of_set(check_key: Callable[[Any], None]) -> Callable[..., Any]:
    """`set` of a list whose elements are checked before they are hashed."""

    def make(*args: Any) -> Any:
        if len(args) > 1 or (args and not isinstance(args[0], (list, tuple, set, frozenset))):
            raise damaged("a set has no elements")
        for element in args[0] if args else ():
            check_key(element)
        return set(*args)

    return make


def make_parameter(*args: Any) -> Any:
    """`Parameter` of a tensor."""
    data = args[0] if args else None
    return _rebuild_parameter(data, args[1] if len(args) > 1 else True, None)


def make_uninitialized(cls: Any) -> Callable[..., Any]:
    """A parameter or buffer of a lazy module, which has no shape."""

    def make(*args: Any) -> Any:
        kinds = (bool, _core.device, _core.dtype, bool)
        if len(args) > 4 or any(type(a) is not k for a, k in zip(args, kinds, strict=False)):
            raise damaged(f"wrong options of an {cls.__name__}")
        return cls(*args)

    return make
