"""Programs that never repeat: what the process holds stays flat over many thousands of streams.

Each compiled region records another stream; kernels are few, so what grows would be what is known
of streams: plans, keys, graphs, histories. Printed after every block: the process's resident
memory, entries and plans of the core's cache, histories and graph nodes that Python holds.

    python -m bench.streams                     # 50,000 streams
    python -m bench.streams 2000                # as many as said
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import resource
import sys
import tempfile
import time
from typing import Any

from bench.harness import RESULTS

STREAMS = 50_000
BLOCKS = 10
LENGTH = 8  # ops of a stream, each one of four
SIZES = (3, 5, 7, 9, 11, 13, 15, 17)


def resident() -> int:
    """Bytes of memory that this process occupies now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def held() -> dict[str, int]:
    """Counts of what is held at the moment, by name."""
    from flambeau import _core
    from flambeau.capture import stream
    from flambeau.ir import node

    stats = _core.stream_stats()
    return {
        "resident": resident(),
        "entries": stats["entries"],
        "plans": stats["plans"],
        "histories": len(stream._histories),
        "nodes": len(node._table),
    }


def run(count: int) -> list[dict[str, Any]]:
    """Records this many different streams; a row of figures for each block of them."""
    import flambeau as torch

    ops = (torch.sin, torch.cos, torch.exp, torch.neg)
    operands = [torch.rand(size) for size in SIZES]

    def apply(choice: tuple[Any, ...]) -> list[Any]:
        return [op(x) for op, x in zip(choice, operands, strict=True)]

    compiled = torch.compile(apply)
    choices = itertools.islice(itertools.product(ops, repeat=LENGTH), count)
    rows = []
    began = time.perf_counter()
    for number, choice in enumerate(choices, 1):
        compiled(choice)
        if number % max(count // BLOCKS, 1) == 0:
            rows.append({"streams": number, "seconds": time.perf_counter() - began} | held())
            print(_line(rows[-1]), flush=True)
    return rows


def _line(row: dict[str, Any]) -> str:
    return (
        f"| {row['streams']:,} | {row['seconds']:.0f} s | {row['resident'] / 1e6:.1f} MB "
        f"| {row['entries']:,} | {row['plans']:,} | {row['histories']:,} | {row['nodes']:,} |"
    )


def main(count: int = STREAMS) -> None:
    """Runs, prints the table, and writes it beside the others."""
    import flambeau

    about = {"flambeau": flambeau.__version__, "python": platform.python_version()}
    head = [
        "# streams",
        "",
        ", ".join(f"{k} {v}" for k, v in about.items()),
        "",
        "| streams | time | resident | entries | plans | histories | nodes |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(head))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FLAMBEAU_CACHE_DIR"] = cache  # read when the first kernel is looked up
        rows = run(count)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "streams.md").write_text("\n".join([*head, *map(_line, rows), ""]))
    table = json.dumps({"machine": about, "rows": rows}, indent=1)
    (RESULTS / "streams.json").write_text(table)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
