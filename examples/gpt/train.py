"""Trains a small GPT on the source of Python's standard library; the project's main job.

./go demo                        eager and compiled training, report, sample, loss curve
./go demo --steps 50 --threads 1
./go demo --resume run/          continues a checkpoint bit for bit
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from data import ByteText, load_bytes
from model import GPT, GPTConfig
from tqdm import tqdm

import flambeau as torch
from flambeau import nn, optim

VALIDATION_BATCHES = 8


@dataclass
class Curve:
    """Losses and times of one training run."""

    losses: list[float] = field(default_factory=list)
    validation: list[tuple[int, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def tokens_per_second(self, tokens: int) -> float:
        """Median throughput, the first three steps (warm-up) left out."""
        steady = sorted(self.seconds[3:] or self.seconds)
        return tokens / steady[len(steady) // 2]


class Trainer:
    """Model, optimizer, schedule and data of one run.

    Args:
        arguments: the command line.
        compiled: train with `torch.compile`.
    """

    def __init__(self, arguments: argparse.Namespace, compiled: bool) -> None:
        torch.manual_seed(arguments.seed)
        self.arguments = arguments
        config = GPTConfig(
            context=arguments.context, layers=arguments.layers, width=arguments.width,
            heads=arguments.heads, dropout=arguments.dropout,
        )  # fmt: skip
        self.model = GPT(config)
        self.optimizer = optim.AdamW(
            self.model.parameters(), lr=arguments.lr, betas=(0.9, 0.95), weight_decay=0.1
        )
        self.schedule = optim.lr_scheduler.LambdaLR(self.optimizer, self._share_of_rate)
        self.text = ByteText(load_bytes(arguments.bytes), arguments.context)
        self.generator = torch.Generator().manual_seed(arguments.seed + 1)
        self.step_number = 0
        self.curve = Curve()
        self.step = torch.compile(self._step) if compiled else self._step

    def _share_of_rate(self, step: int) -> float:
        """Linear warm-up, then half a cosine down to a tenth."""
        warm_up = min(20, self.arguments.steps // 10 + 1)
        if step < warm_up:
            return (step + 1) / warm_up
        progress = (step - warm_up) / max(self.arguments.steps - warm_up, 1)
        return 0.55 + 0.45 * math.cos(math.pi * min(progress, 1.0))

    def _step(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Forward, backward and update; returns the loss."""
        _, loss = self.model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    @torch.no_grad()
    def validate(self) -> float:
        """Mean loss over fixed held-out windows."""
        self.model.eval()
        generator = torch.Generator().manual_seed(17)
        total = 0.0
        for _ in range(VALIDATION_BATCHES):
            tokens, targets = self.text.batch(self.arguments.batch, generator, validation=True)
            total += self.model(tokens, targets)[1].item()
        self.model.train()
        return total / VALIDATION_BATCHES

    def train(self, steps: int, label: str, checkpoint: Path | None = None) -> Curve:
        """Runs up to step number `steps`, saving checkpoints on the way."""
        arguments = self.arguments
        bar = tqdm(range(self.step_number, steps), desc=label, unit="step", mininterval=0.5)
        for _ in bar:
            tokens, targets = self.text.batch(arguments.batch, self.generator)
            start = time.perf_counter()
            loss = self.step(tokens, targets).item()
            self.curve.seconds.append(time.perf_counter() - start)
            self.schedule.step()
            self.curve.losses.append(loss)
            self.step_number += 1
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            if checkpoint is not None and self.step_number % arguments.save_every == 0:
                self.save(checkpoint)
        self.curve.validation.append((self.step_number, self.validate()))
        if checkpoint is not None:
            self.save(checkpoint)
        return self.curve

    def save(self, path: Path) -> None:
        """Writes everything a bit-for-bit continuation needs; atomic."""
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "generator": self.generator.get_state(),
                "random": torch.get_rng_state(),
                "step": self.step_number,
                "losses": self.curve.losses,
            },
            path,
        )

    def load(self, path: Path) -> None:
        """Continues from a checkpoint."""
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["random"])
        self.step_number = state["step"]
        self.curve.losses = list(state["losses"])


def compile_seconds() -> tuple[float, float]:
    """Seconds that compiling the step takes with empty caches, and in a new process with
    warm ones.
    """
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"FLAMBEAU_CACHE_DIR": cache}
        command = [sys.executable, *sys.argv, "--probe"]
        seconds = []
        for _ in range(2):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            seconds.append(float(done.stdout))
    return seconds[0], seconds[1]


def probe(arguments: argparse.Namespace) -> float:
    """Seconds from the first compiled step to its loss, less those of a step that is known."""
    trainer = Trainer(arguments, compiled=True)
    tokens, targets = trainer.text.batch(arguments.batch, trainer.generator)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        trainer.step(tokens, targets).item()
        times.append(time.perf_counter() - start)
    return max(times[0] + times[1] - 2 * times[-1], 0.0)  # optimizer state is new in step 1


