"""Channels into space and back (Shi et al. 2016)."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.modules.module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """Moves channels into space: `(*, C r^2, H, W)` -> `(*, C, H r, W r)` (Shi et al. 2016).

    Example:
        >>> nn.PixelShuffle(2)(torch.zeros(1, 4, 2, 3, device="meta")).shape
        torch.Size([1, 1, 4, 6])
    """

    __constants__ = ["upscale_factor"]

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Any) -> Any:
        """`F.pixel_shuffle`."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """The factor."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Moves space into channels: the inverse of `PixelShuffle`.

    Example:
        >>> nn.PixelUnshuffle(2)(torch.zeros(1, 4, 4, 6, device="meta")).shape
        torch.Size([1, 16, 2, 3])
    """

    __constants__ = ["downscale_factor"]

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Any) -> Any:
        """`F.pixel_unshuffle`."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """The factor."""
        return f"downscale_factor={self.downscale_factor}"
