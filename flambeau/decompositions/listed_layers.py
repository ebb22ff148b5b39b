"""Inner operators of layers, made of public ones: norms, recurrent cells, convolution, losses.

Gradients among them differentiate the layer: a derivative has one home.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.decompositions.inner_gradients import gradients
from flambeau.decompositions.listed import listed
from flambeau.ir.lock import late
from flambeau.nn import functional
from flambeau.nn.utils import rnn
from flambeau.ops import aten

__all__: list[str] = []

Tensor = Any
Value = Any


def _masked(results: Sequence[Value], mask: Sequence[bool]) -> Value:
    return tuple([x if shown else None for x, shown in zip(results, mask, strict=True)])


# ------------------------------------------------------------------------------ norms
def _reserve(input: Tensor) -> Tensor:  # noqa: A002
    return input.new_empty((0,), dtype=torch.uint8)


@listed("_native_batch_norm_legit_no_training")
def _no_training(input: Tensor, *values: Value) -> Value:  # noqa: A002
    weight, bias, mean, variance, momentum, eps = values
    return torch.native_batch_norm(input, weight, bias, mean, variance, False, momentum, eps)


@listed("_batch_norm_no_update")
def _batch_norm_no_update(input: Tensor, *values: Value) -> Value:  # noqa: A002
    return (*_no_training(input, *values), _reserve(input))


@listed("_batch_norm_with_update_functional")
def _batch_norm_with_update_functional(
    input: Tensor, weight: Value, bias: Value, mean: Tensor, variance: Tensor, *numbers: float  # noqa: A002
) -> Value:  # fmt: skip
    written = (mean.clone(), variance.clone())
    results = torch.native_batch_norm(input, weight, bias, *written, True, *numbers)
    return (*results, _reserve(input), *written)


@listed("_batch_norm_impl_index")
def _batch_norm_impl_index(input: Tensor, *values: Value) -> Value:  # noqa: A002
    return (*torch.native_batch_norm(input, *values[:-1]), _reserve(input), 0)


@listed("batch_norm_backward")
def _batch_norm_backward(grad: Tensor, input: Tensor, *values: Value) -> Value:  # noqa: A002
    return aten.native_batch_norm_backward(grad, input, *values[:-1])


@listed("_batch_norm_impl_index_backward")
def _batch_norm_impl_index_backward(
    index: int, input: Tensor, grad: Tensor, *values: Value  # noqa: A002
) -> Value:  # fmt: skip
    return aten.native_batch_norm_backward(grad, input, *values[:-1])


@listed("_fused_rms_norm")
def _fused_rms_norm(input: Tensor, shape: Value, weight: Value, eps: Value) -> Value:  # noqa: A002
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    least = torch.finfo(wide.dtype).eps if eps is None else eps
    dims = tuple(range(-len(shape), 0))
    rstd = torch.rsqrt((wide * wide).mean(dims, keepdim=True) + least)
    return functional.rms_norm(input, tuple(shape), weight, eps), rstd


@listed("_fused_rms_norm_backward")
def _fused_rms_norm_backward(
    grad: Tensor, input: Tensor, shape: Value, rstd: Tensor, weight: Value, mask: Value  # noqa: A002
) -> Value:  # fmt: skip
    def norm(x: Tensor, weight: Value) -> Tensor:
        # The mean square that rstd holds, less eps: the derivative needs eps.
        square = (x.detach().to(rstd.dtype) ** 2).mean(dims, keepdim=True)
        eps = rstd.detach() ** -2 - square
        wide = x.to(rstd.dtype)
        scaled = wide * torch.rsqrt((wide * wide).mean(dims, keepdim=True) + eps)
        return (scaled if weight is None else scaled * weight).to(grad.dtype)

    dims = tuple(range(-len(shape), 0))
    return _masked(gradients(norm, [input, weight], grad), mask)


@listed("_weight_norm_interface")
def _weight_norm_interface(v: Tensor, g: Tensor, dim: int) -> Value:
    return torch._weight_norm(v, g, dim), torch.norm_except_dim(v, 2, dim)


@listed("_weight_norm_interface_backward", "_weight_norm_differentiable_backward")
def _weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Value:
    return tuple(gradients(lambda v, g: torch._weight_norm(v, g, dim), [v, g], grad))


# ------------------------------------------------------------------------------ recurrent layers
def _lstm_gates(*parts: Value) -> Tensor:
    return torch.chunk(sum(x for x in parts[1:] if x is not None) + parts[0], 4, 1)


def _lstm_state(gates: Value, cx: Tensor) -> Value:
    i, f, g, o = gates
    cy = f * cx + i * g
    return o * torch.tanh(cy), cy


def _lstm_activated(*parts: Value) -> Value:
    i, f, g, o = _lstm_gates(*parts)
    return torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)


@listed("_thnn_fused_lstm_cell")
def _thnn_fused_lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Value, hidden_bias: Value
) -> Value:
    gates = _lstm_activated(input_gates, hidden_gates, input_bias, hidden_bias)
    return (*_lstm_state(gates, cx), torch.cat(gates, 1))


@listed("_thnn_fused_lstm_cell_backward_impl")
def _lstm_backward(
    grad_hy: Value, grad_cy: Value, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> Value:
    def cell(gates: Tensor, cx: Tensor) -> Tensor:
        results = _lstm_state(gates.chunk(4, 1), cx)
        return torch.cat(results, 1)

    grads = [torch.zeros_like(cx) if g is None else g for g in (grad_hy, grad_cy)]
    derived: Value = gradients(cell, [workspace, cx], torch.cat(grads, 1))
    of_gates, of_cx = derived
    parts = zip(of_gates.chunk(4, 1), workspace.chunk(4, 1), "ssts", strict=True)
    before = torch.cat(
        [
            (aten.tanh_backward if kind == "t" else aten.sigmoid_backward)(grad, gate)
            for grad, gate, kind in parts
        ],
        1,
    )
    return before, of_cx, before.sum(0) if has_bias else None


@listed("_thnn_fused_lstm_cell_backward")
def _thnn_fused_lstm_cell_backward(*values: Value) -> Value:
    gates, of_cx, bias = _lstm_backward(*values)
    return gates, gates, of_cx, bias, bias


@listed("_thnn_differentiable_lstm_cell_backward")
def _thnn_differentiable_lstm_cell_backward(
    grad_hy: Value, grad_cy: Value, input_gates: Tensor, hidden_gates: Tensor, input_bias: Value,
    hidden_bias: Value, cx: Tensor, cy: Tensor,
) -> Value:  # fmt: skip
    def cell(gates: Tensor, cx: Tensor) -> Tensor:
        return torch.cat(_lstm_state(_lstm_activated(gates), cx), 1)

    parts = [x for x in (input_bias, hidden_bias) if x is not None]
    gates = sum(parts, input_gates + hidden_gates)
    grads = [torch.zeros_like(cx) if g is None else g for g in (grad_hy, grad_cy)]
    derived: Value = gradients(cell, [gates, cx], torch.cat(grads, 1))
    before, of_cx = derived
    bias = before.sum(0) if input_bias is not None else None
    return before, before, of_cx, bias, bias


def _gru_parts(input_gates: Tensor, hidden_gates: Tensor) -> Value:
    """Reset and update gates, the new state, and what the reset gate is a factor of."""
    r, z, n = input_gates.chunk(3, 1)
    of_r, of_z, of_n = hidden_gates.chunk(3, 1)
    reset, update = torch.sigmoid(r + of_r), torch.sigmoid(z + of_z)
    return reset, update, torch.tanh(n + reset * of_n), of_n


def _gru(input_gates: Tensor, hidden_gates: Tensor, hx: Tensor) -> Tensor:
    _, update, new, _ = _gru_parts(input_gates, hidden_gates)
    return (hx - new) * update + new


@listed("_thnn_fused_gru_cell")
def _thnn_fused_gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Value, hidden_bias: Value
) -> Value:
    if input_bias is not None:
        input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
    reset, update, new, of_new = _gru_parts(input_gates, hidden_gates)
    return (hx - new) * update + new, torch.cat([reset, update, new, hx, of_new], 1)


@listed("_thnn_fused_gru_cell_backward")
def _thnn_fused_gru_cell_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> Value:
    reset, update, new, hx, of_new = workspace.chunk(5, 1)
    before_new = aten.tanh_backward(grad * (1 - update), new)
    before_update = aten.sigmoid_backward(grad * (hx - new), update)
    before_reset = aten.sigmoid_backward(before_new * of_new, reset)
    of_input = torch.cat([before_reset, before_update, before_new], 1)
    of_hidden = torch.cat([before_reset, before_update, before_new * reset], 1)
    biases = [x.sum(0) if has_bias else None for x in (of_input, of_hidden)]
    return of_input, of_hidden, grad * update, *biases


@listed("_thnn_differentiable_gru_cell_backward")
def _thnn_differentiable_gru_cell_backward(
    grad_hy: Tensor, input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Value,
    hidden_bias: Value,
) -> Value:  # fmt: skip
    gates = [input_gates, hidden_gates]
    for k, bias in enumerate((input_bias, hidden_bias)):
        gates[k] = gates[k] if bias is None else gates[k] + bias
    derived: Value = gradients(_gru, [*gates, hx], grad_hy)
    of_input, of_hidden, of_hx = derived
    biases = [None if input_bias is None else x.sum(0) for x in (of_input, of_hidden)]
    return of_input, of_hidden, of_hx, *biases


@listed("_pack_padded_sequence")
def _pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> Value:  # noqa: A002
    packed = rnn.pack_padded_sequence(input, lengths, batch_first)
    return packed.data, packed.batch_sizes


@listed("_pack_padded_sequence_backward")
def _pack_padded_sequence_backward(
    grad: Tensor, input_size: Value, batch_sizes: Tensor, batch_first: bool
) -> Tensor:
    sizes = tuple(input_size)
    count = sizes[0] if batch_first else sizes[1]
    lengths = (batch_sizes.unsqueeze(1) > torch.arange(count)).sum(0)

    def pack(x: Tensor) -> Tensor:
        return rnn.pack_padded_sequence(x, lengths, batch_first).data

    return gradients(pack, [grad.new_zeros(sizes)], grad)[0]


@listed("_pad_packed_sequence")
def _pad_packed_sequence(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: Value, total: int
) -> Value:
    packed = rnn.PackedSequence(data, batch_sizes)
    length = total if total > 0 else None
    return rnn.pad_packed_sequence(packed, batch_first, padding_value, length)


@listed("_pack_sequence")
def _pack_sequence(*parts: Value) -> Value:
    return parts


@listed("pad_sequence")
def _pad_sequence(sequences: Value, batch_first: bool, value: float, side: str) -> Tensor:
    return rnn.pad_sequence(sequences, batch_first, value, side)


# ------------------------------------------------------------------------------ convolution
def _slow(*names: str, rank: int, transposed: bool = False) -> None:
    """Convolutions of one rank whose arguments are in PyTorch's older order."""

    def run(
        self: Tensor, weight: Tensor, size: Value, bias: Value = None, *windows: Value
    ) -> Tensor:
        ones, zeros = [1] * rank, [0] * rank
        stride, padding = (*windows, *([ones, zeros][len(windows) :]))[:2]
        output = windows[2] if transposed and len(windows) > 2 else zeros
        dilation = windows[2 + transposed] if len(windows) > 2 + transposed else ones
        return torch.convolution(
            self, weight, bias, stride, padding, dilation, transposed, output, 1
        )

    listed(*names)(run)


