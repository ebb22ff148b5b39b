"""Generated kernels, compiled with -fsanitize, stay inside their memory.

The allocator poisons what is not a tensor's, so that a read past the end of one is found although
its memory is pooled. The kernels are compiled into a cache of their own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -O1"
SHARE = int(os.environ.get("SANITIZE_SHARE", "16"))  # every how manieth operator

needs_sanitizers = pytest.mark.skipif(
    "asan" not in os.environ.get("LD_PRELOAD", "") or shutil.which("gcc") is None,
    reason="needs the core built with sanitizers: ./go sanitize",
)


def sanitized(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FLAMBEAU_CC": f"gcc {FLAGS}", "FLAMBEAU_CACHE_DIR": str(tmp_path)}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )


@needs_sanitizers
def test_operators(tmp_path: Path) -> None:
    result = sanitized(tmp_path, "-m", "tests.sanitize.programs", str(SHARE))
    assert result.returncode == 0, result.stdout[-1000:] + result.stderr[-6000:]
    found = re.search(r"calls (\d+) kernels (\d+)", result.stdout)
    assert found and int(found[1]) > 100 and int(found[2]) > 50, result.stdout


EDGES = """
import flambeau as torch
total = 0.0
for size in (1, 7, 15, 16, 17, 31, 33, 63, 65, 255, 257, 4097):
    x = torch.linspace(-1, 1, size)
    for view in (x, x[1:], x[::2], x[size // 2 :], x.flip(0)):
        if view.numel():
            total += float((view.exp() * 2).sum()) + float(view.max()) + float(view.cumsum(0)[-1])
    y = x.reshape(1, -1).expand(3, -1)
    for view in (y, y.t(), y[:, ::3], y[1:].t()):
        total += float(view.softmax(-1).sum()) + float((view + 1).sum(0).sum())
        total += float((view @ view.t()).sum()) + float(view.half().float().sum())
    z = x.bfloat16().requires_grad_()
    (z * z).tanh().sum().backward()
    total += float(z.grad.float().sum())
print(total)
"""


@needs_sanitizers
def test_edges_of_vectors(tmp_path: Path) -> None:
    result = sanitized(tmp_path, "-c", EDGES)
    assert result.returncode == 0, result.stderr[-6000:]


@needs_sanitizers
def test_the_sanitizer_sees_an_overrun(tmp_path: Path) -> None:
    """Memory beside a tensor is poisoned: were it not so, the tests above would be blind."""
    program = (
        "import ctypes, flambeau as torch\n"
        "x = torch.ones(10)\n"
        "ctypes.memmove(ctypes.create_string_buffer(64), x.data_ptr(), 44)\n"
    )
    result = sanitized(tmp_path, "-c", program)
    assert result.returncode != 0 and "use-after-poison" in result.stderr, result.stderr[-2000:]
