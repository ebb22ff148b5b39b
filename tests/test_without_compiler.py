"""Where no C compiler is installed: what the package brings is enough for training.

Programs run in processes of their own, with a cache that is empty. FLAMBEAU_CC names a command
that does not exist, which is how a machine without a compiler looks to the package.
"""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.compiler import debug

ROOT = Path(__file__).resolve().parent.parent
HINT = "`pip install flambeau[compiler]`"

TRAINING = """
import flambeau as torch
from flambeau import nn

torch.manual_seed(0)
classes = torch.randint(0, 10, (4,))
perceptron = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 10))
convolutions = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.1), nn.Linear(512, 10))
attention = nn.Sequential(
    nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), nn.Flatten(), nn.Linear(320, 10))
models = {(4, 8): perceptron, (4, 3, 16, 16): convolutions, (4, 10, 32): attention}
for shape, model in models.items():
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.randn(*shape)

    def step(x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    for function in (step, torch.compile(step)):
        print(*(function(x, classes).item().hex() for _ in range(3)))
"""

SLOW = """
import flambeau as torch
x = torch.linspace(-3, 3, 100_003)
plans = []
for number in range(2, 5):  # constants that no kernel has that came with the package
    f = torch.compile(lambda x: ((x * number).sin() + number / 7).cumsum(0).sum())
    for _ in range(20):
        f(x)
    torch.compiler.wait()
"""


def run(program, directory, when):
    environment = {
        **os.environ,
        "FLAMBEAU_COMPILER": when,
        "FLAMBEAU_VERIFY": "0",
        "FLAMBEAU_TIER": "compiled",
        "PYTHONPATH": str(ROOT),
    }
    if directory is not None:  # else the usual cache and compiler
        environment |= {"FLAMBEAU_CACHE_DIR": str(directory), "FLAMBEAU_CC": "no-such-compiler"}
    words = [sys.executable, "-c", program]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)


def test_training_needs_no_compiler(tmp_path):
    """A perceptron, convolutions and attention: as with a compiler, bit for bit."""
    never = run(TRAINING, tmp_path / "empty", "never")
    assert never.returncode == 0, never.stderr
    background = run(TRAINING, tmp_path / "another", "background")
    assert background.returncode == 0, background.stderr
    compiled = run(TRAINING, None, "wait")
    assert compiled.returncode == 0, compiled.stderr
    assert len(never.stdout.splitlines()) == 6
    assert never.stdout == background.stdout == compiled.stdout
    assert never.stderr == ""


def test_a_line_says_once_that_there_is_no_compiler(tmp_path):
    """In a process that would have run it; where it is not wanted, nobody says anything."""
    asked = run(SLOW, tmp_path, "background")
    assert asked.returncode == 0, asked.stderr
    [line] = asked.stderr.splitlines()
    assert line.startswith("[flambeau] no C compiler found") and HINT in line
    never = run(SLOW, tmp_path, "never")
    assert (never.returncode, never.stderr) == (0, "")


def test_a_line_takes_no_lock_of_the_error_stream(tmp_path, monkeypatch):
    """The end of a process stops its threads: one that then has the lock would abort it."""
    with open(tmp_path / "said", "w") as stream:
        monkeypatch.setattr(stream, "write", lambda text: pytest.fail("has a lock"), raising=False)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(sys, "__stderr__", stream)
        debug.show(0, "a line", "and more")
    assert (tmp_path / "said").read_text() == "[flambeau] a line\n    and more\n"
    other = io.StringIO()  # of a notebook, of a test
    monkeypatch.setattr(sys, "stderr", other)
    debug.show(0, "a line")
    assert other.getvalue() == "[flambeau] a line\n"


def test_where_compiled_kernels_are_required_the_error_says_how_to_get_a_compiler(tmp_path):
    failed = run(SLOW, tmp_path, "wait")
    assert failed.returncode == 1
    assert "no C compiler found: no-such-compiler" in failed.stderr and HINT in failed.stderr
