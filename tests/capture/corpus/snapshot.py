"""What of a call can be observed, as lines that are compared.

A walk over the result, the arguments and all that a program's functions, classes and objects hold.
Objects are numbered in the order of their first visit, and retain their numbers between calls, so
that equal lines mean equal identities.
"""

from __future__ import annotations

import operator
import re
import types
from collections import deque
from collections.abc import Iterable
from typing import Any

import flambeau as torch
from tests.capture.corpus.cases import MODULE

_PLAIN: tuple[Any, ...] = (int, float, complex, bool, str, bytes, type(None), type(...), range)
_EMPTY = object()
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_MAX_DEPTH = 40
_SKIPPED = frozenset("__dict__ __weakref__ __module__ __doc__ __qualname__ __annotations__".split())


class Snapshots:
    """Describes the calls of one run."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._held: list[Any] = []  # so that no address is used again
        self._visited: set[int] = set()
        self._lines: list[str] = []

    def take(self, *values: Any) -> list[str]:
        """Lines for some values and all that they hold."""
        self._visited.clear()
        self._lines = []
        for value in values:
            self._describe(value, 0)
        return self._lines

    def _say(self, depth: int, text: str) -> None:
        self._lines.append(" " * depth + _ADDRESS.sub("0x", text))

    def _describe(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind in _PLAIN or depth > _MAX_DEPTH:
            self._say(depth, f"{kind.__name__} {value!r}" if kind in _PLAIN else "deep")
            return
        if kind in (torch.Size, torch.dtype, torch.device) or (kind is tuple and not value):
            self._say(depth, repr(value))
            return
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._numbers)
            self._held.append(value)
        title = f"#{number} {kind.__module__}.{kind.__qualname__}"
        if id(value) in self._visited:
            self._say(depth, title)
            return
        self._visited.add(id(value))
        self._expand(value, kind, title, depth)

    def _each(self, title: str, depth: int, values: Iterable[Any]) -> None:
        self._say(depth, title)
        for value in values:
            self._describe(value, depth + 1)

    def _expand(self, value: Any, kind: type, title: str, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            self._tensor(value, title, depth)
        elif isinstance(value, types.ModuleType):
            self._say(depth, f"module {value.__name__}")
        elif isinstance(value, type):
            self._class(value, title, depth)
        elif isinstance(value, types.FunctionType):
            self._function(value, title, depth)
        elif isinstance(value, types.MethodType):
            self._each(title, depth, (value.__func__, value.__self__))
        elif isinstance(value, BaseException):
            self._error(value, title, depth)
        elif isinstance(value, torch._core.CompiledFunction):
            self._each("compiled", depth, (value._function,))
        else:
            self._object(value, kind, title, depth)

    def _object(self, value: Any, kind: type, title: str, depth: int) -> None:
        if isinstance(value, dict):
            self._each(title, depth, [part for item in dict.items(value) for part in item])
        elif isinstance(value, (list, tuple, deque)):
            self._each(title, depth, list(kind.__mro__[-2].__iter__(value)))
        elif isinstance(value, (set, frozenset)):
            self._say(depth, f"{title} {sorted(map(repr, value))}")
        elif hasattr(kind, "__next__"):
            self._say(depth, f"{title} {operator.length_hint(value, -1)}")
        elif not hasattr(value, "__dict__") and kind.__module__ != MODULE:
            self._say(depth, f"{title} {value!r}")
        else:
            self._say(depth, title)
        self._attributes(value, kind, depth)

    def _attributes(self, value: Any, kind: type, depth: int) -> None:
        try:
            table = object.__getattribute__(value, "__dict__")
        except AttributeError:
            table = {}
        for name, item in sorted(table.items(), key=str) if table else ():
            self._say(depth, f".{name}")
            self._describe(item, depth + 1)
        for base in kind.__mro__:
            for name, slot in base.__dict__.items():
                if type(slot) is types.MemberDescriptorType and base.__module__ == MODULE:
                    self._say(depth, f".{name}")
                    self._describe(slot.__get__(value) if _is_set(slot, value) else "unset", depth)

    def _tensor(self, value: Any, title: str, depth: int) -> None:
        base = value._base if id(value._base) in self._numbers else None
        facts = (value.dtype, value.shape, value.stride(), value.storage_offset())
        self._say(depth, f"{title} {facts} {value.requires_grad} {value._version}")
        self._say(depth, repr(value.detach().tolist()))
        for part in (base, value.grad if value.is_leaf else None, value.__dict__ or None):
            if part is not None:
                self._describe(part, depth + 1)

    def _class(self, value: type, title: str, depth: int) -> None:
        self._say(depth, f"class {value.__qualname__}")
        if value.__module__ != MODULE:
            return
        for name, item in list(value.__dict__.items()):
            if name not in _SKIPPED and not name.startswith(("__", "_abc_")):
                self._say(depth, f".{name}")
                self._describe(item, depth + 1)

    def _function(self, value: types.FunctionType, title: str, depth: int) -> None:
        self._say(depth, f"function {value.__qualname__}")
        if value.__module__ != MODULE:
            return
        parts: list[Any] = [value.__dict__ or None, value.__defaults__, value.__kwdefaults__]
        for cell in value.__closure__ or ():
            parts.append(cell.cell_contents if _filled(cell) else "empty")
        for name in sorted(_names(value.__code__)):
            if name in value.__globals__:
                self._say(depth, f"global {name}")
                self._describe(value.__globals__[name], depth + 1)
        for part in parts:
            if part is not None:
                self._describe(part, depth + 1)

    def _error(self, value: BaseException, title: str, depth: int) -> None:
        self._say(depth, f"{title} {value}")
        self._each(f"suppresses {value.__suppress_context__}", depth, value.args)
        for name in ("__cause__", "__context__"):
            self._say(depth, name)
            self._describe(getattr(value, name), depth + 1)
        trace = value.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals.get("__name__") == MODULE:
                self._say(depth, f"in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}")
            trace = trace.tb_next
        self._attributes(value, type(value), depth)


def _names(code: types.CodeType) -> set[str]:
    """The global names that a function and those inside of it use."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not _EMPTY
    except ValueError:
        return False


def _is_set(slot: Any, value: Any) -> bool:
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True
