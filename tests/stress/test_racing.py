"""A few mixes of racing threads in every run; `python -m tests.stress.racing --seconds 3600` runs
many."""

from __future__ import annotations

import os
import random

import pytest

from tests.stress import racing

MIXES = (
    "step,step,compile_common,compile_own,clear,clear_streams,collect,cycles",  # cold imports
    "step,large,accumulate,draw,resize,compile_own,fork",
    "step,hooks,shared_leaf,shared_leaf,cycles,collect,sizes,give_back",
)


@pytest.mark.parametrize("seed", range(len(MIXES)))
def test_mixes_that_once_failed(seed):
    mix = MIXES[seed].split(",")
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        mix = [name for name in mix if name != "fork"]
    assert racing.process(mix, 5, seed) is None


def test_a_mix_drawn_at_random():
    assert racing.process(racing.draw_mix(random.Random(1)), 5, 1) is None


def test_a_wrong_result_is_found(monkeypatch):
    """The runner is no use if everything passes."""
    turns = iter(range(1 << 30))
    monkeypatch.setattr(racing, "bodies", lambda: {"step": lambda turn: [next(turns)]})
    assert racing.race(["step"], 0.01)
