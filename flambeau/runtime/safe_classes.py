"""Classes and functions that a file may name: `torch.serialization.add_safe_globals` and its kind.

A file names the class of a tensor, as text. Nothing is imported for it: a class is looked up among
those that were declared safe, or, where the caller trusts a file in Flambeau's own form, among
those of modules that the program has imported itself. Pickles (`serialization/unpickler.py`) may
also call what was declared safe.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals"]
_safe: dict[str, Any] = {}  # by the name that files give it


def name_of(cls: Any) -> str:
    """Returns the name of a class or function in files."""
    return f"{cls.__module__}:{getattr(cls, '__qualname__', None) or cls.__name__}"


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Declares classes and functions that `load` may use under `weights_only`.

    Args:
        safe_globals: classes and functions, or pairs of one and its dotted name.

    Example:
        >>> class Weight(torch.Tensor):
        ...     pass
        >>> torch.serialization.add_safe_globals([Weight])
        >>> torch.serialization.get_safe_globals() == [Weight]
        True
        >>> torch.serialization.clear_safe_globals()
    """
    for entry in safe_globals:
        if isinstance(entry, tuple):
            safe_class, dotted = entry
            module, _, name = dotted.rpartition(".")
            _safe[f"{module}:{name}"] = safe_class
        else:
            _safe[name_of(entry)] = entry


def get_safe_globals() -> list[Any]:
    """The classes that were declared safe."""
    return list(_safe.values())


def clear_safe_globals() -> None:
    """Forgets what was declared safe."""
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """Declares classes safe for the time of a `with` block."""
    before = dict(_safe)
    try:
        add_safe_globals(safe_globals)
        yield
    finally:
        _safe.clear()
        _safe.update(before)


def lookup(dotted: str) -> Any:
    """Returns the object declared safe under a dotted name of a file, or None."""
    for name, value in _safe.items():
        own = name.replace(":", ".", 1)
        ours = own.startswith("flambeau.")
        if dotted in (own, "torch." + own.removeprefix("flambeau.") if ours else own):
            return value
    return None


def find(name: str, trusted: bool, base: type) -> Any:
    """The class that a file names.

    Args:
        trusted: whether any class of an imported module will do.
        base: what it must be a subclass of.

    Raises:
        UnpicklingError: it is not declared safe, not there, or no such class.
    """
    attribute = _safe.get(name)
    module, _, path = name.partition(":")
    if attribute is None and not trusted:
        raise pickle.UnpicklingError(
            f"[load] Weights only load failed: {module}.{path} was not an allowed global by "
            f"default\nhint: torch.serialization.add_safe_globals([{path}]), or weights_only=False"
        )
    if attribute is None:
        attribute = sys.modules.get(module)
        for part in path.split("."):
            attribute = getattr(attribute, part, None)
    if not (isinstance(attribute, type) and issubclass(attribute, base)):
        raise pickle.UnpicklingError(
            f"[load] {module}.{path} is no tensor class of an imported module\n"
            f"hint: import {module} before loading"
        )
    return attribute
