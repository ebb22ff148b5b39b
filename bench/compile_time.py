"""Compilation: cold, warm, steady state, on four programs; each measurement in a fresh process.

    (a) layer_norm(gelu(x * w + b)), 4096 x 1024      (c) MLP training step with AdamW
    (b) two transformer blocks, forward and backward   (d) the demo model's training step

"cold" starts with empty caches, "warm" in a new process with the caches the cold run left. Both
count from the first call of the compiled function to its result, less one steady call.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.harness import Row, block, publish

PROGRAMS = ("a", "b", "c", "d")
TITLES = {
    "a": "(a) layer_norm(gelu(x*w+b))",
    "b": "(b) transformer blocks, forward + backward",
    "c": "(c) MLP step with AdamW",
    "d": "(d) demo model step",
}


def program_a(t: Any) -> Any:
    """Forward only."""
    f = t.nn.functional
    x, w, b = t.randn(4096, 1024), t.randn(1024), t.randn(1024)
    return (lambda x, w, b: f.layer_norm(f.gelu(x * w + b), (1024,))), (x, w, b)


def _blocks(t: Any, layers: int) -> Any:
    sys.path.insert(0, str(Path(__file__).parent))
    from models import Block

    model = t.nn.Sequential(*[Block(t, 256, 4) for _ in range(layers)])
    x = t.randn(4, 128, 256)

    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        loss.backward()
        grads = [p.grad for p in model.parameters()]
        for p in model.parameters():
            p.grad = None
        return loss.detach(), grads

    return step, (x,)


def program_b(t: Any) -> Any:
    """Two transformer blocks."""
    return _blocks(t, 2)


def program_c(t: Any) -> Any:
    """A perceptron trained with AdamW."""
    nn, f = t.nn, t.nn.functional
    model = nn.Sequential(
        nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10)
    )
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = t.randn(64, 512), t.randint(0, 10, (64,))

    def step(x: Any, y: Any) -> Any:
        loss = f.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, (x, y)


def program_d(t: Any) -> Any:
    """The demo model's step."""
    from models import GPT

    model = GPT(t, 256, 128, 4, 4, 256)
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = t.randint(0, 256, (16, 128))

    def step(tokens: Any) -> Any:
        loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, (tokens,)


def child(framework: str, name: str, threads: int) -> None:
    """Measures one program of one framework in this process and prints JSON."""
    import time

    sys.path.insert(0, str(Path(__file__).parent))
    t = __import__(framework)
    t.set_num_threads(threads)
    t.manual_seed(0)
    step, arguments = globals()[f"program_{name}"](t)
    eager_first = time.perf_counter()
    step(*arguments)
    eager_first = time.perf_counter() - eager_first
    eager = statistics.median(block(lambda: step(*arguments), 1) for _ in range(9))
    compiled = t.compile(step)
    start = time.perf_counter()
    compiled(*arguments)
    first = time.perf_counter() - start
    for _ in range(3):
        compiled(*arguments)
    steady = statistics.median(block(lambda: compiled(*arguments), 1) for _ in range(15))
    print(json.dumps({"first": max(first - steady, 1e-6), "steady": steady, "eager": eager,
                      "eager_first": eager_first}))  # fmt: skip


def measure(framework: str, name: str, threads: int, cache: str) -> dict[str, float]:
    """Runs `child` in a fresh process whose caches live in `cache`."""
    environment = os.environ | {
        "FLAMBEAU_CACHE_DIR": f"{cache}/flambeau",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torch",
        "TRITON_CACHE_DIR": f"{cache}/triton",
    }
    command = [sys.executable, "-m", "bench.compile_time", framework, name, str(threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"[bench] {framework} {name} failed\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Runs everything; torch's compiles take minutes."""
    if len(sys.argv) == 4 and sys.argv[1] in ("flambeau", "torch"):
        child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
        return
    tables: dict[str, list[Row]] = {"cold": [], "warm": [], "steady": [], "against eager": []}
    for name in PROGRAMS:
        figures: dict[tuple[str, str], dict[str, float]] = {}
        with tempfile.TemporaryDirectory() as cache:
            for phase in ("cold", "warm"):
                for framework in ("flambeau", "torch"):
                    figures[framework, phase] = measure(framework, name, 2, cache)
            again = [
                (measure("flambeau", name, 2, cache), measure("torch", name, 2, cache))
                for _ in range(2)
            ]
        for phase in ("cold", "warm"):
            a, b = (figures[x, phase]["first"] for x in ("flambeau", "torch"))
            tables[phase].append(Row(TITLES[name], a, b, a / b, 2))
        pairs = again + [(figures["flambeau", p], figures["torch", p]) for p in ("cold", "warm")]
        for table, kind in (("steady", "steady"), ("against eager", "eager")):
            ours = statistics.median(p[0]["steady"] for p in pairs)
            theirs = statistics.median(p[1][kind] for p in pairs)
            ratio = statistics.median(p[0]["steady"] / p[1][kind] for p in pairs)
            tables[table].append(Row(TITLES[name], ours, theirs, ratio, 2))
    bounds = {"cold": 0.1, "warm": 0.1, "steady": 0.8, "against eager": 0.7}
    publish("compile_time", [(title, rows, bounds[title]) for title, rows in tables.items()])


if __name__ == "__main__":
    main()
