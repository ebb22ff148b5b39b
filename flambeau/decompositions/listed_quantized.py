"""Inner operators of quantization that compute in floating point, and of 4-bit weights.

Tensors of quantized dtypes are not part of this build: what makes or reads them raises.
"""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.decompositions.listed import listed
from flambeau.fake_quantize import LearnedRounding, learned_gradients, quantization_parameters
from flambeau.ir.failure import failure

__all__: list[str] = []

Tensor = Any
Value = Any


# ------------------------------------------------------------------------------ fake quantization
@listed("fake_quantize_per_tensor_affine", "fake_quantize_per_tensor_affine.tensor_qparams")
def _fake_quantize(self: Tensor, *values: Value) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(self, *values)


def _inside(self: Tensor, scale: Value, zero_point: Value, least: int, greatest: int) -> Tensor:
    if not isinstance(scale, torch.Tensor):
        scale = torch.tensor(scale, dtype=torch.float32)
    rounded = torch.round(self * (1.0 / scale)) + zero_point
    return (rounded >= least) & (rounded <= greatest)


@listed("fake_quantize_per_tensor_affine_cachemask")
def _cachemask(self: Tensor, *values: Value) -> Value:
    return _fake_quantize(self, *values), _inside(self, *values)


@listed("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def _cachemask_tensors(
    self: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, *limits: int
) -> Value:
    if not bool(enabled):
        return self.clone(), torch.ones_like(self, dtype=torch.bool)
    return _cachemask(self, scale, zero_point, *limits)


@listed("fake_quantize_per_channel_affine_cachemask")
def _cachemask_channels(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, *limits: int
) -> Value:
    result = torch.fake_quantize_per_channel_affine(self, scale, zero_point, axis, *limits)
    sizes = [-1 if d == axis % self.ndim else 1 for d in range(self.ndim)]
    return result, _inside(self, scale.view(sizes), zero_point.view(sizes), *limits)


@listed(
    "fake_quantize_per_tensor_affine_cachemask_backward",
    "fake_quantize_per_channel_affine_cachemask_backward",
)
def _cachemask_backward(grad: Tensor, mask: Tensor) -> Tensor:
    return grad * mask


# ------------------------------------------------------------------------------ learned scales
def _of_tensor(scale: Tensor, zero_point: Tensor) -> Value:
    return scale.reshape(-1)[:1], zero_point.reshape(-1)[:1]


def _along(self: Tensor, axis: int, *values: Tensor) -> Value:
    sizes = [-1 if d == axis % self.ndim else 1 for d in range(self.ndim)]
    return [x.reshape(sizes) for x in values]


@listed("_fake_quantize_learnable_per_tensor_affine")
def _learnable(self: Tensor, scale: Tensor, zero_point: Tensor, *settings: Value) -> Tensor:
    return LearnedRounding.apply(self, scale, zero_point, *settings)


@listed("_fake_quantize_learnable_per_tensor_affine_backward")
def _learnable_backward(
    grad: Tensor, self: Tensor, scale: Tensor, zero_point: Tensor, *settings: Value
) -> Value:
    return learned_gradients(grad, self, *_of_tensor(scale, zero_point), *settings)


@listed("_fake_quantize_learnable_per_channel_affine")
def _learnable_channels(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, *settings: Value
) -> Tensor:
    return LearnedRounding.apply(self, *_along(self, axis, scale, zero_point), *settings)


@listed("_fake_quantize_learnable_per_channel_affine_backward")
def _learnable_channels_backward(
    grad: Tensor, self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, *settings: Value
) -> Value:
    operands = _along(self, axis, scale, zero_point)
    results = learned_gradients(grad, self, *operands, *settings)
    return results[0], results[1].reshape(scale.shape), results[2].reshape(zero_point.shape)


# ------------------------------------------------------------------------------ observers
def _observe(self: Tensor, low: Tensor, high: Tensor, share: float, per_row: bool) -> None:
    """Moves running extremes towards those of a tensor; infinite ones become them."""
    if per_row and not low.numel():
        low.resize_(self.shape[0]).fill_(torch.inf)
        high.resize_(self.shape[0]).fill_(-torch.inf)
    extremes = torch.aminmax(self.flatten(1), dim=1) if per_row else torch.aminmax(self)
    for running, value in zip((low, high), extremes, strict=True):
        value = value.reshape(running.shape)
        moved = running + share * (value - running)
        running.copy_(torch.where(running.isinf(), value, moved))


