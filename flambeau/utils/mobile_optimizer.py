"""`torch.utils.mobile_optimizer`: programs for mobile devices, which are not built here."""

from __future__ import annotations

from enum import Enum
from typing import Any

__all__ = ["LintCode", "generate_mobile_module_lints", "optimize_for_mobile"]


class LintCode(Enum):
    """The kinds of findings in a program for mobile devices."""

    BUNDLED_INPUT = 1
    REQUIRES_GRAD = 2
    DROPOUT = 3
    BATCHNORM = 4


def _refuse(op: str) -> NotImplementedError:
    return NotImplementedError(
        f"[{op}] programs for mobile devices are not supported\n"
        "hint: torch.compile the module, or save its state_dict"
    )


def optimize_for_mobile(
    script_module: Any,
    optimization_blocklist: Any = None,
    preserved_methods: Any = None,
    backend: str = "CPU",
) -> Any:
    """Rewrites a scripted module for mobile devices; raises NotImplementedError."""
    raise _refuse("optimize_for_mobile")


def generate_mobile_module_lints(script_module: Any) -> Any:
    """Lints a scripted module for mobile devices; raises NotImplementedError."""
    raise _refuse("generate_mobile_module_lints")