_slow("slow_conv_dilated2d", "thnn_conv2d", "_slow_conv2d_forward", rank=2)
_slow("slow_conv_dilated3d", "slow_conv3d", "slow_conv3d_forward", rank=3)
_slow("slow_conv_transpose2d", rank=2, transposed=True)
_slow("slow_conv_transpose3d", rank=3, transposed=True)


@listed("mkldnn_convolution")
def _mkldnn_convolution(*values: Value) -> Tensor:
    return torch.mkldnn_convolution(*values)


@listed("_slow_conv2d_backward.output_mask")
def _slow_conv2d_backward(
    grad: Tensor,
    self: Tensor,
    weight: Tensor,
    size: Value,
    stride: Value,
    padding: Value,
    mask: Value,
) -> Value:
    bias = [weight.shape[0]]
    return aten.convolution_backward(
        grad, self, weight, bias, stride, padding, [1, 1], False, [0, 0], 1, mask
    )


@listed("_convolution_mode")
def _convolution_mode(input: Tensor, *values: Value) -> Tensor:  # noqa: A002
    convolve = getattr(functional, f"conv{input.ndim - 2}d")
    return convolve(input, *values)


@listed("_convolution_double_backward")
def _convolution_double_backward(
    of_input: Value, of_weight: Value, of_bias: Value, grad: Tensor, weight: Tensor, self: Tensor,
    *settings: Value,
) -> Value:  # fmt: skip
    factors = [of_input, of_weight, of_bias]
    shown = [x is not None for x in factors]
    bias = [grad.shape[1]] if shown[2] else None

    def scalar(grad: Tensor, self: Tensor, weight: Tensor) -> Tensor:
        results = aten.convolution_backward(grad, self, weight, bias, *settings[:-1], shown)
        return sum((x * y).sum() for x, y in zip(results, factors, strict=True) if y is not None)

    results = gradients(scalar, [grad, self, weight], grad.new_ones(()))
    return _masked(results, settings[-1])


