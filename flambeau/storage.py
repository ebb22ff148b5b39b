"""`torch.storage`: the memory behind tensors, and its older form whose elements have a dtype.

`UntypedStorage` holds the bytes of tensors. `TypedStorage` shows those bytes as elements; it is
deprecated in PyTorch, and here for programs and checkpoints that still name it.
"""

from __future__ import annotations

import io
import operator
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from flambeau import _core
from flambeau._core import UntypedStorage
from flambeau.ir.dtypes import TITLES
from flambeau.ir.lock import importing
from flambeau.language.dtypes import DTYPE_OBJECTS
from flambeau.runtime.shared import share

__all__ = ["TypedStorage", "UntypedStorage", "is_storage"]

_DTYPES = ("f32", "f64", "f16", "bf16", "u8", "i8", "i16", "i32", "i64", "bool", "c64", "c128")
_ORDERS = ("big", "little", "native")
_NAMES = {DTYPE_OBJECTS[name]: f"{TITLES[name]}Storage" for name in _DTYPES}


def _refused(name: str, what: str) -> TypeError:
    return TypeError(
        f"[{name}] received an invalid combination of arguments: {what}\n"
        "hint: a size, a sequence, or wrap_storage=an UntypedStorage"
    )


def _bytes_of(name: str, dtype: Any, args: tuple[Any, ...], wrapped: Any) -> Any:
    """The bytes of a new storage."""
    if wrapped is not None:
        if args or not isinstance(wrapped, UntypedStorage):
            raise _refused(name, f"{len(args)} values and a {type(wrapped).__name__}")
        return wrapped
    if not args:
        return UntypedStorage(0)
    if len(args) == 1 and isinstance(args[0], int):
        return UntypedStorage(args[0] * dtype.itemsize)
    data = args[0]
    plain = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if len(args) != 1 or isinstance(data, (_core.Tensor, UntypedStorage, str)) or not plain:
        raise _refused(name, ", ".join(type(value).__name__ for value in args))
    return _core.tensor_from_python(data, dtype).untyped_storage()


