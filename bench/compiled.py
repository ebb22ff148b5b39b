"""Programs that compilation speeds up: against our own eager mode and PyTorch's two.

    python -m bench.compiled                  all of them (most of the time is PyTorch's compiler)
    python -m bench.compiled flow --quick     these; the options are those of `bench/kinds.py`

The programs are those of `bench/compiled_programs.py`: small layers, loops in Python, many small
parameters, pointwise work on fields, second derivatives. A step returns the loss; in training it
computes gradients and updates parameters. Compiled is the whole step.
"""

from __future__ import annotations

from typing import Any

from bench.compiled_programs import PROGRAMS
from bench.kinds import KINDS, Step, Suite, command
from bench.small_models import Loss


def steps(framework: str, name: str, mode: str) -> dict[str, Step]:
    """The eager and the compiled step of a program; each has parameters of its own."""
    t = __import__(framework)
    return {kind: _step(t, name, mode, kind) for kind in KINDS}


def calls_of(t: Any, loss_of: Loss, optimizer: Any) -> tuple[Loss, Loss]:
    """A training step, and the loss without gradients; both return a tensor."""

    def train() -> Any:
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    def infer() -> Any:
        with t.no_grad():
            return loss_of()

    return train, infer


def _step(t: Any, name: str, mode: str, kind: str) -> Step:
    t.manual_seed(0)
    model, loss_of = PROGRAMS[name](t)
    optimizer = t.optim.Adam(model.parameters(), lr=1e-4)

    train, infer = calls_of(t, loss_of, optimizer)
    model.train(mode == "training")
    step = train if mode == "training" else infer
    call = t.compile(step) if kind == "compiled" else step
    return lambda: call().item()


AIMS = {"our own eager": 0.65, "PyTorch eager": 0.4, "PyTorch compiled": 0.55}
SUITE = Suite("compiled", {name: name for name in PROGRAMS}, steps, AIMS, 0.05, 0.02)


def main() -> None:
    """Measures the programs that the command line names, or all; publishes after each."""
    command(SUITE)


if __name__ == "__main__":
    main()
