"""Whether an object was loaded from a package."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from flambeau.package.mangling import is_mangled

__all__ = ["is_from_package"]


def is_from_package(obj: Any) -> bool:
    """Whether an object, or its class, was loaded from a package.

    Example:
        >>> from flambeau.package.analyze.is_from_package import is_from_package
        >>> is_from_package(torch.nn.Linear(1, 1))
        False
    """
    if isinstance(obj, ModuleType):
        return is_mangled(obj.__name__)
    return is_mangled(type(obj).__module__)
