"""Shared state that a fork must not leave locked: locks, late imports, attributes, tables.

A thread that forks copies the process with every lock as it is; one that another thread held would
stay held in the child for ever. So the fork itself takes all locks made here, and both sides give
them back. No other module makes a lock (a test holds that); the core's are in
`native/runtime/fork.h`.

A module that is imported when a function first needs it is imported under one lock, `importing`.
CPython's own locks are one per module: threads that meet in a cycle of imports, or of a package and
its parts, are shown modules of which only the first lines have run. A child forked during an
import would find such modules, and never be able to complete them.

`functools.cached_property` has a lock in Python 3.11, one for the property of all instances, which
no fork can take: `computed_once` has none.

A `Table` makes equal structure one object. Looking something up costs what it costs in a dict. When
the tables have taken in enough since they were last swept, memos are emptied, and entries go whose
value nothing but its table holds; values are freed by counting references, so none may be part of a
cycle.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock  # `threading`, which hands it out, would cost every start 1 ms
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, overload
from weakref import ref

Identity = TypeVar("Identity", bound=Hashable)
Value = TypeVar("Value")

_PATIENCE = 0.1  # seconds that a fork waits for one lock while it holds others
_locks: list[tuple[int, RLock]] = []  # by level
_taken: list[RLock] = []


def fork_safe_lock(level: int) -> RLock:
    """A re-entrant lock that is free in a forked child.

    Args:
        level: threads that hold several locks take those of lower levels first.
    """
    if not _locks:
        os.register_at_fork(
            before=_take_all, after_in_parent=_release_all, after_in_child=_release_all
        )
    lock = RLock()
    _locks.append((level, lock))
    _locks.sort(key=lambda entry: entry[0])
    return lock


def _take_all() -> None:
    """Takes all locks; starts again where a thread has taken some in another order."""
    taken: list[RLock] = []
    while len(taken) < len(_locks):
        _, lock = _locks[len(taken)]
        if lock.acquire(timeout=_PATIENCE if taken else -1):
            taken.append(lock)
        else:
            while taken:
                taken.pop().release()
    _taken.extend(taken)


def _release_all() -> None:
    taken = list(_taken)
    _taken.clear()  # before another thread can take them
    for lock in taken:
        lock.release()


# Held by every import of the package that happens late: `with importing: from ... import ...`.
# No module takes it while it is being loaded: whoever imports that module without it would wait
# here for a thread that waits for the module.
importing = fork_safe_lock(level=2)


def late(name: str) -> Any:
    """A module of the package by its full name, imported when it is first needed."""
    if name in sys.modules:
        __import__(name)  # waits for another thread that is loading it
    else:
        with importing:
            __import__(name)
    return sys.modules[name]


def loaded(name: str) -> Any:
    """A module that is loaded completely, or None: it is unused so far."""
    module = sys.modules.get(name)
    if module is None or getattr(module.__spec__, "_initializing", False):
        return None
    return module


class computed_once(Generic[Value]):  # noqa: N801 - a decorator
    """A property whose value, once computed, is stored in the instance under the property's name.

    Two threads may compute it at the same time; both then return the value that was stored first.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> computed_once[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> Value: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> Value | computed_once[Value]:
        if instance is None:
            return self
        value: Value = instance.__dict__.setdefault(self.name, self.function(instance))
        return value


# -------------------------------------------------------------------------------------------------
# Tables of equal structures

SWEEP_AFTER = 1 << 14  # new entries; also as many as the last sweep left
_ROUNDS = 3  # of a sweep: a value may own entries of a table that was swept before its own
_making = fork_safe_lock(level=4)  # held by who enters a value, and by the sweep
_tables: list[Table[Any, Any]] = []
_memos: list[dict[Any, Any]] = []
_entered, _left = 0, 0  # since the last sweep, by the last sweep


class Table(dict[Identity, Value]):
    """Values by their structure. `get` needs no lock; `enter` after it."""

    def __init__(self) -> None:
        super().__init__()
        _tables.append(self)

    def enter(self, identity: Identity, value: Value) -> Value:
        """The one value of this structure: this one, unless another thread entered one."""
        global _entered
        with _making:
            entry = self.setdefault(identity, value)
            _entered += 1
            if _entered >= max(SWEEP_AFTER, _left):
                sweep()
        return entry


def memo() -> dict[Any, Any]:
    """A dict of results of pure functions, which may be emptied at any time."""
    table: dict[Any, Any] = {}
    _memos.append(table)
    return table


def sweep() -> None:
    """Empties memos and drops what only tables hold."""
    global _entered, _left
    with _making:
        for cache in _memos:
            cache.clear()
        _left = sum(map(len, _tables))
        for _ in range(_ROUNDS):
            for table in _tables:
                _sweep_table(table)
            before, _left = _left, sum(map(len, _tables))
            if _left == before:
                break
        _entered = 0


def _sweep_table(table: Table[Any, Any]) -> None:
    """Newest first: an entry that goes takes its parts, which are older, along.

    Who misses an entry meanwhile waits in `enter`, and then finds it.
    """
    used: list[tuple[Any, Any]] = []
    while table:
        identity, value = table.popitem()
        weak = ref(value)
        del value
        value = weak()
        if value is not None:
            used.append((identity, value))
        del identity, value
    used.reverse()
    table.update(used)
