"""Marks of functions whose behaviour stays as it is."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

_Marked = TypeVar("_Marked")

_BACK_COMPAT_OBJECTS: dict[Any, None] = {}
_MARKED_WITH_COMPATIBILITY: dict[Any, None] = {}

_NOTE = (
    ".. warning::\n"
    "    This API is experimental and is *NOT* backward-compatible.\n"
)  # fmt: skip


def compatibility(is_backward_compatible: bool) -> Callable[[_Marked], _Marked]:
    """A decorator that states whether a function's behaviour is stable between versions.

    Args:
        is_backward_compatible: False adds a warning to the docstring.
    """

    def mark(marked: _Marked) -> _Marked:
        _MARKED_WITH_COMPATIBILITY.setdefault(marked)
        if is_backward_compatible:
            _BACK_COMPAT_OBJECTS.setdefault(marked)
        else:
            text = textwrap.dedent(getattr(marked, "__doc__", None) or "")
            marked.__doc__ = f"{text}\n{_NOTE}"
        return marked

    return mark
