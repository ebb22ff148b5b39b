"""The pickler of `torch.save`: what PyTorch's own pickles say of tensors, storages and classes.

Tensors are reduced to calls of `torch._utils._rebuild_*` over storages, which are persistent ids:
their bytes are stored beside the pickle. Classes and functions of this package are named as PyTorch
names them. Python's own pickler does the rest.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_data
from flambeau.ir.failure import failure
from flambeau.ir.lock import importing
from flambeau.ir.modules import module_of
from flambeau.language.dtypes import DTYPE_OBJECTS
from flambeau.serialization import names, rebuild
from flambeau.serialization.container import own_names
from flambeau.serialization.locations import location_tag

__all__ = ["Storages", "pickled"]

_TYPED = ("f32", "f64", "f16", "bf16", "u8", "i8", "i16", "i32", "i64", "bool", "c64", "c128")
_WITH_STORAGE_TYPE = {DTYPE_OBJECTS[name] for name in _TYPED}
_PLAIN = (int, float, str, bool, type(None))
_PythonPickler: Any = pickle._Pickler
_LONG = 512  # elements of a list of numbers that is pickled as one


class _Stored:
    """A storage as a tensor's pickle names it: with the type of its elements."""

    def __init__(self, storage: Any, dtype: Any) -> None:
        self.storage, self.dtype = storage, dtype


