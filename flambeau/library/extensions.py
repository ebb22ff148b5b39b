"""`torch.ops.load_library`: native libraries of operators, and those that stand in for some.

A library that was compiled for PyTorch needs PyTorch's own libraries and cannot be loaded. The
operators of a few packages are therefore defined here, in Python, under the names of the compiled
ones: loading the package's file defines them.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from pathlib import Path

from flambeau.ir.lock import importing

__all__ = ["load_library", "loaded_libraries"]

loaded_libraries: set[str] = set()
"""Paths that `load_library` has loaded."""

# (directory, beginning of the file's name): the module that defines the same operators.
_SUBSTITUTES = {
    ("torchvision", "_C."): "torchvision_operators",
    ("torchaudio", "_torchaudio."): "torchaudio_operators",
    ("torchaudio", "libtorchaudio."): "torchaudio_operators",
}


def load_library(path: str | os.PathLike[str]) -> None:
    """Loads a library that registers operators.

    Args:
        path: the file; those of torchvision and torchaudio are replaced by Python functions.

    Raises:
        OSError: the library cannot be loaded, because it is missing or was built for PyTorch.

    """
    path = os.path.realpath(path)
    substitute = _substitute(Path(path))
    if substitute is not None:
        with importing:
            importlib.import_module(f"flambeau.library.foreign.{substitute}")
    else:
        try:
            ctypes.CDLL(path)
        except OSError as error:
            raise OSError(f"Could not load this library: {path}\nhint: {error}") from error
    loaded_libraries.add(path)


def _substitute(path: Path) -> str | None:
    """The module that defines the operators of a package's library, if there is one."""
    for (package, beginning), module in _SUBSTITUTES.items():
        if package in path.parts[-3:-1] and path.name.startswith(beginning):
            return module
    return None
