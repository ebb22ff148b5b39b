"""Processes that share one cache directory are killed at random: the cache stays usable.

A round starts processes that compile kernels nobody has compiled yet, kills them with SIGKILL after
a random time, and now and then damages a file as a failing disk would. In the end a fresh process
must compute right results from that directory, and a second one without compiling anything.
`CACHE_KILL_ROUNDS=100` is what `.ci/run` asks for.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = int(os.environ.get("CACHE_KILL_ROUNDS", "10"))
PROCESSES = 2

# Kernels depend on constants, so that each number makes kernels that are new.
WORKER = """
import sys
import flambeau as torch
from flambeau.compiler import cache

start, count = int(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
for number in range(start, start + count):
    x = torch.linspace(-1, 1, 50)
    y = torch.compile(lambda t: ((t * (number + 2)).sin() + number).sum())(x)
    z = ((x * (number + 2)).sin() + number).sum()
    assert torch.equal(y, z), (number, y, z)
print("done", cache.statistics.misses, cache.statistics.damaged, flush=True)
"""


def start(directory: Path, first: int, count: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "FLAMBEAU_CACHE_DIR": str(directory), "FLAMBEAU_CACHE_LIMIT": "8"}
    words = [sys.executable, "-c", WORKER, str(first), str(count)]
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def kill_some(directory: Path, generator: random.Random, first: int) -> None:
    """One round: processes that start where others were killed, and are killed themselves."""
    workers = [start(directory, first + generator.randrange(3), 10) for _ in range(PROCESSES)]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()  # imports are done: what follows uses the cache
    for worker in workers:
        time.sleep(generator.random() * 0.4)
        worker.send_signal(signal.SIGKILL)
    for worker in workers:
        _, errors = worker.communicate(timeout=60)
        assert worker.returncode in (0, -signal.SIGKILL), errors


def damage(directory: Path, generator: random.Random) -> None:
    """Truncates, alters or removes one file, as a crash of the machine may."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    if not files:
        return
    path = generator.choice(sorted(files))
    content = path.read_bytes()
    how = generator.randrange(3)
    path.unlink()  # a mapped library must not change under a process that still runs
    if how == 0:
        path.write_bytes(content[: generator.randrange(len(content) + 1)])
    elif how == 1 and content:
        position = generator.randrange(len(content))
        flipped = bytes([content[position] ^ 255])
        path.write_bytes(content[:position] + flipped + content[position + 1 :])


def finish(directory: Path, first: int, count: int) -> tuple[int, int]:
    """A process that must succeed; how many kernels it compiled, how many entries were damaged."""
    worker = start(directory, first, count)
    output, errors = worker.communicate(timeout=300)
    assert worker.returncode == 0, errors
    _, misses, damaged = output.splitlines()[-1].split()
    return int(misses), int(damaged)


def test_killed_processes_leave_the_cache_usable(tmp_path: Path) -> None:
    generator = random.Random(20)
    for turn in range(ROUNDS):
        kill_some(tmp_path, generator, 2 * turn)
        if turn % 3 == 2:
            damage(tmp_path, generator)
    finish(tmp_path, 0, 12)
    assert finish(tmp_path, 0, 12) == (0, 0)
    leftovers = [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]
    assert len(leftovers) < 3 * PROCESSES * ROUNDS, leftovers
