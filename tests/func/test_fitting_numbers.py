"""Numbers that the dtype cannot hold are refused inside of transformations as outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch

BYTES = torch.zeros(2, 3, dtype=torch.uint8)
HALVES = torch.ones(2, dtype=torch.float16)
CALLS: dict[str, Callable[[], Any]] = {
    "vmap masked_fill": lambda: torch.func.vmap(lambda t: t.masked_fill(t == 0, 300))(BYTES),
    "vmap masked_fill_": lambda: torch.func.vmap(lambda t: t.masked_fill_(t == 0, 300))(BYTES),
    "vmap full_like": lambda: torch.func.vmap(
        lambda t: torch.full_like(t, 1e10, dtype=torch.int32)
    )(BYTES),
    "vmap fill": lambda: torch.func.vmap(lambda t: torch.fill(t, 300))(BYTES),
    "jvp masked_fill": lambda: torch.func.jvp(
        lambda t: t.masked_fill(t > 0, 1e6), (HALVES,), (HALVES,)
    ),
    "grad masked_fill": lambda: torch.func.grad(lambda t: t.masked_fill(t > 0, 1e6).sum())(HALVES),
    "vmap of vmap": lambda: torch.func.vmap(torch.func.vmap(lambda t: t.masked_fill(t == 0, 300)))(
        BYTES
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match="cannot be converted to type"):
        CALLS[name]()


def test_numbers_that_fit() -> None:
    filled = torch.func.vmap(lambda t: t.masked_fill(t == 0, 255))(BYTES)
    assert filled.tolist() == [[255] * 3] * 2
    filled = torch.func.vmap(lambda t: torch.full_like(t, 1e9, dtype=torch.int32))(BYTES)
    assert filled.tolist() == [[10**9] * 3] * 2
