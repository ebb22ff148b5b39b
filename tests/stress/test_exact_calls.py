"""A few exact calls in every run; `python -m tests.stress.exact_calls 5000` runs many."""

from __future__ import annotations

import pytest

from tests.stress import exact_calls
from tests.stress.exact_calls import CALLS, ExactCall, Part, fault, of_seed, shown


@pytest.mark.parametrize("seed", range(12))
def test_a_seed(seed):
    call = of_seed(seed)
    assert not fault(call), shown(call)


def _convolution(dtype, shapes, layouts, then, rank=2, groups=1):
    ones = (1,) * rank
    geometry = {"stride": ones, "padding": (0,) * rank, "dilation": ones, "groups": groups}
    steps = (Part("convolution", geometry), *[Part(name) for name in then])
    return ExactCall(0, dtype, steps, shapes, layouts)


FAULTS = {
    # A bias after a convolution of images of one place: more rows than a vector has lanes.
    "tiles_of_float64": _convolution(
        "float64",
        (((2, 5, 1, 1), (43, 5, 1, 1)), ((2, 5, 3, 2), (43, 5, 1, 1))),
        ("channels last", "plain"),
        ["channel"],
    ),
    # The gradient of a sum is repeated, not stored; a dimension of one place lies between.
    "gradient_of_a_sum": _convolution(
        "float32",
        (((3, 8, 2, 1, 2), (13, 8, 1, 1, 1)), ((2, 8, 1, 8, 3), (13, 8, 1, 1, 1))),
        ("plain", "plain"),
        ["sum"],
        rank=3,
    ),
    "repeated_weights": _convolution(
        "float32",
        (((3, 8, 6, 7), (13, 8, 3, 3)), ((1, 4, 5, 9), (8, 4, 3, 3))),
        ("plain", "spread"),
        [],
    ),
    "repeated_rows_of_weights": _convolution(
        "float32",
        (((3, 8, 6, 7), (13, 8, 3, 1)), ((1, 4, 5, 9), (8, 4, 3, 1))),
        ("plain", "held"),
        [],
    ),
    # Equal extremes share the gradient evenly, whichever group of dimensions they are in.
    "extremes_over_dimensions_apart": ExactCall(
        0,
        "float64",
        (Part("reduction", {"name": "amax", "dims": (0, 2)}),),
        (((4, 3, 33),), ((5, 2, 7),)),
        ("plain",),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_was_wrong_once(name):
    assert not fault(FAULTS[name]), shown(FAULTS[name])


def test_wrong_answers_are_found(monkeypatch):
    """The runner is no use if everything passes."""
    right = CALLS["product"]
    wrong = exact_calls.Call(right.draw, lambda a, b: a @ b + 1, right.answer)
    monkeypatch.setitem(CALLS, "product", wrong)
    call = ExactCall(0, "float32", (Part("product"),), (((3, 4), (4, 5)),), ("plain", "plain"))
    assert fault(call).startswith("eager, shapes ((3, 4), (4, 5)): 15 wrong")
