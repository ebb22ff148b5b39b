"""Random programs, compiled and eager, differentiated and measured: 20 operators, some up to 120.

`python -m tests.stress.random_programs 10000` runs so many, each from a seed that repeats it:

* compiled results and gradients equal the eager ones bit for bit, at the first and second call,
  and at a third one on operands of other sizes;
* gradients of smooth programs in float64 equal finite differences along a random direction;
* no process ends but by itself: programs run in a child, a hundred at a time.

Most of the time goes to the C compiler: `--optimise 0` lets it work a third as long, over the
same C. `--resume FILE` goes on after an earlier run, `--operators` counts what was drawn.

Operators are drawn while the program runs, so that every step fits its operands: one that refuses
its operands is left out. Half of the programs are smooth, in float64; the others mix dtypes, and
have kinks, ties, comparisons, casts and writes into views.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flambeau
from flambeau.compiler import targets
from flambeau.language.samples import Sample, TensorSpec
from flambeau.runtime import settings
from tests.ops.exercise import differentiable_outputs, starts
from tests.ops.inputs import arguments, same_bits, tensor_builder
from tests.stress.program_rules import RULES, SMOOTH

Choose = Callable[[Sequence[Any]], Any]
LONGEST = 20  # steps
LONG = 120  # likewise, of every tenth program
LARGEST = 1500  # elements of a value
REFUSALS = (RuntimeError, TypeError, IndexError, ValueError)
CHUNK = 100  # programs of a child process
DTYPES = ("f32", "f32", "f64", "bf16", "f16", "i64", "i32", "u8", "bool", "c64")
SHAPES = (
    *((), (3,), (2, 3), (2, 3), (4, 3), (2, 4, 3), (1, 3), (2, 1, 3), (5, 2), (17,), (3, 21)),
    *((2, 3, 4, 4), (1,), (129,)),
)
EMPTY = ((0,), (2, 0), (0, 3), (2, 0, 3))
LAYOUTS = ("contiguous", "contiguous", "transposed", "sliced", "expanded")


@dataclass(frozen=True)
class Step:
    """An operator of a program, the places of its operands, and its parameters."""

    name: str
    operands: tuple[int, ...]
    parameters: tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """Operators over tensors that are given: value k is an input, or the result of a step."""

    inputs: tuple[TensorSpec, ...]
    steps: tuple[Step, ...]
    smooth: bool

    def __call__(self, *given: Any) -> list[Any]:
        """What the steps make that no step takes."""
        flambeau.manual_seed(5)
        values = list(given)
        for step in self.steps:
            values.append(_result(step, values))
        taken = {place for step in self.steps for place in step.operands}
        return [v for k, v in enumerate(values) if k >= len(given) and k not in taken]


def _result(step: Step, values: Sequence[Any]) -> Any:
    operands = [values[place] for place in step.operands]
    return RULES[step.name].function(*operands, *step.parameters)


def made(inputs: Sequence[TensorSpec], grad: bool) -> list[Any]:
    """Tensors for a program."""
    built, _ = arguments(Sample(tuple(inputs), {}), tensor_builder(flambeau, grad=grad), "f32")
    return list(built)


def _input(choose: Choose, smooth: bool) -> TensorSpec:
    shape = choose(SHAPES if smooth else (*SHAPES, choose(EMPTY)))
    dtype = "f64" if smooth else choose(DTYPES)
    layout = choose(LAYOUTS[:4] if smooth else LAYOUTS)
    return TensorSpec(shape, dtype=dtype, low=-2.0, high=2.0, layout=layout)


def drawn(choose: Choose, smooth: bool, longest: int = LONGEST) -> Program:
    """A program whose every choice is made by `choose`."""
    inputs = tuple(_input(choose, smooth) for _ in range(choose((1, 2, 3))))
    values = made(inputs, grad=False)
    steps: list[Step] = []
    names = list(SMOOTH if smooth else RULES)
    for _ in range(choose(range(1, longest + 1))):
        name = choose(names)
        rule = RULES[name]
        recent = range(max(0, len(values) - 5), len(values))
        operands = tuple(choose(recent) for _ in range(rule.arity))
        parameters = rule.parameters(values[operands[0]])
        if not parameters:
            continue
        step = Step(name, operands, tuple(choose(parameters)))
        try:
            result = _result(step, values)
        except REFUSALS as error:
            if not str(error).startswith("["):  # no refusal of ours
                raise
            continue
        if _usable(result, smooth):
            steps.append(step)
            values.append(result)
    return Program(inputs, tuple(steps), smooth)


def _usable(value: Any, smooth: bool) -> bool:
    if value.numel() > LARGEST or value.ndim > 5 or (smooth and not value.numel()):
        return False
    return not smooth or float(value.detach().abs().max()) < 30


def of_seed(seed: int) -> Program:
    """The program of a number: even ones are smooth."""
    return drawn(random.Random(seed).choice, seed % 2 == 0, LONG if seed % 10 > 8 else LONGEST)


def of_other_sizes(program: Program) -> Program:
    """The same steps on operands of other sizes, equal ones equal again."""
    larger = [
        TensorSpec(**vars(spec) | {"shape": tuple(n if n < 2 else n + 2 for n in spec.shape)})
        for spec in program.inputs
    ]
    return Program(tuple(larger), program.steps, program.smooth)


def _with_gradients(program: Program, call: Callable[..., Any]) -> list[Any]:
    inputs = made(program.inputs, grad=True)
    outputs = call(*inputs)
    found = [value.detach() for value in outputs]
    leaves, ends = [x for x in inputs if x.requires_grad], differentiable_outputs(outputs)
    if leaves and ends:
        found += flambeau.autograd.grad(ends, leaves, starts(ends), allow_unused=True)
    return found


def _total(program: Program, inputs: Sequence[Any], weights: Sequence[Any]) -> float:
    outputs = differentiable_outputs(program(*inputs))
    return sum(float((y.detach() * w).sum()) for y, w in zip(outputs, weights, strict=True))


def _slope_difference(program: Program) -> str:
    """How the gradient along a direction differs from differences of the function, if it does."""
    inputs = made(program.inputs, grad=True)
    outputs = differentiable_outputs(program(*inputs))
    if not outputs:
        return ""
    weights = starts(outputs)
    found = flambeau.autograd.grad(outputs, inputs, weights, allow_unused=True)
    ways = [(x.detach() * 3.7).cos() for x in inputs]
    slope = sum(float((g * w).sum()) for g, w in zip(found, ways, strict=True) if g is not None)
    measured = []
    for width in (1e-4, 1e-5, 1e-6):
        ends = []
        for sign in (width, -width):
            moved = [(x.detach() + sign * w).requires_grad_() for x, w in zip(inputs, ways)]
            ends.append(_total(program, moved, weights))
        measured.append((ends[0] - ends[1]) / (2 * width))
        if math.isclose(slope, measured[-1], rel_tol=1e-5, abs_tol=1e-6):
            return ""
    return f"the slope is {slope}, finite differences give {measured}"


def fault(program: Program) -> str:
    """What is wrong with a program's results; empty where nothing is."""
    if not program.steps:
        return ""
    eager = _with_gradients(program, program)
    compiled = flambeau.compile(program.__call__)
    for attempt in ("first", "second"):
        if not same_bits(_with_gradients(program, compiled), eager):
            return f"the {attempt} compiled call has other bits"
    other = of_other_sizes(program)
    try:
        eager = _with_gradients(other, program)
    except REFUSALS:
        pass  # sizes that the steps do not fit
    else:
        if not same_bits(_with_gradients(other, compiled), eager):
            return "the compiled call has other bits on other sizes"
    return _slope_difference(program) if program.smooth else ""


