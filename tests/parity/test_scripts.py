"""Scripts that print what they compute, run under PyTorch and under the alias: equal texts."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


def printed(*command):
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_same_text(script):
    theirs, ours = printed(script), printed("-m", "flambeau", script)
    assert ours == theirs
    assert len(ours) > 5
