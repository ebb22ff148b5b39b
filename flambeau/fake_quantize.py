"""Rounding to the numbers of a quantized dtype, in floating point: training that prepares for it.

Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
inference", 2018. The gradient passes where a number was in range (straight-through estimator).
"""

from __future__ import annotations

from typing import Any

import flambeau as torch

__all__ = [
    "LearnedRounding", "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine",
    "quantization_parameters",
]  # fmt: skip

Tensor = Any  # or a number, or the context of a function

SMALLEST_SCALE = 6.1e-5  # the least float16 of full precision, about


class _Rounding(torch.autograd.Function):
    """Rounds to `(q - zero_point) * scale` with a whole q between two limits."""

    generate_vmap_rule = True

    @staticmethod
    def forward(  # type: ignore[override]
        input: Any,
        scale: Any,
        zero_point: Any,
        low: int,
        high: int,  # noqa: A002
    ) -> tuple[Any, Any]:
        rounded = torch.round(input * (1.0 / scale)) + zero_point
        inside = (rounded >= low) & (rounded <= high)
        return ((rounded.clamp(low, high) - zero_point) * scale).to(input.dtype), inside

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any) -> Any:  # type: ignore[override]
        (inside,) = ctx.saved_tensors
        return torch.where(inside, grad, 0.0), None, None, None, None


class LearnedRounding(torch.autograd.Function):
    """As `_Rounding`, with gradients of scale and zero point (Esser et al., LSQ, 2020).

    The arguments are the tensor, scale and zero point that fit it, the limits, and a factor of the
    gradients of scale and zero point.
    """

    @staticmethod
    def forward(ctx: Tensor, *values: Tensor) -> Tensor:  # type: ignore[override]
        """Rounds; the zero point is rounded first."""
        input, scale, zero_point, low, high, factor = values  # noqa: A001
        ctx.save_for_backward(input, scale, zero_point)
        ctx.settings = (low, high, factor)
        nearest = (zero_point + 0.5).clamp(low, high).trunc()
        return _Rounding.forward(input, scale, nearest, low, high)[0]

    @staticmethod
    def backward(ctx: Tensor, grad: Tensor) -> Tensor:  # type: ignore[override]
        """Gradients of the tensor, scale and zero point."""
        return *learned_gradients(grad, *ctx.saved_tensors, *ctx.settings), None, None, None


