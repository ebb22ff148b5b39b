"""Recorded regions: functions whose op calls are recorded, and code that runs outside of a region.

A region runs as ordinary Python; only its op calls are recorded. Nothing here changes what a
program computes: a flush costs time, never correctness.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from flambeau import _core
from flambeau.capture import breaks
from flambeau.capture.breaks import END
from flambeau.ir.lock import importing
from flambeau.runtime import boundaries

Value: TypeAlias = Any  # a value of a program, of any type

Function: TypeAlias = Callable[..., Value]
argument_checks: list[Callable[[object, object], None]] = []  # called before a call is recorded


def record(function: Function, args: Value, kwargs: Value) -> Value:
    """Calls `function` inside a recorded region."""
    _core.record_begin()
    try:
        return function(*args, **kwargs)
    finally:
        _core.record_end(END)


def record_sealed(function: Function, args: Value, kwargs: Value) -> Value:
    """As `record`, for a `function` of the package that calls no code of users."""
    _core.record_begin_sealed()
    try:
        return function(*args, **kwargs)
    finally:
        _core.record_end(END)


def in_region(function: Function, tuned: bool) -> Function:
    """A function whose calls are recorded regions, whatever the stance is.

    Args:
        function: the function.
        tuned: whether kernels are measured.
    """
    begin = beginning(tuned)

    def call(*args: object) -> object:
        begin()
        try:
            return function(*args)
        finally:
            _core.record_end(END)

    return call


def _begin(tuned: bool, frozen: int) -> None:
    _core.record_begin()
    if tuned:
        _core.record_tune()
    if frozen:
        _core.record_freeze(frozen > 1)


def beginning(tuned: bool, frozen: int = 0) -> Function:
    """Returns what begins a region, by whether kernels are measured, and weights constants (1) or
    discarded, too (2)."""
    return functools.partial(_begin, tuned, frozen) if tuned or frozen else _core.record_begin


def unrecorded(function: Function) -> Value:
    """Calls `function` outside of the region, which goes on afterwards."""
    if boundaries.local.recorder is not None:
        return boundaries.outside("unrecorded", function)
    suspended = _core.record_suspend()
    try:
        return function()
    finally:
        _core.record_resume(suspended)


def as_one_stream(function: Function, args: Value, kwargs: Value) -> Value:
    """Calls a function whose recorded calls are a stream of their own.

    Equal calls find the program of the first one.

    Args:
        function: the function.
        args, kwargs: its arguments.
    """
    if not _core.is_recording():
        return function(*args, **kwargs)
    _core.record_flush(breaks.REGION)
    result = function(*args, **kwargs)
    _core.record_flush(breaks.REGION)
    return result


def is_compiling() -> bool:
    """Whether op calls of this thread are being recorded."""
    return bool(_core.is_recording()) or boundaries.local.recorder is not None


def _compile_joint(*stream_parts: Value) -> Value:
    with importing:
        from flambeau.capture import joint  # costs an import only where gradients are compiled

    return joint.compile_joint(*stream_parts)


_core.set_joint_compiler(_compile_joint)
