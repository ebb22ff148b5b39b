"""Compositions of the programs behind layers: pooling, norms, images, dropout; see `composites`."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from flambeau import _core
from flambeau.decompositions.composites import composes
from flambeau.ops import aten
from flambeau.runtime.symbolic import SymInt

Tensor = Any


@composes("numpy_T")
def _numpy_t(self: Tensor) -> Tensor:
    return aten.permute(self, list(reversed(range(self.ndim))))


# ------------------------------------------------------------------------------ norms
@composes("private._batch_norm")
def _batch_norm_step(training: bool, eps: float, inverse: bool, **tensors: Tensor) -> Any:
    running = [None if training else tensors[name] for name in ("running_mean", "running_var")]
    operands = (tensors["input"], tensors["weight"], tensors["bias"], *running)
    results = aten.native_batch_norm(*operands, training, 0.1, eps)
    return results if training else results[0]


@composes("batch_norm")
def _batch_norm(
    input: Tensor,  # noqa: A002
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    aten.empty.memory_format([0], dtype=_core.uint8)  # cuDNN's reserve
    operands = (input, weight, bias, running_mean, running_var, training, momentum, eps)
    return aten.native_batch_norm(*operands)[0]


@composes("nn.functional.batch_norm")
def _functional_batch_norm(
    input: Tensor,  # noqa: A002
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    operands = (input, weight, bias, running_mean, running_var, training, momentum, eps)
    return _batch_norm(*operands, cudnn_enabled=False)


@composes("nn.functional.instance_norm")
def _instance_norm(
    input: Tensor,  # noqa: A002
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    use_input_stats: bool,
    eps: float,
    **options: Any,
) -> Tensor:
    if running_mean is not None or weight is not None or not use_input_stats:
        return NotImplemented
    if not input.is_contiguous() or input.ndim < 3:
        return NotImplemented
    samples, channels, *places = input.shape
    rows = aten.view(input, (1, samples * channels, *places))
    normed = _batch_norm(rows, None, None, None, None, True, 0.1, eps, False)
    return aten.view(normed, tuple(input.shape))


# ------------------------------------------------------------------------------ pooling
def _alone(x: Tensor, count: int) -> bool:
    return int(x.ndim) == count + 1


def _max_pool(
    pair: bool,
    count: int,
    input: Tensor,  # noqa: A002
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    def every(value: Any) -> list[int]:
        values = [value] if isinstance(value, int) else list(value)
        return values * count if len(values) == 1 else values

    steps = every(kernel_size) if not stride else every(stride)
    windows = [every(kernel_size), steps, every(padding), every(dilation)]
    if count == 1:
        flat = [[1, *windows[0]], [1, *windows[1]], [0, *windows[2]], [1, *windows[3]]]
        tall = aten.unsqueeze(input, -2)
        results = aten.max_pool2d_with_indices(tall, *flat, ceil_mode)
        results = tuple(aten.squeeze(x, -2) for x in results)
    else:
        pool = aten.max_pool2d_with_indices if count == 2 else aten.max_pool3d_with_indices
        results = pool(input, *windows, ceil_mode)
    return results if pair or return_indices else results[0]


for _count in (1, 2, 3):
    _pool, _home = f"max_pool{_count}d", "nn.functional." * (_count > 1)
    composes(_pool)(partial(_max_pool, False, _count))
    composes(f"{_home}{_pool}_with_indices")(partial(_max_pool, True, _count))


@composes("avg_pool1d")
def _avg_pool1d(
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    **tensor: Tensor,
) -> Tensor:
    (x,) = tensor.values()

    def number(value: Any) -> int:
        return int(value if isinstance(value, int) else value[0])

    step = number(stride) if stride else number(kernel_size)
    sides = [[1, number(kernel_size)], [1, step], [0, number(padding)]]
    pooled = aten.avg_pool2d(aten.unsqueeze(x, -2), *sides, ceil_mode, count_include_pad)
    return aten.squeeze(pooled, -2)


def _adaptive_avg_pool(count: int, input: Tensor, output_size: Any) -> Tensor:  # noqa: A002
    single = isinstance(output_size, (int, SymInt))
    sizes = [output_size] * count if single else list(output_size)
    shape = input.shape[-count:]
    sizes = [old if new is None else new for new, old in zip(sizes, shape, strict=True)]
    if count == 3:
        return aten._adaptive_avg_pool3d(input, sizes)
    if count == 1:
        tall = aten._adaptive_avg_pool2d(aten.unsqueeze(input, -2), [1, *sizes])
        return aten.squeeze(tall, -2)
    if sizes == [1, 1]:
        return aten.mean(input, [-1, -2], True)
    return aten._adaptive_avg_pool2d(input, sizes)


composes("adaptive_avg_pool1d")(partial(_adaptive_avg_pool, 1))
for _count in (2, 3):
    composes(f"nn.functional.adaptive_avg_pool{_count}d")(partial(_adaptive_avg_pool, _count))


# ------------------------------------------------------------------------------ dropout
def _kept(input: Tensor, p: float, generator: Any, channels: bool = False) -> Tensor:  # noqa: A002
    shape = [*input.shape[:2], *[1] * (input.ndim - 2)]
    noise = aten.new_empty(input, shape) if channels else aten.empty_like(input)
    return aten.bernoulli_.float(noise, 1 - p, generator=generator)


@composes("private._dropout")
def _dropout(
    input: Tensor,  # noqa: A002
    p: float,
    generator: Any,
    masked: bool = False,
    channels: bool = False,
    multiply: Any = aten.mul,
) -> Tensor:
    if masked or p in (0, 1):
        return NotImplemented
    return multiply(input, aten.div_.Scalar(_kept(input, p, generator, channels), 1 - p))


@composes("private._feature_dropout")
def _feature_dropout(input: Tensor, p: float, generator: Any) -> Tensor:  # noqa: A002
    return _dropout(input, p, generator, channels=True)


@composes("_dropout_")
def _dropout_(input: Tensor, p: float, generator: Any, masked: bool) -> Tensor:  # noqa: A002
    return _dropout(input, p, generator, masked, False, aten.mul_)


@composes("_feature_dropout_")
def _feature_dropout_(input: Tensor, p: float, generator: Any) -> Tensor:  # noqa: A002
    return _dropout(input, p, generator, False, True, aten.mul_)


@composes("private._alpha_dropout")
def _alpha_dropout(
    input: Tensor,  # noqa: A002
    p: float,
    features: bool,
    generator: Any,
    multiply: Any = aten.mul,
) -> Tensor:
    if p in (0, 1):
        return NotImplemented
    noise, least = _kept(input, p, generator, features), 1.7580993408473766
    scale = 1 / math.sqrt((least * least * p + 1) * (1 - p))
    shift = aten.mul_.Scalar(aten.add.Scalar(noise, -1), least * scale)
    shift = aten.add_.Scalar(shift, least * scale * p)
    return aten.add_(multiply(input, aten.mul_.Scalar(noise, scale)), shift)


@composes("_alpha_dropout_")
def _alpha_dropout_(input: Tensor, p: float, features: bool, generator: Any) -> Tensor:  # noqa: A002
    return _alpha_dropout(input, p, features, generator, aten.mul_)


# ------------------------------------------------------------------------------ images
_MODES = {"nearest": "nearest", "nearest-exact": "_nearest_exact", "area": ""}
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@composes("private._interpolate")
def _interpolate(
    input: Tensor,  # noqa: A002
    size: Any,
    scales: Any,
    mode: str,
    align_corners: bool,
    antialias: bool,
) -> Tensor:
    rank = len(size)
    if antialias or mode == "area":
        return NotImplemented
    if mode == "nearest":
        return getattr(aten, f"upsample_nearest{rank}d")(input, list(size), *(scales or ()))
    if mode == "nearest-exact":
        return getattr(aten, f"_upsample_nearest_exact{rank}d")(input, list(size), *(scales or ()))
    name = "bicubic" if mode == "bicubic" else _LINEAR[rank]
    upsample = getattr(aten, f"upsample_{name}{rank}d")
    return upsample(input, list(size), align_corners, *(scales or ()))


@composes("nn.functional.pad")
def _pad(input: Tensor, pad: Any, mode: str, value: float | None) -> Tensor:  # noqa: A002
    if mode == "constant":
        return aten.constant_pad_nd(input, list(pad), *(() if value is None else (value,)))
    if mode == "circular":
        return NotImplemented
    word = {"reflect": "reflection", "replicate": "replication"}[mode]
    return getattr(aten, f"{word}_pad{len(pad) // 2}d")(input, list(pad))


def _pairs(*values: Any) -> list[list[int]]:
    lists = [[v] if isinstance(v, int) else list(v) for v in values]
    return [v * 2 if len(v) == 1 else v for v in lists]


@composes("nn.functional.unfold")
def _unfold(
    input: Tensor,  # noqa: A002
    kernel_size: Any,
    dilation: Any,
    padding: Any,
    stride: Any,
) -> Tensor:
    return aten.im2col(input, *_pairs(kernel_size, dilation, padding, stride))


@composes("nn.functional.fold")
def _fold(
    input: Tensor,  # noqa: A002
    output_size: Any,
    kernel_size: Any,
    dilation: Any,
    padding: Any,
    stride: Any,
) -> Tensor:
    return aten.col2im(input, *_pairs(output_size, kernel_size, dilation, padding, stride))


@composes("nn.functional.local_response_norm")
def _local_response_norm(
    input: Tensor,  # noqa: A002
    size: int,
    alpha: float,
    beta: float,
    k: float,
) -> Tensor:
    if input.ndim != 4:
        return NotImplemented
    samples, channels, *places = input.shape
    squares = aten.view(aten.mul(input, input), (samples, 1, channels, places[0], -1))
    padded = aten.constant_pad_nd(squares, [0, 0, 0, 0, size // 2, (size - 1) // 2], 0.0)
    mean = aten.squeeze(aten.avg_pool3d(padded, [size, 1, 1], [1, 1, 1]), 1)
    mean = aten.view(mean, tuple(input.shape))
    return aten.div(input, aten.pow(aten.add(aten.mul(mean, alpha), k), beta))
