"""Random programs over sizes: reshapes, slices, windows, products; compiled, with several shapes.

`python -m tests.stress.shape_programs 5000` runs so many, each from a seed that repeats it. A
compiled program is called with two or three sets of sizes, forward and backward, and again with the
first, so that sizes become symbols; results and gradients must equal the eager ones bit for bit,
and nothing may be raised that eager mode does not raise. Options: `tests.stress.random_programs`.

Steps are drawn while the program runs in eager mode, so that each fits its operands.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flambeau
from tests.ops.inputs import same_bits
from tests.stress.random_programs import REFUSALS, Kind, command
from tests.stress.shape_rules import RULES, WIDTHS, weights

Sizes = dict[str, int]
LARGEST = 6000  # elements of a value
LONGEST = 9  # steps
CHOICES = {"b": (1, 2, 3, 4), "s": (6, 8, 12, 16, 20, 25), "c": (8, 16, 32, 48)}
INPUTS: tuple[tuple[str | int, ...], ...] = (
    *(("b", "s", "c"), ("b", "s", "c"), ("b", "c", "s"), ("s", "c"), ("b", "s", 16), ("b", 4, "s")),
    *(("b", "s"), ("b", 1, "s"), ("b", "s", 64), ("s", 2, 16), ("c",), ("b", 3, "s", "s")),
)


@dataclass(frozen=True)
class Step:
    """A rule, the places of its operands, and its numbers."""

    name: str
    operands: tuple[int, ...]
    numbers: tuple[Any, ...]


@dataclass(frozen=True)
class ShapeProgram:
    """Steps over inputs whose shapes are made of named sizes."""

    inputs: tuple[tuple[str | int, ...], ...]
    turned: tuple[bool, ...]  # which inputs are transposed in memory
    steps: tuple[Step, ...]
    sizes: tuple[Sizes, ...]

    def __call__(self, *given: Any) -> list[Any]:
        """What the steps make that no step takes."""
        values = list(given)
        for step in self.steps:
            operands = [values[place] for place in step.operands]
            values.append(RULES[step.name].function(*operands, *step.numbers))
        taken = {place for step in self.steps for place in step.operands}
        return [v for k, v in enumerate(values) if k >= len(given) and k not in taken]


def made(program: ShapeProgram, sizes: Sizes) -> list[Any]:
    """The inputs for a set of sizes."""
    found = []
    for place, (shape, turned) in enumerate(zip(program.inputs, program.turned, strict=True)):
        numbers = [sizes[s] if isinstance(s, str) else s for s in shape]
        x = weights(*(reversed(numbers) if turned else numbers)) + 0.1 * place
        found.append((x.permute(*range(x.ndim)[::-1]) if turned else x).detach().requires_grad_())
    return found


def of_seed(seed: int, longest: int = LONGEST) -> ShapeProgram:
    """The program of a number."""
    choose = random.Random(seed).choice
    count = choose((1, 1, 2))
    inputs = tuple(choose(INPUTS) for _ in range(count))
    turned = tuple(choose((False, False, True)) for _ in range(count))
    sizes = tuple({n: choose(CHOICES[n]) for n in CHOICES} for _ in range(choose((2, 3))))
    start = ShapeProgram(inputs, turned, (), sizes)
    values = made(start, sizes[0])
    steps: list[Step] = []
    for _ in range(choose(range(3, longest + 1))):
        step = _drawn(choose, values)
        operands = [values[place] for place in step.operands]
        try:
            result = RULES[step.name].function(*operands, *step.numbers)
        except REFUSALS:
            continue
        if 0 < result.numel() <= LARGEST and result.ndim <= 6:
            steps.append(step)
            values.append(result)
    return ShapeProgram(inputs, turned, tuple(steps), sizes)


def _drawn(choose: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> Step:
    """A step whose operands are recent, mostly the latest value."""
    while True:
        name = choose(list(RULES))
        rule = RULES[name]
        recent = range(max(0, len(values) - 4), len(values))
        operands = tuple(choose((*recent, *[recent[-1]] * 3)) for _ in range(rule.arity))
        rank = values[operands[0]].ndim
        if rank >= rule.rank:
            choices = {"d": range(rank), "w": WIDTHS}
            return Step(name, operands, tuple(choose(choices.get(n, n)) for n in rule.numbers))


def _with_gradients(call: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    outputs = call(*inputs)
    ends = [value for value in outputs if value.requires_grad]
    starts = [(y.detach() * 3.1).cos() for y in ends]
    gradients = flambeau.autograd.grad(ends, inputs, starts, allow_unused=True) if ends else ()
    return [value.detach() for value in outputs] + list(gradients)


def fault(program: ShapeProgram) -> str:
    """What is wrong with a program's results; empty where nothing is."""
    if not program.steps:
        return ""
    compiled = flambeau.compile(program.__call__)
    for sizes in (*program.sizes, program.sizes[0]):
        inputs = made(program, sizes)
        try:
            expected = _with_gradients(program, inputs)
        except REFUSALS:
            continue
        if not same_bits(_with_gradients(compiled, inputs), expected):
            return f"sizes {sizes} have other bits"
    return ""


def shown(program: ShapeProgram) -> str:
    """The program as text, one line a step."""
    lines = [f"  sizes {list(program.sizes)}"]
    pairs = zip(program.inputs, program.turned, strict=True)
    lines += [f"  {k}: {s}{' transposed' * t}" for k, (s, t) in enumerate(pairs)]
    for k, step in enumerate(program.steps, len(program.inputs)):
        lines.append(f"  {k}: {step.name} of {step.operands} {step.numbers or ''}")
    return "\n".join(lines)


if __name__ == "__main__":
    KIND = Kind("tests.stress.shape_programs", of_seed, fault, shown, RULES)
    sys.exit(command(__doc__ or "", KIND))