@listed("conv_tbc_backward")
def _conv_tbc_backward(
    self: Tensor, input: Tensor, weight: Tensor, bias: Tensor, pad: int  # noqa: A002
) -> Value:  # fmt: skip
    def convolve(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
        return torch.conv_tbc(input, weight, bias, pad)

    return tuple(gradients(convolve, [input, weight, bias], self))


@listed("_pad_circular")
def _pad_circular(self: Tensor, pad: Value) -> Tensor:
    return functional.pad(self, tuple(pad), mode="circular")


@listed("_pad_enum")
def _pad_enum(self: Tensor, pad: Value, mode: int, value: Value) -> Tensor:
    name = ("reflect", "replicate", "circular", "constant")[mode]
    return functional.pad(self, tuple(pad), mode=name, value=value)


@listed("_grid_sampler_2d_cpu_fallback")
def _grid_sampler(input: Tensor, grid: Tensor, *modes: Value) -> Tensor:  # noqa: A002
    return aten.grid_sampler_2d(input, grid, *modes)


def _resized(*names: str, old: str = "") -> None:
    """TorchScript's names of `interpolate`."""

    def run(input: Tensor, size: Value, scale: Value, *options: Value) -> Tensor:  # noqa: A002
        keys = ("mode", "align_corners", "recompute_scale_factor", "antialias")
        named = dict(zip(keys, (old,) if old else options, strict=False))
        if old == "bilinear":
            named["align_corners"] = True
        return functional.interpolate(input, size, scale, **named)

    listed(*names)(run)


_resized(*[f"__interpolate{k}" for k in ("", ".size_list", ".scale_list", ".size_list_scale_list")])
_resized("__upsample", "__upsample.size_list")
_resized("__upsample_nearest", "__upsample_nearest.size_list", old="nearest")
_resized(
    *[
        f"__upsample_bilinear{k}"
        for k in ("", ".size_list", ".scale_list", ".size_list_scale_list")
    ],
    old="bilinear",
)


# ------------------------------------------------------------------------------ losses
_REDUCTIONS = ("none", "mean", "sum")


@listed("nll_loss2d", "nll_loss_nd")
def _nll_loss(self: Tensor, target: Tensor, weight: Value, reduction: int, index: int) -> Tensor:
    return functional.nll_loss(
        self, target, weight, ignore_index=index, reduction=_REDUCTIONS[reduction]
    )


@listed("cross_entropy_loss")
def _cross_entropy_loss(
    self: Tensor, target: Tensor, weight: Value, reduction: int, index: int, smoothing: float
) -> Tensor:
    return functional.cross_entropy(
        self, target, weight, ignore_index=index, reduction=_REDUCTIONS[reduction],
        label_smoothing=smoothing,
    )  # fmt: skip


@listed("log_sigmoid")
def _log_sigmoid(self: Tensor) -> Tensor:
    return functional.logsigmoid(self)


@listed("multilabel_margin_loss_forward")
def _multilabel_margin_loss(self: Tensor, target: Tensor, reduction: int) -> Value:
    loss = functional.multilabel_margin_loss(self, target, reduction=_REDUCTIONS[reduction])
    before_end = (target < 0).cumsum(-1) == 0
    rows = torch.zeros_like(self)
    return loss, rows.scatter_add(-1, target.clamp(min=0), before_end.to(self.dtype)).clamp(max=1)


@listed("multilabel_margin_loss_backward")
def _multilabel_margin_loss_backward(
    grad: Tensor, self: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    def loss(x: Tensor) -> Tensor:
        return functional.multilabel_margin_loss(x, target, reduction=_REDUCTIONS[reduction])

    return gradients(loss, [self], grad)[0]


@listed("multi_margin_loss_backward")
def _multi_margin_loss_backward(
    grad: Tensor,
    self: Tensor,
    target: Tensor,
    p: Value,
    margin: Value,
    weight: Value,
    reduction: int,
) -> Tensor:
    def loss(x: Tensor) -> Tensor:
        return functional.multi_margin_loss(
            x, target, p, margin, weight, reduction=_REDUCTIONS[reduction]
        )

    return gradients(loss, [self], grad)[0]


# ------------------------------------------------------------------------------ activations
@listed("rrelu_with_noise_functional")
def _rrelu_with_noise_functional(
    self: Tensor, noise: Tensor, lower: Value, upper: Value, training: bool, generator: Value
) -> Value:
    if not training:
        return functional.leaky_relu(self, (lower + upper) / 2), noise.clone()
    slopes = late("flambeau.ops.legacy.inner_draws").slopes(self, lower, upper, generator)
    return self * slopes, slopes


@listed("rrelu_with_noise_backward")
def _rrelu_with_noise_backward(
    grad: Tensor,
    self: Tensor,
    noise: Tensor,
    lower: Value,
    upper: Value,
    training: bool,
    result: bool,
) -> Tensor:
    if training and upper - lower > 1e-6:
        return grad * noise
    return aten.leaky_relu_backward(grad, self, (lower + upper) / 2, result)


@listed("embedding_renorm")
def _embedding_renorm(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    return torch.embedding_renorm_(self.clone(), indices, max_norm, norm_type)


@listed("_no_grad_embedding_renorm_")
def _no_grad_embedding_renorm_(
    weight: Tensor, input: Tensor, max_norm: float, norm_type: float  # noqa: A002
) -> Tensor:  # fmt: skip
    with torch.no_grad():
        return torch.embedding_renorm_(weight, input, max_norm, norm_type)
