"""A few shape programs in every run; `python -m tests.stress.shape_programs 5000` runs many."""

from __future__ import annotations

import inspect

import pytest

from tests.stress.shape_programs import ShapeProgram, Step, fault, of_seed, shown
from tests.stress.shape_rules import RULES, ShapeRule

SIZES = ({"b": 2, "s": 20, "c": 64}, {"b": 3, "s": 24, "c": 64})


def _chain(shape, *steps):
    """A program in which each step takes the value before it."""
    placed = [Step(name, (place,), tuple(numbers)) for place, (name, *numbers) in enumerate(steps)]
    return ShapeProgram((shape,), (False,), tuple(placed), SIZES)


PROGRAMS = {
    # The number of heads follows from a view's -1; what a flush leaves has sizes without names.
    "heads_after_a_flush": _chain(
        ("b", "s", 64), ("attended", 16, False), ("ended",), ("attended", 16, False), ("ended",)
    ),
    "heads_of_a_strided_convolution": _chain(
        ("b", 16, "s"), ("convolved", 4, 4, 0), ("flatten", 2), ("transpose", 1, 2),
        ("split_last", 4), ("flatten", 2), ("attended", 4, True),
    ),
    "heads_of_every_third_token": _chain(
        ("b", "s", 64), ("stepped", 1, 3, 0), ("without_first", 1, 1, 1), ("attended", 16, False)
    ),
    # The weight is a view of values that are computed in the program.
    "depthwise": _chain(("s", 2, 16), ("convolved_plane", 2, 1, 1), ("ended",)),
    # Quotients of what may be negative: positions counted from the end.
    "windows_of_a_reversed_plane": _chain(
        ("s", "c"), ("convolved_plane", 3, 1, 0), ("flatten_front", 2), ("flipped", 0),
        ("pooled", 3, 3, False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_without_names(name):
    assert not fault(PROGRAMS[name]), shown(PROGRAMS[name])


@pytest.mark.parametrize("seed", range(4))
def test_a_seed(seed):
    program = of_seed(seed, longest=4)
    assert not fault(program), shown(program)


def test_other_bits_are_found(monkeypatch):
    """The runner is no use if everything passes."""
    calls = iter(range(100))
    rule = ShapeRule(lambda x: x + (next(calls) == 1))
    monkeypatch.setitem(RULES, "unsteady", rule)
    program = ShapeProgram((("s",),), (False,), (Step("unsteady", (0,), ()),), SIZES)
    assert "other bits" in fault(program)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_takes_its_numbers(name):
    """One whose function does not take them would be left out as if it refused them."""
    rule = RULES[name]
    inspect.signature(rule.function).bind(*[None] * rule.arity, *rule.numbers)
