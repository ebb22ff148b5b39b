"""Random calls of operators that compute indices, under the sanitizers: see `random_calls`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.sanitize.call_rules import FAMILIES
from tests.sanitize.test_kernels import needs_sanitizers, sanitized

CALLS = os.environ.get("SANITIZE_CALLS", "5")  # of each family


@needs_sanitizers
@pytest.mark.parametrize("half", [0, 1])
def test_calls(tmp_path: Path, half: int) -> None:
    """Two processes, so that two cores can share them."""
    families = list(FAMILIES)[half::2]
    result = sanitized(tmp_path, "-m", "tests.sanitize.random_calls", CALLS, "0", *families)
    lines = result.stdout.replace("\r", "\n").splitlines()
    assert result.returncode == 0, "\n".join(lines[-40:]) + result.stderr[-6000:]
    assert sum(" calls, " in line for line in lines) == len(families)
