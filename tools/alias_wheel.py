"""`./go wheel --torch-alias`: a distribution "torch" whose only content is the alias.

For environments without PyTorch, in which every program's `import torch` is to give Flambeau. It
requires Flambeau and brings `flambeau/compat/path` to where packages are installed.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from wheel.wheelfile import WheelFile  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
_METADATA = """Metadata-Version: 2.1
Name: torch
Version: {version}
Summary: Flambeau under PyTorch's name
License: BSD-3-Clause
Requires-Python: >=3.11
Requires-Dist: flambeau=={own}
"""
_WHEEL = """Wheel-Version: 1.0
Generator: flambeau
Root-Is-Purelib: true
Tag: py3-none-any
"""


def build(folder: Path) -> Path:
    """Writes the wheel into a folder and returns its path."""
    own = str(runpy.run_path(str(ROOT / "flambeau" / "version.py"))["__version__"])
    version = f"2.13.0+flambeau{own}"
    source = ROOT / "flambeau" / "compat" / "path" / "torch" / "__init__.py"
    information = f"torch-{version}.dist-info"
    path = folder / f"torch-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with WheelFile(path, "w") as archive:
        archive.writestr("torch/__init__.py", source.read_bytes())
        archive.writestr(f"{information}/METADATA", _METADATA.format(version=version, own=own))
        archive.writestr(f"{information}/WHEEL", _WHEEL)
        archive.writestr(f"{information}/top_level.txt", "torch\n")
    return path


if __name__ == "__main__":
    print(build(Path(sys.argv[1])).name)
