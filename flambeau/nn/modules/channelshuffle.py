"""Shuffled channels (Zhang et al. 2018)."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.modules.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Interleaves `groups` groups of channels of `(N, C, *)`.

    Example:
        >>> nn.ChannelShuffle(2)(torch.arange(4).reshape(1, 4, 1)).reshape(4)
        tensor([0, 2, 1, 3])
    """

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Any) -> Any:
        """`F.channel_shuffle`."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """The number of groups."""
        return f"groups={self.groups}"
