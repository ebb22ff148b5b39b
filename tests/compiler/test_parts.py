"""Many parts of one tensor (`split`, `unbind`): the C text does not grow with their number.

Values that differ in an offset alone are one kernel, launched for every few parts; an expression
over all parts has a few lines for each, and calls elementary functions instead of containing them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau.compiler import codegen, targets
from flambeau.compiler.codegen.c.printer.c_printer import OFTEN
from flambeau.compiler.dry_run import dry_run
from flambeau.compiler.schedule.members import PARTS_LIMIT

COUNTS = (64, 512)
VARIANTS = 4  # kernels of one value: of the first parts, the others, the last few


def separate(parts: Any) -> Any:
    return [part.tanh() for part in parts]


def chain(parts: Any) -> Any:
    total = 0
    for part in parts:
        total = total + part.tanh()
    return total


def sums(parts: Any) -> Any:
    total = 0
    for part in parts:
        total = total + part.tanh().sum()
    return total


def rows(parts: Any) -> Any:
    return [part.tanh().softmax(-1) for part in parts]


# Each program with the lines of C that it may need per part.
PROGRAMS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "separate": (separate, 0), "chain": (chain, 6), "sums": (sums, 6), "rows": (rows, 0),
}  # fmt: skip


def operand(count: int, dimension: int) -> Any:
    torch.manual_seed(0)
    shape = (count, 24) if dimension == 0 else (24, count)
    return torch.randn(shape)


def step(program: Any, dimension: int, backward: bool) -> Any:
    """A function of a tensor that is taken apart; with `backward` it returns the gradient."""

    def function(x: Any) -> Any:
        result = program(x.unbind(dimension))
        if not backward:
            return result
        total = sum(y.sum() for y in result) if isinstance(result, list) else result.sum()
        (gradient,) = torch.autograd.grad(total, x)
        return gradient

    return function


def c_texts(call: Callable[[], Any]) -> list[str]:
    """The C of the kernels that a call needs, none of them compiled; each once."""
    target = targets.current()
    calls = dry_run([call], lambda ks: [codegen.print_kernel(kernel, target) for kernel in ks])
    return list(dict.fromkeys(text for _, texts in calls for text in texts))


@pytest.mark.parametrize(("name", "dimension"), [*((name, 0) for name in PROGRAMS), ("chain", 1)])
def test_text_grows_by_a_few_lines_a_part(name: str, dimension: int) -> None:
    program, per_part = PROGRAMS[name]
    lines, kernels = [], []
    for count in COUNTS:
        x = operand(count, dimension)
        texts = c_texts(lambda: torch.compile(step(program, dimension, False))(x))  # noqa: B023
        lines.append(sum(text.count("\n") for text in texts))
        kernels.append(len(texts))
        for text in texts:
            assert text.count("= fb_tanh_f32x") <= max(OFTEN, *PARTS_LIMIT.values()), name
    assert lines[1] - lines[0] <= per_part * (COUNTS[1] - COUNTS[0]) + 200, lines
    assert kernels[1] <= VARIANTS + per_part, kernels


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str) -> None:
    program, per_part = PROGRAMS[name]
    lines = []
    for count in (8, 64):
        x = operand(count, 0).requires_grad_()
        texts = c_texts(lambda: torch.compile(step(program, 0, True))(x))  # noqa: B023
        lines.append(sum(text.count("\n") for text in texts))
    assert lines[1] <= lines[0] + (per_part + 12) * 56 + 200, lines


@pytest.mark.parametrize(
    ("name", "backward"),
    [("separate", False), ("chain", True), ("sums", False), ("sums", True), ("rows", False)],
)
def test_bits(name: str, backward: bool) -> None:
    """In groups of parts or not, through functions of their own or not: eager mode's bits."""
    count = 2 * OFTEN + 3
    function = step(PROGRAMS[name][0], 0, backward)
    compiled, eager = (
        f(operand(count, 0).requires_grad_(backward)) for f in (torch.compile(function), function)
    )
    pairs = zip(compiled, eager, strict=True) if isinstance(eager, list) else [(compiled, eager)]
    assert all(torch.equal(a, b) for a, b in pairs)


def test_few_parts_share_a_kernel() -> None:
    """What a layer takes apart (queries, keys, values; gates) stays one launch."""
    x = operand(4, 0)
    assert len(c_texts(lambda: torch.compile(step(separate, 0, False))(x))) == 1
