"""Normalisations: layer, RMS, group, instance and batch norm, `normalize`.

Statistics are computed in float32 for half types, in two passes (mean, then squared deviations)
over a row that stays resident; what follows from the two sums, per row, in float64. Sources: Ba et
al. 2016, Zhang & Sennrich 2019, Wu & He 2018, Ioffe & Szegedy 2015. Gradients are given per norm:
they need the normalised row, not the chain of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import COMPUTE, TITLES
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.lock import importing
from flambeau.ir.node import Node
from flambeau.ir.size import Size, prod
from flambeau.language.definition import function, given_dtype, op
from flambeau.language.layout import same
from flambeau.language.promotion import HALF, promote_types
from flambeau.language.samples import ErrorSample, T, sample
from flambeau.language.schema import Scalar, SymInt, Tensor
from flambeau.ops.broadcasting import is_complex, unsupported
from flambeau.ops.common import normalise_dim, shown


def _check_shape(name: str, x: Node, normalized: Sequence[Size]) -> tuple[int, ...]:
    """The normalised dimensions; they must end the input's shape."""
    count = len(normalized)
    tail = x.shape[x.ndim - count :] if count <= x.ndim else ()
    if count == 0 or count > x.ndim or not all(same(a, b) for a, b in zip(tail, normalized)):
        problem = f"Given normalized_shape={shown(normalized)}, expected input with shape [*, "
        problem += f"{shown(normalized)[1:-1]}], but got input of size {shown(x.shape)}"
        raise failure(
            RuntimeError, name, problem, "normalized_shape is the end of the input's shape"
        )
    return tuple(range(x.ndim - count, x.ndim))


def _mean(x: Node, dims: Sequence[int]) -> Node:
    count = prod([x.shape[d] for d in dims])
    total = prims.reduce_dims("sum", x, tuple(dims), True)
    return total / prims.constant(count, total)


def standardised(
    x: Node, dims: tuple[int, ...], eps: Any, once: bool = False
) -> tuple[Node, Node, Node]:
    """(x - mean) / sqrt(var + eps) over `dims`, with mean and 1/sqrt(var + eps) of kept shape;
    `once`: see `_scaled`."""
    count = prod([x.shape[d] for d in dims])
    total = prims.reduce_dims("sum", x, dims, True)
    mean = total / prims.constant(count, total)
    centred = x - mean
    squares = prims.reduce_dims("sum", centred * centred, dims, True)
    value, inverse = _scaled(x, total, squares, count, eps, once)
    out = prims.with_derivative(value, x, inverse, rule="standardise", dims=dims)
    return out, mean, inverse


def _scaled(
    x: Node, total: Node, squares: Node, count: Size, eps: Any, once: bool = False
) -> tuple[Node, Node]:
    """(x - mean) / sqrt(var + eps) from the sums of elements and of squared deviations, and the
    factor. The numbers per row or channel are float64, which costs nothing. `once`: elements of
    float32 are, too, and are rounded once, which doubles the arithmetic.
    """
    wide = "f64" if x.dtype == "f32" else x.dtype
    mean, variance = (prims.cast(y, wide) for y in (total, squares))
    mean, variance = (y / prims.constant(count, y) for y in (mean, variance))
    inverse = prims.rsqrt(variance + prims.constant(eps, variance))
    narrow = prims.cast(inverse, x.dtype)
    if once:
        return prims.cast((prims.cast(x, wide) - mean) * inverse, x.dtype), narrow
    return (x - prims.cast(mean, x.dtype)) * narrow, narrow


def _group_rule(grad: Node, out: Node, x: Node, inverse: Node) -> Any:
    """As below, channel by channel: two sums of short rows, not one that crosses channels."""
    total, along = (_mean(_mean(y, (3,)), (2,)) for y in (grad, grad * out))
    return (grad - total - out * along) * inverse, None


prims.register_rule("group_standardise", _group_rule)


def _standardise_rule(grad: Node, out: Node, x: Node, inverse: Node) -> Any:
    dims = out.attribute("dims")
    inner = grad - _mean(grad, dims) - out * _mean(grad * out, dims)
    return inner * inverse, None


