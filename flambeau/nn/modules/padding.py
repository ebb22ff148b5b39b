"""Padding layers: `F.pad` with a fixed mode."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import (
    _ntuple,  # noqa: F401 - also names of this module
    _pair,  # noqa: F401
    _quadruple,  # noqa: F401
    ntuple,
)

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d",
    "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    """Padding on both sides of the last dimensions.

    Args:
        padding: a number, or (left, right, top, bottom, front, back), last dimension first.
    """

    __constants__ = ["padding"]
    _mode: str
    _ndim: int

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = ntuple(padding, 2 * self._ndim)

    def forward(self, input: Any) -> Any:  # noqa: A002
        """The padded input."""
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        """The padding."""
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    """Padding with one value.

    Args:
        padding: see `_Pad`.
        value: what is put there.
    """

    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Any) -> Any:  # noqa: A002
        """The padded input."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The padding and its value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Constant padding of the last dimension.

    Example:
        >>> nn.ConstantPad1d(1, 0.5)(torch.zeros(2, 4, 9, device="meta")).shape
        torch.Size([2, 4, 11])
    """

    _ndim = 1


class ConstantPad2d(_ConstantPadNd):
    """Constant padding of the last 2 dimensions.

    Example:
        >>> nn.ConstantPad2d(1, 0.5)(torch.zeros(2, 4, 9, 9, device="meta")).shape
        torch.Size([2, 4, 11, 11])
    """

    _ndim = 2


class ConstantPad3d(_ConstantPadNd):
    """Constant padding of the last 3 dimensions.

    Example:
        >>> nn.ConstantPad3d(1, 0.5)(torch.zeros(2, 4, 5, 5, 5, device="meta")).shape
        torch.Size([2, 4, 7, 7, 7])
    """

    _ndim = 3


class _ZeroPad(_Pad):
    """Padding with 0: `ConstantPad<n>d` with this constructor."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)  # type: ignore[call-arg]

    def extra_repr(self) -> str:
        """The padding."""
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Zero padding of the last dimension.

    Example:
        >>> nn.ZeroPad1d(1)(torch.zeros(2, 4, 9, device="meta")).shape
        torch.Size([2, 4, 11])
    """

    _ndim = 1


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Zero padding of the last 2 dimensions.

    Example:
        >>> nn.ZeroPad2d(1)(torch.zeros(2, 4, 9, 9, device="meta")).shape
        torch.Size([2, 4, 11, 11])
    """

    _ndim = 2


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Zero padding of the last 3 dimensions.

    Example:
        >>> nn.ZeroPad3d(1)(torch.zeros(2, 4, 5, 5, 5, device="meta")).shape
        torch.Size([2, 4, 7, 7, 7])
    """

    _ndim = 3


class _ReflectionPadNd(_Pad):
    """Padding that mirrors at the border."""

    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Padding that mirrors at the border of the last dimension.

    Example:
        >>> nn.ReflectionPad1d(1)(torch.zeros(2, 4, 9, device="meta")).shape
        torch.Size([2, 4, 11])
    """

    _ndim = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Padding that mirrors at the border of the last 2 dimensions.

    Example:
        >>> nn.ReflectionPad2d(1)(torch.zeros(2, 4, 9, 9, device="meta")).shape
        torch.Size([2, 4, 11, 11])
    """

    _ndim = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Padding that mirrors at the border of the last 3 dimensions.

    Example:
        >>> nn.ReflectionPad3d(1)(torch.zeros(2, 4, 5, 5, 5, device="meta")).shape
        torch.Size([2, 4, 7, 7, 7])
    """

    _ndim = 3


class _ReplicationPadNd(_Pad):
    """Padding that repeats the border."""

    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Padding that repeats the border of the last dimension.

    Example:
        >>> nn.ReplicationPad1d(1)(torch.zeros(2, 4, 9, device="meta")).shape
        torch.Size([2, 4, 11])
    """

    _ndim = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Padding that repeats the border of the last 2 dimensions.

    Example:
        >>> nn.ReplicationPad2d(1)(torch.zeros(2, 4, 9, 9, device="meta")).shape
        torch.Size([2, 4, 11, 11])
    """

    _ndim = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Padding that repeats the border of the last 3 dimensions.

    Example:
        >>> nn.ReplicationPad3d(1)(torch.zeros(2, 4, 5, 5, 5, device="meta")).shape
        torch.Size([2, 4, 7, 7, 7])
    """

    _ndim = 3


class _CircularPadNd(_Pad):
    """Padding that wraps around."""

    _mode = "circular"

    def forward(self, input: Any) -> Any:  # noqa: A002
        """The padded input."""
        if input.dim() not in (self._ndim + 1, self._ndim + 2):
            text = (
                f"expected {self._ndim + 1}D or {self._ndim + 2}D input (got {input.dim()}D input)"
            )
            raise ValueError(problem(type(self).__name__, text, "reshape the input"))
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Circular padding of the last dimension.

    Example:
        >>> nn.CircularPad1d(1)(torch.zeros(2, 4, 9, device="meta")).shape
        torch.Size([2, 4, 11])
    """

    _ndim = 1


class CircularPad2d(_CircularPadNd):
    """Circular padding of the last 2 dimensions.

    Example:
        >>> nn.CircularPad2d(1)(torch.zeros(2, 4, 9, 9, device="meta")).shape
        torch.Size([2, 4, 11, 11])
    """

    _ndim = 2


class CircularPad3d(_CircularPadNd):
    """Circular padding of the last 3 dimensions.

    Example:
        >>> nn.CircularPad3d(1)(torch.zeros(2, 4, 5, 5, 5, device="meta")).shape
        torch.Size([2, 4, 7, 7, 7])
    """

    _ndim = 3