class TypedStorage:
    """Elements of one dtype in a row: an `UntypedStorage` and a dtype.

    Args:
        args: nothing, a number of elements (not initialised), or a sequence of numbers.
        wrap_storage: the bytes to show; their dtype has to be given.
        dtype: of the elements; the default dtype where None.
        device: the CPU.

    Raises:
        TypeError: other arguments.
        RuntimeError: bytes without a dtype.

    Example:
        >>> torch.TypedStorage([1, 2], dtype=torch.int64).tolist()
        [1, 2]
    """

    is_cuda = False
    is_sparse = False

    def __init__(
        self, *args: Any, wrap_storage: Any = None, dtype: Any = None, device: Any = None
    ) -> None:
        if wrap_storage is not None and dtype is None:
            raise RuntimeError(
                "[TypedStorage] argument 'dtype' must be specified with wrap_storage\n"
                "hint: dtype=torch.float32"
            )
        self.dtype = _core.get_default_dtype() if dtype is None else dtype
        self._untyped_storage = _bytes_of("TypedStorage", self.dtype, args, wrap_storage)

    def _tensor(self) -> Any:
        return _core.tensor_from_storage(self._untyped_storage, self.dtype, (len(self),), (1,))

    @property
    def device(self) -> Any:
        """Where the bytes are."""
        return self._untyped_storage.device

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return self._untyped_storage

    def __sizeof__(self) -> int:
        return int(super().__sizeof__() + self.nbytes())

    def __len__(self) -> int:
        return int(self.nbytes() // self.dtype.itemsize)

    def size(self) -> int:
        """Number of elements."""
        return len(self)

    def nbytes(self) -> int:
        """Number of bytes."""
        return self._untyped_storage.nbytes()

    def element_size(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self._untyped_storage.data_ptr()

    def _place(self, index: Any) -> int:
        if isinstance(index, slice):
            raise RuntimeError(
                "[TypedStorage] slices are only supported in UntypedStorage\nhint: tolist()[a:b]"
            )
        try:
            place = operator.index(index)
        except TypeError:
            raise RuntimeError(
                f"[TypedStorage] can't index a TypedStorage with {type(index)}\nhint: an int"
            ) from None
        if not -len(self) <= place < len(self):
            raise IndexError(
                f"[TypedStorage] index {place} out of range for storage of size {len(self)}\n"
                "hint: len(storage)"
            )
        return place % len(self)

    def __getitem__(self, index: Any) -> Any:
        return self._tensor()[self._place(index)].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._tensor()[index] = value
        else:
            self._tensor()[self._place(index)] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        elements: list[Any] = self._tensor().tolist()
        return elements

    def fill_(self, value: Any) -> TypedStorage:
        """Writes one number everywhere."""
        self._tensor().fill_(value)
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool | None = None) -> TypedStorage:
        """Writes the elements of another storage of this size, converted.

        Raises:
            RuntimeError: another number of elements.
        """
        if len(source) != len(self):
            raise RuntimeError(
                f"[TypedStorage] size does not match, self was {self.nbytes()} bytes but src was "
                f"{source.nbytes()} bytes\nhint: resize_"
            )
        self._tensor().copy_(source._tensor())
        return self

    def clone(self) -> TypedStorage:
        """The same elements in memory of their own."""
        return type(self)(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def resize_(self, size: int) -> None:
        """Sets the number of elements; those below both numbers do not change."""
        self._untyped_storage.resize_(size * self.element_size())

    def cpu(self) -> TypedStorage:
        """Itself: it is on the CPU."""
        return self

    def is_shared(self) -> bool:
        """Whether forked processes see each other's writes."""
        return self._untyped_storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        """Moves the elements to memory that other processes can be sent; all views move along."""
        share(self._untyped_storage)
        return self

    @classmethod
    def _new_shared(cls, size: int, *, dtype: Any = None) -> TypedStorage:
        """A storage in shared memory."""
        kind = dtype or getattr(cls, "dtype", _core.get_default_dtype())
        held = UntypedStorage._new_shared(size * kind.itemsize)
        return TypedStorage(wrap_storage=held, dtype=kind)

    def is_pinned(self, device: Any = None) -> bool:
        """False: memory is never pinned."""
        return False

    def pickle_storage_type(self) -> str:
        """Name of the old storage type of this dtype."""
        return _NAMES[self.dtype]

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """Name of the old storage type; or the elements converted to one, or to a dtype.

        Raises:
            TypeError: no type.
        """
        if dtype is None:
            return f"torch.{_NAMES[self.dtype]}"
        if isinstance(dtype, str):
            dtype = STORAGE_TYPES.get(dtype.removeprefix("torch."), dtype)
        kind = getattr(dtype, "dtype", dtype)
        if kind not in _NAMES:
            raise TypeError(f"[TypedStorage] {dtype!r} is no storage type\nhint: torch.IntStorage")
        return self._converted(kind)

    def _converted(self, dtype: Any) -> TypedStorage:
        converted = self._tensor().to(dtype)
        return TypedStorage(wrap_storage=converted.untyped_storage(), dtype=dtype)

    def __repr__(self) -> str:
        lines = "\n ".join(str(value) for value in self.tolist())
        kind = f"torch.storage.TypedStorage(dtype={self.dtype}, device={self.device})"
        return f" {lines}\n[{kind} of size {len(self)}]"


def _as_numbers(storage: UntypedStorage) -> TypedStorage:
    return TypedStorage(wrap_storage=storage, dtype=DTYPE_OBJECTS["u8"])


def _define_conversion(name: str, dtype: Any) -> None:
    def convert(self: Any) -> TypedStorage:
        elements = _as_numbers(self) if isinstance(self, UntypedStorage) else self
        return elements._converted(dtype)

    convert.__name__ = name
    convert.__doc__ = f"The elements (bytes, where they have no dtype) converted to {dtype}."
    setattr(TypedStorage, name, convert)
    setattr(UntypedStorage, name, convert)


for _name in _DTYPES:
    _spelled = TITLES[_name].replace("Complex", "complex_").lower()
    _define_conversion(_spelled, DTYPE_OBJECTS[_name])


class _StorageType(type):
    """The type of `torch.FloatStorage` and its relatives: `isinstance` compares the dtype."""

    dtype: Any

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is LegacyStorage:
            return isinstance(instance, TypedStorage)
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype


class LegacyStorage(TypedStorage, metaclass=_StorageType):
    """Base of the old storage types; calling one makes a `TypedStorage` of its dtype."""

    def __new__(cls, *args: Any, wrap_storage: Any = None, device: Any = None) -> Any:
        """A `TypedStorage` of this type's dtype."""
        held = _bytes_of(cls.__name__, cls.dtype, args, wrap_storage)
        return TypedStorage(wrap_storage=held, dtype=cls.dtype)

    @classmethod
    def from_buffer(
        cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0
    ) -> TypedStorage:
        """A copy of a buffer's bytes, as elements; see `UntypedStorage.from_buffer`."""
        held = buffer_bytes(buffer, byte_order, count, offset, cls.dtype)
        return TypedStorage(wrap_storage=held, dtype=cls.dtype)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """A storage over the first elements of a file; see `torch.from_file`."""
        held = _from_file(filename, shared, size * cls.dtype.itemsize)
        return TypedStorage(wrap_storage=held, dtype=cls.dtype)


STORAGE_TYPES: dict[str, Any] = {
    name: _StorageType(
        name,
        (LegacyStorage,),
        {
            "dtype": dtype,
            "__module__": "torch",
            "__doc__": f"A `TypedStorage` of {dtype}: sizes, a sequence or bytes; else none.",
        },
    )
    for dtype, name in _NAMES.items()
}
globals().update(STORAGE_TYPES)
Storage = STORAGE_TYPES["FloatStorage"]


def is_storage(obj: Any, /) -> bool:
    """Whether an object is a storage.

    Example:
        >>> torch.is_storage(torch.ones(2).untyped_storage())
        True
    """
    return isinstance(obj, (UntypedStorage, TypedStorage))


# ------------------------------------------------------------------------------ bytes
def _wrong(what: str, hint: str) -> ValueError:
    return ValueError(f"[from_buffer] {what}\nhint: {hint}")


def _needs_swap(byte_order: str | None, dtype: Any) -> bool:
    if dtype.itemsize == 1:
        return False
    if byte_order is None:
        raise RuntimeError(
            "[from_buffer] function missing required argument 'byte_order'\n"
            "hint: 'native', 'little' or 'big'"
        )
    if byte_order not in _ORDERS:
        raise _wrong(f"invalid byte_order {byte_order!r}", f"one of {_ORDERS}")
    return byte_order not in ("native", sys.byteorder)


def _swapped(data: bytes, width: int) -> bytes:
    """Each group of *width* bytes in the opposite order."""
    turned = bytearray(len(data))
    for place in range(width):
        turned[place::width] = data[width - 1 - place :: width]
    return bytes(turned)


def buffer_bytes(
    buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, dtype: Any = None
) -> UntypedStorage:
    """A copy of a buffer's bytes, in this machine's order: `UntypedStorage.from_buffer`.

    Args:
        buffer: of bytes.
        byte_order: of the buffer's elements: "native", "little" or "big".
        count: of elements; -1: all of them.
        offset: in bytes.
        dtype: of the elements.

    Raises:
        RuntimeError: no dtype, or no order of elements that have several bytes.
        ValueError: an unknown order, or bytes that are not there.
        TypeError: no buffer.

    Example:
        >>> torch.UntypedStorage.from_buffer(b"ab", dtype=torch.uint8).tolist()
        [97, 98]
    """
    if dtype is None:
        raise RuntimeError("[from_buffer] argument 'dtype' cannot be None\nhint: torch.uint8")
    swap, width = _needs_swap(byte_order, dtype), dtype.itemsize
    data = bytes(memoryview(buffer))
    if not 0 <= offset <= len(data):
        raise _wrong(f"offset {offset} is outside of {len(data)} bytes", "check the offset")
    room = len(data) - offset
    if count < 0 and room % width:
        raise _wrong(f"{room} bytes are no multiple of an element's {width}", "count=")
    if count > room // width:
        raise _wrong(f"buffer has only {room // width} elements, but {count} are asked", "count=-1")
    data = data[offset : len(data) if count < 0 else offset + count * width]
    return UntypedStorage(len(data)).fill_bytes(_swapped(data, width) if swap else data)


def _byteswap(self: UntypedStorage, dtype: Any) -> None:
    """Turns the order of bytes of each element; of complex numbers, of each part.

    Raises:
        RuntimeError: the bytes are no whole number of elements.
    """
    if self.nbytes() % dtype.itemsize:
        raise RuntimeError(
            f"[byteswap] the length of data is not a multiple of {dtype.itemsize}\nhint: check it"
        )
    width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    self.fill_bytes(_swapped(self.bytes(), width))


def _copy(self: UntypedStorage, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
    """Writes the bytes of another storage of this size.

    Raises:
        TypeError: no storage.
        RuntimeError: another number of bytes.
    """
    held = getattr(source, "_untyped_storage", source)
    if not isinstance(held, UntypedStorage):
        raise TypeError(
            f"[copy_] the source must be a storage, not {type(source).__name__}\nhint: fill_"
        )
    if held.nbytes() != self.nbytes():
        raise RuntimeError(
            f"[copy_] size does not match, self was {self.nbytes()} bytes but src was "
            f"{held.nbytes()} bytes\nhint: resize_"
        )
    return self.fill_bytes(held)


def _to(self: UntypedStorage, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
    """Itself on the device where it is, else a copy there."""
    device = _core.device(device)
    if device == self.device:
        return self
    moved = UntypedStorage(self.nbytes(), device=device)
    return moved if device.type == "meta" else moved.fill_bytes(self)


def _type(self: UntypedStorage, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of this type; with an old storage type, the bytes as its elements."""
    return "torch.storage.UntypedStorage" if dtype is None else _as_numbers(self).type(dtype)


def _from_file(filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
    """A storage over the first bytes of a file; see `torch.from_file`."""
    with importing:
        from flambeau.runtime.files import mapped_storage

    return mapped_storage(filename, shared, nbytes)


def _new_shared(size: int, *, device: Any = "cpu") -> UntypedStorage:
    """A storage in shared memory."""
    storage: UntypedStorage = share(UntypedStorage(size, device=device))
    return storage


UntypedStorage.share_memory_ = share
UntypedStorage._new_shared = staticmethod(_new_shared)
UntypedStorage.byteswap = _byteswap
UntypedStorage.from_file = staticmethod(_from_file)
UntypedStorage.copy_ = _copy
UntypedStorage.from_buffer = staticmethod(buffer_bytes)
UntypedStorage.to = _to
UntypedStorage.type = _type


# ------------------------------------------------------------------------------ tensors
_warned = False


def _storage(self: Any) -> TypedStorage:
    """The elements behind a tensor, all of them, as a `TypedStorage`; it shares their memory."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "TypedStorage is deprecated; use tensor.untyped_storage() instead of tensor.storage()",
            stacklevel=3,
        )
    return _typed_storage(self)


def _typed_storage(self: Any) -> TypedStorage:
    """As `storage`, without a warning."""
    return TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype)


def _storage_type(self: Any) -> Any:
    """The old storage type of the tensor's dtype."""
    return STORAGE_TYPES[_NAMES[self.dtype]]


_core.Tensor.storage = _storage
_core.Tensor._typed_storage = _typed_storage
_core.Tensor.storage_type = _storage_type


def _load_from_bytes(data: bytes) -> Any:
    """The storage in a plain pickle of PyTorch, which holds it as `torch.save` would write it."""
    with importing:
        from flambeau.serialization import load
    return load(io.BytesIO(data), weights_only=False)
