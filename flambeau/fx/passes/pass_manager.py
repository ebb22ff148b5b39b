"""`PassManager`: the older one, whose passes return the module."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

from flambeau.fx.passes.infra.pass_manager import _validate_pass_schedule_constraint

__all__ = [
    "PassManager",
    "inplace_wrapper",
    "log_hook",
    "loop_pass",
    "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
]

logger = logging.getLogger(__name__)

Pass = Callable[..., Any]


def inplace_wrapper(fn: Pass) -> Pass:
    """A pass that returns its argument, of one that changes it and returns something else.

    Args:
        fn: the pass.
    """

    @wraps(fn)
    def wrapped(gm: Any, *args: Any, **kwargs: Any) -> Any:
        fn(gm, *args, **kwargs)
        return gm

    return wrapped


def log_hook(fn: Pass, level: int = logging.INFO) -> Pass:
    """A pass whose result is logged.

    Args:
        fn: the pass.
        level: the level of the message.
    """

    @wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value = fn(*args, **kwargs)
        logger.log(level, "Ran pass %s\t Return value: %s", fn, value)
        return value

    return wrapped


def loop_pass(
    base_pass: Pass, n_iter: int | None = None, predicate: Callable[[Any], bool] | None = None
) -> Pass:
    """A pass that is run several times.

    Args:
        base_pass: the pass.
        n_iter: how often.
        predicate: instead: run while this is true of the module.
    """
    if (n_iter is None) == (predicate is None):
        raise AssertionError("Exactly one of `n_iter`or `predicate` must be specified.")

    @wraps(base_pass)
    def wrapped(source: Any) -> Any:
        output = source
        if n_iter is not None:
            if n_iter <= 0:
                raise AssertionError(f"n_iter must be positive, got {n_iter}")
            for _ in range(n_iter):
                output = base_pass(output)
        else:
            while predicate(output):  # type: ignore[misc]
                output = base_pass(output)
        return output

    return wrapped


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Callable[[Pass, Pass], bool]:
    """A constraint: one pass runs before another.

    Args:
        this: the earlier one.
        that: the later one.
    """

    def depends_on(a: Pass, b: Pass) -> bool:
        return a != that or b != this

    return depends_on


def these_before_those_pass_constraint(these: Pass, those: Pass) -> Callable[[Pass, Pass], bool]:
    """A constraint between wrapped passes: every wrapper of one runs before those of another.

    Args:
        these: the earlier function.
        those: the later function.
    """

    def depends_on(a: Pass, b: Pass) -> bool:
        return unwrap(a) != those or unwrap(b) != these

    return depends_on


class PassManager:
    """Runs passes one after the other.

    Args:
        passes: functions of a module that return a module.
        constraints: functions of two passes; False: the first must not come before the second.
    """

    passes: list[Pass]
    constraints: list[Callable[..., Any]]
    _validated: bool = False

    def __init__(
        self, passes: list[Pass] | None = None, constraints: list[Callable[..., Any]] | None = None
    ) -> None:
        self.passes = passes or []
        self.constraints = constraints or []

    @classmethod
    def build_from_passlist(cls, passes: list[Pass]) -> PassManager:
        """A manager without constraints."""
        return cls(passes)

    def add_pass(self, _pass: Pass) -> None:
        """Adds a pass at the end."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Callable[..., Any]) -> None:
        """Adds a constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def remove_pass(self, _passes: list[str] | None) -> None:
        """Removes passes by name."""
        if _passes is None:
            return
        self.passes = [each for each in self.passes if each.__name__ not in _passes]
        self._validated = False

    def replace_pass(self, _target: Pass, _replacement: Pass) -> None:
        """Puts a pass in the place of another, by name."""
        self.passes = [
            _replacement if each.__name__ == _target.__name__ else each for each in self.passes
        ]
        self._validated = False

    def validate(self) -> None:
        """Raises RuntimeError if the order of the passes violates a constraint."""
        if self._validated:
            return
        for constraint in self.constraints:
            _validate_pass_schedule_constraint(constraint, self.passes)
        self._validated = True

    def __call__(self, source: Any) -> Any:
        """Runs the passes.

        Args:
            source: the module.
        """
        self.validate()
        out = source
        for each in self.passes:
            out = each(out)
        return out
