"""Calls of compiled functions beside their kernels, and programs whose time is mostly Python's.

    python -m bench.compiled_calls            beside PyTorch (most of the time is its compiler)
    python -m bench.compiled_calls --own      without PyTorch

Overhead: a module of linear layers, called without gradients on no rows: its launches compute
nothing, so the time of a call is overhead. An input is a tensor that the program reads: two
parameters a layer, and the argument. The bound is 1.5 microseconds and 30 ns an input.

Programs: twelve transformer layers of width 64 on 8 tokens, one thread: a forward pass without
gradients, a training step with AdamW, and AdamW's step alone. Kernels are compiled before the
first measured call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from bench.compiled import calls_of
from bench.compiled_own import parts_of
from bench.compiled_programs import PROGRAMS
from bench.harness import Row, block, calls_for, compare, publish

Step = Callable[[], Any]

DEPTHS = (1, 6, 12, 24, 48)
FIXED, PER_INPUT, TRIVIAL = 1.5e-6, 30e-9, 0.3e-6  # bounds, in seconds
ROUNDS = 30
BARS = {"forward": 0.4, "AdamW training step": 0.6, "AdamW step alone": 0.6}
PEER_BAR = 0.3  # of the forward pass, against PyTorch compiled


def fastest(call: Step) -> float:
    """Seconds of a call in the fastest of many blocks."""
    for _ in range(20):
        call()
    count = calls_for(call, 0.01)
    return min(block(call, count) for _ in range(ROUNDS))


def trivial() -> Row:
    """`x + 1` on four elements, against the bound."""
    import flambeau as torch

    x = torch.ones(4)
    compiled = torch.compile(lambda x: x + 1)
    with torch.no_grad():
        seconds = fastest(lambda: compiled(x))
    return Row("x + 1", seconds, TRIVIAL, seconds / TRIVIAL, note="a whole call")


def overhead(depth: int) -> Row:
    """The overhead of a module with so many layers, against the bound."""
    import flambeau as torch

    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(depth)])
    compiled, x = torch.compile(model), torch.randn(0, 8)
    with torch.no_grad():

        def call() -> Any:
            return compiled(x)

        seconds = fastest(call)
        parts = parts_of(call)
    if parts.operators:
        raise RuntimeError(f"[bench] {depth} layers: the call ran its Python")
    inputs = 2 * depth + 1
    bound = FIXED + PER_INPUT * inputs
    note = f"{parts.launches} launches"
    return Row(f"{depth} layers, {inputs} inputs", seconds, bound, seconds / bound, note=note)


def programs(torch: Any) -> dict[str, dict[str, Step]]:
    """The eager and the compiled call of each program."""
    return {name: {kind: _call(torch, name, kind) for kind in ("eager", "compiled")}
            for name in BARS}  # fmt: skip


def _call(torch: Any, name: str, kind: str) -> Step:
    torch.manual_seed(0)
    model, loss_of = PROGRAMS["transformer"](torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    train, infer = calls_of(torch, loss_of, optimizer)
    if name == "AdamW step alone":
        loss_of().backward()
    call = {"forward": infer, "AdamW training step": train}.get(name, optimizer.step)
    return torch.compile(call) if kind == "compiled" else call


def main() -> None:
    """Prints the tables."""
    import flambeau

    frameworks = [flambeau] if "--own" in sys.argv else [flambeau, __import__("torch")]
    for framework in frameworks:
        framework.set_num_threads(1)
    calls = [programs(framework) for framework in frameworks]
    ours = calls[0]
    own = [compare(name, ours[name]["compiled"], ours[name]["eager"], 21, 0.1) for name in BARS]
    for row in own:
        row.note = f"aim: {BARS[row.name]}"
    tables = [
        ("Trivial call", [trivial()], 1.0),
        ("Overhead of a call", [overhead(depth) for depth in DEPTHS], 1.0),
        ("Compiled against our own eager", own, None),
    ]
    peers = [("flambeau", "bound")] * 2 + [("compiled", "eager")]
    for theirs in calls[1:]:
        for kind in ("eager", "compiled"):
            rows = [compare(name, ours[name]["compiled"], theirs[name][kind], 9, 0.1)
                    for name in BARS]  # fmt: skip
            tables.append((f"Compiled against PyTorch {kind}", rows, None))
            peers.append(("flambeau", "PyTorch"))
        tables[-1][1][0].note = f"aim: {PEER_BAR}"
    publish("compiled_calls", tables, peers=peers)


if __name__ == "__main__":
    main()
