"""Lets the compiler's modules be imported before the native core exists.

Texts of kernels and block functions do not depend on the core, so that they are compiled beside it
(`tools/build_package.py`). This module puts a package without `__init__.py`'s content and a core
without functions in place of the real ones. It is for a process of a build, and for nothing else.
"""

from __future__ import annotations

import sys
import types
from typing import Any, NoReturn

from tools.build_native import ROOT


class _Absent(types.ModuleType):
    """A core whose functions can be imported, and fail when they are called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*args: object, **options: object) -> NoReturn:
            raise RuntimeError(
                f"[build] `_core.{name}` is called before there is a core\n"
                "hint: build the core first (python -m tools.build_package)"
            )

        return absent


def install() -> None:
    """Replaces `flambeau` and `flambeau._core`, unless the package is imported already."""
    if "flambeau" in sys.modules:
        return
    package = types.ModuleType("flambeau")
    package.__path__ = [str(ROOT / "flambeau")]
    core = _Absent("flambeau._core")
    vars(package)["_core"] = core
    sys.modules.update({"flambeau": package, "flambeau._core": core})
