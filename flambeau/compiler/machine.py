"""The machine as the cost models see it: cores, and the sizes of its caches.

Part of the key of stored plans and measured choices: both are valid on such a machine only.
"""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

_CACHES = "/sys/devices/system/cpu/cpu0/cache"
# Defaults where the system does not report sizes: most processors have at least these.
_USUAL = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Machine(NamedTuple):
    """The properties of a machine that choices depend on.

    Attributes:
        cores: that this process may use.
        first: bytes of a core's first data cache.
        second: bytes of its second cache.
        third: bytes of the third one.
    """

    cores: int
    first: int
    second: int
    third: int


@functools.cache
def current() -> Machine:
    """This machine."""
    return Machine(_cores(), *(size for _, size in sorted(_cache_sizes().items())))


@functools.cache
def processor() -> str:
    """The processor's name: of two with equal caches one may still be another."""
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return os.uname().machine


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cache_sizes() -> dict[int, int]:
    """Bytes of the data caches by level."""
    sizes = dict(_USUAL)
    try:
        entries = os.listdir(_CACHES)
    except OSError:
        return sizes
    for entry in entries:
        try:
            level, kind, size = (_read(f"{_CACHES}/{entry}/{x}") for x in ("level", "type", "size"))
            number = int(size.rstrip("KMG")) * _UNITS.get(size[-1:], 1)
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and int(level) in sizes and number > 0:
            sizes[int(level)] = number
    return sizes


def _read(path: str) -> str:
    with open(path) as file:
        return file.read().strip()