def shown(program: Program) -> str:
    """The program as text, one line a step."""
    lines = [f"  {k}: {spec}" for k, spec in enumerate(program.inputs)]
    for k, step in enumerate(program.steps, len(program.inputs)):
        lines.append(f"  {k}: {step.name} of {step.operands} {step.parameters or ''}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Kind:
    """A kind of random programs.

    Attributes:
        module: whose command runs them.
        of_seed: the program of a number; it has `steps`, each with a `name`.
        fault: what is wrong with a program's results.
        shown: a program as text.
        rules: names of all steps.
    """

    module: str
    of_seed: Callable[[int], Any]
    fault: Callable[[Any], str]
    shown: Callable[[Any], str]
    rules: Iterable[str]


def run_here(kind: Kind, seeds: Sequence[int], until: float) -> int:
    """Runs programs in this process; tells of every one on its own line."""
    faults = 0
    drew: Counter[str] = Counter()
    for seed in seeds:
        if time.time() > until:
            break
        print(f"seed {seed}", flush=True)
        program = kind.of_seed(seed)
        drew.update(step.name for step in program.steps)
        try:
            wrong = kind.fault(program)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            faults += 1
            print(f"FAULT {seed}: {wrong}\n{kind.shown(program)}", flush=True)
    print(f"drew {json.dumps(drew)}", flush=True)
    return faults


@dataclass(frozen=True)
class Outcome:
    """What a child did: programs run, what was wrong, how often it drew an operator."""

    ran: int
    faults: list[str]
    drew: dict[str, int]


def _child(module: str, first: int, count: int, until: float, level: str | None) -> Outcome:
    """Programs in a process of their own."""
    words = [sys.executable, "-m", module, str(count)]
    words += ["--first", str(first), "--until", str(until), "--here"]
    words += ["--optimise", level] if level else []
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    seeds = [line for line in lines if line.startswith("seed ")]
    parts = done.stdout.split("FAULT ")[1:]
    told = ("seed ", "drew ")
    faults = ["\n".join(x for x in p.splitlines() if not x.startswith(told)) for p in parts]
    if done.returncode not in (0, 1) or (done.returncode and not faults):
        last = seeds[-1] if seeds else "before the first"
        faults.append(f"{last}: ended with status {done.returncode}: {done.stderr[-500:]}")
    drew = [json.loads(line[5:]) for line in lines if line.startswith("drew ")]
    return Outcome(len(seeds), faults, drew[0] if drew else {})


def flags_at(level: str) -> tuple[str, ...]:
    """`targets.COMMON_FLAGS` for a C compiler that optimises that much: 0 to 3."""
    flags = (flag for flag in targets.COMMON_FLAGS if not flag.startswith("-O"))
    return (f"-O{level}", *flags)


def _print_operators(drew: Counter[str], rules: Iterable[str]) -> None:
    for name in sorted(rules, key=lambda name: (-drew[name], name)):
        print(f"{drew[name]:8d} {name}")


def command(text: str, kind: Kind) -> int:
    """The command that runs programs of a kind; `text` says what they are."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most so long")
    parser.add_argument("--until", type=float, default=math.inf, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help="in this process: for a debugger")
    parser.add_argument("--optimise", help="level of the C compiler (default: as always)")
    parser.add_argument("--resume", type=Path, help="file with the next seed, kept up to date")
    parser.add_argument("--operators", action="store_true", help="count the operators drawn")
    options = parser.parse_args()
    settings.put("COMPILER", "wait")
    if options.optimise:
        targets.COMMON_FLAGS = flags_at(options.optimise)
    until = min(options.until, time.time() + 60 * options.minutes)
    if options.resume and options.resume.exists():
        options.first = int(options.resume.read_text())
    if options.here:
        seeds = range(options.first, options.first + options.count)
        return min(1, run_here(kind, seeds, until))
    return min(1, _run_in_children(kind, options, until))


def _run_in_children(kind: Kind, options: argparse.Namespace, until: float) -> int:
    """Runs programs a hundred to a process; returns how many faults there were."""
    total, wrong = 0, 0
    drew: Counter[str] = Counter()
    last = options.first + options.count
    for first in range(options.first, last, CHUNK):
        outcome = _child(kind.module, first, min(CHUNK, last - first), until, options.optimise)
        total, wrong = total + outcome.ran, wrong + len(outcome.faults)
        drew.update(outcome.drew)
        for text in outcome.faults:
            print(text, flush=True)
        print(f"{total} programs from seed {options.first}, {wrong} faults", flush=True)
        if time.time() > until:
            break
        if options.resume:
            options.resume.write_text(str(min(first + CHUNK, last)))
    if options.operators:
        _print_operators(drew, kind.rules)
    return wrong


if __name__ == "__main__":
    KIND = Kind("tests.stress.random_programs", of_seed, fault, shown, RULES)
    sys.exit(command(__doc__ or "", KIND))
