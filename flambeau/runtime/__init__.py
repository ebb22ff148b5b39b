"""The running process: memory, cached plans, times of launches; settings from the environment.

These are questions to the native core about itself, for tuning and for tests: nothing here is part
of PyTorch's API.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from flambeau import _core

__all__ = [
    "LaunchTime",
    "empty_cache",
    "launch_profile",
    "memory_snapshot",
    "memory_stats",
    "plan_cache_clear",
    "plan_cache_stats",
    "profile",
    "profile_launches",
    "reset_peak_memory_stats",
]


class LaunchTime(NamedTuple):
    """Time of one region of launches that ran together.

    Attributes:
        name: of the region's first launch.
        nanoseconds: wall time.
        estimated: what the scheduler thought it would take, in nanoseconds.
        launches: how many launches the region has.
    """

    name: str
    nanoseconds: int
    estimated: int
    launches: int


def plan_cache_stats() -> dict[str, int]:
    """How calls found their plans since the last `plan_cache_clear`.

    Returns:
        `exact_hits` (the same sizes were seen), `class_hits` (new sizes of a known class, resolved
        natively), `builds` (a new class: Python traced the operator), `entries` (exact keys held).
    """
    found: dict[str, int] = _core.plan_cache_stats()
    return found


def plan_cache_clear() -> None:
    """Forgets every plan of every operator; the next call of each traces it again."""
    _core.plan_cache_clear()


def memory_stats() -> dict[str, int]:
    """Counters of the caching allocator, named as PyTorch's: `allocated_bytes.all.current` ..."""
    found: dict[str, int] = _core.memory_stats()
    return found


def memory_snapshot() -> list[dict[str, Any]]:
    """Segments of the caching allocator, each with its blocks in the order of addresses."""
    found: list[dict[str, Any]] = _core.memory_snapshot()
    return found


def empty_cache() -> int:
    """Returns unused cached memory to the system; gives the number of bytes."""
    return int(_core.empty_cache())


def reset_peak_memory_stats() -> None:
    """Peaks of `memory_stats` start again at the current values."""
    _core.reset_peak_memory_stats()


def profile_launches(on: bool) -> None:
    """Starts (forgetting earlier times) or stops timing the launches of plans.

    Plans of a few short kernels run on a path of their own and are not timed.
    """
    _core.profile_launches(on)


def launch_profile() -> list[LaunchTime]:
    """Times of the regions of launches that ran while `profile_launches(True)`, in order."""
    return [LaunchTime(*time) for time in _core.launch_profile()]


@contextmanager
def profile() -> Iterator[list[LaunchTime]]:
    """Times the launches of a `with` block; the list it gives is filled at the block's end.

    Example:
        >>> with profile() as times:
        ...     _ = torch.ones(1 << 20).exp()
        >>> [time.launches for time in times] != []
        True
    """
    times: list[LaunchTime] = []
    profile_launches(True)
    try:
        yield times
    finally:
        profile_launches(False)
        times.extend(launch_profile())
