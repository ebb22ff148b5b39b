"""`nn.functional`: the operators whose home is here, and the few functions around them.

Operators come straight from the registry (`flambeau/ops`). What is written here has arguments that
an operator has not: `inplace`, old ones such as `size_average`, or a choice between operators.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flambeau as torch
from flambeau import _core
from flambeau.core.install import namespace
from flambeau.nn import grad  # noqa: F401 - also a name of this module
from flambeau.nn.messages import problem
from flambeau.ops.linear.scaled_products import ScalingType, SwizzleType  # noqa: F401 - their home is here
from flambeau.runtime import missing as _missing

if TYPE_CHECKING:
    from flambeau._core import Tensor

if TYPE_CHECKING:  # the type stubs know the class by another home
    from flambeau._core import Tensor

_operators = namespace("nn.functional")
_functions = namespace("torch")
globals().update({name: op for name, op in _operators.items() if name not in globals()})

_SHARED = (
    "relu_", "selu_", "celu_", "threshold_", "rrelu_", "bilinear", "celu",
    "selu", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "conv_tbc", "avg_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d",
    "channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "hardshrink", "prelu", "pdist",
    "pairwise_distance", "cosine_similarity", "one_hot", "max_pool1d", "max_pool2d", "max_pool3d",
    "max_pool1d_with_indices", "group_norm", "layer_norm", "batch_norm", "rms_norm", "softmax",
    "log_softmax", "relu", "alpha_dropout", "feature_alpha_dropout", "native_channel_shuffle",
)  # fmt: skip
globals().update({n: _functions[n] for n in _SHARED if n in _functions and n not in globals()})


# ------------------------------------------------------------------------------ activations
def _variants(name: str) -> tuple[Any, Any]:
    """An operator and its in-place variant."""
    return tuple(_operators.get(n, _functions.get(n)) for n in (name, name + "_"))


def _documented(function: Callable[..., Tensor], name: str = "") -> Callable[..., Tensor]:
    """Gives a function the operator's name and page, with the argument `inplace`."""
    name = name or function.__name__
    page, start, example = (_variants(name)[0].__doc__ or "").partition("\n    Example:")
    arguments = "" if "\n    Args:" in page else "\n    Args:"
    page = f"{page.rstrip()}\n{arguments}\n        inplace: writes into the input.\n"
    function.__doc__ = page + start + example
    function.__name__ = function.__qualname__ = name
    return function


def _with_inplace(name: str) -> Callable[..., Tensor]:
    """The function of an operator without options."""
    op, variant = _variants(name)

    def function(input: Tensor, inplace: bool = False) -> Tensor:
        return variant(input) if inplace else op(input)

    return _documented(function, name)


relu, relu6, silu, mish, selu, hardsigmoid, hardswish = map(
    _with_inplace, ("relu", "relu6", "silu", "mish", "selu", "hardsigmoid", "hardswish")
)
(_celu, _celu_), (_elu, _elu_), (_leaky_relu, _leaky_relu_), (_hardtanh, _hardtanh_) = map(
    _variants, ("celu", "elu", "leaky_relu", "hardtanh")
)
(_threshold_out, _threshold_), (_rrelu, _rrelu_) = map(_variants, ("threshold", "rrelu"))


@_documented
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    return _celu_(input, alpha) if inplace else _celu(input, alpha)


@_documented
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    return _elu_(input, alpha) if inplace else _elu(input, alpha)


@_documented
def leaky_relu(
    input: Tensor,
    negative_slope: float = 0.01,
    inplace: bool = False,
) -> Tensor:
    return _leaky_relu_(input, negative_slope) if inplace else _leaky_relu(input, negative_slope)


@_documented
def hardtanh(
    input: Tensor,
    min_val: float = -1.0,
    max_val: float = 1.0,
    inplace: bool = False,
) -> Tensor:
    if min_val > max_val:
        raise ValueError(
            problem("hardtanh", "min_val cannot be greater than max_val", f"{min_val} > {max_val}")
        )
    return _hardtanh_(input, min_val, max_val) if inplace else _hardtanh(input, min_val, max_val)


@_documented
def threshold(
    input: Tensor,
    threshold: float,
    value: float,
    inplace: bool = False,
) -> Tensor:
    return (_threshold_ if inplace else _threshold_out)(input, threshold, value)


@_documented
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    return (_rrelu_ if inplace else _rrelu)(input, lower, upper, training)


def sigmoid(input: Tensor) -> Tensor:
    """The method `sigmoid`: 1 / (1 + exp(-x)).

    Example:
        >>> F.sigmoid(torch.tensor([0.0]))
        tensor([0.5000])
    """
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """The method `tanh`: the hyperbolic tangent.

    Example:
        >>> F.tanh(torch.tensor([0.0]))
        tensor([0.])
    """
    return input.tanh()


