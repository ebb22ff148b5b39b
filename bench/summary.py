"""Fills the tables of README.md and docs/perf.md from bench/results/*.json.

    python -m bench.summary [--check]

A line per table of a result file: how many cases, the geometric mean of ours / theirs, the best
and the worst case. docs/perf.md has all lines, README.md those of `README_ROWS`. With `--check`
nothing is written; the status says whether both pages are up to date.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from bench.harness import RESULTS, geometric_mean

ROOT = Path(__file__).parent.parent
README, PERFORMANCE = ROOT / "README.md", ROOT / "docs" / "perf.md"
# Beginnings of the lines that the README shows.
README_ROWS = (
    "dispatch: Forward and backward",
    "throughput: 2 thread(s)",
    "products: float32, squares from 256, 1 thread(s)",
    "attention: forward + backward, 2 thread(s)",
    "whole_models: Training, compiled against PyTorch compiled",
    "compiled: Training, compiled against PyTorch compiled",
    "compiled: Training, compiled against our own eager",
    "compile_time: cold",
    "packages: compile",
    "packages: call, 2 thread(s)",
)
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
HEAD = [
    "| benchmark | cases | mean ratio | best | worst |",
    "| --- | --- | --- | --- | --- |",
]
EMPTY = "*No results yet: `./go bench` writes them, `python -m bench.summary` fills this table.*"


def line(title: str, rows: list[dict[str, Any]]) -> str:
    """One table of a result file as one line."""
    ratios = sorted((row["ratio"], row["name"]) for row in rows)
    mean = geometric_mean([ratio for ratio, _ in ratios])
    (low, best), (high, worst) = ratios[0], ratios[-1]
    return f"| {title} | {len(rows)} | **{mean:.2f}** | {low:.2f} {best} | {high:.2f} {worst} |"


def summary(results: Path = RESULTS, only: tuple[str, ...] = ("",)) -> str:
    """The Markdown table of results, with the machine they were measured on.

    Args:
        results: the folder of the result files.
        only: beginnings of the lines to show.
    """
    lines: list[str] = []
    machines: list[str] = []
    for path in sorted(results.glob("*.json")):
        data = json.loads(path.read_text())
        tables = {t: rows for t, rows in data.get("tables", {}).items() if rows}
        if not tables:  # a result of another kind: the roofline
            continue
        named = {f"{path.stem}: {title}": rows for title, rows in tables.items()}
        lines += [line(title, rows) for title, rows in named.items() if title.startswith(only)]
        about = data.get("machine", {})
        words = f"{about.get('processor')}, Python {about.get('python')}, "
        machines.append(words + f"PyTorch {about.get('torch')}")
    if not lines:
        return EMPTY
    measured = "; ".join(dict.fromkeys(machines))
    return "\n".join([*HEAD, *lines, "", f"Measured on {measured}."])


def filled(readme: str, text: str) -> str:
    """The README's text with the table between its markers replaced.

    Raises:
        ValueError: the markers are missing.
    """
    pattern = re.compile(f"({re.escape(BEGIN)}\n).*?({re.escape(END)})", re.DOTALL)
    if not pattern.search(readme):
        raise ValueError(f"[bench] the page lacks {BEGIN} ... {END}\nhint: put them back")
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", readme)


def main() -> int:
    """Writes both pages, or says whether they are up to date."""
    stale = 0
    for page, only in ((README, README_ROWS), (PERFORMANCE, ("",))):
        old = page.read_text()
        new = filled(old, summary(only=only))
        stale |= old != new
        if "--check" not in sys.argv[1:]:
            page.write_text(new)
    return int(stale and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
