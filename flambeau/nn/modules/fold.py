"""Sliding windows as columns, and back."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.modules.module import Module

__all__ = ["Fold", "Unfold"]


class Unfold(Module):
    """Sliding windows of `(N, C, *)` as columns of `(N, C * window, L)`.

    Args:
        kernel_size, dilation, padding, stride: a number, or one per dimension.

    Example:
        >>> nn.Unfold(3)(torch.zeros(1, 2, 4, 4, device="meta")).shape
        torch.Size([1, 18, 4])
    """

    __constants__ = ["kernel_size", "dilation", "padding", "stride"]

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Any) -> Any:
        """`F.unfold`."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Module):
    """Sums columns of sliding windows back into `(N, C, *)`.

    Args:
        output_size: spatial sizes of the result.
        kernel_size, dilation, padding, stride: a number, or one per dimension.

    Example:
        >>> nn.Fold((4, 4), 3)(torch.zeros(1, 18, 4, device="meta")).shape
        torch.Size([1, 2, 4, 4])
    """

    __constants__ = ["output_size", "kernel_size", "dilation", "padding", "stride"]

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Any) -> Any:
        """`F.fold`."""
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )
