"""Programs train while their kernels are compiled in the background, and someone kills at random:
the worker, a compiler, or the program itself.

Losses must be those of a process that waits for its kernels, bit for bit, as far as the program
came; the cache must stay usable, and no process and no temporary file may stay.
`WORKER_KILL_ROUNDS=34` kills about a hundred times.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROUNDS = int(os.environ.get("WORKER_KILL_ROUNDS", "3"))
KILLS = 3  # in a round
VICTIMS = ("worker", "compiler", "program")

# Each number is a sequence of operations, whose kernels nobody has compiled yet.
PROGRAM = """
import sys, time
import flambeau as torch
from flambeau import _core, nn
from flambeau.compiler import cache

first, pause = int(sys.argv[1]), float(sys.argv[2])
torch.manual_seed(first)
x, y = torch.randn(2000, 24), torch.randn(2000, 1)
steps = []
for number in range(first, first + 3):
    model = nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(x, y, model=model, optimizer=optimizer, number=number):
        result = model(x)
        for digit in f"{number:b}":
            result = result.sin() if digit == "1" else result.tanh()
        loss = (result - y).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    steps.append(torch.compile(step))
print("ready", flush=True)

def train(count):
    for turn in range(count):
        print(*(step(x, y).item().hex() for step in steps), flush=True)
        time.sleep(pause)

train(40)
torch.compiler.wait()
train(3)
print("end", cache.statistics.misses, len(_core.baseline_plans()), flush=True)
"""


def start(folder: Path, cache: str, when: str, first: int, pause: float = 0) -> subprocess.Popen:
    (folder / "temporary").mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "FLAMBEAU_CACHE_DIR": str(folder / cache),
        "FLAMBEAU_COMPILER": when,
        "FLAMBEAU_VERIFY": "0",
        "FLAMBEAU_TIER": "compiled",
        "TMPDIR": str(folder / "temporary"),
    }
    words = [sys.executable, "-c", PROGRAM, str(first), str(pause)]
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(program: subprocess.Popen) -> list[str]:
    """The lines of a program that must succeed."""
    output, errors = program.communicate(timeout=600)
    assert program.returncode == 0, errors
    return output.splitlines()


def processes(folder: Path) -> dict[int, str]:
    """Running processes with this folder for temporary files: a name for each."""
    mark = f"TMPDIR={folder / 'temporary'}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "comm").read_text().strip()
        except OSError:  # it has ended, or is another user's
            continue
    return found


def kill_one(folder: Path, program: subprocess.Popen, kind: str) -> bool:
    """Kills a process of a kind; returns whether one was there."""
    if kind == "program":
        program.send_signal(signal.SIGKILL)
        return True
    others = [pair for pair in processes(folder).items() if pair[0] != program.pid]
    python = Path(sys.executable).resolve().name[:6]
    chosen = [pid for pid, name in others if name.startswith(python) == (kind == "worker")]
    if not chosen:
        return False
    try:
        os.kill(random.choice(chosen), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def disturbed(folder: Path, first: int, generator: random.Random) -> tuple[list[str], list[str]]:
    """A program with kills at random moments: its lines, and what was killed."""
    program, killed = start(folder, "shared", "background", first, pause=0.03), []
    assert program.stdout is not None
    program.stdout.readline()  # imports are done
    victims = [generator.choice(VICTIMS[:2]) for _ in range(KILLS - 1)]
    victims.append(generator.choice(VICTIMS))
    for victim in victims:
        time.sleep(generator.random() * 0.4)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and program.poll() is None:
            if kill_one(folder, program, victim):
                killed.append(victim)
                break
            time.sleep(0.002)
    output, errors = program.communicate(timeout=600)
    assert program.returncode in (0, -signal.SIGKILL), errors
    assert program.returncode == 0 or killed[-1] == "program"
    return output.splitlines(), killed


def settled(folder: Path) -> bool:
    """Whether all processes end soon."""
    deadline = time.monotonic() + 30
    while processes(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes(folder)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
def test_killed_workers_compilers_and_programs_leave_right_results_and_nothing_else(
    tmp_path: Path,
) -> None:
    generator, killed = random.Random(17), []
    random.seed(17)
    for turn in range(ROUNDS):
        first = 3 * turn + 2
        expected = finished(start(tmp_path, f"clean{turn}", "wait", first))[1:-1]
        lines, victims = disturbed(tmp_path, first, generator)
        killed += victims
        losses = [line for line in lines if line[0] in "0-n"]
        whole = losses if lines[-1:] and lines[-1].startswith("end") else losses[:-1]
        assert whole == expected[: len(whole)], turn
        assert len(losses) == len(expected) or victims[-1] == "program"
        assert settled(tmp_path), processes(tmp_path)
        undisturbed = finished(start(tmp_path, "shared", "background", first))
        assert undisturbed[1:-1] == expected and undisturbed[-1].split()[2] == "0"
    assert len(killed) >= ROUNDS and len(set(killed)) > 1, killed
    last = finished(start(tmp_path, "shared", "wait", 3 * ROUNDS - 1))
    assert last[-1].split()[1] == "0"  # nothing is compiled again
    assert settled(tmp_path)
    assert list((tmp_path / "temporary").iterdir()) == []
    abandoned = list((tmp_path / "shared").rglob("*.tmp"))  # `cache.evict` removes them
    assert len(abandoned) <= len(killed)
    print(f"killed: {', '.join(f'{killed.count(name)} x {name}' for name in VICTIMS)}")
