"""`torch.cuda.nvtx`: marks for NVIDIA's profiler, which needs a GPU."""

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.runtime.absent import Absent

_absent = Absent("cuda.nvtx", RuntimeError, "NVTX functions not installed: this build has no CUDA")
_functions = _absent.refusals("mark range_end range_pop range_push range_start")
globals().update(_functions)

__all__ = [*_functions, "range"]


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:  # noqa: A001 - PyTorch's name
    """A block or function between two marks.

    Raises:
        RuntimeError: the block is entered, for there is no CUDA.
    """
    _absent.refuse("range")
    yield
