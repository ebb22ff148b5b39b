"""`save_cache_artifacts` and `load_cache_artifacts`: programs for another process and directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.compiler import cache

PROGRAM = """
import json, sys
import flambeau as torch
from flambeau.compiler import cache

def f(x):
    return (x.sin() * x).cumsum(0) + x @ x

path, saves = sys.argv[1], sys.argv[2] == "save"
if not saves:
    info = torch.compiler.load_cache_artifacts(open(path, "rb").read())
    assert info is not None and not info.empty()
result = torch.compile(f)(torch.arange(16.0).view(4, 4))
if saves:
    content, info = torch.compiler.save_cache_artifacts()
    open(path, "wb").write(content)
counts = cache.statistics
print(json.dumps([counts.stored, counts.hits, info.kernels, info.plans, result.tolist()]))
"""


def run(path: Path, folder: Path, what: str) -> Any:
    """What a process of its own prints."""
    environment = {
        **os.environ,
        "FLAMBEAU_CACHE_DIR": str(folder),
        "FLAMBEAU_COMPILER": "wait",
        "FLAMBEAU_VERIFY": "0",
    }
    command = [sys.executable, "-c", PROGRAM, str(path), what]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_another_process_compiles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "artifacts"
    stored, _, kernels, plans, expected = run(path, tmp_path / "one", "save")
    assert stored > 0 and kernels and plans
    again, hits, names, others, result = run(path, tmp_path / "two", "load")
    assert (names, others, result) == (kernels, plans, expected)
    assert again == stored  # all from the file: what was loaded, and nothing else
    assert hits > 0


def test_nothing_is_lost_by_loading_twice() -> None:
    torch.compile(lambda x: x.sinh() + 3)(torch.ones(7))
    saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    content, info = saved
    before = cache.statistics.stored
    assert torch.compiler.load_cache_artifacts(content) == info
    assert cache.statistics.stored == before  # everything is there
    assert info.artifacts["inductor"] == info.inductor_artifacts == info.kernels
    assert info.artifacts["aot_autograd"] == info.aot_autograd_artifacts == info.plans


def test_damaged_files() -> None:
    torch.compile(lambda x: x.sinh() + 3)(torch.ones(7))
    content, _ = torch.compiler.save_cache_artifacts()
    assert torch.compiler.load_cache_artifacts(b"") is None
    for damaged in (b"x", content[:100], content.replace(b"flambeau cache 1", b"flambeau cache 2")):
        with pytest.raises(RuntimeError, match="cannot be read"):
            torch.compiler.load_cache_artifacts(damaged)
