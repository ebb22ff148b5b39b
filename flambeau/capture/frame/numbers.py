"""Numbers of a dry run that differ between calls, and what follows of them.

An optimizer counts its steps in tensors of one element and computes rates of them in Python; a
schedule changes its rate; a program counts its calls in an attribute. Each such number is a step of
a small program that the core computes in every call (`native/frame/numbers.cpp`). Operators get a
placeholder, by which the core finds the number among those of the plan; where Python compares a
number, the outcome is a guard.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from flambeau.capture.frame import plain
from flambeau.capture.frame.evidence import Unexplained

Value: TypeAlias = Any  # a value of a program, of any type

if TYPE_CHECKING:
    from flambeau.capture.frame.values import Values

_COUNT, _ITEM = 0, 1  # as `NumberStep::Kind`
_BINARY: dict[str, tuple[int, Callable[[Value, Value], Value]]] = {
    "+": (2, operator.add), "-": (3, operator.sub), "*": (4, operator.mul),
    "/": (5, operator.truediv), "**": (6, operator.pow), "//": (7, operator.floordiv),
    "%": (8, operator.mod),
}  # fmt: skip
_FUNCTIONS: dict[Value, int] = {math.sqrt: 9, math.cos: 10, math.exp: 11, float: 12, int: 13}
_COMPARED: dict[str, tuple[int, Callable[[Value, Value], Value]]] = {
    "<": (0, operator.lt), "<=": (1, operator.le), "==": (2, operator.eq), "!=": (3, operator.ne),
    ">": (4, operator.gt), ">=": (5, operator.ge),
}  # fmt: skip
_INTEGERS = frozenset({"+", "-", "*", "//", "%"})  # of integers they give integers
_SCALED = frozenset({"add", "add_", "sub", "sub_", "subtract", "rsub", "mul", "mul_", "multiply"})
_MOST = 256  # numbers that are known to vary
_LARGEST = 1 << 53  # integers up to here are floats
_PLACEHOLDER = 1 << 40


class Number:
    """A number that native code must not read: it is no value of this call.

    Attributes:
        step: which number it is.
        value: it in this dry run; None: it is not there.
        integer: whether it is an int, and no float.
        places: the numbers from outside that it is computed of.
    """

    __slots__ = ("integer", "places", "step", "value")

    def __init__(self, step: int, value: Value, integer: bool, places: frozenset[Value]) -> None:
        self.step, self.value, self.integer, self.places = step, value, integer, places

    def __eq__(self, other: object) -> bool:
        raise Unexplained("it compares a counter")

    def __hash__(self) -> int:
        raise Unexplained("it hashes a counter")

    def __bool__(self) -> bool:
        raise Unexplained("it reads the truth of a counter")


class Numbers:
    """The numbers of one dry run.

    Attributes:
        counters: tensors that the calls count in.
        items: (container, key, whether it is an int) of numbers that calls read again.
        steps: (kind, whether it is an int, left operand, right operand); an operand is (number of
            the step or -1, its value).
        conditions: (comparison, left operand, right operand, outcome).
        uses: (placeholder, step) of each number that is an argument of an operator.
    """

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._read: dict[Value, Number] = {}
        self.counters: list[Value] = []
        self.items: list[tuple[Value, Value, bool]] = []
        self.steps: list[tuple[int, bool, Value, Value]] = []
        self.conditions: list[tuple[int, Value, Value, bool]] = []
        self.uses: list[tuple[Value, int]] = []
        self.shown: list[Number] = []

    def refuse(self, value: object, why: str) -> Unexplained:
        """The error for a number that is used in another way; its places are guarded from now."""
        if type(value) is Number:
            self._rates.guard(value.places)
        return Unexplained(why)

    def _operand(self, value: object) -> tuple[int, Value]:
        if type(value) is Number:
            return value.step, 0
        if type(value) is float or (type(value) is int and abs(value) <= _LARGEST):
            return -1, value
        raise Unexplained(f"it computes with a counter and a {type(value).__name__}")

    def _add(
        self, kind: int, value: Value, integer: bool, left: object, right: object = 0
    ) -> Number:
        operands = self._operand(left), self._operand(right)
        places = [v.places for v in (left, right) if isinstance(v, Number)]
        self.steps.append((kind, integer, *operands))
        return Number(len(self.steps) - 1, value, integer, frozenset().union(*places))

    def count(self, tensors: Iterable[Value], constants: dict[int, Value]) -> list[Number]:
        """The values of tensors after 1 was added to each."""
        numbers = []
        for tensor in tensors:
            if type(tensor) not in plain.TENSORS or id(tensor) not in constants:
                raise Unexplained("it counts in a tensor of its own")
            self.counters.append(tensor)
            self.steps.append((_COUNT, False, (len(self.counters) - 1, 0), (-1, 0)))
            numbers.append(Number(len(self.steps) - 1, None, False, frozenset()))
        return numbers

    def item(self, container: Value, key: Value, value: Value) -> Number:
        """The number that a dict has under a key, a list at an index, a cell."""
        place = (id(container), key)
        if place not in self._read:
            integer = type(value) is int
            self.items.append((container, key, integer))
            self.steps.append((_ITEM, integer, (len(self.items) - 1, 0), (-1, 0)))
            self._read[place] = Number(len(self.steps) - 1, value, integer, frozenset({place}))
        return self._read[place]

    def binary(self, symbol: str, left: Value, right: Value) -> Number:
        """left + right, ..."""
        symbol = symbol.removesuffix("=")
        integers = all(v.integer if type(v) is Number else type(v) is int for v in (left, right))
        unclear = symbol == "**" if integers else symbol in ("//", "%")
        if symbol not in _BINARY or unclear:
            self.refuse(left, "")
            raise self.refuse(right, f"it computes {symbol} of a counter")
        kind, function = _BINARY[symbol]
        value = self._value(function, left, right)
        return self._add(kind, value, integers and symbol in _INTEGERS, left, right)

    def _value(self, function: Callable[..., Value], *operands: Value) -> Value:
        values = [v.value if type(v) is Number else v for v in operands]
        if any(value is None for value in values):
            return None
        try:
            return function(*values)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise Unexplained(f"an error of a counter: {error}") from None

    def compare(self, symbol: str, left: Value, right: Value) -> bool:
        """left < right, ...: the outcome is a guard."""
        operands = self._operand(left), self._operand(right)
        kind, function = _COMPARED[symbol]
        outcome = self._value(function, left, right)
        if outcome is None:
            raise Unexplained("it compares a counter")
        self.conditions.append((kind, *operands, outcome))
        return bool(outcome)

    def call(self, function: Value, args: tuple[Value, ...]) -> Value:
        """A native function of numbers."""
        if function in (min, max) and len(args) > 1:
            best = args[0]
            for value in args[1:]:
                if self.compare("<" if function is min else ">", value, best):
                    best = value
            return best
        if function is abs:
            return self.negated(args[0]) if self.compare("<", args[0], 0) else args[0]
        kind = _FUNCTIONS.get(function) if function in _FUNCTIONS and len(args) == 1 else None
        if kind is None:
            for value in args:
                self.refuse(value, "")
            raise Unexplained(f"it calls {getattr(function, '__name__', function)} of a counter")
        return self._add(kind, self._value(function, args[0]), function is int, args[0])

    def negated(self, value: Value) -> Number:
        """-value"""
        return self.binary("*", value, -1)

    def argument(self, value: Value, name: str) -> Value:
        """An argument of an operator: a number is replaced by its placeholder."""
        if type(value) is not Number:
            return value
        if value.integer and name not in _SCALED:
            raise self.refuse(value, f"it passes a counter to {name}")
        count = len(self.steps) + len(self.uses)
        placeholder = _PLACEHOLDER + count if value.integer else 0.5 + count * 2.0**-40
        self.uses.append((placeholder, value.step))
        return placeholder

    def lines(self) -> list[str]:
        """Their guards as readable Python."""
        items = [
            f"type({type(c).__name__} at {id(c):#x}[{key!r}]) is {'int' if integer else 'float'}"
            for c, key, integer in self.items
        ]
        symbols = list(_COMPARED)
        conditions = [
            f"({self._text(left)} {symbols[kind]} {self._text(right)}) is {outcome}"
            for kind, left, right, outcome in self.conditions
        ]
        return [f"{len(self.counters)} counters are finite"] * bool(self.counters) + [
            *items,
            *conditions,
        ]

    def _text(self, operand: tuple[int, Value]) -> str:
        step, value = operand
        if step < 0:
            return repr(value)
        kind, _, left, right = self.steps[step]
        if kind == _ITEM:
            container, key, _ = self.items[left[0]]
            return f"{type(container).__name__} at {id(container):#x}[{key!r}]"
        for symbol, (number, _) in _BINARY.items():
            if number == kind:
                return f"({self._text(left)} {symbol} {self._text(right)})"
        names = [f.__name__ for f, number in _FUNCTIONS.items() if number == kind]
        return f"{names[0]}({self._text(left)})" if names else f"counter {left[0]}"

    def parts(self) -> tuple[list[Value], ...]:
        """Counters, items, steps, conditions, uses and (number, step) of results, for the core."""
        shown = [(number, number.step) for number in self.shown]
        return self.counters, self.items, self.steps, self.conditions, self.uses, shown


class Rates:
    """Numbers in dicts, lists and cells that a function reads, over all its dry runs.

    One that differs from what the dry run before read, or that the function writes, is an input of
    the call, as a schedule's rate and a counter are. The others are guarded, and so are those that
    Python uses as no number of arithmetic: sizes, say.

    Attributes:
        varying: (identity of the container, key) of those that are inputs.
        grown: whether another dry run would know more.
        fixed: in this dry run all are guarded.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, Value], tuple[Value, Value, Value]] = {}
        self._guarded: set[tuple[int, Value]] = set()
        self.varying: set[tuple[int, Value]] = set()
        self.grown = False
        self.fixed = False

    def begin(self) -> None:
        """Notes which numbers have changed since the last dry run; another one begins."""
        self.fixed = False
        seen, self._seen = self._seen, {}
        if len(self.varying) > _MOST:
            self.varying.clear()
            self._guarded.clear()
        for place, (container, key, before) in seen.items():
            now = number_in(container, key)
            if type(now) is type(before) and now != before and (now == now or before == before):
                self.varying.add(place)

    def varies(self, container: Value, key: Value) -> bool:
        """Whether the number that a container has is an input of the call."""
        place = (id(container), None if type(container) is list else key)
        return (
            place in self.varying
            and not self.fixed
            and (id(container), key) not in self._guarded
            and number_in(container, key) is not None
        )

    def see(self, container: Value, key: Value, value: Value) -> None:
        """A value was read, and is guarded."""
        if type(value) in (int, float):
            self._seen[id(container), key] = (container, key, value)

    def guard(self, places: Iterable[tuple[int, Value]]) -> None:
        """Python uses numbers in another way: they are guarded from the next dry run on."""
        before = len(self._guarded)
        self._guarded.update(places)
        self.grown = self.grown or len(self._guarded) > before

    def write(self, container: Value, key: Value) -> None:
        """A number is changed that was read.

        Raises:
            Unexplained: in this dry run; in the next one it is an input, or guarded.
        """
        place = (id(container), None if type(container) is list else key)
        guarded = self.fixed and place in self.varying
        if guarded or (id(container), key) in self._guarded:
            return
        if number_in(container, key) is not None and place not in self.varying:
            self.varying.add(place)
            self.grown = True
        raise Unexplained(f"it changes what it reads of a {type(container).__name__} from outside")

    def item(self, machine: Values, table: Value, key: Value, owner: str = "") -> Value:
        """The value that a dict has under a key, or MISSING."""
        written = (id(table), key) in machine.evidence.effects
        if not written and self.varies(table, key):
            return machine.numbers.item(table, key, number_in(table, key))
        value = machine.evidence.item(table, key, owner)
        if not written:
            self.see(table, key, value)
        return value


def number_in(container: Value, key: Value) -> int | float | None:
    """The int or float that a container has, or None."""
    if isinstance(container, dict):
        value = dict.get(container, key)
    elif type(container) is list:
        value = container[key] if key is not None and 0 <= key < len(container) else None
    else:
        try:
            value = container.cell_contents
        except ValueError:
            return None
    small = type(value) is int and abs(value) < _LARGEST
    return value if small or type(value) is float else None
