"""Fractional max pooling (Graham 2014): windows at irregular distances, drawn at random.

Each channel of each sample draws where its windows begin. The gradient goes to the first element
that reaches the maximum, for a maximum is read where it was found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, prod
from flambeau.language.definition import op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import normalise_dim, shown
from flambeau.ops.neural.convolution import numbers

_F = "nn.functional"
_HALF = ("f16", "bf16")


def _starts(drawn: Node, size: Size, out: int, kernel: int) -> Node:
    """First element of each window, (N, C, out), from one number in [0, 1) per channel.

    Every step rounds to the dtype of the numbers, as PyTorch's arithmetic does.
    """
    dtype = drawn.dtype
    shape = (*drawn.shape, out)
    last = prims.constant(size - kernel, prims.full(0, shape, "i64"))
    if out == 1:
        return last
    inner = "f32" if dtype in _HALF else dtype

    def rounded(x: Node) -> Node:
        return prims.cast(prims.cast(x, dtype), inner)

    number = prims.broadcast(prims.cast(drawn, inner), shape, (0, 1))
    place = prims.iota(shape, 2, "i64")
    step = rounded(rounded(prims.cast(last, inner)) / rounded(prims.full_like(out - 1, number)))
    there = rounded(rounded(prims.cast(place, inner) + number) * step)
    here = rounded(number * step)
    starts = prims.cast(prims.trunc(there), "i64") - prims.cast(prims.trunc(here), "i64")
    return prims.where(prims.eq(place, prims.full_like(out - 1, place)), last, starts)


@op(
    name="_fractional_max_pool",
    where="private",
    samples=lambda: [
        sample(T(2, 3, 5, 6), T(2, 3, 2, low=0.0, high=1.0, grad=False), (2, 2), (3, 3))
    ],
)
def pooled(
    input: Tensor, random_samples: Tensor, kernel_size: Sequence[int], output_size: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Maxima of (N, C, *S) and their flat positions, from checked arguments."""
    count = len(kernel_size)
    lead, sizes = input.shape[:2], input.shape[2:]
    places, elements = math.prod(output_size), math.prod(kernel_size)
    shape = (*lead, places, elements)
    window, element = prims.iota(shape, 2, "i64"), prims.iota(shape, 3, "i64")
    index = prims.zeros_like(window)
    windows, inner = places, elements
    for d in range(count):
        # PyTorch's numbers are for (width, height) of images, for (depth, height, width) of volumes
        drawn = prims.slice(random_samples, 2, count - 1 - d if count == 2 else d, 1)
        starts = _starts(prims.squeeze(drawn, 2), sizes[d], output_size[d], kernel_size[d])
        windows, inner = windows // output_size[d], inner // kernel_size[d]
        chosen = _digit(window, windows, output_size[d])
        flat = prims.reshape(chosen, (*lead, places * elements))
        start = prims.reshape(prims.gather(starts, flat, 2), shape)
        place = start + _digit(element, inner, kernel_size[d])
        index = index * prims.constant(sizes[d], index) + place
    values = prims.reshape(input, (*lead, prod(sizes)))
    looked = prims.gather(values, prims.reshape(index, (*lead, places * elements)), 2)
    best = prims.unsqueeze(prims.argmax(prims.reshape(looked, shape), 3), 3)
    positions = prims.squeeze(prims.gather(index, best, 3), 3)
    result = prims.gather(values, positions, 2)
    result_shape = (*lead, *output_size)
    return prims.reshape(result, result_shape), prims.reshape(positions, result_shape)


def _digit(number: Node, below: int, base: int) -> Node:
    """The digit of a mixed-radix number whose lower digits count to `below`."""
    high = prims.floor_div(number, prims.full_like(max(below, 1), number))
    return prims.remainder(high, prims.full_like(base, high))


