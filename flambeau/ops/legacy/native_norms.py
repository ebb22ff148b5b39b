"""Normalisations that also return the statistics they used, as PyTorch's inner operators do.

The formulas are those of `normalization.py`; statistics come in the dtype of the parameters where
these are wider than the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, SymInt, Tensor
from flambeau.ops import aten
from flambeau.ops.neural.normalization import (
    batch_norm_step,
    check_parameters,
    check_statistics,
    group_normalised,
    layer_normalised,
    track_statistics,
)

_HALF = ("f16", "bf16")


def _wide(x: Node | None) -> Node | None:
    return prims.cast(x, "f32") if x is not None and x.dtype in _HALF else x


def _kept_dtype(x: Node, *parameters: Node | None) -> str:
    """The dtype of statistics: float32 of half inputs with float32 parameters."""
    dtypes = [p.dtype for p in parameters if p is not None]
    return dtypes[0] if dtypes else x.dtype


def _layer_samples() -> Iterator[Sample]:
    yield sample(T(2, 3, 4), (3, 4), T(3, 4), T(3, 4), 1e-3)
    yield sample(T(3, 5), (5,), None, None, 1e-5)
    yield sample(T(0, 4), (4,), T(4), None, 1e-5)


@op(
    where="torch",
    saves_result=False,
    runtime="eps",
    samples=_layer_samples,
    errors=lambda: [
        ErrorSample(sample(T(3, 5), (4,), None, None, 1e-5), RuntimeError, "normalized_shape")
    ],
)
def native_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[SymInt],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: Scalar,
) -> tuple[Tensor, Tensor, Tensor]:
    """`layer_norm` with the mean and 1 / sqrt(var + eps) of each row.

    Shape: `(*, *normalized_shape)` -> the same; statistics `(*, 1, ...)`, without gradients.

    Raises:
        RuntimeError: the shapes do not fit.

    Example:
        >>> torch.native_layer_norm(torch.tensor([[1.0, 3.0]]), (2,), None, None, 0.0)
        (tensor([[-1.,  1.]]), tensor([[2.]]), tensor([[1.]]))
    """
    check_parameters("layer_norm", input, weight, bias)
    x, scale, shift = _wide(input), _wide(weight), _wide(bias)
    assert x is not None
    value, *statistics = layer_normalised(x, normalized_shape, scale, shift, eps)
    dtype = _kept_dtype(input, weight, bias)
    mean, inverse = (prims.stop_gradient(prims.cast(y, dtype)) for y in statistics)
    return prims.cast(value, input.dtype), mean, inverse


def _group_samples() -> Iterator[Sample]:
    yield sample(T(2, 6, 5), T(6), T(6), 2, 6, 5, 2, 1e-3)
    yield sample(T(2, 4, 3, 6), None, None, 2, 4, 18, 4, 1e-5)


@op(
    where="torch",
    saves_result=False,
    runtime="eps",
    samples=_group_samples,
    errors=lambda: [
        ErrorSample(sample(T(2, 6, 5), None, None, 2, 6, 5, 4, 1e-3), RuntimeError, "divisible")
    ],
)
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: SymInt,
    C: SymInt,
    HxW: SymInt,
    group: int,
    eps: Scalar,
) -> tuple[Tensor, Tensor, Tensor]:
    """`group_norm` with the mean and 1 / sqrt(var + eps) of each group.

    Shape: `(N, C, *)` -> the same; statistics `(N, group)`.

    Args:
        N, C, HxW: the input's sizes, positions counted together.

    Raises:
        RuntimeError: the channels do not divide by the groups.

    Example:
        >>> torch.native_group_norm(torch.tensor([[1.0, 3.0]]), None, None, 1, 2, 1, 1, 0.0)
        (tensor([[-1.,  1.]]), tensor([[2.]]), tensor([[1.]]))
    """
    check_parameters("group_norm", input, weight, bias)
    x, scale, shift = _wide(input), _wide(weight), _wide(bias)
    assert x is not None
    value, *statistics = group_normalised(x, group, scale, shift, eps)
    mean, inverse = (prims.cast(y, _kept_dtype(input, weight, bias)) for y in statistics)
    return prims.cast(value, input.dtype), mean, inverse


_BATCH = "Tensor input, Tensor? weight, Tensor? bias, "
_RUNNING = "Tensor? running_mean, Tensor? running_var, "
_UPDATED = "Tensor?! running_mean, Tensor?! running_var, "
_END = "float momentum, float eps) -> (Tensor, Tensor, Tensor"


def _batch_samples() -> Iterator[Sample]:
    statistics = (T(3, grad=False), T(3, low=0.5, grad=False))
    yield sample(T(5, 3), T(3), T(3), *statistics, False, 0.1, 1e-5)
    yield sample(T(2, 3, 4), None, None, None, None, True, 0.1, 1e-5)


@op(
    f"native_batch_norm({_BATCH}{_RUNNING}bool training, {_END})",
    where="torch",
    out="exact",
    host=True,
    samples=_batch_samples,
)
def native_batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """`batch_norm` with the batch's mean and 1 / sqrt(var + eps), empty when not training.

    Shape: `(N, C, *)` -> the same; statistics `(C)`, without gradients.

    Args:
        running_mean, running_var: updated when training, used otherwise.

    Raises:
        RuntimeError: statistics of another number of channels, or none in evaluation.

    Example:
        >>> x = torch.tensor([[1.0], [3.0]])
        >>> torch.native_batch_norm(x, None, None, None, None, True, 0.1, 0.0)
        (tensor([[-1.],
                [ 1.]]), tensor([2.]), tensor([1.]))
    """
    check_statistics(input, running_mean, running_var, training)
    parameters = [p for p in (weight, bias, running_mean, running_var) if p is not None]
    dtype = parameters[0].dtype if parameters else input.dtype
    running = (running_mean, running_var)
    results = batch_norm_step.native(input, *running, weight, bias, training, eps, training)
    if training:
        value, mean, variance, inverse = results
        track_statistics(mean, variance, running, momentum)
        return value, mean.detach().to(dtype), inverse.detach().to(dtype)
    unused = [aten.new_empty(input, (0,), dtype=dtype) for _ in range(2)]
    return (results, *unused)


@op(
    f"_native_batch_norm_legit({_BATCH}{_RUNNING}bool training, {_END})",
    where="torch",
    out="exact",
    host=True,
    samples=_batch_samples,
)
def native_batch_norm_legit(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """`native_batch_norm` under its newer name; without statistics when `training` comes third."""
    if isinstance(running_mean, bool):  # the overload without running statistics
        training, momentum, eps = running_mean, running_var, training
        running_mean = running_var = None
    numbers = (training or running_mean is None, momentum, eps)
    return native_batch_norm(input, weight, bias, running_mean, running_var, *numbers)


@op(
    f"_batch_norm_with_update({_BATCH}{_UPDATED}{_END}, Tensor)",
    where="ops.aten",
    out="exact",
    host=True,
    samples=lambda: [sample(T(2, 3, 4), T(3), T(3), T(3, grad=False), T(3, grad=False), 0.1, 1e-5)],
)
def batch_norm_with_update(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> Any:
    """`native_batch_norm` in training, and an empty tensor that other devices would fill."""
    from flambeau.language.dtypes import object_of

    arguments = (input, weight, bias, running_mean, running_var, True, momentum, eps)
    reserved = aten.new_empty(input, (0,), dtype=object_of("u8"))
    return (*native_batch_norm(*arguments), reserved)
