"""Pipes that group items into batches, and take batches apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ir.failure import failure
from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import DataChunk, IterDataPipe

__all__ = ["BatcherIterDataPipe", "GrouperIterDataPipe", "UnBatcherIterDataPipe"]


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe[DataChunk]):
    """Lists of `batch_size` items.

    Args:
        datapipe: the source.
        batch_size: items per list, at least one.
        drop_last: no shorter list at the end.
        wrapper_class: type of the lists.
    """

    def __init__(
        self,
        datapipe: IterDataPipe[Any],
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: type[DataChunk] = DataChunk,
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("[batch] Batch size is required to be larger than 0!\nhint: 1")
        super().__init__()
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __iter__(self) -> Iterator[DataChunk]:
        batch: list[Any] = []
        for item in self.datapipe:
            batch.append(item)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        length = len(self.datapipe)  # type: ignore[arg-type]
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe[Any]):
    """The items of lists.

    Args:
        datapipe: yields lists.
        unbatch_level: how many levels of lists are taken apart; -1 all of them.

    Raises:
        ValueError: a level below -1.
        IndexError: fewer levels than that (when iterated).
    """

    def __init__(self, datapipe: IterDataPipe[Any], unbatch_level: int = 1) -> None:
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        if self.unbatch_level < -1:
            raise failure(ValueError, "unbatch", "unbatch_level must be -1 or >= 0", "-1 takes all")
        for element in self.datapipe:
            yield from self._parts(element, self.unbatch_level)

    def _parts(self, element: Any, level: int) -> Iterator[Any]:
        lists = isinstance(element, list)
        if level == 0 or (level == -1 and not lists):
            yield element
            return
        if not lists:
            problem = f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe"
            raise failure(IndexError, "unbatch", problem, "a smaller unbatch_level")
        for item in element:
            yield from self._parts(item, -1 if level == -1 else level - 1)


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe[Any]):
    """Lists of items of equal keys.

    Args:
        datapipe: the source.
        group_key_fn: item -> key.
        keep_key: yields (key, list) pairs.
        buffer_size: items that may wait for their group.
        group_size: groups are yielded as soon as they have so many items.
        guaranteed_group_size: smallest group yielded when the buffer is full.
        drop_remaining: a smaller group is dropped then, instead of an error.

    Raises:
        AssertionError: sizes that contradict each other.
        RuntimeError: the buffer is full of groups below the guaranteed size (when iterated).
    """

    def __init__(
        self,
        datapipe: IterDataPipe[Any],
        group_key_fn: Callable[[Any], Any],
        *,
        keep_key: bool = False,
        buffer_size: int = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:
        hint = "\nhint: 0 < guaranteed_group_size <= group_size <= buffer_size"
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError(f"[groupby] invalid group_size {group_size}{hint}")
        if guaranteed_group_size is not None and (
            group_size is None or not 0 < guaranteed_group_size <= group_size
        ):
            raise AssertionError(f"[groupby] invalid guaranteed_group_size{hint}")
        self.datapipe, self.group_key_fn, self.keep_key = datapipe, group_key_fn, keep_key
        self.max_buffer_size, self.group_size = buffer_size, group_size
        smallest = group_size if guaranteed_group_size is None else guaranteed_group_size
        self.guaranteed_group_size = smallest
        self.drop_remaining = drop_remaining
        self.wrapper_class = DataChunk

    def _wrapped(self, key: Any, items: list[Any]) -> Any:
        chunk = self.wrapper_class(items)
        return (key, chunk) if self.keep_key else chunk

    def _evicted(self, groups: dict[Any, list[Any]]) -> tuple[Any, list[Any] | None]:
        """The largest group, taken out of a full buffer; None where it is dropped."""
        key = max(groups, key=lambda each: len(groups[each]))
        size, smallest = len(groups[key]), self.guaranteed_group_size
        small = smallest is not None and size < smallest
        if small and not self.drop_remaining:
            problem = f"Failed to group items: {groups[key]}"
            raise failure(
                RuntimeError, "groupby", problem, "a larger buffer_size, or drop_remaining=True"
            )
        items = groups.pop(key)
        return key, None if small else items

    def __iter__(self) -> Iterator[Any]:
        groups: dict[Any, list[Any]] = defaultdict(list)
        count = 0
        for item in self.datapipe:
            key = self.group_key_fn(item)
            groups[key].append(item)
            count += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                yield self._wrapped(key, groups.pop(key))
                count -= self.group_size
            if count == self.max_buffer_size:
                before = sum(map(len, groups.values()))
                oldest, items = self._evicted(groups)
                count -= before - sum(map(len, groups.values()))
                if items is not None:
                    yield self._wrapped(oldest, items)
        for key in tuple(groups):
            yield self._wrapped(key, groups.pop(key))
