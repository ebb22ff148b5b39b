"""A call that waits for the C compiler says so, with a slow compiler; a short wait is silent."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import threading
import time

import pytest

import flambeau as torch
from flambeau.compiler.codegen import progress
from flambeau.compiler.codegen.progress import Announcement, Progress
from flambeau.driver import autotune
from flambeau.runtime import settings

PROGRAM = """
import flambeau as torch
torch.manual_seed(0)
f = torch.compile(lambda x: torch.softmax(x * 2.25, -1) + 1)
print(float(f(torch.ones(3, 5)).sum()))
{more}
"""
AUTOTUNED = """
import flambeau as torch
f = torch.compile(lambda x, y: x @ y, mode="max-autotune")
f(torch.ones(300, 200), torch.ones(200, 100))
"""


@pytest.fixture
def slow(tmp_path):
    """The environment of a process whose compiler takes 1.3 s longer."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    script = tmp_path / "slow-cc"
    script.write_text(
        "#!/bin/sh\n"
        f'case " $* " in *" --version "*) exec {compiler} --version;; esac\n'
        f'sleep "$SLOW"\nexec {compiler} "$@"\n'
    )
    script.chmod(0o755)
    return {
        **os.environ, "FLAMBEAU_CC": str(script), "SLOW": "1.3", "FLAMBEAU_COMPILER": "wait",
        "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache"), "FLAMBEAU_TIER": "compiled",
    }  # fmt: skip


def run(program, environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip


def compiled(more=""):
    return PROGRAM.format(more=more)


def test_a_wait_is_announced(slow):
    """Once with the reason; with what is done; the next process finds the kernels."""
    result = run(compiled(), slow)
    lines = result.stderr.splitlines()
    assert lines[0].startswith("[compile] the first call compiles its kernels, which are then ")
    assert all(line.startswith("[compile] ") for line in lines) and "\r" not in result.stderr
    assert len(lines) > 1 and all(line.endswith(" s") for line in lines[1:])
    finished, total = lines[-1].split()[1::2][:2]
    assert finished == total and lines[-1].split()[4] == "kernels,"
    again = run(compiled(), slow)
    assert again.stderr == "" and again.stdout == result.stdout


def test_a_short_wait_is_silent(slow):
    assert run(compiled(), {**slow, "SLOW": "0"}).stderr == ""


def test_waiting_for_the_worker_is_announced(slow):
    environment = {**slow, "FLAMBEAU_COMPILER": "background"}
    result = run(compiled(more="torch.compiler.wait()"), environment)
    lines = result.stderr.splitlines()
    assert lines and all(line.startswith("[compile] ") for line in lines)
    assert " kernels, " in lines[-1]
    counts = lines[-1].split()
    assert counts[1] == counts[3]


def test_autotuning_waits_and_says_so(slow):
    lines = run(AUTOTUNED, slow).stderr.splitlines()
    assert len(lines) > 1 and all(line.startswith("[compile] ") for line in lines)


def test_a_terminal_has_one_line(slow):
    """It is written again and again, and ends with a line end."""
    master, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", compiled()], env={**slow, "SLOW": "2"},
        stdout=subprocess.DEVNULL, stderr=end,
    )  # fmt: skip
    os.close(end)
    text = b""
    try:
        while chunk := os.read(master, 4096):
            text += chunk
    except OSError:  # how a terminal on Linux says that it ends
        pass
    finally:
        os.close(master)
    assert process.wait() == 0
    explained, *waits, last = text.decode().split("\r\n")
    assert explained.startswith("[compile] the first call compiles") and last == ""
    assert waits  # a line each
    for wait in waits:
        versions = [version for version in wait.split("\r") if version]
        assert len(versions) > 2 and all(x.startswith("[compile] ") for x in versions)
        finished, total = versions[-1].split()[1::2][:2]
        assert finished == total


# ------------------------------------------------------------------------------- by itself


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.02)
    monkeypatch.setattr(progress, "INTERVAL", 0.02)
    monkeypatch.setattr(progress, "_explained", True)


def test_one_inside_of_another_is_silent(impatient, capsys):
    with Progress(lambda: "outer"):
        time.sleep(0.2)
        with Progress(lambda: "inner"):
            time.sleep(0.2)
    with Progress(lambda: "next"):
        time.sleep(0.2)
    words = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert set(words) == {"outer,", "next,"} and words.count("outer,") > 2
    assert progress._shown is None


def test_a_tuned_call_is_announced(impatient, monkeypatch, capsys, tmp_path):
    autotune.forget()
    x, y = torch.ones(300, 200), torch.ones(200, 100)
    torch.compile(lambda x, y: x @ y)(x, y)
    capsys.readouterr()
    with settings.override(CACHE_DIR=tmp_path):
        torch.compile(lambda x, y: x @ y, mode="max-autotune")(x, y)
    assert "[compile] autotune: matmul, 0 s" in capsys.readouterr().err
    autotune.forget()


def test_the_end_is_said_once(impatient, capsys):
    announcement = Announcement(3)
    announcement.begin()
    announcement.begin()
    announcement.count(2)
    time.sleep(0.2)
    announcement.count(1)
    announcement.end()
    announcement.end()
    text = capsys.readouterr().err
    assert text.count("3 of 3 kernels") == 1 and "2 of 3 kernels, 0 s\n" in text
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_threads_that_cannot_start_change_nothing(impatient, monkeypatch, capsys):
    def fails(*_, **__):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "Thread", fails)
    with Progress(lambda: "silent"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_without_standard_error(impatient, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(lambda: "nobody"):
        time.sleep(0.1)


def test_an_extension_is_announced(tmp_path, slow):
    """A slow C++ compiler."""
    script = tmp_path / "slow-cxx"
    script.write_text(f'#!/bin/sh\nsleep 1.3\nexec {shutil.which("g++")} "$@"\n')
    script.chmod(0o755)
    program = (
        "from flambeau.utils import cpp_extension\n"
        "cpp_extension.load_inline('slow', 'int one() { return 1; }', functions='one')\n"
    )
    environment = {**slow, "CXX": str(script), "TORCH_EXTENSIONS_DIR": str(tmp_path / "built")}
    lines = run(program, environment).stderr.splitlines()
    assert lines and all(line.startswith("[compile] extension 'slow', ") for line in lines)
    assert run(program, environment).stderr == ""
