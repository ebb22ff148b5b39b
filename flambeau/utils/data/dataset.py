"""Datasets: what can be indexed, what can only be iterated, and combinations of them."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import flambeau as torch
from flambeau.ir.failure import failure

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]

Item = TypeVar("Item", covariant=True)


class Dataset(Generic[Item]):
    """Items by index. Subclasses define `__getitem__`, and `__len__` for most samplers.

    A method `__getitems__(indices) -> list`, where defined, fetches a batch in one call.
    """

    def __getitem__(self, index: Any) -> Item:
        problem = "Subclasses of Dataset should implement __getitem__."
        raise failure(NotImplementedError, "Dataset", problem, "define it")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[Item]):
    """Items in a stream. Subclasses define `__iter__`.

    In a worker process `get_worker_info()` returns which part of the stream is the worker's.
    """

    def __iter__(self) -> Iterator[Item]:
        problem = "Subclasses of IterableDataset should implement __iter__."
        raise failure(NotImplementedError, "IterableDataset", problem, "define it")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Rows of tensors that have the same first size.

    Example:
        >>> TensorDataset(torch.arange(3), torch.zeros(3))[1]
        (tensor(1), tensor(0.))
    """

    def __init__(self, *tensors: Any) -> None:
        if any(tensors[0].size(0) != tensor.size(0) for tensor in tensors):
            problem = "Size mismatch between tensors"
            raise failure(AssertionError, "TensorDataset", problem, "equal first sizes")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].size(0))


class StackDataset(Dataset[Any]):
    """Several datasets side by side: an item is a tuple (or a dict) of their items."""

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if args and kwargs:
            problem = "Supported either tuple- (via args) or dict- (via kwargs) like input, but "
            problem += "both types are given."
            raise failure(ValueError, "StackDataset", problem, "use one of them")
        if not args and not kwargs:
            raise ValueError("[StackDataset] At least one dataset should be passed\nhint: pass one")
        self.datasets: Any = args or kwargs
        members = args or tuple(kwargs.values())
        self._length = len(members[0])  # type: ignore[arg-type]
        if any(len(dataset) != self._length for dataset in members):  # type: ignore[arg-type]
            raise ValueError("[StackDataset] Size mismatch between datasets\nhint: equal lengths")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """Items of a batch, by the members' own `__getitems__` where they have it."""
        if isinstance(self.datasets, dict):
            columns = {name: self._items(d, indices) for name, d in self.datasets.items()}
            return [
                {name: column[i] for name, column in columns.items()} for i in range(len(indices))
            ]
        rows = [self._items(dataset, indices) for dataset in self.datasets]
        return list(zip(*rows, strict=True))

    @staticmethod
    def _items(dataset: Any, indices: Sequence[Any]) -> list[Any]:
        if not callable(getattr(dataset, "__getitems__", None)):
            return [dataset[index] for index in indices]
        items = dataset.__getitems__(indices)
        if len(items) != len(indices):
            raise ValueError(
                f"[StackDataset] Nested dataset's output size mismatch. Expected {len(indices)}, "
                f"got {len(items)}\nhint: __getitems__ returns one item per index"
            )
        return list(items)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Any]):
    """Datasets one after the other.

    Attributes:
        datasets: the members.
        cumulative_sizes: their lengths, summed up.
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            problem = "datasets should not be an empty iterable"
            raise failure(AssertionError, "ConcatDataset", problem, "pass one")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            problem = "ConcatDataset does not support IterableDataset"
            raise failure(AssertionError, "ConcatDataset", problem, "use ChainDataset")
        lengths = (len(dataset) for dataset in self.datasets)  # type: ignore[arg-type]
        self.cumulative_sizes = list(itertools.accumulate(lengths))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            if -index > len(self):
                problem = "absolute value of index should not exceed dataset length"
                raise failure(ValueError, "ConcatDataset", problem, f"the length is {len(self)}")
            index += len(self)
        if index >= len(self):
            problem = f"index {index} is out of range"
            raise failure(IndexError, "ConcatDataset", problem, f"the length is {len(self)}")
        member = bisect.bisect_right(self.cumulative_sizes, index)
        start = self.cumulative_sizes[member - 1] if member else 0
        return self.datasets[member][index - start]


class ChainDataset(IterableDataset[Any]):
    """Streams one after the other; each is started when the one before it is exhausted."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def _checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                problem = "ChainDataset only supports IterableDataset"
                raise failure(AssertionError, "ChainDataset", problem, "use ConcatDataset")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._checked())


class Subset(Dataset[Any]):
    """The items of a dataset at some indices."""

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Items of a batch, by the dataset's own `__getitems__` where it has one."""
        chosen = [self.indices[i] for i in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            return list(self.dataset.__getitems__(chosen))  # type: ignore[attr-defined]
        return [self.dataset[index] for index in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[Any], lengths: Sequence[int | float], generator: Any = None
) -> list[Subset]:
    """Splits a dataset at random into parts of given lengths, or given fractions that sum to 1.

    Args:
        dataset: has a length.
        lengths: of the parts; what fractions leave over is dealt out one by one.
        generator: for the permutation; the default one when None.

    Raises:
        ValueError: the lengths do not sum to the dataset's, or a fraction is not in [0, 1].

    Example:
        >>> [len(part) for part in random_split(range(10), [0.7, 0.3])]
        [7, 3]
    """
    total = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _from_fractions(lengths, total)
    if sum(lengths) != total:
        problem = "Sum of input lengths does not equal the length of the input dataset!"
        raise failure(ValueError, "random_split", problem, f"the dataset has {total} items")
    order = torch.randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(int(length) for length in lengths)
    return [
        Subset(dataset, order[end - int(length) : end])
        for end, length in zip(ends, lengths, strict=True)
    ]


def _from_fractions(fractions: Sequence[float], total: int) -> list[int]:
    for position, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            problem = f"Fraction at index {position} is not between 0 and 1"
            raise failure(ValueError, "random_split", problem, "fractions sum to 1")
    lengths = [math.floor(total * fraction) for fraction in fractions]
    for position in range(total - sum(lengths)):
        lengths[position % len(lengths)] += 1
    return lengths
