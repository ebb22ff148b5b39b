"""A few exact calls in every run; `python -m tests.stress.exact_calls 5000` runs many."""

from __future__ import annotations

import pytest

from tests.stress import exact_calls
from tests.stress.exact_calls import CALLS, ExactCall, Part, fault, of_seed, shown


@pytest.mark.parametrize("seed", range(12))
def test_a_seed(seed):
    call = of_seed(seed)
    assert not fault(call), shown(call)


def test_tiles_of_float64_with_channels_last():
    """A bias after a convolution of images of one place: more rows than a vector has lanes."""
    geometry = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    shapes = (((2, 5, 1, 1), (43, 5, 1, 1)), ((2, 5, 3, 2), (43, 5, 1, 1)))
    steps = (Part("convolution", geometry), Part("channel"))
    call = ExactCall(0, "float64", steps, shapes, ("channels last", "plain"))
    assert not fault(call), shown(call)


def test_wrong_answers_are_found(monkeypatch):
    """The runner is no use if everything passes."""
    right = CALLS["product"]
    wrong = exact_calls.Call(right.draw, lambda a, b: a @ b + 1, right.answer)
    monkeypatch.setitem(CALLS, "product", wrong)
    call = ExactCall(0, "float32", (Part("product"),), (((3, 4), (4, 5)),), ("plain", "plain"))
    assert fault(call).startswith("eager, shapes ((3, 4), (4, 5)): 15 wrong")
