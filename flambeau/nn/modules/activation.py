"""Activations as modules, documented by their functions (see `function`)."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as torch
from flambeau._core import Tensor
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn import init as initialise
from flambeau.nn.messages import problem
from flambeau.nn.modules.function import FunctionModule
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.multihead import MultiheadAttention
from flambeau.nn.parameter import Parameter

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "MultiheadAttention", "PReLU", "RReLU",
    "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus",
    "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _InplaceActivation(FunctionModule, shown="inplace"):
    """An activation whose only option is to work in place.

    Args:
        inplace: whether to write into the input.
    """

    __constants__ = ["inplace"]
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class ReLU(_InplaceActivation, function="relu"):
    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class SiLU(_InplaceActivation, function="silu"):
    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class Mish(_InplaceActivation, function="mish"):
    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)


class SELU(_InplaceActivation, function="selu"):
    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class Hardsigmoid(_InplaceActivation, function="hardsigmoid", shown=""):
    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)


class Hardswish(_InplaceActivation, function="hardswish", shown=""):
    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)


class Threshold(FunctionModule, function="threshold", shown="threshold value inplace"):
    __constants__ = ["threshold", "value", "inplace"]

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)


class RReLU(FunctionModule, function="rrelu", shown="lower upper inplace"):
    """x for x > 0, else a random slope in [lower, upper] times x (the middle in evaluation).

    Args:
        lower, upper: range of the slope.
        inplace: whether to write into the input.

    Example:
        >>> nn.RReLU(0.25, 0.75).eval()(torch.tensor([-2.0, 3.0]))
        tensor([-1.,  3.])
    """

    __constants__ = ["lower", "upper", "inplace"]

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class Hardtanh(FunctionModule, function="hardtanh", shown="min_val max_val inplace"):
    __constants__ = ["min_val", "max_val", "inplace"]

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        for old, name in ((min_value, "min"), (max_value, "max")):
            if old is not None:
                warnings.warn(
                    f"keyword argument `{name}_value` is deprecated and rename to `{name}_val`",
                    FutureWarning,
                    stacklevel=2,
                )
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            text = f"max_val must be larger than min_val, got {self.min_val} and {self.max_val}"
            raise AssertionError(problem("Hardtanh", text, "swap them"))

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class ReLU6(Hardtanh, function="relu6", shown="inplace"):
    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def forward(self, input: Tensor) -> Tensor:
        return F.relu6(input, self.inplace)


class Sigmoid(FunctionModule, function="sigmoid"):
    def forward(self, input: Tensor) -> Tensor:
        return torch.sigmoid(input)


class Tanh(FunctionModule, function="tanh"):
    def forward(self, input: Tensor) -> Tensor:
        return torch.tanh(input)


class ELU(FunctionModule, function="elu", shown="alpha inplace"):
    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class CELU(ELU, function="celu"):
    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class LeakyReLU(FunctionModule, function="leaky_relu", shown="negative_slope inplace"):
    __constants__ = ["inplace", "negative_slope"]

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)


class PReLU(Module):
    """x for x > 0, else weight * x; the weight is learnt.

    Args:
        num_parameters: 1, or the number of channels (dimension 1).
        init: where the weight starts.

    Example:
        >>> nn.PReLU(3).weight.shape
        torch.Size([3])
    """

    __constants__ = ["num_parameters"]

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(torch.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight as at first."""
        initialise.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """`F.prelu`."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The number of weights."""
        return f"num_parameters={self.num_parameters}"


class GELU(FunctionModule, function="gelu", shown="approximate"):
    __constants__ = ["approximate"]

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)


class GLU(FunctionModule, function="glu", shown="dim"):
    __constants__ = ["dim"]

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)


class LogSigmoid(FunctionModule, function="logsigmoid"):
    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softplus(FunctionModule, function="softplus", shown="beta threshold"):
    __constants__ = ["beta", "threshold"]

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)


class _Shrink(FunctionModule):
    """A limit around 0."""

    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """The limit."""
        return str(self.lambd)


class Softshrink(_Shrink, function="softshrink"):
    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Hardshrink(_Shrink, function="hardshrink"):
    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softsign(FunctionModule, function="softsign"):
    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(FunctionModule, function="tanhshrink"):
    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class _AlongDim(FunctionModule, shown="dim"):
    """A function along one dimension."""

    __constants__ = ["dim"]
    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)


class Softmin(_AlongDim, function="softmin"):
    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class Softmax(_AlongDim, function="softmax"):
    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim, function="log_softmax"):
    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of `(N, C, H, W)` or `(C, H, W)`.

    Example:
        >>> nn.Softmax2d()(torch.zeros(1, 2, 3, 3, device="meta")).shape
        torch.Size([1, 2, 3, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Softmax along dimension -3."""
        if input.dim() not in (3, 4):
            text = f"expected input to be 3D or 4D, but got {input.dim()}D instead"
            raise ValueError(problem("Softmax2d", "Softmax2d: " + text, "use Softmax(dim)"))
        return F.softmax(input, -3)
