"""Process replay: a refactoring must regenerate every kernel of the op table without a difference.

    python -m tools.process_replay dump FILE            # texts of all kernels of this checkout
    python -m tools.process_replay compare OLD NEW      # which operators' kernels changed, and how
    python -m tools.process_replay against COMMIT       # dump both, compare

`against` checks the other commit out into a temporary worktree and runs it on this checkout's
native core, so it is for changes of Python code: ops, derivatives, scheduler, printer. Kernels are
collected, never compiled, so a dump takes seconds.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DTYPES = ("f32", "f64", "bf16", "i64")
# The sizes of their kernels come from data, which collected kernels do not compute.
DATA_DEPENDENT = frozenset(("nn.functional.one_hot",))
SHOWN = 3  # differences that are printed in full

Dump = dict[str, list[str]]  # "operator dtype" -> texts of its kernels, in order


def collect(operators: Sequence[str] = ()) -> Dump:
    """Texts of the kernels, forward and backward, of these operators; else of the op table."""
    definition: Any = importlib.import_module("flambeau.language.definition")
    workload: Any = importlib.import_module("tools.workload")
    dry_run: Any = importlib.import_module("flambeau.compiler.dry_run")
    importlib.import_module("flambeau")
    sampled = operators or [
        name
        for name, operator in definition.REGISTRY.items()
        if name not in DATA_DEPENDENT
        and any(o.options.samples is not None for o in operator.overloads)
    ]
    names = [(name, dtype) for name in sampled for dtype in DTYPES]
    calls = [functools.partial(workload.call, *name) for name in names]
    return {" ".join(names[position]): texts for position, texts in dry_run.dry_run(calls, _texts)}


def _texts(kernels: list[Any]) -> dict[str, None]:
    return dict.fromkeys(kernel.text() for kernel in kernels)


def compare(old: Dump, new: Dump) -> list[str]:
    """A report, empty if nothing changed: one line per operator, the first few with a diff."""
    report, shown = [], 0
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if before is None or after is None:
            report.append(f"{key}: {'new' if before is None else 'gone'}")
            continue
        report.append(f"{key}: {len(before)} kernels, now {len(after)}")
        if shown < SHOWN:
            shown += 1
            left, right = ("\n".join(texts).splitlines() for texts in (before, after))
            report += difflib.unified_diff(left, right, "before", "after", lineterm="", n=2)
    return report


def _dump_in(directory: Path) -> Dump:
    """The dump of another checkout, by its own process."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "dump"
        command = [sys.executable, str(Path(__file__).resolve()), "dump", str(path)]
        environment = os.environ | {"PYTHONPATH": str(directory)}
        subprocess.run(command, cwd=directory, env=environment, check=True)
        loaded: Dump = json.loads(path.read_text())
        return loaded


def against(commit: str) -> list[str]:
    """Compares this checkout with a commit."""
    with tempfile.TemporaryDirectory() as scratch:
        other = Path(scratch) / "checkout"
        subprocess.run(
            ["git", "worktree", "add", "--detach", "--quiet", str(other), commit],
            cwd=ROOT,
            check=True,
        )
        try:
            for module in (ROOT / "flambeau").glob("_core.*.so"):
                shutil.copy(module, other / "flambeau" / module.name)
            return compare(_dump_in(other), _dump_in(ROOT))
        finally:
            subprocess.run(
                ["git", "worktree", "remove", "--force", str(other)], cwd=ROOT, check=False
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 1 if kernels changed."""
    parser = argparse.ArgumentParser(prog="process_replay", description="Compare all kernels.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("dump").add_argument("file", type=Path)
    two = commands.add_parser("compare")
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    commands.add_parser("against").add_argument("commit")
    options = parser.parse_args(arguments)
    if options.command == "dump":
        dump = collect()
        options.file.write_text(json.dumps(dump, indent=0))
        print(f"[replay] {sum(map(len, dump.values()))} kernels of {len(dump)} calls")
        return 0
    if options.command == "compare":
        report = compare(*(json.loads(path.read_text()) for path in (options.old, options.new)))
    else:
        report = against(options.commit)
    print("\n".join(report) or "[replay] every kernel is the same")
    return int(bool(report))


if __name__ == "__main__":
    raise SystemExit(main())
