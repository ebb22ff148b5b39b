"""Questions about type promotion: which dtype would an operator compute in?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import _core
from flambeau.language import promotion
from flambeau.language.definition import op
from flambeau.language.dtypes import name_of, object_of
from flambeau.language.samples import Sample, T, sample
from flambeau.language.schema import DType
from flambeau.ops.shape.convert import sample_dtype


def _dtype_samples() -> Iterator[Sample]:
    for left, right in (("int32", "float32"), ("uint8", "int8"), ("bfloat16", "float16")):
        yield sample(sample_dtype(left), sample_dtype(right))
        yield sample(sample_dtype(right), sample_dtype(left))


@op(where="torch", host=True, samples=_dtype_samples)
def promote_types(type1: DType | None, type2: DType | None) -> Any:
    """The smallest dtype to which both dtypes convert.

    Example:
        >>> torch.promote_types(torch.int32, torch.float32)
        torch.float32
    """
    return object_of(promotion.promote_types(name_of(type1), name_of(type2)))


@op(where="torch", host=True, samples=_dtype_samples)
def can_cast(from_: DType | None, to: DType | None) -> bool:
    """Whether a result of dtype `from_` may be written into a tensor of dtype `to`.

    Example:
        >>> torch.can_cast(torch.float32, torch.int32)
        False
    """
    return promotion.can_cast(name_of(from_), name_of(to))


def _participant(value: Any) -> tuple[str, str]:
    if not isinstance(value, _core.Tensor):
        return promotion.number_dtype(type(value)), "number"
    return name_of(value.dtype), "tensor" if value.dim() else "zero_dim"


@op(
    where="torch",
    host=True,
    samples=lambda: [sample(T(2), 1.5), sample(T(2), T(dtype="f64")), sample(1, 2.0)],
)
def result_type(tensor: Any, other: Any) -> Any:
    """The dtype in which an operator on these operands (tensors or numbers) would compute.

    Example:
        >>> torch.result_type(torch.tensor([1, 2]), 1.5)
        torch.float32
    """
    return object_of(promotion.result_type([_participant(tensor), _participant(other)]))
