"""Programs in core ATen: primitives that are operators of PyTorch's small set.

A primitive is written by the operator whose definition is that primitive, so results have the same
bits. Numbers stay numbers (`mul.Tensor(x, 0.5)`) and operands are broadcast by the operators, as
in PyTorch's decompositions. A program with a primitive that no core operator computes is not
written: its operator stays in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.decompositions.composites import viewable
from flambeau.decompositions.emission import Dialect, number_of, placed
from flambeau.decompositions.tags import is_core
from flambeau.ir.dtypes import CATEGORY
from flambeau.ir.node import Node
from flambeau.language.dtypes import object_of
from flambeau.language.layout import contiguous_strides
from flambeau.ops import aten
from flambeau.ops.legacy.queries import broadcast_shapes
from flambeau.prims.record import record_of
from flambeau.runtime.symbolic import lowered

Value = Any  # an argument or a result of an operator
Tensor = Any

__all__ = ["Core"]


# Pointwise primitives whose operator has another name or overload than the primitive's.
_UNARY = "{}.default"
_BINARY = {
    "maximum": "maximum.default", "minimum": "minimum.default", "atan2": "atan2.default",
    "pow": "pow.Tensor_Tensor",
}  # fmt: skip
_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_WITH_NUMBER = {
    "add": "add.Tensor", "sub": "sub.Tensor", "mul": "mul.Tensor", "div": "div.Tensor",
    "pow": "pow.Tensor_Scalar", "fmod": "fmod.Scalar", "remainder": "remainder.Scalar",
    **{name: f"{name}.Scalar" for name in _COMPARISONS},
}  # fmt: skip
# Operators that take a number, of which it is the first operand, as their second one.
_SWAPPED = {
    "add": "add.Tensor", "mul": "mul.Tensor",
    **{name: f"{swapped}.Scalar" for name, swapped in _COMPARISONS.items()},
}  # fmt: skip


def _overload(name: str) -> Value:
    """An overload of core ATen by its name; None: it is not in the set."""
    operator, _, overload = name.partition(".")
    try:
        candidate = getattr(getattr(aten, operator), overload)
    except AttributeError:
        return None
    return candidate if is_core(candidate) else None


def _pointwise_name(current: Node) -> str:
    if len(current.inputs) == 1:
        return _UNARY.format(current.op)
    return _BINARY.get(current.op, f"{current.op}.Tensor")


class Core(Dialect):
    """Writes programs in core ATen."""

    @staticmethod
    def writes(current: Node) -> bool:
        """Whether core operators compute a node."""
        if current.is_input or _WRITERS.get(current.op) is not None:
            check = _CHECKS.get(current.op)
            return check is None or check(current)
        if record_of(current).kind != "pointwise":
            return False
        return len(current.inputs) < 3 and _overload(_pointwise_name(current)) is not None

    def lazy(self, current: Node) -> bool:
        """Whether a node is written only where something reads it as a tensor."""
        record = record_of(current)
        return record.constant or record.repeats == "dimensions"

    def write(self, current: Node) -> Tensor:
        """The value of a node, by calls of core operators."""
        writer = _WRITERS.get(current.op)
        return self.pointwise(current) if writer is None else writer(self, current)

    def call(self, name: str, *args: Value, **kwargs: Value) -> Tensor:
        """Calls an overload of `torch.ops.aten`."""
        return _overload(name)(*args, **kwargs)

    # ---------------------------------------------------------------------------- pointwise
    def pointwise(self, current: Node) -> Tensor:
        """A pointwise primitive, with numbers and small operands as they are."""
        if len(current.inputs) == 1:
            return self.call(_pointwise_name(current), self.tensor(current.inputs[0]))
        a, b = current.inputs
        if self._takes_number(current, b) and number_of(a) is None:
            return self.call(_WITH_NUMBER[current.op], self.tensor(a), number_of(b))
        if self._takes_number(current, a) and number_of(b) is None:
            swapped = _SWAPPED.get(current.op)
            if swapped is not None:
                return self.call(swapped, self.tensor(b), number_of(a))
        return self.call(_pointwise_name(current), *self.operands(current))

    def _takes_number(self, current: Node, number: Node) -> bool:
        """Whether an operator computes with a number in the dtype that the constant has."""
        fits = CATEGORY[number.dtype] in (1, 2) and number.dtype not in ("u8", "i8", "i16")
        operator = _WITH_NUMBER.get(current.op)
        return fits and operator is not None and number_of(number) is not None

    def operands(self, current: Node) -> list[Tensor]:
        """Operands of a pointwise node: before they are broadcast, where the operator does it."""
        short = [_short(x) for x in current.inputs]
        shapes = [shape for _, shape in short]
        if tuple(broadcast_shapes(*shapes)) != tuple(current.shape):
            return [self.tensor(x) for x in current.inputs]
        return [
            self.scalar(x, shape) if record_of(x).constant else self.tensor(x) for x, shape in short
        ]

    def scalar(self, constant: Node, shape: Sequence[int]) -> Tensor:
        """A constant as a tensor of a shape."""
        options = {"dtype": object_of(constant.dtype), **placed(self.device)}
        if shape:
            self.require_numbers()
        return self.call("full.default", list(shape), number_of(constant), **options)

    # ---------------------------------------------------------------------------- results
    @staticmethod
    def same(value: Tensor) -> Tensor:
        """Another tensor of the same memory."""
        return _overload("alias.default")(value)

    @staticmethod
    def empty(
        shape: tuple[int, ...], strides: tuple[int, ...], dtype: Value, device: Value
    ) -> Tensor:
        """A new tensor with any numbers."""
        options = {"dtype": dtype, **placed(device)}
        if strides == contiguous_strides(shape):
            return _overload("empty.memory_format")(list(shape), **options)
        return _overload("empty_strided.default")(list(shape), list(strides), **options)

    def clone(self, value: Tensor) -> Tensor:
        """A copy in row-major order."""
        return self.call("clone.default", value)

    def strided(self, value: Tensor, strides: Sequence[int]) -> Tensor:
        """A copy with other strides, which leave no gaps."""
        order = sorted(range(value.ndim), key=lambda d: -int(strides[d]))
        moved = self.call("permute.default", value, order)
        dense = moved if moved.is_contiguous() else self.call("clone.default", moved, **_DENSE)
        if dense is moved and order == list(range(value.ndim)):
            return self.call("clone.default", value, **_DENSE)
        back = sorted(range(value.ndim), key=order.__getitem__)
        return self.call("permute.default", dense, back)

    def window(self, base: Tensor, shape: Sequence[int], strides: Value, offset: int) -> Tensor:
        """A view of a tensor's memory."""
        return self.call("as_strided.default", base, list(shape), list(strides), offset)

    def overwrite(self, target: Tensor, value: Tensor) -> Tensor:
        """The target, after a value was written to it; core ATen itself writes nothing."""
        return aten.__getattr__("copy_").default(target, value)


