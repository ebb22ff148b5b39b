"""The inverse of max pooling: maxima put back where they were found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, prod
from flambeau.language.definition import Dense, op
from flambeau.language.samples import T, sample
from flambeau.ops.common import same_sizes, shown
from flambeau.ops.neural.convolution import numbers
from flambeau.ops.neural.pooling import flat

_F = "nn.functional"


def no_place(name: str) -> str:
    """The message of an index that is no position in an image."""
    return (
        f"[{name}] Found an invalid max index: {{value}} (of {{size}} positions)\n"
        "hint: indices come from max_pool with return_indices=True"
    )


def _unpooled(x: Node, indices: Node, size: Sequence[Size]) -> Node:
    """Zeros of spatial sizes `size` with the values of x at flat positions `indices`."""
    count = len(size)
    lead = x.shape[:-count]
    base = prims.full(0, (prod(lead), prod(size)), x.dtype)
    message = no_place("max_unpool")
    index = prims.check_index(
        flat(indices, count), prod(size), "max_unpool", message, error="runtime", strict=True
    )
    filled = prims.scatter(base, index, flat(x, count), 1, "set")
    return prims.reshape(filled, (*lead, *size))


def _unpool_size(
    name: str, x: Node, kernel: Any, stride: Any, padding: Any, output_size: Any, count: int
) -> list[Size]:
    kernels = numbers(name, "kernel_size", kernel, count)
    strides = numbers(name, "stride", kernel if stride is None else stride, count)
    pads = numbers(name, "padding", padding, count)
    default = [
        (size - 1) * strides[d] - 2 * pads[d] + kernels[d]
        for d, size in enumerate(x.shape[-count:])
    ]
    if output_size is None:
        return default
    chosen = list(output_size)[-count:]
    if len(chosen) != count or not all(
        less(default[d], chosen[d] + strides[d]) and less(chosen[d], default[d] + strides[d])
        for d in range(count)
    ):
        problem = f"invalid output_size {list(output_size)}: each must be within a stride of "
        problem += shown(default)
        raise failure(ValueError, name, problem, "pass the size of the pooled input")
    return chosen


_TEXT = """Puts maxima back where `max_pool{count}d` found them; zeros elsewhere.

    Args:
        indices: the second result of `max_pool{count}d(..., return_indices=True)`.
        output_size: the spatial sizes; those the pooling's numbers imply when None.

    Raises:
        RuntimeError: the indices have another shape, or are not int64.
        ValueError: an output size the pooling cannot have had.

    Example:
        >>> x = torch.ones({ones})
        >>> values, places = nn.functional.max_pool{count}d(x, 2, return_indices=True)
        >>> nn.functional.{name}(values, places, 2).shape
        torch.Size([{ones}])
    """


def _define_unpool(count: int) -> None:
    name = f"max_unpool{count}d"

    def body(input: Node, indices: Node, *windows: Any) -> Any:
        if not same_sizes(indices.shape, input.shape):
            problem = f"Expected shape of indices to be: {shown(input.shape)} but got: "
            problem += shown(indices.shape)
            raise failure(RuntimeError, name, problem, f"indices of max_pool{count}d")
        if indices.dtype != "i64":
            problem = f"elements in indices should be type int64 but got: {indices.dtype}"
            raise failure(RuntimeError, name, problem, f"indices of max_pool{count}d")
        result = _unpooled(input, indices, _unpool_size(name, input, *windows, count))
        # PyTorch keeps channels last in images alone.
        return Dense(result, range(result.ndim)) if count == 3 else result

    body.__name__ = name
    ones = ", ".join(["1", *"4" * (count + 1)])
    body.__doc__ = _TEXT.format(name=name, count=count, ones=ones)
    op(
        f"{name}(Tensor input, Tensor indices, int[] kernel_size, int[]? stride=None, "
        "int[] padding=0, int[]? output_size=None) -> Tensor",
        where=_F,
        layout="images",
        autocast="float32",
        samples=lambda: [
            sample(T(1, 2, *[1] * count), T(1, 2, *[1] * count, dtype="i64", low=0, high=2), 2)
        ],
    )(body)


for _count in (1, 2, 3):
    _define_unpool(_count)
