"""What threads share and a fork can not leave locked: a lock, and attributes computed once.

A thread that forks copies the process with every lock as it is; one that another thread held would
stay held in the child for ever. So the fork itself takes the lock, and both sides give it back.
`functools.cached_property` has such a lock in Python 3.11, one for the property of all instances,
which no fork can take: `computed_once` has none.
"""

from __future__ import annotations

import os
from _thread import RLock  # `threading`, which hands it out, would cost every start 1 ms
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


def fork_safe_lock() -> RLock:
    """A re-entrant lock that is free in a forked child."""
    lock = RLock()
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )
    return lock


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
