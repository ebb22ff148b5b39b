"""The tutorials of examples/tutorials in PyTorch and here, with only the import line changed."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import pytest

TUTORIALS = Path(__file__).resolve().parents[2] / "examples" / "tutorials"
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.py"))
IMPORT = "import flambeau as torch\n"
TOLERANCE = {"unet_with_autocast": 5e-3}  # bfloat16


def run(name: str, framework: str, folder: Path) -> Any:
    """The result of a tutorial under a framework."""
    text = (TUTORIALS / f"{name}.py").read_text()
    assert text.count(IMPORT) == 1
    path = folder / f"{name}_under_{framework}.py"
    path.write_text(text.replace(IMPORT, f"import {framework} as torch\n"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # checkpoints of whole models name it
    try:
        spec.loader.exec_module(module)
        return module.main()
    finally:
        del sys.modules[path.stem]


def compare(ours: Any, theirs: Any, tolerance: float, place: str) -> None:
    """Raises where two results differ."""
    assert type(ours) is type(theirs), place
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), place
        for key in ours:
            compare(ours[key], theirs[key], tolerance, f"{place}.{key}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), place
        for position, pair in enumerate(zip(ours, theirs, strict=True)):
            compare(*pair, tolerance, f"{place}[{position}]")
    elif isinstance(ours, float):
        assert math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=tolerance / 10), place
    else:
        assert ours == theirs, place


def test_there_are_nine() -> None:
    assert len(NAMES) == 9


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_tutorial(name: str, tmp_path: Path) -> None:
    ours, theirs = (run(name, framework, tmp_path) for framework in ("flambeau", "torch"))
    compare(ours, theirs, TOLERANCE.get(name, 3e-4), name)
