"""One training run: model, optimizer, schedule, data, random state, and checkpoints of them all."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

from data import Windows, load_text
from model import GPT, GPTConfig

import flambeau as torch
from flambeau import nn, optim

VALIDATION_BATCHES = 8
SIZES = ("context", "layers", "width", "heads", "batch", "vocabulary", "characters", "seed")


class CheckpointError(SystemExit):
    """A checkpoint that cannot be continued; the message says why."""


@dataclass
class Curve:
    """Losses and times of one training run."""

    losses: list[float] = field(default_factory=list)
    validation: list[tuple[int, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def seconds_per_step(self) -> float:
        """Median time of a step, the first three (warm-up) left out."""
        steady = sorted(self.seconds[3:] or self.seconds)
        return steady[len(steady) // 2]


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
            heads=arguments.heads, dropout=arguments.dropout, vocabulary=arguments.vocabulary,
        )  # fmt: skip
        self.model = GPT(config)
        self.optimizer = optim.AdamW(
            self.model.parameters(), lr=arguments.lr, betas=(0.9, 0.95), weight_decay=0.1
        )
        self.schedule = optim.lr_scheduler.LambdaLR(self.optimizer, self._share_of_rate)
        text = load_text(arguments.characters)
        self.text = Windows(text, arguments.vocabulary, arguments.context)
        self.generator = torch.Generator().manual_seed(arguments.seed + 1)
        self.random_state = torch.get_rng_state()
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
        """Mean loss over fixed held-out windows, appended to the curve."""
        self.model.eval()
        generator = torch.Generator().manual_seed(17)
        total = 0.0
        for _ in range(VALIDATION_BATCHES):
            tokens, targets = self.text.batch(self.arguments.batch, generator, validation=True)
            total += self.model(tokens, targets)[1].item()
        self.model.train()
        mean = total / VALIDATION_BATCHES
        self.curve.validation.append((self.step_number, mean))
        return mean

    def train_step(self) -> float:
        """One step on the next batch; returns its loss."""
        tokens, targets = self.text.batch(self.arguments.batch, self.generator)
        start = time.perf_counter()
        loss = self.step(tokens, targets).item()
        self.curve.seconds.append(time.perf_counter() - start)
        self.schedule.step()
        self.curve.losses.append(loss)
        self.step_number += 1
        return loss

    def __enter__(self) -> Trainer:
        """Random draws continue where this run left off: two runs may take turns."""
        torch.set_rng_state(self.random_state)
        return self

    def __exit__(self, *exception: object) -> None:
        self.random_state = torch.get_rng_state()

    def save(self, path: Path) -> None:
        """Writes what a bit-for-bit continuation needs; called inside a `with` block; atomic."""
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(
            {
                "sizes": {name: getattr(self.arguments, name) for name in SIZES},
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "generator": self.generator.get_state(),
                "random": torch.get_rng_state(),
                "step": self.step_number,
                "losses": self.curve.losses,
                "validation": self.curve.validation,
            },
            path,
        )

    def load(self, path: Path) -> None:
        """Continues from a checkpoint.

        Raises:
            CheckpointError: it was written with other sizes.
        """
        state = torch.load(path)
        check_sizes(state["sizes"], self.arguments, path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.generator.set_state(state["generator"])
        self.random_state = state["random"]
        self.step_number = state["step"]
        self.curve.losses = list(state["losses"])
        self.curve.validation = [(int(step), loss) for step, loss in state["validation"]]


def check_sizes(sizes: dict[str, int], arguments: argparse.Namespace, path: Path) -> None:
    """Raises CheckpointError where a size of the command line is not the checkpoint's."""
    for name, value in sizes.items():
        if getattr(arguments, name) != value:
            raise CheckpointError(
                f"[resume] {path} was trained with --{name} {value}, not {getattr(arguments, name)}"
                f"\nhint: add --{name} {value}, or start afresh with --out another/folder"
            )
