"""Programs as calls of operators: every node becomes a call in a dialect.

A dialect is a set of operators that graphs are written in: primitives (`torch.ops.prims`), or
core ATen. Under a mode that records, the calls are the nodes of the recorded graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.decompositions.primitive_forms import FORMS
from flambeau.decompositions.primitive_operators import packet
from flambeau.decompositions.programs import CallProgram, Result
from flambeau.ir.node import Node, topological
from flambeau.language.dtypes import object_of
from flambeau.language.layout import contiguous_strides
from flambeau.prims.record import record_of
from flambeau.runtime.symbolic import lowered

Value = Any  # an argument or a result of an operator
Tensor = Any

__all__ = ["Dialect", "Primitives", "number_of", "placed"]


def number_of(value: Node) -> Value:
    """The number that a node is everywhere; None: it is none."""
    return value.attribute("value") if record_of(value).constant else None


def placed(device: Value) -> dict[str, Value]:
    """The argument that says where a new tensor goes; none for the default device.

    Args:
        device: where it goes.
    """
    return {} if device == _core.get_default_device() else {"device": device}


class NotWrittenError(Exception):
    """A program, or one that an inner operator needs, has no form in the dialect."""


class Dialect:
    """Writes one program; its tensors are those of the call.

    Args:
        program: the program.
    """

    def __init__(self, program: CallProgram) -> None:
        self.program = program
        self.values: dict[Node, Tensor] = {}
        tensor = next(iter(program.tensors), None)
        self.device = program.device if tensor is None else tensor.device
        tensors = program.tensors
        self.symbolic = any(x.__dict__.get("geometry") is not None for x in tensors)

    def require_numbers(self) -> None:
        """Raises where sizes of the example, which the program has, are symbols in the graph."""
        if self.symbolic:
            raise NotWrittenError

    def run(self) -> Value:
        """The call's results."""
        results = [r.node for r in self.program.results if r is not None and _computed(r)]
        for current in topological(results):
            if not self.lazy(current):
                self.tensor(current)
        values = [None if r is None else self.result(r) for r in self.program.results]
        return self.program.structured(values)

    @classmethod
    def fits(cls, program: CallProgram) -> bool:
        """Whether the dialect can write a program.

        Args:
            program: of a call.
        """
        results = [r for r in program.results if r is not None]
        return all(cls.shows(program, r) for r in results) and all(
            map(cls.writes, topological([r.node for r in results]))
        )

    @classmethod
    def shows(cls, program: CallProgram, result: Result) -> bool:
        """Whether a view has the dtype of the memory that it shows."""
        if result.alias is None or result.strides is None:
            return True
        return bool(program.tensors[result.alias].dtype == object_of(result.node.dtype))

    # ---------------------------------------------------------------------------- the dialect
    @staticmethod
    def writes(current: Node) -> bool:
        """Whether the dialect has operators for a node."""
        raise NotImplementedError

    def lazy(self, current: Node) -> bool:
        """Whether a node is written only where something reads it as a tensor."""
        return record_of(current).constant

    def write(self, current: Node) -> Tensor:
        """The value of a node that is no input, by calls."""
        raise NotImplementedError

    @staticmethod
    def same(value: Tensor) -> Tensor:
        """Another tensor of the same memory."""
        raise NotImplementedError

    @staticmethod
    def empty(
        shape: tuple[int, ...], strides: tuple[int, ...], dtype: Value, device: Value
    ) -> Tensor:
        """A new tensor with any numbers; NotImplemented: the operator itself is in the dialect."""
        return NotImplemented

    def clone(self, value: Tensor) -> Tensor:
        """A copy in row-major order."""
        raise NotImplementedError

    def strided(self, value: Tensor, strides: Sequence[int]) -> Tensor:
        """A copy with other strides, which leave no gaps."""
        raise NotImplementedError

    def window(self, base: Tensor, shape: Sequence[int], strides: Value, offset: int) -> Tensor:
        """A view of a tensor's memory."""
        raise NotImplementedError

    def overwrite(self, target: Tensor, value: Tensor) -> Tensor:
        """The target, after a value was written to it."""
        raise NotImplementedError

    def parts(self, base: Tensor) -> Tensor:
        """A view of complex numbers as pairs of their parts, or the other way round."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------- values
    def tensor(self, current: Node) -> Tensor:
        """The tensor of a node."""
        value = self.values.get(current)
        if value is None:
            if current.is_input:
                value = self.program.tensors[current.attribute("slot")]
            else:
                value = self.write(current)
            self.values[current] = value
        return value

    def result(self, result: Result) -> Tensor:
        """One result of the call, in its place in memory."""
        shape = result.node.shape
        if result.alias is not None:
            base = self.program.tensors[result.alias]
            if result.strides is None:
                return base
            if not _views(result.node):
                self.require_numbers()
            if base.dtype != object_of(result.node.dtype):
                return self.window(self.parts(base), shape, result.strides, result.offset)
            if _views(result.node):
                value = self.tensor(result.node)
                if _lies(value, result):
                    return value
                self.require_numbers()
            return self.window(base, shape, result.strides, result.offset)
        value = self.tensor(result.node)
        if result.target is not None:
            return self.overwrite(self.program.tensors[result.target], value)
        strides = contiguous_strides(shape) if result.strides is None else result.strides
        if not _same_order(value, strides):
            return self.strided(value, strides)
        return self.clone(value) if _views(result.node) else value


def _computed(result: Result) -> bool:
    """Whether a result is more than an operand, or a view that is no chain of views."""
    return result.alias is None or (result.strides is not None and _views(result.node))


def _views(current: Node) -> bool:
    """Whether a node is an operand of the call, seen through views alone."""
    while record_of(current).view is not None:
        current = current.inputs[0]
    return current.is_input


def _lies(value: Tensor, result: Result) -> bool:
    return lowered(value.storage_offset()) == result.offset and _same_order(value, result.strides)


def _same_order(value: Tensor, strides: Value) -> bool:
    """Whether a tensor has these strides, in dimensions where they matter.

    Symbols count as the numbers of the example, which the strides are of: there is no guard.
    """
    shape = lowered(tuple(value.shape))
    if 0 in shape:
        return True
    sizes = zip(shape, lowered(tuple(value.stride())), strides, strict=True)
    return all(size == 1 or int(a) == int(b) for size, a, b in sizes)


class Primitives(Dialect):
    """Writes programs in `torch.ops.prims`."""

    @staticmethod
    def writes(current: Node) -> bool:
        """Whether there is an operator for a node."""
        form = FORMS.get(current.op)
        return form is not None or current.is_input or _LEAVES.get(current.op) is not None

    def write(self, current: Node) -> Tensor:
        """The value of a node, by calls of primitives."""
        leaf = _LEAVES.get(current.op)
        if leaf is not None:
            return leaf(self, current)
        form = FORMS[current.op]
        args, kwargs = form.call(current, [self.tensor(x) for x in current.inputs])
        return packet(form.name).default(*args, **kwargs)

    def _call(self, name: str, *args: Value, **kwargs: Value) -> Tensor:
        return packet(name).default(*args, **kwargs)

    def _spread(self, value: Tensor, shape: Sequence[Value], dims: list[int]) -> Tensor:
        if tuple(value.shape) == tuple(shape):
            return value
        return self._call("broadcast_in_dim", value, list(shape), dims)

    def _full(self, current: Node) -> Tensor:
        dtype = object_of(current.dtype)
        scalar = self._call("scalar_tensor", number_of(current), dtype=dtype, **placed(self.device))
        return self._spread(scalar, current.shape, [])

    def _iota(self, current: Node) -> Tensor:
        dimension, shape = current.attribute("dimension"), current.shape
        dtype = object_of(current.dtype)
        options = {"start": 0, "step": 1, "dtype": dtype, **placed(self.device)}
        return self._spread(self._call("iota", shape[dimension], **options), shape, [dimension])

    def _random(self, current: Node) -> Tensor:
        constants = [x for x in current.inputs if record_of(x).constant]
        numbers = [number_of(x) for x in constants]
        tensors = [self.tensor(x) for x in current.inputs if x not in constants]
        options = {
            "distribution": current.attribute("distribution"),
            "shape": list(current.shape),
            "dtype": object_of(current.dtype),
        }
        draws = dict(current.attributes).get("draws")
        options |= {} if draws is None else {"draws": list(draws)}
        if self.program.generator is not None:
            options["generator"] = self.program.generator
        return self._call("random", tensors, numbers, **options)

    @staticmethod
    def same(value: Tensor) -> Tensor:
        """Another tensor of the same memory."""
        return packet("view_of").default(value)

    @staticmethod
    def empty(
        shape: tuple[int, ...], strides: tuple[int, ...], dtype: Value, device: Value
    ) -> Tensor:
        """A new tensor with any numbers."""
        make = packet("empty_strided").default
        return make(list(shape), list(strides), dtype=dtype, **placed(device))

    def clone(self, value: Tensor) -> Tensor:
        """A copy in row-major order."""
        return self._call("clone", value)

    def strided(self, value: Tensor, strides: Sequence[int]) -> Tensor:
        """A copy with other strides, which leave no gaps."""
        return self._call("copy_strided", value, list(strides))

    @classmethod
    def shows(cls, program: CallProgram, result: Result) -> bool:
        """Whether primitives make a view: its dtype is that of the memory, or of its parts."""
        if super().shows(program, result):
            return True
        assert result.alias is not None
        base = program.tensors[result.alias].dtype
        return bool(base.is_complex != object_of(result.node.dtype).is_complex)

    def parts(self, base: Tensor) -> Tensor:
        """A view of complex numbers as pairs of their parts, or the other way round."""
        return self._call("view_as_real" if base.dtype.is_complex else "view_as_complex", base)

    def window(self, base: Tensor, shape: Sequence[int], strides: Value, offset: int) -> Tensor:
        """A view of a tensor's memory."""
        return self._call("as_strided", base, list(shape), list(strides), offset)

    def overwrite(self, target: Tensor, value: Tensor) -> Tensor:
        """The target, after a value was written to it."""
        return self._call("copy_to", target, value)


# Leaves of programs, which are calls of their own.
_LEAVES: dict[str, Callable[[Primitives, Node], Tensor]] = {
    "full": Primitives._full,
    "iota": Primitives._iota,
    "random": Primitives._random,
}