prims.register_rule("standardise", _standardise_rule)


def check_parameters(name: str, x: Node, *parameters: Node | None, casts: bool = False) -> None:
    """Refuses parameters of another dtype, except those of float32 beside a half type.

    Args:
        casts: whether parameters are cast to the dtype of `x`: then other kinds are refused, too,
            which do not compute together with `x` without a cast.

    Raises:
        RuntimeError: the dtypes differ.
    """
    own = given_dtype(x)
    kinds = {given_dtype(p) for p in parameters if p is not None}
    mixed = not kinds <= {own} and (casts or own in HALF or bool(kinds & HALF))
    if not mixed or (own in HALF and kinds == {"f32"}):
        return
    problem = "mixed dtype (CPU): expect parameters to have the dtype of the input, or "
    problem += f"torch.float32 beside a half type, got {TITLES[own]} and "
    problem += f"{', '.join(TITLES[kind] for kind in sorted(kinds))}"
    raise failure(RuntimeError, name, problem, "convert the parameters")


def _affine(x: Node, weight: Node | None, bias: Node | None) -> Node:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


def _layer_samples() -> Any:
    yield sample(T(3, 5), (5,))
    yield sample(T(2, 3, 40), (40,), T(40), T(40))
    yield sample(T(2, 3, 4), (3, 4), T(3, 4), T(3, 4), 1e-3)
    yield sample(T(2, 3, 4), (4,), T(4))
    yield sample(T(0, 4), (4,))
    yield sample(T(6, 4, layout="transposed"), (4,))


@op(
    where="torch nn.functional",
    promote="keep",
    saves_result=False,
    runtime="eps",
    samples=_layer_samples,
)
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[SymInt],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: Scalar = 1e-05,
    cudnn_enable: bool = True,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions (biased variance).

    Source: Ba et al., Layer Normalization, 2016.

    Args:
        normalized_shape: sizes of the last dimensions.
        weight, bias: of that shape.

    Raises:
        RuntimeError: the shapes do not fit.

    Example:
        >>> torch.layer_norm(torch.tensor([1.0, 3.0]), (2,))
        tensor([-1.0000,  1.0000])
    """
    return layer_normalised(input, normalized_shape, weight, bias, eps)[0]


def layer_normalised(
    x: Node, normalized_shape: Sequence[Size], weight: Node | None, bias: Node | None, eps: Any
) -> tuple[Node, Node, Node]:
    """Layer norm, and the mean and 1 / sqrt(var + eps) of each row, of kept shape.

    Raises:
        RuntimeError: the shapes do not fit.
    """
    dims = _check_shape("layer_norm", x, normalized_shape)
    check_parameters("layer_norm", x, weight, bias)
    value, mean, inverse = standardised(x, dims, eps)
    return _affine(value, weight, bias), mean, inverse


def _rms_samples() -> Any:
    yield sample(T(3, 5), (5,))
    yield sample(T(2, 3, 40), (40,), T(40))
    yield sample(T(2, 3, 4), (3, 4), T(3, 4), 1e-3)


@op(
    where="torch nn.functional",
    promote="keep",
    layout="first image",
    saves_result=False,
    samples=_rms_samples,
)
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[SymInt],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions.

    Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.

    Args:
        eps: the machine epsilon of the compute dtype when None.

    Example:
        >>> torch.rms_norm(torch.tensor([3.0, 3.0]), (2,))
        tensor([1., 1.])
    """
    dims = _check_shape("rms_norm", input, normalized_shape)
    epsilon = eps if eps is not None else (2.0**-52 if input.dtype == "f64" else 2.0**-23)
    mean_square = _mean(input * input, dims)
    inverse = prims.rsqrt(mean_square + epsilon)
    value = prims.with_derivative(input * inverse, input, inverse, rule="rms", dims=dims)
    if weight is None or weight.dtype == value.dtype:
        return _affine(value, weight, None)
    common = promote_types(value.dtype, weight.dtype)  # the result has the dtype of the input
    if is_complex(weight):
        raise unsupported("rms_norm", weight, "take a real weight, or a complex input")
    return prims.cast(prims.cast(value, common) * prims.cast(weight, common), value.dtype)


