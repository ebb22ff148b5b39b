"""Functions of layers with PyTorch's inner signatures: arguments in another order, no defaults.

What they compute is defined with the functions of `nn.functional`, whose checks of arguments they
do not make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau.ir.failure import failure
from flambeau.language.definition import op
from flambeau.language.layout import same
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Mutable, Tensor
from flambeau.ops.cast_rules import untouched
from flambeau.ops.common import differ, same_sizes, shown
from flambeau.ops.linear.matrix import matmul
from flambeau.ops.neural import convolution as convolutions
from flambeau.ops.neural.embedding import bound_rows
from flambeau.ops.neural.embedding import embedding as rows_of
from flambeau.ops.neural.normalization import batch_normed, check_statistics, track_statistics
from flambeau.ops.neural.normalization import instance_norm as instance_normed
from flambeau.ops.pointwise.binary import add, mul
from flambeau.ops.reduction.reduce import sum as total
from flambeau.ops.shape.convert import contiguous
from flambeau.ops.shape.views import permute, reshape, unsqueeze

_INDICES = T(2, 2, dtype="i64", values=[[1, 2], [2, 4]])
_PARAMETERS = (T(3), T(3), T(3), T(3, low=0.5))  # weight, bias, mean, variance


# ------------------------------------------------------------------------------ look-ups


def _embedding_samples() -> Iterator[Sample]:
    yield sample(T(5, 3), _INDICES)
    yield sample(T(5, 3, grad=False), _INDICES, 2, True)  # its gradient is no derivative
    yield sample(T(5, 3), T(3, dtype="i32", values=[0, 4, 4]), -1)


def _embedding_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(5), _INDICES), RuntimeError, "'weight' must be 2-D")
    yield ErrorSample(sample(T(5, 3), T(2, dtype="f32")), RuntimeError, "Long")
    yield ErrorSample(sample(T(2, 3), _INDICES), IndexError, "range")


@op(where="torch", host=True, samples=_embedding_samples, errors=_embedding_errors)
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """`nn.functional.embedding` with PyTorch's inner signature: rows of `weight` at the indices.

    Shape: `(V, D)` table, `(*)` indices -> `(*, D)`.

    Args:
        padding_idx: this row receives no gradient; one outside of the table is none.
        scale_grad_by_freq: a row's gradient is divided by how often it is looked up.
        sparse: the gradient of `weight` is a `sparse_coo` tensor that keeps the rows looked up.

    Raises:
        IndexError: an index is outside [0, V).
        RuntimeError: the table is no matrix, or the indices are no integers.

    Example:
        >>> torch.embedding(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1]))
        tensor([[3., 4.]])
    """
    if weight.ndim != 2:
        problem = f"'weight' must be 2-D, got {list(weight.shape)}"
        raise failure(RuntimeError, "embedding", problem, "a row per index")
    padding = padding_idx if 0 <= padding_idx < weight.shape[0] else None
    options = (None, 2.0, scale_grad_by_freq, sparse)
    return rows_of.native(indices, weight, padding, *options)


@op(
    where="torch",
    host=True,
    differentiable=False,
    samples=lambda: [sample(T(5, 3, grad=False), _INDICES, 1.0, 2.0)],
    errors=lambda: [
        ErrorSample(sample(T(5), _INDICES, 1.0, 2.0), RuntimeError, "2-dimensional"),
        ErrorSample(sample(T(5, 3), T(2, dtype="f32"), 1.0, 2.0), RuntimeError, "Long"),
    ],
)
def embedding_renorm_(
    self: Mutable[Tensor], indices: Tensor, max_norm: float, norm_type: float
) -> Any:
    """Scales the rows at the indices, where their p-norm is larger than `max_norm`, down to it.

    Shape: `(V, D)` table, `(*)` indices.

    Raises:
        RuntimeError: the table is no matrix, or the indices are no integers.

    Example:
        >>> torch.embedding_renorm_(torch.tensor([[3.0], [4.0]]), torch.tensor([1]), 1.0, 2.0)
        tensor([[3.],
                [1.]])
    """
    if self.ndim != 2:
        problem = f"expected a 2-dimensional table, got {list(self.shape)}"
        raise failure(RuntimeError, "embedding_renorm_", problem, "a row per index")
    if indices.dtype.is_floating_point or indices.dtype.is_complex:
        problem = f"indices must be Long or Int, got {indices.dtype}"
        raise failure(RuntimeError, "embedding_renorm_", problem, "indices.long()")
    bound_rows(indices, self, max_norm, norm_type)
    return self


# ------------------------------------------------------------------------------ normalisation


def _batch_samples() -> Iterator[Sample]:
    yield sample(T(5, 3), *_PARAMETERS, False, 0.1, 1e-5, True)
    yield sample(T(4, 3, 2), None, None, None, None, True, 0.1, 1e-5, False)
    yield sample(T(4, 3, 2), *_PARAMETERS, True, 0.1, 1e-5, True)


@op(
    where="torch",
    host=True,
    samples=_batch_samples,
    errors=lambda: [
        ErrorSample(
            sample(T(5, 3), None, None, None, None, False, 0.1, 1e-5, True),
            RuntimeError,
            "must be defined",
        )
    ],
)
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """`nn.functional.batch_norm` with PyTorch's inner signature; `cudnn_enabled` changes nothing.

    Shape: `(N, C, *)`, all others `(C)` -> the same.

    Raises:
        RuntimeError: statistics of another number of channels, or none in evaluation.

    Example:
        >>> x, mean, var = torch.tensor([[1.0], [3.0]]), torch.ones(1), torch.full((1,), 4.0)
        >>> torch.batch_norm(x, None, None, mean, var, False, 0.1, 0.0, True)
        tensor([[0.],
                [1.]])
    """
    check_statistics(input, running_mean, running_var, training)
    return batch_normed(input, running_mean, running_var, weight, bias, training, momentum, eps)


def _update_samples() -> Iterator[Sample]:
    yield sample(T(4, 3, 2, grad=False), None, None, 0.1)
    yield sample(T(5, 3, grad=False), None, None, 0.1)
    running = T(3, grad=False), T(3, low=0.5, grad=False)
    yield sample(T(4, 3, 2, grad=False), *running, 0.3)


@op(
    kind="creation",
    host=True,
    samples=_update_samples,
    errors=lambda: [
        ErrorSample(sample(T(0, 3), None, None, 0.1), RuntimeError, "at least one element"),
        ErrorSample(sample(T(3), None, None, 0.1), IndexError, "out of range"),
        ErrorSample(
            sample(T(4, 3, dtype="i64"), None, None, 0.1), NotImplementedError, "implemented"
        ),
    ],
)
def batch_norm_update_stats(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    """Mean and variance (over N, not N - 1) of each channel; running statistics move towards them.

    Shape: `(N, C, *)`, `(C)`, `(C)` -> `(C)`, `(C)`. They move only where both are given, the
    variance towards the one over N - 1. No gradients.

    Raises:
        RuntimeError: no elements.
        IndexError: no dimension of channels.
        NotImplementedError: a dtype that is not floating.

    Example:
        >>> torch.batch_norm_update_stats(torch.tensor([[1.0], [3.0]]), None, None, 0.1)
        (tensor([2.]), tensor([1.]))
    """
    if input.ndim < 2:
        problem = f"Dimension out of range: got {list(input.shape)}"
        raise failure(IndexError, "batch_norm_update_stats", problem, "(N, C, *)")
    if input.numel() == 0:
        problem = f"input must have at least one element, got {list(input.shape)}"
        raise failure(RuntimeError, "batch_norm_update_stats", problem, "(N, C, *)")
    if not input.dtype.is_floating_point:
        problem = f"not implemented for {input.dtype}"
        raise failure(NotImplementedError, "batch_norm_update_stats", problem, "input.float()")
    samples = input.detach().transpose(0, 1).flatten(1)
    mixed = running_mean is not None and running_mean.dtype is not input.dtype
    samples = samples.to(running_mean.dtype) if mixed else samples
    mean = samples.mean(1)
    if running_mean is not None and running_var is not None:
        track_statistics(mean, samples.var(1), (running_mean, running_var), momentum)
    return mean, samples.var(1, correction=0)


def _instance_samples() -> Iterator[Sample]:
    yield sample(T(2, 3, 5), None, None, None, None, True, 0.1, 1e-5, False)
    yield sample(T(2, 3, 2, 2), *_PARAMETERS, False, 0.1, 1e-5, True)
    yield sample(T(2, 3, 5), *_PARAMETERS, True, 0.1, 1e-5, True)


@op(
    where="torch",
    host=True,
    samples=_instance_samples,
    errors=lambda: [
        ErrorSample(
            sample(T(2, 3, 5), None, None, None, None, False, 0.1, 1e-5, True),
            RuntimeError,
            "running_mean and running_var",
        )
    ],
)
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Each channel of each sample normalised over its positions; `cudnn_enabled` changes nothing.

    Shape: `(N, C, *)`, all others `(C)` -> the same.

    Args:
        running_mean, running_var: moved towards the mean of the samples' statistics.
        use_input_stats: False: normalise with the running statistics.

    Raises:
        RuntimeError: running statistics are to be used, and missing.

    Example:
        >>> x = torch.tensor([[[1.0, 3.0]]])
        >>> torch.instance_norm(x, None, None, None, None, True, 0.1, 0.0, True)
        tensor([[[-1.,  1.]]])
    """
    if not use_input_stats:
        if running_mean is None or running_var is None:
            problem = "Expected running_mean and running_var to be defined when use_input_stats "
            problem += "is false"
            raise failure(RuntimeError, "instance_norm", problem, "use_input_stats=True")
        return batch_normed(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if running_mean is not None or running_var is not None:
        samples = input.detach().flatten(2)
        statistics = samples.mean(2).mean(0), samples.var(2).mean(0)
        track_statistics(*statistics, (running_mean, running_var), momentum)
    return instance_normed.native(input, None, None, weight, bias, True, momentum, eps)


# ------------------------------------------------------------------------------ products


def _bilinear_samples() -> Iterator[Sample]:
    yield sample(T(5, 2), T(5, 3), T(4, 2, 3), T(4))
    yield sample(T(2, 5, 2), T(2, 5, 3), T(4, 2, 3))
    yield sample(T(2), T(3), T(4, 2, 3))


def _bilinear_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3, 4), T(3, 4), T(2, 4, 3)), RuntimeError, "input2 size")
    yield ErrorSample(sample(T(3, 4), T(3, 4), T(2, 3, 4)), RuntimeError, "input1 size")
    yield ErrorSample(sample(T(3, 4), T(2, 4), T(2, 4, 4)), RuntimeError, "do not match")
    yield ErrorSample(sample(T(3, 4), T(4), T(2, 4, 4)), RuntimeError, "do not match")
    yield ErrorSample(sample(T(3, 4), T(3, 4), T(2, 4, 4), T(3)), RuntimeError, "bias size")
    yield ErrorSample(sample(T(3, 4), T(3, 4), T(4, 4)), IndexError, "Dimension out of range")


