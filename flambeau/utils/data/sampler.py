"""Samplers: in which order a loader visits a dataset. Orders are those of PyTorch, seed by seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import flambeau as torch
from flambeau.ir.failure import failure

__all__ = [
    "BatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

Index = TypeVar("Index", covariant=True)
_PIECE = 32  # indices drawn at once with replacement, as PyTorch draws them


def _positive(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        problem = f"{name} should be a positive integer value, but got {name}={value}"
        raise failure(ValueError, "sampler", problem, f"{name} >= 1")


def _boolean(value: Any, name: str, error: type[Exception]) -> None:
    if not isinstance(value, bool):
        problem = f"{name} should be a boolean value, but got {name}={value}"
        raise failure(error, "sampler", problem, "True/False")


def draw_seed(generator: Any = None) -> int:
    """A seed of 63 bits from a generator, in the way PyTorch draws it."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


class Sampler(Generic[Index]):
    """An iterable of indices (or of lists of them); `__len__` where the number is known."""

    def __iter__(self) -> Iterator[Index]:
        raise failure(NotImplementedError, "Sampler", "define __iter__", "yield indices")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ... to the end of a dataset."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order, or with replacement.

    Args:
        data_source: a dataset with a length.
        replacement: indices may repeat.
        num_samples: how many; the length of the dataset when None.
        generator: the default one when None (it then only seeds a generator for the epoch).
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _boolean(replacement, "replacement", TypeError)
        _positive(self.num_samples, "num_samples")

    @property
    def num_samples(self) -> int:
        """How many indices one pass yields."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size, count = len(self.data_source), self.num_samples
        generator = self.generator
        if generator is None:
            generator = torch.Generator()
            generator.manual_seed(draw_seed())
        if not self.replacement:
            for start in range(0, count, size):
                order = torch.randperm(size, generator=generator).tolist()
                yield from order[: count - start]
            if count % size == 0:  # PyTorch draws the (empty) rest as well
                torch.randperm(size, generator=generator)
            return
        for start in range(0, count - count % _PIECE, _PIECE):
            del start
            yield from self._integers(size, _PIECE, generator)
        yield from self._integers(size, count % _PIECE, generator)

    @staticmethod
    def _integers(size: int, count: int, generator: Any) -> list[int]:
        drawn = torch.randint(size, (count,), dtype=torch.int64, generator=generator)
        return list(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for place in torch.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with given weights, which need not sum to one.

    Example:
        >>> list(WeightedRandomSampler([0.0, 1.0], 3))
        [1, 1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
    ) -> None:
        _positive(num_samples, "num_samples")
        _boolean(replacement, "replacement", ValueError)
        self.weights = torch.as_tensor(weights, dtype=torch.float64)
        if self.weights.dim() != 1:
            problem = "weights should be a 1d sequence but given weights have shape "
            problem += f"{tuple(self.weights.shape)}"
            raise failure(ValueError, "sampler", problem, "one weight per index")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = torch.multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler.

    Example:
        >>> list(BatchSampler(range(5), batch_size=2, drop_last=True))
        [[0, 1], [2, 3]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        _positive(batch_size, "batch_size")
        _boolean(drop_last, "drop_last", ValueError)
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
