"""Compile time against depth: encoders of 6 and 48 equal layers, and the first compiled block.

Compile time is the time of the first calls beyond that of as many later ones. "cold" starts with
empty caches in a fresh process, "warm" in another one with the caches that the cold one left;
importing is no part of it. `wait` compiles kernels before the first run, `background` (the default)
starts on the baseline. Processor time includes the C compilers that the process ran itself; of
`background`, whose worker outlives the first calls, it is the process's own.
A row compares a program of 48 layers with one of 6; the block's rows compare it with a limit.
"Regional" compiles each of 12 layers (`for layer in layers: layer.compile()`) instead of the model.

    python -m bench compiled_layers
    python -m bench.compiled_layers inference 48             # one program, in this process
    python -m bench.compiled_layers inference 12 regional    # layer by layer, or `model` as one
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from bench.harness import Row, publish

FEW, MANY = 6, 48
REGIONS = 12
REGIONAL_AIM = 1 / 3  # of the time to compile the model as one
AIM = 1.15  # of the deeper program's time
BLOCK_SECONDS = 0.6  # aim of the first compiled block, cold
WIDTH, HEADS, BATCH, LENGTH = 64, 2, 4, 32
BLOCK_WIDTH, BLOCK_HEADS = 256, 4
FIRST, LATER = 3, 7  # calls; the second step of an optimizer that has state is another program
KINDS = ("inference", "training")
MODES = ("wait", "background")
Figures = dict[str, float]


def program(t: Any, kind: str, layers: int, form: str = "step") -> Callable[[], Any]:
    """An encoder's forward or training step, or one block's forward, alone or with backward.

    Args:
        t: the framework.
        kind: "inference", "gradients" or "training".
        layers: how many.
        form: what is compiled: the "step", the "model", or "regional", each layer.
    """
    t.manual_seed(0)
    width, heads = (WIDTH, HEADS) if layers > 1 else (BLOCK_WIDTH, BLOCK_HEADS)
    layer = t.nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True)
    model = t.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    x = t.randn(BATCH, LENGTH, width)
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-3)
    for part in {"step": [], "model": [model], "regional": model.layers}[form]:
        part.compile()

    def inference() -> Any:
        with t.no_grad():
            return model(x).sum()

    def gradients() -> Any:
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    def training() -> Any:
        loss = gradients()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step = {"inference": inference, "gradients": gradients, "training": training}[kind]
    return t.compile(step) if form == "step" else step  # type: ignore[no-any-return]


def processor() -> float:
    """Processor seconds of this process and of those it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def child(kind: str, layers: int, form: str = "step") -> Figures:
    """Seconds of the first call, of compiling and of later calls, and how many graphs there are."""
    import flambeau
    from flambeau._dynamo.utils import counters

    step = program(flambeau, kind, layers, form)
    walls, processors = [], []
    for _ in range(FIRST + LATER):
        wall, work = time.perf_counter(), processor()
        step().item()
        walls.append(time.perf_counter() - wall)
        processors.append(processor() - work)
    return {
        "first": walls[0],
        "wall": _beyond(walls),
        "processor": _beyond(processors),
        "later": min(walls[FIRST:]),
        "graphs": counters["stats"]["unique_graphs"],
        "threads": flambeau.get_num_threads(),
    }


def _beyond(times: list[float]) -> float:
    """The time of the first calls beyond that of as many later ones."""
    return sum(times[:FIRST]) - FIRST * statistics.median(times[FIRST:])


def measured(mode: str, cache: str, kind: str, layers: int, form: str = "step") -> Figures:
    """Figures of a fresh process, its caches in a folder."""
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": cache, "FLAMBEAU_COMPILER": mode}
    command = [sys.executable, "-m", "bench.compiled_layers", kind, str(layers), form]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"[bench] {command[2:]} failed\n{done.stderr[-3000:]}")
    figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def depths(mode: str, kind: str) -> list[Row]:
    """Cold and warm, wall and processor seconds of the deep program beside the shallow one."""
    phases: dict[str, list[Figures]] = {"cold": [], "warm": []}
    for layers in (MANY, FEW):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
            for measurements in phases.values():
                measurements.append(measured(mode, cache, kind, layers))
    return [
        Row(
            f"{kind}, {phase}, {clock}",
            many[clock],
            few[clock],
            many[clock] / few[clock],
            int(many["threads"]),
        )
        for phase, (many, few) in phases.items()
        for clock in ("wall", "processor")
    ]


def regions(kind: str) -> list[Row]:
    """Layers that are compiled one by one, beside the model that is compiled as one."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        for phase in ("cold", "warm"):
            one, all_ = (
                measured("wait", os.path.join(cache, form), kind, REGIONS, form)
                for form in ("regional", "model")
            )
            clocks = ("wall", "processor") + ("later", "graphs") * (phase == "warm")
            rows += [
                Row(
                    f"{kind}, {phase}, {clock}",
                    one[clock],
                    all_[clock],
                    one[clock] / all_[clock],
                    int(one["threads"]),
                )
                for clock in clocks
            ]
    return rows


def blocks(mode: str) -> list[Row]:
    """The first call of one compiled block with empty caches, beside the aim."""
    rows = []
    for kind in ("inference", "gradients"):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
            figures = measured(mode, cache, kind, 1)
        first, threads = figures["first"], int(figures["threads"])
        ratio = first / BLOCK_SECONDS
        rows.append(Row(f"{kind}, first call", first, BLOCK_SECONDS, ratio, threads))
    return rows


def main() -> None:
    """Measures everything, prints the tables and writes them beside the others."""
    tables: list[tuple[str, list[Row], float | None]] = []
    peers = []
    for mode in MODES:
        title = f"Compile time of {MANY} equal layers against {FEW}, {mode}"
        tables.append((title, [row for kind in KINDS for row in depths(mode, kind)], AIM))
        tables.append((f"The first compiled block, cold, {mode}", blocks(mode), 1.0))
        peers += [(f"{MANY} layers", f"{FEW} layers"), ("flambeau", "aim")]
    title = f"Compile time of {REGIONS} layers, each by itself, against the model as one"
    tables.append((title, [row for kind in KINDS for row in regions(kind)], None))
    peers.append(("regional", "model"))
    publish("compiled_layers", tables, peers=peers)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(child(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])))
    else:
        main()
