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
    "forget_programs",
    "launch_profile",
    "memory_snapshot",
    "memory_stats",
    "plan_cache_clear",
    "plan_cache_stats",
    "prepacked_limit",
    "profile",
    "profile_launches",
    "dry_run",
    "reset_peak_memory_stats",
    "set_prepacked_limit",
]


class LaunchTime(NamedTuple):
    """Time of one launch of a kernel or a native routine.

    Attributes:
        name: of the launch.
        nanoseconds: wall time; launches that ran at the same time share theirs.
        estimated: what the scheduler thought it would take, in nanoseconds.
        launches: how many launches ran at the same time.
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
    statistics: dict[str, int] = _core.plan_cache_stats()
    return statistics


@contextmanager
def dry_run() -> Iterator[None]:
    """Inside, plans are made and give their outputs, but launch nothing; fresh memory is zero."""
    before = _core.set_dry_run(True)
    try:
        yield
    finally:
        _core.set_dry_run(before)


def forget_programs() -> None:
    """Forgets the plans of all operators and of all recorded regions."""
    _core.plan_cache_clear()
    _core.stream_clear()


def plan_cache_clear() -> None:
    """Forgets every plan of every operator; the next call of each traces it again."""
    _core.plan_cache_clear()


def memory_stats() -> dict[str, int]:
    """Counters of the caching allocator, named as PyTorch's: `allocated_bytes.all.current` ...

    `prepacked_bytes.all.current` and `.peak` are the packed copies of weights among them,
    `num_prepacked` their number; `num_prepacked_hits` counts launches that they saved.
    """
    statistics: dict[str, int] = _core.memory_stats()
    return statistics


def memory_snapshot() -> list[dict[str, Any]]:
    """Segments of the caching allocator, each with its blocks in the order of addresses.

    The state of a block: "active_allocated", "prepacked" (a packed copy of a weight), "slab" (many
    small blocks) or "inactive".
    """
    blocks: list[dict[str, Any]] = _core.memory_snapshot()
    return blocks


def empty_cache() -> int:
    """Returns unused cached memory to the system, and the packed copies of weights with it.

    Returns:
        How many bytes went back.
    """
    return int(_core.empty_cache())


def set_prepacked_limit(nbytes: int | None) -> None:
    """Bounds the packed copies of weights.

    An operand of a matrix product or convolution that is used again unchanged is packed for the
    kernel once: the copy is cached while the operand's memory exists and is not written. If all
    copies together would exceed the bound, no more are made.

    Args:
        nbytes: 0 caches none; None: an eighth of the machine's memory, which is the default.
    """
    _core.set_prepacked_limit(nbytes)


def prepacked_limit() -> int:
    """The bound on packed copies of weights, in bytes."""
    return _core.prepacked_limit()


def reset_peak_memory_stats() -> None:
    """Peaks of `memory_stats` start again at the current values."""
    _core.reset_peak_memory_stats()


_LAUNCH = 7  # EventKind of native/runtime/profile.h
_launch_times: list[LaunchTime] = []


def profile_launches(on: bool) -> None:
    """Starts (forgetting earlier times) or stops timing the launches of plans.

    `flambeau.profiler` records more; this costs least. A process has one profile at a time.
    """
    if on:
        _core.profile_start(0)
    elif _core.profile_running():
        events, _ = _core.profile_stop()
        _launch_times[:] = [
            LaunchTime(e[2], e[6] - e[5], e[9], e[12]) for e in events if e[1] == _LAUNCH
        ]


def launch_profile() -> list[LaunchTime]:
    """Times of the launches between the last `profile_launches(True)` and its end, in order."""
    return list(_launch_times)


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
