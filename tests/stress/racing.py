"""Threads that do everything at once, in processes that begin with empty caches.

    python -m tests.stress.racing --seconds 3600 --seed 1       # random mixes, a process each
    python -m tests.stress.racing --mix step,compile,fork       # one mix, in this process

Every thread of a mix repeats one of the bodies below. What they compute is compared with what one
thread computes afterwards; nothing may raise, crash or hang. A failure prints the command that runs
the same mix again.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUND = 8.0  # seconds of one process among many
HANG = 240.0  # seconds after which a process is given up

Body = Callable[[int], Any]


def bodies() -> dict[str, Body]:
    """What threads do, by name; those that return lists return the same for equal turns % 143."""
    import flambeau as torch
    from flambeau import _core
    from flambeau.runtime import empty_cache, plan_cache_clear

    def step(turn: int) -> list[float]:
        size = 3 + turn % 11
        x = torch.linspace(-1, 1, 4 * size).reshape(4, size)
        weight = (torch.arange(float(size * 5)).reshape(size, 5) / 10).requires_grad_()
        loss = ((x @ weight).tanh() ** 2).mean()
        loss.backward()
        return [float(loss.detach()), float(weight.grad.sum())]

    def large(turn: int) -> list[float]:
        n = 200 + turn % 13
        x = torch.linspace(-1, 1, n * n).reshape(n, n)
        weight = torch.linspace(-1, 1, n * n).reshape(n, n).requires_grad_()
        loss = ((x @ weight).relu().softmax(-1) * x).sum()
        loss.backward()
        return [float(loss.detach()), float(weight.grad.sum())]

    def differentiated(function: Any, turn: int) -> list[float]:
        x = torch.linspace(-1, 1, 4 * (3 + turn % 11)).reshape(4, -1).requires_grad_()
        y = function(x).sum()
        y.backward()
        return [float(y.detach()), float(x.grad.sum())]

    common = torch.compile(lambda t: ((t * 1.5).sin() + t.sum(-1, keepdim=True)).tanh())

    def compile_common(turn: int) -> list[float]:
        return differentiated(common, turn)

    def compile_own(turn: int) -> list[float]:
        factor = turn % 13 + 0.5
        return differentiated(torch.compile(lambda t: ((t * factor).sin() + 1).tanh()), turn)

    def clear(turn: int) -> None:
        plan_cache_clear()
        time.sleep(0.003)

    def clear_streams(turn: int) -> None:
        _core.stream_clear()
        time.sleep(0.003)

    def collect(turn: int) -> None:
        gc.collect()
        time.sleep(0.002)

    def give_back(turn: int) -> None:
        empty_cache()
        time.sleep(0.001)

    def resize(turn: int) -> None:
        torch.set_num_threads(1 + turn % 4)
        time.sleep(0.001)

    def sizes(turn: int) -> None:
        size = random.randrange(1, 40000)
        assert int(torch.ones(size).sum()) == size

    def cycles(turn: int) -> None:
        leaf = torch.ones(50, requires_grad=True)
        y = (leaf * 2).sum()
        leaf.me, y.hook = y, lambda g: y
        assert float(torch.autograd.grad(y, leaf)[0].sum()) == 100

    kept = torch.ones(30, requires_grad=True)

    def shared_leaf(turn: int) -> None:
        y = (kept * 2).sum()
        y.me = y  # the graph is garbage that only a collection finds; the leaf lives on
        assert float(torch.autograd.grad((kept * 3).sum(), kept)[0].sum()) == 90

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0] * 2

    def hooks(turn: int) -> None:
        x = torch.full((30, 30), 3.0, requires_grad=True)
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda g: g * 2)
        Doubled.apply(y).sum().backward()
        assert float(x.grad[0, 0]) == 48 and float(y.grad[0, 0]) == 24

    def draw(turn: int) -> None:
        assert torch.randn(20000).shape[0] + torch.rand(7).shape[0] == 20007

    def accumulate(turn: int) -> None:
        (kept * torch.ones(30)).sum().backward()

    def fork(turn: int) -> None:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                torch.set_num_threads(2)
                for each in (step, large, compile_own, accumulate, draw):
                    each(3)
                status = 0
            finally:
                os._exit(status)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                assert status == 0, f"a child ended with {os.waitstatus_to_exitcode(status)}"
                return
            time.sleep(0.01)
        os.kill(pid, 6)
        os.waitpid(pid, 0)
        raise AssertionError("a child hangs")

    return {name: value for name, value in locals().items() if name in NAMES}


NAMES = (
    "step", "large", "compile_common", "compile_own", "clear", "clear_streams", "collect",
    "give_back", "resize", "sizes", "cycles", "shared_leaf", "hooks", "draw", "accumulate", "fork",
)  # fmt: skip


def race(mix: list[str], seconds: float) -> list[str]:
    """Runs a thread per name for a while; what went wrong."""
    known = bodies()
    wrong: list[str] = []
    results: list[list[Any]] = [[] for _ in mix]
    start = threading.Barrier(len(mix))

    def run(number: int) -> None:
        start.wait(60)
        end = time.monotonic() + seconds
        for turn in range(1 << 30):
            if time.monotonic() > end or len(wrong) > 3:
                return
            try:
                results[number].append(known[mix[number]](turn))
            except BaseException:
                wrong.append(f"{mix[number]}, turn {turn}:\n{traceback.format_exc()}")
                return

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(mix))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, found in zip(mix, results, strict=True):
        expected: dict[int, Any] = {}
        for turn, result in enumerate(found[:429]):
            if result is None:
                continue
            if turn % 143 not in expected:
                expected[turn % 143] = known[name](turn)
            if result != expected[turn % 143]:
                wrong.append(f"{name}, turn {turn}: {result}, not {expected[turn % 143]}")
    print({name: len(found) for name, found in zip(mix, results, strict=True)})
    return wrong


def alone(mix: list[str], seconds: float, seed: int) -> int:
    """One mix in this process; 0 if nothing went wrong."""
    faulthandler.enable(all_threads=True)
    faulthandler.dump_traceback_later(HANG - 30, exit=True)
    random.seed(seed)
    sys.setswitchinterval((1e-6, 5e-5, 5e-3)[seed % 3])
    gc.set_threshold((1, 20, 700)[seed // 3 % 3])
    wrong = race(mix, seconds)
    for text in wrong[:3]:
        print(text)
    return int(bool(wrong))


def process(mix: list[str], seconds: float, seed: int) -> str | None:
    """The same in a process of its own; what it printed, if it failed."""
    command = [sys.executable, "-m", "tests.stress.racing", "--mix", ",".join(mix)]
    command += ["--seconds", str(seconds), "--seed", str(seed)]
    with tempfile.TemporaryDirectory(prefix="racing") as folder:
        environment = dict(os.environ)
        environment["FLAMBEAU_VERIFY"] = str(seed % 2)
        if seed % 4 < 2:  # else plans and kernels that others left
            environment["XDG_CACHE_HOME"] = folder
        done = subprocess.run(
            command,
            cwd=Path(__file__).resolve().parents[2],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG,
        )
    if done.returncode == 0:
        return None
    settings = {
        k: environment[k] for k in ("FLAMBEAU_VERIFY", "XDG_CACHE_HOME") if k in environment
    }
    text = f"{' '.join(command)}\n{settings}\nended with {done.returncode}\n"
    return text + done.stdout[-4000:] + done.stderr[-8000:]


def draw_mix(generator: random.Random) -> list[str]:
    """Four to eight names; the first computes something."""
    # AddressSanitizer's allocator is no lock that a fork could take.
    names = [n for n in NAMES if n != "fork" or "asan" not in os.environ.get("LD_PRELOAD", "")]
    return [generator.choice(NAMES[:4]), *generator.choices(names, k=generator.randrange(3, 8))]


def main() -> int:
    """Random mixes until the time is over, or one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mix", default="", help="names of bodies, separated by commas")
    options = parser.parse_args()
    if options.mix:
        return alone(options.mix.split(","), options.seconds, options.seed)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    end = time.monotonic() + options.seconds
    failures = 0
    for seed in range(options.seed * 1_000_000, 1 << 62):
        if time.monotonic() > end:
            break
        mix = draw_mix(random.Random(seed))
        failed = process(mix, ROUND, seed)
        print(seed, *mix, "failed" if failed else "fine", flush=True)
        if failed:
            failures += 1
            print(failed, flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
