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
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DTYPES = ("f32", "f64", "bf16", "i64")
# The sizes of their kernels come from data, which collected kernels do not compute.
DATA_DEPENDENT = frozenset(("nn.functional.one_hot",))
SHOWN = 3  # differences that are printed in full

Dump = dict[str, list[str]]  # "operator dtype" -> texts of its kernels, in order


def kernels(name: str, dtype: str) -> list[str]:
    """Texts of the kernels that one operator's samples need, forward and backward."""
    codegen: Any = importlib.import_module("flambeau.compiler.codegen")
    prefill: Any = importlib.import_module("flambeau.compiler.prefill")
    with codegen.collect() as collected:
        prefill._call(name, dtype)
    return list(dict.fromkeys(kernel.text() for kernel in collected))


def _child(names: Sequence[tuple[str, str]], start: int, path: Path) -> None:
    importlib.import_module("flambeau").set_num_threads(1)
    with path.open("a") as stream, open(os.devnull, "w") as quiet:
        os.dup2(quiet.fileno(), 2)
        for position in range(start, len(names)):
            name, dtype = names[position]
            stream.write(json.dumps([position, None]) + "\n")
            stream.flush()
            with suppress(Exception):
                stream.write(json.dumps([position, kernels(name, dtype)]) + "\n")


def collect() -> Dump:
    """All kernel texts of the op table.

    The calls run in forked children: with kernels that compute nothing, a native routine may crash
    on the values it gets; another child goes on after that call.
    """
    definition: Any = importlib.import_module("flambeau.core.definition")
    importlib.import_module("flambeau")
    sampled = [
        name
        for name, operator in definition.REGISTRY.items()
        if name not in DATA_DEPENDENT
        and any(o.options.samples is not None for o in operator.overloads)
    ]
    names = [(name, dtype) for name in sampled for dtype in DTYPES]
    dump: Dump = {}
    start = 0
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "kernels"
        while start < len(names):
            path.unlink(missing_ok=True)
            child = os.fork()
            if child == 0:
                try:
                    _child(names, start, path)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            for position, texts in _records(path):
                start = position + 1
                if texts is not None:
                    dump[" ".join(names[position])] = texts
    return dump


def _records(path: Path) -> Iterator[tuple[int, list[str] | None]]:
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):  # the last line of a crashed child may be torn
            position, texts = json.loads(line)
            yield position, texts


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
