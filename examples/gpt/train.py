"""Trains a small GPT on Python's language reference; the project's main job.

./go demo                        eager and compiled training, report, sample, loss curve
./go demo --steps 50 --threads 1
./go demo --resume run/          continues a checkpoint bit for bit

Eager and compiled training start from the same weights and take turns, a block of steps each, so
that a machine whose speed changes treats both alike.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import report
from tqdm import tqdm
from trainer import CheckpointError, Trainer

import flambeau as torch

BLOCK = 10  # steps until the other run has its turn
VALIDATE_EVERY = 50


def train(trainers: dict[str, Trainer], arguments: argparse.Namespace, out: Path) -> None:
    """Trains every run up to step number `arguments.steps`, in turns of a block of steps."""
    steps = arguments.steps
    left = sum(max(steps - trainer.step_number, 0) for trainer in trainers.values())
    with tqdm(total=left, desc="training", unit="step", mininterval=0.5) as bar:
        while any(trainer.step_number < steps for trainer in trainers.values()):
            for name, trainer in trainers.items():
                with trainer:
                    block(name, trainer, min(trainer.step_number + BLOCK, steps), out, bar)


def block(name: str, trainer: Trainer, end: int, out: Path, bar: tqdm) -> None:
    """Trains one run until step number `end`, validating and saving on the way."""
    arguments = trainer.arguments
    while trainer.step_number < end:
        loss = trainer.train_step()
        bar.set_postfix_str(f"{name:>8}, loss {loss:.3f}", refresh=False)
        bar.update()
        last = trainer.step_number == arguments.steps
        if last or trainer.step_number % VALIDATE_EVERY == 0:
            trainer.validate()
        if last or trainer.step_number % arguments.save_every == 0:
            trainer.save(checkpoint(out, name))


def checkpoint(out: Path, name: str) -> Path:
    """The checkpoint of a run in a folder."""
    return out / f"checkpoint-{name}.flambeau"


def compile_seconds() -> tuple[float, float] | None:
    """Seconds that compiling the step takes with empty caches, and in a new process with
    warm ones; None where nothing can be compiled, as without a C compiler.
    """
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"FLAMBEAU_CACHE_DIR": cache, "FLAMBEAU_COMPILER": "wait"}
        command = [sys.executable, *sys.argv, "--probe"]
        seconds = []
        for state in ("empty", "filled"):
            print(f"measuring compilation in a new process, caches {state} ...", flush=True)
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                reason = done.stderr.strip().splitlines()[-2:]  # the error and its hint
                print("not measured:", *reason, sep="\n  ", flush=True)
                return None
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


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers: dict[str, tuple[Callable[[str], int | float], int | float, str]] = {
        "steps": (int, 300, "training steps"),
        "batch": (int, 16, "windows per step"),
        "context": (int, 128, "window length in tokens"),
        "layers": (int, 4, "transformer blocks"),
        "width": (int, 256, "channels"),
        "heads": (int, 4, "attention heads"),
        "dropout": (float, 0.0, "dropout probability"),
        "lr": (float, 3e-3, "peak learning rate"),
        "seed": (int, 1337, "random seed"),
        "threads": (int, 0, "threads; 0: all cores"),
        "vocabulary": (int, 3072, "tokens: 256 bytes, and words"),
        "characters": (int, 200_000, "characters of text"),
        "save-every": (int, 50, "steps between checkpoints"),
        "sample": (int, 150, "tokens to generate"),
    }
    for name, (kind, default, text) in numbers.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{text} ({default})")
    parser.add_argument("--out", type=Path, default=Path("run"), help="folder of the results (run)")
    parser.add_argument("--resume", type=Path, help="folder whose checkpoints are continued")
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--untimed", action="store_true", help="do not measure compilation with empty caches"
    )
    parser.add_argument("--only", choices=("eager", "compiled"), help="train only one way")
    return parser.parse_args()


def make_trainers(arguments: argparse.Namespace) -> dict[str, Trainer]:
    """The runs to train, from identical weights: eager and compiled, or one of them."""
    return {
        name: Trainer(arguments, compiled=name == "compiled")
        for name in ("eager", "compiled")
        if arguments.only in (None, name)
    }


def resume(trainers: dict[str, Trainer], folder: Path) -> None:
    """Loads the checkpoints of a folder and removes what killed saves left there.

    Raises:
        CheckpointError: no folder, no checkpoint, or one of other sizes.
    """
    paths = {name: checkpoint(folder, name) for name in trainers}
    if not any(path.exists() for path in paths.values()):
        text = "holds no checkpoint" if folder.is_dir() else "does not exist"
        raise CheckpointError(
            f"[resume] {folder} {text}\nhint: ./go demo --out {folder} starts a run there"
        )
    for leftover in folder.glob(".checkpoint-*.flambeau.*"):
        leftover.unlink()
    for name, path in paths.items():
        if path.exists():
            trainers[name].load(path)
            print(f"{name}: continues at step {trainers[name].step_number} of {path}")


def main() -> None:
    """Trains, reports, and says whether eager and compiled losses agree to the last bit."""
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.probe:
        print(probe(arguments))
        return
    out = arguments.resume or arguments.out
    trainers = make_trainers(arguments)
    if arguments.resume:
        resume(trainers, arguments.resume)
        if all(trainer.step_number >= arguments.steps for trainer in trainers.values()):
            print(f"nothing to do: {out} has its {arguments.steps} steps; --steps asks for more")
            return
    out.mkdir(parents=True, exist_ok=True)
    untimed = arguments.untimed or arguments.resume
    compile_times = None if untimed else compile_seconds()
    print("training: the first steps run at once, faster ones follow when kernels are compiled")
    train(trainers, arguments, out)
    report(arguments, trainers, compile_times, out)


if __name__ == "__main__":
    main()
