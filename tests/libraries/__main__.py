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

Computed by `./go parity libraries`; do not edit. `./go parity libraries --eager timm einops` runs
two of the libraries, and nothing compiled. Versions: `tests/libraries/requirements.txt`.

Models of libraries that were written for PyTorch, unmodified, run by `python -m flambeau`, at small
sizes. PyTorch computes weights, outputs, the loss and gradients of each model from fixed seeds;
Flambeau loads the weights and computes the same, in eval mode and as a training step. What is no
model (a metric, a fit, a sampler) is a program whose results are compared. Right is what agrees
within 1e-4 (outputs) and 1e-3 (gradients, results of programs) of a tensor's largest element. Where
a step in float32 does not, because an activation lies so near to a kink that rounding decides on
its side, a step in float64 has to agree within 1e-5: those are counted under "by float64". Compiled
is right where it equals eager bit for bit; compiled runs take long, and the table says for how many
models they were made. Models that ask whether they are compiled, and do something else then, are
compared with PyTorch answering yes; where they fail then, there is no compiled run. Cases that
PyTorch itself does not run are not counted.
"""
ENDED = {"failure": "the process ended"}


def records(folder: Path, library: str, side: str) -> dict[str, dict[str, Any]]:
    """Results of a side by case; of a case that killed its process, that it did."""
    path, result = folder / f"{library}.{side}.jsonl", {}
    for line in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(line)
        if "begins" in record:
            result.pop(record["begins"], None)  # the order is that of the last runs
            result[record["begins"]] = ENDED
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
        if ours and next(reversed(ours.values())) == ENDED:
            ours.popitem()  # it is running at this moment
        if not ours:
            continue
        eager = [name for name, record in ours.items() if "failure" not in record]
        tried = [name for name in eager if ours[name].get("compiled") is not None]
        compiled = [name for name in tried if not ours[name]["compiled"]]
        double = [name for name in eager if "single" in ours[name]]
        counts = map(len, (ours, eager, double, tried, compiled))
        rows.append(f"| {library} | {' | '.join(map(str, counts))} |")
        for name, record in sorted(ours.items()):
            reason = record.get("failure") or record.get("compiled")
            if reason:
                reasons.append(f"- {library}, {name}: {reason}")
    head = "| library | cases | right, eager | by float64 | compiled runs | equal to eager |"
    table = [head, "| --- | --- | --- | --- | --- | --- |", *rows]
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
