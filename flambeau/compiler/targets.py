"""What kernels are compiled for: instruction sets, their vector width and compiler flags.

A target is part of every kernel's key. Results have the same bits on every target: the canonical
reductions have 32 lanes whatever the register width.

Who builds the kernels of a device is the module `target_<device>` beside this one: a new device of
the core is a new file and nothing else.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau.ir.lock import late
from flambeau.runtime import settings

# No contraction of a*b + c and no errno (the promise about numbers); wrapping integers; buffers of
# one memory are read as several types. Stack protectors and unwind tables only cost time here.
COMMON_FLAGS = (
    "-O2",
    "-fPIC",
    "-std=gnu11",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-flax-vector-conversions",
    "-fno-strict-aliasing",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
)
# What GCC alone knows. Equal functions of two kernels of a unit are not made one: it would be
# called from both, not inlined, and a kernel's speed would depend on its neighbours.
GCC_FLAGS = ("-fno-ipa-icf",)


class Target(NamedTuple):
    """One instruction set.

    Attributes:
        name: "avx512", "avx2" or "generic".
        vector_bytes: width of a vector register.
        flags: compiler flags that select it.
    """

    name: str
    vector_bytes: int
    flags: tuple[str, ...]

    def lanes(self, element_bytes: int) -> int:
        """Lanes of a vector whose largest element has this size: 4, 8 or 16."""
        return max(4, min(16, self.vector_bytes // max(element_bytes, 4)))

    @property
    def gcc_flags(self) -> tuple[str, ...]:
        """Flags that other compilers do not know."""
        return GCC_FLAGS

    @property
    def all_flags(self) -> tuple[str, ...]:
        """Every compiler flag that changes code."""
        return COMMON_FLAGS + GCC_FLAGS + self.flags


_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mpopcnt")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512")

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("avx512", 64, _AVX2 + _AVX512),
        Target("avx2", 32, _AVX2),
        Target("generic", 16, ()),
    )
}

_NEEDED = {
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c", "bmi2"},
    "avx2": {"avx2", "fma", "f16c", "bmi2"},
}


def _processor_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("flags"):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


@functools.cache
def has(flag: str) -> bool:
    """Whether this machine's processor has an extension, as /proc/cpuinfo names it. A kernel that
    uses one says so in its settings, which are part of its key."""
    return flag in _processor_flags()


@functools.cache
def detect() -> str:
    """Name of the best target that this machine runs."""
    if os.uname().machine not in ("x86_64", "AMD64"):
        return "generic"
    available = _processor_flags()
    for name, needed in _NEEDED.items():
        if needed <= available:
            return name
    return "generic"


def current() -> Target:
    """The target kernels are built for: FLAMBEAU_TARGET, or what this machine runs."""
    return TARGETS[settings.get("TARGET") or detect()]


# From kernels to handles (address, name, keepalive), in the same order. Where the module has
# `begin`, what that returned comes second.
Builder = Callable[..., Sequence[Any]]


@functools.cache
def builder(device: str) -> Builder:
    """What builds the kernels of a device: `build` of the module `target_<device>`.

    Raises:
        NotImplementedError: there is no such module.
    """
    builds: Builder = _module(device).build
    return builds


def begin(device: str) -> Any:
    """A build that kernels of a device may be added to before all are known, or None: `begin` of
    the module, if it has one."""
    begins = getattr(_module(device), "begin", None)
    return None if begins is None else begins()


def _module(device: str) -> Any:
    name = f"flambeau.compiler.target_{device}"
    try:
        return late(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise NotImplementedError(
            f"[compile] no kernels can be built for device {device!r}\n"
            f"hint: add {name.replace('.', '/')}.py with build(kernels); see docs/extending.md"
        ) from None