def _implicit_dim(name: str, ndim: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if ndim in (0, 1, 3) else 1


_softmax, _log_softmax = _operators.get("softmax"), _operators.get("log_softmax")


def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """exp(x) / sum of exp(x) along `dim`.

    Shape: any -> the same.

    Args:
        dim: 0 for 0, 1 and 3 dimensions, else 1, when None, with a warning.
        dtype: the input is cast to it first; needed for integers.

    Example:
        >>> F.softmax(torch.zeros(4), dim=0)
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    if dim is None:
        dim = _implicit_dim("softmax", input.dim())
    return _softmax(input, dim) if dtype is None else _softmax(input, dim, dtype=dtype)


def log_softmax(
    input: Any,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: Any = None,
) -> Any:
    """Logarithm of `softmax`, computed without overflow.

    Shape: any -> the same.

    Args:
        dim, dtype: as for `softmax`.

    Example:
        >>> F.log_softmax(torch.zeros(4), dim=0)
        tensor([-1.3863, -1.3863, -1.3863, -1.3863])
    """
    if dim is None:
        dim = _implicit_dim("log_softmax", input.dim())
    return _log_softmax(input, dim) if dtype is None else _log_softmax(input, dim, dtype=dtype)


def softmin(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """`softmax` of -x.

    Shape: any -> the same.

    Args:
        dim, dtype: as for `softmax`.

    Example:
        >>> F.softmin(torch.zeros(4), dim=0)
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    if dim is None:
        dim = _implicit_dim("softmin", input.dim())
    return softmax(-input, dim, dtype=dtype)


def gumbel_softmax(
    logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Any:
    """A sample of the Gumbel-softmax distribution (Jang et al. 2017).

    Args:
        tau: temperature.
        hard: one-hot forward, soft gradient.
    """
    noise = -torch.empty_like(logits, memory_format=torch.contiguous_format).exponential_().log()
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    return torch.zeros_like(logits).detach().scatter_(dim, index, 1.0) - soft.detach() + soft


# ------------------------------------------------------------------------------ normalisation
def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Each channel of each sample normalised over its positions.

    Args:
        running_mean, running_var: updated with the batch's mean of the samples' statistics.
        use_input_stats: False: normalise with the running statistics.

    Raises:
        ValueError: there is one position per channel only.
    """
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        text = "Expected more than 1 spatial element when training, got input size "
        raise ValueError(problem("instance_norm", text + f"{input.size()}", "use eval()"))
    given = (weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)
    return torch.instance_norm(input, *given)


# ------------------------------------------------------------------------------ pooling


def _define_adaptive(count: int) -> Any:
    name = f"adaptive_max_pool{count}d"
    pool = _operators[name]

    def function(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        return pool(input, output_size, True)

    function.__name__ = function.__qualname__ = f"{name}_with_indices"
    function.__doc__ = f"""`{name}`, and where in the input each maximum was found.

    Args:
        return_indices: changes nothing.

    Example:
        >>> F.{name}_with_indices(torch.ones({", ".join("2" * (count + 1))}), 1)[1].shape
        torch.Size([2{", 1" * count}])
    """
    return function


adaptive_max_pool1d_with_indices = _define_adaptive(1)
adaptive_max_pool2d_with_indices = _define_adaptive(2)
adaptive_max_pool3d_with_indices = _define_adaptive(3)

# At the end, since it calls functions of this module.
from flambeau.nn.functional_attention import canonical_mask as _canonical_mask  # noqa: E402, F401
from flambeau.nn.functional_attention import (  # noqa: E402
    multi_head_attention_forward as multi_head_attention_forward,
)
from flambeau.nn.functional_linear_cross_entropy import (  # noqa: E402
    linear_cross_entropy as linear_cross_entropy,
)

# The operators behind functions without a default of their own: they serve the simplest calls.
_DIRECT = {
    name: _variants(name)[0]
    for name in (
        "relu",
        "relu6",
        "silu",
        "mish",
        "selu",
        "elu",
        "celu",
        "leaky_relu",
        "hardtanh",
        "hardswish",
        "hardsigmoid",
    )
}
_BY_METHOD = ("sigmoid", "tanh")  # call a method, which asks
_DIRECT_WITH_DIM = {"softmax": _softmax, "log_softmax": _log_softmax}


def _publish() -> None:
    """Modes and types with `__torch_function__` are asked before a function written here runs."""
    here = (__name__, "torch" + __name__.removeprefix("flambeau"))  # the second: under the alias
    for name, value in list(globals().items()):
        own = getattr(value, "__module__", "").startswith(here)
        asks = not name.startswith("_") and name not in _BY_METHOD
        if own and isinstance(value, type(_publish)) and asks:
            direct = _DIRECT.get(name) or _DIRECT_WITH_DIM.get(name)
            globals()[name] = _core.shield(value, False, True, direct, name in _DIRECT_WITH_DIM)


_publish()

GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}
_threshold = threshold  # its name in graphs

# Distinguishes names of PyTorch that are missing here from misspelt ones.
_LAZY = dict.fromkeys(
    "handle_torch_function has_torch_function has_torch_function_unary "
    "has_torch_function_variadic".split(),
    "flambeau.overrides",
) | dict.fromkeys(
    "_list_with_default _pair _quadruple _single _triple".split(), "flambeau.nn.modules.utils"
)
_LAZY |= dict.fromkeys(
    "_in_projection _in_projection_packed _mha_shape_check _none_or_dtype".split(),
    "flambeau.nn.functional_attention",
)
globals()["__getattr__"] = _missing.getter(__name__, _LAZY)
