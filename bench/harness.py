"""What every benchmark shares: interleaved timing of two peers, medians, ratios, tables.

Both frameworks run in one process. A measurement alternates short blocks of each, so that a change
of the machine's speed meets both; the ratio is the median of the blocks' ratios.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
Call = Callable[[], object]
PEERS = ("flambeau", "PyTorch")


@dataclass
class Row:
    """One line of a table: seconds of both, and ours / theirs."""

    name: str
    ours: float
    theirs: float
    ratio: float
    threads: int = 1
    note: str = ""


def block(call: Call, count: int) -> float:
    """Seconds per call over `count` calls."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def calls_for(call: Call, seconds: float) -> int:
    """How many calls take about `seconds`."""
    count = 1
    while True:
        spent = block(call, count) * count
        if spent > seconds / 4 or count > 1 << 22:
            return max(1, int(count * seconds / max(spent, 1e-9)))
        count *= 4


def compare(
    name: str, ours: Call, theirs: Call, blocks: int = 9, seconds: float = 0.02, threads: int = 1
) -> Row:
    """Times both, interleaved, after warm-up."""
    for call in (ours, theirs):
        for _ in range(3):
            call()
    counts = [calls_for(call, seconds) for call in (ours, theirs)]
    pairs = [(block(ours, counts[0]), block(theirs, counts[1])) for _ in range(blocks)]
    a, b = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(name, a, b, statistics.median(x / y for x, y in pairs), threads)


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm."""
    return math.exp(sum(math.log(v) for v in values) / len(values))


def duration(seconds: float) -> str:
    """Seconds as text with a fitting unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def peer_version() -> str | None:
    """The version of PyTorch, or None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    return str(torch.__version__)


def machine() -> dict[str, object]:
    """Versions and processor, printed with every result."""
    import flambeau

    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "python": platform.python_version(),
        "torch": peer_version() or "not installed",
        "flambeau": getattr(flambeau, "__version__", "development"),
        "processor": model,
        "OMP_WAIT_POLICY": os.environ["OMP_WAIT_POLICY"],
    }


def table(
    title: str,
    rows: Sequence[Row],
    bound: float | None = None,
    show: Callable[[float], str] = duration,
    peers: tuple[str, str] = PEERS,
) -> str:
    """Markdown table with the geometric mean; `show` prints a measured value."""
    lines = [
        f"## {title}",
        "",
        f"| case | threads | {peers[0]} | {peers[1]} | ratio | note |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row.name} | {row.threads} | {show(row.ours)} | {show(row.theirs)} "
            f"| {row.ratio:.2f} | {row.note} |"
        )
    mean = geometric_mean([row.ratio for row in rows])
    aim = "" if bound is None else f" (aim: at most {bound})"
    lines += ["", f"Geometric mean of the ratios: **{mean:.3f}**{aim}", ""]
    return "\n".join(lines)


def publish(
    name: str,
    tables: Sequence[tuple[str, Sequence[Row], float | None]],
    show: Callable[[float], str] = duration,
    peers: Sequence[tuple[str, str]] = (),
) -> None:
    """Prints the tables and writes them as Markdown and JSON.

    Args:
        name: of the result files.
        tables: title, rows and aim of each.
        show: prints a measured value.
        peers: what each table compares, if that is not flambeau and PyTorch.
    """
    about = machine()
    head = f"# {name}\n\n" + ", ".join(f"{k} {v}" for k, v in about.items()) + "\n"
    compared = peers or (PEERS,) * len(tables)
    text = (
        head
        + "\n"
        + "\n".join(
            table(title, rows, bound, show, names)
            for (title, rows, bound), names in zip(tables, compared, strict=True)
        )
    )
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text)
    data = {title: [asdict(row) for row in rows] for title, rows, _ in tables}
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": about, "tables": data}, indent=1))
