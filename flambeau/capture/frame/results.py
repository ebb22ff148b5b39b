"""Results of a dry run: how each call makes them again.

Containers and objects that the call makes are built from their parts. Objects that were there
before are in every result themselves.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flambeau import _core
from flambeau.capture.frame import plain
from flambeau.capture.frame.evidence import MISSING, Unexplained, is_key
from flambeau.capture.frame.generators import Generator, Opaque
from flambeau.capture.frame.numbers import Number

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine

_HEAP_TYPE = 1 << 9  # of `type.__flags__`


class Results:
    """The parts of a result.

    Attributes:
        identical: objects that every result holds themselves.
        built: other objects, each with a function that builds it, and the tuple of parts for that.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._parts: dict[int, Any] = {}  # that were visited
        self.identical: list[Any] = []
        self.built: list[tuple[Any, Callable[..., Any], tuple[Any, ...]]] = []

    def read(self, value: Any) -> None:
        """Raises where a result cannot be built again."""
        kind = type(value)
        if kind is Number:
            self._machine.numbers.shown.append(value)
            return
        if kind in plain.TENSORS or (kind is tuple and not value):
            return
        if kind in plain.ATOMS:
            self.identical += [value] if kind is _core.Size else []
            return
        evidence = self._machine.evidence
        if id(value) in evidence.arguments:
            raise Unexplained(f"its result has a {kind.__name__} of the arguments")
        if id(value) in evidence.identical:
            self.identical.append(value)
            return
        if id(value) in self._parts:
            raise Unexplained(f"its result has a {kind.__name__} twice")
        self._parts[id(value)] = value
        if kind is tuple:
            self._read_all(value)
        elif kind is list:
            self._machine.writable(value)
            self._read_all(value)
        elif kind is dict:
            self._read_dict(value)
        else:
            self._read_object(value, kind)

    def _read_all(self, values: Iterable[object]) -> None:
        for value in values:
            self.read(value)

    def _read_dict(self, table: Any) -> None:
        self._machine.writable(table)
        if not all(map(is_key, table)):
            raise Unexplained("a result has keys that are objects")
        self._read_all(table.values())

    def _read_object(self, value: Any, kind: type) -> None:
        machine = self._machine
        if not machine.is_fresh(value) or isinstance(value, (Generator, Opaque)):
            raise Unexplained(f"its result has a {kind.__name__}")
        build: Callable[..., Any]
        if kind in (set, frozenset, deque):
            build, parts = kind, tuple(value)
            again = build(parts) if all(map(plain.hashes, parts)) or kind is deque else ()
            if [*map(id, again)] != [*map(id, parts)] or getattr(value, "maxlen", None):
                raise Unexplained(f"its result has a {kind.__name__} of another order")
        elif plain.is_struct(kind):
            build, parts = kind, tuple(value)
        elif machine.is_named_tuple(kind):
            build, parts = functools.partial(tuple.__new__, kind), tuple(value)
        elif _has_only_attributes(machine, kind):
            table = object.__getattribute__(value, "__dict__")
            build, parts = functools.partial(_instance, kind, tuple(table)), tuple(table.values())
        else:
            raise Unexplained(f"its result has a {kind.__name__}")
        self.built.append((value, build, parts))
        self._read_all(parts)


def _has_only_attributes(machine: Machine, kind: type) -> bool:
    """Whether an object of a type is its `__dict__`, and nothing happens when it is dropped."""
    *bases, last = kind.__mro__
    return (
        last is object
        and all(base.__flags__ & _HEAP_TYPE for base in bases)
        and not any(
            isinstance(member, types.MemberDescriptorType)
            for base in bases
            for member in base.__dict__.values()
        )
        and isinstance(machine.evidence.attribute(kind, "__dict__"), types.GetSetDescriptorType)
        and machine.evidence.attribute(kind, "__del__") is MISSING
        and _is_plain(kind)
    )


def _is_plain(kind: type) -> bool:
    """Whether an object of a type has no state in native code."""
    try:
        object.__new__(kind)
    except TypeError:
        return False
    return True


def _instance(kind: type, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """An object with attributes, which no code of its class sees."""
    value: object = object.__new__(kind)
    object.__getattribute__(value, "__dict__").update(zip(names, values, strict=True))
    return value
