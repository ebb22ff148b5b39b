"""Resampling layers."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.modules.module import Module

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """Resamples `(N, C, *)` to another size.

    Args:
        size: spatial sizes of the result, or
        scale_factor: a factor, or one per dimension.
        mode: "nearest", "linear", "bilinear", "bicubic", "trilinear" ...
        align_corners: whether the corner pixels' centres coincide.
        recompute_scale_factor: use the factor that the rounded sizes give.

    Example:
        >>> nn.Upsample(scale_factor=2)(torch.tensor([[[1.0, 2.0]]]))
        tensor([[[1., 1., 2., 2.]]])
    """

    __constants__ = ["size", "scale_factor", "mode", "align_corners", "name",
                     "recompute_scale_factor"]  # fmt: skip

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Any) -> Any:
        """`F.interpolate`."""
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        """The size and the mode."""
        if self.scale_factor is not None:
            text = "scale_factor=" + repr(self.scale_factor)
        else:
            text = "size=" + repr(self.size)
        return text + ", mode=" + repr(self.mode)


class UpsamplingNearest2d(Upsample):
    """`Upsample` with mode "nearest".

    Example:
        >>> nn.UpsamplingNearest2d(scale_factor=2)(torch.ones(1, 1, 2, 2, device="meta")).shape
        torch.Size([1, 1, 4, 4])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` with mode "bilinear" and aligned corners.

    Example:
        >>> nn.UpsamplingBilinear2d(size=3)(torch.ones(1, 1, 2, 2, device="meta")).shape
        torch.Size([1, 1, 3, 3])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