_DENSE = {"memory_format": _core.contiguous_format}


def _short(value: Node) -> tuple[Node, tuple[int, ...]]:
    """An operand before a broadcast that operators make by themselves, and its shape."""
    record = record_of(value)
    if record.constant:
        return value, ()
    if record.repeats == "dimensions":
        operand, dims = value.inputs[0], value.attribute("dimensions")
        if tuple(dims) == tuple(range(value.ndim - operand.ndim, value.ndim)):
            return operand, operand.shape
    return value, value.shape


# ------------------------------------------------------------------------------ other primitives
Writer = Callable[[Core, Node], Tensor]
_WRITERS: dict[str, Writer] = {}
_CHECKS: dict[str, Callable[[Node], bool]] = {}


def _writes(name: str, only: Callable[[Node], bool] | None = None) -> Callable[[Writer], Writer]:
    def register(writer: Writer) -> Writer:
        _WRITERS[name] = writer
        if only is not None:
            _CHECKS[name] = only
        return writer

    return register


def _along(name: str, overload: str, listed: bool = False, typed: bool = False) -> None:
    """A primitive along one axis; `typed`: whose operator needs the dtype of small integers."""

    def write(core: Core, current: Node) -> Tensor:
        axis = current.attribute("axis")
        integers = typed and current.dtype[0] in "iu" and current.dtype != "i64"
        options = {"dtype": object_of(current.dtype)} if integers else {}
        place = [axis] if listed else axis
        return core.call(overload, core.tensor(current.inputs[0]), place, **options)

    _writes(name)(write)


