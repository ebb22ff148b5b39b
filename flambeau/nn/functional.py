"""`nn.functional`: the operators whose home is here, and the few functions around them.

Operators come straight from the registry (`flambeau/ops`). What is written here has arguments that
an operator has not: `inplace`, old ones such as `size_average`, or a choice between operators.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import flambeau as torch
from flambeau import _core
from flambeau.core.install import namespace
from flambeau.nn import grad  # noqa: F401 - also a name of this module
from flambeau.nn.messages import problem
from flambeau.ops.linear.scaled_products import ScalingType, SwizzleType  # noqa: F401 - their home is here
from flambeau.runtime import missing as _missing

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
def _with_inplace(name: str) -> tuple[Any, Any]:
    """An operator and its in-place variant; one without such a variant works on a copy."""
    op = _operators.get(name, _functions.get(name))
    variant = _operators.get(name + "_", _functions.get(name + "_"))

    def in_place(input: Any, *args: Any) -> Any:  # noqa: A002
        return input.copy_(op(input.clone(), *args))

    return op, variant or in_place


_relu, _relu_ = _with_inplace("relu")
_relu6, _relu6_ = _with_inplace("relu6")
_silu, _silu_ = _with_inplace("silu")
_mish, _mish_ = _with_inplace("mish")
_selu, _selu_ = _with_inplace("selu")
_celu, _celu_ = _with_inplace("celu")
_elu, _elu_ = _with_inplace("elu")
_leaky_relu, _leaky_relu_ = _with_inplace("leaky_relu")
_hardtanh, _hardtanh_ = _with_inplace("hardtanh")
_hardsigmoid, _hardsigmoid_ = _with_inplace("hardsigmoid")
_hardswish, _hardswish_ = _with_inplace("hardswish")
_threshold_out, _threshold_ = _with_inplace("threshold")
_rrelu, _rrelu_ = _with_inplace("rrelu")


def sigmoid(input: Any) -> Any:  # noqa: A002
    """1 / (1 + exp(-x)).

    Shape: any -> the same; any real or complex dtype.

    Example:
        >>> F.sigmoid(torch.tensor([0.0]))
        tensor([0.5000])
    """
    return input.sigmoid()


def tanh(input: Any) -> Any:  # noqa: A002
    """The hyperbolic tangent.

    Shape: any -> the same; any real or complex dtype.

    Example:
        >>> F.tanh(torch.tensor([0.0]))
        tensor([0.])
    """
    return input.tanh()


def relu(input: Any, inplace: bool = False) -> Any:  # noqa: A002
    """max(x, 0).

    Source: Nair and Hinton, Rectified Linear Units, 2010.

    Shape: any -> the same; any real dtype.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.relu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0., 0., 3.])
    """
    return _relu_(input) if inplace else _relu(input)


def relu6(input: Any, inplace: bool = False) -> Any:  # noqa: A002
    """min(max(x, 0), 6).

    Shape: any -> the same; any real dtype.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.relu6(torch.tensor([-2.0, 0.0, 3.0]) * 3)
        tensor([0., 0., 6.])
    """
    return _relu6_(input) if inplace else _relu6(input)


def silu(input: Any, inplace: bool = False) -> Any:  # noqa: A002
    """x * sigmoid(x).

    Source: Elfwing et al., Sigmoid-Weighted Linear Units, 2018.

    Shape: any -> the same; floating dtypes.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.silu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.2384,  0.0000,  2.8577])
    """
    return _silu_(input) if inplace else _silu(input)


def mish(input: Any, inplace: bool = False) -> Any:  # noqa: A002
    """x * tanh(softplus(x)).

    Source: Misra, Mish, 2019.

    Shape: any -> the same; floating dtypes.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.mish(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.2525,  0.0000,  2.9865])
    """
    return _mish_(input) if inplace else _mish(input)


def selu(input: Any, inplace: bool = False) -> Any:  # noqa: A002
    """Self-normalising ELU.

    Source: Klambauer et al., Self-Normalizing Neural Networks, 2017.

    Shape: any -> the same; floating dtypes.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.selu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-1.5202,  0.0000,  3.1521])
    """
    return _selu_(input) if inplace else _selu(input)


def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:  # noqa: A002
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    Source: Barron, Continuously Differentiable Exponential Linear Units, 2017.

    Shape: any -> the same; floating dtypes.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.celu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.8647,  0.0000,  3.0000])
    """
    return _celu_(input, alpha) if inplace else _celu(input, alpha)


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:  # noqa: A002
    """x for x > 0, else alpha * (exp(x) - 1).

    Source: Clevert et al., Exponential Linear Units, 2016.

    Shape: any -> the same; floating dtypes.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.elu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.8647,  0.0000,  3.0000])
    """
    return _elu_(input, alpha) if inplace else _elu(input, alpha)


