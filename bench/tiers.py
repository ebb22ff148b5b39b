"""Block programs against compiled kernels: the rows of `throughput` on both tiers.

A row is the fastest call of three rounds. In each, a process of its own runs all rows on one tier,
then one on the other, and one with PyTorch if that is installed. Rows are sorted by their ratio,
the worst first. `python -m bench tiers`; `python -m bench.tiers TIER THREADS` is such a process.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time

from bench.harness import Call, Row, peer_version, publish
from bench.throughput import CASES, operands

ROUNDS = 3
SECONDS = 0.2  # of a row in a round
MEAN, MOST = 1.8, 4.0  # aims: of the geometric mean, and of every row

Times = dict[str, float]


def fastest(call: Call) -> float:
    """Seconds of the fastest of many calls, after warm-up."""
    for _ in range(3):
        call()
    best, deadline = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def times(package: str, threads: int) -> Times:
    """Seconds of every row in this process."""
    t = importlib.import_module(package)
    t.set_num_threads(threads)
    x = operands(t)
    return {
        name: fastest(lambda c=case: c(t, t.nn.functional, x))  # type: ignore[misc]
        for name, case in CASES.items()
    }


def child(tier: str, threads: int, caches: str) -> Times:
    """Seconds of every row in a process on a tier ("compiled", "baseline"), or of PyTorch.

    A tier has a cache of its own: a plan that the other one kept would be run as it is.
    """
    command = [sys.executable, "-m", "bench.tiers", tier, str(threads)]
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": os.path.join(caches, tier)}
    environment["FLAMBEAU_TIER"] = "baseline" if tier == "baseline" else ""
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: Times = json.loads(done.stdout)
    return found


def measured(threads: int, caches: str) -> dict[str, Times]:
    """The fastest of all rounds, by tier."""
    tiers = ["compiled", "baseline", *(["torch"] if peer_version() else [])]
    best: dict[str, Times] = {tier: {} for tier in tiers}
    for _ in range(ROUNDS):
        for tier in tiers:
            for name, seconds in child(tier, threads, caches).items():
                best[tier][name] = min(seconds, best[tier].get(name, seconds))
    return best


def rows(ours: Times, theirs: Times, threads: int) -> list[Row]:
    """One table, the worst rows first."""
    found = [
        Row(name, ours[name], theirs[name], ours[name] / theirs[name], threads) for name in ours
    ]
    for row in found:
        row.note = f"above {MOST:g}" if row.ratio > MOST else ""
    return sorted(found, key=lambda row: -row.ratio)


def main() -> None:
    """Runs the rows on one and on two threads."""
    tables, peers = [], []
    with tempfile.TemporaryDirectory() as caches:
        measurements = {threads: measured(threads, caches) for threads in (1, 2)}
    for threads, best in measurements.items():
        for tier, aim in (("compiled", MEAN), ("torch", None)):
            if tier in best:
                title = f"baseline against {tier}, {threads} thread(s)"
                tables.append((title, rows(best["baseline"], best[tier], threads), aim))
                peers.append(("baseline", tier))
    publish("tiers", tables, peers=peers)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        package = "torch" if sys.argv[1] == "torch" else "flambeau"
        print(json.dumps(times(package, int(sys.argv[2]))))
    else:
        main()
