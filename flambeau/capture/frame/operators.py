"""Operators of a dry run: builtin values and tensors by Python's own, objects by their methods."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from flambeau.capture.frame import plain
from flambeau.capture.frame.evidence import MISSING, Raised, Unexplained
from flambeau.capture.frame.numbers import Number

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "@": operator.matmul,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift,
    ">>": operator.rshift, "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul,
    "/=": operator.itruediv, "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow,
    "@=": operator.imatmul, "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor,
    "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
METHODS = {
    "+": "__add__", "-": "__sub__", "*": "__mul__", "/": "__truediv__", "//": "__floordiv__",
    "%": "__mod__", "**": "__pow__", "@": "__matmul__", "&": "__and__", "|": "__or__",
    "^": "__xor__", "<<": "__lshift__", ">>": "__rshift__",
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {
    "__neg__": operator.neg, "__pos__": operator.pos, "__invert__": operator.invert,
    "__abs__": operator.abs,
}  # fmt: skip
_WARNS = sys.version_info >= (3, 12)  # ~True
_COMPARED = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge"}
_REFLECTED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
_PLAIN = plain.ATOMS | plain.TENSORS | {tuple, list, set, dict}


def binary(machine: Machine, symbol: str, left: object, right: object) -> Any:
    """left + right, left += right, ..."""
    kinds = (type(left), type(right))
    if Number in kinds:
        return _binary_of_numbers(machine, symbol, left, right)
    if kinds[0] not in _PLAIN or kinds[1] not in _PLAIN:
        return _binary_of_objects(machine, symbol, left, right)
    if symbol.endswith("=") and kinds[0] in (list, set, dict):
        machine.writable(left)
    if not (kinds[0] in plain.ATOMS and kinds[1] in plain.ATOMS):
        machine.touch((left, right))
    if symbol == "%" and kinds[0] is str and not plain.shows(right):
        raise Unexplained("it formats an object")
    name = METHODS[symbol.rstrip("=")]
    reflected, written = name.replace("__", "__r", 1), name.replace("__", "__i", 1)
    machine.slots((left, right), name, reflected, *[written] * symbol.endswith("="))
    return machine.collection(machine.native(BINARY[symbol], left, right))


def _binary_of_numbers(machine: Machine, symbol: str, left: Any, right: Any) -> Any:
    tensor = left if type(left) in plain.TENSORS else right
    if type(tensor) not in plain.TENSORS:
        return machine.numbers.binary(symbol, left, right)
    name = METHODS[symbol.rstrip("=")]
    machine.slots((tensor,), name, name.replace("__", "__r", 1), name.replace("__", "__i", 1))
    title = name.strip("_").replace("truediv", "mul" if tensor.is_floating_point() else "truediv")
    return machine.native_with_numbers(BINARY[symbol], title, (left, right), {})


def _binary_of_objects(machine: Machine, symbol: str, left: object, right: object) -> Any:
    name = METHODS[symbol.rstrip("=")]
    if symbol.endswith("="):
        result = _attempt(machine, name.replace("__", "__i", 1), left, right)
        if result is not NotImplemented:
            return result
    reflected = name.replace("__", "__r", 1)
    attempts = [(name, left, right)]
    if type(left) is not type(right):
        attempts.append((reflected, right, left))
        if issubclass(type(right), type(left)) and machine.evidence.attribute(
            type(right), reflected
        ) is not machine.evidence.attribute(type(left), reflected):
            attempts.reverse()
    for method, owner, other in attempts:
        result = _attempt(machine, method, owner, other)
        if result is not NotImplemented:
            return result
    shown = f"{type(left).__name__}' and '{type(right).__name__}"
    text = f"unsupported operand type(s) for {symbol}: '{shown}'"
    raise Raised(TypeError(text), exact=False)


def _attempt(machine: Machine, name: str, owner: object, other: object) -> Any:
    """The result of a special method, NotImplemented where there is none."""
    kind = machine.typed(owner)
    method = machine.evidence.attribute(kind, name)
    if isinstance(method, FunctionType):
        return machine.call(method, (owner, other), {})
    if method is MISSING:
        return NotImplemented
    if kind in (str, bytes) and name == "__mod__":
        raise Unexplained("it formats an object")
    builtin = kind in plain.ATOMS | {tuple, list, dict, set, frozenset}
    if builtin and not isinstance(other, (*plain.ATOMS, *plain.CONTAINERS)):
        return NotImplemented
    raise Unexplained(f"{name} of {kind.__name__} and {type(other).__name__}")


def unary(machine: Machine, name: str, value: object) -> Any:
    """-value, +value, ~value, abs(value)"""
    kind = type(value)
    if kind is Number:
        if name in ("__neg__", "__abs__"):
            numbers = machine.numbers
            return numbers.negated(value) if name == "__neg__" else numbers.call(abs, (value,))
        raise machine.numbers.refuse(value, "an operator of a counter")
    if kind is bool and name == "__invert__" and _WARNS:
        raise Unexplained("~ of a bool warns")
    if kind in plain.ATOMS or kind in plain.TENSORS:
        machine.slots((value,), name)
        return machine.native(UNARY[name], value)
    function = machine.method(value, name)
    if function is None:
        raise Unexplained(f"an operator of a {kind.__name__}")
    return machine.call(function, (value,), {})


def compare(machine: Machine, symbol: str, left: object, right: object) -> Any:
    """left < right, ..."""
    kinds = (type(left), type(right))
    if Number in kinds:
        if not all(kind in (Number, int, float) for kind in kinds):
            machine.numbers.refuse(left, "")
            raise machine.numbers.refuse(right, "it compares a counter and an object")
        return machine.numbers.compare(symbol, left, right)
    if kinds[0] in plain.ATOMS and kinds[1] in plain.ATOMS:
        return machine.native(COMPARE[symbol], left, right)
    scalars = plain.ATOMS | plain.TENSORS
    if kinds[0] in scalars and kinds[1] in scalars:
        machine.slots((left, right), f"__{_COMPARED[symbol]}__")
        return machine.native(COMPARE[symbol], left, right)
    if plain.compares(left) and plain.compares(right):
        machine.touch((left, right))
        return machine.native(COMPARE[symbol], left, right)
    if kinds[0] in _PLAIN and kinds[1] in _PLAIN:
        raise Unexplained(f"it compares a {kinds[0].__name__} and a {kinds[1].__name__}")
    return _compare_objects(machine, symbol, left, right)


def _compare_objects(machine: Machine, symbol: str, left: object, right: object) -> Any:
    attempts = [(symbol, left, right), (_REFLECTED[symbol], right, left)]
    if type(left) is not type(right) and issubclass(type(right), type(left)):
        attempts.reverse()
    for op, owner, other in attempts:
        result = _attempt_comparison(machine, op, owner, other)
        if result is not NotImplemented:
            return result
    if symbol in ("==", "!="):
        return (left is right) == (symbol == "==")
    shown = f"{type(left).__name__}' and '{type(right).__name__}"
    text = f"'{symbol}' not supported between instances of '{shown}'"
    raise Raised(TypeError(text), exact=False)


def _attempt_comparison(machine: Machine, symbol: str, owner: object, other: object) -> Any:
    kind = machine.typed(owner)
    method = machine.evidence.attribute(kind, f"__{_COMPARED[symbol]}__")
    if isinstance(method, FunctionType):
        return machine.call(method, (owner, other), {})
    if method is object.__ne__:
        equal = _attempt_comparison(machine, "==", owner, other)
        return equal if equal is NotImplemented else not machine.truth(equal)
    if method is getattr(object, f"__{_COMPARED[symbol]}__"):
        return True if symbol == "==" and owner is other else NotImplemented
    if kind in plain.ATOMS and not isinstance(other, tuple(plain.ATOMS)):
        return NotImplemented
    raise Unexplained(f"it compares a {kind.__name__} and a {type(other).__name__}")


def contains(machine: Machine, container: Any, value: object) -> bool:
    """value in container"""
    kind = type(container)
    if kind in plain.DICTS:
        if machine.is_key(value):
            return machine.table_item(container, value) is not MISSING
        if not machine.is_fresh(container) or not plain.hashes(value):
            raise Unexplained("it looks up an object")
        return value in container
    if kind is set and machine.is_fresh(container) and machine.hashes(value):
        return value in container  # whose elements are hashed in this way, too
    if kind in plain.ATOMS or kind in plain.CONTAINERS:
        machine.touch(container)
        if not plain.compares(container) or not plain.compares(value):
            return _contains_object(machine, container, value, kind)
        return bool(machine.native(operator.contains, container, value))
    function = machine.method(container, "__contains__")
    if function is not None:
        return machine.truth(machine.call(function, (container, value), {}))
    if machine.evidence.attribute(kind, "__contains__") is not MISSING:
        raise Unexplained(f"it looks up in a {kind.__name__}")
    return _among(machine, machine.iterate(container), value)


def _contains_object(machine: Machine, container: Any, value: object, kind: type) -> bool:
    if kind not in (list, tuple) or type(value) in plain.TENSORS:
        raise Unexplained("it looks up an object")
    return _among(machine, iter(container), value)


def _among(machine: Machine, values: Iterable[object], value: object) -> bool:
    for item in values:
        if type(item) in (float, complex) or type(item) in plain.TENSORS:
            raise Unexplained("it looks up an object")  # identities of numbers have no guard
        if item is value or machine.truth(compare(machine, "==", item, value)):
            return True
    return False
