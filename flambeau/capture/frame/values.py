"""Values of a dry run: which it made, which it may read, and what it writes.

Values that the dry run makes are `fresh`: they may be written. All else may only be read, and each
read is noted; numbers from outside that calls change are read as `Number`s.
"""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from sys import getrefcount
from typing import Any, TypeAlias, TypeVar

from flambeau._core import Tensor
from flambeau.capture.frame import plain
from flambeau.capture.frame.evidence import MISSING, Evidence, Raised, Unexplained, is_key, look_up
from flambeau.capture.frame.generators import Generator, Opaque
from flambeau.capture.frame.numbers import Number, Numbers, Rates, number_in

Operand: TypeAlias = Any  # a value of a program, of any type

Value = TypeVar("Value")


def _references(table: dict[int, Operand]) -> list[tuple[int, int]]:
    """How many references to each value of a dict there are, this function's among them."""
    return [(key, getrefcount(value)) for key, value in table.items()]


[(_, _UNUSED)] = _references({0: object()})  # of a value that nothing else holds

# An explanation for each value: a state that is replaced by the one that follows it.
_SWITCHED = frozenset({bool, types.NoneType, str})
_HEAP_TYPE = 1 << 9  # of `type.__flags__`


class Values:
    """The values that a dry run made, and what it read.

    Attributes:
        evidence: what calls read from outside.
        rates, numbers: numbers among that, and all numbers, that differ between calls.
    """

    def __init__(self, evidence: Evidence, rates: Rates) -> None:
        self.evidence = evidence
        self.rates = rates
        self.numbers = Numbers(rates)
        self._fresh: dict[int, Operand] = {}

    def fresh(self, value: Value) -> Value:
        """Notes that the dry run made a value."""
        self._fresh[id(value)] = value
        return value

    def is_fresh(self, value: object) -> bool:
        """Whether the dry run made a value, so that it may be written."""
        return id(value) in self._fresh

    def sweep(self) -> None:
        """Drops the values that nothing but these notes holds, and tensors with them."""
        while unused := [key for key, count in _references(self._fresh) if count == _UNUSED]:
            for key in unused:
                del self._fresh[key]

    def writable(self, value: object) -> None:
        """Raises where a value that outlives the frame would be written."""
        if id(value) not in self._fresh:
            raise Unexplained(f"it writes to a {type(value).__name__} from outside")

    def native(self, function: Callable[..., object], *args: object, **kwargs: object) -> Operand:
        """The result of native code, whose error is the program's."""
        try:
            return function(*args, **kwargs)
        except (Raised, StopIteration):
            raise
        except Exception as error:
            raise Raised(error.with_traceback(None)) from None

    def native_with_numbers(
        self, function: Operand, name: str, args: tuple[Operand, ...], kwargs: dict[str, Operand]
    ) -> Operand:
        """The result of an operator some of whose arguments are `Number`s."""
        args = tuple(self.numbers.argument(value, name) for value in args)
        self.touch((*args, *kwargs.values()))
        try:
            return self.collection(function(*args, **kwargs))
        except Exception as error:  # it may be one of placeholders, which the program has not
            raise Unexplained(f"{name} of a counter: {error}") from None

    def collection(self, value: object) -> Operand:
        """A container that native code made, and its items that are containers."""
        if type(value) in (list, dict, set) or plain.is_struct(type(value)):
            self.fresh(value)
        return value

    def fresh_result(self, value: object) -> Operand:
        """A result of native code; containers and iterators that it made may be written."""
        kind = type(value)
        if kind in plain.ITERATORS:
            self.fresh(value)
        return value

    def touch(self, value: Operand) -> None:
        """All that a container holds is read, and native code may read it."""
        kind = type(value)
        if kind in plain.ATOMS or kind in plain.TENSORS:
            return
        if kind is Number:
            raise self.numbers.refuse(value, "native code reads a counter")
        if kind in plain.CONTAINERS:
            self._touch_items(value, kind)
        elif kind in plain.ITERATORS:
            self.writable(value)
        elif kind is slice:
            self.touch((value.start, value.stop, value.step))
        elif kind in plain.BY_IDENTITY:
            return
        elif self.is_named_tuple(kind):
            self.touch(self.as_tuple(value))
        elif not self.is_fresh(value) or kind.__flags__ & _HEAP_TYPE:  # which may have methods
            raise Unexplained(f"native code reads a {kind.__name__}")

    def _touch_items(self, value: Operand, kind: type) -> None:
        outside = id(value) not in self._fresh
        if kind in (list, deque, set) and outside:
            self.evidence.elements(value)
        elif kind in plain.DICTS:
            if outside:
                self.evidence.items(value)
            if kind is OrderedDict and outside and len(value) > 1:
                raise Unexplained("it iterates over an OrderedDict")  # whose order has no version
            value = value.values()
        for item in tuple(value):
            if type(item) not in plain.ATOMS:
                self.touch(item)

    def touch_length(self, value: object, kind: type) -> None:
        """A container's length is read: so are its items."""
        if kind in (list, deque, set):
            self.evidence.elements(value)
        elif kind in plain.DICTS:
            self.evidence.items(value)
        else:
            raise Unexplained(f"it reads a {kind.__name__} from outside")

    def is_named_tuple(self, kind: type) -> bool:
        """Whether a type is a tuple with names, whose items are read as those of any tuple."""
        names = ("__getitem__", "__iter__", "__len__", "__contains__", "__getattribute__")
        return plain.is_struct(kind) or (
            issubclass(kind, tuple)
            and type(kind) is type
            and bool(kind.__flags__ & _HEAP_TYPE)
            and hasattr(kind, "_fields")
            and all(self.evidence.attribute(kind, n) is getattr(tuple, n) for n in names)
        )

    def as_tuple(self, value: object) -> Operand:
        """A named tuple as a tuple, whose items are read; else the value."""
        if isinstance(value, tuple) and type(value) is not tuple and type(value) not in plain.ATOMS:
            if self.is_named_tuple(type(value)):
                self.typed(value)
                items = tuple.__getitem__(value, slice(None))
                return items if self.is_fresh(value) else self.evidence.read(items)
        return value

    def typed(self, value: Operand) -> type:
        """The type of a value, which must stay it."""
        kind = type(value)
        if kind is Number:
            return int if value.integer else float
        if kind is Generator or kind is types.GeneratorType or issubclass(kind, Opaque):
            raise Unexplained("it reads the type of an iterator, or of a value of this call alone")
        if kind.__flags__ & _HEAP_TYPE and kind not in plain.TENSORS and not self.is_fresh(value):
            self.evidence.holder(value, MISSING)
        return kind

    def holder(self, value: object) -> Operand:
        """The `__dict__` of an object, None where it has none; it must stay the same one."""
        descriptor = self.evidence.attribute(type(value), "__dict__")
        if descriptor is MISSING:
            self.typed(value)
            return None
        if not isinstance(descriptor, types.GetSetDescriptorType):
            raise Unexplained(f"{type(value).__name__} computes its __dict__")
        table = object.__getattribute__(value, "__dict__")
        if self.is_fresh(value):
            return self.fresh(table)
        if type(table) is not dict:
            raise Unexplained(f"the __dict__ of a {type(value).__name__} is no dict")
        self.evidence.holder(value, table)
        return table

    def table_item(self, table: object, key: object, owner: str = "") -> Operand:
        """The value that a dict has under a key, or MISSING."""
        if self.is_fresh(table):
            return look_up(table, key)
        if id(table) in self.evidence.arguments or type(key) not in (str, int):
            return self.evidence.item(table, key, owner)
        return self.rates.item(self, table, key, owner)

    def element(self, values: list[Operand], index: int) -> Operand:
        """values[index], of a list from outside."""
        written = self.evidence.effects.get((id(values), index))
        if written is not None:
            return written[2]
        if self.rates.varies(values, index):
            return self.numbers.item(values, index, number_in(values, index))
        self.evidence.elements(values)
        if -len(values) <= index < len(values):
            self.rates.see(values, index, values[index])
        return self.native(operator.getitem, values, index)

    def write(self, table: Operand, key: Operand, new: object) -> None:
        """A dict from outside gets an item, as an effect of each call."""
        before = look_up(table, key)
        if self.evidence.reads(table, key) and before is not new:
            if type(before) not in _SWITCHED or type(new) not in _SWITCHED:
                self.rates.write(table, key)
        self.evidence.write(table, key, new)

    def write_element(self, values: list[Operand], index: Operand, new: object) -> None:
        """A list from outside gets another element in place of a number."""
        if type(index) is not int or id(values) in self.evidence.arguments:
            self.writable(values)
        if self.rates.varies(values, index):  # the list stays as long
            self.numbers.item(values, index, number_in(values, index))
        elif (id(values), index) not in self.evidence.effects:
            self.element(values, index)
            self.rates.write(values, index)
        self.evidence.effects[id(values), index] = (values, index, new)

    def cell(self, cell: Operand) -> Operand:
        """The value of a variable of a closure, or MISSING."""
        if self.is_fresh(cell):
            return cell.cell_contents
        written = self.evidence.effects.get((id(cell), None))
        if written is not None:
            return written[2]
        if self.rates.varies(cell, None):
            return self.numbers.item(cell, None, number_in(cell, None))
        value = self.evidence.cell(cell)
        self.rates.see(cell, None, value)
        return value

    def write_cell(self, cell: Operand, new: object) -> None:
        """A variable of a closure gets a value."""
        if self.is_fresh(cell):
            cell.cell_contents = new
            return
        if self.evidence.reads_cell(cell):
            self.rates.write(cell, None)
        self.evidence.effects[id(cell), None] = (cell, None, new)

    def is_key(self, value: object) -> bool:
        """Whether looking up a value in a dict is the same in every call."""
        return is_key(value) or (type(value) in plain.TENSORS and self.is_constant(value))

    def hashes(self, value: object) -> bool:
        """Whether a value is hashed in the same way in every call, by no code of users."""
        return plain.hashes(value) or self.is_constant(value)

    def is_constant(self, value: object) -> bool:
        """Whether guards name a tensor or an object, which is hashed by its identity."""
        kind, evidence = type(value), self.evidence
        if kind in plain.TENSORS:
            named = id(value) in evidence.constants
            return named and evidence.attribute(kind, "__hash__") is Tensor.__hash__
        return evidence.names(value) and all(
            evidence.attribute(kind, n) is getattr(object, n) for n in ("__hash__", "__eq__")
        )

    def slots(self, values: tuple[Operand, ...], *names: str) -> None:
        """The operators of tensors among the values are called, which are the package's own."""
        for value in values:
            if type(value) in plain.TENSORS:
                for name in names:
                    defined = self.evidence.attribute(type(value), name)
                    if isinstance(defined, types.FunctionType):
                        raise Unexplained(f"somebody replaced {name} of tensors")
