"""The first training step of small models, beside PyTorch: a fresh process each, no kernel cached.

    python -m bench first_step              all twelve of bench/small_models.py
    python -m bench.first_step GNN LSTM     these; prints, writes nothing
    python -m bench.first_step --rounds 3

A process imports the framework, makes a model with its data and optimizer, and takes two steps
(forward, loss, backward, optimizer, `loss.item()`). The total is the time from before the import to
the first loss. Ours starts with an empty FLAMBEAU_CACHE_DIR and FLAMBEAU_COMPILER=background, has
the kernels that come with the package and no others. Both frameworks choose their threads by
themselves. Their processes take turns; the ratio is the median of the rounds' ratios. The ratio of
processor times counts what all threads do until the first loss, with the compilers that our program
waits for: other programs on the machine change it less. Weights and data are equal, and so must be
the losses.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.harness import RESULTS, Row, duration, geometric_mean, machine
from bench.small_models import MODELS

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 5
MEAN_BAR, WORST_BAR = 0.3, 0.6  # of the ratios of totals
STEP_BAR = 0.15  # seconds: the median of our first steps, without import
FRAMEWORKS = ("flambeau", "torch")
POLICY = "background"
COMPILED = 0.01  # seconds of processes: `gcc --version` takes 0.002, one line of C 0.02
TOLERANCES = (1e-3, 1e-2)  # of the losses: the second step has what the first one rounded
# Imports nothing before the framework that the framework would import itself.
CHILD = """
import sys, time
begin, used = time.perf_counter(), time.process_time()
import {framework} as torch
imported = time.perf_counter()
from bench import small_models
step = small_models.training_step(torch, {name!r})
built = time.perf_counter()
losses = [step()]
first, processor = time.perf_counter(), time.process_time() - used
losses.append(step())
second = time.perf_counter()
import json, resource
found = dict(start=imported - begin, construction=built - imported, first=first - built)
found.update(second=second - first, total=first - begin, losses=losses)
children = resource.getrusage(resource.RUSAGE_CHILDREN)
found["compiler"] = children.ru_utime + children.ru_stime
found["processor"] = processor + found["compiler"]
found["threads"] = torch.get_num_threads()
if {framework!r} == "flambeau":
    from flambeau import _core
    found["baseline"] = len(_core.baseline_plans())
    found["plans"] = _core.plan_cache_stats()["plans"] + _core.stream_stats()["plans"]
print(json.dumps(found))
"""
PREBUILT = """
from flambeau.compiler import codegen, targets
from flambeau.compiler.baseline.variants import variants
kernels = list(variants(targets.current()))
print(sum(codegen.present([kernel]) is not None for kernel in kernels), "of", len(kernels))
"""


@dataclass
class Step:
    """What one process measures: seconds, unless said otherwise.

    Attributes:
        start: the import.
        construction: model, data and optimizer.
        first: the first step.
        second: the next one.
        total: import, construction and first step.
        processor: processor time of the total.
        losses: those of both steps.
        compiler: processor time of processes that ended before the second step did: compilers that
            the program waited for. The worker that compiles in the background runs on.
        threads: how many the framework uses.
        baseline: plans that run on the baseline after the second step.
        plans: all plans; 0 for PyTorch.
    """

    start: float
    construction: float
    first: float
    second: float
    total: float
    processor: float
    losses: list[float]
    compiler: float
    threads: int
    baseline: int = 0
    plans: int = 0


@dataclass
class Model:
    """The rounds of one model, ours and PyTorch's."""

    name: str
    ours: list[Step]
    theirs: list[Step]

    def median(self, side: str, part: str) -> float:
        """The median of a part of `Step`, of "ours" or "theirs"."""
        return statistics.median(getattr(step, part) for step in getattr(self, side))

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios of totals."""
        return self.ratio_of("total")

    def ratio_of(self, part: str) -> float:
        """The median of the rounds' ratios of a part."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(getattr(a, part) / getattr(b, part) for a, b in pairs)

    @property
    def compiled(self) -> bool:
        """Whether a compiler ran in the foreground in any round."""
        return any(step.compiler > COMPILED for step in self.ours)


def step(framework: str, name: str) -> Step:
    """The two steps of a model, in a process of its own with an empty cache."""
    return Step(**json.loads(run(CHILD.format(framework=framework, name=name))))


