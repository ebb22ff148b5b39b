"""Calls as the native core describes them: one entry per argument of the schema, see
docs/design.md § 7. Their class, their symbols' values, and the same call with other values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from flambeau import _core
from flambeau._core import GeneratorArgument, IntegerArgument, ScalarArgument, TensorArgument
from flambeau.language import promotion

Call = tuple[Any, ...]
_Entry = TypeVar("_Entry")
_VALUES = (type(None), bool, int, float, complex, str)
_NAMED = (_core.dtype, _core.device, _core.layout, _core.memory_format)


class _NoTextError(Exception):
    """A call has an argument whose text does not say what it is."""


def class_of(call: Call) -> str | None:
    """Text of a call's class, as the core's class key distinguishes them; None if it has none."""
    try:
        classes = [_class_of_entry(entry) for entry in call]
    except _NoTextError:
        return None
    return repr((promotion.default_dtype(), str(_core.get_default_device()), classes))


def _class_of_entry(entry: Any) -> Any:
    kind = type(entry)
    if kind is TensorArgument:
        strided = entry.layout == "strided"
        return (
            "tensor", entry.dtype, entry.requires_grad, entry.layout, str(entry.device),
            _small(entry.sizes), _small(entry.strides) if strided else (),
        )  # fmt: skip
    if kind is ScalarArgument:
        return "scalar", entry.type.__name__
    if kind is IntegerArgument:
        return "integer"
    if kind is GeneratorArgument:
        return "generator"
    if kind is tuple or kind is list:
        return kind(_class_of_entry(item) for item in entry)
    if kind in _VALUES:
        return entry
    if kind in _NAMED:
        return kind.__name__, str(entry)
    raise _NoTextError


def _small(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([value if value in (0, 1) else 2 for value in values])


def entries(call: Iterable[Any], kind: type[_Entry]) -> Iterator[_Entry]:
    """The descriptions of this type in a call, in order; those in lists, too."""
    for entry in call:
        if type(entry) is list:
            yield from entries(entry, kind)
        elif type(entry) is kind:
            yield entry


def numbers_of(call: Call) -> list[int]:
    """Values of a call's symbols, in the order of its registers (docs/design.md § 6)."""
    numbers: list[int] = []
    for tensor in entries(call, TensorArgument):
        numbers += [*tensor.sizes, *tensor.strides, tensor.offset]
    numbers += [integer.value for integer in entries(call, IntegerArgument)]
    return numbers


def with_numbers(call: Call, numbers: list[int]) -> Call:
    """The same call with other values of its symbols."""
    tensors = sum(2 * len(tensor.sizes) + 1 for tensor in entries(call, TensorArgument))
    geometry, integers = iter(numbers[:tensors]), iter(numbers[tensors:])

    def take(count: int) -> tuple[int, ...]:
        return tuple([next(geometry) for _ in range(count)])

    def changed(entry: Any) -> Any:
        if type(entry) is list:
            return [changed(item) for item in entry]
        if type(entry) is TensorArgument:
            sizes, strides = take(len(entry.sizes)), take(len(entry.sizes))
            return entry._replace(sizes=sizes, strides=strides, offset=next(geometry))
        if type(entry) is IntegerArgument:
            return entry._replace(value=next(integers))
        return entry

    return tuple([changed(entry) for entry in call])
