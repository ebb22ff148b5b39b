"""Statements in C++: their time is not measured; the names say so."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from flambeau.ir.failure import failure
from flambeau.ir.lock import fork_safe_lock

__all__ = [
    "COMPAT_CALLGRIND_BINDINGS", "CONDA_PREFIX", "CXX_FLAGS", "EXTRA_INCLUDE_PATHS", "LOCK",
    "SOURCE_ROOT", "compile_callgrind_template", "compile_timeit_template", "get_compat_bindings",
]  # fmt: skip

LOCK = fork_safe_lock(level=0)
SOURCE_ROOT = os.path.dirname(os.path.abspath(__file__))
CXX_FLAGS = ["-g"]
EXTRA_INCLUDE_PATHS: list[str] = []
CONDA_PREFIX = os.getenv("CONDA_PREFIX")
COMPAT_CALLGRIND_BINDINGS = None


def _refuse(name: str) -> NoReturn:
    problem = "statements in C++ are not measured"
    raise failure(NotImplementedError, name, problem, "Timer(language='python')")


def get_compat_bindings() -> Any:
    """Raises NotImplementedError."""
    _refuse("get_compat_bindings")


def compile_timeit_template(*, stmt: str, setup: str, global_setup: str) -> Any:
    """Raises NotImplementedError."""
    _refuse("compile_timeit_template")


def compile_callgrind_template(*, stmt: str, setup: str, global_setup: str) -> str:
    """Raises NotImplementedError."""
    _refuse("compile_callgrind_template")
