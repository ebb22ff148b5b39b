"""Initialisation: fills tensors in place, drawing the same numbers as PyTorch does.

Sources: Glorot and Bengio 2010 (xavier), He et al. 2015 (kaiming), Saxe et al. 2013 (orthogonal),
Martens 2010 (sparse). How numbers are drawn: docs/random.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from flambeau._core import Tensor
from flambeau.autograd import no_grad
from flambeau.nn.messages import problem

__all__ = [
    "calculate_gain", "uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_",
    "eye_", "dirac_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_",
    "orthogonal_", "sparse_", "uniform", "normal", "constant", "eye", "dirac", "xavier_uniform",
    "xavier_normal", "kaiming_uniform", "kaiming_normal", "orthogonal", "sparse",
]  # fmt: skip

_LINEAR = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
           "conv_transpose3d", "sigmoid")  # fmt: skip


def _refuse(op: str, what: str, hint: str) -> ValueError:
    return ValueError(problem(op, what, hint))


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The factor by which an activation's input should be scaled to keep its variance.

    Args:
        nonlinearity: name of a function in `nn.functional`.
        param: negative slope of "leaky_relu" (0.01).

    Raises:
        ValueError: unknown activation.
    """
    gains = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity in gains:
        return gains[nonlinearity]
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise _refuse("calculate_gain", f"negative_slope {param} not a valid number", "a float")
        return math.sqrt(2.0 / (1 + slope**2))
    raise _refuse("calculate_gain", f"Unsupported nonlinearity {nonlinearity}", "'relu', 'tanh'")


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """Fills with uniform numbers from [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fills with normal numbers."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


_no_grad_uniform_, _no_grad_normal_ = uniform_, normal_  # names that packages import


def _no_grad_trunc_normal_(
    tensor: Any, mean: float, std: float, a: float, b: float, generator: Any = None
) -> Any:
    return _truncated(tensor, mean, std, a, b, generator)


def _no_grad_fill_(tensor: Any, val: float) -> Any:
    with no_grad():
        return tensor.fill_(val)


def _no_grad_zero_(tensor: Any) -> Any:
    return _no_grad_fill_(tensor, 0)


def trunc_normal_(
    tensor: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Any:
    """Fills with normal numbers that lie in [a, b]."""
    return _truncated(tensor, mean, std, a, b, generator)


def _normal_cdf(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def _truncated(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any) -> Any:
    """Rejection: from the normal distribution if it is mostly inside, else from a uniform one."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=3,
        )
    if tensor.is_meta:
        return tensor
    inside = _normal_cdf((b - mean) / std) - _normal_cdf((a - mean) / std)
    with no_grad():
        if inside > 0.3:
            return _reject_normal(tensor, mean, std, a, b, generator)
        return _reject_uniform(tensor, mean, std, a, b, generator)


def _reject_normal(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any) -> Any:
    """Draws a whole tensor again while any element is outside, and takes it for those elements."""
    import flambeau as torch

    low, high = (torch.tensor(bound, dtype=tensor.dtype).item() for bound in (a, b))
    tensor.normal_(mean, std, generator=generator)
    outside = (tensor < low) | (tensor > high)
    while outside.any():
        again = torch.empty_like(tensor).normal_(mean, std, generator=generator)
        tensor.copy_(torch.where(outside, again, tensor))
        outside = (tensor < low) | (tensor > high)
    return tensor


def _reject_uniform(
    tensor: Any, mean: float, std: float, a: float, b: float, generator: Any
) -> Any:
    """Accepts a uniform number with the ratio of the density there to its peak in [a, b]."""
    import flambeau as torch

    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    pending = None
    while pending is None or pending.any():
        drawn = torch.empty_like(tensor).uniform_(a, b, generator=generator)
        tensor.copy_(drawn if pending is None else torch.where(pending, drawn, tensor))
        density = drawn.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
        coin = torch.empty_like(tensor).uniform_(generator=generator).log_()
        refused = coin > density
        pending = refused if pending is None else pending & refused
    return tensor


