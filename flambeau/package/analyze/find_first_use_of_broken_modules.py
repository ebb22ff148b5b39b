"""Where modules that could not be packaged are used first."""

from __future__ import annotations

from typing import Any

__all__ = ["find_first_use_of_broken_modules"]


def find_first_use_of_broken_modules(exc: Any) -> dict[str, list[str]]:
    """Modules that failed, and for each a path of modules that leads to it: here itself alone.

    Args:
        exc: the `PackagingError`, which stores modules without their users.
    """
    return {name: [name] for names in exc.broken.values() for name in names}
