"""Everything that a dry run read from outside of its frame: the guards of an explanation.

State is named by the object that holds it, not by a path from the arguments: an object that is
identical, and whose dicts and type have the versions they had, leads to identical objects. So a
guard is one comparison, and tensors that are reached through guarded state are constants.
"""

from __future__ import annotations

import types
import weakref
from collections import defaultdict
from typing import Any

from flambeau._core import Tensor
from flambeau.capture.frame import plain

MISSING = ...  # as a value: there is nothing under a name
_HEAP_TYPE = 1 << 9  # of `type.__flags__`: attributes may change
_MAX_DEPTH = 8
_KEYS = frozenset({types.NoneType, bool, float, bytes, tuple})  # besides texts, ints and types


class Unexplained(BaseException):
    """A dry run met what it cannot explain; its text says what.

    No handler of the interpreted program sees it.
    """


class Raised(Exception):  # noqa: N818 - it carries an error, and is none
    """The interpreted program raised.

    Attributes:
        error: its exception.
        exact: whether its text is Python's, so that a handler may see it.
    """

    def __init__(self, error: BaseException, exact: bool = True) -> None:
        super().__init__(repr(error))
        self.error = error
        self.exact = exact


class Evidence:
    """The notes of one dry run.

    Attributes:
        arguments: the call's arguments, which a pattern compares, and gradients: by identity
            number, with the containers that are compared item by item.
        constants: tensors that guards lead to.
        identical: other objects that guards lead to: a result holds themselves, not copies.
        effects: (container, key, value) of what is written, by identity number and key: items of
            dicts, elements of lists (key None: it is appended), cells (key None).
    """

    def __init__(self, values: list[Any]) -> None:
        self.arguments: dict[int, Any] = {}
        self.constants: dict[int, Any] = {}
        self.identical: dict[int, Any] = {}
        self.effects: dict[Any, tuple[Any, Any, Any]] = {}
        self._roots: dict[int, Any] = {}
        self._objects: dict[int, tuple[Any, Any]] = {}
        self._dicts: dict[int, tuple[Any, dict[Any, Any]]] = {}
        self._complete: dict[int, Any] = {}
        self._types: dict[type, dict[str, Any]] = {}
        self._strict: set[type] = set()
        self._titles: set[type] = set()
        self._functions: dict[int, Any] = {}
        self._cells: dict[int, tuple[Any, Any]] = {}
        self._lists: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._slots: dict[tuple[int, int], tuple[Any, Any, Any]] = {}
        self._operators: dict[int, Any] = {}
        self._owners: dict[int, str] = {}
        for value in values:
            self._add_argument(value)

    def _add_argument(self, value: Any) -> None:
        kind = type(value)
        if kind in (tuple, list, dict):
            if id(value) not in self.arguments:
                self.arguments[id(value)] = value
                for item in value.values() if kind is dict else value:
                    self._add_argument(item)
        elif isinstance(value, Tensor):
            self.arguments[id(value)] = value
        else:
            self._roots[id(value)] = value

    # ------------------------------------------------------------------ what was read
    def read(self, value: object, depth: int = 0) -> Any:
        """A value that guarded state holds; tensors become constants."""
        if id(value) in self.arguments and type(value) is not tuple:  # another one would pass, too
            raise Unexplained("an argument is also reached otherwise")
        if isinstance(value, Tensor):
            self.constants[id(value)] = value
        elif id(value) not in self._roots:
            self.identical[id(value)] = value
        if type(value) is tuple and depth < _MAX_DEPTH:
            for item in value:
                self.read(item, depth + 1)
        return value

    def gradient(self, value: Any) -> Any:
        """The gradient of a tensor: another one in each call, unless guards lead to it, too."""
        if id(value) not in self.constants:
            self.arguments[id(value)] = value
        return value

    def names(self, value: object) -> bool:
        """Whether it is the same object in every call, no tensor."""
        return id(value) in self.identical or id(value) in self._roots

    def constant(self, value: object) -> Any:
        """A constant of a code object."""
        if type(value) is tuple:
            self.identical[id(value)] = value
            for item in value:
                self.constant(item)
        return value

    def item(self, table: object, key: object, owner: str = "") -> Any:
        """The value that a dict has under a key, or MISSING."""
        if not is_key(key) and id(key) not in self.constants:
            raise Unexplained(f"a dict is read by a key that is a {type(key).__name__}")
        if (id(table), key) in self.effects:
            return self.effects[id(table), key][2]
        value = look_up(table, key)
        if id(table) in self.arguments:
            return value
        self._dicts.setdefault(id(table), (table, {}))[1][key] = value
        if owner:
            self._owners[id(table)] = owner
        return self.read(value)

    def items(self, table: Any) -> None:
        """All items of a dict, in order, are read."""
        if id(table) in self.arguments:
            return
        self._check_unwritten(table)
        for key, value in dict.items(table):
            if not is_key(key) and id(key) not in self.constants:
                raise Unexplained(f"a dict has a key that is a {type(key).__name__}")
            self.read(value)
        self._complete[id(table)] = table
        self._dicts.setdefault(id(table), (table, {}))

    def elements(self, values: Any) -> None:
        """All elements of a list, set or deque are read."""
        if id(values) in self.arguments:
            return
        self._check_unwritten(values)
        self._lists[id(values)] = (values, tuple(values))
        for value in values:
            self.read(value)

    def _check_unwritten(self, container: object) -> None:
        if any(container is target for target, _, _ in self.effects.values()):
            raise Unexplained(f"it reads a {type(container).__name__} that it wrote")

    # ------------------------------------------------------------------ what is written
    def write(self, table: Any, key: Any, value: object) -> None:
        """A dict from outside gets an item."""
        kind = type(table)
        if kind not in (dict, defaultdict) or id(table) in self.arguments:
            raise Unexplained(f"it writes to a {kind.__name__} from outside")
        if (id(table), key) not in self.effects:
            if look_up(table, key) is value:
                self.item(table, key)  # the write changes nothing
                return
        self.effects[id(table), key] = (table, key, value)

    def reads(self, table: Any, key: Any) -> bool:
        """Whether what a dict has under a key was read, and is not written."""
        if (id(table), key) in self.effects:
            return False
        return id(table) in self._complete or key in self._dicts.get(id(table), ((), ()))[1]

    def reads_cell(self, cell: object) -> bool:
        """Whether the value of a variable of a closure was read."""
        return id(cell) in self._cells

    def append(self, values: list[Any], value: object) -> None:
        """A list from outside gets one more element; nothing reads it before."""
        if id(values) in self.arguments or id(values) in self._lists:
            raise Unexplained("it writes to a list from outside")
        self.effects[id(values), len(self.effects), "append"] = (values, None, value)

    def attribute(self, kind: type, name: str) -> Any:
        """The attribute that a type or its bases define, or MISSING."""
        value = MISSING
        for base in kind.__mro__:
            if name in base.__dict__:
                value = present(base.__dict__[name])
                break
        if kind.__flags__ & _HEAP_TYPE:
            self._types.setdefault(kind, {})[name] = value
        return value

    def bases(self, kind: type) -> None:
        """The bases of a type are read."""
        if kind.__flags__ & _HEAP_TYPE:
            self._types.setdefault(kind, {})

    def title(self, kind: type) -> str:
        """The name of a type."""
        self.bases(kind)
        if kind in self._types:
            self._titles.add(kind)
        return kind.__name__

    def hierarchy(self, kind: type) -> None:
        """The type and its bases must not change at all."""
        if kind.__flags__ & _HEAP_TYPE:
            self._types.setdefault(kind, {})
            self._strict.add(kind)

    def holder(self, value: object, table: object) -> None:
        """The object has this type and this dict (MISSING: its dict is not read)."""
        if id(value) in self.arguments:
            return
        if id(table) in self.arguments:
            raise Unexplained("an argument is also reached otherwise")
        before = self._objects.get(id(value))
        if before is None or before[1] is MISSING:
            self._objects[id(value)] = (value, table)
        if table is not MISSING:
            self._owners[id(table)] = f"{type(value).__qualname__} at {id(value):#x}"

    def function(self, function: Any) -> None:
        """A function's code and defaults are read."""
        if id(function) in self._functions:
            return
        self._functions[id(function)] = function
        self.read(function.__defaults__)
        if function.__kwdefaults__:
            self.items(function.__kwdefaults__)

    def cell(self, cell: Any) -> Any:
        """The value of a closure's variable, or MISSING."""
        try:
            value = present(cell.cell_contents)
        except ValueError:
            value = MISSING
        self._cells[id(cell)] = (cell, value)
        return self.read(value)

    def slot(self, value: Any, descriptor: Any) -> Any:
        """The value of a slot of an object, or MISSING."""
        self.holder(value, MISSING)
        try:
            item = present(descriptor.__get__(value))
        except AttributeError:
            item = MISSING
        self._slots[id(value), id(descriptor)] = (value, descriptor, item)
        return self.read(item)

    def operator(self, op: object) -> None:
        """An operator is called, which has no gate."""
        self._operators[id(op)] = op

    # ------------------------------------------------------------------ as guards
    def parts(self) -> tuple[Any, ...]:
        """The guards for the core, in the order in which it reads them."""
        functions = list(self._functions.values())
        held = tuple((f.__code__, f.__defaults__, f.__kwdefaults__) for f in functions)
        kinds = [
            (
                kind,
                kind in self._strict,
                tuple(names.items()),
                kind.__mro__,
                kind.__name__ if kind in self._titles else MISSING,
            )
            for kind, names in self._types.items()
        ]
        return (
            [(self._reference(value), table) for value, table in self._objects.values()],
            [self._dict_guard(table, reads) for table, reads in self._dicts.values()],
            kinds,
            functions,
            list(self._cells.values()),
            list(self._lists.values()),
            list(self._operators.values()),
            [(self._reference(v), slot, item) for v, slot, item in self._slots.values()],
            held,
        )

    def _reference(self, value: object) -> Any:
        """An argument is not owned by its guards: each call passes it again."""
        if id(value) in self._roots and not isinstance(value, (type, types.FunctionType)):
            try:
                return weakref.ref(value)
            except TypeError:
                return value
        return value

    def _dict_guard(self, table: Any, reads: dict[Any, Any]) -> tuple[Any, ...]:
        if id(table) in self._complete:
            return table, True, tuple(dict.items(table))
        return table, False, tuple(reads.items())

    def lines(self) -> list[str]:
        """The guards on state as readable Python."""
        lines = []
        for value, table in self._objects.values():
            lines.append(f"type({_name(value)}) is {type(value).__qualname__}")
            if table is not MISSING and not self._dicts.get(id(table), (None, {}))[1]:
                lines.append(f"{_name(value)}.__dict__ is the same dict")
        for table, reads in self._dicts.values():
            owner = self._owners.get(id(table), f"dict at {id(table):#x}")
            if id(table) in self._complete:
                lines.append(f"list({owner}) == [{', '.join(map(_key, table))}]")
            lines.extend(_comparison(f"{owner}[{_key(key)}]", reads[key]) for key in reads)
        for kind, names in self._types.items():
            lines.extend(_comparison(f"{kind.__qualname__}.{n}", v) for n, v in names.items())
            lines.extend([f"{kind.__qualname__}.__name__ is unchanged"] * (kind in self._titles))
            lines.extend([f"{kind.__qualname__} is unchanged"] if kind in self._strict else [])
        lines.extend(f"{_name(f)}.__code__ is unchanged" for f in self._functions.values())
        for cell, value in self._cells.values():
            lines.append(_comparison(f"cell at {id(cell):#x}", value))
        lines.extend(f"{op.__name__}.gate is None" for op in self._operators.values())
        for values, _ in self._lists.values():
            name = f"{type(values).__name__} at {id(values):#x}"
            lines.append(f"len({name}) == {len(values)}, with the same items")
        for value, slot, item in self._slots.values():
            lines.append(_comparison(f"{_name(value)}.{slot.__name__}", item))
        return lines


