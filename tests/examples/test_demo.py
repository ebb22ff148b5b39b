"""The demo: eager equals compiled bit for bit, and a killed run continues where its
checkpoint is.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import flambeau as torch

TRAIN = Path(__file__).parents[2] / "examples" / "gpt" / "train.py"
SMALL = (
    "--layers 1 --width 32 --heads 2 --context 16 --batch 2 --characters 50000 --vocabulary 300 "
    "--sample 8"
).split()


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, str(TRAIN), *SMALL, "--out", str(out), *more]


def run(out: Path, *more: str) -> str:
    done = subprocess.run(command(out, *more), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def losses(out: Path, kind: str = "compiled") -> list[float]:
    return torch.load(out / f"checkpoint-{kind}.flambeau")["losses"]


def test_report(tmp_path: Path) -> None:
    text = run(tmp_path, "--steps", "12")
    assert "agree to the last bit over 12 steps" in text
    assert "tokens/s" in text and "cold" in text and "warm" in text
    picture = (tmp_path / "loss.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert losses(tmp_path, "eager") == losses(tmp_path)


def test_without_a_compiler_it_trains_and_says_what_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAMBEAU_CC", "no-such-compiler")
    monkeypatch.setenv("FLAMBEAU_COMPILER", "background")
    monkeypatch.setenv("FLAMBEAU_TIER", "compiled")
    text = run(tmp_path, "--steps", "2")
    assert "not measured:" in text and "no C compiler found" in text and "cold" not in text
    assert "agree to the last bit over 2 steps" in text


def test_turns_and_ratio(tmp_path: Path) -> None:
    text = run(tmp_path, "--untimed", "--steps", "25", "--dropout", "0.1", "--save-every", "5")
    assert "of the time of an eager one" in text and "same 32-bit number" in text
    assert losses(tmp_path, "eager") == losses(tmp_path)
    state = torch.load(tmp_path / "checkpoint-eager.flambeau")
    assert [step for step, _ in state["validation"]] == [25]


def refused(out: Path, *more: str) -> str:
    done = subprocess.run(command(out, *more), capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    return done.stderr


def test_resume_says_what_is_wrong(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path, "--resume", str(tmp_path / "missing"))
    assert "holds no checkpoint" in refused(tmp_path, "--resume", str(tmp_path))
    more = ("--untimed", "--only", "eager", "--steps", "3")
    run(tmp_path, *more)
    (tmp_path / ".checkpoint-eager.flambeau.1x2y").write_bytes(b"half a save")
    assert "nothing to do" in run(tmp_path, *more, "--resume", str(tmp_path))
    assert not list(tmp_path.glob(".checkpoint*"))
    wrong = refused(tmp_path, *more, "--width", "64", "--resume", str(tmp_path))
    assert "--width 32, not 64" in wrong and "Traceback" not in wrong


def test_eager_and_compiled_agree_on_any_number_of_threads(tmp_path: Path) -> None:
    """One after the other: side by side both would compile the same kernels."""
    for threads in (1, 2):
        out = tmp_path / str(threads)
        run(out, "--untimed", "--steps", "6", "--threads", str(threads), "--dropout", "0.1")
        assert losses(out, "eager") == losses(out)
    assert losses(tmp_path / "1") == losses(tmp_path / "2")


def test_resume_continues_bit_for_bit(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    more = ("--untimed", "--only", "compiled", "--dropout", "0.1", "--save-every", "1")
    run(whole, "--steps", "8", *more)
    process = subprocess.Popen(
        command(parts, "--steps", "8", *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    checkpoint = parts / "checkpoint-compiled.flambeau"
    limit = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)  # most likely in the middle of a step or a save
    process.wait()
    assert torch.load(checkpoint)["step"] >= 1
    run(parts, "--steps", "8", *more, "--resume", str(parts))
    assert losses(parts) == losses(whole)


@pytest.mark.parametrize("round_", range(3))
def test_kill_during_a_save_loses_nothing(tmp_path: Path, round_: int) -> None:
    script = (
        "import sys, flambeau as torch\n"
        "path, n = sys.argv[1], 0\n"
        "while True:\n"
        "    n += 1\n"
        "    torch.save({'n': n, 'x': torch.full((300, 300), float(n))}, path)\n"
        "    print(n, flush=True)\n"
    )
    path = tmp_path / "state.flambeau"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(3 + 2 * round_):
        last = int(process.stdout.readline())
    time.sleep(0.0007 * round_)
    process.kill()
    rest = process.stdout.read().split()
    process.wait()
    last = int(rest[-1]) if rest else last
    state = torch.load(path)
    assert state["n"] in (last, last + 1)
    assert bool((state["x"] == float(state["n"])).all())


def test_tokens_are_words_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TRAIN.parent)
    data = importlib.import_module("data")
    text = data.load_text(20_000)
    tokenizer = data.Tokenizer(text, 400)
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text and max(tokens) < 400 and len(tokens) < len(text)
    assert tokenizer.decode(tokenizer.encode("flambé")) == "flambé"
