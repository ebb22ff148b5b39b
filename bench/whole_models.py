"""Whole models of examples/models: inference and training steps, eager and compiled.

    python -m bench.whole_models              all of them (most of the time is PyTorch's compiler)
    python -m bench.whole_models resnet lstm  these; the options are those of `bench/kinds.py`

Layers have the width of the papers; depth, vocabulary and inputs are cut so that two cores need
some hundred milliseconds a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.kinds import KINDS, Step, Suite, command


@dataclass
class Case:
    """A model at the size that is measured."""

    title: str
    batch: int
    sizes: dict[str, Any] = field(default_factory=dict)
    optimizer: str = "AdamW"


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


AIMS = {"our own eager": 1.02, "PyTorch eager": 0.7, "PyTorch compiled": 0.75}
SUITE = Suite(
    "whole_models", {name: case.title for name, case in CASES.items()}, steps, AIMS, 0.1, 0.1
)


def main() -> None:
    """Measures the models that the command line names, or all; publishes after each."""
    command(SUITE)


if __name__ == "__main__":
    main()
