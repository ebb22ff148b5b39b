"""Convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau._core import Tensor
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn import init
from flambeau.nn.messages import problem
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import (
    _pair,  # noqa: F401 - also names of this module
    _reverse_repeat_tuple,
    _single,  # noqa: F401
    _triple,  # noqa: F401
    ntuple,
)
from flambeau.nn.parameter import Parameter, UninitializedParameter

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]  # fmt: skip
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def _checked_padding(padding: Any, stride: Sequence[int]) -> Any:
    if not isinstance(padding, str):
        return padding
    if padding not in ("same", "valid"):
        text = f"Invalid padding string {padding!r}, should be one of {{'valid', 'same'}}"
        raise ValueError(problem("conv", text, "padding='same'"))
    if padding == "same" and any(s != 1 for s in stride):
        text = "padding='same' is not supported for strided convolutions"
        raise ValueError(problem("conv", text, "give numbers"))
    return padding


class _ConvNd(Module):
    """Sizes, weights and text of a convolution.

    Args:
        in_channels, out_channels: dimension 1 of input and output.
        kernel_size, stride, padding, dilation: a number, or one per dimension; padding may be
            "same" or "valid".
        groups: independent groups of channels.
        bias: whether there is a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
    """

    __constants__ = ["stride", "padding", "dilation", "groups", "padding_mode", "output_padding",
                     "in_channels", "out_channels", "kernel_size"]  # fmt: skip
    _ndim: int
    transposed = False
    bias: Any

    def _setup(
        self,
        channels: tuple[int, int],
        geometry: tuple[Any, Any, Any, Any],
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        options: dict[str, Any],
    ) -> None:
        Module.__init__(self)
        self.in_channels, self.out_channels = channels
        self._check_groups(groups, ("in_channels", "out_channels"))
        kernel_size, stride, padding, dilation = (
            value if isinstance(value, str) else ntuple(value, self._ndim) for value in geometry
        )
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = _checked_padding(padding, stride)
        self.dilation = dilation
        self.output_padding = ntuple(output_padding, self._ndim)
        self.groups = groups
        if padding_mode not in _PADDING_MODES:
            text = f"padding_mode must be one of {set(_PADDING_MODES)}, but got {padding_mode=}"
            raise ValueError(problem("conv", text, "padding_mode='zeros'"))
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = self._padding_list()
        self.weight = Parameter(torch.empty(self._weight_shape(), **options))
        self.register_parameter(
            "bias", Parameter(torch.empty(self.out_channels, **options)) if bias else None
        )
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

    def _check_groups(self, groups: int, divided: Sequence[str]) -> None:
        if groups <= 0:
            raise ValueError(problem("conv", "groups must be a positive integer", f"{groups=}"))
        for name in divided:
            if getattr(self, name) % groups != 0:
                raise ValueError(
                    problem("conv", f"{name} must be divisible by groups", f"{groups=}")
                )

    def _padding_list(self) -> list[int]:
        """The padding as `F.pad` takes it."""
        if not isinstance(self.padding, str):
            return list(_reverse_repeat_tuple(self.padding, 2))
        pairs: list[int] = []
        if self.padding == "valid":
            return [0, 0] * self._ndim
        for dilation, size in zip(reversed(self.dilation), reversed(self.kernel_size)):
            total = dilation * (size - 1)
            pairs += [total // 2, total - total // 2]
        return pairs

    def reset_parameters(self) -> None:
        """Draws new weights, uniform on (-k, k), k = 1 / sqrt(fan in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        for name, default in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            value = getattr(self, name)
            if value != (default,) * self._ndim:
                text += f", {name}={value}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class _Conv(_ConvNd):
    """A convolution; see `_ConvNd` for the arguments."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        self._setup(
            (in_channels, out_channels),
            (kernel_size, stride, padding, dilation),
            0,
            groups,
            bias,
            padding_mode,
            {"device": device, "dtype": dtype},
        )

    def forward(self, input: Any) -> Any:
        """The convolution of the input with the weight."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Any, weight: Tensor, bias: Tensor) -> Any:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self._ndim - 1]
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)  # noqa: A001
            padding = (0,) * self._ndim
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """Convolution of `(N, C, L)` or `(C, L)`.

    Example:
        >>> nn.Conv1d(4, 6, 3, device="meta")(torch.zeros(2, 4, 9, device="meta")).shape
        torch.Size([2, 6, 7])
    """

    _ndim = 1


