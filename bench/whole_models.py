"""Whole models of examples/models: inference and training steps, eager and compiled.

    python -m bench.whole_models              all of them (most of the time is PyTorch's compiler)
    python -m bench.whole_models resnet lstm  these; the rows of others stay as they were
    python -m bench.whole_models --quick      without what needs PyTorch's compiler
    python -m bench.whole_models --prepare    compiles into a kept folder, measures nothing
    python -m bench.whole_models --prepared   with what lies there, less the cold compilations
    python -m bench.whole_models -1           one thread only (-2: two)

Layers have the width of the papers; depth, vocabulary and inputs are cut so that two cores need
some hundred milliseconds a step. Each model, mode and number of threads has a process of its own
with empty caches; there "cold" counts from the first call of a compiled function to its result,
less one steady call, and "warm" is the same in a second process. Weights and inputs are equal, and
so must be the first losses of both packages.
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
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
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
PREPARED = RESULTS.parents[1] / "build" / "whole_models"
COLD, WARM = "Compilation, cold", "Compilation, warm"
AIMS = {"our own eager": 1.02, "PyTorch eager": 0.7, "PyTorch compiled": 0.75}
BOUNDS = {
    **{t: next(a for name, a in AIMS.items() if t.endswith(name)) for t in TITLES.values()},
    COLD: 0.1,
    WARM: 0.1,
}


@dataclass
class Case:
    """A model at the size that is measured."""

    title: str
    batch: int
    sizes: dict[str, Any] = field(default_factory=dict)
    optimizer: str = "AdamW"


ROUNDS = 5
OWN_ROUNDS = 21  # two steps of our own may differ by 2 %, less than one round's noise
CASES = {
    "resnet": Case("ResNet-50, 2 images of 112 x 112", 2, {"image": 112}, "SGD"),
    "unet": Case("U-Net of width 32, 1 image of 128 x 128", 1, {"width": 32, "image": 128}, "SGD"),
    "gpt2": Case(
        "GPT-2, 4 layers, 1 x 128 tokens",
        1,
        {"layers": 4, "vocabulary": 8192, "context": 128},
    ),
    "bert": Case(
        "BERT, 4 layers, 2 x 64 tokens",
        2,
        {"layers": 4, "vocabulary": 8192, "context": 64},
    ),
    "vit": Case("ViT-S/16, 1 image of 224 x 224", 1, {"image": 224}),
    "lstm": Case("LSTM, 2 layers of 650, 8 x 20 tokens", 8, {"context": 20}),
}

Step = Callable[[], float]


def steps(framework: str, name: str, mode: str) -> dict[str, Step]:
    """The eager and the compiled step of a model; each kind has a model of its own."""
    t, case = __import__(framework), CASES[name]
    return {kind: _step(t, case, name, mode, kind) for kind in KINDS}


def _step(t: Any, case: Case, name: str, mode: str, kind: str) -> Step:
    from examples.models import build

    t.manual_seed(0)
    model = build(name, t.__name__, **case.sizes)
    batch = model.example(case.batch)
    if mode == "inference":
        model.eval()
        loss = t.compile(model.loss) if kind == "compiled" else model.loss

        def infer() -> float:
            with t.no_grad():
                return loss(*batch).item()

        return infer
    options = {"momentum": 0.9} if case.optimizer == "SGD" else {}
    optimizer = getattr(t.optim, case.optimizer)(model.parameters(), lr=1e-4, **options)

    def step(inputs: Any, targets: Any) -> Any:
        loss = model.loss(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    call = t.compile(step) if kind == "compiled" else step
    return lambda: call(*batch).item()


def child(name: str, mode: str, threads: int, what: str) -> None:
    """Measures one model in this process; prints JSON.

    Args:
        what: "all", "quick" (nothing that needs PyTorch's compiler) or "first" (only first calls).
    """
    calls = {framework: steps(framework, name, mode) for framework in FRAMEWORKS}
    ours, theirs = calls.values()
    for framework in FRAMEWORKS:
        __import__(framework).set_num_threads(threads)
    losses = [ours["eager"](), theirs["eager"]()]
    if not math.isclose(*losses, rel_tol=1e-4):
        raise RuntimeError(f"[bench] {name}: first losses differ: {losses}")
    first = [] if what == "quick" else [first_call(kind["compiled"]) for kind in (ours, theirs)]
    pairs = {"all": PAIRS, "quick": PAIRS[:-1], "first": ()}[what]
    rows = []
    for mine, framework, other in pairs:
        rounds = ROUNDS if framework == "torch" else OWN_ROUNDS
        row = compare(CASES[name].title, ours[mine], calls[framework][other], rounds, 0.2, threads)
        row.note = "" if framework == "torch" else "second time: our own"
        rows.append(asdict(row))
    print(json.dumps({"first": first, "rows": rows}))


def first_call(call: Step) -> float:
    """Seconds that the first call takes longer than a steady one."""
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    second = block(call, 1)  # an optimizer's second step differs from its first
    steady = statistics.median(block(call, 1) for _ in range(3))
    return max(first + second - 2 * steady, 1e-6)


def measure(name: str, mode: str, threads: int, caches: str, what: str) -> Any:
    """Runs `child` in a fresh process whose caches live in `caches`."""
    environment = os.environ | {
        "FLAMBEAU_CACHE_DIR": f"{caches}/flambeau",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/torch",
        "TRITON_CACHE_DIR": f"{caches}/triton",
    }
    words = ["--child", name, mode, str(threads), what]
    command = [sys.executable, "-m", "bench.whole_models", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"[bench] {name} {mode} failed\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def prepared(name: str, mode: str, threads: int) -> str:
    """The folder where `--prepare` compiles for one process."""
    return str(PREPARED / f"{name}-{mode}-{threads}")


def rows_of(name: str, threads: int, what: str, kept: bool) -> dict[str, list[Row]]:
    """All rows of one model with one number of threads, by table."""
    found: dict[str, list[Row]] = {}
    for mode in MODES:
        if kept:
            result = measure(name, mode, threads, prepared(name, mode, threads), what)
            firsts = {}
        else:
            with tempfile.TemporaryDirectory() as caches:
                result = measure(name, mode, threads, caches, what)
                firsts = {COLD: result["first"]} if result["first"] else {}
                if firsts and threads == 2:
                    firsts[WARM] = measure(name, mode, threads, caches, "first")["first"]
        for pair, row in zip(PAIRS, result["rows"], strict=False):
            found.setdefault(TITLES[mode, *pair], []).append(Row(**row))
        for title, (ours, theirs) in firsts.items():
            label = f"{CASES[name].title}, {mode}"
            found.setdefault(title, []).append(Row(label, ours, theirs, ours / theirs, threads))
    return found


def earlier() -> dict[str, list[Row]]:
    """The tables of the last results."""
    path = RESULTS / "whole_models.json"
    tables = json.loads(path.read_text())["tables"] if path.exists() else {}
    return {title: [Row(**row) for row in tables.get(title, [])] for title in BOUNDS}


def main() -> None:
    """Measures the models that the command line names, or all; publishes after each."""
    if sys.argv[1:2] == ["--child"]:
        name, mode, threads_, what = sys.argv[2:]
        child(name, mode, int(threads_), what)
        return
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if unknown := [word for word in words if word not in CASES]:
        raise SystemExit(f"[bench] no such model: {unknown}\nhint: one of {list(CASES)}")
    names = words or list(CASES)
    what = "quick" if "--quick" in sys.argv else "all"
    counts = [n for n in (2, 1) if f"-{n}" in sys.argv] or [2, 1]
    for threads, name in itertools.product(counts, names):
        if "--prepare" in sys.argv:
            for mode in MODES:
                measure(name, mode, threads, prepared(name, mode, threads), "first")
        else:
            renew(name, threads, rows_of(name, threads, what, "--prepared" in sys.argv))


def renew(name: str, threads: int, found: dict[str, list[Row]]) -> None:
    """Publishes the tables with the new rows of one model."""
    tables = earlier()
    for title, rows in found.items():
        kept = [row for row in tables[title] if not _replaced(row, name, threads)]
        tables[title] = sorted(kept + rows, key=_place)
    publish("whole_models", [(t, rows, BOUNDS[t]) for t, rows in tables.items() if rows])


def _replaced(row: Row, name: str, threads: int) -> bool:
    return row.threads == threads and row.name.startswith(CASES[name].title)


def _place(row: Row) -> tuple[int, int, str]:
    """Rows stand in the order of `CASES`; those of models that are gone come last."""
    order = [k for k, case in enumerate(CASES.values()) if row.name.startswith(case.title)]
    return (order or [len(CASES)])[0], row.threads, row.name


if __name__ == "__main__":
    main()
