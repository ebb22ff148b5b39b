"""Activations as modules. Each calls the function of its name in `nn.functional`."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as torch
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn import init as initialise
from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.multihead import MultiheadAttention
from flambeau.nn.parameter import Parameter

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "MultiheadAttention", "PReLU", "RReLU",
    "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus",
    "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _InplaceActivation(Module):
    """An activation whose only option is to work in place.

    Args:
        inplace: whether to write into the input.
    """

    __constants__ = ["inplace"]
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """The option, when set."""
        return "inplace=True" if self.inplace else ""


class ReLU(_InplaceActivation):
    """max(x, 0).

    Example:
        >>> nn.ReLU()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0., 0., 3.])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.relu`."""
        return F.relu(input, self.inplace)


class SiLU(_InplaceActivation):
    """x * sigmoid(x).

    Example:
        >>> nn.SiLU()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.2384,  0.0000,  2.8577])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.silu`."""
        return F.silu(input, self.inplace)


class Mish(_InplaceActivation):
    """x * tanh(softplus(x)).

    Example:
        >>> nn.Mish()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.2525,  0.0000,  2.9865])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.mish`."""
        return F.mish(input, self.inplace)


class SELU(_InplaceActivation):
    """Self-normalising ELU.

    Example:
        >>> nn.SELU()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-1.5202,  0.0000,  3.1521])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.selu`."""
        return F.selu(input, self.inplace)


class Hardsigmoid(_InplaceActivation):
    """relu6(x + 3) / 6.

    Example:
        >>> nn.Hardsigmoid()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0.1667, 0.5000, 1.0000])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.hardsigmoid`."""
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        """Nothing, as in PyTorch."""
        return ""


class Hardswish(_InplaceActivation):
    """x * relu6(x + 3) / 6.

    Example:
        >>> nn.Hardswish()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.3333,  0.0000,  3.0000])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.hardswish`."""
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        """Nothing, as in PyTorch."""
        return ""


class Threshold(Module):
    """x where x > threshold, else value.

    Args:
        threshold, value: the limit and what replaces smaller numbers.
        inplace: whether to write into the input.

    Example:
        >>> nn.Threshold(1.0, 9.0)(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([9., 9., 3.])
    """

    __constants__ = ["threshold", "value", "inplace"]

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.threshold`."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """The options."""
        inplace = ", inplace=True" if self.inplace else ""
        return f"threshold={self.threshold}, value={self.value}{inplace}"


class RReLU(Module):
    """x for x > 0, else a random slope in [lower, upper] times x (the middle in evaluation).

    Args:
        lower, upper: range of the slope.
        inplace: whether to write into the input.
    """

    __constants__ = ["lower", "upper", "inplace"]

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.rrelu`."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The options."""
        inplace = ", inplace=True" if self.inplace else ""
        return f"lower={self.lower}, upper={self.upper}{inplace}"


class Hardtanh(Module):
    """x limited to [min_val, max_val].

    Args:
        min_val, max_val: the limits.
        inplace: whether to write into the input.
        min_value, max_value: deprecated names of the limits.

    Example:
        >>> nn.Hardtanh()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-1.,  0.,  1.])
    """

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

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.hardtanh`."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """The options."""
        inplace = ", inplace=True" if self.inplace else ""
        return f"min_val={self.min_val}, max_val={self.max_val}{inplace}"


class ReLU6(Hardtanh):
    """min(max(x, 0), 6).

    Args:
        inplace: whether to write into the input.

    Example:
        >>> nn.ReLU6()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0., 0., 3.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.relu6`."""
        return F.relu6(input, self.inplace)

    def extra_repr(self) -> str:
        """The option, when set."""
        return "inplace=True" if self.inplace else ""


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Example:
        >>> nn.Sigmoid()(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([0.2689, 0.5000, 0.7311])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`torch.sigmoid`."""
        return torch.sigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent.

    Example:
        >>> nn.Tanh()(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.7616,  0.0000,  0.7616])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`torch.tanh`."""
        return torch.tanh(input)


class ELU(Module):
    """x for x > 0, else alpha * (exp(x) - 1).

    Args:
        alpha: scale of the negative part.
        inplace: whether to write into the input.

    Example:
        >>> nn.ELU()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.8647,  0.0000,  3.0000])
    """

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.elu`."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """The options."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(ELU):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)); arguments as `ELU`.

    Example:
        >>> nn.CELU()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.8647,  0.0000,  3.0000])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.celu`."""
        return F.celu(input, self.alpha, self.inplace)


class LeakyReLU(Module):
    """x for x > 0, else negative_slope * x.

    Args:
        negative_slope: slope below 0.
        inplace: whether to write into the input.

    Example:
        >>> nn.LeakyReLU()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.0200,  0.0000,  3.0000])
    """

    __constants__ = ["inplace", "negative_slope"]

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.leaky_relu`."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """The options."""
        inplace = ", inplace=True" if self.inplace else ""
        return f"negative_slope={self.negative_slope}{inplace}"


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
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(torch.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight as at first."""
        initialise.constant_(self.weight, self.init)

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.prelu`."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The number of weights."""
        return f"num_parameters={self.num_parameters}"


class GELU(Module):
    """x Phi(x), Phi the normal distribution function.

    Args:
        approximate: "none" or "tanh".

    Example:
        >>> nn.GELU()(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1587,  0.0000,  0.8413])
    """

    __constants__ = ["approximate"]

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.gelu`."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """The option."""
        return f"approximate={self.approximate!r}"


class GLU(Module):
    """a * sigmoid(b), the halves of x along `dim`.

    Example:
        >>> nn.GLU()(torch.tensor([2.0, 4.0, 0.0, 0.0]))
        tensor([1., 2.])
    """

    __constants__ = ["dim"]

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.glu`."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """The dimension."""
        return f"dim={self.dim}"


class LogSigmoid(Module):
    """log(sigmoid(x)).

    Example:
        >>> nn.LogSigmoid()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-2.1269, -0.6931, -0.0486])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.logsigmoid`."""
        return F.logsigmoid(input)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold.

    Example:
        >>> nn.Softplus()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0.1269, 0.6931, 3.0486])
    """

    __constants__ = ["beta", "threshold"]

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.softplus`."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """The options."""
        return f"beta={self.beta}, threshold={self.threshold}"


class _Shrink(Module):
    """A limit around 0."""

    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """The limit."""
        return str(self.lambd)


class Softshrink(_Shrink):
    """x - lambd above lambd, x + lambd below -lambd, else 0.

    Example:
        >>> nn.Softshrink()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-1.5000,  0.0000,  2.5000])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.softshrink`."""
        return F.softshrink(input, self.lambd)


class Hardshrink(_Shrink):
    """x where |x| > lambd, else 0.

    Example:
        >>> nn.Hardshrink()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-2.,  0.,  3.])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.hardshrink`."""
        return F.hardshrink(input, self.lambd)


class Softsign(Module):
    """x / (1 + |x|).

    Example:
        >>> nn.Softsign()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.6667,  0.0000,  0.7500])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.softsign`."""
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x).

    Example:
        >>> nn.Tanhshrink()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-1.0360,  0.0000,  2.0049])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.tanhshrink`."""
        return F.tanhshrink(input)


class _AlongDim(Module):
    """A function along one dimension."""

    __constants__ = ["dim"]
    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)


class Softmin(_AlongDim):
    """Softmax of -x along `dim`.

    Example:
        >>> nn.Softmin(dim=0)(torch.zeros(4))
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.softmin`."""
        return F.softmin(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """The dimension."""
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """exp(x) / sum of exp(x) along `dim`.

    Example:
        >>> nn.Softmax(dim=0)(torch.zeros(4))
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.softmax`."""
        return F.softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """The dimension."""
        return f"dim={self.dim}"


class LogSoftmax(_AlongDim):
    """Logarithm of softmax along `dim`.

    Example:
        >>> nn.LogSoftmax(dim=0)(torch.zeros(4))
        tensor([-1.3863, -1.3863, -1.3863, -1.3863])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """`F.log_softmax`."""
        return F.log_softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """The dimension."""
        return f"dim={self.dim}"


class Softmax2d(Module):
    """Softmax over the channels of `(N, C, H, W)` or `(C, H, W)`.

    Example:
        >>> nn.Softmax2d()(torch.zeros(1, 2, 3, 3, device="meta")).shape
        torch.Size([1, 2, 3, 3])
    """

    def forward(self, input: Any) -> Any:  # noqa: A002
        """Softmax along dimension -3."""
        if input.dim() not in (3, 4):
            text = f"expected input to be 3D or 4D, but got {input.dim()}D instead"
            raise ValueError(problem("Softmax2d", "Softmax2d: " + text, "use Softmax(dim)"))
        return F.softmax(input, -3)
