"""Inner operators of layers, made of public ones: norms, recurrent cells, attention, convolution.

Gradients among them differentiate the layer: a derivative has one home.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.decompositions.inner_gradients import gradients
from flambeau.decompositions.listed import listed
from flambeau.ir.failure import failure
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


def _gru(input_gates: Tensor, hidden_gates: Tensor, hx: Tensor) -> Tensor:
    r, z, n = input_gates.chunk(3, 1)
    of_r, of_z, of_n = hidden_gates.chunk(3, 1)
    reset, update = torch.sigmoid(r + of_r), torch.sigmoid(z + of_z)
    new = torch.tanh(n + reset * of_n)
    return (hx - new) * update + new


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


# ------------------------------------------------------------------------------ attention
def _scores(
    query: Tensor, key: Tensor, mask: Value, is_causal: bool, scale: float | None
) -> Tensor:
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * factor
    if is_causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        mask = ones.tril()
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask


@listed("_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps")
def _attention_math(
    query: Tensor, key: Tensor, value: Tensor, mask: Value, dropout_p: float, is_causal: bool,
    dropout_mask: Value, scale: float | None, enable_gqa: bool,
) -> Value:  # fmt: skip
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    weights = aten._safe_softmax(_scores(query, key, mask, is_causal, scale), -1)
    dropped = weights
    if dropout_mask is not None:
        dropped = weights.masked_fill(~dropout_mask, 0.0) / (1 - dropout_p)
    elif dropout_p:
        dropped = functional.dropout(weights, dropout_p)
    return dropped @ value, weights


def _no_dropout(name: str, dropout_p: float) -> None:
    if dropout_p:
        problem = (
            f"dropout_p is {dropout_p}: the stream of another device is not part of this build"
        )
        hint = "dropout_p=0, or nn.functional.scaled_dot_product_attention"
        raise failure(NotImplementedError, f"aten.{name}", problem, hint)


@listed("_scaled_dot_product_efficient_attention")
def _efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Value, compute_log: bool, dropout_p: float,
    is_causal: bool, scale: float | None,
) -> Value:  # fmt: skip
    _no_dropout("_scaled_dot_product_efficient_attention", dropout_p)
    result = functional.scaled_dot_product_attention(
        query, key, value, bias, is_causal=is_causal, scale=scale
    )
    sums = _scores(query, key, bias, is_causal, scale).float().logsumexp(-1)
    seed = torch.zeros((), dtype=torch.int64)
    return result, sums if compute_log else sums[..., :0], seed, seed.clone()


@listed("_scaled_dot_product_efficient_attention_backward")
def _efficient_attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Value, out: Tensor,
    logsumexp: Tensor, seed: Tensor, offset: Tensor, dropout_p: float, mask: Value,
    is_causal: bool, scale: float | None,
) -> Value:  # fmt: skip
    _no_dropout("_scaled_dot_product_efficient_attention_backward", dropout_p)

    def attend(query: Tensor, key: Tensor, value: Tensor, bias: Value) -> Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, bias, is_causal=is_causal, scale=scale
        )

    return _masked(gradients(attend, [query, key, value, bias], grad), mask)


@listed("_scaled_dot_product_flash_attention")
def _flash_attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, is_causal: bool,
    return_debug_mask: bool, scale: float | None,
) -> Value:  # fmt: skip
    _no_dropout("_scaled_dot_product_flash_attention", dropout_p)
    result, sums, seed, offset = _efficient_attention(
        query, key, value, None, True, 0.0, is_causal, scale
    )
    lengths = [torch.zeros(0, dtype=torch.int32) for _ in range(2)]
    sizes = (query.shape[-2], key.shape[-2])
    return result, sums, *lengths, *sizes, seed, offset, query.new_empty((0,))


@listed("_scaled_dot_product_flash_attention_backward")
def _flash_attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    cum_q: Tensor, cum_k: Tensor, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    seed: Tensor, offset: Tensor, scale: float | None,
) -> Value:  # fmt: skip
    return _efficient_attention_backward(
        grad, query, key, value, None, out, logsumexp, seed, offset, dropout_p,
        (True, True, True, False), is_causal, scale,
    )[:3]  # fmt: skip


def _hidden(scores: Tensor, mask: Value, mask_type: int | None) -> Value:
    """A mask that is true where a score does not count, in the shape of the scores."""
    if mask is None or mask_type == 2 or mask.ndim == scores.ndim:
        return mask
    return mask[:, None, None, :] if mask_type == 1 else mask


@listed("_masked_softmax")
def _masked_softmax(self: Tensor, mask: Tensor, dim: Value, mask_type: Value) -> Tensor:
    hidden = _hidden(self, mask, mask_type).expand(self.shape)
    return self.masked_fill(hidden, -math.inf).softmax(-1 if dim is None else dim)


@listed("_masked_softmax_backward")
def _masked_softmax_backward(grad: Tensor, output: Tensor, mask: Tensor, dim: Value) -> Tensor:
    hidden, axis = mask.expand(output.shape), output.ndim - 1 if dim is None else dim
    plain = output.masked_fill(hidden, 0.0)
    return torch._softmax_backward_data(grad, plain, axis, grad.dtype)


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