def draw(curves: dict[str, Curve], path: Path) -> None:
    """The loss curves as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for (name, curve), style in zip(curves.items(), ("-", ":"), strict=False):
        axes.plot(curve.losses, style, label=f"{name}, training")
        axes.plot(*zip(*curve.validation), "o", label=f"{name}, validation")
    axes.set_xlabel("step")
    axes.set_ylabel("cross entropy (nats per byte)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def sample(model: GPT, prompt: str, count: int, seed: int) -> str:
    """Text generated after `prompt`."""
    torch.manual_seed(seed)
    model.eval()
    tokens = torch.tensor([list(prompt.encode())])
    produced = model.generate(tokens, count)[0].tolist()
    model.train()
    return bytes(produced).decode("utf-8", errors="replace")


def first_difference(a: list[float], b: list[float]) -> int | None:
    """Index of the first unequal loss; None when all bits agree."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers: dict[str, tuple[Callable[[str], int | float], int | float, str]] = {
        "steps": (int, 200, "training steps"),
        "batch": (int, 16, "windows per step"),
        "context": (int, 128, "window length in bytes"),
        "layers": (int, 4, "transformer blocks"),
        "width": (int, 256, "channels"),
        "heads": (int, 4, "attention heads"),
        "dropout": (float, 0.0, "dropout probability"),
        "lr": (float, 1e-3, "peak learning rate"),
        "seed": (int, 1337, "random seed"),
        "threads": (int, 0, "threads; 0: all cores"),
        "bytes": (int, 8_000_000, "bytes of text"),
        "save-every": (int, 50, "steps between checkpoints"),
        "sample": (int, 400, "bytes to generate"),
    }
    for name, (kind, default, text) in numbers.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{text} ({default})")
    parser.add_argument("--out", type=Path, default=Path("run"), help="folder of the results (run)")
    parser.add_argument("--resume", type=Path, help="folder whose checkpoint is continued")
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--untimed", action="store_true", help="do not measure compilation with empty caches"
    )
    parser.add_argument("--only", choices=("eager", "compiled"), help="train only one way")
    return parser.parse_args()


def runs(arguments: argparse.Namespace) -> Iterator[tuple[str, Trainer]]:
    """The trainings to do: eager and compiled, from identical weights."""
    for name in ("eager", "compiled"):
        if arguments.only in (None, name):
            yield name, Trainer(arguments, compiled=name == "compiled")


def main() -> None:
    """Trains, reports, and says whether eager and compiled losses agree to the last bit."""
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.probe:
        print(probe(arguments))
        return
    out = arguments.resume or arguments.out
    out.mkdir(parents=True, exist_ok=True)
    curves: dict[str, Curve] = {}
    trainer = None
    untimed = arguments.untimed or arguments.resume
    compile_times = None if untimed else compile_seconds()
    for name, trainer in runs(arguments):
        checkpoint = out / f"checkpoint-{name}.flambeau"
        if arguments.resume and checkpoint.exists():
            trainer.load(checkpoint)
        curves[name] = trainer.train(arguments.steps, name, checkpoint)
    assert trainer is not None
    report(arguments, curves, trainer, compile_times, out)


def report(
    arguments: argparse.Namespace,
    curves: dict[str, Curve],
    trainer: Trainer,
    compile_times: tuple[float, float] | None,
    out: Path,
) -> None:
    """Prints the figures, a sample and the last line."""
    parameters = sum(p.numel() for p in trainer.model.parameters())
    tokens = arguments.batch * arguments.context
    print(f"\nmodel: {parameters:,} parameters; threads: {torch.get_num_threads()}")
    if compile_times is not None:
        print(f"compile: cold {compile_times[0]:.2f} s, warm {compile_times[1]:.2f} s")
    for name, curve in curves.items():
        if curve.seconds:
            print(
                f"{name:>8}: {curve.tokens_per_second(tokens):,.0f} tokens/s, "
                f"training loss {curve.losses[-1]:.4f}, validation {curve.validation[-1][1]:.4f}"
            )
    draw(curves, out / "loss.png")
    print(f"loss curve: {out / 'loss.png'}\n\nsample:")
    print(sample(trainer.model, "def ", arguments.sample, arguments.seed))
    if len(curves) == 2:
        difference = first_difference(curves["eager"].losses, curves["compiled"].losses)
        verdict = (
            "agree to the last bit" if difference is None else f"DIFFER from step {difference}"
        )
        print(f"\neager and compiled losses {verdict} over {len(curves['eager'].losses)} steps")


if __name__ == "__main__":
    main()