class Conv2d(_Conv):
    """Convolution of `(N, C, H, W)` or `(C, H, W)`.

    Example:
        >>> nn.Conv2d(4, 6, 3, device="meta")(torch.zeros(2, 4, 9, 9, device="meta")).shape
        torch.Size([2, 6, 7, 7])
    """

    _ndim = 2


class Conv3d(_Conv):
    """Convolution of `(N, C, D, H, W)` or `(C, D, H, W)`.

    Example:
        >>> nn.Conv3d(4, 6, 3, device="meta")(torch.zeros(2, 4, 5, 5, 5, device="meta")).shape
        torch.Size([2, 6, 3, 3, 3])
    """

    _ndim = 3


class _ConvTransposeNd(_ConvNd):
    """The transpose of a convolution: its gradient with respect to the input.

    Args:
        output_padding: added to one side of the output; others as `_ConvNd`.
    """

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            text = f'Only "zeros" padding mode is supported for {type(self).__name__}'
            raise ValueError(problem("conv_transpose", text, "padding_mode='zeros'"))
        self._setup(
            (in_channels, out_channels),
            (kernel_size, stride, padding, dilation),
            output_padding,
            groups,
            bias,
            padding_mode,
            {"device": device, "dtype": dtype},
        )

    def _output_padding(self, input: Any, output_size: Any) -> Any:
        """The output padding that gives a wanted output size."""
        if output_size is None:
            return self.output_padding
        count = self._ndim
        has_batch = input.dim() == count + 2
        lead = 2 if has_batch else 1
        wanted = list(output_size)
        if len(wanted) == lead + count:
            wanted = wanted[lead:]
        if len(wanted) != count:
            text = (
                f"ConvTranspose{count}D: for {input.dim()}D input, output_size must have {count} "
                f"or {lead + count} elements (got {len(output_size)})"
            )
            raise ValueError(problem("conv_transpose", text, "give the spatial sizes"))
        smallest = [
            (input.size(d + lead) - 1) * self.stride[d]
            - 2 * self.padding[d]
            + self.dilation[d] * (self.kernel_size[d] - 1)
            + 1
            for d in range(count)
        ]
        largest = [smallest[d] + self.stride[d] - 1 for d in range(count)]
        if any(not low <= size <= high for size, low, high in zip(wanted, smallest, largest)):
            text = (
                f"requested an output size of {output_size}, but valid sizes range from "
                f"{smallest} to {largest} (for an input of {input.size()[2:]})"
            )
            raise ValueError(problem("conv_transpose", text, "choose a size in that range"))
        return [size - low for size, low in zip(wanted, smallest)]

    def forward(self, input: Any, output_size: Any = None) -> Any:
        """The transposed convolution; `output_size` chooses among the sizes a stride allows."""
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self._ndim - 1]
        padding = self._output_padding(input, output_size)
        return convolve(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            padding,
            self.groups,
            self.dilation,
        )


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of `(N, C, L)` or `(C, L)`.

    Example:
        >>> nn.ConvTranspose1d(4, 6, 3, device="meta")(torch.zeros(2, 4, 9, device="meta")).shape
        torch.Size([2, 6, 11])
    """

    _ndim = 1


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of `(N, C, H, W)` or `(C, H, W)`.

    Example:
        >>> nn.ConvTranspose2d(4, 6, 3, device="meta")(torch.zeros(2, 4, 9, 9, device="meta")).shape
        torch.Size([2, 6, 11, 11])
    """

    _ndim = 2


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of `(N, C, D, H, W)` or `(C, D, H, W)`.

    Example:
        >>> x = torch.zeros(2, 4, 5, 5, 5, device="meta")
        >>> nn.ConvTranspose3d(4, 6, 3, device="meta")(x).shape
        torch.Size([2, 6, 7, 7, 7])
    """

    _ndim = 3


class _LazyConvXdMixin(LazyModuleMixin, _ConvNd):
    """A convolution that learns `in_channels` from its first input; put before the eager class."""

    def _make_lazy(self, out_channels: int, bias: bool, options: dict[str, Any]) -> None:
        """Replaces the weights of no channels that the eager class made."""
        self.out_channels = out_channels
        self.weight = UninitializedParameter(**options)
        if bias:
            self.bias = UninitializedParameter(**options)

    def reset_parameters(self) -> None:
        """Draws new weights, once there are some."""
        if self.in_channels != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def _input_channels(self, input: Any) -> int:
        """The channels of a batched or unbatched input."""
        unbatched = self._ndim + 1
        if input.dim() not in (unbatched, unbatched + 1):
            text = (
                f"Expected {unbatched}D (unbatched) or {unbatched + 1}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
            raise RuntimeError(problem("conv", text, "reshape the input"))
        return int(input.shape[input.dim() - unbatched])

    def initialize_parameters(self, input: Any, output_size: Any = None) -> None:
        """Takes `in_channels` from an input and draws the weights that were not loaded.

        Raises:
            RuntimeError: the input has too few or too many dimensions.
            ValueError: the channels are no multiple of the groups.
        """
        loaded = not self.has_uninitialized_params()
        if self.in_channels != 0 and loaded:
            return
        self.in_channels = self._input_channels(input)
        if loaded:
            return
        self._check_groups(self.groups, ("in_channels",))
        self.weight.materialize(self._weight_shape())
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class _LazyConv(_LazyConvXdMixin, _Conv):
    """A lazy convolution; see `_ConvNd` for the arguments."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype
        )
        self._make_lazy(out_channels, bias, {"device": device, "dtype": dtype})


