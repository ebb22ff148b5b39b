"""The inverse of max pooling: maxima put back where they were found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.size import prod
from flambeau.language.definition import op
from flambeau.language.dtypes import name_of
from flambeau.language.samples import T, sample
from flambeau.language.schema import SymInt, Tensor
from flambeau.ops.neural.convolution import numbers
from flambeau.ops.neural.pooling import flat

_F = "nn.functional"


def no_place(name: str) -> str:
    """The message of an index that is no position in an image."""
    return (
        f"[{name}] Found an invalid max index: {{value}} (of {{size}} positions)\n"
        "hint: indices come from max_pool with return_indices=True"
    )


@op(
    name="_max_unpool",
    where="private",
    layout="images",
    samples=lambda: [sample(T(1, 1, 2), T(1, 1, 2, values=[[[3, 0]]], dtype="i64"), (4,))],
)
def max_unpool(input: Tensor, indices: Tensor, size: Sequence[SymInt]) -> Tensor:
    """Zeros of spatial sizes `size` with the values of `input` at flat positions `indices`."""
    count = len(size)
    lead = input.shape[:-count]
    base = prims.full(0, (prod(lead), prod(size)), input.dtype)
    index = prims.check_index(
        flat(indices, count),
        prod(size),
        "max_unpool",
        no_place("max_unpool"),
        error="runtime",
        strict=True,
    )
    filled = prims.scatter(base, index, flat(input, count), 1, "set")
    return prims.reshape(filled, (*lead, *size))


def _unpool_size(
    name: str, x: Any, kernel: Any, stride: Any, padding: Any, output_size: Any, count: int
) -> list[int]:
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
    if len(chosen) != count or any(
        not default[d] - strides[d] < chosen[d] < default[d] + strides[d] for d in range(count)
    ):
        problem = f"invalid output_size {list(output_size)}: each must be within a stride of "
        problem += f"{default}"
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

    def body(
        input: Any,
        indices: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
    ) -> Any:
        if tuple(indices.shape) != tuple(input.shape):
            problem = f"Expected shape of indices to be: {list(input.shape)} but got: "
            problem += f"{list(indices.shape)}"
            raise failure(RuntimeError, name, problem, f"indices of max_pool{count}d")
        if name_of(indices.dtype) != "i64":
            problem = f"elements in indices should be type int64 but got: {indices.dtype}"
            raise failure(RuntimeError, name, problem, f"indices of max_pool{count}d")
        size = _unpool_size(name, input, kernel_size, stride, padding, output_size, count)
        if count == 3:  # PyTorch keeps channels last in images alone
            input, indices = input.contiguous(), indices.contiguous()
        return max_unpool(input, indices, size)

    body.__name__ = name
    ones = ", ".join(["1", *"4" * (count + 1)])
    body.__doc__ = _TEXT.format(name=name, count=count, ones=ones)
    op(
        f"{name}(Tensor input, Tensor indices, int[] kernel_size, int[]? stride=None, "
        "int[] padding=0, int[]? output_size=None) -> Tensor",
        where=_F,
        host=True,
        autocast="float32",
        samples=lambda: [
            sample(T(1, 2, *[1] * count), T(1, 2, *[1] * count, dtype="i64", low=0, high=2), 2)
        ],
    )(body)


for _count in (1, 2, 3):
    _define_unpool(_count)
