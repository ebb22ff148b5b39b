"""How planning grows with the program: deep models, and long lists of tensors.

Deep: a training step (forward, backward, AdamW: one compiled region) of transformer encoders with
3 to 96 layers. "cold" starts with empty caches, "warm" in a new process with the caches the cold
run left. Processor time leaves out the C compilers, which are processes of their own: it is what
planning takes. Wide: operators over lists of tensors, eager, beside PyTorch, first call and later.

    python -m bench growth                     # all of it
    python -m bench.growth deep 24             # one model, in this process
    python -m bench.growth wide flambeau cat 1000
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from bench.harness import RESULTS, block, duration, machine

LAYERS = (3, 6, 12, 24, 48, 96)
WIDTH, HEADS, BATCH, LENGTH = 64, 2, 4, 32
LISTS = (100, 1000, 10000)
PARAMETERS = 1600
WIDE = [(name, count) for name in ("cat", "stack") for count in LISTS] + [
    ("Adam.step", PARAMETERS),
    ("clip_grad_norm_", PARAMETERS),
]
CALLS = 3  # the first makes the optimizer's state, so that the second may be another program
Figures = dict[str, Any]


def training_step(t: Any, layers: int) -> Callable[[], Any]:
    """One step of a transformer encoder with AdamW; returns the loss."""
    t.manual_seed(0)
    layer = t.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True)
    model = t.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-3)
    x = t.randn(BATCH, LENGTH, WIDTH)

    def step() -> Any:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def deep(layers: int) -> Figures:
    """Wall and processor seconds of each call, and the nodes of the program."""
    import flambeau
    from flambeau.capture import stream

    step = flambeau.compile(training_step(flambeau, layers))
    walls, processors = [], []
    with stream.watching() as reports:
        for _ in range(CALLS):
            wall, processor = time.perf_counter(), time.process_time()
            step().item()
            walls.append(time.perf_counter() - wall)
            processors.append(time.process_time() - processor)
    nodes = len(reports[-1].graph.nodes()) if reports else 0
    return {"walls": walls, "processors": processors, "nodes": nodes}


def wide(framework: str, name: str, count: int) -> Figures:
    """Seconds of the first call, of the second, and of a later one."""
    t = __import__(framework)
    t.set_num_threads(1)
    call = _wide_call(t, name, count)
    first, second = block(call, 1), block(call, 1)
    return {"first": first, "second": second, "later": statistics.median(_blocks(call))}


def _blocks(call: Callable[[], object]) -> list[float]:
    return [block(call, 1) for _ in range(9)]


def _wide_call(t: Any, name: str, count: int) -> Callable[[], object]:
    if name in ("cat", "stack"):
        tensors = [t.full((8,), float(i)) for i in range(count)]
        function = getattr(t, name)
        return lambda: function(tensors)
    parameters = [t.nn.Parameter(t.ones(8, 8)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = t.ones(8, 8)
    if name == "Adam.step":
        return t.optim.Adam(parameters).step
    return lambda: t.nn.utils.clip_grad_norm_(parameters, 1.0)


def measured(cache: str, *arguments: object) -> Figures:
    """What a fresh process measures, its caches in a folder."""
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": cache}
    command = [sys.executable, "-m", "bench.growth", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"[bench] {command[2:]} failed\n{done.stderr[-3000:]}")
    figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def deep_table(layers: tuple[int, ...] = LAYERS) -> tuple[list[str], list[Figures]]:
    """One line per depth and phase."""
    lines = [
        "## Deep: a training step of an encoder, compiled",
        "",
        "| layers | caches | nodes | first call | of it planning | per node | second call "
        "| of it planning | later |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows: list[Figures] = []
    for count in layers:
        nodes = 0
        with tempfile.TemporaryDirectory() as cache:
            for phase in ("cold", "warm"):
                found = measured(cache, "deep", count)
                nodes = nodes or found["nodes"]
                wall, planning = found["walls"], found["processors"]
                rows.append({"layers": count, "phase": phase} | found)
                per_node = duration(planning[0] / max(nodes, 1))
                times = [wall[0], planning[0], wall[1], planning[1], wall[2]]
                first, work, second, again, later = map(duration, times)
                lines.append(
                    f"| {count} | {phase} | {nodes} | {first} | {work} | {per_node} "
                    f"| {second} | {again} | {later} |"
                )
    return lines, rows


def wide_table() -> tuple[list[str], list[Figures]]:
    """One line per operator and count."""
    lines = [
        "## Wide: lists of tensors, eager, one thread",
        "",
        "| case | first call, cold | first call, warm | second, warm | later | PyTorch's first "
        "| PyTorch's later | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows: list[Figures] = []
    for name, count in WIDE:
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (measured(cache, "wide", "flambeau", name, count) for _ in range(2))
            theirs = measured(cache, "wide", "torch", name, count)
        rows.append({"case": name, "count": count, "cold": cold, "warm": warm, "torch": theirs})
        times = [cold["first"], warm["first"], warm["second"], warm["later"]]
        texts = " | ".join(map(duration, [*times, theirs["first"], theirs["later"]]))
        ratio = warm["later"] / theirs["later"]
        lines.append(f"| {name} of {count} | {texts} | {ratio:.2f} |")
    return lines, rows


def main() -> None:
    """Measures everything, prints the tables and writes them beside the others."""
    about = machine()
    head = ["# growth", "", ", ".join(f"{k} {v}" for k, v in about.items()), ""]
    (deep_lines, deep_rows), (wide_lines, wide_rows) = deep_table(), wide_table()
    text = "\n".join([*head, *deep_lines, "", *wide_lines, ""])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "growth.md").write_text(text)
    tables = {"deep": deep_rows, "wide": wide_rows}
    (RESULTS / "growth.json").write_text(json.dumps({"machine": about, "tables": tables}, indent=1))


def child(arguments: list[str]) -> None:
    """Measures one case in this process and prints JSON."""
    if arguments[0] == "deep":
        print(json.dumps(deep(int(arguments[1]))))
    else:
        print(json.dumps(wide(arguments[1], arguments[2], int(arguments[3]))))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1:])
    else:
        main()
