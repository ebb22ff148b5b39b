"""Data pipes: datasets made of steps, which older programs still use."""

from flambeau.utils.data.datapipes import iter, map  # noqa: A004 - PyTorch's names

__all__ = ["iter", "map"]
