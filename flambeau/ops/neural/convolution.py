"""Convolutions and their transposes: checks, then the primitives of `prims.convolution`.

Integers and complex numbers, for which there are no kernels, are convolved by sliding windows and
one matrix product per group: the windows of the input form a matrix with a row per weight element
of a channel and a column per output position (im2col, Chellapilla et al. 2006). A transposed
convolution runs the other way: product first, then every window is added at its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, prod
from flambeau.language.definition import given_dtype, op
from flambeau.language.layout import same
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.ops.common import shown, static_size
from flambeau.prims.common import FLOATS
from flambeau.prims.convolution import convolution, convolution_input

_PUBLIC = {
    "f16": "c10::Half", "bf16": "c10::BFloat16", "f32": "float", "f64": "double", "i64": "long",
    "i32": "int", "i16": "short", "i8": "signed char", "u8": "unsigned char", "bool": "bool",
}  # fmt: skip


def numbers(name: str, what: str, value: Any, count: int) -> tuple[int, ...]:
    """An `int[]` argument as one number per spatial dimension.

    Raises:
        RuntimeError: a list of another length.
    """
    values = (value,) if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        return tuple(static_size(v) for v in values) * count
    if len(values) != count:
        problem = f"expected {what} to be a single integer value or a list of {count} values to "
        problem += f"match the convolution dimensions, but got {what}={list(values)}"
        raise failure(RuntimeError, name, problem, "one number per spatial dimension")
    return tuple(static_size(v) for v in values)


def _batched(name: str, x: Node, count: int) -> tuple[Node, bool]:
    """The input with a batch dimension, and whether it had one."""
    if x.ndim == count + 2:
        return x, True
    if x.ndim == count + 1:
        return prims.unsqueeze(x, 0), False
    problem = f"Expected {count + 1}D (unbatched) or {count + 2}D (batched) input to {name}, but "
    problem += f"got input of size: {shown(x.shape)}"
    raise failure(RuntimeError, name, problem, "(N, C, ...) or (C, ...)")


def check_numbers(
    name: str, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> None:
    """Refuses numbers that no convolution has.

    Raises:
        RuntimeError: stride, dilation or groups below 1, negative padding.
    """
    if any(s <= 0 for s in stride):
        raise failure(RuntimeError, name, "non-positive stride is not supported", "stride >= 1")
    if any(p < 0 for p in padding):
        raise failure(RuntimeError, name, "negative padding is not supported", "slice the input")
    if any(d <= 0 for d in dilation):
        raise failure(RuntimeError, name, "dilation should be greater than zero", "dilation >= 1")
    if groups <= 0:
        raise failure(RuntimeError, name, "non-positive groups is not supported", "groups >= 1")


def _check_types(name: str, x: Node, weight: Node, bias: Node | None) -> None:
    input_dtype = given_dtype(x)
    for operand, what in ((weight, "weight"), (bias, "bias")):
        if operand is not None and given_dtype(operand) != input_dtype:
            dtype = given_dtype(operand)
            problem = f"Input type ({_PUBLIC.get(input_dtype, input_dtype)}) and {what} type "
            problem += f"({_PUBLIC.get(dtype, dtype)}) should be the same"
            raise failure(RuntimeError, name, problem, "cast one of them")


def _check_extents(name: str, x: Node, weight: Node, channels: Size) -> None:
    """Checks that no sizes but the batch and the input's channels are zero."""
    if any(same(n, 0) for n in weight.shape[2:]) or same(channels, 0):
        problem = "expected a weight with at least one output channel and one element per kernel "
        problem += f"dimension, but got weight of size {shown(weight.shape)}"
        raise failure(RuntimeError, name, problem, "kernel_size >= 1 and out_channels >= 1")
    if any(same(n, 0) for n in x.shape[2:]):
        problem = "Only zero batch or zero channel inputs are supported, but got input shape: "
        problem += f"{shown(x.shape)}"
        raise failure(RuntimeError, name, problem, "skip images without elements")


def _check_bias(name: str, weight: Node, bias: Node | None, channels: Size) -> None:
    if bias is not None and not (bias.ndim == 1 and same(bias.shape[0], channels)):
        problem = f"Given weight of size {shown(weight.shape)}, expected bias to be 1-dimensional "
        problem += f"with {shown([channels])[1:-1]} elements, but got bias of size "
        problem += f"{shown(bias.shape)} instead"
        raise failure(RuntimeError, name, problem, "one bias per output channel")


