"""Numbers of a dry run that differ between calls, and what follows of them.

An optimizer counts its steps in tensors of one element and computes rates of them in Python; a
schedule changes its rate. The dry run has no values for these: each is a step of a small program
that the core computes in every call (`native/frame/effects.cpp`). Operators get a placeholder, by
which the core finds the number among those of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flambeau.capture.frame import plain
from flambeau.capture.frame.evidence import Unexplained

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine

_COUNT, _ITEM, _SQUARE_ROOT = 0, 1, 7  # as `NumberStep::Kind`
_KINDS = {"+": 2, "-": 3, "*": 4, "/": 5, "**": 6}
_MOST = 256  # floats that are known to vary
_LARGEST = 1 << 53  # integers up to here are floats


class Number(float):
    """A float that native code must not read: it is no value of this call.

    Attributes:
        step: which number it is.
    """

    step: int


class Numbers:
    """The numbers of one dry run.

    Attributes:
        counters: tensors that the calls count in.
        items: (dict, key) of floats that calls read again.
        steps: (kind, number of the left operand or -1, its value, the same of the right one) each.
        uses: (placeholder, step) of each number that is an argument of an operator.
    """

    def __init__(self) -> None:
        self.counters: list[Any] = []
        self.items: list[tuple[Any, str]] = []
        self.steps: list[tuple[int, int, float, int, float]] = []
        self.uses: list[tuple[float, int]] = []

    def _number(self, kind: int, left: object, right: object = 0.0) -> Number:
        operands = [*self._operand(left), *self._operand(right)]
        self.steps.append((kind, *operands))  # type: ignore[arg-type]
        number = Number(0.5 + len(self.steps) * 2.0**-40)
        number.step = len(self.steps) - 1
        return number

    def _operand(self, value: object) -> tuple[int, float]:
        if isinstance(value, Number):
            return value.step, 0.0
        if type(value) is float or (type(value) is int and abs(value) <= _LARGEST):
            return -1, float(value)
        raise Unexplained(f"it computes with a counter and a {type(value).__name__}")

    def count(self, tensors: Iterable[Any], constants: dict[int, Any]) -> list[Number]:
        """The values of tensors after 1 was added to each."""
        numbers = []
        for tensor in tensors:
            if type(tensor) not in plain.TENSORS or id(tensor) not in constants:
                raise Unexplained("it counts in a tensor of its own")
            self.counters.append(tensor)
            numbers.append(self._source(_COUNT, len(self.counters) - 1))
        return numbers

    def item(self, table: Any, key: str) -> Number:
        """The float that a dict has under a key."""
        self.items.append((table, key))
        return self._source(_ITEM, len(self.items) - 1)

    def _source(self, kind: int, index: int) -> Number:
        number = self._number(kind, 0.0)
        self.steps[-1] = (kind, index, 0.0, -1, 0.0)
        return number

    def binary(self, symbol: str, left: object, right: object) -> Number:
        """left + right, ..."""
        kind = _KINDS.get(symbol.removesuffix("="))
        if kind is None:
            raise Unexplained(f"it computes {symbol} of a counter")
        return self._number(kind, left, right)

    def call(self, function: object, args: tuple[Any, ...]) -> Number:
        """A native function of numbers."""
        if function is float and len(args) == 1:
            return args[0]  # type: ignore[no-any-return]
        if function is math.sqrt and len(args) == 1:
            return self._number(_SQUARE_ROOT, args[0])
        raise Unexplained(f"it calls {getattr(function, '__name__', function)} of a counter")

    def argument(self, value: Any) -> Any:
        """An argument of an operator: a number is replaced by its placeholder."""
        if type(value) is not Number:
            return value
        self.uses.append((float(value), value.step))
        return self.uses[-1][0]

    def lines(self) -> list[str]:
        """Their guards as readable Python."""
        floats = [f"type(dict at {id(table):#x}[{key!r}]) is float" for table, key in self.items]
        return [f"{len(self.counters)} counters are finite"] * bool(self.counters) + floats

    def parts(self) -> tuple[list[Any], ...]:
        """Counters, items, steps and uses, for the core."""
        return self.counters, self.items, self.steps, self.uses


class Rates:
    """Floats in dicts from outside that a function reads, over all its dry runs.

    One that differs from what the dry run before read is an input of the call, as a schedule's rate
    is; the others are guarded.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[Any, float]] = {}
        self.varying: set[tuple[int, str]] = set()
        self.fixed = False  # in this dry run all are guarded

    def begin(self) -> None:
        """Notes which floats have changed since the last dry run; another one begins."""
        self.fixed = False
        seen, self._seen = self._seen, {}
        if len(self.varying) > _MOST:
            self.varying.clear()
        for (number, key), (table, before) in seen.items():
            now = dict.get(table, key)
            if type(now) is float and now != before and (now == now or before == before):
                self.varying.add((number, key))

    def item(self, machine: Machine, table: Any, key: str) -> Any:
        """The value that a dict has under a key, or MISSING."""
        place = (id(table), key)
        if place in self.varying and not self.fixed and type(dict.get(table, key)) is float:
            return machine.numbers.item(table, key)
        value = machine.evidence.item(table, key)
        if type(value) is float:
            self._seen[place] = (table, value)
        return value
