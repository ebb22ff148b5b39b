"""Small functions of `torch.utils` itself: names of modules, paths of files, backtraces."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

__all__ = ["cmake_prefix_path", "get_cpp_backtrace", "set_module"]

cmake_prefix_path = str(Path(__file__).parents[1] / "share" / "cmake")


def set_module(obj: Any, mod: str) -> None:
    """Sets the module name that an object says it is from.

    Raises:
        TypeError: `mod` is no string.
    """
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def get_cpp_backtrace(frames_to_skip: int = 0, maximum_number_of_frames: int = 64) -> str:
    """The stack of calls as text: Python's, whose frames name the operators that were called."""
    frames = traceback.extract_stack()[: -1 - frames_to_skip or None]
    newest_first = reversed(frames[-maximum_number_of_frames:])
    return "".join(
        f"frame #{number}: {frame.name} ({frame.filename}:{frame.lineno})\n"
        for number, frame in enumerate(newest_first)
    )
