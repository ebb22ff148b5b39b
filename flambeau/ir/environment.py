"""The shape environment of the program being traced: who decides what algebra cannot.

Type rules ask here whether two sizes are equal. Static and provable answers come from the size
algebra; the rest is put to the environment that the tracer pushed, which answers from the call's
actual sizes and remembers the question as a guard. Without an environment an undecidable question
is an error. This module must not know who pushes environments, nor what a primitive is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from flambeau.ir import size_program
from flambeau.ir.size import Size, estimate, known_equal, known_less


class Environment(Protocol):
    """The interface of a tracer; `size_program.ShapeEnvironment` implements it."""

    def truth(self, condition: Any) -> bool:
        """Decide a condition for this program, recording it as a guard."""

    def hint(self, size: Size) -> int:
        """Return a likely value, without a guard."""


_stack: ContextVar[tuple[tuple[Any, Iterator[int]], ...]] = ContextVar("environments", default=())
# The user's "file:line" that new nodes are stamped with.
source_line: ContextVar[str | None] = ContextVar("source_line", default=None)
_orphans = itertools.count(1 << 40)  # draws outside of any program


def push_environment(environment: Environment | None) -> None:
    """Make `environment` the current one; random draws are numbered from 0 again."""
    _stack.set((*_stack.get(), (environment, itertools.count())))


def pop_environment() -> None:
    """Undo the last `push_environment`."""
    _stack.set(_stack.get()[:-1])


@contextmanager
def environment(value: Environment | None) -> Iterator[None]:
    """Push an environment for the duration of a `with` block."""
    token = _stack.set((*_stack.get(), (value, itertools.count())))
    try:
        yield
    finally:
        _stack.reset(token)


def current_environment() -> Any:
    """Return the environment pushed last, or None."""
    stack = _stack.get()
    return stack[-1][0] if stack else None


def next_sequence() -> int:
    """Return the number of the next random draw of the program being traced."""
    stack = _stack.get()
    return next(stack[-1][1] if stack else _orphans)


def same_size(a: Size, b: Size) -> bool:
    """Decide `a == b`, with a guard where it depends on the call.

    Raises:
        NotImplementedError: if it depends on the call and no environment is there to decide.
    """
    if a is b:
        return True
    answer = known_equal(a, b)
    if answer is None:
        answer = _ask("eq", a, b)
    return answer


def less(a: Size, b: Size) -> bool:
    """Decide `a < b`, with a guard where it depends on the call."""
    answer = known_less(a, b)
    return _ask("lt", a, b) if answer is None else answer


def same_shape(a: tuple[Size, ...], b: tuple[Size, ...]) -> bool:
    """Decide whether two shapes are equal, with guards where that depends on the call."""
    if a == b:
        return True
    return len(a) == len(b) and all(same_size(x, y) for x, y in zip(a, b))


def _ask(relation: str, a: Size, b: Size) -> bool:
    current = current_environment()
    if current is None:
        raise NotImplementedError(
            f"[size] {relation}({a}, {b}) depends on the sizes of the call\n"
            "hint: trace under a shape environment (flambeau.ir.environment.push_environment)"
        )
    return bool(current.truth(getattr(size_program, relation)(a, b)))


def hint(size: Size, default: int = 64) -> int:
    """Return a likely value of a size for heuristics; never adds a guard."""
    current = current_environment()
    return estimate(size, {} if current is None else current.hints, default)
