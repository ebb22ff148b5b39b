"""`DistributedSampler`: the part of a dataset that one of several training processes visits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import flambeau as torch
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


def _process_group(name: str) -> int:
    """Size of the default process group, or this process's rank in it."""
    try:
        distributed = late("flambeau.distributed")
        available = distributed.is_available()
    except ModuleNotFoundError:
        available = False
    if not available:
        problem = "Requires distributed package to be available"
        raise failure(RuntimeError, "DistributedSampler", problem, "pass num_replicas and rank")
    return int(getattr(distributed, name)())


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index of an order that all processes draw alike.

    Args:
        dataset: has a length.
        num_replicas: number of processes; the default process group's size when None.
        rank: of this process, in [0, num_replicas); the process group's when None.
        shuffle: another order in every epoch, see `set_epoch`.
        seed: of the order; the same in all processes.
        drop_last: leaves the last items out, instead of visiting some items twice, where the
            length is not a multiple of `num_replicas`.

    Raises:
        RuntimeError: no process group to ask.
        ValueError: a rank out of range.

    Example:
        >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
        [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        num_replicas = _process_group("get_world_size") if num_replicas is None else num_replicas
        rank = _process_group("get_rank") if rank is None else rank
        if not 0 <= rank < num_replicas:
            problem = f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            raise failure(ValueError, "DistributedSampler", problem, "ranks count from 0")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch, self.drop_last = 0, drop_last
        length = len(dataset)
        self.num_samples = length // num_replicas if drop_last else -(-length // num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle, self.seed = shuffle, seed

    def __iter__(self) -> Iterator[int]:
        length = len(self.dataset)
        order = list(range(length))
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = torch.randperm(length, generator=generator).tolist()
        padded = list(itertools.islice(itertools.cycle(order), self.total_size))
        return iter(padded[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next pass: call it before each epoch, in all processes."""
        self.epoch = epoch
