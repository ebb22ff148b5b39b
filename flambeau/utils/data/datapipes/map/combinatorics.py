"""A stream of the items of a pipe in random order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe
from flambeau.utils.data.sampler import draw_seed

__all__ = ["ShufflerIterDataPipe"]


class ShufflerIterDataPipe(IterDataPipe[Any]):
    """Items by index, as a stream in random order.

    Args:
        datapipe: the source.
        indices: of the items; 0 to its length when None.
    """

    def __init__(self, datapipe: MapDataPipe[Any], *, indices: list[Any] | None = None) -> None:
        super().__init__()
        self.datapipe = datapipe
        length = len(datapipe)  # type: ignore[arg-type]
        self.indices = list(range(length)) if indices is None else indices
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()
        self._shuffled_indices = self.indices

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Turns shuffling on or off; returns the pipe."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """Seeds the next pass; returns the pipe."""
        self._seed = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from (self.datapipe[index] for index in self.indices)
            return
        while self._shuffled_indices:
            yield self.datapipe[self._shuffled_indices.pop()]

    def reset(self) -> None:
        """Draws the order of the next pass."""
        if self._enabled:
            self._rng.seed(draw_seed() if self._seed is None else self._seed)
            self._seed = None
            self._shuffled_indices = self._rng.sample(self.indices, len(self.indices))

    def __len__(self) -> int:
        return len(self.datapipe)  # type: ignore[arg-type]


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)
