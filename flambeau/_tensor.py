"""`torch._tensor`: where PyTorch has `Tensor`, and what rebuilds subclasses from files."""

from __future__ import annotations

from typing import Any

from flambeau import _core
from flambeau.runtime import missing as _missing

__all__ = ["Tensor"]

Tensor = _core.Tensor


def _rebuild_from_type(func: Any, type: Any, args: Any, dict: Any) -> Any:  # noqa: A002
    """A tensor of a class and with attributes, as older files name it.

    Args:
        func: builds a plain tensor.
        type: the class.
        args: arguments of *func*.
        dict: attributes.
    """
    tensor = func(*args)
    if type is not Tensor:
        tensor = tensor.as_subclass(type)
        tensor.__dict__.update(dict)
    return tensor


__getattr__ = _missing.getter(__name__, {"_rebuild_from_type_v2": "flambeau.serialization.rebuild"})
