"""Checkpoints beside PyTorch: loading, loading mapped and saving, with peak resident memory.

Every measurement is a process of its own, ours and the peer's in turns, on one file that PyTorch
wrote and that is in the page cache. The ratios are medians over the turns. "mapped" stands beside
the peer's plain load, too. Our `save` syncs the file before it replaces the target, the peer's
does not: the row "saved, not synced" leaves that out.

    python -m bench.checkpoints [--megabytes 2048] [--turns 7]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from bench.footprint import run
from bench.harness import Row, publish

MAKE = """
import torch
tensors = {megabytes} // 32
state = {{f"layer{{i}}": torch.full((2048, 4096), float(i)) for i in range(tensors)}}
torch.save(state, {path!r})
torch.save(torch.zeros(8), {path!r} + ".small")
"""
MEASURE = """
import json, os, resource, time
import {module} as torch
torch.set_num_threads({threads})
state = torch.load({path!r} + ".small")
{setup}
before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
{statement}
seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
used = sum(getattr(after, n) - getattr(before, n) for n in ("ru_utime", "ru_stime"))
print(json.dumps([seconds, used, (after.ru_maxrss - before.ru_maxrss) * 1024]))
"""
MAP = "state = torch.load({path!r}, mmap=True)\nsum(float(v[0, 0]) for v in state.values())"
SAVE = "torch.save(state, {path!r} + '.copy')"
CASES = {
    "loaded": ("", "state = torch.load({path!r})"),
    "mapped": ("", "state = torch.load({path!r}, mmap=True)"),
    "saved": (MAP, SAVE),
    "saved, not synced": (MAP + "\nos.fsync = lambda file: None", SAVE),
}


def measure(module: str, path: str, case: str, threads: int) -> list[float]:
    """Wall seconds, processor seconds and growth of peak memory in bytes, in a fresh process."""
    setup, statement = (text.format(path=path) for text in CASES[case])
    code = MEASURE.format(
        module=module, path=path, setup=setup, statement=statement, threads=threads
    )
    result: list[float] = json.loads(run(code))
    Path(path + ".copy").unlink(missing_ok=True)
    return result


def compare(path: str, case: str, turns: int, threads: int) -> Row:
    """One row: both in turns, after a turn that is not counted."""
    pairs = []
    for _ in range(turns + 1):
        pairs.append([measure(module, path, case, threads) for module in ("flambeau", "torch")])
    pairs = pairs[1:]
    ours, theirs = (
        [statistics.median(pair[side][i] for pair in pairs) for i in range(3)] for side in (0, 1)
    )
    ratio = statistics.median(a[0] / b[0] for a, b in pairs)
    processor = statistics.median(a[1] / b[1] for a, b in pairs)
    note = f"processor time {processor:.2f}x; peak grows by {ours[2] / 1e6:.0f} MB, "
    return Row(case, ours[0], theirs[0], ratio, threads, note + f"PyTorch {theirs[2] / 1e6:.0f} MB")


def main(arguments: list[str] | None = None) -> None:
    """Prints and stores the table."""
    parser = argparse.ArgumentParser(prog="bench.checkpoints")
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args(arguments or [])
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.pt"
        run(MAKE.format(megabytes=options.megabytes, path=path))
        size = Path(path).stat().st_size / 1e6
        rows = [
            compare(path, case, options.turns, threads)
            for case in CASES
            for threads in options.threads
        ]
    plain = {row.threads: row.theirs for row in rows if row.name == "loaded"}
    for row in rows:
        if row.name == "mapped":
            row.note += f"; {row.ours / plain[row.threads]:.4f} of PyTorch's plain load"
    publish("checkpoints", [(f"Checkpoint of {size:.0f} MB", rows, None)])


if __name__ == "__main__":
    main(sys.argv[1:])
