"""The benchmark of the first training step: its verdicts, and that it notices a wrong program."""

from __future__ import annotations

import pytest

from bench import __main__ as bench_main
from bench import first_step
from bench.first_step import Model, Step


def step(total: float, compiler: float = 0.0) -> Step:
    first = total / 2
    return Step(total / 4, total / 4, first, 0.01, total, total, [2.0, 1.9], compiler, 2, 3, 9)


def models(compiler: float = 0.0) -> list[Model]:
    fast = Model("fast", [step(0.2), step(0.1), step(0.4)], [step(1.0), step(1.0), step(1.0)])
    slow = Model("slow", [step(0.8, compiler)], [step(1.0)])
    return [fast, slow]


def test_is_a_part() -> None:
    assert "first_step" in bench_main.PARTS


def test_ratio_is_the_median_of_rounds() -> None:
    fast, slow = models()
    assert fast.ratio == 0.2 and slow.ratio == 0.8


def test_verdicts() -> None:
    lines = first_step.verdicts(models()).splitlines()
    assert lines[0].endswith("**0.400** (bar: at most 0.3: over)")
    assert lines[1] == "Worst ratio: **0.800**, slow (bar: at most 0.6: over)"
    assert lines[3].endswith("**250 ms** (bar: at most 150 ms: over)")
    assert first_step.verdicts(models()[:1]).count(": ok)") == 3


@pytest.mark.parametrize(("seconds", "expected"), [(0.002, "for no model"), (0.5, "slow")])
def test_compilers_in_the_foreground_are_named(seconds: float, expected: str) -> None:
    assert first_step.verdicts(models(seconds)).endswith(f"in the foreground: {expected}")


def test_table_has_a_cell_for_each_title() -> None:
    lines = first_step.table(models()).splitlines()
    assert len(lines) == 4 and len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize("losses", [[2.01, 1.9], [2.0, 2.0], [float("nan"), 1.9]])
def test_other_losses_are_an_error(losses: list[float]) -> None:
    first_step.check_losses("m", [2.0005, 1.91], [2.0, 1.9])
    with pytest.raises(RuntimeError, match=r"\[bench\] m: losses differ"):
        first_step.check_losses("m", losses, [2.0, 1.9])
