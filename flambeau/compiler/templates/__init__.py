"""Templates of compute-bound kernels: their interfaces, which scheduler and printer share."""

from __future__ import annotations

from typing import Any

from flambeau.compiler.templates import attention
from flambeau.compiler.templates.interface import Template

# By name. The lint compiles the samples of each, `tests/compiler/test_scratch_guards.py` runs them.
TEMPLATES: dict[str, Template[Any]] = {**attention.TEMPLATES}

__all__ = ["TEMPLATES"]