def _check_channels(name: str, x: Node, weight: Node, groups: int) -> None:
    if weight.ndim != x.ndim:
        problem = f"weight should have {x.ndim} dimensions, but got a tensor of size "
        problem += f"{shown(weight.shape)}"
        raise failure(RuntimeError, name, problem, "(out_channels, in_channels / groups, *kernel)")
    channels = weight.shape[1] * groups
    if not same(x.shape[1], channels):
        problem = f"Given groups={groups}, weight of size {shown(weight.shape)}, expected "
        problem += f"input{shown(x.shape)} to have {shown([channels])[1:-1]} channels, but got "
        problem += f"{shown(x.shape[1:2])[1:-1]} channels instead"
        raise failure(RuntimeError, name, problem, "the input is (N, C, ...)")
    if groups > 1 and static_size(weight.shape[0]) % groups:
        problem = f"Given groups={groups}, expected weight to be divisible by {groups} at "
        problem += f"dimension 0, but got weight of size {shown(weight.shape)} instead"
        raise failure(RuntimeError, name, problem, "out_channels is a multiple of groups")


def _per_group(channels: Size, groups: int) -> Size:
    return channels if groups == 1 else static_size(channels) // groups


def add_windows(
    x: Node, dimension: int, extent: Size, step: int, dilation: int, length: int
) -> Node:
    """`prims.overlap_add` whose gradient is the windows themselves, not a scatter."""
    if length == 1 and step == 1 and same(extent, x.shape[dimension]):
        return prims.squeeze(x, -1)
    value = prims.overlap_add(x, dimension, extent, step, dilation)
    return prims.with_derivative(
        value, x, rule="add_windows", dimension=dimension, step=step, dilation=dilation
    )


def _add_windows_rule(grad: Node, out: Node, x: Node) -> tuple[Node]:
    dimension = out.attribute("dimension")
    step, dilation = out.attribute("step"), out.attribute("dilation")
    gradient_windows = windows_of(grad, dimension, x.shape[-1], step, dilation)
    return (prims.slice(gradient_windows, dimension, 0, x.shape[dimension]),)


prims.register_rule("add_windows", _add_windows_rule)


def windows_of(x: Node, dimension: int, length: Any, step: int, dilation: int) -> Node:
    """`prims.windows`; windows that stand side by side are only a reshape."""
    if not isinstance(length, int):
        return prims.windows(x, dimension, length, step, dilation)
    if length == 1 and step == 1:
        return prims.unsqueeze(x, -1)
    if length != step or (dilation != 1 and length > 1):
        return prims.windows(x, dimension, length, step, dilation)
    count = floordiv(x.shape[dimension], length)
    used = prims.slice(x, dimension, 0, count * length)
    split = (*x.shape[:dimension], count, length, *x.shape[dimension + 1 :])
    order = [d for d in range(x.ndim + 1) if d != dimension + 1]
    return prims.permute(prims.reshape(used, split), (*order, dimension + 1))


def _check_kernel(
    name: str, x: Node, low: Sequence[int], high: Sequence[int], kernel: Any, dilation: Any
) -> None:
    sizes = [n + a + b for n, a, b in zip(x.shape[2:], low, high, strict=True)]
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    if any(less(size, span) for size, span in zip(sizes, spans, strict=True)):
        extents_text = " x ".join(shown([s])[1:-1] for s in sizes)
        problem = f"Calculated padded input size per channel: ({extents_text}). Kernel size: "
        problem += f"({' x '.join(map(str, spans))}). Kernel size can't be greater than actual "
        problem += "input size"
        raise failure(RuntimeError, name, problem, "pad the input")


