"""A few random programs in every run; `python -m tests.stress.random_programs 10000` runs many."""

from __future__ import annotations

import inspect
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.language.samples import T
from tests.stress import random_programs
from tests.stress.program_rules import RULES, Rule
from tests.stress.random_programs import Program, Step, drawn, fault, shown

SETTINGS = {"deadline": None, "derandomize": True, "database": None,
            "suppress_health_check": list(HealthCheck)}  # fmt: skip


@pytest.mark.parametrize("smooth", [True, False])
@settings(max_examples=2, **SETTINGS)
@given(data=st.data())
def test_compiled_is_eager_and_slopes_are_measured(smooth, data):
    program = drawn(lambda options: data.draw(st.sampled_from(options)), smooth, longest=4)
    assert not fault(program), shown(program)


def test_a_wrong_gradient_is_found(monkeypatch):
    """The runner is no use if everything passes."""
    monkeypatch.setitem(random_programs.RULES, "half", Rule(lambda x: x.detach() * x))
    program = Program((T(3, dtype="f64"),), (Step("half", (0,), ()),), smooth=True)
    assert "finite differences" in fault(program)


@pytest.mark.parametrize("name", [n for n, r in RULES.items() if inspect.isfunction(r.function)])
def test_a_rule_can_be_drawn(name):
    """One whose function does not take its parameters would be left out as if it were refused."""
    rule = RULES[name]
    shapes = ((4, 4), (2, 3, 4, 4), (7,), ())
    chosen = [found[0] for shape in shapes if (found := rule.parameters(torch.empty(shape)))]
    assert chosen
    inspect.signature(rule.function).bind(*[None] * rule.arity, *chosen[0])


def test_a_seed_repeats_its_program():
    first, again = (drawn(random.Random(3).choice, False, longest=2) for _ in range(2))
    assert first == again and not first.smooth
