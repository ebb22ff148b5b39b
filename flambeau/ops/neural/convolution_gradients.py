"""Gradients of convolutions by themselves: `nn.grad`, and the inner `convolution_backward`.

The tape needs none of this: these are the convolution's own gradient primitives, for programs that
call them by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv
from flambeau.language.definition import op
from flambeau.language.layout import same
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.cast_rules import untouched
from flambeau.ops.common import shown, static_size
from flambeau.ops.neural import convolution
from flambeau.prims.common import FLOATS
from flambeau.prims.convolution import convolution_input, convolution_weight


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


def _input_gradient(grad: Node, weight: Node, size: Sequence[Size], *options: Any) -> Node:
    (strides, low, steps), expected = _extents("conv_input", size, weight.shape, options)
    _check("conv_input", grad, expected, weight)
    return convolution_input(grad, weight, size[2:], strides, low, steps, options[3])


def _weight_gradient(grad: Node, x: Node, size: Sequence[Size], *options: Any) -> Node:
    (strides, low, steps), expected = _extents("conv_weight", x.shape, size, options)
    _check("conv_weight", grad, expected, x)
    sizes = [static_size(n) for n in size]
    return convolution_weight(grad, x, sizes, strides, low, steps, options[3])


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
    promote="keep",
    autocast=untouched,
    samples=_backward_samples,
    errors=_backward_errors,
)
def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
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
    dx = dw = db = None
    if output_mask[0] and transposed:
        dx = _FORWARD[weight.ndim - 3](grad_output, weight, None, *options)
    elif output_mask[0]:
        dx = _input_gradient(grad_output, weight, input.shape, *options)
    if output_mask[1]:
        pair = (input, grad_output) if transposed else (grad_output, input)
        dw = _weight_gradient(*pair, weight.shape, *options)
    if output_mask[2]:
        dims = (0, *range(2, grad_output.ndim))
        db = prims.reduce_dims("sum", grad_output, dims, False)
    return dx, dw, db


_FORWARD = (convolution.conv1d, convolution.conv2d, convolution.conv3d)
