"""Pipes that reorder items."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from flambeau.ir.failure import failure
from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import IterDataPipe
from flambeau.utils.data.sampler import SequentialSampler, draw_seed

__all__ = ["SamplerIterDataPipe", "ShufflerIterDataPipe"]


class SamplerIterDataPipe(IterDataPipe[Any]):
    """The elements of a pipe in the order of a sampler.

    Args:
        datapipe: passed to the sampler as its data source.
        sampler: a class of samplers.
        sampler_args, sampler_kwargs: further arguments of its constructor.
    """

    def __init__(
        self,
        datapipe: IterDataPipe[Any],
        sampler: Any = SequentialSampler,
        sampler_args: tuple[Any, ...] | None = None,
        sampler_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.datapipe = datapipe
        self.sampler_args = sampler_args or ()
        self.sampler_kwargs = {**(sampler_kwargs or {}), "data_source": datapipe}
        self.sampler = sampler(*self.sampler_args, **self.sampler_kwargs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(IterDataPipe[Any]):
    """Shuffles a stream through a buffer.

    Args:
        datapipe: the source.
        buffer_size: items among which the next one is drawn.
        unbatch_level: batches are taken apart so many levels deep before.

    Raises:
        ValueError: a buffer without room.
    """

    def __init__(
        self, datapipe: IterDataPipe[Any], *, buffer_size: int = 10000, unbatch_level: int = 0
    ) -> None:
        super().__init__()
        if buffer_size <= 0:
            raise failure(ValueError, "shuffle", "buffer_size should be larger than 0", "1 or more")
        self.datapipe = datapipe.unbatch(unbatch_level=unbatch_level) if unbatch_level else datapipe
        self.buffer_size = buffer_size
        self._buffer: list[Any] = []
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()

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
            yield from self.datapipe
            return
        for item in self.datapipe:
            if len(self._buffer) < self.buffer_size:
                self._buffer.append(item)
                continue
            position = self._rng.randint(0, len(self._buffer) - 1)
            drawn, self._buffer[position] = self._buffer[position], item
            yield drawn
        while self._buffer:
            yield self._buffer.pop(self._rng.randint(0, len(self._buffer) - 1))

    def __len__(self) -> int:
        return len(self.datapipe)  # type: ignore[arg-type]

    def reset(self) -> None:
        """Empties the buffer and seeds the pass."""
        self._buffer = []
        if self._enabled:
            seed = draw_seed() if self._seed is None else self._seed
            self._rng.seed(seed)
            self._seed = None