def present(value: object) -> Any:
    """A value that is there, which `MISSING` would hide."""
    if value is MISSING:
        raise Unexplained("it reads an Ellipsis")
    return value


def look_up(table: Any, key: Any) -> Any:
    """The value that a dict has under a key, or MISSING."""
    value = dict.get(table, key, MISSING)
    return present(value) if value is MISSING and key in table else value


def is_key(value: object) -> bool:
    """Whether looking up a value in a dict runs no code of users."""
    if isinstance(value, type):
        kind = type(value)
        return kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__
    return type(value) in (str, int) or (type(value) in _KEYS and plain.hashes(value))


def _name(value: object) -> str:
    qualified = getattr(value, "__qualname__", None)
    if isinstance(qualified, str):
        return qualified
    return f"{type(value).__qualname__} at {id(value):#x}"


def _key(key: object) -> str:
    return _name(key) if isinstance(key, Tensor) else repr(key)


def _comparison(what: str, value: object) -> str:
    if value is MISSING:
        return f"{what} is not there"
    if isinstance(value, (bool, int, float, str, types.NoneType)):
        return f"{what} == {value!r}"
    return f"{what} is {_name(value)}"


def argument_lines(values: list[Any], names: list[str]) -> list[str]:
    """The pattern of a call's arguments as readable Python.

    Args:
        values: positional arguments, then those by keyword.
        names: how to call each.
    """
    lines: list[str] = []
    for name, value in zip(names, values, strict=True):
        _describe(name, value, lines)
    return lines


