"""Fake tensors of a trace: sizes are symbols where the mode has an environment for them.

The native tensor has the sizes of the example. Python sees symbols in their place, and subscripts
become operators that take symbols.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from flambeau import _core
from flambeau._subclasses.fake_calls import below, state
from flambeau._subclasses.fake_tensor import FakeTensor
from flambeau.core import tensors
from flambeau.ir.failure import failure
from flambeau.ir.size import Size, SizeExpr, prod
from flambeau.ops import aten
from flambeau.runtime.symbolic import SymInt, SymNode, has_symbols
from flambeau.utils import _python_dispatch

__all__ = ["Geometry", "TracedTensor", "geometry_of"]

Value = Any
_END = (1 << 63) - 1  # of a slice without one


class Geometry(NamedTuple):
    """Sizes of a tensor as symbols.

    Attributes:
        sizes, strides, offset: expressions of symbols.
        env: the environment of these.
    """

    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size
    env: Value

    def number(self, value: Size, *origin: Value) -> Value:
        """A size as Python sees it.

        Args:
            value: the size.
            origin: the operator that reads it, and that one's arguments, where it is no plain size.
        """
        value = self.env.resolve(value)
        if not isinstance(value, SizeExpr):
            return value
        return SymInt(SymNode(value, self.env, int, (origin[0], origin[1:]) if origin else None))


def _refusing(name: str) -> Value:
    """A method that changes sizes, which is refused where these are symbols."""
    plain = getattr(_core.Tensor, name)

    def method(self: Value, *args: Value, **kwargs: Value) -> Value:
        if self._symbolic() is not None:
            problem = f"{name} changes sizes that are symbols"
            raise failure(NotImplementedError, "make_fx", problem, "compute a new tensor")
        return plain(self, *args, **kwargs)

    return method


def geometry_of(tensor: Value) -> Geometry:
    """The sizes of a tensor in the algebra; those of a plain tensor are numbers."""
    geometry: Geometry | None = tensor.__dict__.get("geometry")
    if geometry is not None:
        return geometry
    with below():
        return Geometry(tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), None)


def geometry_from(sizes: Value, strides: Value, offset: Value, env: Value) -> Geometry:
    """A geometry of the numbers that Python sees."""

    def size_of(value: Value) -> Size:
        expression: Size = value.node.expr if isinstance(value, SymInt) else value
        return expression

    parts = [tuple(map(size_of, sizes)), tuple(map(size_of, strides))]
    return Geometry(parts[0], parts[1], size_of(offset), env)


class TracedTensor(FakeTensor):
    """A fake tensor of a trace.

    Attributes:
        geometry: its sizes as symbols; None: they are numbers.
    """

    geometry: Geometry | None = None

    def _symbolic(self) -> Geometry | None:
        return None if state.kernel else self.__dict__.get("geometry")

    @property
    def shape(self) -> Value:
        """The sizes."""
        geometry = self._symbolic()
        if geometry is None:
            return _core.Tensor.shape.__get__(self)
        return _core.Size([geometry.number(x) for x in geometry.sizes])

    def size(self, dim: int | None = None) -> Value:
        """The sizes, or one of them."""
        if self._symbolic() is None:
            return _core.Tensor.size(self) if dim is None else _core.Tensor.size(self, dim)
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Value:
        """The strides, or one of them."""
        geometry = self._symbolic()
        if geometry is None:
            return _core.Tensor.stride(self) if dim is None else _core.Tensor.stride(self, dim)
        reads = aten.__getattr__("sym_stride").int
        strides = tuple(
            [geometry.number(x, reads, self, d) for d, x in enumerate(geometry.strides)]
        )
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> Value:
        """Where the tensor begins in its memory."""
        geometry = self._symbolic()
        if geometry is None:
            return _core.Tensor.storage_offset(self)
        return geometry.number(
            geometry.offset, aten.__getattr__("sym_storage_offset").default, self
        )

    def numel(self) -> Value:
        """The number of elements."""
        geometry = self._symbolic()
        if geometry is None:
            return _core.Tensor.numel(self)
        return geometry.number(prod(geometry.sizes), aten.__getattr__("sym_numel").default, self)

    nelement = numel

    @property
    def nbytes(self) -> Value:
        """The number of bytes of all elements."""
        return self.numel() * self.element_size()

    resize_, resize_as_ = _refusing("resize_"), _refusing("resize_as_")
    set_, as_strided_ = _refusing("set_"), _refusing("as_strided_")

    def __len__(self) -> int:
        if self._symbolic() is None:
            return _core.Tensor.__len__(self)
        return int(self.shape[0])

    def __getitem__(self, key: Value) -> Value:
        if self._symbolic() is None and not has_symbols(_numbers(key)):
            return _core.Tensor.__getitem__(self, key)
        part, indices = _sliced(self, key)
        return part if indices is None else aten.index.Tensor(part, indices)

    def __setitem__(self, key: Value, value: Value) -> None:
        if not _python_dispatch._modes.stack:
            _core.Tensor.__setitem__(self, key, value)
            return
        if not isinstance(value, _core.Tensor):
            with _python_dispatch._disable_current_modes(), _core.no_grad():
                number = tensors.from_python(value, self.dtype)
            value = _python_dispatch.constant(number)
        part, indices = _sliced(self, key)
        if indices is None:
            _copied_to(part, value)
        else:
            aten.index_put_.default(part, indices, _without_ones(value))


def _numbers(key: Value) -> list[Value]:
    numbers: list[Value] = []
    for item in key if isinstance(key, tuple) else (key,):
        is_slice = isinstance(item, slice)
        numbers += [item.start, item.stop, item.step] if is_slice else [item]
    return numbers


def _without_ones(value: Value) -> Value:
    """A value without leading dimensions of one element."""
    lead = 0
    while lead < value.ndim and isinstance(value.shape[lead], int) and value.shape[lead] == 1:
        lead += 1
    return aten.view(value, tuple(value.shape[lead:])) if lead else value


def _copied_to(part: Value, value: Value) -> None:
    shape = tuple(part.shape)
    if len(shape) == value.ndim and all(map(operator.eq, shape, value.shape)):
        aten.copy_.default(part, value)
    elif value.ndim == 0:
        aten.fill_.Tensor(part, value)
    else:
        value = _without_ones(value)
        if tuple(value.shape) != shape:
            value = aten.expand(value, shape)
        aten.copy_.default(part, value)


def _sliced(tensor: Value, key: Value) -> tuple[Value, list[Value] | None]:
    """The view that the numbers and slices of a subscript show, and its index tensors."""
    items = list(key) if isinstance(key, tuple) else [key]
    items = [tensors.from_python(x, _core.int64) if isinstance(x, list) else x for x in items]
    taken = sum(map(_dimensions, items))
    if taken > tensor.ndim:
        raise failure(
            IndexError, "getitem", "too many indices for tensor", f"{tensor.ndim} of them"
        )
    if not any(item is Ellipsis for item in items):
        items.append(Ellipsis)
    indices: list[Value] = []
    dim, symbolic = 0, has_symbols(_numbers(key)) or tensor.geometry is not None
    for number, item in enumerate(items):
        if item is Ellipsis:
            dim = tensor.ndim - sum(map(_dimensions, items[number:]))
            continue
        if isinstance(item, bool):
            problem = "a truth value is a subscript"
            raise failure(NotImplementedError, "getitem", problem, "None, or torch.where")
        if item is None:
            tensor, dim = aten.unsqueeze(tensor, dim), dim + 1
        elif isinstance(item, slice):
            tensor, dim = _slice(tensor, dim, item, symbolic), dim + 1
        elif isinstance(item, _core.Tensor):
            indices += [None] * (dim - len(indices)) + [item]
            dim += _dimensions(item)
        else:
            tensor = aten.select(tensor, dim, item)
    return tensor, indices or None


def _dimensions(item: Value) -> int:
    """How many dimensions an item of a subscript takes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, _core.Tensor) and item.dtype in (_core.bool, _core.uint8):
        return int(item.ndim)
    return 1


def _slice(tensor: Value, dim: int, item: slice, symbolic: bool) -> Value:
    if not symbolic and item == slice(None):
        return tensor
    start = 0 if item.start is None else item.start
    end = _END if item.stop is None else item.stop
    step = 1 if item.step is None else item.step
    return aten.slice.Tensor(tensor, dim, start, end, step)
