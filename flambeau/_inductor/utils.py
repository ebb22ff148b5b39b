"""`torch._inductor.utils`: small helpers of PyTorch's code generation that programs use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.ir.lock import late

__all__ = ["fresh_cache", "fresh_inductor_cache"]


@contextlib.contextmanager
def fresh_cache(
    cache_entries: dict[str, Any] | None = None,
    dir: str | None = None,
    delete: bool = True,  # noqa: A002
) -> Iterator[None]:
    """A block that starts and ends without compiled functions in memory.

    Kernels on disk stay: they are found by their content, so that an old one is never wrong.

    Args:
        cache_entries: stays as it is.
        dir, delete: of PyTorch's temporary directory; without effect.
    """
    regions = late("flambeau.capture.regions")
    regions.reset()
    try:
        yield
    finally:
        regions.reset()


fresh_inductor_cache = fresh_cache