def _check_bilinear(input1: Any, input2: Any, weight: Any, bias: Any) -> None:
    if weight.ndim != 3:
        message = f"Dimension out of range: weight is {shown(weight.shape)}"
        raise failure(IndexError, "bilinear", message, "a matrix per output, (O, I, J)")
    problem = None
    if not same_sizes(input1.shape[:-1], input2.shape[:-1]):
        sizes = f"{shown(input1.shape)} and {shown(input2.shape)}"
        problem = f"input dimensions do not match: {sizes}"
    elif not same(input1.shape[-1], weight.shape[1]):
        problem = f"input1 size does not match weight: {differ(input1.shape[-1], weight.shape[1])}"
    elif not same(input2.shape[-1], weight.shape[2]):
        problem = f"input2 size does not match weight: {differ(input2.shape[-1], weight.shape[2])}"
    elif bias is not None and not same(bias.shape[0], weight.shape[0]):
        problem = f"bias size does not match weight: {differ(bias.shape[0], weight.shape[0])}"
    if problem:
        raise failure(RuntimeError, "bilinear", f"{problem}", "(*, I), (*, J), (O, I, J), (O)")


@op(
    where="torch nn.functional",
    composite=True,
    autocast=untouched,
    samples=_bilinear_samples,
    errors=_bilinear_errors,
)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1^T A x2 + b for each matrix A of `weight`.

    Shape: `(*, I)`, `(*, J)`, `(O, I, J)`, `(O)` -> `(*, O)`.

    Raises:
        RuntimeError: sizes that do not fit.
        IndexError: `weight` has not three dimensions.

    Example:
        >>> F.bilinear(torch.ones(1, 2), torch.ones(1, 3), torch.ones(4, 2, 3))
        tensor([[6., 6., 6., 6.]])
    """
    _check_bilinear(input1, input2, weight, bias)
    operands = [x for x in (input1, input2, weight, bias) if x is not None]
    if len({x.dtype for x in operands}) > 1:
        problem = "All tensors must have the same dtype, got "
        problem += f"{', '.join(str(x.dtype) for x in operands)}"
        raise failure(RuntimeError, "bilinear", problem, "convert them to one dtype")
    outputs, inner1, inner2 = weight.shape
    matrix = reshape(permute(weight, (1, 0, 2)), (inner1, outputs * inner2))
    left = reshape(matmul(input1, matrix), (*input1.shape[:-1], outputs, inner2))
    result = total(mul(left, unsqueeze(input2, -2)), -1)
    return result if bias is None else add(result, bias)


_CONVOLUTIONS = tuple(getattr(convolutions, f"conv{n}d") for n in (1, 2, 3))
_TRANSPOSES = tuple(getattr(convolutions, f"conv_transpose{n}d") for n in (1, 2, 3))


def _convolution_samples() -> Iterator[Sample]:
    yield sample(T(2, 4, 5), T(6, 2, 3), T(6), (2,), (1,), (1,), False, (0,), 2)
    yield sample(T(1, 2, 5, 4), T(3, 2, 2, 2), None, (1,), (0,), (2,), False, (0,), 1)
    yield sample(T(1, 2, 3, 4), T(2, 3, 2, 2), T(3), (2, 1), (0,), (1,), True, (1, 0), 1)


def _convolution_errors() -> Iterator[ErrorSample]:
    flat = sample(T(3, 4), T(2, 3, 2), None, (1,), (0,), (1,), False, (0,), 1)
    yield ErrorSample(flat, RuntimeError, "3-dimensional")


@op(
    where="torch",
    layout="image",
    autocast=untouched,
    samples=_convolution_samples,
    errors=_convolution_errors,
)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolution, or its transpose, in as many dimensions as the weight has.

    Shape: `(N, C, *)`, `(O, C / groups, *)`, `(O)` -> `(N, O, *)`; the transpose's weight is
    `(C, O / groups, *)`.

    Args:
        stride, padding, dilation, output_padding: one number, or one per dimension.

    Raises:
        RuntimeError: input and weight differ in rank, or sizes that do not fit.

    Example:
        >>> x, weight = torch.ones(1, 1, 4), torch.ones(1, 1, 2)
        >>> torch.convolution(x, weight, None, [2], [0], [1], False, [0], 1)
        tensor([[[2., 2.]]])
    """
    rank = weight.ndim
    if not (3 <= rank <= 5 and input.ndim == rank):
        problem = f"Expected {rank}-dimensional input for {rank}-dimensional weight "
        problem += f"{shown(weight.shape)}, but got {shown(input.shape)}"
        raise failure(RuntimeError, "convolution", problem, "(N, C, *)")
    if transposed:
        options = (stride, padding, output_padding, groups, dilation)
        return _TRANSPOSES[rank - 3](input, weight, bias, *options)
    options = (stride, padding, dilation, groups)
    return _CONVOLUTIONS[rank - 3](input, weight, bias, *options)