def _sizes(
    name: str, x: Any, kernel: Any, output_size: Any, output_ratio: Any, count: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Kernel and output sizes, checked against the input."""
    if output_size is None and output_ratio is None:
        problem = "requires specifying either an output_size or an output_ratio"
        raise failure(ValueError, name, problem, "give one")
    normalise_dim(-count - 1, x.ndim, name)
    if output_size is None:
        ratios = (
            output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * count
        )
        if len(ratios) != count:
            problem = f"requires output_ratio to either be a single number or a tuple of {count}, "
            problem += f"got {output_ratio}"
            raise failure(ValueError, name, problem, "one ratio per dimension")
        output_size = [int(s * r) for s, r in zip(x.shape[-count:], ratios, strict=True)]
    kernels = numbers(name, "kernel_size", kernel, count)
    outs = numbers(name, "output_size", output_size, count)

    def fail(text: str) -> RuntimeError:
        return RuntimeError(f"[{name}] {text}\nhint: (N, C, *) of at least output + kernel - 1")

    if x.ndim not in (count + 1, count + 2) or 0 in tuple(x.shape[-count - 1 :]):
        raise fail(
            "Expected input to have non-zero size for non-batch dimensions, but got "
            f"{shown(x.shape)}"
        )
    for size, kernel_, out in zip(x.shape[-count:], kernels, outs, strict=True):
        if out < 1 or kernel_ < 1 or out + kernel_ - 1 > size:
            raise fail(f"pool size {kernel_} too large relative to input size {size}, output {out}")
    return kernels, outs


def _define(count: int) -> None:
    name = f"fractional_max_pool{count}d"

    def pair(
        input: Any,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> Any:
        kernels, outs = _sizes(name, input, kernel_size, output_size, output_ratio, count)
        x = input if input.ndim == count + 2 else input.unsqueeze(0)
        drawn = _random_samples
        if drawn is None:
            drawn = x.detach().new_empty((*x.shape[:2], count)).uniform_()
        elif tuple(drawn.shape) != (*x.shape[:2], count) or drawn.dtype != x.dtype:
            problem = f"Expect _random_samples to have shape (N, C, {count}) and the dtype of "
            problem += f"input, got {shown(drawn.shape)} of {drawn.dtype}"
            raise failure(RuntimeError, name, problem, f"torch.rand(N, C, {count})")
        results = pooled.native(x, drawn.detach(), kernels, outs)
        return tuple(results) if input.ndim == x.ndim else tuple(y.squeeze(0) for y in results)

    def single(
        input: Any,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> Any:
        sizes = (output_size, output_ratio, return_indices)
        results = pair(input, kernel_size, *sizes, _random_samples)
        return results if return_indices else results[0]

    single.__name__, pair.__name__ = name, f"{name}_with_indices"
    single.__doc__ = _document(count)
    pair.__doc__ = f"""`{name}` with the flat places of the maxima.

{_example(count, "_with_indices")}"""
    arguments = (
        "(Tensor input, int[] kernel_size, int[]? output_size=None, object output_ratio=None, "
        "bool return_indices=False, Tensor? _random_samples=None) -> Tensor"
    )
    make = _samples(count)
    errors = _errors(count)
    options = {"where": _F, "host": True, "out": False, "samples": make, "autocast": "float32"}
    op(f"{name}{arguments}", errors=errors, **options)(single)
    op(f"{name}_with_indices{arguments}", **options)(pair)


def _document(count: int) -> str:
    return f"""Maxima of windows that begin at random places, {count} spatial dimensions.

    Shape: `(N, C, *S)` or `(C, *S)` -> the same with the output's sizes.

    Args:
        kernel_size: of a window.
        output_size, output_ratio: sizes of the result, or their share of the input's, one of both.
        return_indices: also return the flat places of the maxima.

    Draws `torch.rand(N, C, {count})` of the input's dtype.

    Raises:
        ValueError: neither output_size nor output_ratio is given.
        RuntimeError: the windows do not fit.

{_example(count, "")}"""


def _example(count: int, suffix: str) -> str:
    """The largest of a window of everything, and its place where that is asked for."""
    sizes = ", ".join("2" * count)
    last = 2**count - 1
    answer = f"({last}.0, {last})" if suffix else f"{last}.0"
    get = "tuple(y.item() for y in found)" if suffix else "found.item()"
    return f"""    Example:
        >>> x = torch.arange({last + 1}.0).reshape(1, 1, {sizes})
        >>> found = torch.nn.functional.fractional_max_pool{count}d{suffix}(x, 2, 1)
        >>> {get}
        {answer}
    """


def _samples(count: int) -> Any:
    def make() -> Iterator[Sample]:
        space: Sequence[int] = (5, 6, 7)[:count]
        drawn = T(2, 3, count, low=0.0, high=1.0, grad=False)
        yield sample(T(2, 3, *space), 2, None, (0.6,) * count, True, drawn)

    return make


def _errors(count: int) -> Any:
    def make() -> Iterator[ErrorSample]:
        yield ErrorSample(sample(T(1, 2, *[5] * count), 2), ValueError, "output_size or an output")
        yield ErrorSample(sample(T(1, 2, *[5] * count), 2, 5), RuntimeError, "too large")

    return make


for _count in (2, 3):
    _define(_count)