def _describe(name: str, value: Any, lines: list[str]) -> None:
    if isinstance(value, Tensor):
        lines.append(
            f"{name} is a {type(value).__name__}({list(value.shape)}, strides "
            f"{list(value.stride())}, {value.dtype}, requires_grad={value.requires_grad})"
        )
    elif type(value) in (tuple, list, dict):
        lines.append(f"len({name}) == {len(value)}")
        for key in value if type(value) is dict else range(len(value)):
            _describe(f"{name}[{key!r}]", value[key], lines)
    else:
        lines.append(_comparison(name, value))


def gradient_lines(gradients: list[tuple[Any, Any, int, Any]]) -> list[str]:
    """Guards on `.grad` as readable Python.

    Args:
        gradients: as the core gives them: (tensor, what was there, whether it was read, ...) each.
    """
    return [_comparison(f"({_name(t)}).grad", before) for t, before, read, _ in gradients if read]


def cast_lines(cleared: bool, lookups: list[tuple[Tensor, Tensor | None]]) -> list[str]:
    """Guards on what autocast has cached as readable Python.

    Args:
        cleared: nothing is cached.
        lookups: a parameter each, with its cached cast or None.
    """
    lines = ["autocast has no cached casts"] * cleared
    for parameter, cast in [] if cleared else lookups:
        has = "no cached cast" if cast is None else f"a cached cast to {cast.dtype}"
        lines.append(f"{_name(parameter)} has {has}")
    return lines
