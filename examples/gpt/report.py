"""What the demo shows at its end: figures, a picture of the losses, a sample of generated text."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainer import Curve, Trainer

import flambeau as torch

TEMPERATURE = 0.5
PROMPT = "The"
COLOURS = {"eager": "tab:blue", "compiled": "tab:orange"}


def draw(curves: dict[str, Curve], path: Path) -> None:
    """Saves the loss curves as a PNG.

    The curves lie on top of each other, bit for bit: eager is a wide pale line, compiled a thin
    dark one inside it. Validation losses are black markers joined by a dashed line.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, curve in curves.items():
        wide = name == "eager"
        axes.plot(
            curve.losses, color=COLOURS[name], linewidth=5 if wide else 1.2,
            alpha=0.35 if wide else 1.0, label=f"{name}, training",
        )  # fmt: skip
        if curve.validation:
            marker = {"marker": "s", "markersize": 9} if wide else {"marker": ".", "markersize": 6}
            axes.plot(
                *zip(*curve.validation), "--", color="black" if not wide else "gray",
                fillstyle="none" if wide else "full", linewidth=1, label=f"{name}, validation",
                **marker,
            )  # fmt: skip
    axes.set_xlabel("step")
    axes.set_ylabel("cross entropy (nats per token)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def sample(trainer: Trainer, prompt: str, count: int, seed: int) -> str:
    """Text generated after `prompt`."""
    torch.manual_seed(seed)
    model, tokenizer = trainer.model, trainer.text.tokenizer
    model.eval()
    tokens = torch.tensor([tokenizer.encode(prompt)])
    produced = model.generate(tokens, count, TEMPERATURE)[0].tolist()
    model.train()
    return tokenizer.decode(produced)


def first_difference(a: list[float], b: list[float]) -> int | None:
    """Index of the first unequal loss; None when all bits agree."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


def print_figures(
    arguments: argparse.Namespace,
    trainers: dict[str, Trainer],
    compile_times: tuple[float, float] | None,
) -> None:
    """Sizes, compile times, tokens per second, losses, and the ratio of the two ways."""
    trainer = next(iter(trainers.values()))
    parameters = sum(p.numel() for p in trainer.model.parameters())
    tokens = arguments.batch * arguments.context
    print(f"\nmodel: {parameters:,} parameters; threads: {torch.get_num_threads()}")
    if compile_times is not None:
        print(f"compile: cold {compile_times[0]:.2f} s, warm {compile_times[1]:.2f} s")
    medians = {name: t.curve.seconds_per_step() for name, t in trainers.items() if t.curve.seconds}
    for name, seconds in medians.items():
        curve = trainers[name].curve
        print(
            f"{name:>8}: {tokens / seconds:,.0f} tokens/s, "
            f"training loss {curve.losses[-1]:.4f}, validation {curve.validation[-1][1]:.4f}"
        )
    if len(medians) == 2:
        ratio = medians["compiled"] / medians["eager"]
        print(f"a compiled step takes {ratio:.2f} of the time of an eager one")


def print_verdict(trainers: dict[str, Trainer]) -> None:
    """Whether eager and compiled training computed the same numbers."""
    if len(trainers) < 2:
        return
    losses = [trainer.curve.losses for trainer in trainers.values()]
    difference = first_difference(*losses)
    if difference is not None:
        print(f"\neager and compiled losses DIFFER from step {difference}")
        return
    print(
        f"\neager and compiled losses agree to the last bit over {len(losses[0])} steps:\n"
        "every loss is the same 32-bit number both ways, so compiling changed no rounding anywhere"
    )


def report(
    arguments: argparse.Namespace,
    trainers: dict[str, Trainer],
    compile_times: tuple[float, float] | None,
    out: Path,
) -> None:
    """Prints the figures, draws the picture, shows a sample, and compares the losses."""
    print_figures(arguments, trainers, compile_times)
    draw({name: trainer.curve for name, trainer in trainers.items()}, out / "loss.png")
    print(f"loss curve: {out / 'loss.png'}\n\nsample:")
    last = list(trainers.values())[-1]
    print(sample(last, PROMPT, arguments.sample, arguments.seed))
    print_verdict(trainers)
