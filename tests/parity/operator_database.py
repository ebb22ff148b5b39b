"""PyTorch's own operator database through Flambeau: `python -m tests.parity.operator_database`.

Worker processes check one entry in one dtype at a time; one that dies or hangs costs that check
alone. Results are JSON lines, kept between runs: `--resume` runs only what has none yet, `--failed`
only what failed, and every run rewrites docs/coverage.md from all of them, but for the section
that `module_coverage` computes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "operator_database.jsonl"
DTYPES = "float32 float64 int64 bool complex64 bfloat16 float16".split()
WHAT = "forward gradient double_gradient forward_mode variants errors".split()
SECONDS = 240  # of one check, then its worker is ended
Task = tuple[int, str, str]


def database() -> list[Any]:
    """PyTorch's entries: the operators, then the foreach families."""
    from torch.testing._internal import common_methods_invocations as known

    foreach = [
        entry
        for family in ("unary", "binary", "pointwise", "reduce", "other")
        for entry in getattr(known, f"foreach_{family}_op_db")
    ]
    return list(known.op_db) + foreach


def worker(channel: Connection, limit: int) -> None:
    """Serves checks until the channel closes."""
    import torch

    import flambeau
    from tests.parity.entry_checks import run_check

    torch.set_num_threads(1)
    flambeau.set_num_threads(1)
    entries = database()
    while True:
        try:
            index, dtype, check = channel.recv()
        except EOFError:
            return
        records = run_check(entries[index], getattr(torch, dtype), check, limit)
        channel.send([record.as_dict() for record in records])


class Worker:
    """A process with what it is doing."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.task: Task | None = None
        self.started = 0.0
        self.start()

    def start(self) -> None:
        """Begins a fresh process."""
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=worker, args=(theirs, self.limit), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, task: Task) -> None:
        """Hands out a check."""
        self.task, self.started = task, time.monotonic()
        self.channel.send(task)

    def result(self) -> list[dict[str, Any]] | str:
        """Records, or why there are none; the process is then a new one."""
        try:
            found: list[dict[str, Any]] = self.channel.recv()
            return found
        except (EOFError, ConnectionResetError):
            self.process.join(5)
            reason = f"the process ended with status {self.process.exitcode}"
            self.start()
            return reason

    def hangs(self) -> bool:
        """Whether the check takes too long (the first one pays for the imports)."""
        return self.task is not None and time.monotonic() - self.started > SECONDS

    def end(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.join()


def run(tasks: list[Task], names: list[str], limit: int, processes: int, results: Path) -> None:
    """Does the tasks and appends their records to `results`."""
    results.parent.mkdir(parents=True, exist_ok=True)
    waiting, workers = list(reversed(tasks)), [Worker(limit) for _ in range(processes)]
    total, began = len(tasks), time.monotonic()
    with results.open("a") as file:
        while waiting or any(w.task for w in workers):
            for idle in workers:
                if idle.task is None and waiting:
                    idle.give(waiting.pop())
            ready = wait([w.channel for w in workers if w.task], timeout=2)
            for one in workers:
                if one.task is None or not (one.channel in ready or one.hangs()):
                    continue
                if one.channel not in ready:
                    one.process.kill()
                (index, dtype, check), found = one.task, one.result()
                one.task = None
                if isinstance(found, str):
                    found = [{"entry": names[index], "dtype": dtype, "check": check,
                              "samples": 1, "failed": 1, "reason": found}]  # fmt: skip
                for record in found:
                    record["limit"] = limit
                line = {"task": [names[index], dtype, check], "records": found}
                file.write(json.dumps(line) + "\n")
                file.flush()
                done = total - len(waiting)
                if done % 100 == 0:
                    print(f"{done}/{total} checks, {time.monotonic() - began:.0f} s", flush=True)
    for one in workers:
        one.end()


def read(results: Path) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """The newest records of every task."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    if results.exists():
        for line in results.read_text().splitlines():
            item = json.loads(line)
            found[tuple(item["task"])] = item["records"]
    return found


def _fails(found: list[dict[str, Any]]) -> bool:
    return any(record["failed"] for record in found)


def planned(options: argparse.Namespace) -> tuple[list[Task], list[str]]:
    """The checks that were asked for, and the names of all entries."""
    import torch

    from tests.parity.entry_checks import entry_name

    entries = database()
    names = [entry_name(entry) for entry in entries]
    known = read(options.results)
    done = known if options.resume else {}
    tasks = []
    for check in options.what:
        for index, entry in enumerate(entries):
            if options.entries and not re.search(options.entries, names[index]):
                continue
            supported = entry.supported_dtypes("cpu")
            for dtype in options.dtypes:
                if check == "errors" and dtype != "float32":
                    continue
                wanted = check == "errors" or getattr(torch, dtype) in supported
                if "gradient" in check and dtype not in ("float32", "float64"):
                    continue
                if check in ("double_gradient", "forward_mode") and dtype != "float64":
                    continue
                if options.failed and not _fails(known.get((names[index], dtype, check), [])):
                    continue
                if wanted and (names[index], dtype, check) not in done:
                    tasks.append((index, dtype, check))
    return tasks, names


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", help="regular expression for the names")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES)
    parser.add_argument("--what", nargs="+", default=WHAT, choices=WHAT)
    parser.add_argument("--samples", type=int, default=0, help="at most so many, 0: all")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--resume", action="store_true", help="only what has no result yet")
    parser.add_argument("--failed", action="store_true", help="only what failed the last time")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "coverage.md")
    parser.add_argument("--no-page", action="store_true", help="leave docs/coverage.md alone")
    options = parser.parse_args()
    from tests.parity import coverage_page, module_coverage, page_sections

    tasks, names = planned(options)
    run(tasks, names, options.samples, options.processes, options.results)
    known = {key: found for key, found in read(options.results).items() if key[0] in names}
    if not options.no_page:
        modules = page_sections.section(options.page.read_text(), module_coverage.TITLE)
        page = coverage_page.page(names, known)
        options.page.write_text(page_sections.replaced(page, modules))
    asked = {(names[index], dtype, check) for index, dtype, check in tasks}
    print(coverage_page.summary({key: known[key] for key in known if key in asked}))


if __name__ == "__main__":
    main()