def learned_gradients(
    grad: Tensor,
    input: Tensor,  # noqa: A002
    scale: Tensor,
    zero_point: Tensor,
    low: int,
    high: int,
    factor: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `LearnedRounding` with respect to its tensors.

    Args:
        grad: of the result.
        input, scale, zero_point, low, high, factor: its arguments.
    """
    nearest = torch.round(zero_point).clamp(low, high)
    rounded = nearest + torch.round(input * (1.0 / scale))
    below, above = rounded < low, rounded > high
    inside = ~(below | above)
    by_scale = torch.where(below, low - nearest, high - nearest)
    error = (rounded - nearest) * scale - input
    by_scale = torch.where(inside, error * (1.0 / scale), by_scale) * grad * factor
    by_point = torch.where(inside, 0.0, -grad * scale) * factor
    sums = [x.sum_to_size(scale.shape) for x in (by_scale, by_point)]
    return grad * inside, sums[0], sums[1]


def quantization_parameters(
    least: Tensor, greatest: Tensor, low: int, high: int, symmetric: bool = False
) -> tuple[Tensor, Tensor]:
    """Scales (float64) and zero points (int32) with which whole numbers represent intervals.

    Args:
        least, greatest: ends of the intervals, which are extended to hold 0.
        low, high: the least and greatest whole number.
        symmetric: the zero point is in the middle of them, if an interval has both signs.
    """
    least, greatest = least.float(), greatest.float()
    both = (least < 0) & (greatest > 0)
    if symmetric:
        ends = (-((high - low) // 2 + 1), (high - low) // 2)
        step = torch.maximum((least / ends[0]).abs(), (greatest / ends[1]).abs()).double()
        least = torch.where(both, (step * ends[0]).float(), least)
        greatest = torch.where(both, (step * ends[1]).float(), greatest)
    least, greatest = least.clamp(max=0.0), greatest.clamp(min=0.0)
    scale = (greatest.double() - least) / (high - low)
    lost = (scale.float() == 0) | (1 / scale.float()).isinf()
    scale = torch.where(lost, 0.1, scale)
    small = torch.tensor(SMALLEST_SCALE)
    growth = torch.where(scale < small, small / scale.float(), 1.0)
    scale = torch.where(scale < small, small.double(), scale)
    least, greatest = least * growth, greatest * growth
    by_least, by_greatest = least / scale, greatest / scale
    nearer = abs(low) - by_least.abs() < abs(high) - by_greatest.abs()
    point = torch.where(nearer, low - by_least, high - by_greatest)
    if symmetric:
        point = torch.where(both, (low + high) / 2, point)
    return scale, point.clamp(low, high).round().to(torch.int32)


def _check(name: str, input: Any, zero_point: Any, low: int, high: int) -> None:  # noqa: A002
    if low > high:
        raise RuntimeError(
            f"[{name}] `quant_min` should be less than or equal to `quant_max`, got {low} and "
            f"{high}\nhint: 0, 255"
        )
    points = zero_point if isinstance(zero_point, torch.Tensor) else torch.tensor(zero_point)
    if points.numel() and (bool((points < low).any()) or bool((points > high).any())):
        raise RuntimeError(
            f"[{name}] `zero_point` must be between `quant_min` and `quant_max`.\nhint: between "
            f"{low} and {high}"
        )
    if not input.dtype.is_floating_point:
        raise NotImplementedError(
            f"[{name}] not implemented for {input.dtype}\nhint: a floating-point tensor"
        )


def fake_quantize_per_tensor_affine(
    input: Any,
    scale: Any,
    zero_point: Any,
    quant_min: int,
    quant_max: int,  # noqa: A002
) -> Any:
    """A tensor rounded to the numbers that a quantized one could hold.

    Args:
        input: the tensor, of a floating-point dtype.
        scale: the step between numbers: a number or a tensor of one.
        zero_point: the whole number that represents 0: a number or a tensor of one.
        quant_min, quant_max: the least and greatest whole number.

    Raises:
        RuntimeError: limits in the wrong order, or a zero point outside of them.
        NotImplementedError: another dtype.

    Example:
        >>> torch.fake_quantize_per_tensor_affine(torch.tensor([0.1, 0.26, 9.0]), 0.5, 0, 0, 15)
        tensor([0.0000, 0.5000, 7.5000])
    """
    _check("fake_quantize_per_tensor_affine", input, zero_point, quant_min, quant_max)
    if not isinstance(scale, torch.Tensor):
        scale = torch.tensor(scale, dtype=torch.float32)
    return _Rounding.apply(input, scale, zero_point, quant_min, quant_max)[0]


def fake_quantize_per_channel_affine(
    input: Any,
    scale: Any,
    zero_point: Any,
    axis: int,
    quant_min: int,
    quant_max: int,  # noqa: A002
) -> Any:
    """As `fake_quantize_per_tensor_affine`, with a scale and zero point per index of an axis.

    Args:
        input: the tensor, of a floating-point dtype.
        scale: of each index: float32.
        zero_point: of each index: int32 or floating-point.
        axis: the axis.
        quant_min, quant_max: the least and greatest whole number.

    Raises:
        RuntimeError: dtypes, lengths or limits that do not fit.
        IndexError: no such axis.
    """
    name = "fake_quantize_per_channel_affine"
    if not -input.dim() <= axis < input.dim():
        raise IndexError(
            f"[{name}] Dimension out of range (expected to be in range of [{-input.dim()}, "
            f"{input.dim() - 1}], but got {axis})\nhint: axis=0"
        )
    if scale.dtype not in (torch.float32, torch.bfloat16):
        raise RuntimeError(
            f"[{name}] Scale must be Float or BFloat16, found {scale.dtype}\nhint: .float()"
        )
    if zero_point.dtype not in (torch.int32, torch.float32, torch.float16):
        raise RuntimeError(
            f"[{name}] Zero-point must be Int32, Float or Half, found {zero_point.dtype}\n"
            "hint: .to(torch.int32)"
        )
    length = input.shape[axis]
    if scale.numel() != length or zero_point.numel() != length:
        raise RuntimeError(
            f"[{name}] dimensions of scale and zero-point are not consistent with input tensor: "
            f"{scale.numel()}, {zero_point.numel()} and {length}\nhint: one per index"
        )
    _check(name, input, zero_point, quant_min, quant_max)
    shape = [1] * input.dim()
    shape[axis] = length
    return _Rounding.apply(
        input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max
    )[0]
