"""New shapes of known classes never enter Python; caches under load forget without harm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import flambeau
from flambeau.runtime import plan_cache_clear, plan_cache_stats

F = flambeau.nn.functional


def programs(rows: int, columns: int) -> None:
    """A few operators of every kind on one shape."""
    x = flambeau.ones(rows, columns)
    bias = flambeau.ones(columns)
    ((x + bias) * 2).sum(-1)
    x.softmax(-1)
    flambeau.nn.functional.layer_norm(x, (columns,), bias, bias)
    x @ x.t()
    flambeau.cat([x, x]).reshape(2, rows, columns).transpose(1, 2)
    x.cumsum(0)


def test_a_thousand_new_shapes_stay_out_of_python() -> None:
    for rows, columns in ((5, 7), (7, 5), (6, 6), (5, 8), (9, 3)):
        programs(rows, columns)
    before = plan_cache_stats()
    for number in range(1000):
        programs(11 + number // 40, 100 + number % 40)
    after = plan_cache_stats()
    assert after["builds"] == before["builds"]
    assert after["class_hits"] - before["class_hits"] >= 8 * 1000


def test_backward_of_new_shapes_stays_out_of_python() -> None:
    def step(size: int) -> None:
        x = flambeau.ones(size, 3, requires_grad=True)
        weight = flambeau.ones(3, 4, requires_grad=True)
        ((x @ weight).tanh() ** 2).mean().backward()
        assert x.grad is not None

    for size in (5, 7, 9):
        step(size)
    before = plan_cache_stats()["builds"]
    for size in range(10, 210):
        step(size)
    assert plan_cache_stats()["builds"] == before


def test_eviction_of_exact_keys() -> None:
    """More shapes than an operator remembers: the oldest are forgotten, results stay right."""
    for size in range(2, 9000):
        assert flambeau.ones(size).numel() == size
    assert int(flambeau.ones(8999).sum()) == 8999
    assert int(flambeau.ones(5).sum()) == 5


def test_clearing_between_forward_and_backward() -> None:
    x = flambeau.arange(4.0).requires_grad_()
    y = (x * x).sum()
    plan_cache_clear()
    assert plan_cache_stats()["entries"] == 0
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_profile_counts_launches() -> None:
    from flambeau.runtime import launch_profile, profile

    x = flambeau.ones(1 << 20)
    x.exp()
    with profile() as times:
        x.exp()
    assert len(times) == 1 and times[0].launches == 1 and times[0].nanoseconds > 0
    x.exp()
    assert launch_profile() == times


MEMORY = """
import flambeau
from flambeau import runtime

flambeau.ones(1 << 20)  # what a first call keeps is kept
runtime.reset_peak_memory_stats()
before = runtime.memory_stats()["allocated_bytes.all.current"]
x = flambeau.ones(1 << 20)
held = runtime.memory_stats()["allocated_bytes.all.current"] - before
assert x.nbytes <= held <= 1.1 * x.nbytes, held
assert runtime.memory_snapshot()
del x
assert runtime.memory_stats()["allocated_bytes.all.current"] == before
assert runtime.empty_cache() >= 0
"""


def test_memory_statistics() -> None:
    """In a process of its own: threads that other tests left may allocate, too."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options", [{"size": (3, 7)}, {"scale_factor": 1.5, "mode": "bilinear"}])
def test_equal_arguments_find_the_plan_again(options: dict[str, Any]) -> None:
    """What a host function makes anew for each call, scales say, is compared by value."""
    x = flambeau.ones(1, 2, 4, 4)
    flambeau.nn.functional.interpolate(x, **options)
    before = plan_cache_stats()["builds"]
    flambeau.nn.functional.interpolate(x, **options)
    assert plan_cache_stats()["builds"] == before


def _builds(function: Callable[[], Any]) -> tuple[Any, int]:
    before = plan_cache_stats()["builds"]
    result = function()
    return result, plan_cache_stats()["builds"] - before


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.adaptive_avg_pool2d(x, [2, 2]),
        lambda x: F.adaptive_avg_pool2d(x, (None, 3)),
        lambda x: F.adaptive_avg_pool2d(x, flambeau.zeros(2, 3).shape),
        lambda x: F.adaptive_max_pool2d(x, [2, 3]),
        lambda x: F.adaptive_max_pool2d(x, [2, 3], return_indices=True)[1],
    ],
)
def test_objects_of_one_value_are_one_call(call: Callable[[Any], Any]) -> None:
    """Lists and tuples are keyed by what they hold: a second call builds nothing."""
    x = flambeau.randn(1, 3, 8, 8)
    first = call(x)
    second, builds = _builds(lambda: call(x))
    assert builds == 0
    assert flambeau.equal(first, second)


def test_an_object_that_changes_is_another_call() -> None:
    x, size = flambeau.randn(1, 3, 8, 8), [2, 2]
    for extent in (2, 3, 2):
        size[0] = extent
        assert tuple(F.adaptive_avg_pool2d(x, size).shape) == (1, 3, extent, 2)
    assert tuple(F.adaptive_avg_pool2d(x, (1, True)).shape) == (1, 3, 1, 1)
    assert tuple(F.adaptive_avg_pool2d(x, (1, None)).shape) == (1, 3, 1, 8)


def test_integers_inside_of_objects_may_be_numpys() -> None:
    numpy = pytest.importorskip("numpy")
    x = flambeau.randn(1, 3, 8, 8)
    found = F.adaptive_avg_pool2d(x, (numpy.int64(2), numpy.int32(3)))
    assert flambeau.equal(found, F.adaptive_avg_pool2d(x, (2, 3)))
