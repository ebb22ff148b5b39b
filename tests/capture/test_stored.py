"""Plans of streams that outlive their process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """
import sys
import flambeau as torch
from flambeau.capture import stream

traces = []
run = stream.StreamTrace.run
stream.StreamTrace.run = lambda self: traces.append(0) or run(self)
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
tracing = "flambeau.driver.specify" in sys.modules or "flambeau.compiler.pipeline" in sys.modules
print(len(traces) + tracing, [x.hex() for x in losses])
"""
STEP = {"compiled": "step", "run": "compiled", "twice": False}
AHEAD = {"compiled": "loss_of", "run": "ahead_of_time", "twice": False}
every_program = pytest.mark.parametrize("program", [STEP, AHEAD], ids=("step", "ahead"))


def run(cache: Path, program: dict[str, object] = STEP, source: str = PROGRAM) -> tuple[int, str]:
    """Number of traces and the losses of a fresh process."""
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": str(cache), "FLAMBEAU_VERIFY": "0"}
    done = subprocess.run(
        [sys.executable, "-c", source.format(**program)],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    traces, losses = done.stdout.strip().split(" ", 1)
    return int(traces), losses


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, int, str]]:
    """What a first process leaves: a copy of its cache, its number of traces and its losses.

    The first process is the slow one: it compiles. Each program has one.
    """
    kept: dict[str, tuple[Path, int, str]] = {}

    def after_first_process(program: dict[str, object]) -> tuple[Path, int, str]:
        name = str(program)
        if name not in kept:
            cache = tmp_path_factory.mktemp("cache")
            kept[name] = (cache, *run(cache, program))
        cache, traces, losses = kept[name]
        copy = tmp_path_factory.mktemp("copy") / "cache"
        return shutil.copytree(cache, copy), traces, losses

    return after_first_process


@every_program
def test_second_process_does_not_trace(stored, program: dict[str, object]) -> None:
    cache, first_traces, first = stored(program)
    second_traces, second = run(cache, program)
    assert first_traces > 0
    assert second_traces == 0
    assert first == second


def test_a_gradient_of_a_stored_gradient(stored) -> None:
    """Its backward's own Graph is not on disk: it is traced as it was in the first process."""
    program = AHEAD | {"twice": True}
    cache, first_traces, first = stored(program)
    second_traces, second = run(cache, program)
    assert first_traces > second_traces
    assert first == second


@every_program
def test_evicted_kernels_are_built_again(stored, program: dict[str, object]) -> None:
    cache, _, first = stored(program)
    for bundle in (cache / "bundles").iterdir():
        bundle.unlink()
    traces, second = run(cache, program)
    assert traces > 0
    assert first == second


def test_damaged_plan_counts_as_absent(stored) -> None:
    cache, _, first = stored(STEP)
    for blob in (cache / "blobs").glob("??/*"):
        blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    traces, second = run(cache)
    assert traces > 0
    assert first == second


# ------------------------------------------------------------------------------- frozen programs

FROZEN = """
import sys
import flambeau as torch
from flambeau.capture import stream

traces = []
run = stream.StreamTrace.run
stream.StreamTrace.run = lambda self: traces.append(0) or run(self)
torch.manual_seed({seed})
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, {channels}, 3), torch.nn.BatchNorm2d({channels}), torch.nn.ReLU(),
    torch.nn.Flatten(), torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(
        36 * {channels}, 4)),
).eval()
compiled = torch.compile(model, options={{"freezing": True}})
sums = []
with torch.no_grad(), stream.watching() as reports:
    for rows in (2, 3, 2):
        x = torch.randn(rows, 3, 8, 8)
        y = compiled(x)
        assert torch.allclose(y, model(x), rtol=1e-4, atol=1e-5)
        sums.append(y.sum().item().hex())
    model[4].bias.add_(1.0)
    assert torch.allclose(compiled(x), model(x), rtol=1e-4, atol=1e-5)
assert [report.plan.constants.runs for report in reports] == [2]
tracing = "flambeau.driver.specify" in sys.modules or "flambeau.compiler.pipeline" in sys.modules
print(len(traces) + tracing, sums)
"""


def test_frozen_programs_are_stored(tmp_path: Path) -> None:
    """Their plans hold no weight: constants are computed anew, and other values make no plan."""
    first = run(tmp_path, {"seed": 0, "channels": 4}, FROZEN)
    assert first[0] > 0
    assert run(tmp_path, {"seed": 0, "channels": 4}, FROZEN) == (0, first[1])
    traces, other = run(tmp_path, {"seed": 1, "channels": 4}, FROZEN)
    assert traces == 0 and other != first[1]
    assert run(tmp_path, {"seed": 0, "channels": 5}, FROZEN)[0] > 0  # weights of another shape


def test_frozen_programs_without_their_kernels(tmp_path: Path) -> None:
    first = run(tmp_path, {"seed": 0, "channels": 4}, FROZEN)
    for bundle in (tmp_path / "bundles").iterdir():
        bundle.unlink()
    traces, second = run(tmp_path, {"seed": 0, "channels": 4}, FROZEN)
    assert traces > 0 and second == first[1]
