"""The targets of kernels: instruction sets, and the builders of devices.

An instruction set is a module here that declares a `Target` (`description`): its registers, tile
sizes, flags and the spelling of its instructions. A target is part of every kernel's key. Results
have the same bits on every target: the canonical reductions have 32 lanes whatever the register
width.

The kernels of a device are built by the module `flambeau/compiler/target_<device>.py`: a new device
of the core is a new file and nothing else.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.compiler.targets.aarch64 import NEON
from flambeau.compiler.targets.description import COMMON_FLAGS, GCC_FLAGS, Instruction, Target
from flambeau.compiler.targets.generic import GENERIC
from flambeau.compiler.targets.x86 import AVX2, AVX512
from flambeau.ir.lock import late
from flambeau.runtime import settings

# In order of preference.
TARGETS: dict[str, Target] = {target.name: target for target in (AVX512, AVX2, NEON, GENERIC)}


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


def offers(target: Target, operation: str, kind: str, lanes: int) -> bool:
    """Whether this machine runs an instruction that some machines of the target have."""
    instruction = target.instruction(operation, kind, lanes)
    return instruction is not None and (not instruction.extension or has(instruction.extension))


@functools.cache
def detect() -> str:
    """Name of the best target that this machine runs."""
    return of_this_machine()[0].name


def of_this_architecture() -> tuple[Target, ...]:
    """The targets that machines with this machine's kind of processor may have."""
    machine = os.uname().machine
    return tuple(t for t in TARGETS.values() if not t.machines or machine in t.machines)


def of_this_machine() -> tuple[Target, ...]:
    """The targets that this machine runs, the best first."""
    available = _processor_flags()
    return tuple(target for target in of_this_architecture() if target.features <= available)


def current() -> Target:
    """The target kernels are built for: FLAMBEAU_TARGET, or what this machine runs."""
    return TARGETS[settings.get("TARGET") or detect()]


# From kernels to handles (address, name, keepalive), in the same order. Where the module has
# `begin`, what that returned comes second.
Builder = Callable[..., Sequence[Any]]


@functools.cache
def builder(device: str) -> Builder:
    """Returns the builder of a device's kernels: `build` of the module `target_<device>`.

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


__all__ = [
    "COMMON_FLAGS", "GCC_FLAGS", "TARGETS", "Instruction", "Target", "begin", "builder", "current",
    "detect", "has", "of_this_architecture", "offers",
]  # fmt: skip