def _tbc_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(5, 3), T(2, 3, 4), T(4)), RuntimeError, "3 dims")
    yield ErrorSample(sample(T(5, 2, 3), T(2, 4, 4), T(4)), RuntimeError, "channels")
    yield ErrorSample(sample(T(5, 2, 3), T(2, 3, 4), T(3)), RuntimeError, "Bias size")


@op(
    where="torch nn.functional",
    composite=True,
    samples=lambda: [sample(T(5, 2, 3), T(2, 3, 4), T(4), 1)],
    errors=_tbc_errors,
    autocast="lower",
)
def conv_tbc(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution over time of sequences whose first dimension is time.

    Shape: `(T, N, C)`, `(K, C, O)`, `(O)` -> `(T + 2 pad - K + 1, N, O)`.

    Raises:
        RuntimeError: ranks or sizes that do not fit.

    Example:
        >>> torch.conv_tbc(torch.ones(3, 1, 1), torch.ones(2, 1, 1), torch.zeros(1))
        tensor([[[2.]],
        <BLANKLINE>
                [[2.]]])
    """
    problem = None
    if self.ndim != 3 or weight.ndim != 3 or bias.ndim != 1:
        problem = "Input and weight must have 3 dims: time, batch, channel; bias must have 1"
    elif not same(self.shape[2], weight.shape[1]):
        problem = "Input dim 2 (channels) is not dim 1 of weight: "
        problem += differ(self.shape[2], weight.shape[1], "and")
    elif not same(bias.shape[0], weight.shape[2]):
        problem = "Bias size must equal dim 2 of weight: "
        problem += differ(bias.shape[0], weight.shape[2], "and")
    if problem:
        raise failure(RuntimeError, "conv_tbc", f"{problem}", "(T, N, C), (K, C, O), (O)")
    images, kernel = permute(self, (1, 2, 0)), permute(weight, (2, 1, 0))
    convolved = _CONVOLUTIONS[0](images, kernel, bias, (1,), (pad,))
    return contiguous(permute(convolved, (2, 0, 1)))
