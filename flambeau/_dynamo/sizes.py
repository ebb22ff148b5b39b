"""Sizes that vary, in code that a recorder runs: numbers of Python that record where they are from.

Python runs at every call, on the numbers of that call. So branches, loops and subscripts need no
care: a number whose history is lost is a constant of the graph. Comparisons are listed, because
guards of a graph with symbols follow from them.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.nn import Module
from flambeau.nn.parameter import Buffer, Parameter
from flambeau.runtime import config_modules

__all__ = [
    "Leaf",
    "Marks",
    "RecordedFloat",
    "RecordedInt",
    "SizeReads",
    "VaryingSizes",
    "covers",
    "marks_of",
    "plain",
]

Value = Any  # a number, or what a function takes and gives
Kinds = tuple[str, ...]  # names of `DimDynamic`, one per dimension
_STATIC, _DUCK, _DYNAMIC = "STATIC", "DUCK", "DYNAMIC"
_CONSTANT = (0, 1)  # sizes that are no symbols


class Leaf(NamedTuple):
    """The origin of a number that was read.

    Attributes:
        source: a text that names it; equal in all calls of a function.
        value: the number.
        kind: name of a `DimDynamic`, for numbers that are inputs of a graph of their own.
        reader: the method of the tensor, None for an argument of the function.
        dims: arguments of the method.
        tensor: refers to the tensor.
        segment, reference: of the recorder, where the tensor is a result.
    """

    source: str
    value: int
    kind: str
    reader: str | None = None
    dims: tuple[int, ...] = ()
    tensor: Value = None
    segment: Value = None
    reference: Value = None


class _Recorded:
    """A number that records what is computed from it.

    Attributes:
        plain: the type of a number that does not.
        reads: of the call; after its end this is a number like others.
        origin: a `Leaf`, or a function and its operands.
    """

    plain: type[Value]
    reads: SizeReads
    origin: Value

    def __reduce_ex__(self, protocol: Value) -> Value:
        return self.plain, (self.plain(self),)

    def __copy__(self) -> Value:
        return self.plain(self)

    def __deepcopy__(self, memo: Value) -> Value:
        return self.plain(self)


class RecordedInt(_Recorded, int):
    """An integer that records what is computed from it."""

    plain = int
    __hash__ = int.__hash__

    def __bool__(self) -> bool:
        return bool(_compared(operator.ne, self, 0))


class RecordedFloat(_Recorded, float):
    """A float that records what is computed from it."""

    plain = float
    __hash__ = float.__hash__


RECORDED = (RecordedInt, RecordedFloat)
_PLAIN = (_core.Tensor, Parameter, Buffer)
_NUMBERS = frozenset((int, float, bool, *RECORDED))


def _unrecorded(value: Value) -> Value:
    return value.plain(value) if type(value) in RECORDED else value


def _reads_of(operands: Sequence[Value]) -> SizeReads:
    reads: SizeReads = next(x.reads for x in operands if type(x) in RECORDED)
    return reads


def _computed(function: Callable[..., Value], *operands: Value) -> Value:
    result = function(*map(_unrecorded, operands))
    return _reads_of(operands).number(result, (function, operands))


def _compared(function: Callable[..., Value], *operands: Value) -> bool:
    answer: bool = function(*map(_unrecorded, operands))
    _reads_of(operands).decided(function, operands, answer)
    return answer


def _binary(function: Callable[..., Value], swapped: bool, run: Callable[..., Value]) -> Value:
    def method(self: Value, other: Value) -> Value:
        if type(other) not in _NUMBERS:
            return NotImplemented
        return run(function, other, self) if swapped else run(function, self, other)

    return method


def _unary(function: Callable[..., Value]) -> Value:
    def method(self: Value) -> Value:
        return _computed(function, self)

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow"):
    _function = getattr(operator, _name)
    setattr(_Recorded, f"__{_name}__", _binary(_function, False, _computed))
    setattr(_Recorded, f"__r{_name}__", _binary(_function, True, _computed))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(_Recorded, f"__{_name}__", _binary(getattr(operator, _name), False, _compared))
for _name in ("neg", "pos", "abs"):
    setattr(_Recorded, f"__{_name}__", _unary(getattr(operator, _name)))
for _name in ("floor", "ceil", "trunc"):
    setattr(RecordedFloat, f"__{_name}__", _unary(getattr(math, _name)))


def plain(value: Value) -> Value:
    """Results of a function in which recorded numbers are numbers."""
    if type(value) in RECORDED:
        return _unrecorded(value)
    if not isinstance(value, (tuple, list, dict)) or not any(map(_has_recorded, _items(value))):
        return value
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = plain(item)
        return value
    if isinstance(value, list):
        value[:] = map(plain, value)
        return value
    items = [plain(item) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _items(value: Value) -> Value:
    return value.values() if isinstance(value, dict) else value


def _has_recorded(value: Value) -> bool:
    if isinstance(value, (tuple, list, dict)):
        return any(map(_has_recorded, _items(value)))
    return type(value) in RECORDED


# ------------------------------------------------------------------------------ which vary
def _marks(tensor: Value, name: str) -> Value:
    return getattr(tensor, f"_dynamo_{name}_indices", ())


class Marks(NamedTuple):
    """Sizes of a tensor that are marked, by `mark_dynamic`, `maybe_mark_dynamic`, `mark_static`."""

    dynamic: frozenset[int]
    weak_dynamic: frozenset[int]
    static: frozenset[int]

    @property
    def varying(self) -> frozenset[int]:
        """Sizes that vary, or may."""
        return self.dynamic | self.weak_dynamic


def marks_of(tensor: Value) -> Marks:
    """The marks of a tensor."""
    return Marks(*[frozenset(_marks(tensor, kind)) for kind in Marks._fields])


def covers(marks: Marks, others: Marks) -> bool:
    """Whether a graph that was compiled for some marks serves an input that has others."""
    return marks.static == others.static and others.varying <= marks.varying


class VaryingSizes:
    """The sizes and integers among the inputs of a function that vary, as far as it was compiled.

    Args:
        dynamic: of `torch.compile`: True: all vary; False: none do; None: those that were seen to.
    """

    def __init__(self, dynamic: bool | None) -> None:
        self._dynamic = dynamic
        self._sizes: dict[str, tuple[int | None, ...]] = {}

    def clear(self) -> None:
        """Forgets all sizes."""
        self._sizes.clear()

    def note(self, source: str, sizes: Sequence[int], tensor: Value = None) -> None:
        """Notes the sizes of an input for which a graph is compiled; see `kinds`."""
        differing = self._differing(source, sizes)
        marks = frozenset[int]() if tensor is None else marks_of(tensor).varying
        self._sizes[source] = tuple([None if d in marks else x for d, x in enumerate(differing)])

    def kinds(self, source: str, sizes: Sequence[int], tensor: Value, noted: bool) -> Kinds:
        """How each size of an input is treated: names of `DimDynamic`.

        Args:
            source: names the input.
            sizes: its sizes.
            tensor: the input, which may have marks; None for an integer.
            noted: whether what was noted so far counts alone, and not these sizes.
        """
        differing = self._differing(source, sizes)
        before = self._sizes.get(source)
        if noted and before is not None and len(before) == len(sizes):
            differing = before
        return tuple([self._kind(tensor, d, x) for d, x in enumerate(differing)])

    def _differing(self, source: str, sizes: Sequence[int]) -> tuple[int | None, ...]:
        """The sizes, with None for those that are not what they were; all, if the rank is not."""
        before = self._sizes.get(source, sizes)
        if len(before) != len(sizes):
            return (None,) * len(sizes)
        return tuple([
            None if old is None or old != new else new
            for old, new in zip(before, sizes, strict=True)
        ])  # fmt: skip

    def _kind(self, tensor: Value, dim: int, size: int | None) -> str:
        if tensor is not None:
            if dim in _marks(tensor, "static"):
                return _STATIC
            if dim in _marks(tensor, "dynamic") or dim in _marks(tensor, "weak_dynamic"):
                return _DYNAMIC
        if isinstance(tensor, Parameter) or self._dynamic is False:
            return _STATIC
        if size is None and _setting("automatic_dynamic_shapes"):
            return _DYNAMIC
        every = self._dynamic or not _setting("assume_static_by_default")
        return _DUCK if every else _STATIC


def _setting(name: str) -> bool:
    return bool(config_modules.value("torch._dynamo.config", name))


class SizeReads:
    """The numbers of one call of a function.

    Args:
        varying: which of them vary.
        function: the function.
        args, kwargs: of the call.
    """

    def __init__(self, varying: VaryingSizes, function: Value, args: Value, kwargs: Value) -> None:
        self.active = True
        self.varying = varying
        self._owner = getattr(function, "__self__", None)
        self._buffers: set[int] | None = None
        self._sources = {id(x): text for text, x in _tensors("", (args, kwargs))}
        self._seen: dict[int, tuple[Value, str]] = {}
        self._decisions: list[tuple[Value, Sequence[Value], bool]] = []
        self._numbers: list[tuple[str, int]] = []
        self.varies = False

    # ---- inputs
    def arguments(self, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
        """The arguments; integers that vary are recorded ones."""
        positional = tuple([self.argument(str(n), x) for n, x in enumerate(args)])
        return positional, {name: self.argument(name, x) for name, x in kwargs.items()}

    def argument(self, source: str, value: Value) -> Value:
        """An argument; an integer that varies is a recorded one.

        Args:
            source: a text that names it; equal in all calls.
            value: of this call.
        """
        if type(value) is tuple:
            return tuple([self.argument(f"{source}.{n}", x) for n, x in enumerate(value)])
        if type(value) is not int:
            return value
        self._numbers.append((source, value))
        kind = self.varying.kinds(source, (value,), None, noted=False)[0]
        if kind == _STATIC or value in _CONSTANT:
            return value
        self.varies = True
        return self.number(value, Leaf(source, value, kind))

    def source(self, tensor: Value) -> str:
        """A text that names an input; equal in all calls."""
        entry = self._seen.get(id(tensor))
        if entry is None:
            text = self._sources.get(id(tensor), f"other{len(self._seen)}")
            entry = self._seen[id(tensor)] = tensor, text
        return entry[1]

    def kinds(self, tensor: Value, noted: bool = False) -> Kinds:
        """How each size of an input is treated; see `VaryingSizes.kinds`."""
        if self._is_state(tensor):
            return (_STATIC,) * tensor.ndim
        kinds = self.varying.kinds(self.source(tensor), tuple(tensor.shape), tensor, noted)
        return tuple([
            _STATIC if n in _CONSTANT else kind
            for kind, n in zip(kinds, tuple(tensor.shape), strict=True)
        ])  # fmt: skip

    def _is_state(self, tensor: Value) -> bool:
        """Whether a tensor is a buffer of the module that is compiled: sizes of these are fixed."""
        if id(tensor) in self._sources or not isinstance(self._owner, Module):
            return False
        if self._buffers is None:
            self._buffers = {id(x) for x in self._owner.buffers()}
        return id(tensor) in self._buffers

    def number_kind(self, leaf: Leaf, noted: bool) -> str:
        """How a number that is an input by itself is treated; see `kinds`."""
        if leaf.reader is None:
            return self.varying.kinds(leaf.source, (leaf.value,), None, noted)[0]
        tensor = leaf.tensor()
        if tensor is None or leaf.reader != "size":
            return leaf.kind
        return self.kinds(tensor, noted)[leaf.dims[0]]

    def signature(self, inputs: Sequence[Value], noted: bool) -> tuple[Kinds, ...]:
        """How all sizes that the call has read, and integers of the arguments, are treated.

        Args:
            inputs: of a segment, whose sizes matter, too.
            noted: see `VaryingSizes.kinds`.
        """
        for tensor in inputs:
            self.source(tensor)
        numbers = [self.varying.kinds(text, (n,), None, noted) for text, n in self._numbers]
        return (*[self.kinds(x, noted) for x, _ in self._seen.values()], *numbers)

    def note(self) -> None:
        """Notes the sizes for which a graph is compiled, and the integers."""
        for tensor, source in self._seen.values():
            self.varying.note(source, tuple(tensor.shape), tensor)
        for source, value in self._numbers:
            self.varying.note(source, (value,))

    # ---- numbers
    def number(self, value: Value, origin: Value) -> Value:
        """A number that records what is computed from it."""
        kind: Value = {int: RecordedInt, float: RecordedFloat}.get(type(value))
        if kind is None or not self.active:
            return value
        number = kind(value)
        number.reads, number.origin = self, origin
        return number

    def decided(self, function: Value, operands: Sequence[Value], answer: bool) -> None:
        """Lists a comparison."""
        if self.active:
            self._decisions.append((function, operands, answer))

    def decisions(self) -> list[tuple[Value, Sequence[Value], bool]]:
        """The comparisons since the last call of this method."""
        decisions, self._decisions = self._decisions, []
        return decisions

    def close(self) -> None:
        """Ends the call: its numbers record nothing from now on."""
        self.active = False
        self._seen.clear()
        self._decisions.clear()

    def read(self, segment: Value, name: str, args: Sequence[Value], result: Value) -> Value:
        """The result of a method of a tensor, as recorded numbers where sizes vary.

        Args:
            segment: of the recorder.
            name: of the method.
            args: the tensor, as the user's code has it, and the arguments.
            result: of the method.
        """
        reader = _READERS.get(name)
        if reader is None or not args or not isinstance(args[0], _core.Tensor):
            return result
        tensor = args[0]
        reference = segment.references.get(id(tensor))
        if reference is None and type(tensor) not in _PLAIN:
            return result
        if reference is not None:
            kinds = (_DYNAMIC if self.varies else _STATIC,) * tensor.ndim
            source = "value"
        else:
            kinds, source, segment = self.kinds(tensor), self.source(tensor), None
        varying = tuple([kind != _STATIC for kind in kinds])
        self.varies |= any(varying)
        if not any(varying):
            return result

        def number(value: int, *dims: int) -> Value:
            if type(value) is not int or value in _CONSTANT:
                return value
            kind = kinds[dims[0]] if reader == "size" else _DYNAMIC
            text = f"{source}.{reader}{dims}"
            leaf = Leaf(text, value, kind, reader, dims, weakref.ref(tensor), segment, reference)
            return self.number(value, leaf)

        if isinstance(result, tuple):
            pairs = zip(result, varying, strict=True)
            items = [number(n, d) if one else n for d, (n, one) in enumerate(pairs)]
            return _core.Size() + tuple(items) if isinstance(result, _core.Size) else tuple(items)
        if reader in ("size", "stride"):
            dim = int(args[1]) % tensor.ndim
            return number(result, dim) if varying[dim] or reader == "stride" else result
        return number(result)


_READERS = {
    "shape.__get__": "size", "size": "size", "stride": "stride", "numel": "numel",
    "nelement": "numel", "storage_offset": "storage_offset",
}  # fmt: skip


def _tensors(path: str, value: Value) -> Iterator[tuple[str, Value]]:
    """Tensors in arguments, with texts that name them."""
    if isinstance(value, _core.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(f"{path}.{key}", item)
    elif isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            yield from _tensors(f"{path}.{number}", item)
