"""Modules that a function uses when it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["trace_dependencies"]


def trace_dependencies(
    callable: Callable[..., Any],  # noqa: A002 - PyTorch's name
    inputs: Iterable[tuple[Any, ...]],
) -> list[str]:
    """Modules whose functions run when a function is called.

    Args:
        callable: the function.
        inputs: arguments of its calls.

    Example:
        >>> from flambeau.package.analyze import trace_dependencies
        >>> import json
        >>> "json.decoder" in trace_dependencies(json.loads, [("1",)])
        True
    """
    names: set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        name = frame.f_globals.get("__name__")
        if event == "call" and name:
            names.add(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for each in inputs:
            callable(*each)
    finally:
        sys.setprofile(before)
    return sorted(names - {__name__})
