"""Adaptive pooling: as many windows as results are asked for, of sizes that differ by one at most.

Window i of an axis covers floor(i * size / out) up to ceil((i + 1) * size / out), as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import Dense, op
from flambeau.language.samples import Sample, T, sample
from flambeau.ops.common import shown, static_size, window_counts
from flambeau.ops.neural.pooling import (
    Places,
    average,
    check_input,
    least,
    max_over,
    window_example,
    window_maxima,
)

_F = "nn.functional"


def _adaptive_sizes(name: str, x: Node, count: int, output_size: Any) -> list[tuple[int, int]]:
    """(input size, output size) per dimension; None keeps the size."""
    check_input(name, x, count)
    stated = (output_size,) if output_size is None or isinstance(output_size, int) else output_size
    values = tuple(stated) * count if len(stated) == 1 else tuple(stated)
    if len(values) != count:
        raise failure(RuntimeError, name, f"output_size must be {count}", "one per dimension")
    sizes = [static_size(s) for s in x.shape[-count:]]
    if 0 in sizes:
        problem = "Expected input to have non-zero size for non-batch dimensions, but input has "
        problem += f"sizes {shown(x.shape)}"
        raise failure(RuntimeError, name, problem, "pool before the tensor is empty")
    pairs = [(s, s if v is None else static_size(v)) for s, v in zip(sizes, values, strict=True)]
    if any(out < 0 for _, out in pairs):
        problem = "elements of output_size must be greater than or equal to 0 but received "
        problem += f"{list(values)}"
        raise failure(RuntimeError, name, problem, "sizes")
    if math.prod(out for _, out in pairs) >> 40:
        raise failure(RuntimeError, name, f"numel overflows: output_size {list(values)}", "less")
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
    gathered = prims.take(x, safe, axis)
    mask = prims.broadcast(inside, gathered.shape, (axis, axis + 1))
    return prims.where(mask, gathered, prims.full_like(fill, gathered)), longest


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
        return window_maxima(name, x, count, kernel, None, 0, 1, False)
    lead = x.ndim - count
    spread, kernel = x, [1] * count
    for d, (size, out) in reversed(list(enumerate(pairs))):
        spread, kernel[d] = _adaptive_windows(spread, lead + d, size, out, least(x.dtype))
    order = (*range(lead), *range(lead, spread.ndim, 2), *range(lead + 1, spread.ndim, 2))
    bases = [_base(size, out) for size, out in pairs]
    sizes = [size for size, _ in pairs]

    places = Places(kernel, [1] * count, bases, sizes, True)
    return max_over(x, prims.permute(spread, order), count, places)


def _image(value: Node, count: int) -> Node | Dense:
    """A result whose memory follows the input's, but that of volumes is contiguous."""
    return Dense(value, range(value.ndim)) if count == 3 else value


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

    def mean(input: Node, output_size: Any) -> Any:
        sizes = window_counts(input, output_size)
        return _image(adaptive_average(average_name, input, count, sizes), count)

    def maximum(input: Node, output_size: Any, return_indices: bool) -> Any:
        results = _adaptive_max(max_name, input, count, window_counts(input, output_size))
        laid_out = [_image(x, count) for x in results]
        return tuple(laid_out) if return_indices else laid_out[0]

    mean.__name__, maximum.__name__ = average_name, max_name
    example, halved = window_example(count)
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
    rule = "float32" if count == 3 else ""
    options = {"kind": "image", "where": homes, "autocast": rule, "samples": samples}
    op(f"{average_name}{signature}) -> Tensor", **options)(mean)
    op(f"{max_name}{signature}, bool return_indices=False) -> Tensor", **options)(maximum)


for _count in (1, 2, 3):
    _define_adaptive(_count)