def elu_(input: Any, alpha: float = 1.0) -> Any:  # noqa: A002
    """`elu` in place."""
    return _elu_(input, alpha)


def leaky_relu_(input: Any, negative_slope: float = 0.01) -> Any:  # noqa: A002
    """`leaky_relu` in place."""
    return _leaky_relu_(input, negative_slope)


def hardtanh_(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:  # noqa: A002
    """`hardtanh` in place."""
    return _hardtanh_(input, min_val, max_val)


def threshold_(input: Any, threshold: float, value: float) -> Any:  # noqa: A002
    """`threshold` in place."""
    return _threshold_(input, threshold, value)


def selu_(input: Any) -> Any:  # noqa: A002
    """`selu` in place."""
    return _selu_(input)


def celu_(input: Any, alpha: float = 1.0) -> Any:  # noqa: A002
    """`celu` in place."""
    return _celu_(input, alpha)


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:  # noqa: A002
    """x for x > 0, else negative_slope * x.

    Source: Maas et al., Rectifier Nonlinearities, 2013.

    Shape: any -> the same; floating dtypes.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.leaky_relu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.0200,  0.0000,  3.0000])
    """
    return _leaky_relu_(input, negative_slope) if inplace else _leaky_relu(input, negative_slope)


def hardtanh(
    input: Any,  # noqa: A002
    min_val: float = -1.0,
    max_val: float = 1.0,
    inplace: bool = False,
) -> Any:
    """x limited to [min_val, max_val].

    Raises:
        ValueError: min_val is larger than max_val.

    Example:
        >>> F.hardtanh(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-1.,  0.,  1.])
    """
    if min_val > max_val:
        raise ValueError(
            problem("hardtanh", "min_val cannot be greater than max_val", f"{min_val} > {max_val}")
        )
    return _hardtanh_(input, min_val, max_val) if inplace else _hardtanh(input, min_val, max_val)


def hardsigmoid(input: Any, inplace: bool = False) -> Any:  # noqa: A002
    """relu6(x + 3) / 6.

    Shape: any -> the same; floating dtypes.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.hardsigmoid(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0.1667, 0.5000, 1.0000])
    """
    return _hardsigmoid_(input) if inplace else _hardsigmoid(input)


def hardswish(input: Any, inplace: bool = False) -> Any:  # noqa: A002
    """x * relu6(x + 3) / 6.

    Source: Howard et al., Searching for MobileNetV3, 2019.

    Shape: any -> the same; floating dtypes.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.hardswish(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.3333,  0.0000,  3.0000])
    """
    return _hardswish_(input) if inplace else _hardswish(input)


def threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> Any:  # noqa: A002
    """x where x > threshold, else value.

    Shape: any -> the same; any real dtype.

    Args:
        inplace: writes into the input.

    Example:
        >>> F.threshold(torch.tensor([-2.0, 0.0, 3.0]), 1.0, 9.0)
        tensor([9., 9., 3.])
    """
    return (
        _threshold_(input, threshold, value) if inplace else _threshold_out(input, threshold, value)
    )


def rrelu(
    input: Any,  # noqa: A002
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Any:
    """x for x > 0, else slope * x; the slope is random in [lower, upper] when training.

    One float64 number is drawn per element that is not positive.
    """
    return (_rrelu_ if inplace else _rrelu)(input, lower, upper, training)


def _implicit_dim(name: str, ndim: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if ndim in (0, 1, 3) else 1


_softmax, _log_softmax = _operators.get("softmax"), _operators.get("log_softmax")


def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:  # noqa: A002
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
    input: Any,  # noqa: A002
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


def softmin(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:  # noqa: A002
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
    input: Any,  # noqa: A002
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
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

    def function(input: Any, output_size: Any, return_indices: bool = False) -> Any:  # noqa: A002
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
    "relu": _relu, "relu6": _relu6, "silu": _silu, "mish": _mish, "selu": _selu, "elu": _elu,
    "celu": _celu, "leaky_relu": _leaky_relu, "hardtanh": _hardtanh, "hardswish": _hardswish,
    "hardsigmoid": _hardsigmoid,
}  # fmt: skip
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

# A name of PyTorch that is not here yet is told from a misspelt one.
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
