"""`python -m tests.libraries`: runs cases under PyTorch and under Flambeau, and writes the page.

    python -m tests.libraries --ours PYTHON --reference PYTHON [--eager] [LIBRARY ...]

PYTHON of --reference has PyTorch and the libraries, that of --ours the libraries alone. Runs are
continued where they stopped: results lie in build/libraries, one line of JSON per case. A process
that dies is started again behind the case that killed it. The page is docs/libraries.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.libraries.cases import LIBRARIES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "libraries.md"
WORKER = Path(__file__).parent / "worker.py"
HEAD = """# Third-party libraries under the alias

Models of libraries that were written for PyTorch, unmodified, run by `python -m flambeau`. PyTorch
computes weights, outputs, the loss and gradients of each model from fixed seeds; Flambeau loads the
weights and computes the same, in eval mode and as a training step. Right is what agrees within 1e-4
(outputs) and 1e-3 (gradients) of a tensor's largest element; compiled is right where it also equals
eager bit for bit. Models that PyTorch itself does not run at this size are not counted.
"""


def records(folder: Path, library: str, side: str) -> dict[str, dict[str, Any]]:
    """Results of a side by case; of a case that killed its process, that it did."""
    path, result = folder / f"{library}.{side}.jsonl", {}
    for line in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(line)
        if "begins" in record:
            result[record["begins"]] = {"failure": "the process ended"}
        else:
            result[record["name"]] = record
    return result


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether a record of ours says something of compiled runs, or why there are none."""
    return "compiled" in record or "failure" in record


def run(folder: Path, library: str, side: str, python: str, eager: bool) -> None:
    """Runs the cases of a library that a side has not run yet."""
    own = ["-m", "flambeau"] if side == "ours" else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | ({"EAGER": "1"} if eager else {})
    listing = f"from tests.libraries.cases import cases; print(*cases({library!r}))"
    while True:
        if side == "ours":
            theirs = records(folder, library, "reference")
            names = [name for name, record in theirs.items() if "failure" not in record]
        else:
            words = [python, "-c", listing]
            output = subprocess.check_output(words, env=environment, text=True, cwd=ROOT)
            names = output.splitlines()[-1].split()
        done = records(folder, library, side)
        whole = eager or side == "reference"
        names = [n for n in names if n not in done or not (whole or _is_whole(done[n]))]
        if not names:
            return
        words = [python, *own, str(WORKER), side, library, str(folder), *names]
        subprocess.run(words, env=environment, cwd=ROOT, check=False)


def page(folder: Path) -> str:
    """The text of the page."""
    rows, reasons = [], []
    for library in LIBRARIES:
        ours = records(folder, library, "ours")
        if not ours:
            continue
        eager = [name for name, record in ours.items() if "failure" not in record]
        tried = [name for name in eager if ours[name].get("compiled") is not None]
        compiled = [name for name in tried if not ours[name]["compiled"]]
        rows.append(f"| {library} | {len(ours)} | {len(eager)} | {len(tried)} | {len(compiled)} |")
        for name, record in sorted(ours.items()):
            reason = record.get("failure") or record.get("compiled")
            if reason:
                reasons.append(f"- {library}, {name}: {reason}")
    table = ["| library | models | right, eager | compiled too | equal to eager |"]
    table += ["| --- | --- | --- | --- | --- |", *rows]
    failures = ["## What is not right", "", *(reasons or ["Nothing."])]
    return "\n".join([HEAD, *table, "", *failures, ""])


def main() -> None:
    """Runs what the command line names, and writes the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.libraries")
    parser.add_argument("libraries", nargs="*", help=", ".join(LIBRARIES))
    parser.add_argument("--ours", default=sys.executable, help="Python with the libraries")
    parser.add_argument("--reference", help="Python with PyTorch and the libraries")
    parser.add_argument("--folder", default=str(ROOT / "build" / "libraries"))
    parser.add_argument("--eager", action="store_true", help="no compiled runs")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for library in () if options.page else options.libraries or LIBRARIES:
        if options.reference:
            run(folder, library, "reference", options.reference, options.eager)
        run(folder, library, "ours", options.ours, options.eager)
    PAGE.write_text(page(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