_along("sum", "sum.dim_IntList", listed=True, typed=True)
_along("prod", "prod.dim_int", typed=True)
_along("max", "amax.default", listed=True)
_along("min", "amin.default", listed=True)
_along("argmax", "argmax.default")
_along("argmin", "argmin.default")
_along("any", "any.dim")
_along("cumsum", "cumsum.default", typed=True)


@_writes("all")
def _all(core: Core, current: Node) -> Tensor:
    negated = core.call("logical_not.default", core.tensor(current.inputs[0]))
    some = core.call("any.dim", negated, current.attribute("axis"))
    return core.call("logical_not.default", some)


@_writes("full")
def _full(core: Core, current: Node) -> Tensor:
    return core.scalar(current, current.shape)


@_writes("iota")
def _iota(core: Core, current: Node) -> Tensor:
    shape, dimension = current.shape, current.attribute("dimension")
    core.require_numbers()
    options = {"dtype": object_of(current.dtype), **placed(core.device)}
    line = core.call("arange.start_step", 0, shape[dimension], 1, **options)
    if current.ndim == 1:
        return line
    single = [n if d == dimension else 1 for d, n in enumerate(shape)]
    return core.call("expand.default", _reshaped(core, line, single), list(shape))


@_writes("cast")
def _cast(core: Core, current: Node) -> Tensor:
    dtype = object_of(current.dtype)
    return core.call("_to_copy.default", core.tensor(current.inputs[0]), dtype=dtype)


@_writes("where")
def _where(core: Core, current: Node) -> Tensor:
    return core.call("where.self", *core.operands(current))


@_writes("reshape")
def _reshape(core: Core, current: Node) -> Tensor:
    return _reshaped(core, core.tensor(current.inputs[0]), current.shape)


def _reshaped(core: Core, value: Tensor, shape: Sequence[int]) -> Tensor:
    """A tensor in another shape: by `unsqueeze` or `squeeze` where one dimension of 1 differs."""
    old, new = lowered(list(value.shape)), list(shape)  # numbers of the example: no guard
    if old == new:
        return value
    for d in range(len(new)):
        if len(new) == len(old) + 1 and new[d] == 1 and new[:d] + new[d + 1 :] == old:
            return core.call("unsqueeze.default", value, d)
    for d in range(len(old)):
        if len(old) == len(new) + 1 and old[d] == 1 and old[:d] + old[d + 1 :] == new:
            return core.call("squeeze.dims", value, [d])
    core.require_numbers()
    if not viewable(value, new):
        value = core.call("clone.default", value, **_DENSE)
    return core.call("view.default", value, new)


@_writes("broadcast")
def _broadcast(core: Core, current: Node) -> Tensor:
    value, dims = core.tensor(current.inputs[0]), current.attribute("dimensions")
    leading = tuple(range(current.ndim - len(dims), current.ndim))
    if tuple(dims) != leading:
        single = [1] * current.ndim
        for d, size in zip(dims, lowered(tuple(value.shape)), strict=True):
            single[d] = int(size)
        value = _reshaped(core, value, single)
    if lowered(tuple(value.shape)) == tuple(current.shape):
        return value
    core.require_numbers()
    return core.call("expand.default", value, list(current.shape))


@_writes("permute")
def _permute(core: Core, current: Node) -> Tensor:
    order = list(current.attribute("order"))
    return core.call("permute.default", core.tensor(current.inputs[0]), order)


