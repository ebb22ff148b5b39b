"""Pooling: maxima, means and norms over sliding windows.

A window is a dimension that `prims.windows` adds; pooling reduces it. The gradient of a maximum
goes to the first element that reaches it, as in PyTorch: the places of the maxima are part of its
rule.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from flambeau import prims
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, prod
from flambeau.language import layout
from flambeau.language.definition import op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.ops.broadcasting import averaged, is_float, unsupported
from flambeau.ops.cast_rules import by_arguments
from flambeau.ops.common import normalise_dim, shown
from flambeau.ops.neural.convolution import numbers, windows_of

_F = "nn.functional"
_LEAST = {"u8": 0, "i8": -(2**7), "i16": -(2**15), "i32": -(2**31), "i64": -(2**63)}
_LONG = 64  # elements of a window up to which nobody asks whether they lie inside of the image
_WINDOW = "int[] kernel_size, int[]? stride=None, int[] padding=0"


class Windows:
    """How windows lie over the spatial dimensions.

    Attributes:
        kernel, stride, padding, dilation: one number per spatial dimension.
        out: output sizes.
        high: padding after each dimension, so that exactly `out` windows fit.
    """

    def __init__(
        self, name: str, x: Node, count: int, kernel: Any, stride: Any, padding: Any, dilation: Any,
        ceil_mode: bool
    ) -> None:  # fmt: skip
        self.kernel = numbers(name, "kernel_size", kernel, count)
        steps = kernel if stride is None or stride == () else stride
        self.stride = numbers(name, "stride", steps, count)
        self.padding = numbers(name, "padding", padding, count)
        self.dilation = numbers(name, "dilation", dilation, count)
        self._check(name)
        self.out: list[Size] = []
        self.high: list[Size] = []
        for d, size in enumerate(x.shape[x.ndim - count :]):
            out, high = self._extent(name, x, d, size, ceil_mode)
            self.out.append(out)
            self.high.append(high)

    def _check(self, name: str) -> None:
        for what in ("kernel_size", "stride", "dilation"):
            values = self.kernel if what == "kernel_size" else getattr(self, what)
            if any(v <= 0 for v in values):
                problem = f"{what} should be greater than zero, but got {list(values)}"
                raise failure(RuntimeError, name, problem, f"{what} >= 1")
        for pad, kernel, dilation in zip(self.padding, self.kernel, self.dilation, strict=True):
            if pad < 0 or pad > ((kernel - 1) * dilation + 1) // 2:
                problem = "pad should be at most half of effective kernel size, but got "
                problem += f"pad={pad}, kernel_size={kernel} and dilation={dilation}"
                raise failure(RuntimeError, name, problem, "pad the input yourself")

    def _extent(self, name: str, x: Node, d: int, size: Size, ceil_mode: bool) -> tuple[Size, Size]:
        stride, pad = self.stride[d], self.padding[d]
        span = self.dilation[d] * (self.kernel[d] - 1) + 1
        room = size + 2 * pad - span
        if not ceil_mode:
            if less(room, 0):
                self._too_small(name, x)
            return floordiv(room, stride) + 1, pad
        if less(room + stride - 1, 0):
            self._too_small(name, x)
        out = floordiv(room + stride - 1, stride) + 1
        if not less((out - 1) * stride, size + pad):  # the last window starts inside
            out = out - 1
        return out, (out - 1) * stride + span - size - pad

    def _too_small(self, name: str, x: Node) -> None:
        problem = f"Given input size: {shown(x.shape)}. Calculated output size is too small"
        raise failure(RuntimeError, name, problem, "smaller kernel or more padding")

    def clipped(self, x: Node) -> Windows:
        """The same windows without elements that are padding in every one of them.

        A window may be longer than the image by any factor; only what can lie inside is computed.
        Bounds are powers of two, so that a plan serves many sizes and windows stay numbers.
        """
        result, lead = copy.copy(self), x.ndim - len(self.kernel)
        for d, kernel in enumerate(self.kernel):
            stride, pad, dilation = self.stride[d], self.padding[d], self.dilation[d]
            extent = _LONG
            while extent < kernel and not less(x.shape[lead + d], extent + 1):
                extent *= 2
            # No window starts later than this, counted from the first; that one ends before `stop`.
            latest = min(extent + pad - 1, extent + 1 + stride) // stride * stride
            start = max(0, (pad - latest) // dilation)
            stop = min(kernel, -(-(extent + pad) // dilation))
            if extent < kernel and stop - start < kernel:
                high = result.high[d] - (kernel - stop) * dilation
                result.kernel = _replaced(result.kernel, d, stop - start)
                result.padding = _replaced(result.padding, d, pad - start * dilation)
                result.high = [*result.high[:d], high, *result.high[d + 1 :]]
        return result

    def of(self, x: Node, fill: Any) -> Node:
        """x (*lead, *S) as (*lead, *out, *kernel)."""
        count = len(self.kernel)
        lead = x.ndim - count
        none = (0,) * lead
        x = prims.pad(x, (*none, *self.padding), (*none, *self.high), fill)
        for d in range(count):
            numbers_ = (self.kernel[d], self.stride[d], self.dilation[d])
            x = windows_of(x, lead + d, *numbers_)
        return x


def _replaced(values: tuple[int, ...], d: int, value: int) -> tuple[int, ...]:
    return (*values[:d], value, *values[d + 1 :])


def check_input(name: str, x: Node, count: int) -> None:
    """Raises unless x is an image, or a batch of them, that has elements."""
    if x.ndim < 3 and name in ("avg_pool2d", "lp_pool2d"):
        normalise_dim(-3, x.ndim, name)  # raises IndexError, as PyTorch does here
    if any(layout.same(n, 0) for n in x.shape[-count - 1 :]) or x.ndim - count not in (1, 2):
        problem = f"Expected {count + 1}D or {count + 2}D (batch mode) tensor with optional 0 dim "
        problem += f"batch size for input, but got: {shown(x.shape)}"
        raise failure(RuntimeError, name, problem, "(N, C, ...) or (C, ...)")


def _joined(x: Node, count: int) -> Node:
    """The last `count` dimensions as one."""
    return prims.reshape(x, (*x.shape[:-count], prod(x.shape[-count:])))


# ------------------------------------------------------------------------------ maximum


def least(dtype: str) -> Any:
    """Returns a lower bound of a window's elements."""
    return _LEAST.get(dtype, -math.inf)


