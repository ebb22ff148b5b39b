"""`torch._dynamo.external_utils`: small functions that PyTorch's compiled code calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau.capture.recording import is_compiling

__all__ = ["is_compiling", "wrap_inline", "wrap_numpy"]


def wrap_inline(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls another one.

    Args:
        fn: the function.
    """

    @functools.wraps(fn)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return inner


from flambeau.utils.compiler_names import wrap_numpy  # noqa: E402
