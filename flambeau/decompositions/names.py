"""Names of the graph's nodes: the class of an operator's `grad_fn`, and which inputs it has.

A class is named after the operator, and numbered where overloads have derivatives of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

# Numbers of overloads other than 0, by operator; `_` behind it: only of the in-place operator.
_NUMBERS: dict[str, str] = {
    "Scalar": "add mul sub rsub div eq ge gt le lt ne copysign",
    "Tensor": "clamp=0 clamp_max clamp_min fmod lerp masked_fill remainder polygamma",
    "Tensor_mode": "div=2",
    "Scalar_mode": "div=3",
    "default": (
        "clamp max min index_fill=0 acosh_=1 asinh_=1 atanh_=1 celu_=1 elu_=1 leaky_relu_=1 "
        "threshold_=1 rrelu_with_noise_=1 t_=1 transpose_=1 unsqueeze_=1 as_strided_=1 squeeze_=3 "
        "conj_physical_=1"
    ),
    "dim": "mean median nanmedian squeeze squeeze_=4",
    "dims": "squeeze=2 squeeze_=5",
    "dim_IntList": "sum",
    "dim_int": "prod",
    "int_Tensor": "index_fill",
    "Tensor_Tensor": "pow normal=3",
    "float_Tensor": "normal=2",
    "Tensor_float": "normal",
    "ScalarOpt_dim": "norm",
    "ScalarOpt_dtype": "norm=2",
    "ScalarOpt_dim_dtype": "norm=3",
    "value": "scatter",
    "stable": "sort",
    "decimals": "round",
    "Scalar_Other": "xlogy=2",
    "Scalar_Self": "xlogy",
    "no_stats": "_native_batch_norm_legit",
}
_NUMBERS["Scalar"] += " pow=2"
_CLASSES = {
    "copy_": "CopyBackwards",
    "nll_loss2d_forward": "NllLoss2DBackward0",
    "_conj_physical": "ConjPhysicalBackward0",
    "_masked_slices": "IndexBackward0",
    "_row_major": "CloneBackward0",
    "_masked_index": "IndexBackward0",
    "_weight_norm": "WeightNormInterfaceBackward0",
    "_sloped": "RreluWithNoiseBackward0",
    "_sloped_": "RreluWithNoiseBackward1",
    "_old_cholesky_ex": "CholeskyBackward0",
    "lu_solve": "LinalgLuSolveBackward0",
    "qr": "LinalgQrBackward0",
    "svd": "LinalgSvdBackward0",
    "slogdet": "LinalgSlogdetBackward0",
    "det": "LinalgDetBackward0",
    "pinverse": "LinalgPinvBackward0",
    "linalg_eigvals": "LinalgEigBackward0",
    "linalg_eigvalsh": "LinalgEighBackward0",
    "linalg_svdvals": "LinalgSvdBackward0",
    "linalg_lu_factor": "LinalgLuFactorExBackward0",
    "_least_squares": "LinalgLstsqBackward0",
    "msort": "SortBackward0",
    "tile": "RepeatBackward0",
    "narrow_copy": "NarrowCopyBackward0",
    "fill_diagonal_": "CopySlices",
}
# The last node of what PyTorch composes of several, by operators that are one node here; an
# argument's value may be part of it.
_LAST = {
    "FftC2CBackward0": "fft_fft2 fft_fftn fft_ifft2 fft_ifftn fft_ihfft2 fft_ihfftn",
    "FftR2CBackward0": "fft_fft fft_rfft fft_rfft2 fft_rfftn",
    "FftC2RBackward0": "fft_irfft fft_irfft2 fft_irfftn fft_hfft fft_hfft2 fft_hfftn",
    "ConjBackward0": "fft_ifft fft_ihfft _conj_alias conj_alias",
    "RollBackward0": "fft_fftshift fft_ifftshift",
    "LinalgVectorNormBackward0": "linalg_matrix_norm linalg_norm",
    "ViewBackward0": "linalg_multi_dot linalg_tensorsolve tensordot inner repeat_interleave",
    "ReshapeAliasBackward0": "linalg_tensorinv",
    "UnsafeViewBackward0": "kron",
    "MmBackward0": "matrix_power linalg_matrix_power",
    "SumBackward1": "linalg_vecdot _einsum einsum",
    "CatBackward0": "linalg_vander gradient",
    "WhereBackward0": "logdet",
    "SqueezeBackward0": "cov",
    "ClampBackward1": "corrcoef",
    "SubBackward0": "diff",
    "SqueezeBackward4": "quantile nanquantile",
    "MulBackward1": "trapezoid trapz",
    "CumsumBackward0": "cumulative_trapezoid",
    "PowBackward0": "lp_pool1d lp_pool2d lp_pool3d",
    "MulBackward0": "feature_dropout _feature_dropout",
    "MeanBackward0": (
        "gaussian_nll_loss hinge_embedding_loss poisson_nll_loss multilabel_soft_margin_loss "
        "triplet_margin_loss"
    ),
    "StackBackward0": "combinations",
    "DivBackward0": "local_response_norm",
}
_CLASSES |= {operator: name for name, operators in _LAST.items() for operator in operators.split()}
# Tensors that are read, but have no gradient, in any operator.
_CONSTANT = frozenset(
    "index indices condition mask target targets offsets running_mean running_var noise offset2bag "
    "bag_size max_indices pivots LU_pivots input_lengths target_lengths sorter boundaries "
    "sorted_sequence test_elements samples random_samples lengths mean rstd dropout_mask".split()
)
# Operators of which fewer, or others, of the tensors have one.
_INPUTS: dict[str, tuple[str, ...]] = {
    "nll_loss_forward": ("self",),
    "_scaled_dot_product_flash_attention_for_cpu": ("query", "key", "value"),
    "nll_loss2d_forward": ("self",),
    "binary_cross_entropy": ("self", "target"),
    "binary_cross_entropy_with_logits": ("self", "target"),
    "mse_loss": ("self", "target"),
    "smooth_l1_loss": ("self", "target"),
    "huber_loss": ("self", "target"),
    "soft_margin_loss": ("self",),
    "multi_margin_loss": ("self",),
    "multilabel_margin_loss_forward": ("self",),
    "_embedding_bag": ("weight", "per_sample_weights"),
    "native_dropout": ("input",),
    "bernoulli": ("self",),
    "cov": ("self",),
    "normal": ("mean", "std"),
    "zeros_like": (),
    "ones_like": (),
    "empty_like": (),
    "equal": (),
    "allclose": (),
    "special_zeta": ("other",),
    "zeta": ("other",),
    "igamma": ("other",),
    "igammac": ("other",),
}


@functools.cache
def _numbers() -> dict[str, int]:
    """Numbers by "operator.overload"."""
    table: dict[str, int] = {}
    for overload, entries in _NUMBERS.items():
        for entry in entries.split():
            name, _, number = entry.partition("=")
            table[f"{name}.{overload}"] = int(number or 1)
    return table


def is_inplace(name: str) -> bool:
    """Whether an operator of this name writes its first argument."""
    return name.endswith("_") and not name.endswith("__")


def is_constant(operator: str) -> bool:
    """Whether no result of an operator has a gradient."""
    return _INPUTS.get(operator) == ()


@functools.cache
def class_name(operator: str, overload: str) -> str:
    """The class of the nodes of an operator: `AddmmBackward0`.

    Args:
        operator: its name in the inner library; in place with `_` behind it.
        overload: the name of the overload.

    Example:
        >>> class_name("mean", "dim"), class_name("avg_pool2d", "default")
        ('MeanBackward1', 'AvgPool2DBackward0')
    """
    name = _CLASSES.get(operator)
    if name is not None:
        return name
    plain = operator[:-1] if is_inplace(operator) else operator
    numbers = _numbers()
    number = numbers.get(f"{operator}.{overload}", numbers.get(f"{plain}.{overload}", 0))
    copied = plain.endswith("_copy") and plain not in ("_to_copy", "index_copy")
    stem = plain.removesuffix("_copy") if copied else plain.removesuffix("_forward")
    words = stem.title().replace("_", "")
    return f"{words}Backward{number}" + ("_copy" if copied else "")


# Operators whose gradient is an operator of its own in PyTorch, with a node of that name.
_OWN_GRADIENTS = frozenset(
    "celu convolution elu gelu glu hardsigmoid hardswish hardtanh leaky_relu log_sigmoid mse_loss "
    "sigmoid silu smooth_l1_loss softplus softshrink tanh".split()
)
# Of others the last node: "MulBackward0" but for these.
_GRADIENTS = {
    "relu": "ThresholdBackwardBackward0",
    "softmax": "SoftmaxBackwardDataBackward0",
    "log_softmax": "LogSoftmaxBackwardDataBackward0",
    "linear": "MmBackward0",
    "mm": "MmBackward0",
    "matmul": "MmBackward0",
    "addmm": "MmBackward0",
    "bmm": "BmmBackward0",
    "sum": "ExpandBackward0",
    "mean": "DivBackward0",
    "div": "DivBackward0",
    "log": "DivBackward0",
    "sqrt": "DivBackward0",
    "neg": "NegBackward0",
}


def gradient_class(source: Any) -> str:
    """The class of the node of a gradient that is differentiated again; "" where it is not known.

    Args:
        source: of its Plan, whose identity names the node that the gradient is of.
    """
    words = str(getattr(source, "identity", "")).split()
    if len(words) < 2 or words[0] != "graph" or not words[1].endswith("Backward"):
        return ""
    if words[1].startswith("Compiled"):
        return ""
    stem = words[1].removesuffix("Backward")
    operator = "".join("_" * (k > 0 and c.isupper()) + c.lower() for k, c in enumerate(stem))
    if operator in _OWN_GRADIENTS:
        return f"{stem}BackwardBackward0"
    return _GRADIENTS.get(operator, "MulBackward0")


def last_name(name: str, values: dict[str, Any]) -> str:
    """A class with the values of a call in its name."""
    text = name.format_map(values)
    return "SqueezeBackward1" if text == "AdaptiveMaxPool1DBackward0" else text


def inputs_of(
    operator: str, overload: str, arguments: Sequence[Any], values: Sequence[Any]
) -> list[Any]:
    """The tensors of a call that its node has as inputs, in order; None: absent, or a number.

    Args:
        operator, overload: names in the inner library.
        arguments: (name, kind, ...) of its schema.
        values: in their order.
    """
    plain = operator[:-1] if is_inplace(operator) else operator
    chosen = _INPUTS.get(plain)
    inputs: list[Any] = []
    for (name, kind, *_), value in zip(arguments, values, strict=True):
        if not kind.startswith("Tensor"):
            continue
        if name not in chosen if chosen is not None else name in _CONSTANT:
            continue
        if isinstance(value, (list, tuple)):
            inputs += value
        elif kind == "TensorOrScalar" and isinstance(value, (bool, int, float, complex)):
            wrapped = plain in WRAPPED_NUMBERS and overload.startswith("Tensor")
            inputs += [None] if wrapped else []
        else:
            inputs.append(value)
    return inputs


# Inner operators of PyTorch that are composed in Python here, and shown as the one that they are.
HOSTED = frozenset(
    "native_layer_norm native_group_norm native_batch_norm "
    "_native_batch_norm_legit native_dropout embedding embedding_bag grid_sampler_2d "
    "grid_sampler_3d index_put_ fill_ zero_ normal_ uniform_ bernoulli_ detach unbind t_ "
    "masked_select equal allclose".split()
)
# Operators for which a number counts as a tensor of no dimensions.
WRAPPED_NUMBERS = frozenset({"add", "sub", "mul", "div"})