class Places(NamedTuple):
    """Where the elements of windows lie in the input.

    Attributes:
        kernel, dilation: per dimension.
        bases: per dimension the position of window element 0, shape (out,).
        sizes: spatial sizes of the input.
        padded: whether a window may reach beyond the input.
    """

    kernel: Sequence[int]
    dilation: Sequence[int]
    bases: Sequence[Node]
    sizes: Sequence[Size]
    padded: bool

    def steps(self) -> list[Size]:
        """Flat distance of neighbours, per dimension."""
        return [prod(self.sizes[d + 1 :]) for d in range(len(self.sizes))]

    def flat(self, places: Sequence[Node], shape: Sequence[Size]) -> Node:
        """Flat positions, spread over the outputs, from positions per dimension."""
        lead = len(shape) - len(places)
        total = prims.full(0, tuple(shape), "i64")
        for d, (place, step) in enumerate(zip(places, self.steps(), strict=True)):
            line = place * prims.constant(step, place)
            total = total + prims.broadcast(line, tuple(shape), (lead + d,))
        return total

    def start(self, d: int) -> Node:
        """Position of each window's first element that is not padding."""
        base = self.bases[d]
        after = prims.remainder(base, prims.full_like(self.dilation[d], base))
        return prims.where(base < 0, after, base)

    def of(self, best: Node) -> Node:
        """Flat position of each window's element number `best`."""
        lead = best.ndim - len(self.kernel)
        total, inner = prims.full_like(0, best), math.prod(self.kernel)
        for d, size in enumerate(self.sizes):
            inner //= self.kernel[d]
            place = prims.floor_div(best, prims.full_like(inner, best))
            place = prims.remainder(place, prims.full_like(self.kernel[d], best))
            place = place * self.dilation[d]
            place = place + prims.broadcast(self.bases[d], best.shape, (lead + d,))
            if self.padded:  # a window of nothing but the least value may have chosen its padding
                place = prims.maximum(place, prims.full_like(0, place))
                place = prims.minimum(place, prims.constant(size, place) + -1)
            total = total * prims.constant(size, total) + place
        return total