@listed("_fused_moving_avg_obs_fq_helper")
def _moving_average(
    self: Tensor, observer_on: Tensor, fake_on: Tensor, running_min: Tensor, running_max: Tensor,
    scale: Tensor, zero_point: Tensor, share: float, low: int, high: int, axis: int, per_row: bool,
    symmetric: bool,
) -> Value:  # fmt: skip
    if per_row and axis != 0:
        problem = "Per-channel FakeQuant in fused_moving_avg_obs_fake_quant is only supported on "
        problem += f"axis == 0, got {axis}"
        raise failure(RuntimeError, "_fused_moving_avg_obs_fq_helper", problem, "ch_axis=0")
    with torch.no_grad():
        if bool(observer_on):
            _observe(self, running_min, running_max, share, per_row)
        if not bool(fake_on):
            return self.clone(), torch.ones_like(self, dtype=torch.bool)
        results = quantization_parameters(running_min, running_max, low, high, symmetric)
        for target, value in zip((scale, zero_point), results, strict=True):
            target.resize_(value.shape).copy_(value)
    if per_row:
        return _cachemask_channels(self, scale, zero_point, 0, low, high)
    return _cachemask(self, scale, zero_point, low, high)


@listed("_fused_moving_avg_obs_fq_helper_functional")
def _moving_average_functional(
    self: Tensor, observer_on: Tensor, fake_on: Tensor, *values: Value
) -> Value:
    states = [x.clone() for x in values[:4]]
    return *_moving_average(self, observer_on, fake_on, *states, *values[4:]), *states


@listed("fused_moving_avg_obs_fake_quant")
def _fused_moving_avg_obs_fake_quant(*values: Value) -> Tensor:
    return _moving_average(*values)[0]


@listed("_choose_qparams_per_tensor")
def _choose_qparams_per_tensor(self: Tensor, reduce_range: bool) -> Value:
    extremes = torch.aminmax(self.detach())
    scale, point = quantization_parameters(*extremes, 0, 127 if reduce_range else 255)
    return scale.item(), point.item()


def _loss(row: Tensor, least: float, greatest: float, bits: int) -> float:
    """The error of a row that is quantized between two numbers in float16."""
    low = torch.tensor(least).half().float()
    span = torch.tensor(greatest) - low
    scale = (span / (2**bits - 1)).half().float() if span else torch.ones(())
    codes = torch.round((row - low) * (1 / scale)).clamp(0, 2**bits - 1)
    error = row - (codes * scale + low)
    return float((error * error).sum().sqrt())


@listed("choose_qparams_optimized")
def _choose_qparams_optimized(
    input: Tensor, numel: int, n_bins: int, ratio: float, bits: int  # noqa: A002
) -> Value:  # fmt: skip
    """Narrows the interval step by step from the end whose loss is less; the best one wins."""
    if not 0 <= numel <= input.numel():
        problem = f"numel {numel} is more than the {input.numel()} elements of input"
        raise failure(RuntimeError, "choose_qparams_optimized", problem, "numel <= input.numel()")
    row = input.detach().float().reshape(-1)[:numel]
    low, high = row.min(), row.max()
    step = (high - low) / n_bins
    least = int(n_bins * (1.0 - ratio)) * step
    best = (low, high)
    loss = best_loss = _loss(row, float(low), float(high), bits)
    while low + least < high:
        left, right = _loss(row, low + step, high, bits), _loss(row, low, high - step, bits)
        if loss < min(left, right, best_loss):
            best, best_loss = (low, high), loss
        low, high, loss = (low + step, high, left) if left < right else (low, high - step, right)
    return best[1].reshape(1), best[0].reshape(1)


# ------------------------------------------------------------------------------ weights
@listed("_saturate_weight_to_fp16")
def _saturate_weight_to_fp16(weight: Tensor) -> Tensor:
    if weight.dtype is not torch.float32:
        problem = f"expected scalar type Float but found {weight.dtype}"
        raise failure(RuntimeError, "_saturate_weight_to_fp16", problem, "weight.float()")
    with torch.no_grad():
        weight.contiguous().clamp_(-65504.0, 65504.0)  # a dense weight is written
    return weight


