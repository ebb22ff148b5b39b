"""Choosing element by element: `where`, `masked_fill`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.promotion import result_type
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.broadcasting import is_complex
from flambeau.ops.creation.creation import number
from flambeau.ops.indexing.index import I

Samples = Iterator[Sample]


def _mask_samples() -> Samples:
    mask = T(3, 4, dtype="bool", low=0, high=2, grad=False)
    yield sample(T(3, 4), mask, 1.5)
    yield sample(T(3, 4), T(4, dtype="bool", low=0, high=2, grad=False), -1)
    yield sample(T(3, 4), mask, T())


def check_mask(mask: Node, name: str) -> None:
    """Raises RuntimeError unless the mask is boolean."""
    if mask.dtype != "bool":
        problem = f"{name} only supports boolean masks, but got mask with dtype {mask.dtype}"
        raise failure(RuntimeError, name, problem, "compare, or convert with bool()")


@op(
    inplace=True,
    overlap="copy",
    repeats=True,
    fits="value",
    runtime="value",
    samples=_mask_samples,
    errors=lambda: [ErrorSample(sample(T(3), I(3, high=2), 1.0), RuntimeError, "boolean masks")],
    pointwise=True,
)
def masked_fill(self: Tensor, mask: Tensor, value: Tensor | Scalar) -> Tensor:
    """The tensor with a number where the mask is true; mask and tensor broadcast.

    Raises:
        RuntimeError: a mask that is not boolean, or that does not broadcast.

    Example:
        >>> torch.zeros(2).masked_fill(torch.tensor([True, False]), 5)
        tensor([5., 0.])
    """
    check_mask(mask, "masked_fill")
    if isinstance(value, Node) and is_complex(value) and not is_complex(self):
        problem = f"value cannot be converted to type {self.dtype} without overflow"
        raise failure(
            RuntimeError, "masked_fill", problem, "fill with a real number, or convert the tensor"
        )
    chosen, other = prims.broadcast_all(mask, self)
    return prims.where(chosen, number(value, other.shape, self.dtype, "masked_fill_"), other)


def _where_samples() -> Samples:
    condition = T(3, 4, dtype="bool", low=0, high=2, grad=False)
    yield sample(condition, T(3, 4), T(3, 4))
    yield sample(condition, T(4), T(3, 1))
    yield sample(condition, T(3, 4), 1.5)
    yield sample(condition, 2, T(3, 4))
    yield sample(condition, 1.0, 2.0)


@op(
    where="torch",
    layout="follow",
    out="exact",
    runtime="input other",
    samples=_where_samples,
    reference="numpy.where",
)
def where(condition: Tensor, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """`input` where the condition is true, else `other`, in their common dtype; all broadcast.

    With the condition alone: `nonzero(as_tuple=True)`.

    Raises:
        RuntimeError: a condition that is not boolean, or shapes that do not broadcast.

    Example:
        >>> torch.where(torch.tensor([True, False]), 1, 2)
        tensor([1, 2])
    """
    if condition.dtype not in ("bool", "u8"):
        problem = "where expected condition to be a boolean tensor, but got a tensor with dtype "
        problem += f"{condition.dtype}"
        raise failure(RuntimeError, "where", problem, "compare, or convert with bool()")
    common = result_type(_participant(x) for x in (input, other))
    values = [
        prims.cast(x, common) if isinstance(x, Node) else prims.full(x, (), common)
        for x in (input, other)
    ]
    mask, a, b = prims.broadcast_all(prims.cast(condition, "bool"), *values)
    return prims.where(mask, a, b)


def _participant(value: Any) -> tuple[str, str]:
    from flambeau.language.promotion import default_dtype, number_dtype

    if not isinstance(value, Node):
        return number_dtype(type(value)), "number"
    if value.is_scalar:
        return (default_dtype() if value.dtype == "f64" else value.dtype), "number"
    return value.dtype, "tensor" if value.shape else "zero_dim"


@where.overload(host=True, samples=None)
def _where_places(condition: Tensor) -> tuple[Tensor, ...]:
    return condition.nonzero(as_tuple=True)


def _where_method(self: Any, condition: Any, other: Any) -> Any:
    """`torch.where(condition, self, other)`."""
    return where(condition, self, other)


tensors.define_method("where", _where_method)
