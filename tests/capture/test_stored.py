"""Plans of streams that outlive their process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import flambeau as torch
from flambeau.capture import stream

traces = []
traced = stream.Traced
stream.Traced = lambda *a: traces.append(0) or traced(*a)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

def loss_of(x):
    return model(x).square().mean()

def step(x):
    loss = loss_of(x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()

def ahead_of_time(x):
    loss = compiled(x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()

compiled = torch.compile({compiled})
losses = [{run}(torch.randn(n, 8)).item() for n in (6, 6, 9, 5)]
if {twice}:
    x = torch.randn(6, 8).requires_grad_()
    (slope,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    slope.square().sum().backward()
    losses.append(x.grad.sum().item())
tracing = "flambeau.core.specify" in sys.modules or "flambeau.compiler.pipeline" in sys.modules
print(len(traces) + tracing, [x.hex() for x in losses])
"""
STEP = {"compiled": "step", "run": "compiled", "twice": False}
AHEAD = {"compiled": "loss_of", "run": "ahead_of_time", "twice": False}
every_program = pytest.mark.parametrize("program", [STEP, AHEAD], ids=("step", "ahead"))


def run(cache: Path, program: dict[str, object] = STEP) -> tuple[int, str]:
    """Number of traces and the losses of a fresh process."""
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": str(cache), "FLAMBEAU_VERIFY": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(**program)],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    traces, losses = done.stdout.strip().split(" ", 1)
    return int(traces), losses


@every_program
def test_second_process_does_not_trace(tmp_path: Path, program: dict[str, object]) -> None:
    first_traces, first = run(tmp_path, program)
    second_traces, second = run(tmp_path, program)
    assert first_traces > 0
    assert second_traces == 0
    assert first == second


def test_a_gradient_of_a_stored_gradient(tmp_path: Path) -> None:
    """Its backward's own Graph is not on disk: it is traced as it was in the first process."""
    first_traces, first = run(tmp_path, AHEAD | {"twice": True})
    second_traces, second = run(tmp_path, AHEAD | {"twice": True})
    assert first_traces > second_traces
    assert first == second


@every_program
def test_evicted_kernels_are_built_again(tmp_path: Path, program: dict[str, object]) -> None:
    _, first = run(tmp_path, program)
    for bundle in (tmp_path / "bundles").iterdir():
        bundle.unlink()
    traces, second = run(tmp_path, program)
    assert traces > 0
    assert first == second


def test_damaged_plan_counts_as_absent(tmp_path: Path) -> None:
    _, first = run(tmp_path)
    for blob in (tmp_path / "blobs").glob("??/*"):
        blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    traces, second = run(tmp_path)
    assert traces > 0
    assert first == second