def run(code: str) -> str:
    """The last line that a program prints, in a fresh process with an empty cache.

    Raises:
        RuntimeError: the program failed.
    """
    unset = ("FLAMBEAU_", "OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(unset)}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        environment |= {"FLAMBEAU_CACHE_DIR": cache, "FLAMBEAU_COMPILER": POLICY}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"[bench] a process failed\n{code}\n{done.stderr[-3000:]}")
    return done.stdout.strip().splitlines()[-1]


def measure(name: str, rounds: int = ROUNDS) -> Model:
    """The rounds of a model: the frameworks take turns, and either begins every other round.

    Raises:
        RuntimeError: a process failed, or the losses differ.
    """
    steps: dict[str, list[Step]] = {framework: [] for framework in FRAMEWORKS}
    for number in range(rounds):
        for framework in FRAMEWORKS if number % 2 == 0 else FRAMEWORKS[::-1]:
            steps[framework].append(step(framework, name))
    model = Model(name, steps["flambeau"], steps["torch"])
    for ours, theirs in zip(model.ours, model.theirs, strict=True):
        check_losses(name, ours.losses, theirs.losses)
    return model


def check_losses(name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    """Compares the losses of both steps.

    Raises:
        RuntimeError: they differ, or are not finite.
    """
    triples = zip(ours, theirs, TOLERANCES, strict=True)
    if not all(math.isfinite(a) and math.isclose(a, b, rel_tol=t) for a, b, t in triples):
        raise RuntimeError(f"[bench] {name}: losses differ: {list(ours)}, {list(theirs)}")


def table(models: Sequence[Model]) -> str:
    """A line for each model: medians of both frameworks."""
    lines = [
        "| model | import | construction | first step | second step | total | PyTorch: import "
        "| construction | first step | second step | total | ratio of totals "
        "| of processor times | compiler in the foreground | plans on the baseline |",
        "| --- |" + " --- |" * 14,
    ]
    parts = ("start", "construction", "first", "second", "total")
    for model in models:
        times = [duration(model.median(s, p)) for s in ("ours", "theirs") for p in parts]
        compiler = duration(model.median("ours", "compiler")) if model.compiled else "no"
        last = model.ours[-1]
        lines.append(
            f"| {model.name} | {' | '.join(times)} | {model.ratio:.2f} "
            f"| {model.ratio_of('processor'):.2f} | {compiler} | {last.baseline} of {last.plans} |"
        )
    return "\n".join(lines)


def verdicts(models: Sequence[Model]) -> str:
    """The figures that have a bar, and whether they meet it."""
    worst = max(models, key=lambda model: model.ratio)
    mean = geometric_mean([model.ratio for model in models])
    processor = geometric_mean([model.ratio_of("processor") for model in models])
    first = statistics.median(model.median("ours", "first") for model in models)
    compiled = [model.name for model in models if model.compiled]
    return "\n".join(
        [
            f"Geometric mean of the ratios of totals: **{mean:.3f}** {_verdict(mean, MEAN_BAR)}",
            f"Worst ratio: **{worst.ratio:.3f}**, {worst.name} {_verdict(worst.ratio, WORST_BAR)}",
            f"Geometric mean of the ratios of processor times: {processor:.3f}",
            f"Median of our first steps without import: **{duration(first)}** "
            f"{_verdict(first, STEP_BAR, duration)}",
            f"A compiler ran in the foreground: {', '.join(compiled) or 'for no model'}",
        ]
    )


def _verdict(value: float, bar: float, show: Any = str) -> str:
    return f"(bar: at most {show(bar)}: {'ok' if value <= bar else 'over'})"


def publish(models: Sequence[Model], rounds: int) -> None:
    """Writes the table beside the results of the other parts."""
    about = machine() | {"FLAMBEAU_COMPILER": POLICY}
    about |= {
        "threads": models[0].ours[0].threads,
        "PyTorch's threads": models[0].theirs[0].threads,
    }
    about |= {
        "prebuilt template kernels present": run(PREBUILT),
        "rounds": rounds,
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    head = "# first_step\n\n" + ", ".join(f"{k} {v}" for k, v in about.items())
    text = f"{head}\n\n{table(models)}\n\n{verdicts(models).replace(chr(10), chr(10) * 2)}\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "first_step.md").write_text(text)
    rows = [asdict(_row(model)) for model in models]
    data = {"machine": about, "tables": {"total": rows}, "rounds": [asdict(m) for m in models]}
    (RESULTS / "first_step.json").write_text(json.dumps(data, indent=1))


def _row(model: Model) -> Row:
    totals = model.median("ours", "total"), model.median("theirs", "total")
    return Row(model.name, *totals, model.ratio, model.ours[0].threads)


def main(words: Sequence[str] = ()) -> None:
    """Measures the models that the words name, or all; writes the results of all only."""
    chosen, rounds = list(words), ROUNDS
    if "--rounds" in chosen:
        index = chosen.index("--rounds")
        rounds = int(chosen[index + 1])
        del chosen[index : index + 2]
    if unknown := [name for name in chosen if name not in MODELS]:
        raise SystemExit(f"[bench] no such model: {unknown}\nhint: one of {list(MODELS)}")
    names = chosen or list(MODELS)
    print(f"prebuilt template kernels present: {run(PREBUILT)} (`./go build` makes them)")
    for framework in FRAMEWORKS:
        step(framework, names[0])  # writes bytecode, and reads the files from the disk
    models = []
    for name in names:
        models.append(measure(name, rounds))
        print(table(models).splitlines()[-1], flush=True)
    if chosen:
        print(table(models), verdicts(models), sep="\n\n")
    else:
        publish(models, rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