def constant_(tensor: Any, val: float) -> Tensor:
    """Fills with one value."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Any) -> Tensor:
    """Fills with 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fills with 0."""
    with no_grad():
        return tensor.zero_()


def eye_(tensor: Any) -> Any:
    """Fills a matrix with the identity.

    Raises:
        ValueError: not 2-dimensional.
    """
    import flambeau as torch

    if tensor.ndimension() != 2:
        raise _refuse("eye_", "Only tensors with 2 dimensions are supported", "use a matrix")
    with no_grad():
        tensor.copy_(torch.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))
    return tensor


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """Fills convolution weights so that they pass their input on.

    Raises:
        ValueError: not 3-, 4- or 5-dimensional, or `groups` does not divide dimension 0.
    """
    dimensions = tensor.ndimension()
    if dimensions not in (3, 4, 5):
        text = "Only tensors with 3, 4, or 5 dimensions are supported"
        raise _refuse("dirac_", text, "use convolution weights")
    sizes = tensor.size()
    if sizes[0] % groups != 0:
        raise _refuse("dirac_", "dim 0 must be divisible by groups", f"{sizes[0]} % {groups} != 0")
    per_group = sizes[0] // groups
    centre = tuple(extent // 2 for extent in sizes[2:])
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, sizes[1])):
                tensor[(group * per_group + channel, channel, *centre)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    dimensions = tensor.dim()
    if dimensions < 2:
        text = "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        raise _refuse("init", text, "initialise vectors with uniform_ or normal_")
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        text = f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']"
        raise _refuse("init", text, "mode='fan_in'")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Uniform on [-a, a), a = gain sqrt(6 / (fan_in + fan_out))."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with std = gain sqrt(2 / (fan_in + fan_out))."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def _is_empty(tensor: Any) -> bool:
    if 0 not in tensor.shape:
        return False
    warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return True


def kaiming_uniform_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform on [-b, b), b = gain sqrt(3 / fan).

    Args:
        a: negative slope of a leaky ReLU.
        mode: "fan_in" or "fan_out".
        nonlinearity: see `calculate_gain`.
    """
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """Normal with std = gain / sqrt(fan); arguments as `kaiming_uniform_`."""
    if _is_empty(tensor):
        return tensor
    return normal_(tensor, 0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """Fills with an orthogonal matrix (dimensions after the first flattened), times `gain`.

    Raises:
        ValueError: fewer than 2 dimensions.
    """
    import flambeau as torch

    if tensor.ndimension() < 2:
        text = "Only tensors with 2 or more dimensions are supported"
        raise _refuse("orthogonal_", text, "initialise vectors with normal_")
    if tensor.numel() == 0:
        return tensor
    linalg = getattr(torch, "linalg", None)
    if not hasattr(linalg, "qr"):
        raise NotImplementedError(
            problem("orthogonal_", "linalg.qr is not there yet", "use xavier_uniform_")
        )
    rows = tensor.size(0)
    columns = tensor.numel() // rows
    flat = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
    tall = flat.t() if rows < columns else flat
    q, r = linalg.qr(tall)
    q = q * torch.diag(r, 0).sign()
    if rows < columns:
        q = q.t()
    with no_grad():
        tensor.view_as(q).copy_(q)
        tensor.mul_(gain)
    return tensor


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """Normal numbers of which a fraction `sparsity` of each column is zero.

    Raises:
        ValueError: not 2-dimensional.
    """
    import flambeau as torch

    if tensor.ndimension() != 2:
        raise _refuse("sparse_", "Only tensors with 2 dimensions are supported", "use a matrix")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            chosen = torch.randperm(rows)[:zeros]
            tensor[chosen, column] = 0
    return tensor


def _make_deprecate(method: Callable[..., Any]) -> Callable[..., Any]:
    old_name = method.__name__[:-1]

    def deprecated_init(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"`nn.init.{old_name}` is now deprecated in favor of `nn.init.{method.__name__}`.",
            FutureWarning,
            stacklevel=2,
        )
        return method(*args, **kwargs)

    deprecated_init.__name__ = old_name
    deprecated_init.__doc__ = f"{old_name}(...): deprecated; use `{method.__name__}`."
    return deprecated_init


uniform = _make_deprecate(uniform_)
normal = _make_deprecate(normal_)
constant = _make_deprecate(constant_)
eye = _make_deprecate(eye_)
dirac = _make_deprecate(dirac_)
xavier_uniform = _make_deprecate(xavier_uniform_)
xavier_normal = _make_deprecate(xavier_normal_)
kaiming_uniform = _make_deprecate(kaiming_uniform_)
kaiming_normal = _make_deprecate(kaiming_normal_)
orthogonal = _make_deprecate(orthogonal_)
sparse = _make_deprecate(sparse_)