def flat(x: Node, count: int) -> Node:
    """The leading dimensions as one, and the last `count` as another."""
    return prims.reshape(x, (prod(x.shape[:-count]), prod(x.shape[-count:])))


def max_over(x: Node, windows: Node, count: int, places: Places) -> tuple[Node, Node]:
    """Maxima of the windows and their flat positions; the gradient goes there."""
    if prod(windows.shape[-count:]) <= _FEW:
        value, index = _unrolled_max(windows, places)
    else:
        joined = _joined(windows, count)
        value = prims.max(joined, joined.ndim - 1)
        index = places.of(prims.argmax(joined, joined.ndim - 1))
    frozen = prims.stop_gradient(index)
    return prims.with_derivative(value, x, frozen, rule="max_pool", count=count), index


_FEW = 32  # elements of a window up to which it is looked at one by one


def _elements(windows: Node, kernel: Sequence[Any]) -> Iterator[Node]:
    """The elements of every window, one after the other."""
    lead = windows.ndim - len(kernel)
    for place in itertools.product(*map(range, kernel)):
        part = windows
        for d, i in reversed(list(enumerate(place))):
            part = prims.squeeze(prims.slice(part, lead + d, i, 1), lead + d)
        yield part


def _unrolled_max(windows: Node, places: Places) -> tuple[Node, Node]:
    """The greatest element of each window and its flat position: the first of equals, the last NaN.

    Positions are kept relative to the window's element 0, so that nothing is divided.
    """
    shape = windows.shape[: windows.ndim - len(places.kernel)]
    base = places.flat(places.bases, shape)
    start = [places.start(d) for d in range(len(places.kernel))]
    best = places.flat(start, shape) - base if places.padded else prims.zeros_like(base)
    value = prims.full(least(windows.dtype), shape, windows.dtype)
    numbers_ = itertools.product(*map(range, places.kernel))
    for place, element in zip(numbers_, _elements(windows, places.kernel), strict=True):
        steps = zip(place, places.dilation, places.steps(), strict=True)
        offset = sum((i * dilation * step for i, dilation, step in steps), 0)
        wins = element > value
        if is_float(element):
            wins = wins | prims.isnan(element)
        best = prims.where(wins, prims.constant(offset, best), best)
        value = prims.where(wins, element, value)
    return value, base + best


def _max_pool_rule(grad: Node, out: Node, x: Node, index: Node) -> Any:
    count = out.attribute("count")
    base = prims.zeros_like(flat(x, count))
    total = prims.scatter(base, flat(index, count), flat(grad, count), 1, "add")
    return prims.reshape(total, x.shape), None


prims.register_rule("max_pool", _max_pool_rule)


def window_maxima(
    name: str, x: Node, count: int, kernel: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool
) -> tuple[Node, Node]:  # fmt: skip
    """Maxima of the windows and their places among the elements of an image."""
    check_input(name, x, count)
    chosen = Windows(name, x, count, kernel, stride, padding, dilation, ceil_mode)
    if x.dtype == "bool":
        raise unsupported(name, x, "convert to uint8 first")
    chosen = chosen.clipped(x)
    spread = chosen.of(x, least(x.dtype))

    bases = [
        prims.iota((out,), 0, "i64") * chosen.stride[d] + -chosen.padding[d]
        for d, out in enumerate(chosen.out)
    ]
    padded = any(chosen.padding) or ceil_mode
    places = Places(chosen.kernel, chosen.dilation, bases, x.shape[-count:], padded)
    return max_over(x, spread, count, places)


