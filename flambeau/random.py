"""`torch.random`: the default generator's seed and state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau.core.tensors import Generator, default_generator
from flambeau.ops.random.generator import (
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from flambeau.runtime import boundaries

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
    "thread_safe_generator",
]


@contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """Restores the default generator's state at the end of a `with` block.

    Args:
        devices: accepted for PyTorch's sake; only the CPU has a stream.
        enabled: False leaves the state alone.

    Example:
        >>> with torch.random.fork_rng():
        ...     _ = torch.rand(1)
    """
    if not enabled:
        yield
        return
    boundaries.crossing("fork_rng")
    state = default_generator.get_state()
    try:
        yield
    finally:
        boundaries.crossing("fork_rng")
        default_generator.set_state(state)


def thread_safe_generator() -> Any:
    """The generator of a thread that draws for others, or None: draws take a lock by themselves."""
    return None
