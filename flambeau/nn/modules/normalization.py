"""Normalisation over features: layer, RMS, group and local response norm."""

from __future__ import annotations

import numbers
from typing import Any

import flambeau as torch
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn import init
from flambeau.nn.messages import problem
from flambeau.nn.modules import _functions
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def _shape(normalized_shape: Any) -> tuple[int, ...]:
    if isinstance(normalized_shape, numbers.Integral):
        return (int(normalized_shape),)
    return tuple(normalized_shape)


class LocalResponseNorm(Module):
    """Divides each channel by a power of the squared sum of its neighbours.

    Args:
        size: number of neighbouring channels.
        alpha, beta, k: x / (k + alpha * mean)^beta.

    Example:
        >>> nn.LocalResponseNorm(2)(torch.zeros(1, 4, 3, device="meta")).shape
        torch.Size([1, 4, 3])
    """

    __constants__ = ["size", "alpha", "beta", "k"]

    def __init__(
        self, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0
    ) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Any) -> Any:
        """`F.local_response_norm`."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """Local response norm of `(N, C, H, W)` under its older name."""

    def __init__(self, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Any) -> Any:
        """`LocalResponseNorm` of four dimensions, as one node of the graph of gradients.

        Raises:
            ValueError: not four dimensions.
        """
        return _functions.CrossMapLRN2d.apply(input, self.size, self.alpha, self.beta, self.k)


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions.

    Args:
        normalized_shape: sizes of the last dimensions.
        eps: added to the variance.
        elementwise_affine: whether there are weight and bias.
        bias: whether there is a bias (with elementwise_affine).

    Example:
        >>> nn.LayerNorm(2)(torch.tensor([1.0, 3.0])).detach()
        tensor([-1.0000,  1.0000])
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]
    normalized_shape: tuple[int, ...]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        if elementwise_affine:
            size = self.normalized_shape
            self.weight = Parameter(torch.empty(size, device=device, dtype=dtype))
            if bias:
                self.bias = Parameter(torch.empty(size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.elementwise_affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Any) -> Any:
        """`F.layer_norm`."""
        parameters = self._parameters
        try:  # skips __getattr__; parametrized modules keep their tensors elsewhere
            weight, bias = parameters["weight"], parameters["bias"]
        except KeyError:
            weight, bias = self.weight, self.bias
        return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions.

    Args:
        normalized_shape: sizes of the last dimensions.
        eps: the machine epsilon of the computation when None.
        elementwise_affine: whether there is a weight.

    Example:
        >>> nn.RMSNorm(2)(torch.tensor([3.0, 3.0])).detach()
        tensor([1., 1.])
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]
    normalized_shape: tuple[int, ...]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", None)
        if elementwise_affine:
            self.weight = Parameter(torch.empty(self.normalized_shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1."""
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x: Any) -> Any:
        """`F.rms_norm`."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """Layer norm over groups of channels of `(N, C, *)`.

    Args:
        num_groups, num_channels: the groups must divide the channels.
        eps: added to the variance.
        affine: whether there are weight and bias, one per channel.
        bias: whether there is a bias (with affine).

    Example:
        >>> nn.GroupNorm(2, 4, device="meta")(torch.ones(2, 4, 9, device="meta")).shape
        torch.Size([2, 4, 9])
    """

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            text = f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            raise ValueError(problem("GroupNorm", text, "choose a divisor"))
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        if affine:
            self.weight = Parameter(torch.empty(num_channels, device=device, dtype=dtype))
            if bias:
                self.bias = Parameter(torch.empty(num_channels, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Any) -> Any:
        """`F.group_norm`."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
