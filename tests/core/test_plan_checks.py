"""Every register, output and slot of a plan is checked before anything runs by it."""

from __future__ import annotations

import pytest

from flambeau import _core

HUGE = 2**31 - 1
KERNEL = 1  # an address: nothing here is ever launched


def _spec():
    return {
        "name": "plan",
        "symbols": 3,
        "program": [(0, 4, 0), (3, 0, 3)],
        "guards": [4],
        "outputs": [("new", "f32", [0], [3], 4), ("alias", 0, "f32", [0], [1], 2), ("input", 0)],
        "visible": 1,
        "mutated": [0],
        "returns": "single",
        "backward": {
            "op": len,
            "name": "PlanBackward",
            "targets": [0],
            "arguments": [("output", 0), ("grad", 0), ("held", 0), ("register", 4), ("scalar", 0)],
        },
        "faults": ([(0, 3, True, 2, 0)], False, [(0, 3, -1)]),
    }


def _execution():
    return {
        "program": [(0, 8, 0)],
        "buffers": [("input", 0), ("output", 0), ("temporary", 5, 0, 0)],
        "launches": [
            {
                "kernel": KERNEL,
                "name": "kernel",
                "buffers": [0, 1, 2],
                "offsets": [5, -1, -1],
                "sizes": [0],
                "scalars": [("argument", 0, False)],
                "chunks": 5,
                "work": 5,
                "scratch": 5,
            }
        ],
        "written": [0],
    }


def _replaced(value, path, new):
    if not path:
        return new
    step, *rest = path
    if isinstance(value, dict):
        return value | {step: _replaced(value[step], rest, new)}
    changed = [_replaced(v, rest, new) if i == step else v for i, v in enumerate(value)]
    return type(value)(changed)


def _refused(spec):
    with pytest.raises(ValueError, match=r"^\[Plan\] "):
        _core.Plan(spec).prepare()


def test_plan_that_is_right():
    plan = _core.Plan(_spec() | {"compile": _execution})
    plan.prepare()
    assert plan.launches == ("kernel",)


REGISTERS = [
    ("program", 1, 1),
    ("program", 1, 2),
    ("guards", 0),
    ("outputs", 0, 2, 0),
    ("outputs", 0, 3, 0),
    ("outputs", 0, 4),
    ("outputs", 1, 5),
    ("visible",),
    ("backward", "arguments", 0, 1),
    ("backward", "arguments", 1, 1),
    ("backward", "arguments", 2, 1),
    ("backward", "arguments", 3, 1),
    ("faults", 0, 0, 1),
    ("faults", 0, 0, 3),
    ("faults", 2, 0, 0),
    ("faults", 2, 0, 1),
]
SLOTS = [
    ("symbols",),
    ("mutated", 0),
    ("outputs", 1, 1),
    ("outputs", 2, 1),
    ("backward", "targets", 0),
    ("backward", "arguments", 4, 1),
    ("faults", 0, 0, 0),
    ("faults", 0, 0, 4),
    ("faults", 2, 0, 2),
]


@pytest.mark.parametrize("path", REGISTERS + SLOTS, ids=str)
def test_number_of_a_plan_below_its_range(path):
    _refused(_replaced(_spec(), path, -2))


@pytest.mark.parametrize("path", REGISTERS, ids=str)
def test_number_of_a_plan_above_its_range(path):
    _refused(_replaced(_spec(), path, HUGE))


EXECUTION_REGISTERS = [
    ("buffers", 1, 1),
    ("buffers", 2, 1),
    ("buffers", 2, 2),
    ("buffers", 2, 3),
    ("launches", 0, "buffers", 1),
    ("launches", 0, "offsets", 0),
    ("launches", 0, "sizes", 0),
    ("launches", 0, "chunks"),
    ("launches", 0, "work"),
    ("launches", 0, "scratch"),
]
EXECUTION_SLOTS = [("buffers", 0, 1), ("launches", 0, "scalars", 0, 1), ("written", 0)]


@pytest.mark.parametrize("path", EXECUTION_REGISTERS + EXECUTION_SLOTS, ids=str)
def test_number_of_an_execution_below_its_range(path):
    _refused(_spec() | {"compile": lambda: _replaced(_execution(), path, -2)})


@pytest.mark.parametrize("path", EXECUTION_REGISTERS, ids=str)
def test_number_of_an_execution_above_its_range(path):
    _refused(_spec() | {"compile": lambda: _replaced(_execution(), path, HUGE)})
