"""Functions of `builtins`, `functools`, `itertools` and `operator` that call code of the program.

They are written with the machine's calls, as generators where Python's are lazy: what they call is
interpreted, in the order in which it is called. None delegates by `yield from`, which would close
generators of the program.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flambeau.capture.frame import operators, plain
from flambeau.capture.frame.evidence import Raised, Unexplained

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine

_ABSENT = object()


def _map(machine: Machine, function: object, *columns: object) -> Iterator[object]:
    return _mapped(machine, function, [machine.iterate(column) for column in columns])


def _mapped(machine: Machine, function: object, columns: list[Any]) -> Iterator[object]:
    for row in zip(*columns):
        yield machine.call(function, row, {})


def _filter(machine: Machine, function: object, values: object) -> Iterator[object]:
    return _chosen(machine, function, machine.iterate(values), True)


def _filterfalse(machine: Machine, function: object, values: object) -> Iterator[object]:
    return _chosen(machine, function, machine.iterate(values), False)


def _chosen(
    machine: Machine, function: object, values: Iterable[object], chosen: bool
) -> Iterator[object]:
    for value in values:
        tested = value if function in (None, bool) else machine.call(function, (value,), {})
        if machine.truth(tested) is chosen:
            yield value


def _takewhile(machine: Machine, function: object, values: object) -> Iterator[object]:
    return _taken(machine, function, machine.iterate(values))


def _taken(machine: Machine, function: object, values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if not machine.truth(machine.call(function, (value,), {})):
            return
        yield value


def _dropwhile(machine: Machine, function: object, values: object) -> Iterator[object]:
    return _remaining(machine, function, machine.iterate(values))


def _remaining(machine: Machine, function: object, values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if not machine.truth(machine.call(function, (value,), {})):
            yield value
            break
    for value in values:  # noqa: UP028
        yield value


def _accumulate(
    machine: Machine, values: object, func: Any = None, *, initial: object = None
) -> Iterator[object]:
    return _accumulated(machine, machine.iterate(values), func, initial)


def _accumulated(machine: Machine, values: Any, function: object, initial: Any) -> Iterator[object]:
    total = next(values, _ABSENT) if initial is None else initial
    if total is _ABSENT:
        return
    yield total
    for value in values:
        total = machine.call(function or operator.add, (total, value), {})
        yield total


def _starmap(machine: Machine, function: object, rows: object) -> Iterator[object]:
    return _starmapped(machine, function, machine.iterate(rows))


def _starmapped(machine: Machine, function: object, rows: Iterable[object]) -> Iterator[object]:
    for row in rows:
        yield machine.call(function, tuple(machine.iterate(row)), {})


def _chain(machine: Machine, *columns: object) -> Iterator[object]:
    return chained(machine, columns)


def chained(machine: Machine, columns: Iterable[object]) -> Iterator[object]:
    """The values of several columns, one behind the other."""
    for column in columns:
        for value in machine.iterate(column):  # noqa: UP028
            yield value


def _over(function: Callable[..., object]) -> Callable[..., object]:
    """A native iterator over values that the machine iterates over."""

    def make(machine: Machine, values: object, *args: object, **kwargs: object) -> Iterator[object]:
        for value in (*args, *kwargs.values()):
            machine.touch(value)
        result: Iterator[object] = machine.native(
            function, machine.iterate(values), *args, **kwargs
        )
        return result

    return make


def _across(function: Callable[..., object]) -> Callable[..., object]:
    """A native iterator over several columns."""

    def make(machine: Machine, *columns: object, **kwargs: object) -> Iterator[object]:
        rows = [machine.iterate(column) for column in columns]
        result: Iterator[object] = machine.native(function, *rows, **kwargs)
        return result

    return make


def _plain(function: Callable[..., object]) -> Callable[..., object]:
    """A native iterator over values without code."""

    def make(machine: Machine, *args: object, **kwargs: object) -> Iterator[object]:
        result: Iterator[object] = machine.native(function, *args, **kwargs)
        return result

    return make


def _count(machine: Machine, *args: object, **kwargs: object) -> Iterator[object]:
    if not all(type(value) in (int, float) for value in (*args, *kwargs.values())):
        raise Unexplained("it counts no numbers")
    return itertools.count(*args, **kwargs)


def _reduce(machine: Machine, function: object, values: object, *initial: object) -> Any:
    iterator = machine.iterate(values)
    total = initial[0] if initial else next(iterator, _ABSENT)
    if total is _ABSENT:
        raise Raised(TypeError("reduce() of empty iterable with no initial value"))
    for value in iterator:
        total = machine.call(function, (total, value), {})
    return total


def _binary(symbol: str) -> Callable[..., object]:
    def compute(machine: Machine, left: object, right: object) -> Any:
        if symbol in operators.COMPARE:
            return operators.compare(machine, symbol, left, right)
        return operators.binary(machine, symbol, left, right)

    return compute


def ordered(
    machine: Machine, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """sorted, min or max with a key: its values must be numbers and texts."""
    values = list(machine.iterate(args[0])) if len(args) == 1 else list(args)
    keys = [machine.call(kwargs["key"], (value,), {}) for value in values]
    if not all(plain.compares(key) for key in keys):
        raise Unexplained(f"it calls {function.__name__} with a key that gives objects")
    machine.touch(tuple(keys))
    options = {name: value for name, value in kwargs.items() if name not in ("key", "default")}
    if function is sorted:
        order = machine.native(sorted, range(len(values)), key=keys.__getitem__, **options)
        return machine.fresh([values[index] for index in order])
    if not values and "default" in kwargs:
        return kwargs["default"]
    index = machine.native(function, range(len(values)), key=keys.__getitem__)
    return values[index]


FUNCTIONS: dict[Any, Callable[..., object]] = {
    map: _map, filter: _filter, functools.reduce: _reduce, itertools.chain: _chain,
    itertools.accumulate: _accumulate, itertools.starmap: _starmap, itertools.count: _count,
    itertools.takewhile: _takewhile, itertools.dropwhile: _dropwhile,
    itertools.filterfalse: _filterfalse, itertools.islice: _over(itertools.islice),
    itertools.cycle: _over(itertools.cycle), itertools.pairwise: _over(itertools.pairwise),
    itertools.combinations: _over(itertools.combinations),
    itertools.permutations: _over(itertools.permutations),
    itertools.combinations_with_replacement: _over(itertools.combinations_with_replacement),
    itertools.compress: _across(itertools.compress), itertools.product: _across(itertools.product),
    itertools.zip_longest: _across(itertools.zip_longest),
    itertools.repeat: _plain(itertools.repeat),
    operator.add: _binary("+"), operator.sub: _binary("-"), operator.mul: _binary("*"),
    operator.truediv: _binary("/"), operator.floordiv: _binary("//"), operator.mod: _binary("%"),
    operator.pow: _binary("**"), operator.matmul: _binary("@"), operator.eq: _binary("=="),
    operator.ne: _binary("!="), operator.lt: _binary("<"), operator.le: _binary("<="),
    operator.gt: _binary(">"), operator.ge: _binary(">="), operator.iadd: _binary("+="),
}  # fmt: skip


def call(
    machine: Machine, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of one of the functions."""
    try:
        result = FUNCTIONS[function](machine, *args, **kwargs)
    except TypeError as error:
        raise Unexplained(f"it calls {function.__name__} in another form") from error
    return machine.fresh(result) if function in plain.ITERTOOLS else result
