"""Tables of equal structures: bounded by what is in use, and one object per structure always."""

from __future__ import annotations

import gc
import threading
from typing import Any
from weakref import ref

import pytest

from flambeau.ir import lock, size, size_points
from flambeau.ir.size import symbol
from flambeau.ir.size_core import SizeExpr
from flambeau.ir.size_program import eq


def _entries() -> int:
    return sum(map(len, lock._tables))


def _work(number: int) -> list[Any]:
    """Expressions that no other number has: sums, quotients, bounds, conditions."""
    x = symbol(f"seldom{number}", minimum=1)
    y = symbol(f"place{number}", extent=x * 2 + 1)
    found = [x * 3 + number, (x * y + 1) // (x + 1), (y + number) % (x + 2), size.minimum(x, y * 2)]
    for each in found:
        size.lower_bound(each)
        assert isinstance(each, SizeExpr)
        size_points.falls_below(each, 1)
    return [*found, eq(x * y, number + 7)]


def test_tables_hold_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SWEEP_AFTER", 1_000)
    kept = [_work(number) for number in range(50)]
    lock.sweep()
    used, most = _entries(), 0
    _work(99)
    in_use = (
        _entries()
    )  # at most, in a sweep in the middle of a call: what the call has entered, too
    lock.sweep()
    for number in range(100, 1_000):
        _work(number)
        most = max(most, _entries())
    assert most <= max(in_use + lock.SWEEP_AFTER, 2 * in_use)
    lock.sweep()
    assert _entries() <= used + 8
    assert all(not known for known in lock._memos)
    for number in range(50):  # what is in use kept its identity
        assert all(a is b for a, b in zip(_work(number), kept[number], strict=True))


def test_an_expression_goes_without_a_collection() -> None:
    """Nothing that is interned is part of a cycle: counting references frees it."""
    gc.disable()
    try:
        seen = [ref(each) for each in _work(10_001)]
        lock.sweep()
        assert [each() for each in seen] == [None] * len(seen)
    finally:
        gc.enable()


def test_threads_that_sweep_agree() -> None:
    """Four threads make the same expressions while tables are swept: each is one object."""
    failures: list[Exception] = []
    kept = [_work(number) for number in range(20)]

    def work() -> None:
        try:
            for turn in range(60):
                for number in range(20):
                    again = _work(number)
                    assert all(a is b for a, b in zip(again, kept[number], strict=True))
                _work(20_000 + turn)
                lock.sweep()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
