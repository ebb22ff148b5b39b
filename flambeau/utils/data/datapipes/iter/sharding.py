"""A pipe that passes the items of one of several processes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from flambeau.ir.failure import failure
from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import IterDataPipe

__all__ = ["SHARDING_PRIORITIES", "ShardingFilterIterDataPipe"]


class SHARDING_PRIORITIES(IntEnum):  # noqa: N801 - PyTorch's name
    """The level of parallelism that divides a stream first."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


class _ShardingIterDataPipe(IterDataPipe[Any]):
    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any) -> None:
        raise NotImplementedError("[sharding] define apply_sharding\nhint: it divides the stream")


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(_ShardingIterDataPipe):
    """Every n-th item, where n processes divide a stream: workers of a loader do.

    Args:
        source_datapipe: the source.
        sharding_group_filter: the one level of parallelism that divides it; all when None.
    """

    def __init__(
        self, source_datapipe: IterDataPipe[Any], sharding_group_filter: Any = None
    ) -> None:
        self.source_datapipe = source_datapipe
        self.sharding_group_filter = sharding_group_filter
        self.groups: dict[int, tuple[int, int]] = {}
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(
        self,
        num_of_instances: int,
        instance_id: int,
        sharding_group: Any = SHARDING_PRIORITIES.DEFAULT,
    ) -> None:
        """Passes item `instance_id` of each `num_of_instances` from now on.

        Raises:
            ValueError: a number out of range.
            RuntimeError: DEFAULT together with other groups.
        """
        if instance_id >= num_of_instances:
            problem = f"instance_id({instance_id}) should be smaller than "
            problem += f"num_of_instances({num_of_instances})"
            raise failure(ValueError, "sharding_filter", problem, "instances count from 0")
        default = SHARDING_PRIORITIES.DEFAULT
        if self.groups and (sharding_group == default) != (default in self.groups):
            problem = "ShardingFilter cannot mix DEFAULT and non DEFAULT groups"
            raise failure(RuntimeError, "sharding_filter", problem, "name a group in each call")
        self.groups[sharding_group] = (num_of_instances, instance_id)
        self.num_of_instances, self.instance_id = 1, 0
        for group in sorted(self.groups, reverse=True):
            if self.sharding_group_filter in (None, group):
                count, number = self.groups[group]
                self.instance_id += self.num_of_instances * number
                self.num_of_instances *= count

    def __iter__(self) -> Iterator[Any]:
        for position, item in enumerate(self.source_datapipe):
            if position % self.num_of_instances == self.instance_id:
                yield item

    def __len__(self) -> int:
        length = len(self.source_datapipe)  # type: ignore[arg-type]
        extra = self.instance_id < length % self.num_of_instances
        return length // self.num_of_instances + extra
