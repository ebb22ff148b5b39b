"""Pipes that join several streams into one, or split one into several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ir.failure import failure
from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import IterDataPipe

__all__ = [
    "ConcaterIterDataPipe",
    "DemultiplexerIterDataPipe",
    "ForkerIterDataPipe",
    "MultiplexerIterDataPipe",
    "ZipperIterDataPipe",
]


def _checked(datapipes: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if not datapipes:
        problem = "Expected at least one DataPipe, but got nothing"
        raise failure(ValueError, name, problem, "pass one")
    if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
        raise failure(TypeError, name, "Expected all inputs to be `IterDataPipe`", "wrap iterables")
    return datapipes


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe[Any]):
    """Streams one after the other."""

    def __init__(self, *datapipes: IterDataPipe[Any]) -> None:
        self.datapipes = _checked(datapipes, "concat")

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe[Any]):
    """Tuples of one item from each stream, until the shortest ends."""

    def __init__(self, *datapipes: IterDataPipe[Any]) -> None:
        super().__init__()
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("[zip] All inputs are required to be `IterDataPipe`\nhint: wrap them")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        yield from zip(*self.datapipes)  # noqa: B905 - lengths may differ

    def __len__(self) -> int:
        return min(map(len, self.datapipes))  # type: ignore[arg-type]


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe[Any]):
    """One item of each stream in turn, until the shortest ends.

    Example:
        >>> IterableWrapper = torch.utils.data.datapipes.iter.IterableWrapper
        >>> list(IterableWrapper([1, 2]).mux(IterableWrapper("ab")))
        [1, 'a', 2, 'b']
    """

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for row in zip(*self.datapipes):  # noqa: B905 - lengths may differ
            yield from row

    def __len__(self) -> int:
        return min(map(len, self.datapipes)) * len(self.datapipes)


class _Split:
    """One pass over a source whose items several children read at their own pace."""

    def __init__(
        self, source: Any, count: int, buffer_size: int, choose: Any, shared: bool
    ) -> None:
        self.source, self.count, self.buffer_size, self.choose = source, count, buffer_size, choose
        self.shared = shared  # an item that waits in several queues takes one place
        self.queues: list[deque[Any]] = [deque() for _ in range(count)]
        self.stream: Iterator[Any] | None = None
        self.begun: set[int] = set()  # children that read this pass

    def begin(self, number: int) -> None:
        """Starts a new pass where this child has read the present one."""
        if self.stream is None or number in self.begun:
            self.queues = [deque() for _ in range(self.count)]
            self.stream, self.begun = iter(self.source), set()
        self.begun.add(number)

    def next(self, number: int) -> Any:
        """The child's next item; StopIteration at the end."""
        queue = self.queues[number]
        while not queue:
            assert self.stream is not None
            item = next(self.stream)
            for other in self.choose(item):
                self.queues[other].append(item)
            waiting = [len(other) for other in self.queues if other is not queue]
            if 0 <= self.buffer_size < (max(waiting) if self.shared else sum(waiting)):
                problem = f"a buffer of {self.buffer_size} items overflowed: one child reads far "
                problem += "ahead of another"
                raise failure(BufferError, "datapipe", problem, "a larger buffer_size")
        return queue.popleft()


class _ChildDataPipe(IterDataPipe[Any]):
    """One of the streams that a source was split into."""

    def __init__(self, main_datapipe: Any, split: _Split, number: int, exact: bool) -> None:
        self.main_datapipe, self.split = main_datapipe, split
        self.instance_id, self.exact = number, exact

    def __iter__(self) -> Iterator[Any]:
        self.split.begin(self.instance_id)
        while True:
            try:
                item = self.split.next(self.instance_id)
            except StopIteration:
                return
            yield item

    def __len__(self) -> int:
        if not self.exact:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return len(self.main_datapipe)


def _children(source: Any, count: int, buffer_size: int, choose: Any, exact: bool) -> list[Any]:
    split = _Split(source, count, buffer_size, choose, exact)
    return [_ChildDataPipe(source, split, number, exact) for number in range(count)]


@functional_datapipe("fork")
class ForkerIterDataPipe(IterDataPipe[Any]):
    """Copies of one stream that are read independently.

    Args:
        datapipe: the source, iterated once for all of them.
        num_instances: number of copies.
        buffer_size: how far one copy may read ahead of another; -1 without limit.
        copy: None, "shallow" or "deep": whether each copy has items of its own.

    Raises:
        ValueError: a number below one, another `copy`.
        BufferError: one copy is too far ahead (when iterated).
    """

    _BASE = IterDataPipe

    def __new__(  # type: ignore[misc]
        cls, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None
    ) -> Any:
        """The copies, as a list."""
        if num_instances < 1:
            problem = f"Expected `num_instances` larger than 0, but {num_instances} is found"
            raise failure(ValueError, "fork", problem, "1 or more")
        if copy not in (None, "shallow", "deep"):
            raise ValueError(f"[fork] Unknown copy method: {copy}\nhint: None, 'shallow', 'deep'")
        if num_instances == 1:
            return datapipe
        everyone = range(num_instances)
        children = _children(datapipe, num_instances, buffer_size, lambda item: everyone, True)
        copier = _COPIERS[copy]
        return children if copier is None else [child.map(copier) for child in children]


def _copiers() -> dict[str | None, Any]:
    from copy import copy, deepcopy

    return {None: None, "shallow": copy, "deep": deepcopy}


_COPIERS = _copiers()


@functional_datapipe("demux")
class DemultiplexerIterDataPipe(IterDataPipe[Any]):
    """Several streams of which each item goes to the one that a function names.

    Args:
        datapipe: the source.
        num_instances: number of streams.
        classifier_fn: item -> number of the stream, or None.
        drop_none: items of None are left out; else they raise.
        buffer_size: items that may wait for their stream; -1 without limit.

    Raises:
        ValueError: a number below one; a stream that is not there (when iterated).
    """

    _BASE = IterDataPipe

    def __new__(  # type: ignore[misc]
        cls,
        datapipe: Any,
        num_instances: int,
        classifier_fn: Callable[[Any], int | None],
        drop_none: bool = False,
        buffer_size: int = 1000,
    ) -> Any:
        """The streams, as a list."""
        if num_instances < 1:
            problem = f"Expected `num_instances` larger than 0, but {num_instances} is found"
            raise failure(ValueError, "demux", problem, "1 or more")

        def choose(item: Any) -> tuple[int, ...]:
            number = classifier_fn(item)
            if number is None and drop_none:
                return ()
            if number is None or not 0 <= number < num_instances:
                problem = "Output of the classification fn should be between 0 and "
                problem += f"{num_instances - 1}. {number} is returned."
                raise failure(ValueError, "demux", problem, "drop_none=True drops None")
            return (int(number),)

        return _children(datapipe, num_instances, buffer_size, choose, False)