@_writes("slice")
def _slice(core: Core, current: Node) -> Tensor:
    dimension, start, step, length = (
        current.attribute(name) for name in ("dimension", "start", "step", "length")
    )
    end = start + (length - 1) * step + 1 if length else start
    return core.call("slice.Tensor", core.tensor(current.inputs[0]), dimension, start, end, step)


@_writes("flip")
def _flip(core: Core, current: Node) -> Tensor:
    dims = list(current.attribute("dimensions"))
    return core.call("flip.default", core.tensor(current.inputs[0]), dims)


@_writes("cat")
def _cat(core: Core, current: Node) -> Tensor:
    operands = [core.tensor(x) for x in current.inputs]
    return core.call("cat.default", operands, current.attribute("dimension"))


@_writes("pad", only=lambda current: number_of(current.inputs[1]) is not None)
def _pad(core: Core, current: Node) -> Tensor:
    sides = zip(current.attribute("low"), current.attribute("high"), strict=True)
    pads = [n for low, high in reversed(list(sides)) for n in (low, high)]
    number = number_of(current.inputs[1])
    return core.call("constant_pad_nd.default", core.tensor(current.inputs[0]), pads, number)


@_writes("floor_div")
def _floor_div(core: Core, current: Node) -> Tensor:
    return core.call("div.Tensor_mode", *core.operands(current), rounding_mode="floor")


@_writes("gather")
def _gather(core: Core, current: Node) -> Tensor:
    x, index = (core.tensor(each) for each in current.inputs)
    return core.call("gather.default", x, current.attribute("axis"), index)


@_writes("take")
def _take(core: Core, current: Node) -> Tensor:
    x, index = (core.tensor(each) for each in current.inputs)
    axis = current.attribute("axis")
    if index.ndim == 1:
        return core.call("index_select.default", x, axis, index)
    return core.call("index.Tensor", x, [None] * axis + [index])


@_writes("index_nd", only=lambda current: _leading(current))
def _index_nd(core: Core, current: Node) -> Tensor:
    x, *indices = (core.tensor(each) for each in current.inputs)
    return core.call("index.Tensor", x, indices)


def _leading(current: Node) -> bool:
    """Whether the indexed dimensions are the first ones."""
    dims = tuple(current.attribute("dims"))
    return dims == tuple(range(len(dims)))


@_writes("put_nd", only=lambda current: _leading(current) and _mode(current) in ("set", "add"))
def _put_nd(core: Core, current: Node) -> Tensor:
    x, *indices, source = (core.tensor(each) for each in current.inputs)
    return core.call("index_put.default", x, indices, source, _mode(current) == "add")


def _mode(current: Node) -> str:
    return str(current.attribute("mode"))


@_writes("scatter", only=lambda current: _mode(current) in ("set", "add"))
def _scatter(core: Core, current: Node) -> Tensor:
    x, index, source = (core.tensor(each) for each in current.inputs)
    name = "scatter.src" if _mode(current) == "set" else "scatter_add.default"
    return core.call(name, x, current.attribute("axis"), index, source)


@_writes("check_index")
def _check_index(core: Core, current: Node) -> Tensor:
    """An index counted from the front; the operator that reads it checks its range."""
    index = core.tensor(current.inputs[0])
    if current.inputs[0].dtype != "i64":
        index = core.call("_to_copy.default", index, dtype=object_of("i64"))
    negative = core.call("lt.Scalar", index, 0)
    wrapped = core.call("add.Tensor", index, current.attribute("size"))
    return core.call("where.self", negative, wrapped, index)


def _plain_product(current: Node) -> bool:
    return current.ndim in (2, 3) and current.dtype == current.inputs[0].dtype


@_writes("matmul", only=_plain_product)
def _matmul(core: Core, current: Node) -> Tensor:
    name = "mm.default" if current.ndim == 2 else "bmm.default"
    return core.call(name, *[core.tensor(x) for x in current.inputs])
