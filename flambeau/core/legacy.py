"""`torch.FloatTensor` and its relatives: a type per dtype, from before tensors had dtypes.

They are no bases of `Tensor`: calling one makes a tensor of its dtype, and `isinstance` compares
the dtype. The storages of `flambeau/storage.py` are of the same age.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from flambeau import _core
from flambeau.core import tensors
from flambeau.ir.dtypes import TITLES
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.language.dtypes import DTYPE_OBJECTS

_DTYPES = ("f32", "f64", "f16", "bf16", "u8", "i8", "i16", "i32", "i64", "bool")


def _sizes(values: Sequence[Any]) -> list[int] | None:
    """The sizes that a call states, or None where it states something else."""
    if len(values) == 1 and isinstance(values[0], _core.Size):
        return list(values[0])
    if len(values) == 1 and isinstance(values[0], (_core.Tensor, bool)):
        return None
    try:
        return [operator.index(v) for v in values]
    except TypeError:
        return None


def _of_storage(storage: Any, dtype: Any, name: str) -> Any:
    own = getattr(storage, "dtype", dtype)
    if own is not dtype:
        problem = f"expected a storage of {dtype} or an UntypedStorage, but got one of {own}"
        raise failure(
            RuntimeError, name, problem, "make the tensor in the storage's dtype, then convert it"
        )
    untyped = getattr(storage, "_untyped_storage", storage)
    count = untyped.nbytes() // dtype.itemsize
    return _core.tensor_from_storage(untyped, dtype, (count,), (1,))


def _of_data(data: Any, dtype: Any, name: str) -> Any:
    if isinstance(data, _core.Tensor):
        if data.dtype is not dtype:
            problem = f"expected a tensor of {dtype}, got one of {data.dtype}"
            raise failure(TypeError, name, problem, f"x.to({dtype})")
        return data.detach()
    if isinstance(data, _core.UntypedStorage) or hasattr(data, "_untyped_storage"):
        return _of_storage(data, dtype, name)
    if isinstance(data, str):
        raise failure(TypeError, name, "new(): invalid data type 'str'", "sizes, or a sequence")
    if isinstance(data, dict) or not all(hasattr(data, n) for n in ("__len__", "__getitem__")):
        kind = type(data).__name__
        problem = f"new(): data must be a sequence (got {kind})"
        raise failure(TypeError, name, problem, "tensor(value)")
    return _core.tensor_from_python(data, dtype)


def legacy_tensor(dtype: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Constructs a tensor of sizes (uninitialized), a sequence, a tensor or a storage.

    Args:
        dtype: of the result.
        name: of the caller, for messages.
        args: the sizes, or one value.
        kwargs: `size` or `data` by name, and `device`.

    Raises:
        TypeError: other arguments, or a tensor of another dtype.
        RuntimeError: another device than the CPU; negative sizes.
    """
    device = _core.device(kwargs.pop("device", None) or "cpu")
    if device.type != "cpu":
        problem = f"legacy constructor expects device type: cpu but device type: {device.type} "
        problem += "was passed"
        raise failure(RuntimeError, name, problem, "torch.empty(sizes, device=...)")
    if "size" in kwargs and not args:
        args = (_core.Size(kwargs.pop("size")),)
    elif "data" in kwargs and not args:
        args = (kwargs.pop("data"),)
    if kwargs:
        problem = f"new() received an invalid combination of arguments: {sorted(kwargs)}"
        raise failure(TypeError, name, problem, "torch.tensor, torch.empty")
    sizes = _sizes(args) if args else [0]
    if sizes is not None:
        if any(n < 0 for n in sizes):
            problem = f"Trying to create tensor with negative dimension: {sizes}"
            raise failure(RuntimeError, name, problem, "sizes are not negative")
        return tensors.empty(sizes, dtype)
    if len(args) != 1:
        problem = f"new() received an invalid combination of arguments: {len(args)} values"
        raise failure(TypeError, name, problem, "sizes, or one sequence")
    return _of_data(args[0], dtype, name)


class TensorType(type):
    """The type of `torch.FloatTensor` and its relatives."""

    dtype: Any
    layout = _core.strided
    is_cuda = False
    is_sparse = False

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """A tensor of this type's dtype; see `legacy_tensor`."""
        return legacy_tensor(cls.dtype, cls.__name__, args, kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        """Whether a tensor on the CPU has this type's dtype."""
        if not isinstance(instance, _core.Tensor) or instance.layout is not _core.strided:
            return False
        return instance.dtype is cls.dtype and instance.device.type == "cpu"

    def __getattr__(cls, name: str) -> Any:
        """The methods of `Tensor`."""
        if name.startswith("__") or not hasattr(_core.Tensor, name):
            raise AttributeError(f"type object 'torch.{cls.__name__}' has no attribute {name!r}")
        return getattr(_core.Tensor, name)

    def __repr__(cls) -> str:
        """As PyTorch prints it."""
        return f"<class 'torch.{cls.__name__}'>"


TENSOR_TYPES: dict[str, TensorType] = {
    f"{TITLES[name]}Tensor": TensorType(
        f"{TITLES[name]}Tensor",
        (),
        {
            "dtype": DTYPE_OBJECTS[name],
            "__module__": "torch",
            "__doc__": f"A tensor of {DTYPE_OBJECTS[name]} on the CPU: of sizes or of a sequence.",
        },
    )
    for name in _DTYPES
}
globals().update(TENSOR_TYPES)


def set_default_tensor_type(t: Any, /) -> None:
    """Sets the default floating dtype by an old type or its name; use `set_default_dtype`.

    Raises:
        TypeError: no such type, or one whose dtype is not floating.

    Example:
        >>> torch.set_default_tensor_type(torch.DoubleTensor)
        >>> torch.tensor([1.5]).dtype
        torch.float64
        >>> torch.set_default_tensor_type("torch.FloatTensor")
    """
    late("flambeau.core.warned").warn_once(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
        "torch.set_default_dtype() and torch.set_default_device() as alternatives."
    )
    if isinstance(t, str):
        module, _, name = t.rpartition(".")
        if module != "torch":
            raise ModuleNotFoundError(f"[set_default_tensor_type] No module named {t!r}", name=t)
        if name not in TENSOR_TYPES:
            raise AttributeError(f"[set_default_tensor_type] module 'torch' has no {name!r}")
        t = TENSOR_TYPES[name]
    if not isinstance(t, TensorType) or not t.dtype.is_floating_point:
        problem = f"only floating-point types are supported as the default type, got {t!r}"
        raise failure(
            TypeError, "set_default_tensor_type", problem, "torch.set_default_dtype(torch.float64)"
        )
    _core.set_default_dtype(t.dtype)