@listed("_rowwise_prune")
def _rowwise_prune(weight: Tensor, mask: Tensor, dtype: Value) -> Value:
    if mask.dtype is not torch.bool:
        problem = f"expected scalar type Bool but found {mask.dtype}"
        raise failure(RuntimeError, "_rowwise_prune", problem, "mask.bool()")
    places = torch.where(mask, mask.cumsum(0) - 1, -1)
    return weight[mask], places.to(dtype)


@listed("_convert_weight_to_int4pack_for_cpu")
def _convert_weight_to_int4pack(self: Tensor, tiles: int) -> Tensor:
    rows, columns = self.shape
    if self.dtype is not torch.int32 or rows % 16 or columns % 2:
        problem = f"expected int32 and rows divisible by 16, columns by 2, got {self.dtype} "
        problem += f"{tuple(self.shape)}"
        raise failure(RuntimeError, "_convert_weight_to_int4pack_for_cpu", problem, "pad it")
    return (self[:, ::2] | (self[:, 1::2] << 4)).to(torch.uint8)


def _nibbles(packed: Tensor) -> Tensor:
    """(rows, 2 n) numbers from 0 to 15 of (rows, n) bytes, the lower half first."""
    return torch.stack([packed & 15, packed >> 4], -1).flatten(1)


@listed("_weight_int4pack_mm_for_cpu")
def _weight_int4pack_mm(self: Tensor, packed: Tensor, group: int, parameters: Tensor) -> Tensor:
    floats = (torch.float32, torch.float16, torch.bfloat16)
    sizes = (self.shape[1] // group, packed.shape[0], 2)
    if (
        self.dtype not in floats
        or packed.dtype is not torch.uint8
        or group not in (32, 64, 128, 256)
    ):
        problem = "expect A to be either 32-bit or 16-bit float tensor and groups of 32 to 256, "
        problem += f"got {self.dtype}, {packed.dtype} and {group}"
    elif tuple(parameters.shape) != sizes or parameters.dtype is not self.dtype:
        problem = f"expect qScaleAndZeros of {self.dtype} {sizes}, got {parameters.dtype} "
        problem += f"{tuple(parameters.shape)}"
    else:
        scale, zero = parameters.float().transpose(0, 1).repeat_interleave(group, 1).unbind(-1)
        weight = (_nibbles(packed).float() - 8) * scale + zero
        return (self.float() @ weight.mT).to(self.dtype)
    hint = "_convert_weight_to_int4pack_for_cpu"
    raise failure(RuntimeError, "_weight_int4pack_mm_for_cpu", problem, hint)


@listed("_dyn_quant_pack_4bit_weight")
def _dyn_quant_pack(
    weights: Tensor, scales: Tensor, bias: Value, group: int, inputs: int, outputs: int
) -> Tensor:
    parts = [weights, scales, *([] if bias is None else [bias])]
    return torch.cat([x.reshape(-1).float() for x in parts])


def _codes(x: Tensor) -> Value:
    """Rows as signed bytes, their zero points and steps, in float32."""
    low, high = x.amin(1, True).clamp(max=0.0), x.amax(1, True).clamp(min=0.0)
    scale = torch.where(low == high, 1.0, 255.0 / (high - low))
    below, above = low * scale, high * scale
    point = torch.where((-128 + below) + (127 + above) > 0, -128 - below, 127 - above)
    point = point.clamp(-128, 127).round()
    return (torch.round(x * scale) + point).clamp(-128, 127), point, 1 / scale


@listed("_dyn_quant_matmul_4bit")
def _dyn_quant_matmul(
    self: Tensor, packed: Tensor, group: int, inputs: int, outputs: int
) -> Tensor:
    count, groups = inputs * outputs // 2, inputs // group
    weight = _nibbles(packed[:count].to(torch.uint8).reshape(outputs, inputs // 2)).float() - 8
    scales = packed[count : count + outputs * groups].reshape(outputs, groups)
    bias = packed[count + outputs * groups :]
    codes, point, step = _codes(self.float())
    left = (codes - point).unflatten(1, (groups, group)).transpose(0, 1)
    right = weight.unflatten(1, (groups, group)).permute(1, 2, 0)
    total = ((left @ right) * scales.mT.unsqueeze(1)).sum(0) * step
    return (total + bias if bias.numel() else total).to(self.dtype)
