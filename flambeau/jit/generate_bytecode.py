"""`torch.jit.generate_bytecode`: instructions of PyTorch's interpreter, of which there are none."""

from __future__ import annotations

from typing import Any

__all__ = ["format_bytecode", "generate_upgraders_bytecode"]


def format_bytecode(table: Any) -> Any:
    """Nested pairs of names and values as dicts.

    Example:
        >>> from flambeau.jit.generate_bytecode import format_bytecode
        >>> format_bytecode((("instructions", 1),))
        {'instructions': 1}
    """
    if isinstance(table, tuple) and table and isinstance(table[0], tuple):
        return {name: format_bytecode(value) for name, value in table}
    return table


def generate_upgraders_bytecode() -> list[Any]:
    """Instructions that renew older programs: none."""
    return []