_MAX = f"{_WINDOW}, int[] dilation=1, bool ceil_mode=False"


def _max_samples(count: int) -> Any:
    def make() -> Iterator[Sample]:
        space = (9, 8, 7)[:count]
        yield sample(T(2, 3, *space), 2)
        yield sample(T(3, *space), 3, 2)
        yield sample(T(2, 3, *space), 3, 2, 1, 2, True)
        yield sample(T(2, 3, *space), (3, 2, 2)[:count], 2, 1, ceil_mode=True, return_indices=True)

    return make


def _max_errors(count: int) -> Any:
    def make() -> Iterator[ErrorSample]:
        yield ErrorSample(sample(T(1, 2, *[4] * count), 2, 2, 2), RuntimeError, "at most half")
        yield ErrorSample(sample(T(1, 2, *[2] * count), 5), RuntimeError, "too small")

    return make


def window_example(count: int) -> tuple[str, str]:
    """Sizes of an image for a docstring, and of its halves."""
    return ", ".join(["1", *"4" * (count + 1)]), ", ".join(["1", "4", *"2" * count])


_MAX_TEXT = """Maximum over each window of {count} dimension(s).

    Shape: `(N, C, *S)` or `(C, *S)` -> sizes floor((S + 2 padding - dilation (kernel - 1) - 1) /
    stride) + 1, rounded up under `ceil_mode`.

    Args:
        stride: kernel_size when None.
        return_indices: also return the flat positions of the maxima (int64).

    Raises:
        RuntimeError: padding above half of the kernel, or an empty output.

    Example:
        >>> nn.functional.max_pool{count}d(torch.ones({example}), 2).shape
        torch.Size([{halved}])
    """


def _plain_maximum(*args: Any, return_indices: bool = False, **options: Any) -> str:
    """Maxima alone are cast; with their positions they are another operator of PyTorch."""
    return "" if return_indices or (len(args) > 6 and args[6]) else "float32"


def _define_max(count: int) -> None:
    name = f"max_pool{count}d"

    def pair(input: Node, *windows: Any) -> tuple[Node, Node]:
        return window_maxima(name, input, count, *windows[:5])

    def body(input: Node, *windows: Any) -> Any:
        results = pair(input, *windows)
        return results if windows[5] else results[0]

    body.__name__, pair.__name__ = name, f"{name}_with_indices"
    example, halved = window_example(count)
    body.__doc__ = _MAX_TEXT.format(count=count, example=example, halved=halved)
    pair.__doc__ = f"""`{name}` with the positions of the maxima, as its `return_indices=True`.

    Example:
        >>> nn.functional.{name}_with_indices(torch.ones({example}), 2)[1].shape
        torch.Size([{halved}])
    """
    cast = by_arguments(_plain_maximum) if count == 3 else ""
    options = {"kind": "image", "samples": _max_samples(count), "errors": _max_errors(count)}
    arguments = f"(Tensor input, {_MAX}, bool return_indices="
    op(f"{name}{arguments}False) -> Tensor", where=f"torch {_F}", autocast=cast, **options)(body)
    home = _F if count > 1 else f"torch {_F}"  # as PyTorch spells the pair of results
    op(f"{name}_with_indices{arguments}True) -> (Tensor, Tensor)", where=home, **options)(pair)


for _count in (1, 2, 3):
    _define_max(_count)


# ------------------------------------------------------------------------------ mean


def _divisor(chosen: Windows, x: Node, like: Node, include: bool) -> Node:
    """How many elements each window averages: padding counts only if `include`."""
    count = len(chosen.kernel)
    lead = like.ndim - count
    total = prims.full_like(1, like)
    for d, out in enumerate(chosen.out):
        size, pad = x.shape[lead + d], chosen.padding[d]
        first = prims.iota((out,), 0, "i64") * chosen.stride[d] + -pad
        limit = size + pad if include else size
        last = prims.minimum(first + chosen.kernel[d], prims.constant(limit, first))
        first = first if include else prims.maximum(first, prims.full_like(0, first))
        number = prims.cast(last - first, like.dtype)
        total = total * prims.broadcast(number, like.shape, (lead + d,))
    return total


