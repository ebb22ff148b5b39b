"""Gradients of convolutions by themselves: `nn.grad`, and the inner `convolution_backward`.

The tape needs none of this: these are the convolution's own gradient primitives, for programs that
call them by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv
from flambeau.language.definition import op
from flambeau.language.layout import same
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import SymInt, Tensor
from flambeau.ops.cast_rules import untouched
from flambeau.ops.common import shown, static_size
from flambeau.ops.neural import convolution
from flambeau.prims.common import FLOATS
from flambeau.prims.convolution import convolution_input, convolution_weight

_NUMBERS = "int[] stride=1, int[] padding=0, int[] dilation=1, int groups=1"


def _extents(
    name: str, size: Sequence[Size], weight: Sequence[Size], options: Sequence[Any]
) -> tuple[list[tuple[int, ...]], list[Size]]:
    """Stride, padding and dilation per dimension, and the sizes of the convolution's result.

    Raises:
        RuntimeError: input and weight have no sizes that fit each other.
    """
    stride, padding, dilation, groups = options
    count = len(weight) - 2
    if not 1 <= count <= 3 or len(size) != count + 2:
        problem = f"Expected {len(weight)}-dimensional input for {len(weight)}-dimensional weight "
        problem += f"{shown(weight)}, but got sizes {shown(size)}"
        raise failure(RuntimeError, name, problem, "(N, C, ...)")
    names = {"stride": stride, "padding": padding, "dilation": dilation}
    steps = [convolution.numbers(name, what, value, count) for what, value in names.items()]
    convolution.check_numbers(name, *steps, groups)
    if not same(size[1], weight[1] * groups):
        problem = f"Given groups={groups}, weight of size {shown(weight)}, expected input "
        problem += f"{shown(size)} to have {weight[1] * groups} channels"
        raise failure(RuntimeError, name, problem, "C = groups * C_weight")
    extents = [
        floordiv(n + 2 * p - d * (static_size(k) - 1) - 1, s) + 1
        for n, k, s, p, d in zip(size[2:], weight[2:], *steps, strict=True)
    ]
    return steps, [size[0], weight[0], *extents]


def _check(name: str, grad: Node, expected: Sequence[Size], other: Node) -> None:
    fits = grad.ndim == len(expected)
    if not fits or not all(same(a, b) for a, b in zip(grad.shape, expected, strict=True)):
        problem = f"grad_output is {shown(grad.shape)}, but the convolution's result would be "
        problem += f"{shown(expected)}"
        raise failure(RuntimeError, name, problem, "the sizes of its result")
    if grad.dtype != other.dtype:
        problem = f"expected scalar type {other.dtype} but found {grad.dtype}"
        raise failure(RuntimeError, name, problem, "all operands of one dtype")
    if grad.dtype not in FLOATS:
        problem = f"not implemented for {grad.dtype}"
        raise failure(NotImplementedError, name, problem, "real floating-point operands")


def _wide() -> Iterator[Sample]:
    yield sample(T(2, 4, 4, 3), T(4, 3, 3, 2), (2, 3, 6, 4))
    yield sample(T(2, 4, 3), T(4, 2, 3), (2, 4, 6), 2, 1, 1, 2)


@op(
    f"_convolution_input_gradient(Tensor grad_output, Tensor weight, SymInt[] size, {_NUMBERS})"
    " -> Tensor",
    where="private",
    promote="keep",
    samples=_wide,
)
def convolution_input_gradient(
    grad_output: Node,
    weight: Node,
    size: Sequence[Size],
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Node:
    """The gradient of a convolution's input, which has the sizes *size*."""
    name = "conv_input"
    options = (stride, padding, dilation, groups)
    (strides, low, steps), expected = _extents(name, size, weight.shape, options)
    _check(name, grad_output, expected, weight)
    return convolution_input(grad_output, weight, size[2:], strides, low, steps, groups)


def _deep() -> Iterator[Sample]:
    yield sample(T(2, 4, 4, 3), T(2, 3, 6, 4), (4, 3, 3, 2))
    yield sample(T(2, 4, 3), T(2, 4, 6), (4, 2, 3), 2, 1, 1, 2)


@op(
    f"_convolution_weight_gradient(Tensor grad_output, Tensor input, int[] size, {_NUMBERS})"
    " -> Tensor",
    where="private",
    promote="keep",
    samples=_deep,
)
def convolution_weight_gradient(
    grad_output: Node,
    input: Node,
    size: Sequence[int],
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Node:
    """The gradient of a convolution's weight, which has the sizes *size*."""
    name = "conv_weight"
    options = (stride, padding, dilation, groups)
    (strides, low, steps), expected = _extents(name, input.shape, size, options)
    _check(name, grad_output, expected, input)
    return convolution_weight(grad_output, input, size, strides, low, steps, groups)


def _backward_samples() -> Iterator[Sample]:
    numbers = ((1,), (0,), (1,), False, (0,), 1, (True, True, True))
    yield sample(T(2, 4, 4), T(2, 3, 6), T(4, 3, 3), (4,), *numbers)
    numbers = ((2,), (1,), (1,), True, (1,), 2, (True, True, True))
    yield sample(T(2, 6, 6), T(2, 4, 3), T(4, 3, 3), (6,), *numbers)


def _backward_errors() -> Iterator[ErrorSample]:
    numbers = ((1,), (0,), (1,), False, (0,), 1, (True, True, True))
    wrong = sample(T(2, 4, 5), T(2, 3, 6), T(4, 3, 3), (4,), *numbers)
    yield ErrorSample(wrong, RuntimeError, "would be")


@op(
    where="ops.aten",
    host=True,
    autocast=untouched,
    samples=_backward_samples,
    errors=_backward_errors,
)
def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[SymInt] | None,
    stride: Sequence[SymInt],
    padding: Sequence[SymInt],
    dilation: Sequence[SymInt],
    transposed: bool,
    output_padding: Sequence[SymInt],
    groups: SymInt,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a convolution's input, weight and bias; None for those not asked for.

    Args:
        grad_output: gradient of its result.
        bias_sizes: sizes of the bias; None where there is none.
        transposed: whether it was a transposed convolution, of *output_padding*.
        output_mask: which of the three are asked for.

    Raises:
        RuntimeError: sizes or dtypes that do not fit.
        NotImplementedError: no real floating-point numbers.

    Example:
        >>> one = torch.ones(1, 1, 3)
        >>> mask = (True, False, True)
        >>> torch.ops.aten.convolution_backward(
        ...     one, one, one[:, :, :1], (1,), (1,), (0,), (1,), False, (0,), 1, mask
        ... )
        (tensor([[[1., 1., 1.]]]), None, tensor([3.]))
    """
    del bias_sizes, output_padding  # the sizes of the operands say as much
    options = (stride, padding, dilation, groups)
    wide, deep = convolution_input_gradient.native, convolution_weight_gradient.native
    dx = dw = db = None
    if transposed:
        if output_mask[0]:
            rank = weight.ndim - 3
            dx = _FORWARD[rank].native(grad_output, weight, None, *options)
        if output_mask[1]:
            dw = deep(input, grad_output, weight.shape, *options)
    else:
        dx = wide(grad_output, weight, input.shape, *options) if output_mask[0] else None
        dw = deep(grad_output, input, weight.shape, *options) if output_mask[1] else None
    if output_mask[2]:
        db = grad_output.sum([0, *range(2, grad_output.ndim)])
    return dx, dw, db


_FORWARD = (convolution.conv1d, convolution.conv2d, convolution.conv3d)
