"""The demo model's training step: tokens per second eager and compiled, and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Row, compare, publish

BATCH, CONTEXT = 16, 128
KINDS = ("eager", "compiled")


def training_step(t: Any, kind: str) -> Callable[[], Any]:
    """One step of the demo model in framework `t`."""
    sys.path.insert(0, str(Path(__file__).parent))
    from models import GPT

    t.manual_seed(0)
    model = GPT(t, 256, CONTEXT, 4, 4, 256)
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = t.randint(0, 256, (BATCH, CONTEXT))

    def step(tokens: Any) -> Any:
        loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    call = t.compile(step) if kind == "compiled" else step
    return lambda: call(tokens).item()


def speed(threads: int) -> list[Row]:
    """Our compiled step against PyTorch's two, and eager against eager."""
    import torch

    import flambeau

    for t in (flambeau, torch):
        t.set_num_threads(threads)
    ours = {kind: training_step(flambeau, kind) for kind in KINDS}
    theirs = {kind: training_step(torch, kind) for kind in KINDS}
    rows = []
    for mine, other in (("compiled", "eager"), ("compiled", "compiled"), ("eager", "eager")):
        name = f"{mine} against PyTorch {other}"
        row = compare(name, ours[mine], theirs[other], blocks=9, seconds=0.5, threads=threads)
        tokens = BATCH * CONTEXT
        row.note = f"{tokens / row.ours:,.0f} against {tokens / row.theirs:,.0f} tokens/s"
        rows.append(row)
    return rows


def peak_bytes(framework: str, kind: str) -> int:
    """Peak resident memory that four steps add to the imported framework, in a fresh process."""
    command = [sys.executable, "-m", "bench.demo_model", framework, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout.strip().splitlines()[-1]))


def child(framework: str, kind: str) -> None:
    """Prints the bytes of `peak_bytes`."""
    t = __import__(framework)
    t.set_num_threads(2)
    (t.ones(2) + 1).sum().item()
    before = peak_resident()
    step = training_step(t, kind)
    for _ in range(4):
        step()
    print(json.dumps(peak_resident() - before))


def peak_resident() -> int:
    """Peak resident bytes of this program (getrusage would count what forked it as well)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("[bench] this system does not tell the peak of resident memory")


def memory() -> list[Row]:
    """Peak memory of our eager and compiled step against PyTorch's eager one, in bytes."""
    theirs = peak_bytes("torch", "eager")
    rows = []
    for kind in KINDS:
        ours = peak_bytes("flambeau", kind)
        note = f"{ours / 2**20:.0f} MiB against {theirs / 2**20:.0f} MiB"
        rows.append(Row(f"{kind}, peak memory", ours, theirs, ours / theirs, 2, note))
    return rows


def buffer() -> None:
    """Prints the cost of a compiled step on one refilled NumPy array, beside fresh tensors.

    Both loops copy the batch once: into the array, or into the memory of a new tensor.
    """
    import numpy as np

    import flambeau as t

    t.set_num_threads(1)
    for batch in (64, 256):
        generator = np.random.default_rng(0)
        images = generator.standard_normal((batch, 784), dtype=np.float32)
        labels = generator.integers(0, 10, batch)
        arrays = np.empty_like(images), np.empty_like(labels)
        tensors = [t.from_numpy(array) for array in arrays]

        def refilled(step: Any, arrays: Any = arrays, data: Any = (images, labels),
                     tensors: Any = tensors) -> None:  # fmt: skip
            for array, values in zip(arrays, data, strict=True):
                array[:] = values
            step(*tensors)

        def copied(step: Any, data: Any = (images, labels)) -> None:
            step(*(t.from_numpy(values.copy()) for values in data))

        def made(step: Any, data: Any = (images, labels)) -> None:
            step(*(t.tensor(values) for values in data))

        for name, fresh in (("from_numpy(a.copy())", copied), ("tensor(a)", made)):
            calls = (partial(loop, _classifier_step(t)) for loop in (refilled, fresh))
            row = compare(f"batch {batch}, {name}", *calls, blocks=151, seconds=0.02)
            print(f"{row.name}: refilled {row.ours * 1e6:.0f} us, fresh {row.theirs * 1e6:.0f} us, "
                  f"ratio {row.ratio:.3f}")  # fmt: skip


def _classifier_step(t: Any) -> Callable[..., Any]:
    t.manual_seed(0)
    nn = t.nn
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = t.optim.SGD(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return t.compile(step)


def main() -> None:
    """Runs everything; `buffer` as argument: that part alone; FRAMEWORK KIND: the child."""
    if sys.argv[1:] == ["buffer"]:
        buffer()
        return
    if len(sys.argv) == 3 and sys.argv[1] in ("flambeau", "torch"):
        child(sys.argv[1], sys.argv[2])
        return
    tables: list[tuple[str, list[Row], float | None]] = [
        (f"Training step, {n} thread(s)", speed(n), None) for n in (1, 2)
    ]
    publish("demo_model", [*tables, ("Peak memory", memory(), 1.0)])


if __name__ == "__main__":
    main()
