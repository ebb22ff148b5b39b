"""Dry runs say which kernels calls need, whatever the calls do."""

from __future__ import annotations

import os

import flambeau as torch
from flambeau.compiler import codegen, dry_run
from flambeau.runtime import plan_cache_clear


def names(kernels):
    return [kernel.text() for kernel in kernels]


def raising():
    torch.ones(3).exp()
    raise ValueError("seen by nobody")


def endless():
    while True:
        pass


def test_calls_that_fail_end_the_process_or_never_end_are_left_out(monkeypatch):
    monkeypatch.setattr(dry_run, "PATIENCE", 0.3)
    plan_cache_clear()  # a plan that another test left asks for no kernel
    calls = [lambda: torch.ones(3).exp(), os.abort, endless, raising, lambda: os._exit(3)]
    found = dict(dry_run.dry_run([*calls, calls[0]], names))
    assert sorted(found) == [0, 3, 5]
    assert found[0] and found[3] and not set(found[3]) - set(found[0])


def test_nothing_is_launched_and_results_are_zero():
    x = torch.arange(4.0)
    x.add_(1)  # its plan is compiled: a dry run does not run it either
    with codegen.collect() as kernels:
        assert x.add_(1).tolist() == [1, 2, 3, 4]
        assert torch.full((3, 5), 7.0).cosh().tolist() == [[0.0] * 5] * 3
        assert torch.empty(1 << 12).argsort().tolist() == [0] * (1 << 12)
    assert kernels
    assert x.add_(1).tolist() == [2, 3, 4, 5]