class Storages:
    """Storages that a pickle names, by number, in the order in which they came."""

    def __init__(self, legacy: bool) -> None:
        self.legacy = legacy
        self.numbers: dict[int, str] = {}
        self.storages: dict[str, tuple[Any, Any]] = {}

    def reference(self, storage: Any, dtype: Any) -> tuple[Any, ...]:
        """The persistent id of a storage whose elements have a dtype (None: bytes)."""
        with importing:
            from flambeau.storage import _NAMES, STORAGE_TYPES, UntypedStorage

        cls = STORAGE_TYPES[_NAMES[dtype]] if dtype is not None else UntypedStorage
        size = 1 if dtype is None else dtype.itemsize
        if storage._cdata not in self.numbers:
            key = str(len(self.numbers))
            self.numbers[storage._cdata] = key
            self.storages[key] = storage, dtype
        key = self.numbers[storage._cdata]
        if self.storages[key][1] is not dtype:
            raise RuntimeError(
                "[save] Cannot save multiple tensors or storages that view the same data as "
                f"different types: {self.storages[key][1]} and {dtype}\nhint: clone one of "
                "them, or save to a file with the suffix .safetensors"
            )
        location = location_tag(storage)
        reference = ("storage", cls, key, location, storage.nbytes() // size)
        return (*reference, None) if self.legacy else reference


# ------------------------------------------------------------------------------ tensors
def _stored(tensor: Any) -> tuple[_Stored, bool]:
    """The storage of a tensor, and whether its type says the dtype."""
    typed = tensor.dtype in _WITH_STORAGE_TYPE
    return _Stored(tensor.untyped_storage(), tensor.dtype if typed else None), typed


def _reduce_strided(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    if not has_data(tensor):
        arguments = (tensor.dtype, shape, stride, bool(tensor.requires_grad))
        return rebuild._rebuild_meta_tensor_no_storage, arguments
    stored, typed = _stored(tensor)
    bits = {"conj": tensor.is_conj(), "neg": tensor.is_neg()}
    metadata = {name: True for name, bit in bits.items() if bit}
    parts: tuple[Any, ...] = (stored, tensor.storage_offset(), shape, stride)
    parts += (bool(tensor.requires_grad), OrderedDict())
    if not typed:
        parts += (tensor.dtype,)
    parts += (metadata,) if metadata else ()
    return (rebuild._rebuild_tensor_v2 if typed else rebuild._rebuild_tensor_v3), parts


def _reduce_sparse(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    _, (_, index, values, size, unique, _) = _own_reduction(tensor)
    parts = (*index, values, _core.Size(size))
    if tensor.layout is _core.sparse_coo:
        parts += (bool(unique),)
    return rebuild._rebuild_sparse_tensor, (tensor.layout, parts)


def _own_reduction(tensor: Any) -> Any:
    """Reduces a composed tensor to its parts, for pickles of this process."""
    reduce: Any = type(tensor).__reduce_ex__
    return reduce(tensor, 2)


def _reduce_nested(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    arguments = _own_reduction(tensor)[1]
    if tensor.layout is _core.strided:
        values, shapes, requires_grad = arguments
        values = values.detach().requires_grad_(requires_grad)
        return rebuild._rebuild_nested_tensor, (values, *_places(shapes))
    values, offsets, lengths, dim, shortest, longest, requires_grad = arguments
    cache = {}
    for name, bound in (("min_seqlen", shortest), ("max_seqlen", longest)):
        if bound is not None:  # as PyTorch stores them
            cache[name] = _core.tensor_empty((0, bound), values.dtype).detach()
    parts = {
        "values": values.detach(),
        "offsets": offsets,
        "lengths": lengths,
        "_ragged_idx": dim,
        "_metadata_cache": cache,
        "requires_grad": bool(requires_grad),
    }
    state = {"_values": parts["values"], "_offsets": offsets, "_lengths": lengths}
    inner = (rebuild._rebuild_njt, rebuild.JaggedTensor, (parts,), parts | state)
    return rebuild._rebuild_from_type_v2, inner


def _places(shapes: Any) -> list[Any]:
    """Sizes, strides and offsets of samples that follow one another, as tensors."""
    sizes, strides, offsets, position = [], [], [], 0
    for shape in shapes:
        steps, step = [], 1
        for n in reversed(shape):
            steps.append(step)
            step *= n
        sizes.append(list(shape))
        strides.append(steps[::-1])
        offsets.append(position)
        position += step
    i64 = DTYPE_OBJECTS["i64"]
    return [_core.tensor_from_python(rows, i64) for rows in (sizes, strides, offsets)]


def _reduce_masked(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    data, mask, requires_grad = _own_reduction(tensor)[1]
    shape, stride = (
        tuple(tensor.shape),
        tuple(data.stride() if data.layout is _core.strided else ()),
    )
    stride = stride or tuple(_core.tensor_empty(shape, device="meta").stride())
    geometry = (tensor.dtype, shape, stride, 0, data.layout, _core.device("cpu"))
    state = {"_masked_data": data, "_masked_mask": mask}
    cls = rebuild.MaskedTensor
    arguments = (cls, *geometry, bool(requires_grad))
    return rebuild._rebuild_from_type_v2, (rebuild._rebuild_wrapper_subclass, cls, arguments, state)


def _reduce_wrapper(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """A wrapper subclass: a tensor without memory, whose attributes hold others."""
    cls = type(tensor)
    geometry = (tuple(tensor.shape), tuple(tensor.stride()), 0, tensor.layout, tensor.device)
    arguments = (cls, tensor.dtype, *geometry, bool(tensor.requires_grad))
    state = dict(tensor.__dict__)
    state.pop("_claimed_device", None)
    return rebuild._rebuild_from_type_v2, (rebuild._rebuild_wrapper_subclass, cls, arguments, state)


def _reduce_tensor(tensor: Any) -> Any:
    """Reduces a tensor; NotImplemented where its class defines a reduction."""
    with importing:
        from flambeau.nn.parameter import Buffer, Parameter

    cls = type(tensor)
    if cls.__name__ in ("UninitializedParameter", "UninitializedBuffer"):
        return cls, tensor.__reduce_ex__(2)[1][:1]
    composed = tensor.is_nested or tensor.layout is not _core.strided
    composed = composed or module_of(cls) == "flambeau.masked.tensor"
    if not composed and cls.__reduce_ex__ is not _core.Tensor.__reduce_ex__:
        return NotImplemented
    if "_claimed_device" in tensor.__dict__ and not composed:
        return _reduce_wrapper(tensor)
    function, arguments = _reduction(tensor, composed)
    state = {name: v for name, v in tensor.__dict__.items() if name not in own_names(tensor)}
    if isinstance(tensor, Parameter) and (cls is Parameter or issubclass(cls, Parameter)):
        return _parameter(tensor, state)
    if function is rebuild._rebuild_sparse_tensor and tensor.requires_grad:
        state["requires_grad"] = True  # the call has no room for it
    plain = composed or cls is _core.Tensor or cls is Buffer
    if plain and not state:
        return function, arguments
    if composed and function is rebuild._rebuild_from_type_v2:
        inner, kind, inner_arguments, parts = arguments
        return function, (inner, kind, inner_arguments, parts | state)
    kind = _core.Tensor if plain else cls
    return rebuild._rebuild_from_type_v2, (function, kind, arguments, state or None)


def _reduction(tensor: Any, composed: bool) -> tuple[Any, tuple[Any, ...]]:
    if not composed:
        return _reduce_strided(tensor)
    if module_of(type(tensor)) == "flambeau.masked.tensor":
        return _reduce_masked(tensor)
    return _reduce_nested(tensor) if tensor.is_nested else _reduce_sparse(tensor)


def _parameter(parameter: Any, state: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    arguments: tuple[Any, ...] = (parameter.data, bool(parameter.requires_grad), OrderedDict())
    if not state:
        return rebuild._rebuild_parameter, arguments
    return rebuild._rebuild_parameter_with_state, (*arguments, state)


# ------------------------------------------------------------------------------ the pickler
class _Pickler:
    """Extends a pickler: storages, tensors and PyTorch's names."""

    storages: Storages

    def persistent_id(self, obj: Any) -> Any:
        """The reference to a storage; None for all else."""
        if type(obj) is _Stored:
            return self.storages.reference(obj.storage, obj.dtype)
        if isinstance(obj, _core.UntypedStorage):
            return self.storages.reference(obj, None)
        if type(obj).__name__ == "TypedStorage" and module_of(type(obj)) == "flambeau.storage":
            return self.storages.reference(obj._untyped_storage, obj.dtype)
        return None

    def reducer_override(self, obj: Any) -> Any:
        """How tensors and values of our native types are pickled."""
        if isinstance(obj, _core.Tensor):
            return _reduce_tensor(obj)
        if isinstance(obj, _core.layout):
            return rebuild._get_layout, (str(obj),)
        if isinstance(obj, _core.Generator):
            return _core.Generator, (obj.device,), (obj.initial_seed(), None, obj.get_state())
        if isinstance(obj, _core.Size):
            return _core.Size, (tuple(obj),)
        if isinstance(obj, (_core.dtype, _core.memory_format)):
            return str(obj).removeprefix("torch.")
        if hasattr(type(obj), "_flat_weights"):
            return _reduce_recurrent(obj)
        if callable(obj) and not isinstance(obj, type) and _names_operator(obj):
            return names.name_of(obj)[1]  # type: ignore[index]
        return NotImplemented


def _reduce_recurrent(module: Any) -> Any:
    """A recurrent module; PyTorch's hold a list of their weights besides."""
    state = module.__getstate__() if hasattr(module, "__getstate__") else dict(module.__dict__)
    return copyreg.__newobj__, (type(module),), {**state, "_flat_weights": module._flat_weights}  # type: ignore[attr-defined]


def _names_operator(value: Any) -> bool:
    module = module_of(value)
    is_ours = module == "flambeau" or module.startswith("flambeau.")
    if not is_ours or not hasattr(value, "__name__") or hasattr(value, "__self__"):
        return False
    return names.name_of(value) is not None and type(value).__name__ != "partial"


class _Named(_Pickler):
    """A pickler written in Python, whose names of our classes are PyTorch's."""

    proto: int
    save: Callable[[Any], None]
    write: Callable[[bytes], Any]
    memoize: Callable[[Any], None]

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Writes the name of a class, function or dtype."""
        named = names.name_of(obj, name)
        if named is None:
            super().save_global(obj, name)  # type: ignore[misc]
            return
        if self.proto >= 4:
            self.save(named[0])
            self.save(named[1])
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{named[0]}\n{named[1]}\n".encode())
        self.memoize(obj)

    def save_type(self, obj: Any) -> None:
        """Writes the name of a class."""
        if names.name_of(obj) is None:
            super().save_type(obj)  # type: ignore[misc]
        else:
            self.save_global(obj)


def _dispatch(table: dict[type, Any]) -> dict[type, Any]:
    """The table of a pickler written in Python, with our way to write names."""
    named = dict(table)
    named[type(_dispatch)] = lambda pickler, obj: pickler.save_global(obj)
    named[type] = lambda pickler, obj: pickler.save_type(obj)
    return named


def _pickler_class(base: type) -> Any:
    """The pickler of another module, with our storages and tensors.

    One written in Python writes PyTorch's names; a native one refers to them by a call of ours.
    """
    if hasattr(base, "dispatch") and hasattr(base, "save_global"):
        return type("Custom", (_Named, base), {"dispatch": _dispatch(base.dispatch)})

    class Custom(_Pickler, base):  # type: ignore[misc]
        """A native pickler."""

        def reducer_override(self, obj: Any) -> Any:
            """How tensors, and values that have only PyTorch's names, are pickled."""
            named = names.name_of(obj) if isinstance(obj, (type, _core.dtype)) else None
            if named is not None and obj is not getattr(
                sys.modules.get(obj.__module__), named[1], 0
            ):
                return names.resolve, named
            reduced = super().reducer_override(obj)
            if reduced is NotImplemented and hasattr(base, "reducer_override"):
                return base.reducer_override(self, obj)
            return reduced

    return Custom


class _NamingPickler(_Named, _PythonPickler):  # type: ignore[misc]
    """Python's pickler in Python, with PyTorch's names."""

    def save_list(self, obj: list[Any]) -> None:
        """Writes a list; a long one of plain values by the native pickler."""
        if len(obj) < _LONG or self.proto >= 4 or not {*map(type, obj)} <= {*_PLAIN}:
            super().save_list(obj)
            return
        file = io.BytesIO()
        native = pickle.Pickler(file, self.proto)
        native.fast = True
        native.dump(obj)
        data = file.getvalue()
        self.write(data[2 if self.proto >= 2 else 0 : -1])
        self.memoize(obj)

    dispatch = _dispatch(_PythonPickler.dispatch)
    dispatch[list] = save_list


def pickled(obj: Any, module: Any, protocol: int, storages: Storages) -> bytes:
    """The pickle of an object; the storages that it names are added to `storages`.

    Args:
        module: `pickle`, or a module with a `Pickler` of its own.
    """
    own = module is None or module is pickle
    cls = _NamingPickler if own else _pickler_class(module.Pickler)
    file = io.BytesIO()
    pickler = cls(file, protocol)
    pickler.storages = storages
    try:
        pickler.dump(obj)
    except RecursionError as error:
        problem = "the structure contains itself through a tensor, or is nested too deeply"
        raise failure(RecursionError, "save", problem, "flatten it") from error
    return file.getvalue()
