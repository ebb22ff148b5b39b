"""Block programs of which a word is changed, under the sanitizers: see `changed_programs`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.sanitize.test_kernels import needs_sanitizers, sanitized


@needs_sanitizers
def test_changed_programs(tmp_path: Path) -> None:
    result = sanitized(tmp_path, "-m", "tests.sanitize.changed_programs", "12", "0", "9")
    lines = result.stdout.replace("\r", "\n").splitlines()
    assert result.returncode == 0, "\n".join(lines[-3:]) + result.stderr[-6000:]
    found = re.search(r"changes refused (\d+) accepted (\d+)", result.stdout)
    assert found and int(found[1]) > 1000 and int(found[2]) > 300, lines[-1]
