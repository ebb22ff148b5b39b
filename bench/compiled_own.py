"""The programs of `bench/compiled_programs.py`, compiled against our own eager mode, worst first.

    python -m bench.compiled_own [--training | --inference] [NAME ...]

Needs no PyTorch and takes minutes where `bench.compiled` takes hours, so it is what one runs while
changing the compiler. Each program and mode has a process of its own, with one thread. A row says
where a compiled call's time goes: launches and their time, the parts in which it runs, and whether
it ran its Python. It prints a table and publishes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from bench.compiled import steps
from bench.compiled_programs import PROGRAMS
from bench.harness import block, duration, geometric_mean
from bench.kinds import MODES

ROUNDS, SECONDS, PROFILES = 20, 2.0, 9  # calls at least and at most; profiled calls
AIM, MOST = 0.65, 1.0  # of the geometric mean, and of every row


class Parts(NamedTuple):
    """Where a call's time goes.

    Attributes:
        launches: kernels and routines that ran.
        busy: their seconds.
        programs: compiled programs that ran.
        operators: operators that were called or recorded one by one: 0 where no Python ran.
    """

    launches: int
    busy: float
    programs: int
    operators: int


def parts_of(call: Any) -> Parts:
    """The parts of one call; the fastest counts."""
    from flambeau.profiler import profile

    measured = []
    for _ in range(PROFILES):
        with profile() as recorded:
            call()
        events = recorded.events()
        launches = [e for e in events if e.name.startswith(("kernel::", "routine::"))]
        measured.append(
            Parts(
                len(launches),
                sum(e.cpu_time_total for e in launches) * 1e-6,
                sum(e.name.startswith("compiled::") for e in events),
                sum(e.name.startswith(("aten::", "recorded::")) for e in events),
            )
        )
    return min(measured, key=lambda parts: parts.busy)


def fastest(calls: dict[str, Any]) -> dict[str, float]:
    """Seconds of the fastest call of each kind: what others run meanwhile only makes calls slow."""
    rounds: list[list[float]] = []
    end = time.perf_counter() + SECONDS
    while len(rounds) < ROUNDS or time.perf_counter() < end:
        rounds.append([block(call, 1) for call in calls.values()])
    return dict(zip(calls, map(min, zip(*rounds, strict=True)), strict=True))


def child(name: str, mode: str) -> dict[str, Any]:
    """Measures one program in this process."""
    import flambeau

    flambeau.set_num_threads(1)
    calls = steps("flambeau", name, mode)
    for call in calls.values():
        for _ in range(8):
            call()
    seconds = fastest(calls)
    return {
        "ratio": seconds["compiled"] / seconds["eager"],
        "seconds": seconds,
        **{kind: parts_of(call)._asdict() for kind, call in calls.items()},
    }


def measure(name: str, mode: str, caches: str) -> dict[str, Any]:
    """Runs `child` in a fresh process that waits for its kernels."""
    environment = os.environ | {"FLAMBEAU_COMPILER": "wait", "FLAMBEAU_CACHE_DIR": caches}
    command = [sys.executable, "-m", "bench.compiled_own", "--child", name, mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"[bench] {name} {mode} failed\n{done.stderr[-3000:]}")
    row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def line(name: str, mode: str, row: dict[str, Any]) -> str:
    """A row of the table."""
    cells = [f"{name}, {mode}", f"{row['ratio']:.2f}"]
    for kind in ("eager", "compiled"):
        parts = Parts(**row[kind])
        times = duration(row["seconds"][kind]), duration(parts.busy or 1e-9)
        cells += [*times, str(parts.launches)]
    compiled = Parts(**row["compiled"])
    return " | ".join(["", *cells, f"{compiled.programs}", f"{compiled.operators}", ""]).strip()


def main() -> None:
    """Measures the programs that the command line names, or all."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(*sys.argv[2:])))
        return
    modes = [mode for mode in MODES if f"--{mode}" in sys.argv] or MODES
    names = [word for word in sys.argv[1:] if not word.startswith("-")] or list(PROGRAMS)
    rows: list[tuple[float, str]] = []
    caches = os.environ.get("FLAMBEAU_CACHE_DIR") or tempfile.mkdtemp()
    print(HEAD)
    for name in names:
        for mode in modes:
            row = measure(name, mode, caches)
            rows.append((row["ratio"], line(name, mode, row)))
            print(rows[-1][1], flush=True)
    print("\n" + HEAD)
    for _, text in sorted(rows, reverse=True):
        print(text)
    ratios = [ratio for ratio, _ in rows]
    above = sum(ratio > MOST for ratio in ratios)
    print(f"\ngeometric mean {geometric_mean(ratios):.3f} (aim {AIM}), {above} above {MOST}")


HEAD = (
    "| program | ratio | eager | in launches | launches | compiled | in launches | launches "
    "| programs | operators |\n" + "| --- " * 10 + "|"
)

if __name__ == "__main__":
    main()
