"""One form of error messages: the operation, the problem with its values, and a hint."""

from __future__ import annotations

from typing import TypeVar

_Error = TypeVar("_Error", bound=Exception)


def failure(kind: type[_Error], name: str, problem: str, hint: str) -> _Error:
    """An exception to raise, with the message "[name] problem" and a line "hint: ..." below."""
    return kind(f"[{name}] {problem}\nhint: {hint}")