def _columns(
    x: Node, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Node:
    """(N, C, *S) as (C, *K, N, *out): every output position's window."""
    count = len(kernel)
    for d in range(count):
        x = windows_of(x, 2 + d, kernel[d], stride[d], dilation[d])
    order = (1, *range(2 + count, 2 + 2 * count), 0, *range(2, 2 + count))
    return prims.permute(x, order)


def convolve(
    name: str,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: tuple[Sequence[int], Sequence[int]],
    dilation: Sequence[int],
    groups: int,
) -> Node:
    """The convolution of (N, C, *S) with checked numbers; `padding` is before and after."""
    count = len(stride)
    low, high = padding
    _check_channels(name, x, weight, groups)
    _check_types(name, x, weight, bias)
    _check_bias(name, weight, bias, weight.shape[0])
    _check_extents(name, x, weight, weight.shape[0])
    kernel = [static_size(k) for k in weight.shape[2:]]
    _check_kernel(name, x, low, high, kernel, dilation)
    if x.dtype in FLOATS:
        size = [
            floordiv(n + a + b - d * (k - 1) - 1, s) + 1
            for n, a, b, k, s, d in zip(
                x.shape[2:], low, high, kernel, stride, dilation, strict=True
            )
        ]
        out = convolution(x, weight, size, stride, low, dilation, groups)
    else:
        padded = prims.pad(x, (0, 0, *low), (0, 0, *high))
        out = _by_windows(padded, weight, kernel, stride, dilation, groups)
    if bias is None:
        return out
    return out + prims.reshape(bias, (1, weight.shape[0], *[1] * count))


def _by_windows(
    x: Node,
    weight: Node,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Node:
    """The convolution of a padded image as a product: for numbers no kernel knows."""
    columns = _columns(x, kernel, stride, dilation)
    places = columns.shape[1 + len(kernel) :]
    inner = _per_group(x.shape[1], groups)
    outer = _per_group(weight.shape[0], groups)
    rows = inner * prod(kernel)
    left = prims.reshape(weight, (groups, outer, rows))
    right = prims.reshape(columns, (groups, rows, prod(places)))
    product = prims.reshape(prims.matmul(left, right), (weight.shape[0], *places))
    return prims.transpose(product, 0, 1)


def _conv(
    name: str,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Node:
    count = int(name[-2])
    x, batched = _batched(name, x, count)
    strides, steps = numbers(name, "stride", stride, count), dilation
    steps = numbers(name, "dilation", dilation, count)
    if isinstance(padding, str):
        if weight.ndim != count + 2:
            _check_channels(name, x, weight, groups)
        low, high = _named_padding(name, padding, weight, strides, steps)
    else:
        low = high = numbers(name, "padding", padding, count)
    check_numbers(name, strides, low, steps, groups)
    out = convolve(name, x, weight, bias, strides, (low, high), steps, groups)
    return out if batched else prims.squeeze(out, 0)


def _named_padding(
    name: str, padding: str, weight: Node, stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if padding == "valid":
        return (0,) * len(stride), (0,) * len(stride)
    if padding != "same":
        problem = f"Invalid padding string: '{padding}'"
        raise failure(RuntimeError, name, problem, "use 'valid' or 'same'")
    if any(s != 1 for s in stride):
        problem = "padding='same' is not supported for strided convolutions"
        raise failure(RuntimeError, name, problem, "give the padding as numbers")
    total = [d * (static_size(k) - 1) for k, d in zip(weight.shape[2:], dilation, strict=True)]
    low = tuple(t // 2 for t in total)
    if any(t % 2 for t in total):
        late("flambeau.core.warned").warn_once(
            "Using padding='same' with even kernel lengths and odd dilation may require a "
            "zero-padded copy of the input be created"
        )
    return low, tuple(t - a for t, a in zip(total, low, strict=True))


def _full_length(count: int) -> tuple[int, ...]:
    return (7, 6, 5)[:count]


def _conv_samples(count: int) -> Any:
    def make() -> Iterator[Sample]:
        space, kernel = _full_length(count), (3, 2, 3)[:count]
        yield sample(T(2, 3, *space), T(4, 3, *kernel), T(4))
        yield sample(T(3, *space), T(4, 3, *kernel))
        yield sample(T(2, 4, *space), T(6, 2, *kernel), T(6), 2, 1, 1, 2)
        yield sample(T(1, 2, *space), T(3, 2, *kernel), None, padding="same")
        yield sample(T(2, 4, *space), T(4, 1, *kernel), T(4), padding=2, dilation=2, groups=4)
        yield sample(T(2, 3, *space), T(4, 3, *[1] * count), T(4))
        yield sample(T(0, 3, *space), T(4, 3, *kernel))

    return make


def _conv_errors(count: int) -> Any:
    def make() -> Iterator[ErrorSample]:
        space, kernel = _full_length(count), (3, 2, 3)[:count]
        wrong = sample(T(2, 2, *space), T(4, 3, *kernel))
        yield ErrorSample(wrong, RuntimeError, "channels")
        wrong = sample(T(3), T(4, 3, *kernel))
        yield ErrorSample(wrong, RuntimeError, "Expected")
        wrong = sample(T(2, 3, *[1] * count), T(4, 3, *kernel))
        yield ErrorSample(wrong, RuntimeError, "Kernel size can't be greater")

    return make


_ARGUMENTS = "Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1"


def _conv_text(count: int) -> str:
    sizes = ", ".join("3" * count)
    return f"""Cross-correlation of the input with the weight over {count} dimension(s).

    Shape: input `(N, C, {", ".join("DHW"[3 - count :])})` or without N, weight
    `(O, C / groups, *kernel)`, bias `(O)` -> `(N, O, *out)`,
    out = floor((size + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.

    Args:
        padding: zeros on both sides; numbers, "valid" (none) or "same" (stride 1 only).
        groups: channels are split into groups that do not see each other.

    Raises:
        RuntimeError: shapes, dtypes or numbers do not fit.

    Example:
        >>> torch.conv{count}d(torch.ones(1, 1, {sizes}), torch.ones(1, 1, {sizes})).item()
        {3.0**count}
    """


def _define(count: int) -> Any:
    name = f"conv{count}d"

    def body(
        input: Node,
        weight: Node,
        bias: Node | None,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
    ) -> Node:
        return _conv(name, input, weight, bias, stride, padding, dilation, groups)

    body.__doc__ = _conv_text(count)
    definition = op(
        f"{name}({_ARGUMENTS}, int[] padding=0, int[] dilation=1, int groups=1) -> Tensor",
        where="torch nn.functional",
        promote="keep",
        layout="image",
        autocast="lower",
        samples=_conv_samples(count),
        errors=_conv_errors(count),
    )(body)
    definition.overload(
        f"{name}.padding({_ARGUMENTS}, str padding='valid', int[] dilation=1, int groups=1)"
        " -> Tensor",
        samples=None,
        errors=None,
    )(body)
    return definition


conv1d, conv2d, conv3d = (_define(count) for count in (1, 2, 3))


# ------------------------------------------------------------------------------ transposed


def _transposed_extents(
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    extra: Sequence[int],
    dilation: Sequence[int],
) -> list[tuple[Size, Size]]:
    """Per dimension: the extent all windows cover (with output padding), and the result's."""
    extents = []
    for d, size in enumerate(x.shape[2:]):
        full = (size - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1 + extra[d]
        extents.append((full, full - 2 * padding[d]))
    return extents


def _check_transposed(name: str, x: Node, weight: Node, groups: int) -> None:
    if weight.ndim != x.ndim or not same(x.shape[1], weight.shape[0]):
        raise RuntimeError(
            f"[{name}] Given transposed=1, weight of size {shown(weight.shape)}, expected input"
            f"{shown(x.shape)} to have {shown(weight.shape[:1])[1:-1]} channels, but got "
            f"{shown(x.shape[1:2])[1:-1]} channels instead\n"
            "hint: the weight is (in_channels, out_channels / groups, *kernel)"
        )
    if groups > 1 and static_size(weight.shape[0]) % groups:
        problem = f"Given groups={groups}, expected weight to be divisible by {groups} at "
        problem += f"dimension 0, but got weight of size {shown(weight.shape)} instead"
        raise failure(RuntimeError, name, problem, "in_channels is a multiple of groups")


def _transposed_columns(x: Node, weight: Node, kernel: Sequence[int], groups: int) -> Node:
    """The windows to add up: (N, O, *S, *K)."""
    count = len(kernel)
    inner, outer = _per_group(weight.shape[0], groups), weight.shape[1]
    places = (x.shape[0], *x.shape[2:])
    left = prims.reshape(weight, (groups, inner, outer * prod(kernel)))
    right = prims.reshape(prims.transpose(x, 0, 1), (groups, inner, prod(places)))
    product = prims.matmul(prims.transpose(left, 1, 2), right)
    spread = prims.reshape(product, (outer * groups, *kernel, *places))
    order = (1 + count, 0, *range(2 + count, 2 + 2 * count), *range(1, 1 + count))
    return prims.permute(spread, order)


def _check_output_padding(
    name: str, extra: Sequence[int], strides: Sequence[int], steps: Sequence[int]
) -> None:
    for e, s, d in zip(extra, strides, steps, strict=True):
        if e < 0 or e >= max(s, d):
            raise RuntimeError(
                f"[{name}] output padding must be smaller than either stride or dilation, but got "
                f"output_padding: {list(extra)} stride: {list(strides)} dilation: {list(steps)}\n"
                "hint: it only chooses among sizes the stride makes ambiguous"
            )


def _conv_transposed(
    name: str,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Node:
    count = int(name[-2])
    x, batched = _batched(name, x, count)
    strides, pads = numbers(name, "stride", stride, count), numbers(name, "padding", padding, count)
    extra = numbers(name, "output_padding", output_padding, count)
    steps = numbers(name, "dilation", dilation, count)
    check_numbers(name, strides, pads, steps, groups)
    _check_transposed(name, x, weight, groups)
    _check_types(name, x, weight, bias)
    _check_bias(name, weight, bias, weight.shape[1] * groups)
    _check_extents(name, x, weight, weight.shape[1])
    _check_output_padding(name, extra, strides, steps)
    kernel = [static_size(k) for k in weight.shape[2:]]
    extents = _transposed_extents(x, kernel, strides, pads, extra, steps)
    if any(less(length, 1) for _, length in extents):
        problem = f"Given input size per channel: {shown(x.shape[2:])}. Calculated output size "
        problem += "per channel is too small"
        raise failure(RuntimeError, name, problem, "less padding")
    if x.dtype in FLOATS:
        out = convolution_input(x, weight, [n for _, n in extents], strides, pads, steps, groups)
    else:
        out = _transposed_columns(x, weight, kernel, groups)
        for d in reversed(range(count)):
            full, length = extents[d]
            out = add_windows(out, 2 + d, full, strides[d], steps[d], kernel[d])
            out = prims.slice(out, 2 + d, pads[d], length)
    if bias is not None:
        out = out + prims.reshape(bias, (1, bias.shape[0], *[1] * count))
    return out if batched else prims.squeeze(out, 0)


def _transposed_samples(count: int) -> Any:
    def make() -> Iterator[Sample]:
        space, kernel = (5, 4, 3)[:count], (3, 2, 3)[:count]
        yield sample(T(2, 3, *space), T(3, 4, *kernel), T(4))
        yield sample(T(3, *space), T(3, 4, *kernel))
        yield sample(T(2, 4, *space), T(4, 3, *kernel), T(6), 2, 1, 1, 2)
        yield sample(T(1, 2, *space), T(2, 3, *kernel), None, 3, 1, 2, 1, 2)
        yield sample(T(2, 3, *space), T(3, 4, *[1] * count), T(4))

    return make


def _define_transposed(count: int) -> Any:
    name = f"conv_transpose{count}d"

    def body(
        input: Node,
        weight: Node,
        bias: Node | None,
        stride: Any,
        padding: Any,
        output_padding: Any,
        groups: int,
        dilation: Any,
    ) -> Node:
        return _conv_transposed(
            name, input, weight, bias, stride, padding, output_padding, groups, dilation
        )

    body.__doc__ = f"""The gradient of `conv{count}d` with respect to its input, as a layer.

    Shape: input `(N, C, *S)` or `(C, *S)`, weight `(C, O / groups, *kernel)`, bias `(O)` ->
    `(N, O, *out)`, out = (S - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.

    Raises:
        RuntimeError: shapes, dtypes or numbers do not fit.

    Example:
        >>> x, w = torch.ones(1, 1, {", ".join("2" * count)}), torch.ones(1, 1, \
{", ".join("2" * count)})
        >>> torch.{name}(x, w, stride=2).sum().item()
        {4.0**count}
    """
    return op(
        f"{name}({_ARGUMENTS}, int[] padding=0, int[] output_padding=0, int groups=1, "
        "int[] dilation=1) -> Tensor",
        where="torch nn.functional",
        promote="keep",
        layout="image",
        autocast="lower",
        samples=_transposed_samples(count),
    )(body)


conv_transpose1d, conv_transpose2d, conv_transpose3d = (
    _define_transposed(count) for count in (1, 2, 3)
)
