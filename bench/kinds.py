"""Programs, eager and compiled, of both frameworks: what `whole_models` and `compiled` share.

Each program, mode and number of threads has a process of its own with empty caches; there "cold"
counts from the first call of a compiled function to its result, less one steady call, and "warm" is
the same in a second process. Weights and inputs are equal, and so must be the first losses of both
packages. A command line of program names measures those; the rows of others stay as they were.

    --quick     without what needs PyTorch's compiler
    --prepare   compiles into a kept folder, measures nothing
    --prepared  with what lies there, less the cold compilations
    -1, -2      one thread only, two only
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from bench.harness import RESULTS, Row, block, compare, publish

MODES = ("inference", "training")
KINDS = ("eager", "compiled")
FRAMEWORKS = ("flambeau", "torch")
NAMES = {"torch": "PyTorch", "flambeau": "our own"}
PAIRS = (  # what we run, against what
    ("eager", "torch", "eager"),
    ("compiled", "torch", "eager"),
    ("compiled", "flambeau", "eager"),
    ("compiled", "torch", "compiled"),  # last: PyTorch's compiler takes longer than all the rest
)
TITLES = {
    (mode, *pair): f"{mode.capitalize()}, {pair[0]} against {NAMES[pair[1]]} {pair[2]}"
    for mode in MODES
    for pair in PAIRS
}
COLD, WARM = "Compilation, cold", "Compilation, warm"
ROUNDS = 5
OWN_ROUNDS = 21  # two steps of our own may differ by 2 %, less than one round's noise

Step = Callable[[], float]


@dataclass(frozen=True)
class Suite:
    """Programs that are measured together.

    Attributes:
        name: of its module and its results.
        titles: of its programs, by name.
        steps: makes a program's eager and compiled step, of a framework and a mode.
        aims: of ratios, by what we are compared with (`NAMES` and a kind).
        cold: aim of cold compilation; warm: of warm compilation.
    """

    name: str
    titles: Mapping[str, str]
    steps: Callable[[str, str, str], dict[str, Step]]
    aims: Mapping[str, float]
    cold: float
    warm: float

    def bounds(self) -> dict[str, float]:
        """The aim of each table."""
        aims = {t: next(a for n, a in self.aims.items() if t.endswith(n)) for t in TITLES.values()}
        return {**aims, COLD: self.cold, WARM: self.warm}

    def prepared(self, name: str, mode: str, threads: int) -> str:
        """The folder where `--prepare` compiles for one process."""
        root = RESULTS.parents[1] / "build" / self.name
        return str(root / f"{name.replace(' ', '_')}-{mode}-{threads}")


def child(suite: Suite, name: str, mode: str, threads: int, what: str) -> None:
    """Measures one model in this process; prints JSON.

    Args:
        what: "all", "quick" (nothing that needs PyTorch's compiler) or "first" (only first calls).
    """
    calls = {framework: suite.steps(framework, name, mode) for framework in FRAMEWORKS}
    ours, theirs = calls.values()
    for framework in FRAMEWORKS:
        __import__(framework).set_num_threads(threads)
    losses = [ours["eager"](), theirs["eager"]()]
    if not math.isclose(*losses, rel_tol=1e-4):
        raise RuntimeError(f"[bench] {name}: first losses differ: {losses}")
    first = [] if what == "quick" else _first_calls(ours["compiled"], theirs["compiled"])
    pairs = {"all": PAIRS if first else PAIRS[:-1], "quick": PAIRS[:-1], "first": ()}[what]
    rows = []
    for mine, framework, other in pairs:
        rounds = ROUNDS if framework == "torch" else OWN_ROUNDS
        peer = calls[framework][other]
        row = compare(suite.titles[name], ours[mine], peer, rounds, 0.2, threads)
        row.note = "" if framework == "torch" else "second time: our own"
        rows.append(asdict(row))
    print(json.dumps({"first": first, "rows": rows}))


def _first_calls(ours: Step, theirs: Step) -> list[float]:
    """Both first calls; nothing where PyTorch does not compile the program."""
    first = first_call(ours)
    try:
        return [first, first_call(theirs)]
    except RuntimeError as error:
        print(f"[bench] PyTorch's compiled step raises: {error}", file=sys.stderr)
        return []


def first_call(call: Step) -> float:
    """Seconds that the first call takes longer than a steady one."""
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    second = block(call, 1)  # an optimizer's second step differs from its first
    steady = statistics.median(block(call, 1) for _ in range(3))
    return max(first + second - 2 * steady, 1e-6)


def measure(suite: Suite, name: str, mode: str, threads: int, caches: str, what: str) -> Any:
    """Runs `child` in a fresh process whose caches live in `caches`."""
    environment = os.environ | {
        "FLAMBEAU_CACHE_DIR": f"{caches}/flambeau",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/torch",
        "TRITON_CACHE_DIR": f"{caches}/triton",
    }
    words = ["--child", name, mode, str(threads), what]
    command = [sys.executable, "-m", f"bench.{suite.name}", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"[bench] {name} {mode} failed\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def rows_of(
    suite: Suite, name: str, threads: int, what: str, prepared: bool
) -> dict[str, list[Row]]:
    """All rows of one model with one number of threads, by table."""
    tables: dict[str, list[Row]] = {}
    for mode in MODES:
        if prepared:
            result = measure(suite, name, mode, threads, suite.prepared(name, mode, threads), what)
            firsts = {}
        else:
            with tempfile.TemporaryDirectory() as caches:
                result = measure(suite, name, mode, threads, caches, what)
                firsts = {COLD: result["first"]} if result["first"] else {}
                if firsts and threads == 2:
                    firsts[WARM] = measure(suite, name, mode, threads, caches, "first")["first"]
        for pair, row in zip(PAIRS, result["rows"], strict=False):
            tables.setdefault(TITLES[mode, *pair], []).append(Row(**row))
        for title, (ours, theirs) in firsts.items():
            label = f"{suite.titles[name]}, {mode}"
            tables.setdefault(title, []).append(Row(label, ours, theirs, ours / theirs, threads))
    return tables


def earlier(suite: Suite) -> dict[str, list[Row]]:
    """The tables of the last results."""
    path = RESULTS / f"{suite.name}.json"
    tables = json.loads(path.read_text())["tables"] if path.exists() else {}
    return {title: [Row(**row) for row in tables.get(title, [])] for title in suite.bounds()}


def command(suite: Suite) -> None:
    """Measures the programs that the command line names, or all; publishes after each."""
    if sys.argv[1:2] == ["--child"]:
        name, mode, threads_, what = sys.argv[2:]
        child(suite, name, mode, int(threads_), what)
        return
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if unknown := [word for word in words if word not in suite.titles]:
        raise SystemExit(f"[bench] no such program: {unknown}\nhint: one of {list(suite.titles)}")
    names = words or list(suite.titles)
    what = "quick" if "--quick" in sys.argv else "all"
    counts = [n for n in (2, 1) if f"-{n}" in sys.argv] or [2, 1]
    for threads, name in itertools.product(counts, names):
        if "--prepare" in sys.argv:
            for mode in MODES:
                measure(suite, name, mode, threads, suite.prepared(name, mode, threads), "first")
        else:
            rows = rows_of(suite, name, threads, what, "--prepared" in sys.argv)
            renew(suite, name, threads, rows)


def renew(suite: Suite, name: str, threads: int, new: dict[str, list[Row]]) -> None:
    """Publishes the tables with the new rows of one program."""
    tables = earlier(suite)
    for title, rows in new.items():
        others = [row for row in tables[title] if not _replaced(suite, row, name, threads)]
        tables[title] = sorted(others + rows, key=partial(_place, suite))
    bounds = suite.bounds()
    publish(suite.name, [(t, rows, bounds[t]) for t, rows in tables.items() if rows])


def _replaced(suite: Suite, row: Row, name: str, threads: int) -> bool:
    return row.threads == threads and row.name.startswith(suite.titles[name])


def _place(suite: Suite, row: Row) -> tuple[int, int, str]:
    """Rows stand in the order of the suite; those of programs that are gone come last."""
    order = [k for k, title in enumerate(suite.titles.values()) if row.name.startswith(title)]
    return (order or [len(suite.titles)])[0], row.threads, row.name
