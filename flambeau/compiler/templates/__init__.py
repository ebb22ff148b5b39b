"""Templates of compute-bound kernels: their interfaces, which scheduler and printer share.

A module of this package that declares `TEMPLATES` is found by being there.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flambeau.compiler.templates.interface import Template
from flambeau.ir.modules import module_names

# By name. The lint compiles the samples of each, `tests/compiler/test_scratch_guards.py` runs them.
TEMPLATES: dict[str, Template[Any]] = {}
for _name in module_names(__path__):
    TEMPLATES |= getattr(import_module(f"{__name__}.{_name}"), "TEMPLATES", {})

__all__ = ["TEMPLATES"]
