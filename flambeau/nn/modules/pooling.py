"""Pooling layers, documented by their functions (see `function`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._core import Tensor
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.messages import problem
from flambeau.nn.modules.function import FunctionModule
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import (
    _pair,  # noqa: F401 - also names of this module
    _single,  # noqa: F401
    _triple,  # noqa: F401
    ntuple,
)

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _MaxPoolNd(FunctionModule, shown="kernel_size stride padding dilation ceil_mode"):
    """The largest number of each window.

    Args:
        kernel_size, stride, padding, dilation: a number, or one per dimension; stride is the
            kernel size when None.
        return_indices: also return where the maxima are.
        ceil_mode: keep windows that start inside and end outside.
    """

    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]
    return_indices: bool
    ceil_mode: bool

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding, self.dilation, self.return_indices = padding, dilation, return_indices
        self.ceil_mode = ceil_mode

    def _pool(self, function: Callable[..., Any], input: Tensor) -> Any:
        return function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )


class MaxPool1d(_MaxPoolNd, function="max_pool1d"):
    def forward(self, input: Tensor) -> Any:
        return self._pool(F.max_pool1d, input)


class MaxPool2d(_MaxPoolNd, function="max_pool2d"):
    def forward(self, input: Tensor) -> Any:
        return self._pool(F.max_pool2d, input)


class MaxPool3d(_MaxPoolNd, function="max_pool3d"):
    def forward(self, input: Tensor) -> Any:
        return self._pool(F.max_pool3d, input)


class _MaxUnpoolNd(FunctionModule, shown="kernel_size stride padding"):
    """Puts maxima back where they were; the rest is 0.

    Args:
        kernel_size, stride, padding: those of the pooling.
    """

    _ndim: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = ntuple(kernel_size, self._ndim)
        self.stride = ntuple(stride if stride is not None else kernel_size, self._ndim)
        self.padding = ntuple(padding, self._ndim)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """`F.max_unpool{1,2,3}d`."""
        unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[self._ndim - 1]
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpoolNd):
    """The partial inverse of `MaxPool1d`."""

    _ndim = 1


class MaxUnpool2d(_MaxUnpoolNd):
    """The partial inverse of `MaxPool2d`."""

    _ndim = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """The partial inverse of `MaxPool3d`."""

    _ndim = 3


class _FractionalMaxPoolNd(Module):
    """Max pooling of windows that begin at random places (Graham 2014).

    Args:
        kernel_size: of a window.
        output_size, output_ratio: sizes of the result, or their share of the input's, one of both.
        return_indices: also return the flat places of the maxima.
    """

    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]
    _ndim: int
    _random_samples: Any

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        name, count = type(self).__name__, self._ndim
        self.kernel_size = ntuple(kernel_size, count)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else ntuple(output_size, count)
        self.output_ratio = None if output_ratio is None else ntuple(output_ratio, count)
        if output_size is None and output_ratio is None:
            text = f"{name} requires specifying either an output size, or a pooling ratio"
            raise ValueError(problem(name, text, "give one of them"))
        if output_size is not None and output_ratio is not None:
            text = "only one of output_size and output_ratio may be specified"
            raise ValueError(problem(name, text, "give one of them"))
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            text = f"output_ratio must be between 0 and 1 (got {output_ratio})"
            raise ValueError(problem(name, text, "output_ratio=0.5"))

    def forward(self, input: Tensor) -> Any:
        """`F.fractional_max_pool{2,3}d`."""
        pool = (F.fractional_max_pool2d, F.fractional_max_pool3d)[self._ndim - 2]
        sizes = (self.kernel_size, self.output_size, self.output_ratio, self.return_indices)
        return pool(input, *sizes, _random_samples=self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Fractional max pooling of `(N, C, H, W)` or `(C, H, W)`."""

    _ndim = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Fractional max pooling of `(N, C, D, H, W)` or `(C, D, H, W)`."""

    _ndim = 3


class _AvgPoolNd(FunctionModule, shown="kernel_size stride padding"):
    """Average pooling in any number of dimensions."""

    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]


class AvgPool1d(_AvgPoolNd, function="avg_pool1d"):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = ntuple(kernel_size, 1)
        self.stride = ntuple(stride if stride is not None else kernel_size, 1)
        self.padding = ntuple(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class _AvgPoolOfImages(_AvgPoolNd):
    """Average pooling.

    Args:
        kernel_size, stride, padding: a number, or one per dimension; stride is the kernel size
            when None.
        ceil_mode: keep windows that start inside and end outside.
        count_include_pad: whether padding counts in the average.
        divisor_override: divide by this instead.
    """

    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad",
                     "divisor_override"]  # fmt: skip

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def _pool(self, function: Callable[..., Any], input: Tensor) -> Any:
        return function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_AvgPoolOfImages, function="avg_pool2d"):
    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.avg_pool2d, input)


class AvgPool3d(_AvgPoolOfImages, function="avg_pool3d"):
    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.avg_pool3d, input)


class _LPPoolNd(FunctionModule, shown="norm_type kernel_size stride ceil_mode"):
    """The p-norm of each window.

    Args:
        norm_type: p.
        kernel_size, stride: a number, or one per dimension.
        ceil_mode: keep windows that start inside and end outside.
    """

    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride = norm_type, kernel_size, stride
        self.ceil_mode = ceil_mode

    def _pool(self, function: Callable[..., Any], input: Tensor) -> Any:
        return function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPoolNd, function="lp_pool1d"):
    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.lp_pool1d, input)


class LPPool2d(_LPPoolNd, function="lp_pool2d"):
    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.lp_pool2d, input)


class LPPool3d(_LPPoolNd, function="lp_pool3d"):
    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.lp_pool3d, input)


class _AdaptiveAvgPoolNd(FunctionModule, shown="output_size"):
    """Average pooling to a given output size.

    Args:
        output_size: a number, or one per dimension; None keeps the input's size.
    """

    __constants__ = ["output_size"]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd, function="adaptive_avg_pool1d"):
    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd, function="adaptive_avg_pool2d"):
    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd, function="adaptive_avg_pool3d"):
    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPoolNd(FunctionModule, shown="output_size"):
    """Max pooling to a given output size.

    Args:
        output_size: a number, or one per dimension; None keeps the input's size.
        return_indices: also return where the maxima are.
    """

    __constants__ = ["output_size", "return_indices"]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd, function="adaptive_max_pool1d"):
    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd, function="adaptive_max_pool2d"):
    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd, function="adaptive_max_pool3d"):
    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)
