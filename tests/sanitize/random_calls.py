"""Random calls of operators that compute indices, with memory watched; `test_random_calls.py`
starts it with core and kernels built under the sanitizers.

    python -m tests.sanitize.random_calls [calls of each family, first seed, family ...]

Operands have odd strides and offsets inside a larger block of memory; results are written into such
blocks (`out=`), also into the operands' own. Sizes, windows, steps and indices are sometimes zero,
huge or wrong. A call returns, and then its result equals the one without `out=` and no element
beside a target has changed, or raises one of PyTorch's exceptions. An access outside of memory ends
the process; the number printed last is the call.
"""

from __future__ import annotations

import math
import random
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import flambeau as torch
from tests.ops.warm import compile_ahead

BLOCK = 250  # calls whose kernels are compiled together
SLOW = 20.0  # seconds of processor time that no call may take, its kernels known
CANARY = 119
HUGE = (2**33, 2**40, 2**62, 2**63 - 1)  # as many elements are more than a machine has
# What a user's mistakes may raise.
REFUSED = (
    IndexError, RuntimeError, ValueError, OverflowError, TypeError, MemoryError,
)  # fmt: skip


class Fault(Exception):
    """What the sanitizers cannot see: a value written beside a target, results that differ."""


class Case:
    """One random call.

    Attributes:
        random: its choices.
        tensors: operands that may be written over, each with the block of memory it lies in.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tensors: list[tuple[Any, Any]] = []
        self._watched: list[tuple[Any, list[Any], Any]] = []

    # -------------------------------------------------------------------------------- choices

    def chance(self, share: float) -> bool:
        """True in that share of all cases."""
        return self.random.random() < share

    def pick(self, *values: Any) -> Any:
        """One of the values."""
        return self.random.choice(values)

    def size(self, low: int = 1, high: int = 7) -> int:
        """Mostly small; sometimes zero, or as long as some vectors."""
        draw = self.random.random()
        if draw < 0.03:
            return 0
        if draw < 0.12:
            return self.pick(8, 15, 16, 17, 31, 33, 65)
        return self.random.randint(low, high)

    def number(self, low: int, high: int, odd: float = 0.05) -> int:
        """Mostly between the bounds; sometimes zero, negative or huge."""
        if self.chance(odd):
            return self.pick(0, -1, high + 1, 1000, *HUGE, -(2**63))
        return self.random.randint(low, high)

    def numbers(self, count: int, low: int, high: int, odd: float = 0.02) -> Any:
        """One for all dimensions, or one each."""
        if self.chance(0.4):
            return self.number(low, high, odd)
        return tuple(self.number(low, high, odd) for _ in range(count))

    def flag(self) -> bool:
        """Either."""
        return self.chance(0.5)

    def real(self) -> Any:
        """A floating dtype, float32 most often."""
        draw = self.random.random()
        if draw < 0.75:
            return torch.float32
        return self.pick(torch.float64, torch.bfloat16, torch.float16)

    def dtype(self) -> Any:
        """Any dtype, float32 most often."""
        return self.real() if self.chance(0.8) else self.pick(torch.int64, torch.uint8, torch.bool)

    # -------------------------------------------------------------------------------- tensors

    def shape(self, low: int = 1, high: int = 3) -> tuple[int, ...]:
        """At most 3,000 elements."""
        while True:
            shape = tuple(self.size() for _ in range(self.random.randint(low, high)))
            if math.prod(shape) <= 3000:
                return shape

    def values(self, count: int, dtype: Any) -> list[Any]:
        """Numbers of a dtype; among real ones a few that are none."""
        if dtype == torch.bool:
            return [self.flag() for _ in range(count)]
        if not dtype.is_floating_point:
            return [self.random.randint(0, 9) for _ in range(count)]
        odd = self.chance(0.1)
        return [
            self.pick(math.nan, math.inf, -math.inf, -0.0)
            if odd and self.chance(0.1)
            else self.random.uniform(-2, 2)
            for _ in range(count)
        ]

    def block(self, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
        """A view with random order of dimensions, gaps and offset, and the memory it lies in."""
        order = list(range(len(shape)))
        if self.chance(0.4):
            self.random.shuffle(order)
        strides, step = [0] * len(shape), 1
        gaps = self.chance(0.3)
        for d in reversed(order):
            strides[d] = step * (self.pick(1, 2, 3) if gaps else 1)
            step = strides[d] * max(shape[d], 1)
        offset = self.pick(0, 0, 1, 5, 16)
        end = self.pick(0, 0, 1, 7)
        base = torch.full((offset + step + end,), True if dtype == torch.bool else CANARY).to(dtype)
        return base.as_strided(shape, strides, offset), base

    def tensor(self, *shape: int, dtype: Any = None, grad: bool = False) -> Any:
        """An operand, somewhere in a block of memory."""
        dtype = self.dtype() if dtype is None else dtype
        numbers = torch.tensor(self.values(math.prod(shape), dtype), dtype=dtype).reshape(shape)
        if self.chance(0.3):
            return numbers.requires_grad_() if grad else numbers
        if not grad and shape and self.chance(0.1):
            return numbers[:1].expand(shape) if shape[0] > 0 else numbers
        view, base = self.block(shape, dtype)
        view.copy_(numbers)
        self.tensors.append((view, base))
        return view.detach().requires_grad_() if grad else view

    def index(self, *shape: int, below: int, wrong: float = 0.01, dtype: Any = None) -> Any:
        """Indices, in few cases with wrong ones among them."""
        bad = self.chance(0.15)

        def one() -> int:
            if bad and self.chance(wrong * 10):
                return self.pick(-1, below, -below - 1, -(2**63), *HUGE)
            return self.random.randrange(max(below, 1))

        numbers = torch.tensor([one() for _ in range(math.prod(shape))], dtype=torch.int64)
        if dtype is not None and self.flag():
            numbers = numbers.clamp(-(2**31), 2**31 - 1).to(dtype)
        numbers = numbers.reshape(shape)
        if self.chance(0.3):
            view, _ = self.block(shape, numbers.dtype)
            return view.copy_(numbers)
        return numbers

    # -------------------------------------------------------------------------------- targets

    def target(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A result's memory, whose surroundings are watched."""
        view, base = self.block(shape, dtype)
        inside = torch.zeros(base.shape, dtype=torch.bool)
        inside.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(True)
        self.watch(base, inside)
        return view

    def watch(self, base: Any, inside: Any) -> None:
        """Remembers what lies outside of a target."""
        self._watched.append((base, base[~inside].tolist(), inside))

    def check(self) -> None:
        """Raises Fault if anything beside a target was written."""
        for base, before, inside in self._watched:
            if repr(base[~inside].tolist()) != repr(before):
                raise Fault("memory beside a target was written")

    def inside_operand(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A target in an operand's own memory, or None."""
        room = math.prod(shape)
        fitting = [b for _, b in self.tensors if b.dtype == dtype and b.numel() >= room]
        if not fitting:
            return None
        base = self.random.choice(fitting)
        offset = self.random.randint(0, base.numel() - room)
        inside = torch.zeros(base.shape, dtype=torch.bool)
        inside[offset : offset + room] = True
        self.watch(base, inside)
        return base[offset : offset + room].view(shape)


# ------------------------------------------------------------------------------------ running


def results(value: Any) -> list[Any]:
    """The tensors of a result; every number of them is read."""
    parts = [value] if isinstance(value, torch.Tensor) else list(value)
    for part in parts:
        if part.numel() < 1 << 16:
            part.tolist()
    return parts


def same(first: list[Any], second: list[Any]) -> bool:
    """Whether results have the same numbers."""
    return all(repr(a.tolist()) == repr(b.tolist()) for a, b in zip(first, second, strict=True))


def forward(case: Case, call: Callable[..., Any], out: int = 0) -> None:
    """Calls an operator, and again with `out` targets of one kind or another."""
    expected = results(call())
    if not out or not case.chance(0.5):
        return
    kind = case.pick("fresh", "fresh", "operand", "operand", "resized", "expanded")
    targets = []
    for part in expected:
        shape, dtype = tuple(part.shape), part.dtype
        own = kind == "operand" and not targets
        target = case.inside_operand(shape, dtype) if own else None
        if kind == "resized":
            target = torch.empty(case.pick((0,), (1,), (3, 2)), dtype=dtype)
        if kind == "expanded":
            target = torch.zeros((1,) * len(shape), dtype=dtype).expand(shape)
        targets.append(case.target(shape, dtype) if target is None else target)
    written = results(call(out=targets[0] if out == 1 else tuple(targets)))
    if kind == "fresh" and not same(expected, written):
        raise Fault("out= changes the result")


def backward(case: Case, call: Callable[[], Any], *operands: Any) -> None:
    """Calls an operator and its derivative; the gradient's memory is as odd as an operand's."""
    result = call()
    first = next((part for part in results(result) if part.requires_grad), None)
    if first is None:
        return
    first.backward(case.tensor(*first.shape, dtype=first.dtype))
    results([x.grad for x in operands if x.grad is not None])


def run(rule: Callable[[Case], None], seed: int) -> bool:
    """Makes one call; whether it succeeds."""
    case = Case(seed)
    torch.manual_seed(seed)
    try:
        rule(case)
    except REFUSED:
        return False
    finally:
        case.check()
    return True


def main(words: list[str]) -> int:
    """Runs the families, block by block: kernels first, then the calls."""
    from tests.sanitize.call_rules import FAMILIES

    count, first = (int(word) for word in (*words[:2], *("100", "0")[len(words[:2]) :]))
    chosen = words[2:] or list(FAMILIES)
    faults = 0
    for name in chosen:
        fine = kernels = 0
        for start in range(first, first + count, BLOCK):
            seeds = range(start, min(start + BLOCK, first + count))
            kernels += compile_ahead([[partial(run, FAMILIES[name], seed) for seed in seeds]])
            for seed in seeds:
                print(name, seed, end="\r", flush=True)
                began = time.process_time()
                try:
                    fine += run(FAMILIES[name], seed)
                except Exception:
                    faults += 1
                    print(f"FAULT {name} {seed}\n{traceback.format_exc()[-1500:]}", flush=True)
                if time.process_time() - began > SLOW:
                    faults += 1
                    print(f"FAULT {name} {seed}: too slow", flush=True)
        print(f"{name}: {count} calls, {fine} succeeded, {kernels} kernels", flush=True)
    return faults > 0


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
