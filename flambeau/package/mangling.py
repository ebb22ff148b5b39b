"""Names of modules that come from an archive: `<torch_package_0>.module`."""

from __future__ import annotations

import itertools
import re
import types
from typing import Any

__all__ = ["is_from_package"]

_numbers = itertools.count()
_PREFIX = re.compile(r"^<torch_package_\d+>(\.|$)")


def new_prefix() -> str:
    """A prefix that no other importer of this process has."""
    return f"<torch_package_{next(_numbers)}>"


def is_mangled(name: str) -> bool:
    """Whether a module name has such a prefix."""
    return bool(_PREFIX.match(name))


def demangle(name: str) -> str:
    """A module name without its prefix."""
    return _PREFIX.sub("", name)


def is_from_package(obj: Any) -> bool:
    """Whether a module, class, function or object comes from an archive."""
    if isinstance(obj, types.ModuleType):
        return is_mangled(obj.__name__)
    return is_mangled(getattr(obj, "__module__", None) or type(obj).__module__)