def _rms_rule(grad: Node, out: Node, x: Node, inverse: Node) -> Any:
    dims = out.attribute("dims")
    out, inverse = prims.conj(out), prims.conj(inverse)
    return (grad - out * _mean(grad * out, dims)) * inverse, None


prims.register_rule("rms", _rms_rule)


def _per_channel(parameter: Node | None, ndim: int) -> Node | None:
    if parameter is None:
        return None
    return prims.reshape(parameter, (1, parameter.shape[0], *([1] * (ndim - 2))))


def _group_samples() -> Any:
    yield sample(T(2, 6), 3)
    yield sample(T(2, 6, 5), 2, T(6), T(6))
    yield sample(T(2, 4, 3, 5), 4, T(4), T(4), 1e-3)


@op(
    where="torch nn.functional",
    promote="keep",
    layout="first image",
    saves_result=False,
    runtime="eps",
    samples=_group_samples,
)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: Scalar = 1e-05,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Layer norm over each of `num_groups` groups of channels (dimension 1) and all positions.

    Source: Wu and He, Group Normalization, 2018.

    Shape: `(N, C, *)`, weight and bias `(C)` -> the same.

    Raises:
        RuntimeError: the channels do not divide by the groups.

    Example:
        >>> torch.group_norm(torch.tensor([[[1.0, 3.0]]]), 1)
        tensor([[[-1.0000,  1.0000]]])
    """
    return group_normalised(input, num_groups, weight, bias, eps)[0]


def group_normalised(
    x: Node, num_groups: int, weight: Node | None, bias: Node | None, eps: Any
) -> tuple[Node, Node, Node]:
    """Group norm, and the mean and 1 / sqrt(var + eps) of each group, (N, groups).

    Raises:
        RuntimeError: the channels do not divide by the groups.
    """
    channels = x.shape[1] if x.ndim > 1 else 0
    if not same(channels // num_groups * num_groups, channels):
        problem = "Expected number of channels in input to be divisible by num_groups, but got "
        problem += f"input of shape {shown(x.shape)} and num_groups={num_groups}"
        raise failure(RuntimeError, "group_norm", problem, "choose a divisor of the channels")
    check_parameters("group_norm", x, weight, bias)
    each, space = channels // num_groups, prod(x.shape[2:])
    groups = (x.shape[0], num_groups)
    if x.ndim > 2 and not same(x.shape[0], 0) and not less(space, _LONG):
        sizes = (num_groups, each, space)
        value, mean, inverse = _group_norm_by_channel(x, sizes, weight, bias, eps)
    else:
        grouped = prims.reshape(x, (*groups, each * space))
        value, mean, inverse = standardised(grouped, (2,), eps)
        value = prims.reshape(value, x.shape)
        value = _affine(value, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))
    return value, prims.reshape(mean, groups), prims.reshape(inverse, groups)


_LONG = 16  # positions from which a channel is worth a row of its own


def _group_norm_by_channel(
    x: Node, sizes: Sequence[Size], weight: Node | None, bias: Node | None, eps: Any
) -> tuple[Node, Node, Node]:
    """A row per channel, so that no element has to be asked which channel it is of.

    Means and squared deviations of the channels are joined as in Chan et al. 1979.
    """
    shape = x.shape
    x = prims.reshape(x, (shape[0], *sizes))
    sums = prims.reduce_dims("sum", x, (3,), True)
    means = sums / prims.constant(sizes[2], sums)
    centred = x - means
    squares = prims.reduce_dims("sum", centred * centred, (3,), True)
    apart = means - _mean(means, (2,))
    between = apart * apart * prims.constant(sizes[2], apart)
    total, squares = (prims.reduce_dims("sum", y, (2,), True) for y in (sums, squares + between))
    value, inverse = _scaled(x, total, squares, sizes[1] * sizes[2], eps)
    value = prims.with_derivative(value, x, inverse, rule="group_standardise")

    def spread(parameter: Node | None) -> Node | None:
        if parameter is None:
            return None
        return prims.reshape(parameter, (1, *sizes[:2], 1))

    mean = total / prims.constant(sizes[1] * sizes[2], total)
    return prims.reshape(_affine(value, spread(weight), spread(bias)), shape), mean, inverse


@op(
    where="nn.functional",
    promote="keep",
    out=True,
    saves_result=False,
    runtime="eps",
    samples=lambda: [sample(T(2, 3, 5)), sample(T(2, 3, 4, 5))],
)
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: Scalar = 1e-05,
) -> Tensor:
    """Each channel of each sample normalised over its positions.

    Source: Ulyanov et al., Instance Normalization, 2016.

    Shape: `(N, C, *)`, weight and bias `(C)` -> the same.

    Raises:
        NotImplementedError: running statistics are given (use batch_norm on a reshaped input).

    Example:
        >>> F.instance_norm(torch.tensor([[[1.0, 3.0]]]))
        tensor([[[-1.0000,  1.0000]]])
    """
    if running_mean is not None or not use_input_stats:
        problem = "running statistics are not supported"
        raise failure(
            NotImplementedError, "instance_norm", problem, "use track_running_stats=False"
        )
    check_parameters("instance_norm", input, weight, bias)
    dims = tuple(range(2, input.ndim))
    value, _, _ = standardised(input, dims, eps, once=True)
    return _affine(value, _per_channel(weight, input.ndim), _per_channel(bias, input.ndim))


def _batch_dims(x: Node) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _norm_samples() -> Any:
    running = (T(3, grad=False), T(3, low=0.5, grad=False))
    yield sample(T(5, 3), T(3), T(3, low=0.5), T(3), T(3), False, 1e-5)
    yield sample(T(5, 3), *running, T(3), T(3), True, 1e-5)
    yield sample(T(2, 3, 4), None, None, None, None, True, 1e-3, True)


@op(
    name="_batch_norm",
    where="private",
    layout="first image",
    saves_result=False,
    runtime="eps",
    samples=_norm_samples,
)
def batch_norm_step(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    eps: Scalar,
    inverse: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """Batch norm with given statistics; or, training, with the batch's mean and unbiased variance.

    Training gives these, too, and 1 / sqrt(var + eps) where `inverse` asks for it.
    """
    running = () if training else (running_mean, running_var)
    check_parameters("batch_norm", input, weight, bias, *running, casts=not training)
    x = prims.cast(input, COMPUTE.get(input.dtype, input.dtype))
    weight, bias = (None if p is None else prims.cast(p, x.dtype) for p in (weight, bias))
    statistics: tuple[Node, ...] = ()
    if training:
        value, *statistics = _batch_normalised(x, eps)
    else:
        mean, variance = (_per_channel(prims.cast(p, x.dtype), x.ndim) for p in running)
        value = (x - mean) * prims.rsqrt(variance + prims.constant(eps, variance))
    out = _affine(value, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))
    out = prims.cast(out, input.dtype)
    return (out, *statistics[: 2 + inverse]) if training else out


def _batch_normalised(x: Node, eps: Any) -> tuple[Node, Node, Node, Node]:
    """Values without a scale; mean, unbiased variance and 1 / sqrt(var + eps) per channel."""
    dims = _batch_dims(x)
    value, mean, inverse = standardised(x, dims, eps, once=True)
    centred = x - mean
    total = prims.reduce_dims("sum", centred * centred, dims, False)
    count = prims.constant(prod([x.shape[d] for d in dims]), total)
    variance = prims.stop_gradient(total / (count - 1.0))
    flat_mean, flat_inverse = (
        prims.stop_gradient(prims.reshape(y, (x.shape[1],))) for y in (mean, inverse)
    )
    return value, flat_mean, variance, flat_inverse


def check_statistics(input: Any, running_mean: Any, running_var: Any, training: bool) -> None:
    """Raise unless the running statistics have one element per channel, and are there if needed."""
    channels = input.shape[1] if input.ndim > 1 else 0
    for name, statistic in (("running_mean", running_mean), ("running_var", running_var)):
        if statistic is None and not training:
            problem = f"{name} must be defined in evaluation mode"
            raise failure(RuntimeError, "batch_norm", problem, "training=True")
        if statistic is not None and statistic.numel() != channels:
            problem = f"{name} should contain {channels} elements not {statistic.numel()}"
            raise failure(
                RuntimeError, "batch_norm", problem, "dimension 1 of the input holds the channels"
            )


def _check_batch(input: Any, training: bool, eps: float) -> None:
    if training and prod((1, *input.shape[:1], *input.shape[2:])) == 1:
        problem = "Expected more than 1 value per channel when training, got input size "
        problem += f"{list(input.shape)}"
        raise failure(ValueError, "batch_norm", problem, "use a larger batch or eval()")
    if eps < 0 or (training and eps == 0):
        what = "positive during training" if training else "non-negative"
        raise failure(ValueError, "batch_norm", f"eps must be {what}, but got {eps}", "eps=1e-5")


def track_statistics(mean: Any, variance: Any, running: Sequence[Any], momentum: float) -> None:
    """Moves (running mean, running variance), where given, towards those of a batch."""
    with importing:
        from flambeau.autograd import no_grad

    with no_grad():
        for average, statistic in zip(running, (mean, variance), strict=True):
            if average is not None:
                average.lerp_(statistic.to(average.dtype), momentum)


def _batch_samples() -> Any:
    yield sample(T(5, 3), T(3), T(3, low=0.5), T(3), T(3))
    yield sample(T(0, 3), T(3), T(3, low=0.5), T(3), T(3))
    yield sample(T(0), T(0), T(0), training=True)


def _batch_errors() -> Any:
    three = T(3, low=0.5)
    yield ErrorSample(sample(T(5, 3), None, None), RuntimeError, "must be defined")
    yield ErrorSample(sample(T(5, 2), three, three), RuntimeError, "should contain 2 elements")
    yield ErrorSample(sample(T(1, 3), None, None, training=True), ValueError, "more than 1 value")
    yield ErrorSample(sample(T(5, 3), three, three, eps=-1.0), ValueError, "non-negative")


@function(where="nn.functional", samples=_batch_samples, errors=_batch_errors)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Any:
    """Normalises each channel (dimension 1) over batch and positions; updates running statistics.

    Source: Ioffe and Szegedy, Batch Normalization, 2015.

    Shape: `(N, C, *)`, all others `(C)` -> the same.

    Raises:
        ValueError: training with a single value per channel, or an eps that is not positive.
        RuntimeError: statistics of another number of channels, or none in evaluation.

    Example:
        >>> x = torch.tensor([[1.0], [3.0]])
        >>> torch.nn.functional.batch_norm(x, torch.ones(1), torch.full((1,), 4.0), eps=0.0)
        tensor([[0.],
                [1.]])
    """
    _check_batch(input, training, eps)
    check_statistics(input, running_mean, running_var, training)
    return batch_normed(input, running_mean, running_var, weight, bias, training, momentum, eps)


def batch_normed(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """`batch_norm` of checked arguments."""
    if input.numel() == 0:
        return _affine(input.clone(), *(p if p is None else p[:1] for p in (weight, bias)))
    running = (running_mean, running_var)
    results = batch_norm_step.native(input, *running, weight, bias, training, eps)
    if not training:
        return results
    track_statistics(*results[1:], running, momentum)
    return results[0]


@op(
    where="nn.functional",
    promote="keep",
    layout="first",
    out=True,
    overlap="partial",
    saves_result=False,
    samples=lambda: [sample(T(3, 5)), sample(T(3, 5), 1.0, 0), sample(T(4), dim=0)],
)
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm_p(x), eps) along `dim`.

    Shape: any -> the same; floating dtypes.

    Raises:
        IndexError: a dimension out of range.

    Example:
        >>> F.normalize(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    from flambeau.ops.reduction.linalg_norms import vector_norm

    axis = normalise_dim(dim, input.ndim, "normalize")
    length = vector_norm(input, p, (axis,), True)
    return input / prims.cast(prims.maximum(length, prims.full_like(eps, length)), input.dtype)
