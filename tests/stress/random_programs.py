"""Random programs of up to 20 operators, compiled and eager, differentiated and measured.

`python -m tests.stress.random_programs 10000` runs so many, each from a seed that repeats it:

* compiled results and gradients equal the eager ones bit for bit, at the first and second call;
* gradients of smooth programs in float64 equal finite differences along a random direction;
* no process ends but by itself: programs run in a child, a hundred at a time.

Operators are drawn while the program runs, so that every step fits its operands: one that refuses
its operands is left out. Half of the programs are smooth, in float64; the others mix dtypes, and
have kinks, ties, comparisons, casts and writes into views.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau.core.samples import Sample, TensorSpec
from tests.ops.exercise import differentiable_outputs, starts
from tests.ops.inputs import arguments, same_bits, tensor_builder

F = flambeau.nn.functional
Choose = Callable[[Sequence[Any]], Any]
LONGEST = 20  # steps
LARGEST = 400  # elements of a value
REFUSALS = (RuntimeError, TypeError, IndexError, ValueError)
CHUNK = 100  # programs of a child process
DTYPES = ("f32", "f32", "f64", "bf16", "f16", "i64", "bool")
LAYOUTS = ("contiguous", "contiguous", "transposed", "sliced", "expanded")


@dataclass(frozen=True)
class Rule:
    """An operator of the programs.

    Attributes:
        function: of the operands, then of the parameters.
        arity: how many operands.
        parameters: all choices of parameters for an operand's rank and sizes.
    """

    function: Callable[..., Any]
    arity: int = 1
    parameters: Callable[[Any], Sequence[tuple[Any, ...]]] = lambda x: [()]


def _dims(x: Any) -> list[tuple[int]]:
    return [(d,) for d in range(x.ndim)]


def _kept(x: Any) -> list[tuple[int, bool]]:
    return [(d, keep) for d in range(x.ndim) for keep in (False, True)]


def _wide(x: Any) -> list[tuple[int]]:
    return [(d,) for d in range(x.ndim) if x.shape[d] > 1]


def _matrices(x: Any) -> list[tuple[()]]:
    return [()] if x.ndim >= 2 else []


def _scaled(x: Any, dim: int) -> Any:
    y = x.clone()
    y.narrow(dim, 0, 1).mul_(0.5)
    return y


def _added(x: Any, y: Any) -> Any:
    z = x.clone()
    return z.add_(y).mul_(0.5)


def _assigned(x: Any, dim: int) -> Any:
    y = x.clone()
    y.select(dim, -1).fill_(0.25)
    return y


SMOOTH: dict[str, Rule] = {
    "sin": Rule(lambda x: x.sin()),
    "cos": Rule(lambda x: x.cos()),
    "tanh": Rule(lambda x: x.tanh()),
    "sigmoid": Rule(lambda x: x.sigmoid()),
    "erf": Rule(lambda x: x.erf()),
    "atan": Rule(lambda x: x.atan()),
    "silu": Rule(F.silu),
    "gelu": Rule(F.gelu),
    "softplus": Rule(F.softplus),
    "exp": Rule(lambda x: x.tanh().exp()),
    "log": Rule(lambda x: (x * x + 1).log()),
    "sqrt": Rule(lambda x: (x * x + 1).sqrt()),
    "reciprocal": Rule(lambda x: 1 / (x * x + 1)),
    "affine": Rule(lambda x: x * 0.75 - 0.5),
    "add": Rule(lambda x, y: x + y, 2),
    "sub": Rule(lambda x, y: x - 0.5 * y, 2),
    "mul": Rule(lambda x, y: x * y, 2),
    "div": Rule(lambda x, y: x / (y * y + 1), 2),
    "atan2": Rule(lambda x, y: flambeau.atan2(x, y * y + 1), 2),
    "lerp": Rule(lambda x, y: flambeau.lerp(x, y, 0.3), 2),
    "where": Rule(lambda x, y: flambeau.where(x > 0.1, x, y), 2),
    "sum": Rule(lambda x, d, keep: x.sum(d, keep), 1, _kept),
    "mean": Rule(lambda x, d, keep: x.mean(d, keep), 1, _kept),
    "var": Rule(lambda x, d: x.var(d), 1, _wide),
    "logsumexp": Rule(lambda x, d, keep: x.logsumexp(d, keep), 1, _kept),
    "softmax": Rule(lambda x, d: x.softmax(d), 1, _dims),
    "log_softmax": Rule(lambda x, d: x.log_softmax(d), 1, _dims),
    "cumsum": Rule(lambda x, d: x.cumsum(d), 1, _dims),
    "prod": Rule(lambda x, d: x.prod(d), 1, _dims),
    "layer_norm": Rule(lambda x: F.layer_norm(x, x.shape[-1:]), 1, _matrices),
    "matmul": Rule(lambda x: x @ x.mT, 1, _matrices),
    "outer": Rule(lambda x: x.flatten()[:6].outer(x.flatten()[:5]), 1),
    "transpose": Rule(lambda x: x.mT, 1, _matrices),
    "reverse": Rule(lambda x: x.permute(*range(x.ndim)[::-1]), 1, _matrices),
    "flatten": Rule(lambda x: x.flatten()),
    "unsqueeze": Rule(lambda x, d: x.unsqueeze(d), 1, _dims),
    "select": Rule(lambda x, d: x.select(d, -1), 1, _dims),
    "every second": Rule(lambda x: x[..., ::2], 1, _dims),
    "narrow": Rule(lambda x, d: x.narrow(d, 1, x.shape[d] - 1), 1, _wide),
    "expand": Rule(lambda x: x.unsqueeze(0).expand(2, *x.shape)),
    "flip": Rule(lambda x, d: x.flip(d), 1, _dims),
    "roll": Rule(lambda x, d: x.roll(1, d), 1, _dims),
    "tril": Rule(lambda x: x.tril(), 1, _matrices),
    "diagonal": Rule(lambda x: x.diagonal(0, -2, -1), 1, _matrices),
    "pad": Rule(lambda x: F.pad(x, (1, 0)), 1, _dims),
    "cat": Rule(lambda x, d: flambeau.cat([x, x * 0.5], d), 1, _dims),
    "stack": Rule(lambda x, y: flambeau.stack([x, y]), 2),
    "index_select": Rule(
        lambda x, d: x.index_select(d, flambeau.tensor([0, x.shape[d] - 1, 0])), 1, _dims
    ),
    "index": Rule(lambda x: x[flambeau.tensor([-1, 0])], 1, _dims),
    "masked_fill": Rule(lambda x: x.masked_fill(x > 0.7, 0.5)),
    "scale a part": Rule(_scaled, 1, _dims),
    "add in place": Rule(_added, 2),
    "assign": Rule(_assigned, 1, _dims),
}  # fmt: skip
KINKED: dict[str, Rule] = {
    "abs": Rule(lambda x: x.abs()),
    "relu": Rule(lambda x: x.relu()),
    "floor": Rule(lambda x: x.floor()),
    "round": Rule(lambda x: x.round()),
    "sign": Rule(lambda x: x.sign()),
    "clamp": Rule(lambda x: x.clamp(-0.5, 1)),
    "neg": Rule(lambda x: -x),
    "maximum": Rule(flambeau.maximum, 2),
    "minimum": Rule(flambeau.minimum, 2),
    "remainder": Rule(lambda x, y: x % (y * y + 1), 2),
    "greater": Rule(lambda x, y: x > y, 2),
    "equal": Rule(lambda x, y: x == y, 2),
    "and": Rule(lambda x, y: flambeau.logical_and(x, y), 2),
    "amax": Rule(lambda x, d, keep: x.amax(d, keep), 1, _kept),
    "max": Rule(lambda x, d: x.max(d).values, 1, _dims),
    "argmin": Rule(lambda x, d: x.argmin(d), 1, _dims),
    "sort": Rule(lambda x, d: x.sort(d).values, 1, _dims),
    "topk": Rule(lambda x, d: x.topk(1, d).values, 1, _dims),
    "cummax": Rule(lambda x, d: x.cummax(d).values, 1, _dims),
    "any": Rule(lambda x, d: x.any(d), 1, _dims),
    "to": Rule(lambda x, kind: x.to(getattr(flambeau, kind)), 1, lambda x: [
        (kind,) for kind in ("float32", "float64", "bfloat16", "float16", "int64", "bool")
    ]),
}  # fmt: skip
RULES = SMOOTH | KINKED


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
    shape = choose(((), (3,), (2, 3), (2, 3), (4, 3), (2, 4, 3), (1, 3), (2, 1, 3), (5, 2)))
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
        except REFUSALS:
            continue
        if _usable(result, smooth):
            steps.append(step)
            values.append(result)
    return Program(inputs, tuple(steps), smooth)


def _usable(value: Any, smooth: bool) -> bool:
    if value.numel() > LARGEST or value.ndim > 5 or not value.numel():
        return False
    return not smooth or float(value.abs().max()) < 30


def of_seed(seed: int) -> Program:
    """The program of a number: even ones are smooth."""
    return drawn(random.Random(seed).choice, seed % 2 == 0)


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
    return _slope_difference(program) if program.smooth else ""


def shown(program: Program) -> str:
    """The program as text, one line a step."""
    lines = [f"  {k}: {spec}" for k, spec in enumerate(program.inputs)]
    for k, step in enumerate(program.steps, len(program.inputs)):
        lines.append(f"  {k}: {step.name} of {step.operands} {step.parameters or ''}")
    return "\n".join(lines)


def run_here(seeds: Sequence[int], until: float) -> int:
    """Runs programs in this process; tells of every one on its own line."""
    faults = 0
    for seed in seeds:
        if time.time() > until:
            break
        print(f"seed {seed}", flush=True)
        program = of_seed(seed)
        try:
            wrong = fault(program)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            faults += 1
            print(f"FAULT {seed}: {wrong}\n{shown(program)}", flush=True)
    return faults


def _child(first: int, count: int, until: float) -> tuple[int, list[str]]:
    """(programs run, what was wrong) of a process of their own."""
    command = [sys.executable, "-m", "tests.stress.random_programs", str(count)]
    command += ["--first", str(first), "--until", str(until), "--here"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seeds = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    parts = done.stdout.split("FAULT ")[1:]
    faults = ["\n".join(x for x in p.splitlines() if not x.startswith("seed ")) for p in parts]
    if done.returncode not in (0, 1):
        last = seeds[-1] if seeds else "before the first"
        faults.append(f"{last}: ended with status {done.returncode}: {done.stderr[-500:]}")
    return len(seeds), faults


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most so long")
    parser.add_argument("--until", type=float, default=math.inf, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help="in this process: for a debugger")
    options = parser.parse_args()
    until = min(options.until, time.time() + 60 * options.minutes)
    last = options.first + options.count
    if options.here:
        return min(1, run_here(range(options.first, last), until))
    total, wrong = 0, 0
    for first in range(options.first, last, CHUNK):
        ran, faults = _child(first, min(CHUNK, last - first), until)
        total, wrong = total + ran, wrong + len(faults)
        for text in faults:
            print(text, flush=True)
        print(f"{total} programs, {wrong} faults", flush=True)
        if time.time() > until:
            break
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())
