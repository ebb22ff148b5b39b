"""What launches cost: small independent kernels one by one, and several in one kernel.

    python -m bench.compiled_launches

Each program does the same to 16 tensors. `mode="max-autotune"` puts small independent kernels into
one (`flambeau/compiler/schedule/horizontal.py`); by default each is a launch of its own. The table
has the time of both, and the nanoseconds that a launch less saves. It publishes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from bench.harness import Row, compare, table

COUNT = 16
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
    """A program on tensors of a size: fused, then launch by launch."""
    function = PROGRAMS[name]
    tensors = [torch.ones(size) for _ in range(COUNT)]
    fused = torch.compile(function, mode="max-autotune")
    apart = torch.compile(lambda *tensors: function(*tensors))
    launches = [torch.compiler.explain(each, *tensors).kernels for each in (fused, apart)]
    measured = compare(f"{name}, {size} elements", lambda: fused(*tensors), lambda: apart(*tensors))
    saved = (measured.theirs - measured.ours) / max(1, launches[1] - launches[0])
    measured.note = f"{launches[1]} launches, {launches[0]} fused: {saved * 1e9:.1f} ns each"
    return measured


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    with torch.no_grad():
        rows = [row(name, size) for name in PROGRAMS for size in SIZES]
    print(table("Small kernels", rows, peers=("fused", "launch by launch")))


if __name__ == "__main__":
    main()
