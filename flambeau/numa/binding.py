"""`torch.numa.binding`: options of binding processes near their GPU, of which there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

__all__ = ["AffinityMode", "NumaOptions"]


class AffinityMode(str, Enum):  # noqa: UP042 - str() as PyTorch's
    """The CPUs that a process is bound to."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """How processes are bound.

    Attributes:
        affinity_mode: which CPUs.
        should_fall_back_if_binding_fails: whether a failure is ignored.
    """

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False


def _refuse() -> NoReturn:
    raise NotImplementedError(
        "[numa] processes are bound near GPUs, and there is none\n"
        "hint: os.sched_setaffinity binds a process to CPUs"
    )


def _maybe_apply_numa_binding_to_current_process(
    *, gpu_index: int, numa_options: NumaOptions | None
) -> None:
    """Returns without options; raises with them, unless a failure may be ignored."""
    if numa_options is not None and not numa_options.should_fall_back_if_binding_fails:
        _refuse()


def _maybe_wrap_command_args_with_numa_binding(
    command_args: tuple[str, ...], *, gpu_index: int, numa_options: NumaOptions | None
) -> tuple[str, ...]:
    """The arguments of a command as they are, without options."""
    _maybe_apply_numa_binding_to_current_process(gpu_index=gpu_index, numa_options=numa_options)
    return command_args


def _maybe_wrap_with_numa_binding(
    func: Callable[..., Any], *, gpu_index: int, numa_options: NumaOptions | None
) -> Callable[..., Any]:
    """A function as it is, without options."""
    _maybe_apply_numa_binding_to_current_process(gpu_index=gpu_index, numa_options=numa_options)
    return func
