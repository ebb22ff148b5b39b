"""`torch.nn.utils._named_member_accessor`: tensors of modules by their full names."""

from __future__ import annotations

from typing import Any

from flambeau import _core
from flambeau.nn.modules.module import Module
from flambeau.runtime import missing as _missing

__all__ = ["swap_tensor"]

Tensor = Any
_ABSENT: Any = object()


def _checked(module: Module, name: str) -> None:
    if not isinstance(module, Module):
        raise TypeError(
            f"[swap_tensor] {module} is not an instance of torch.nn.Module\nhint: a module"
        )
    if not name or "." in name:
        raise KeyError(f"[swap_tensor] {name!r} is no name of a member\nhint: one without dots")


def swap_tensor(module: Module, name: str, tensor: Tensor, allow_missing: bool = False) -> Tensor:
    """Puts a tensor in the place of a parameter, buffer or attribute of a module.

    Args:
        module: whose member it is.
        name: of the member, without dots.
        tensor: the new one.
        allow_missing: whether there may be none by that name.

    Returns:
        The tensor that was there.
    """
    _checked(module, name)
    for members in (module._parameters, module._buffers):
        if name in members:
            before, members[name] = members[name], tensor
            return before
    before = getattr(module, name, _ABSENT)
    if before is _ABSENT and not allow_missing:
        raise AttributeError(
            f"[swap_tensor] {type(module).__name__} has no tensor {name!r}\n"
            "hint: allow_missing=True"
        )
    if before is not _ABSENT and not isinstance(before, _core.Tensor):
        raise TypeError(
            f"[swap_tensor] {name!r} is a {type(before).__name__}, not a tensor\n"
            "hint: the name of a tensor"
        )
    setattr(module, name, tensor)
    return before


globals()["__getattr__"] = _missing.getter(__name__)
