"""What launches cost: small independent kernels one by one, and several in one kernel.

    python -m bench.compiled_launches

Each program does the same to 16 tensors. `mode="max-autotune"` puts small independent kernels into
one (`flambeau/compiler/schedule/horizontal.py`), here up to `WORK` nanoseconds in one kernel, so
that the table shows where the limits of targets belong: it has the time of both, and what a launch
less saves. It publishes nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from bench.harness import Row, block, table
from flambeau.compiler import targets
from flambeau.compiler.targets.description import Fused

COUNT, WORK = 16, 2000
WARM, CALLS, ROUNDS = 20, 200, 100
SIZES = (16, 64, 256, 1024, 4096)
Tensors = Sequence[torch.Tensor]


def scale(*tensors: torch.Tensor) -> None:
    """Two operations a tensor, in place."""
    for x in tensors:
        x.mul_(0.5).add_(1.0)


def adam(*tensors: torch.Tensor) -> None:
    """A step of Adam on a quarter of the tensors; the others are its state and gradients."""
    for x, gradient, mean, square in zip(*[iter(tensors)] * 4, strict=True):
        mean.lerp_(gradient, 0.1)
        square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        x.addcdiv_(mean, square.sqrt().add_(1e-8), value=-1e-3)


def sums(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Sums of eight rows a tensor."""
    return [x.view(8, -1).sum(1) for x in tensors]


def columns(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Sums of columns of eight elements."""
    return [x.view(8, -1).sum(0) for x in tensors]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "scale": scale,
    "Adam": adam,
    "sums of rows": sums,
    "sums of columns": columns,
}


def row(name: str, size: int) -> Row:
    """A program on tensors of a size: fused, then launch by launch; the fastest of many calls."""
    function = PROGRAMS[name]
    tensors = [torch.ones(size) for _ in range(COUNT)]
    calls = [torch.compile(function, mode=mode) for mode in ("max-autotune", None)]
    launches = [torch.compiler.explain(call, *tensors).kernels for call in calls]
    for call in calls:
        for _ in range(WARM):
            call(*tensors)
    rounds = [[block(lambda c=call: c(*tensors), CALLS) for call in calls] for _ in range(ROUNDS)]
    fused, apart = (min(times) for times in zip(*rounds, strict=True))
    saved = (apart - fused) / max(1, launches[1] - launches[0]) * 1e9
    note = f"{launches[1]} launches, {launches[0]} fused: {saved:.1f} ns each"
    return Row(f"{name}, {size} elements", fused, apart, fused / apart, note=note)


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    target = copy.copy(targets.current())
    target.fused = Fused(work=WORK, map_work=WORK)
    targets.current = lambda: target
    with torch.no_grad():
        rows = [row(name, size) for name in PROGRAMS for size in SIZES]
    print(table("Small kernels", rows, peers=("fused", "launch by launch")))


if __name__ == "__main__":
    main()
