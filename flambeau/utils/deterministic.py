"""`torch.utils.deterministic`: whether uninitialised memory is filled."""

from __future__ import annotations

import sys
import types

from flambeau.runtime import switches


class _Deterministic(types.ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether `torch.empty` fills memory under `use_deterministic_algorithms(True)`."""
        return switches.fills_uninitialized_memory()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        switches.fill_uninitialized_memory(mode)


sys.modules[__name__].__class__ = _Deterministic
