"""Functions that count in tensors, which calls that skip their Python do themselves.

Such a function takes a sequence of tensors of one element, adds 1 to each and returns their values.
`capture.frame` knows them by this table, without knowing who counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Counts = TypeVar("Counts", bound=Callable[..., list[float]])
FUNCTIONS: set[Any] = set()


def counts(function: Counts) -> Counts:
    """Marks a function of the package."""
    FUNCTIONS.add(function)
    return function
