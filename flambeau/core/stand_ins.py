"""Calls with arguments that stand in for tensors: traced values that bring `__torch_function__`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core


def stands_in(args: Sequence[Any]) -> bool:
    """Whether an argument is no tensor but brings `__torch_function__`.

    Args:
        args: positional arguments of a call.
    """
    return any(
        hasattr(type(value), "__torch_function__") and not isinstance(value, _core.Tensor)
        for value in args
    )


def hand_over(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result that the stand-ins give for a call.

    Args:
        function: the function that was called.
        args: its positional arguments.
        kwargs: its arguments by name.
    """
    return _core.handle_torch_function(function, args, tuple(args), kwargs)
