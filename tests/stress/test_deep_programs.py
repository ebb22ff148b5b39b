"""Random programs of equal layers have the bits of eager mode; more by `deep_programs`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import flambeau as torch
from tests.stress.deep_programs import difference

SEEDS = range(int(os.environ.get("STRESS_PROGRAMS", "8")))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Programs are small; the number of threads is restored."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.mark.parametrize("seed", SEEDS)
def test_bits(seed: int) -> None:
    assert difference(seed) is None