def _window_sums(x: Node, chosen: Windows) -> Node:
    """Sum of each window; the gradient is spread dimension by dimension."""
    count = len(chosen.kernel)
    chosen = chosen.clipped(x)
    windows = chosen.of(x, 0)
    apart = chosen.kernel == chosen.stride and not any(chosen.padding)  # no more than a reshape
    if apart or math.prod(chosen.kernel) > _FEW:
        joined = _joined(windows, count)
        total = prims.sum(joined, joined.ndim - 1)
    else:
        total = functools.reduce(operator.add, _elements(windows, chosen.kernel))
    if apart:
        return total
    sizes = (chosen.kernel, chosen.stride, chosen.padding)
    return prims.with_derivative(total, x, rule="window_sums", sizes=sizes)


def _window_sums_rule(grad: Node, out: Node, x: Node) -> tuple[Node]:
    kernel, stride, padding = out.attribute("sizes")
    lead = x.ndim - len(kernel)
    for d in range(len(kernel)):
        grad = _spread(grad, lead + d, x.shape[lead + d], kernel[d], stride[d], padding[d])
    return (grad,)


def _spread(x: Node, axis: int, extent: Size, kernel: int, stride: int, padding: int) -> Node:
    """Adds, for each of `extent` elements, the values of the windows over it.

    Place i lies in the windows (i + padding) // stride - j, of which at most ceil(kernel / stride)
    reach it; they are added in increasing j.
    """
    if -(-kernel // stride) > _FEW:
        return _spread_at_once(x, axis, extent, kernel, stride, padding)
    place = prims.iota((extent,), 0, "i64") + padding
    last = prims.floor_div(place, prims.full_like(stride, place))
    limit = prims.constant(x.shape[axis], place)
    total: Node | None = None
    for j in range(-(-kernel // stride)):
        window = last + -j
        inside = (window >= 0) & (window < limit) & (place - window * stride < kernel)
        gathered = prims.take(x, prims.where(inside, window, prims.zeros_like(window)), axis)
        mask = prims.broadcast(inside, gathered.shape, (axis,))
        part = prims.where(mask, gathered, prims.zeros_like(gathered))
        total = part if total is None else total + part
    assert total is not None
    return total


def _spread_at_once(
    x: Node, axis: int, extent: Size, kernel: int, stride: int, padding: int
) -> Node:
    """`_spread` where many windows reach a place: one sum over a further dimension."""
    shape = (extent, -(-kernel // stride))
    place = prims.iota(shape, 0, "i64") + padding
    window = prims.floor_div(place, prims.full_like(stride, place)) - prims.iota(shape, 1, "i64")
    inside = (window >= 0) & (window < prims.constant(x.shape[axis], place))
    inside = inside & (place - window * stride < kernel)
    parts = prims.take(x, prims.where(inside, window, prims.zeros_like(window)), axis)
    mask = prims.broadcast(inside, parts.shape, (axis, axis + 1))
    return prims.sum(prims.where(mask, parts, prims.zeros_like(parts)), axis + 1)


prims.register_rule("window_sums", _window_sums_rule)


def average(
    name: str, x: Node, count: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
    include: bool, divisor: int | None
) -> Node:  # fmt: skip
    """Mean of each window over the last `count` dimensions."""
    check_input(name, x, count)
    if divisor == 0:
        raise failure(RuntimeError, name, "divisor must be not zero", "leave it None")
    chosen = Windows(name, x, count, kernel, stride, padding, 1, ceil_mode)
    total = _window_sums(x, chosen)
    if divisor is not None:
        return averaged(total, divisor)
    if not ceil_mode and (include or not any(chosen.padding)):
        return averaged(total, math.prod(chosen.kernel))
    return averaged(total, _divisor(chosen, x, total, include))


def _average_samples(count: int) -> Any:
    def make() -> Iterator[Sample]:
        space = (9, 8, 7)[:count]
        yield sample(T(2, 3, *space), 2)
        yield sample(T(3, *space), 3, 2, 1)
        yield sample(T(2, 3, *space), 3, 2, 1, True)
        yield sample(T(2, 3, *space), (3, 2, 2)[:count], 2, 1, True, False)
        yield sample(T(2, 3, *space), 3, 2, 1, False, False)
        if count > 1:
            yield sample(T(2, 3, *space), 3, 2, 1, divisor_override=5)

    return make


_MEAN_TEXT = """Mean over each window of {count} dimension(s).

    Shape: `(N, C, *S)` or `(C, *S)` -> sizes floor((S + 2 padding - kernel) / stride) + 1, rounded
    up under `ceil_mode`.

    Args:
        stride: kernel_size when None.
        count_include_pad: zeros of the padding count as elements.

    Raises:
        RuntimeError: padding above half of the kernel, or an empty output.

    Example:
        >>> nn.functional.{name}(torch.ones({example}), 2).shape
        torch.Size([{halved}])
    """


def _define_average(count: int) -> None:
    name = f"avg_pool{count}d"

    def body(
        input: Node,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None = None,
    ) -> Node:
        numbers_ = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return average(name, input, count, *numbers_)

    example, halved = window_example(count)
    body.__doc__ = _MEAN_TEXT.format(name=name, count=count, example=example, halved=halved)
    extra = "" if count == 1 else ", int? divisor_override=None"
    op(
        f"{name}(Tensor input, {_WINDOW}, bool ceil_mode=False, bool count_include_pad=True{extra})"
        " -> Tensor",
        where=f"torch {_F}" if count == 1 else _F,
        promote="keep",
        layout="images" if count == 2 else "contiguous",
        out="exact" if count > 1 else False,
        autocast="float32" if count == 3 else "",
        samples=_average_samples(count),
    )(body)


for _count in (1, 2, 3):
    _define_average(_count)


# ------------------------------------------------------------------------------ norm


def _lp_samples(count: int) -> Any:
    def make() -> Iterator[Sample]:
        space = (9, 8, 7)[:count]
        yield sample(T(2, 3, *space), 2, 2)
        yield sample(T(2, 3, *space, low=0.1), 1.5, 3, 2, True)

    return make


def _define_lp(count: int) -> None:
    name = f"lp_pool{count}d"

    def body(input: Node, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Node:
        for sizes in (kernel_size, stride or kernel_size):
            if count > 1 and len(sizes) not in (1, count):
                raise failure(ValueError, name, f"expected {count} values", "one size each")
        kernel = numbers(name, "kernel_size", kernel_size, count)
        exponent = prims.full_like(norm_type, input)
        power = input * input if norm_type == 2 else prims.pow(input, exponent)
        mean = average(name, power, count, kernel, stride, 0, ceil_mode, True, None)
        positive = prims.maximum(prims.abs(mean), prims.full_like(0, mean))
        total = prims.sign(mean) * positive * float(math.prod(kernel))
        return prims.pow(total, prims.full_like(1.0 / norm_type, total))

    example, halved = window_example(count)
    body.__doc__ = f"""(sum of x^p)^(1/p) over each window of {count} dimension(s).

    Shape: as `avg_pool{count}d`.

    Args:
        norm_type: p.

    Raises:
        RuntimeError: an empty output.

    Example:
        >>> nn.functional.{name}(torch.ones({example}), 2, 2).shape
        torch.Size([{halved}])
    """
    op(
        f"{name}(Tensor input, float norm_type, int[] kernel_size, int[]? stride=None, "
        "bool ceil_mode=False) -> Tensor",
        kind="loss",
        layout="images" if count == 2 else "contiguous",
        autocast="float32" if count == 3 else "",
        samples=_lp_samples(count),
    )(body)


for _count in (1, 2, 3):
    _define_lp(_count)
