"""Calls that skip their Python, from many threads, while what their guards read changes.

A call sees one of the states that there are, as plain Python would; explanations are made, fail and
are dropped meanwhile. Memory stays flat, whatever guards do. Run under the sanitizers, too.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn as nn
from tests.capture.frames import CALLS, explained, same
from tests.stress.test_many_threads import quick_switches, together

__all__ = ["quick_switches"]  # a fixture of every test

CALLS_OF_MEMORY = int(os.environ.get("STRESS_CALLS", "50000"))
BLOCKS_PER_CALL = 0.02  # Python objects that stay; caches of a thousand entries fill slowly
SETTINGS: dict[str, Any] = {"offset": 0.0, "signs": [1.0]}


class Layers(nn.Module):
    """Reads attributes, a global dict and a list of it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        self.scale: float = 1.0
        self.name = "sine"

    def forward(self, x: Any) -> Any:
        """The layers, and what the state says."""
        y = self.inner(x) * self.scale
        y = y.sin() if self.name == "sine" else y.cos()
        for sign in SETTINGS["signs"]:
            y = y + sign
        return y + SETTINGS["offset"]


def states() -> list[Callable[[Layers], None]]:
    """Changes of what guards read."""

    def changes(scale: float, name: str, offset: float) -> Callable[[Layers], None]:
        def change(model: Layers) -> None:
            model.scale, model.name, SETTINGS["offset"] = scale, name, offset

        return change

    return [
        changes(*each) for each in itertools.product((1.0, 2.0), ("sine", "cosine"), (0.0, 1.5))
    ]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The global state, which is put back."""
    monkeypatch.setitem(SETTINGS, "offset", 0.0)
    monkeypatch.setitem(SETTINGS, "signs", [1.0])
    return SETTINGS


def test_state_changes_while_threads_call(settings: dict[str, Any]) -> None:
    model, x = Layers(), torch.linspace(-1, 1, 12).reshape(3, 4)
    possible = []
    for change in states():
        change(model)
        with torch.no_grad():
            possible.append(model(x))
    with torch.no_grad():
        compiled = explained(model.__call__, x)

    def call(turn: int) -> bool:
        with torch.no_grad():
            result = compiled(x)
        return any(same(result, each) for each in possible)

    def disturb(turn: int) -> bool:
        states()[turn % len(possible)](model)
        return True

    for results in together(call, call, disturb, threads=4):
        assert all(results)
    assert compiled._hits > 0


def test_explanations_are_dropped_while_threads_call(settings: dict[str, Any]) -> None:
    model, x = Layers(), torch.linspace(-1, 1, 12).reshape(3, 4)
    expected = model(x)
    compiled = torch.compile(model.__call__)

    def call(turn: int) -> bool:
        return same(compiled(x), expected)

    def reset(turn: int) -> bool:
        if turn % 50 == 0:
            torch._dynamo.reset()
        return call(turn)

    for results in together(call, call, reset, threads=4):
        assert all(results)


def test_threads_train() -> None:
    """Each thread trains models of its own by one compiled step; losses have one thread's bits."""

    def losses(step: Callable[..., Any]) -> list[float]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        x = torch.linspace(-1, 1, 24).reshape(6, 4)
        return [float(step(model, optimizer, x)) for _ in range(2 * CALLS)]

    def step(model: Any, optimizer: Any, x: Any) -> Any:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    expected = losses(step)
    compiled = torch.compile(step)
    assert losses(compiled) == expected
    torch.manual_seed(1)
    weights = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).state_dict()

    def train(turn: int) -> list[float]:
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        model.load_state_dict(weights)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        x = torch.linspace(-1, 1, 24).reshape(6, 4)
        return [float(compiled(model, optimizer, x)) for _ in range(2 * CALLS)]

    for results in together(train, threads=3):
        assert all(each == expected for each in results)


@pytest.mark.parametrize("repeat", [True, False], ids=["states return", "states are new"])
def test_memory_is_flat(repeat: bool, settings: dict[str, Any]) -> None:
    """Guards fail at every call: to the next explanation, or to calls that are recorded."""
    model = Layers()
    compiled = torch.compile(model.__call__)
    inputs = [torch.linspace(-1, 1, 4 * n).reshape(n, 4) for n in (2, 3)]
    signs = [[], [1.0], [1.0, 1.0]]

    def call(number: int) -> None:
        number = number % 4 if repeat else number
        model.scale, model.name = 1.0 + number, "sine" if number % 2 else f"cosine{number}"
        settings["offset"] = 0.25 * number
        settings["signs"] = signs[number % 3] if repeat else [1.0] * (number % 3)
        model.train(number % 5 == 0)
        with torch.set_grad_enabled(number % 7 == 0):
            compiled(inputs[number % 2])

    def blocks(first: int, last: int) -> int:
        for number in range(first, last):
            call(number)
        gc.collect()
        return sys.getallocatedblocks()

    warm = CALLS_OF_MEMORY // 2
    before = blocks(0, warm)
    growth = blocks(warm, CALLS_OF_MEMORY) - before
    assert growth < BLOCKS_PER_CALL * warm
    assert compiled._hits > 0 or not repeat
