"""PyTorch's operator database in float32: every sample forward, ours beside PyTorch's.

    python -m bench.operator_database                   first on empty caches, then warm
    python -m bench.operator_database --entries ^fft    the entries whose names match
    python -m bench.operator_database --warm            no cold run; the caches as they are

"Cold" is the time until one process per core has called all samples, with no plan and no kernel
kept but those that came with the package; the making of the samples, by PyTorch, is in it. Warm
times are taken in one process, of one thread, over the caches that the cold run left: all samples
of an entry are called by one library, then by the other, in turn; its time is the median of the
rounds. A sample that either library refuses is left out.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

import flambeau
from bench.harness import Row, publish
from tests.parity.entry_checks import Twin, attempt, entry_name, message, samples_of
from tests.parity.operator_database import database
from tests.parity.translation import entry_function

COLD_BAR = 480  # seconds on two cores
SLOWEST = 30
Given = tuple[tuple[Any, ...], dict[str, Any]]


class Prepared:
    """An entry with the calls of its samples, each made once in both libraries.

    Attributes:
        ours, theirs: function, and (arguments, keywords) of each sample.
        seconds: of our first calls.
        refused: why we refuse a sample that PyTorch takes, one line each.
    """

    def __init__(self, entry: Any) -> None:
        self.functions: tuple[Any, Any] = (None, entry.op)
        self.calls: list[tuple[Given, Given]] = []
        self.seconds = 0.0
        self.refused: list[str] = []
        function, missing = attempt(lambda: entry_function(entry))
        if missing is not None:
            self.refused.append(message(missing))
            return
        self.functions = (function, entry.op)
        for sample in samples_of(entry, torch.float32, 0):
            self._add(sample)

    def _add(self, sample: Any) -> None:
        twin, error = attempt(lambda: Twin(sample))
        (args, kwargs) = (sample.input, *sample.args), sample.kwargs
        if attempt(lambda: self.functions[1](*args, **kwargs))[1] is not None:
            return
        if error is None:
            start = time.perf_counter()
            error = attempt(lambda: self.functions[0](*twin.ours[0], **twin.ours[1]))[1]
            self.seconds += time.perf_counter() - start
        if error is not None:
            self.refused.append(message(error))
        else:
            self.calls.append((twin.ours, twin.theirs))

    def round(self) -> tuple[float, float]:
        """Seconds of all samples, ours and PyTorch's."""
        return self._block(0), self._block(1)

    def _block(self, side: int) -> float:
        function = self.functions[side]
        calls = [pair[side] for pair in self.calls]
        start = time.perf_counter()
        for args, kwargs in calls:
            function(*args, **kwargs)
        return time.perf_counter() - start


def prepare_process() -> None:
    """One thread, no warnings: for every process that measures."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    flambeau.set_num_threads(1)


def chosen(pattern: str) -> list[Any]:
    """The entries that know float32 and whose names match."""
    return [
        entry
        for entry in database()
        if torch.float32 in entry.supported_dtypes("cpu") and re.search(pattern, entry_name(entry))
    ]


def _cold_entry(pattern: str, index: int) -> tuple[str, float, int, list[str]]:
    entry = chosen(pattern)[index]
    prepared = Prepared(entry)
    return entry_name(entry), prepared.seconds, len(prepared.calls), prepared.refused


def cold(pattern: str, processes: int) -> float:
    """Seconds until all samples were called once, on the caches of this process's environment."""
    count = len(chosen(pattern))
    context = multiprocessing.get_context("spawn")
    start = time.perf_counter()
    with ProcessPoolExecutor(processes, context, prepare_process) as pool:
        found = list(pool.map(_cold_entry, [pattern] * count, range(count)))
    seconds = time.perf_counter() - start
    for name, spent, samples, _ in sorted(found, key=lambda one: -one[1])[:SLOWEST]:
        print(f"{spent:8.2f} s first calls of {samples:4d} samples: {name}", file=sys.stderr)
    return seconds


def measured(entry: Any, rounds: int) -> tuple[Row | None, list[str]]:
    """(an entry's time, what was refused)."""
    prepared = Prepared(entry)
    if not prepared.calls:
        return None, prepared.refused
    prepared.round()
    gc.collect()
    gc.disable()
    try:
        pairs = [prepared.round() for _ in range(rounds)]
    finally:
        gc.enable()
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    note = f"{len(prepared.calls)} samples, {1e3 * (ours - theirs):+.3f} ms"
    return Row(entry_name(entry), ours, theirs, ours / theirs, 1, note), prepared.refused


def warm(pattern: str, rounds: int, report: Callable[[str], None]) -> tuple[list[Row], int]:
    """A row per entry, and how many samples are refused."""
    prepare_process()
    rows, refused = [], 0
    for entry in chosen(pattern):
        row, reasons = measured(entry, rounds)
        refused += len(reasons)
        for reason in dict.fromkeys(reasons):
            report(f"refused: {entry_name(entry)}: {reason[:160]}")
        if row is not None:
            rows.append(row)
            report(f"{row.ratio:8.3f} {1e3 * (row.ours - row.theirs):+10.3f} ms {row.name}")
    return rows, refused


def tables(
    rows: Sequence[Row], refused: int, cold_seconds: float | None
) -> list[tuple[str, Sequence[Row], float | None]]:
    """The total, then the entries that lose most by ratio and by time."""
    ours, theirs = sum(row.ours for row in rows), sum(row.theirs for row in rows)
    note = f"{len(rows)} entries, {refused} samples refused"
    if cold_seconds is not None:
        note += f"; cold: {cold_seconds:.0f} s on {os.cpu_count()} cores (bar: {COLD_BAR} s)"
    total = Row("whole sample set", ours, theirs, ours / theirs, 1, note)
    by_ratio = sorted(rows, key=lambda row: -row.ratio)[:SLOWEST]
    by_excess = sorted(rows, key=lambda row: row.theirs - row.ours)[:SLOWEST]
    return [
        ("Every float32 sample forward", [total], 1.0),
        (f"The {SLOWEST} entries of largest ratio", by_ratio, None),
        (f"The {SLOWEST} entries of largest excess", by_excess, None),
    ]


def _child(words: Sequence[str], caches: str) -> Any:
    """What a process of its own prints last, over these caches."""
    command = [sys.executable, "-m", "bench.operator_database", *words]
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": caches}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="bench.operator_database")
    parser.add_argument("--entries", default="", help="regular expression for the names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--warm", action="store_true", help="no cold run, the caches as they are")
    parser.add_argument("--child", choices=("cold", "warm"), help=argparse.SUPPRESS)
    parser.add_argument("--all", type=Path, help="file for the rows of all entries, as JSON")
    options = parser.parse_args()
    if options.child == "cold":
        print(json.dumps(cold(options.entries, options.processes)))
        return
    if options.child == "warm":
        rows, refused = warm(
            options.entries,
            options.rounds,
            lambda line: print(line, file=sys.stderr, flush=True),
        )
        print(json.dumps([[vars(row) for row in rows], refused]))
        return
    words = ["--entries", options.entries, "--rounds", str(options.rounds)]
    words += ["--processes", str(options.processes), "--child"]
    with tempfile.TemporaryDirectory() as empty:
        caches = os.environ.get("FLAMBEAU_CACHE_DIR", "") if options.warm else empty
        cold_seconds = None if options.warm else _child([*words, "cold"], caches)
        found, refused = _child([*words, "warm"], caches)
    rows = [Row(**row) for row in found]
    if options.all:
        options.all.write_text(json.dumps(found, indent=1))
    publish("operator_database", tables(rows, refused, cold_seconds))


if __name__ == "__main__":
    main()