class _LazyConvTranspose(_LazyConvXdMixin, _ConvTransposeNd):
    """A lazy transposed convolution; see `_ConvTransposeNd` for the arguments."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation,
            padding_mode, device, dtype,
        )  # fmt: skip
        self._make_lazy(out_channels, bias, {"device": device, "dtype": dtype})


class LazyConv1d(_LazyConv, Conv1d):
    """A `Conv1d` that learns `in_channels` from its first input; other arguments as there.

    Example:
        >>> nn.LazyConv1d(6, 3)(torch.ones(2, 4, 9)).shape
        torch.Size([2, 6, 7])
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A `Conv2d` that learns `in_channels` from its first input; other arguments as there.

    Example:
        >>> nn.LazyConv2d(6, 3)(torch.ones(2, 4, 9, 9)).shape
        torch.Size([2, 6, 7, 7])
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A `Conv3d` that learns `in_channels` from its first input; other arguments as there.

    Example:
        >>> nn.LazyConv3d(6, 3)(torch.ones(2, 4, 5, 5, 5)).shape
        torch.Size([2, 6, 3, 3, 3])
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A `ConvTranspose1d` that learns `in_channels` from its first input; other arguments as there.

    Example:
        >>> nn.LazyConvTranspose1d(6, 3)(torch.ones(2, 4, 9)).shape
        torch.Size([2, 6, 11])
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A `ConvTranspose2d` that learns `in_channels` from its first input; other arguments as there.

    Example:
        >>> nn.LazyConvTranspose2d(6, 3)(torch.ones(2, 4, 9, 9)).shape
        torch.Size([2, 6, 11, 11])
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A `ConvTranspose3d` that learns `in_channels` from its first input; other arguments as there.

    Example:
        >>> nn.LazyConvTranspose3d(6, 3)(torch.ones(2, 4, 5, 5, 5)).shape
        torch.Size([2, 6, 7, 7, 7])
    """

    cls_to_become = ConvTranspose3d
