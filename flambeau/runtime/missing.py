"""What happens when a program asks a module for a name that it has not.

A name of PyTorch 2.13 that Flambeau has not yet is told from a misspelt one: `torch_names.txt`
lists the public names of PyTorch's modules, and is read when an attribute is missing, never before.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import NoReturn

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
        name: what it was asked for.
    """
    text = f"module {module!r} has no attribute {name!r}"
    upstream = "torch" + module.removeprefix("flambeau")
    if name in public_names().get(upstream, ()):
        text += f"\nhint: {upstream}.{name} is a name of PyTorch 2.13 that is not in Flambeau yet"
    raise AttributeError(text, name=name)


def getter(module: str) -> Callable[[str], NoReturn]:
    """A module's `__getattr__`: raises for every name.

    Args:
        module: the module's `__name__`.
    """
    return functools.partial(refuse, module)
