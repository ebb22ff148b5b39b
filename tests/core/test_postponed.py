"""What later processes profit from is done when there is time, and once."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from flambeau.compiler import cache, postponed, stored
from flambeau.ir.plan import PlanSpec
from flambeau.runtime import settings
from tests.core.test_locks import FORKS, child_of


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    postponed.finish()
    monkeypatch.setattr(postponed, "_serving", True)  # no thread, unless a test starts it
    yield
    postponed.forget()


def test_a_thread_does_it_soon(monkeypatch):
    monkeypatch.setattr(postponed, "_serving", False)
    done = []
    for number in range(3):
        postponed.add("key", lambda number=number: done.append(number))
    assert not done
    end = time.monotonic() + 30
    while len(done) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert done == [0, 1, 2]


def test_who_asks_for_a_file_has_it_written():
    done = []
    postponed.add("a", lambda: done.append("a"))
    postponed.finish("b")
    assert not done
    postponed.finish("a")
    assert done == ["a"]
    postponed.finish()
    assert done == ["a"]


def test_errors_are_no_ones():
    done = []
    postponed.add("a", lambda: [][0])
    postponed.add("b", lambda: done.append("b"))
    postponed.finish()
    assert done == ["b"]


def test_no_more_waits_than_the_limit(monkeypatch):
    monkeypatch.setattr(postponed, "LIMIT", 2)
    done = []
    for number in range(5):
        postponed.add(str(number), lambda number=number: done.append(number))
    assert done == [0, 1, 2]


@FORKS
def test_a_child_leaves_it_to_its_parent():
    done = []
    postponed.add("a", lambda: done.append("a"))
    assert child_of(lambda: postponed.finish() is None and not done)
    postponed.finish()
    assert done == ["a"]


def test_the_end_of_a_process_does_it(tmp_path):
    program = "import flambeau as torch; torch.ones(3).exp()"
    environment = os.environ | {
        "FLAMBEAU_CACHE_DIR": str(tmp_path), "FLAMBEAU_VERIFY": "0",
        "FLAMBEAU_COMPILER": "never", "FLAMBEAU_TIER": "baseline",
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert len(list(tmp_path.glob("blobs/??/*"))) >= 2


def test_plans_go_where_they_would_have_gone(tmp_path):
    """A plan is not stored for another target, nor in another cache, than it was made for."""
    plan = stored.StoredPlan([], PlanSpec("one", 0, 0, [], 0), 0)
    name = stored.Name("cd" * 16, "one")
    with settings.override(CACHE_DIR=tmp_path / "other"):
        stored.save_later(name, lambda: plan)
    with settings.override(CACHE_DIR=tmp_path / "cache"):
        postponed.finish()
        assert stored.load(name) == []
        stored.save_later(name, lambda: plan)
        assert [other.spec.name for other in stored.load(name)] == ["one"]
        stored.save_later(name, lambda: plan)
        cache.clear()
        assert stored.load(name) == []
