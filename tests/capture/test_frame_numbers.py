"""Tier 2 and numbers that calls read and write: counters, rates, periods.

Each program runs plain and compiled, on states of its own: results, texts of the state and errors
are compared after every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from tests.capture.frames import same

CALLS = 40
calls = 0
Program = tuple[Callable[[Any], Any], Callable[[], Any]]  # a function, and what it leaves


class Counter(nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.seen: dict[str, int] = {}

    def forward(self, x: Any) -> Any:
        """Uses the number."""
        self.count += 1
        return x * self.count + self.count / 7

    def remember(self, x: Any) -> Any:
        """Counts in a dict, which has nothing at first."""
        self.seen["n"] = self.seen.get("n", 0) + 1
        return x - self.seen["n"]


def attribute() -> Program:
    """An attribute of a module."""
    counter = Counter()
    return counter.forward, lambda: counter.count


def item() -> Program:
    """An item of a dict."""
    counter = Counter()
    return counter.remember, lambda: counter.seen


def period() -> Program:
    """Each tenth call does something else."""
    state = Counter()

    def function(x: Any) -> Any:
        state.count += 1
        if state.count % 10 == 0:
            return x * 0.5
        return x * 2

    return function, lambda: state.count


def module_level() -> Program:
    """A global variable; the call returns it."""
    global calls
    calls = 0

    def function(x: Any) -> Any:
        global calls
        calls += 1
        return x + 1, calls

    return function, lambda: calls


def closure() -> Program:
    """A variable of a closure, which is set back."""
    n = 0

    def function(x: Any) -> Any:
        nonlocal n
        n += 2
        if n > 20:
            n = 0
        return x + 1

    return function, lambda: n


def average() -> Program:
    """A moving average of floats."""
    state = {"step": 0, "average": 1.0}

    def function(x: Any) -> Any:
        state["step"] += 1
        state["average"] = state["average"] * 0.9 + 0.1 * min(1.0, state["step"] / 10)
        return x * state["average"]

    return function, lambda: state


def elements() -> Program:
    """Elements of a list."""
    values = [0, 5, 1.5]

    def function(x: Any) -> Any:
        values[0] += 1
        values[2] *= 1.01
        return x * values[2] - values[1]

    return function, lambda: values


def schedule() -> Program:
    """A rate that follows from the number of calls, and integers of it."""
    state = {"step": 0}

    def function(x: Any) -> Any:
        state["step"] += 1
        step = state["step"]
        rate = 0.5 * (1 + math.cos(math.pi * step / 100)) * math.exp(-step * 0.01) * 0.99**step
        rate *= math.sqrt(step) if step > 3 else float(step)
        return x * rate, int(rate * 10), -step // 3, abs(-step) % 7, max(step, 11) - 1

    return function, lambda: state


def switched() -> Program:
    """A bool and a text that each call changes."""
    state: dict[str, Any] = {"on": False, "mode": "a"}

    def function(x: Any) -> Any:
        state["on"] = not state["on"]
        state["mode"] = "b" if state["mode"] == "a" else "a"
        return x + 1 if state["on"] else x - 1

    return function, lambda: state


def by_operator() -> Program:
    """A number on either side of an operator of tensors."""
    state = {"n": 1, "r": 0.5}

    def function(x: Any) -> Any:
        state["n"] += 3
        state["r"] += 0.25
        y = (state["n"] - x) / state["n"] + x.mul(state["r"])
        y += state["r"]
        return torch.add(y, x, alpha=state["r"])

    return function, lambda: state


PROGRAMS = {
    f.__name__: f
    for f in (
        attribute, item, period, module_level, closure, average, elements, schedule, switched,
        by_operator,
    )
}  # fmt: skip


def run(make: Callable[[], Program], compiled: bool) -> tuple[list[Any], Any]:
    """Results, errors and states of calls, and the function."""
    function, state = make()
    call: Any = torch.compile(function) if compiled else function
    outcomes = []
    for number in range(CALLS):
        try:
            result = call(torch.full((3,), float(number)))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        outcomes.append([result, repr(state())])
    return outcomes, call


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_that_calls_change(name: str) -> None:
    plain, _ = run(PROGRAMS[name], compiled=False)
    outcomes, call = run(PROGRAMS[name], compiled=True)
    assert all(map(same, plain, outcomes))
    assert call._hits > CALLS // 2, call._reason


def sizes() -> Program:
    """A number that is a size, and one that is a number of rounds."""
    state = {"n": 1, "rounds": 1}

    def function(x: Any) -> Any:
        state["n"] = state["n"] % 3 + 1
        state["rounds"] = (state["rounds"] + 1) % 4
        for _ in range(state["rounds"]):
            x = x * 2
        return x[: state["n"]] + 1

    return function, lambda: state


def texts() -> Program:
    """A number that is shown, looked up and a key."""
    state: dict[Any, Any] = {"n": 1}

    def function(x: Any) -> Any:
        state["n"] += 1
        state[state["n"] % 3] = f"{state['n']}"
        return x * 2, state["n"] in (3, 7), [10, 20, 30][state["n"] % 3]

    return function, lambda: state


def errors() -> Program:
    """Calls that raise, before and after a number changes."""
    state = {"n": -20, "large": 1 << 40, "rate": 1.0}

    def function(x: Any) -> Any:
        state["n"] += 1
        state["large"] *= 2
        state["rate"] *= 1e12
        if state["n"] == 7:
            raise ValueError("seven")
        return x * (1 / state["n"]) + state["rate"] * 2, state["large"]

    return function, lambda: state


def kinds() -> Program:
    """A number that becomes a float, None and an int again."""
    state: dict[str, Any] = {"n": 1, "calls": 0}

    def function(x: Any) -> Any:
        state["calls"] += 1
        if state["n"] is None:
            state["n"] = 1
        elif state["calls"] % 8 == 0:
            state["n"] = None
        else:
            state["n"] = state["n"] + (0.5 if state["calls"] % 6 == 0 else 1)
        return x, state["n"], type(state["n"]) is int

    return function, lambda: state


@pytest.mark.parametrize("make", [sizes, texts, errors, kinds])
def test_numbers_that_are_no_inputs_stay_right(make: Callable[[], Program]) -> None:
    plain, _ = run(make, compiled=False)
    outcomes, _ = run(make, compiled=True)
    assert all(map(same, plain, outcomes))


def test_changes_from_outside_are_read() -> None:
    counter = Counter()
    compiled = torch.compile(counter.forward)
    x = torch.ones(2)
    for number in range(12):
        assert same(compiled(x), x * (number + 1) + (number + 1) / 7)
    hits = compiled._hits
    counter.count = 100
    assert same(compiled(x), x * 101 + 101 / 7)
    assert compiled._hits == hits + 1
    counter.count = True  # no int to arithmetic of the core
    assert same(compiled(x), x * 2 + 2 / 7)
    assert counter.count == 2 and type(counter.count) is int


def test_guards_are_shown() -> None:
    function, _ = period()
    compiled = torch.compile(function)
    for _ in range(12):
        compiled(torch.ones(2))
    text = "\n".join(compiled._explanations[0])
    assert "% 10) == 0) is False" in text
