"""Padding layers: `F.pad` with a fixed mode."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau._core import Tensor
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
    _what = ""
    _mode: str
    _ndim: int

    def __init_subclass__(cls, ndim: int = 0) -> None:
        super().__init_subclass__()
        if ndim:
            cls._ndim = ndim
            cls.__doc__ = cls._page(ndim)

    @classmethod
    def _page(cls, ndim: int, arguments: str = "1") -> str:
        dims = f"{ndim} dimensions" if ndim > 1 else "dimension"
        sizes = (9, 9) if ndim == 2 else (9,) if ndim == 1 else (5, 5, 5)
        before, after = (", ".join(str(n + k) for n in sizes) for k in (0, 2))
        return f"""{cls._what} of the last {dims}.

    Example:
        >>> nn.{cls.__name__}({arguments})(torch.zeros(2, 4, {before}, device="meta")).shape
        torch.Size([2, 4, {after}])
    """

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = ntuple(padding, 2 * self._ndim)

    def forward(self, input: Tensor) -> Tensor:
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
    _what = "Constant padding"

    @classmethod
    def _page(cls, ndim: int, arguments: str = "1, 0.5") -> str:
        return super()._page(ndim, arguments)

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The padding and its value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd, ndim=1): ...


class ConstantPad2d(_ConstantPadNd, ndim=2): ...


class ConstantPad3d(_ConstantPadNd, ndim=3): ...


class _ZeroPad(_Pad):
    """Padding with 0: `ConstantPad<n>d` with this constructor."""

    _what = "Zero padding"

    @classmethod
    def _page(cls, ndim: int, arguments: str = "1") -> str:
        return super()._page(ndim, arguments)

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)  # type: ignore[call-arg]

    def extra_repr(self) -> str:
        """The padding."""
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad, ConstantPad1d, ndim=1): ...


class ZeroPad2d(_ZeroPad, ConstantPad2d, ndim=2): ...


class ZeroPad3d(_ZeroPad, ConstantPad3d, ndim=3): ...


class _ReflectionPadNd(_Pad):
    _what, _mode = "Padding that mirrors at the border", "reflect"


class ReflectionPad1d(_ReflectionPadNd, ndim=1): ...


class ReflectionPad2d(_ReflectionPadNd, ndim=2): ...


class ReflectionPad3d(_ReflectionPadNd, ndim=3): ...


class _ReplicationPadNd(_Pad):
    _what, _mode = "Padding that repeats the border", "replicate"


class ReplicationPad1d(_ReplicationPadNd, ndim=1): ...


class ReplicationPad2d(_ReplicationPadNd, ndim=2): ...


class ReplicationPad3d(_ReplicationPadNd, ndim=3): ...


class _CircularPadNd(_Pad):
    _what, _mode = "Circular padding", "circular"

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        if input.dim() not in (self._ndim + 1, self._ndim + 2):
            text = (
                f"expected {self._ndim + 1}D or {self._ndim + 2}D input (got {input.dim()}D input)"
            )
            raise ValueError(problem(type(self).__name__, text, "reshape the input"))
        return super().forward(input)


class CircularPad1d(_CircularPadNd, ndim=1): ...


class CircularPad2d(_CircularPadNd, ndim=2): ...


class CircularPad3d(_CircularPadNd, ndim=3): ...
