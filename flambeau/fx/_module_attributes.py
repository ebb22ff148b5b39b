"""Attributes of modules by dotted names."""

from __future__ import annotations

from typing import Any

import flambeau as torch


def _copy_attr(from_module: Any, to_module: torch.nn.Module, target: str) -> None:
    """Takes over an attribute; modules in between are made.

    Args:
        from_module: has it.
        to_module: gets it.
        target: its dotted name.
    """
    *prefix, field = target.split(".")
    for item in prefix:
        source, goal = getattr(from_module, item), getattr(to_module, item, None)
        if source is goal:
            return
        if goal is None:
            goal = torch.nn.Module()
            setattr(to_module, item, goal)
        from_module, to_module = source, goal
    value = getattr(from_module, field)
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        members = getattr(from_module, "_buffers", {})
        hidden = getattr(from_module, "_non_persistent_buffers_set", ())
        to_module.register_buffer(field, value, field not in hidden or field not in members)
    else:
        setattr(to_module, field, value)


def _assign_attr(from_obj: object, to_module: torch.nn.Module, target: str) -> None:
    """Sets an attribute; modules in between are made, plain tensors become buffers.

    Args:
        from_obj: the value.
        to_module: gets it.
        target: its dotted name.
    """
    *prefix, field = target.split(".")
    for item in prefix:
        child = getattr(to_module, item, None)
        if child is None:
            child = torch.nn.Module()
            setattr(to_module, item, child)
        to_module = child
    if isinstance(from_obj, torch.Tensor) and not isinstance(from_obj, torch.nn.Parameter):
        to_module.register_buffer(field, from_obj)
    else:
        setattr(to_module, field, from_obj)


def _get_attr(model: torch.nn.Module, attr_name: str) -> Any:
    """An attribute by its dotted name."""
    return _get_attr_via_attr_list(model, attr_name.split("."))


def _get_attr_via_attr_list(model: torch.nn.Module, attr_list: list[str]) -> Any:
    """An attribute by the parts of its name."""
    if not attr_list:
        return model
    value: Any = model
    for item in attr_list:
        value = getattr(value, item)
    return value


def _has_attr(model: torch.nn.Module, attr_name: str) -> bool:
    """Whether there is an attribute of a dotted name."""
    value: Any = model
    for item in attr_name.split("."):
        if not hasattr(value, item):
            return False
        value = getattr(value, item)
    return True


def _del_attr(model: torch.nn.Module, attr_name: str) -> None:
    """Deletes an attribute by its dotted name."""
    *prefix, field = attr_name.split(".")
    delattr(_get_attr_via_attr_list(model, prefix), field)
