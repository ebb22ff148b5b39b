"""Fills the table of README.md from bench/results/*.json: `python -m bench.summary [--check]`.

A line per table of a result file: how many cases, the geometric mean of ours / theirs, the best
and the worst case, the bound aimed at. With `--check` nothing is written; the status says whether
the README is up to date.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from bench.harness import RESULTS, geometric_mean

README = Path(__file__).parent.parent / "README.md"
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


def summary(results: Path = RESULTS) -> str:
    """The Markdown table of all results, with the machine they were measured on."""
    lines: list[str] = []
    machines: list[str] = []
    for path in sorted(results.glob("*.json")):
        data = json.loads(path.read_text())
        tables = {t: rows for t, rows in data.get("tables", {}).items() if rows}
        if not tables:  # a result of another kind: the roofline
            continue
        lines += [line(f"{path.stem}: {title}", rows) for title, rows in tables.items()]
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
        raise ValueError(f"[bench] README.md lacks {BEGIN} ... {END}\nhint: put them back")
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", readme)


def main() -> int:
    """Writes the README, or says whether it is up to date."""
    old = README.read_text()
    new = filled(old, summary())
    if "--check" in sys.argv[1:]:
        return int(old != new)
    README.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
