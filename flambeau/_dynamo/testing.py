"""`torch._dynamo.testing`: helpers of tests of compiled functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._dynamo.utils import same
from flambeau.ir.lock import late

__all__ = ["CompileCounter", "CompileCounterWithBackend", "rand_strided", "reset_rng_state", "same"]


class CompileCounter:
    """A backend that counts graphs and their calls, and returns the graphs uncompiled.

    Example:
        >>> from torch._dynamo.testing import CompileCounter
        >>> counter = CompileCounter()
        >>> compiled = torch.compile(lambda x: x.sin() + 1, backend=counter)
        >>> _ = compiled(torch.ones(2)), compiled(torch.zeros(2))
        >>> counter.frame_count, counter.op_count
        (1, 2)
    """

    def __init__(self) -> None:
        self.clear()

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Any:
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in gm.graph.nodes)
        return gm.forward

    def clear(self) -> None:
        """Starts again at 0."""
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend(CompileCounter):
    """As `CompileCounter`; the graphs are compiled.

    Args:
        backend: a name.
    """

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Any:
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        return late("flambeau._dynamo.backends.registry").lookup_backend(self.backend)(
            gm, example_inputs
        )


def rand_strided(
    size: Sequence[int], stride: Sequence[int], dtype: Any = None, device: Any = "cpu",
    extra_size: int = 0,
) -> Any:  # fmt: skip
    """A random tensor with these strides.

    Args:
        size, stride: of the tensor.
        dtype: float32 where it is None.
        device: of the tensor.
        extra_size: elements behind the last one.
    """
    import flambeau as torch

    dtype = dtype or torch.float32
    needed = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + extra_size
    if dtype.is_floating_point or dtype.is_complex:
        buffer = torch.randn(needed, device=device).to(dtype)
    else:
        buffer = torch.randint(0, 2 if dtype == torch.bool else 10, (needed,), device=device)
        buffer = buffer.to(dtype)
    return torch.as_strided(buffer, tuple(size), tuple(stride))


def reset_rng_state(use_xla: bool = False) -> None:
    """Seeds the generators of Python, NumPy and PyTorch with 1337."""
    import random
    import sys

    import flambeau as torch

    torch.manual_seed(1337)
    random.seed(1337)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(1337)
