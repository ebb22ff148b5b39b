"""Implementations of flash attention that other packages register under a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.nn.messages import problem

__all__ = [
    "activate_flash_attention_impl", "current_flash_attention_impl", "list_flash_attention_impls",
    "register_flash_attention_impl", "restore_flash_attention_impl",
]  # fmt: skip
_registered: dict[str, Callable[..., Any]] = {}
_state: dict[str, Any] = {"name": None, "handle": None}


def register_flash_attention_impl(impl: str, *, register_fn: Callable[..., Any]) -> None:
    """Stores what activates an implementation.

    Args:
        impl: its name.
        register_fn: called by `activate_flash_attention_impl`; returns None or an object whose
            `remove()` undoes it.
    """
    _registered[impl] = register_fn


def list_flash_attention_impls() -> list[str]:
    """Names of implementations.

    Example:
        >>> torch.nn.attention.list_flash_attention_impls()
        []
    """
    return sorted(_registered)


def activate_flash_attention_impl(impl: str) -> None:
    """Activates an implementation.

    Raises:
        ValueError: there is none of this name: those of PyTorch run on GPUs.
    """
    if impl not in _registered:
        text = f"Unknown flash attention impl {impl!r}. Available implementations: "
        text += str(list_flash_attention_impls())
        raise ValueError(problem("activate_flash_attention_impl", text, "the built-in one"))
    restore_flash_attention_impl(False)
    _state.update(name=impl, handle=_registered[impl]())


def current_flash_attention_impl() -> str | None:
    """The name of the active implementation; None for the built-in one."""
    name: str | None = _state["name"]
    return name


def restore_flash_attention_impl(_raise_warn: bool = True) -> None:
    """Activates the built-in implementation."""
    handle = _state["handle"]
    _state.update(name=None, handle=None)
    if handle is not None:
        handle.remove()
