"""Pooling: maxima, means and norms over sliding or adaptive windows.

A window is a dimension that `prims.windows` adds; pooling reduces it. The gradient of a maximum
goes to the first element that reaches it, as in PyTorch: the places of the maxima are part of its
rule.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau import prims
from flambeau.core import layout
from flambeau.core.definition import op
from flambeau.core.samples import ErrorSample, Sample, T, sample
from flambeau.ir.environment import less
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, prod
from flambeau.ops.broadcasting import averaged, is_float, unsupported
from flambeau.ops.common import normalise_dim, shown, static_size, window_counts
from flambeau.ops.convolution import numbers, windows_of

_F = "nn.functional"
_LEAST = {"u8": 0, "i8": -(2**7), "i16": -(2**15), "i32": -(2**31), "i64": -(2**63)}
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
        ceil_mode: bool,
    ) -> None:  # fmt: skip
        self.kernel = numbers(name, "kernel_size", kernel, count)
        given = kernel if stride is None or stride == () else stride
        self.stride = numbers(name, "stride", given, count)
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
                raise RuntimeError(
                    f"[{name}] {what} should be greater than zero, but got {list(values)}\n"
                    f"hint: {what} >= 1"
                )
        for pad, kernel, dilation in zip(self.padding, self.kernel, self.dilation, strict=True):
            if pad < 0 or pad > ((kernel - 1) * dilation + 1) // 2:
                raise RuntimeError(
                    f"[{name}] pad should be at most half of effective kernel size, but got "
                    f"pad={pad}, kernel_size={kernel} and dilation={dilation}\n"
                    "hint: pad the input yourself"
                )

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
        raise RuntimeError(
            f"[{name}] Given input size: {shown(x.shape)}. Calculated output size is too small\n"
            "hint: smaller kernel or more padding"
        )

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


def _check_input(name: str, x: Node, count: int) -> None:
    if x.ndim < 3 and name in ("avg_pool2d", "lp_pool2d"):
        normalise_dim(-3, x.ndim, name)  # raises IndexError, as PyTorch does here
    if any(layout.same(n, 0) for n in x.shape[-count - 1 :]) or x.ndim - count not in (1, 2):
        raise RuntimeError(
            f"[{name}] Expected {count + 1}D or {count + 2}D (batch mode) tensor with optional 0 "
            f"dim batch size for input, but got: {shown(x.shape)}\nhint: (N, C, ...) or (C, ...)"
        )


def _joined(x: Node, count: int) -> Node:
    """The last `count` dimensions as one."""
    return prims.reshape(x, (*x.shape[:-count], prod(x.shape[-count:])))


# ------------------------------------------------------------------------------ maximum


def _least(dtype: str) -> Any:
    return _LEAST.get(dtype, -math.inf)


@dataclass(frozen=True)
class _Places:
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


def _max_over(x: Node, windows: Node, count: int, places: _Places) -> tuple[Node, Node]:
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


def _unrolled_max(windows: Node, places: _Places) -> tuple[Node, Node]:
    """The greatest element of each window and its flat position: the first of equals, the last NaN.

    Positions are kept relative to the window's element 0, so that nothing is divided.
    """
    shape = windows.shape[: windows.ndim - len(places.kernel)]
    base = places.flat(places.bases, shape)
    start = [places.start(d) for d in range(len(places.kernel))]
    best = places.flat(start, shape) - base if places.padded else prims.zeros_like(base)
    value = prims.full(_least(windows.dtype), shape, windows.dtype)
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


def _max_pool(
    name: str, x: Node, count: int, kernel: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool,
) -> tuple[Node, Node]:  # fmt: skip
    _check_input(name, x, count)
    chosen = Windows(name, x, count, kernel, stride, padding, dilation, ceil_mode)
    if x.dtype == "bool":
        raise unsupported(name, x, "convert to uint8 first")
    spread = chosen.of(x, _least(x.dtype))

    bases = [
        prims.iota((out,), 0, "i64") * chosen.stride[d] + -chosen.padding[d]
        for d, out in enumerate(chosen.out)
    ]
    padded = any(chosen.padding) or ceil_mode
    places = _Places(chosen.kernel, chosen.dilation, bases, x.shape[-count:], padded)
    return _max_over(x, spread, count, places)


_MAX = f"{_WINDOW}, int[] dilation=1, bool ceil_mode=False"


def _private_samples() -> Iterator[Sample]:
    yield sample(T(2, 3, 9), 1, 3, 2, 1, 1, False)
    yield sample(T(2, 3, 9, 8), 2, (3, 2), 2, 1, 1, True)


@op(
    f"_max_pool(Tensor input, int count, {_MAX}) -> Tensor",
    where="private",
    promote="keep",
    layout="images",
    samples=_private_samples,
)
def max_pool(
    input: Node,  # noqa: A002
    count: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> Node:
    """Maximum of each window over the last `count` dimensions."""
    numbers_ = (kernel_size, stride, padding, dilation)
    return _max_pool(f"max_pool{count}d", input, count, *numbers_, ceil_mode)[0]


@op(
    f"_max_pool_with_indices(Tensor input, int count, {_MAX}) -> (Tensor, Tensor)",
    where="private",
    promote="keep",
    layout="images",
    samples=_private_samples,
)
def max_pool_with_indices(
    input: Node,  # noqa: A002
    count: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> tuple[Node, Node]:
    """Maximum of each window and its flat position in the spatial dimensions."""
    numbers_ = (kernel_size, stride, padding, dilation)
    return _max_pool(f"max_pool{count}d", input, count, *numbers_, ceil_mode)


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


def _example(count: int) -> tuple[str, str]:
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


def _define_max(count: int) -> None:
    name = f"max_pool{count}d"

    def body(
        input: Any,  # noqa: A002
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        definition = max_pool_with_indices if return_indices else max_pool
        return definition(input, count, kernel_size, stride, padding, dilation, ceil_mode)

    body.__name__ = name
    example, halved = _example(count)
    body.__doc__ = _MAX_TEXT.format(count=count, example=example, halved=halved)
    for extra in ("", "_with_indices"):
        # The second name is how PyTorch spells the pair of results.
        chosen = body if not extra else _always_pair(body, name + extra)
        op(
            f"{name}{extra}(Tensor input, {_MAX}, bool return_indices=False) -> Tensor",
            where=_F if extra and count > 1 else f"torch {_F}",
            host=True,
            samples=_max_samples(count),
            errors=None if extra else _max_errors(count),
        )(chosen)


def _always_pair(body: Any, name: str) -> Any:
    def pair(input: Any, *args: Any, return_indices: bool = True, **options: Any) -> Any:  # noqa: A002
        return body(input, *args[:5], return_indices=True, **options)

    pair.__name__ = name
    plain = name.removesuffix("_with_indices")
    count = int(plain[-2])
    pair.__doc__ = f"""`{plain}` with the positions of the maxima, as its `return_indices=True`.

    Example:
        >>> values, places = nn.functional.{name}(torch.ones(1, {", ".join("4" * (count + 1))}), 2)
        >>> places.dtype
        torch.int64
    """
    return pair


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
    """What each of `extent` places gets from the windows over it.

    Place i lies in the windows (i + padding) // stride - j, of which at most ceil(kernel / stride)
    reach it; they are added in increasing j.
    """
    place = prims.iota((extent,), 0, "i64") + padding
    last = prims.floor_div(place, prims.full_like(stride, place))
    limit = prims.constant(x.shape[axis], place)
    total: Node | None = None
    for j in range(-(-kernel // stride)):
        window = last + -j
        inside = (window >= 0) & (window < limit) & (place - window * stride < kernel)
        found = prims.take(x, prims.where(inside, window, prims.zeros_like(window)), axis)
        mask = prims.broadcast(inside, found.shape, (axis,))
        part = prims.where(mask, found, prims.zeros_like(found))
        total = part if total is None else total + part
    assert total is not None
    return total


prims.register_rule("window_sums", _window_sums_rule)


def average(
    name: str, x: Node, count: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
    include: bool, divisor: int | None,
) -> Node:  # fmt: skip
    """Mean of each window over the last `count` dimensions."""
    _check_input(name, x, count)
    if divisor == 0:
        raise RuntimeError(f"[{name}] divisor must be not zero\nhint: leave it None")
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
        input: Node,  # noqa: A002
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None = None,
    ) -> Node:
        numbers_ = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return average(name, input, count, *numbers_)

    example, halved = _example(count)
    body.__doc__ = _MEAN_TEXT.format(name=name, count=count, example=example, halved=halved)
    extra = "" if count == 1 else ", int? divisor_override=None"
    op(
        f"{name}(Tensor input, {_WINDOW}, bool ceil_mode=False, bool count_include_pad=True{extra})"
        " -> Tensor",
        where=f"torch {_F}" if count == 1 else _F,
        promote="keep",
        layout="images" if count == 2 else "contiguous",
        out=count > 1,
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

    def body(
        input: Node,  # noqa: A002
        norm_type: float,
        kernel_size: Any,
        stride: Any,
        ceil_mode: bool,
    ) -> Node:
        if count > 1 and len(kernel_size) not in (1, count):
            raise ValueError(f"[{name}] expected {count} values\nhint: one kernel size each")
        kernel = numbers(name, "kernel_size", kernel_size, count)
        exponent = prims.full_like(norm_type, input)
        power = input * input if norm_type == 2 else prims.pow(input, exponent)
        mean = average(name, power, count, kernel, stride, 0, ceil_mode, True, None)
        positive = prims.maximum(prims.abs(mean), prims.full_like(0, mean))
        total = prims.sign(mean) * positive * float(math.prod(kernel))
        return prims.pow(total, prims.full_like(1.0 / norm_type, total))

    example, halved = _example(count)
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
        where=_F,
        promote="keep",
        out=False,
        samples=_lp_samples(count),
    )(body)


for _count in (1, 2, 3):
    _define_lp(_count)


# ------------------------------------------------------------------------------ adaptive


def _adaptive_sizes(name: str, x: Node, count: int, output_size: Any) -> list[tuple[int, int]]:
    """(input size, output size) per dimension; None keeps the size."""
    _check_input(name, x, count)
    given = (output_size,) if output_size is None or isinstance(output_size, int) else output_size
    values = tuple(given) * count if len(given) == 1 else tuple(given)
    if len(values) != count:
        raise RuntimeError(f"[{name}] output_size must be {count}\nhint: one per dimension")
    sizes = [static_size(s) for s in x.shape[-count:]]
    if 0 in sizes:
        raise RuntimeError(
            f"[{name}] Expected input to have non-zero size for non-batch dimensions, but input "
            f"has sizes {shown(x.shape)}\nhint: pool before the tensor is empty"
        )
    pairs = [(s, s if v is None else static_size(v)) for s, v in zip(sizes, values, strict=True)]
    if any(out < 0 for _, out in pairs):
        raise RuntimeError(
            f"[{name}] elements of output_size must be greater than or equal to 0 but received "
            f"{list(values)}\nhint: sizes"
        )
    if math.prod(out for _, out in pairs) >> 40:
        raise RuntimeError(f"[{name}] numel overflows: output_size {list(values)}\nhint: less")
    return pairs


def _adaptive_bounds(size: int, out: int) -> tuple[list[int], list[int]]:
    """First element and length of each window."""
    first = [i * size // out for i in range(out)]
    last = [-(-(i + 1) * size // out) for i in range(out)]
    return first, [b - a for a, b in zip(first, last, strict=True)]


def _base(size: int, out: int) -> Node:
    """First element of each window, as a node (out,)."""
    i = prims.iota((out,), 0, "i64") * size
    return prims.floor_div(i, prims.full_like(out, i))


def _adaptive_windows(x: Node, axis: int, size: int, out: int, fill: Any) -> tuple[Node, int]:
    """`axis` replaced by (out, longest window); places beyond a window hold `fill`."""
    longest = max(_adaptive_bounds(size, out)[1], default=1)
    grid = (out, longest)
    first = prims.broadcast(_base(size, out), grid, (0,))
    following = (prims.iota((out,), 0, "i64") + 1) * size + (out - 1)
    last = prims.broadcast(prims.floor_div(following, prims.full_like(out, following)), grid, (0,))
    place = first + prims.iota(grid, 1, "i64")
    inside = place < last
    safe = prims.where(inside, place, first)
    found = prims.take(x, safe, axis)
    mask = prims.broadcast(inside, found.shape, (axis, axis + 1))
    return prims.where(mask, found, prims.full_like(fill, found)), longest


def adaptive_average(name: str, x: Node, count: int, output_size: Any) -> Node:
    """Means of windows that divide each dimension into `output_size` parts."""
    pairs = _adaptive_sizes(name, x, count, output_size)
    if all(out and size % out == 0 for size, out in pairs):
        kernel = tuple(size // out for size, out in pairs)
        return average(name, x, count, kernel, None, 0, False, True, None)
    lead = x.ndim - count
    for d, (size, out) in reversed(list(enumerate(pairs))):
        spread, _ = _adaptive_windows(x, lead + d, size, out, 0)
        x = prims.sum(spread, lead + d + 1)
        lengths = _lengths(size, out, x.dtype)
        x = x / prims.broadcast(lengths, x.shape, (lead + d,))
    return x


def _lengths(size: int, out: int, dtype: str) -> Node:
    i = prims.iota((out,), 0, "i64")
    last = prims.floor_div((i + 1) * size + (out - 1), prims.full_like(out, i))
    return prims.cast(last - _base(size, out), dtype)


def _adaptive_max(name: str, x: Node, count: int, output_size: Any) -> tuple[Node, Node]:
    pairs = _adaptive_sizes(name, x, count, output_size)
    if all(out and size % out == 0 for size, out in pairs):
        kernel = tuple(size // out for size, out in pairs)
        return _max_pool(name, x, count, kernel, None, 0, 1, False)
    lead = x.ndim - count
    spread, kernel = x, [1] * count
    for d, (size, out) in reversed(list(enumerate(pairs))):
        spread, kernel[d] = _adaptive_windows(spread, lead + d, size, out, _least(x.dtype))
    order = (*range(lead), *range(lead, spread.ndim, 2), *range(lead + 1, spread.ndim, 2))
    bases = [_base(size, out) for size, out in pairs]
    sizes = [size for size, _ in pairs]

    places = _Places(kernel, [1] * count, bases, sizes, True)
    return _max_over(x, prims.permute(spread, order), count, places)


@op(
    "_adaptive_max_pool(Tensor input, object output_size, int count) -> Tensor",
    where="private",
    promote="keep",
    samples=lambda: iter([sample(T(2, 3, 8, 6), (3, 4), 2)]),
)
def adaptive_max_pool(input: Node, output_size: Any, count: int) -> Node:  # noqa: A002
    """Maxima of adaptive windows."""
    return _adaptive_max(f"adaptive_max_pool{count}d", input, count, output_size)[0]


@op(
    "_adaptive_max_pool_with_indices(Tensor input, object output_size, int count) "
    "-> (Tensor, Tensor)",
    where="private",
    promote="keep",
    samples=lambda: iter([sample(T(2, 3, 8, 6), (3, 4), 2)]),
)
def adaptive_max_pool_with_indices(
    input: Node,  # noqa: A002
    output_size: Any,
    count: int,
) -> tuple[Node, Node]:
    """Maxima of adaptive windows and their positions."""
    return _adaptive_max(f"adaptive_max_pool{count}d", input, count, output_size)


@op(
    "_adaptive_avg_pool(Tensor input, object output_size, int count) -> Tensor",
    where="private",
    promote="keep",
    samples=lambda: iter([sample(T(2, 3, 8, 6), (3, 4), 2)]),
)
def adaptive_avg_pool(input: Node, output_size: Any, count: int) -> Node:  # noqa: A002
    """Means of adaptive windows."""
    return adaptive_average(f"adaptive_avg_pool{count}d", input, count, output_size)


def _adaptive_samples(count: int) -> Any:
    def make() -> Iterator[Sample]:
        space = (8, 6, 9)[:count]
        yield sample(T(2, 3, *space), 1)
        yield sample(T(3, *space), 3)
        yield sample(T(2, 3, *space), (5, 4, 2)[:count])
        if count > 1:
            yield sample(T(2, 3, *space), (None, 4, 2)[:count])

    return make


def _define_adaptive(count: int) -> None:
    average_name, max_name = f"adaptive_avg_pool{count}d", f"adaptive_max_pool{count}d"

    def mean(input: Any, output_size: Any) -> Any:  # noqa: A002
        return adaptive_avg_pool(input, window_counts(input, output_size), count)

    def maximum(input: Any, output_size: Any, return_indices: bool = False) -> Any:  # noqa: A002
        chosen = adaptive_max_pool_with_indices if return_indices else adaptive_max_pool
        return chosen(input, window_counts(input, output_size), count)

    mean.__name__, maximum.__name__ = average_name, max_name
    example, halved = _example(count)
    shapes = """Window i covers the elements floor(i S / out) up to ceil((i + 1) S / out).

    Shape: `(N, C, *S)` or `(C, *S)` -> the same with sizes `output_size` (None keeps one).

    Raises:
        RuntimeError: another rank, or a size that is not positive.

    Example:
        >>> nn.functional.{name}(torch.ones({example}), 2).shape
        torch.Size([{halved}])
    """
    for body, word in ((mean, "Means"), (maximum, "Maxima")):
        text = f"{word} of windows that divide each dimension evenly.\n\n    {shapes}"
        body.__doc__ = text.format(name=body.__name__, example=example, halved=halved)
    homes = f"torch {_F}" if count == 1 else _F
    signature = "(Tensor input, object output_size"
    samples = _adaptive_samples(count)
    op(f"{average_name}{signature}) -> Tensor", where=homes, host=True, samples=samples)(mean)
    op(
        f"{max_name}{signature}, bool return_indices=False) -> Tensor",
        where=homes,
        host=True,
        samples=samples,
    )(maximum)


for _count in (1, 2, 3):
    _define_adaptive(_count)
