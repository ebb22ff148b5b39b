"""Functions of the tests of tier 2: compiled functions whose calls are explained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch

CALLS = 5  # the first compiles, a later one is run dry


def compiled_by_calls(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The compiled function after calls like this one."""
    compiled = torch.compile(function)
    for _ in range(CALLS):
        compiled(*args, **kwargs)
    return compiled


def explained(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As `compiled_by_calls`, for a function whose calls run without Python by then."""
    compiled = compiled_by_calls(function, *args, **kwargs)
    assert compiled._explanations, compiled._reason
    assert compiled._hits > 0
    return compiled


def skips(compiled: Any, *args: Any, **kwargs: Any) -> tuple[Any, bool]:
    """The result of a call, and whether Python was skipped."""
    before = compiled._hits
    result = compiled(*args, **kwargs)
    return result, compiled._hits > before


def same(a: Any, b: Any) -> bool:
    """Whether two results have the same types, structure and bits."""
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b)
