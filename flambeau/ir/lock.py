"""What threads share and a fork can not leave locked: locks, late imports, cached attributes.

A thread that forks copies the process with every lock as it is; one that another thread held would
stay held in the child for ever. So the fork itself takes all locks made here, and both sides give
them back. No other module makes a lock (a test holds that); the core's are in `native/fork.h`.

A module that is imported when a function first needs it is imported under one lock, `importing`.
CPython's own locks are one per module: threads that meet in a cycle of imports, or of a package and
its parts, are shown modules of which only the first lines have run. A child forked during an
import would find such modules, and never be able to complete them.

`functools.cached_property` has a lock in Python 3.11, one for the property of all instances, which
no fork can take: `computed_once` has none.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock  # `threading`, which hands it out, would cost every start 1 ms
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

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
    """A module that is loaded completely, or None: nobody has used it yet."""
    module = sys.modules.get(name)
    if module is None or getattr(module.__spec__, "_initializing", False):
        return None
    return module


class computed_once(Generic[Value]):  # noqa: N801 - a decorator
    """A property whose value, once computed, lies in the instance under the property's name.

    Two threads may compute it at the same time; both then see the value that was kept first.
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
        kept: Value = instance.__dict__.setdefault(self.name, self.function(instance))
        return kept
