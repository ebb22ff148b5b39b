"""Linear layers."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn import init
from flambeau.nn.messages import problem
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter, UninitializedParameter

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear"]


class Identity(Module):
    """Returns its input; any arguments are accepted and ignored.

    Example:
        >>> nn.Identity()(torch.ones(2))
        tensor([1., 1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The input."""
        return input


class Linear(Module):
    """x W^T + b.

    Args:
        in_features, out_features: sizes of the last dimension of input and output.
        bias: whether there is a b.

    Shape: `(*, in_features)` -> `(*, out_features)`. Weight and bias start uniform on
    (-1/sqrt(in_features), 1/sqrt(in_features)).

    Example:
        >>> nn.Linear(20, 30)(torch.zeros(128, 20)).shape
        torch.Size([128, 30])
    """

    __constants__ = ["in_features", "out_features"]
    in_features: int
    out_features: int
    weight: Any

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(
            torch.empty((out_features, in_features), device=device, dtype=dtype)
        )
        if bias:
            self.bias = Parameter(torch.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new weights."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Any) -> Any:
        """`F.linear(input, weight, bias)`."""
        parameters = self._parameters
        try:  # skips __getattr__; parametrized modules keep their tensors elsewhere
            return F.linear(input, parameters["weight"], parameters["bias"])
        except KeyError:
            return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear of its own type, as the output projection of attention has in PyTorch."""


class Bilinear(Module):
    """x1^T A x2 + b, one matrix A per output.

    Args:
        in1_features, in2_features, out_features: sizes of the last dimensions.
        bias: whether there is a b.

    Example:
        >>> x = torch.zeros(5, 2, device="meta")
        >>> y = torch.zeros(5, 3, device="meta")
        >>> nn.Bilinear(2, 3, 4, device="meta")(x, y).shape
        torch.Size([5, 4])
    """

    __constants__ = ["in1_features", "in2_features", "out_features"]

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            text = f"in1_features must be > 0, but got {in1_features}"
            raise ValueError(problem("Bilinear", text, "give a positive size"))
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(
            torch.empty((out_features, in1_features, in2_features), device=device, dtype=dtype)
        )
        if bias:
            self.bias = Parameter(torch.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new weights, uniform on (-1/sqrt(in1_features), 1/sqrt(in1_features))."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Any, input2: Any) -> Any:
        """`F.bilinear(input1, input2, weight, bias)`."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` that learns `in_features` from its first input, and is a `Linear` from then on.

    Args:
        out_features: size of the last dimension of the output.
        bias: whether there is a b.

    Example:
        >>> layer = nn.LazyLinear(30)
        >>> layer(torch.zeros(128, 20)).shape
        torch.Size([128, 30])
        >>> layer
        Linear(in_features=20, out_features=30, bias=True)
    """

    cls_to_become = Linear
    bias: Any

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False, device, dtype)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draws new weights, once there are some."""
        if self.in_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Any) -> None:
        """Takes `in_features` from an input and draws the weights that were not loaded.

        Raises:
            AssertionError: loaded weights are for another size.
        """
        size = input.shape[-1]
        if self.has_uninitialized_params():
            self.in_features = size
            self.weight.materialize((self.out_features, size))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        elif self.in_features == 0:
            if size != self.weight.shape[-1]:
                text = f"the input has {size} features, the loaded weight {self.weight.shape[-1]}"
                raise AssertionError(problem("LazyLinear", text, "load weights of that size"))
            self.in_features = size
