"""Raises the AttributeError of a name that a module lacks.

The message distinguishes names of PyTorch 2.13 that Flambeau lacks from misspelt ones. The public
names are in `torch_names.txt`, which is read when an attribute is missing, never before.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from flambeau.ir.lock import late

_NAMES = os.path.join(os.path.dirname(__file__), "torch_names.txt")


@functools.cache
def public_names() -> dict[str, frozenset[str]]:
    """PyTorch's module names ("torch", "torch.nn" ...) to their public names."""
    names: dict[str, frozenset[str]] = {}
    module = ""
    with open(_NAMES, encoding="utf-8") as file:
        for line in file:
            if not line.startswith(" "):
                module = line.strip()
                names[module] = frozenset()
            else:
                names[module] |= frozenset(line.split())
    return names


def refuse(module: str, name: str) -> NoReturn:
    """Raises the AttributeError of a missing attribute.

    Args:
        module: Flambeau's name of the module, "flambeau.nn" say.
        name: of the missing attribute.
    """
    text = f"module {module!r} has no attribute {name!r}"
    upstream = "torch" + module.removeprefix("flambeau")
    if name in public_names().get(upstream, ()):
        text += f"\nhint: {upstream}.{name} is a name of PyTorch 2.13 that is not in Flambeau yet"
    raise AttributeError(text, name=name)


def getter(
    module: str, lazy: dict[str, str] | None = None, submodules: Iterable[str] = ()
) -> Callable[[str], Any]:
    """A module's `__getattr__`: loads some names when they are first read, raises for the others.

    Args:
        module: the module's `__name__`.
        lazy: names to the modules that define them.
        submodules: names of parts of the package that nothing has imported yet.
    """
    if lazy is None and not submodules:
        return functools.partial(refuse, module)
    sources, parts = dict(lazy or {}), frozenset(submodules)

    def attribute(name: str) -> Any:
        if name in sources:
            value = getattr(late(sources[name]), name)
        elif name in parts:
            value = late(f"{module}.{name}")
        else:
            refuse(module, name)
        vars(sys.modules[module])[name] = value
        return value

    return attribute
