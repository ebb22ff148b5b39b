"""Operators of libraries that this build does not use: cuDNN, MIOpen, oneDNN, FBGEMM, quantized.

PyTorch has them for its own back ends; a CPU build refuses most of them with NotImplementedError,
and so does this one, with the operator that does the work here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from flambeau.ir.lock import late

_HINTS = {
    "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt "
    "batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats "
    "cudnn_batch_norm miopen_batch_norm": "torch.nn.functional.batch_norm",
    "cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu miopen_convolution "
    "miopen_convolution_add_relu miopen_convolution_relu miopen_depthwise_convolution":
        "torch.convolution",
    "cudnn_convolution_transpose miopen_convolution_transpose": "torch.conv_transpose2d",
    "cudnn_affine_grid_generator": "torch.nn.functional.affine_grid",
    "cudnn_grid_sampler": "torch.nn.functional.grid_sample",
    "miopen_ctc_loss": "torch.nn.functional.ctc_loss",
    "miopen_rnn mkldnn_rnn_layer": "torch.lstm, torch.gru",
    "mkldnn_adaptive_avg_pool2d": "torch.nn.functional.adaptive_avg_pool2d",
    "mkldnn_max_pool2d quantized_max_pool2d": "torch.max_pool2d",
    "mkldnn_max_pool3d quantized_max_pool3d": "torch.max_pool3d",
    "quantized_max_pool1d": "torch.max_pool1d",
    "mkldnn_linear_backward_weights": "autograd of torch.nn.functional.linear",
    "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation "
    "fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation "
    "fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix":
        "torch.nn.functional.linear",
    "choose_qparams_optimized empty_quantized fused_moving_avg_obs_fake_quant int_repr "
    "q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point "
    "quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm "
    "quantized_gru quantized_gru_cell quantized_lstm quantized_lstm_cell quantized_rnn_relu_cell "
    "quantized_rnn_tanh_cell":
        "torch.fake_quantize_per_tensor_affine computes in floating point what quantization loses",
}  # fmt: skip


def _refusal(name: str, hint: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"[{name}] Could not run 'aten::{name}' with arguments from the 'CPU' backend: the "
            f"library behind it is not part of this build\nhint: {hint}"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raises NotImplementedError; see {hint}."
    return function


REFUSED = {name: _refusal(name, hint) for names, hint in _HINTS.items() for name in names.split()}
globals().update(REFUSED)


def cudnn_is_acceptable(tensor: Any, /) -> bool:
    """False: there is no cuDNN."""
    return False


def mkldnn_convolution(
    input: Any,
    weight: Any,
    bias: Any,
    padding: Any,
    stride: Any,
    dilation: Any,
    groups: int,  # noqa: A002
) -> Any:
    """`torch.convolution`, in the order of arguments that oneDNN's operator has."""
    zeros = [0] * len(stride)
    return late("flambeau").convolution(
        input, weight, bias, stride, padding, dilation, False, zeros, groups
    )


def dequantize(tensor: Any) -> Any:
    """Tensors in float32: numbers that are not quantized.

    Args:
        tensor: a tensor, or a sequence of them.
    """
    if isinstance(tensor, (list, tuple)):
        return type(tensor)(each.dequantize() for each in tensor)
    return tensor.dequantize()


class qscheme:  # noqa: N801 - PyTorch's name
    """How a quantized tensor's numbers are scaled: a constant that is known by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self) -> Any:
        return _scheme, (self._name,)


SCHEMES = {
    name: qscheme(name)
    for name in (
        "per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric",
        "per_channel_affine_float_qparams",
    )
}  # fmt: skip
globals().update(SCHEMES)


def _scheme(name: str) -> qscheme:
    return SCHEMES[name]
