"""Plans of streams that outlive their process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import flambeau as torch
from flambeau.capture import stream

traces = []
traced = stream._traced
stream._traced = lambda *a: traces.append(0) or traced(*a)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

def step(x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()

compiled = torch.compile(step)
losses = [compiled(torch.randn(n, 8)).item() for n in (6, 6, 9, 5)]
print(len(traces), [x.hex() for x in losses])
"""


def run(cache: Path) -> tuple[int, str]:
    """Number of traces and the losses of a fresh process."""
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": str(cache), "FLAMBEAU_VERIFY": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    traces, losses = done.stdout.strip().split(" ", 1)
    return int(traces), losses


def test_second_process_does_not_trace(tmp_path: Path) -> None:
    first_traces, first = run(tmp_path)
    second_traces, second = run(tmp_path)
    assert first_traces > 0
    assert second_traces == 0
    assert first == second


def test_evicted_kernels_are_built_again(tmp_path: Path) -> None:
    _, first = run(tmp_path)
    for bundle in (tmp_path / "bundles").iterdir():
        bundle.unlink()
    traces, second = run(tmp_path)
    assert traces > 0
    assert first == second


def test_damaged_plan_counts_as_absent(tmp_path: Path) -> None:
    _, first = run(tmp_path)
    for blob in (tmp_path / "blobs").glob("??/*"):
        blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    traces, second = run(tmp_path)
    assert traces > 0
    assert first == second
