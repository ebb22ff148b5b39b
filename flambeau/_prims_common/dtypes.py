"""Rules of dtypes of `torch._prims_common`: predicates, promotion, dtypes of computation."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import flambeau as torch

__all__ = [
    "ELEMENTWISE_TYPE_PROMOTION_KIND", "REDUCTION_OUTPUT_TYPE_KIND", "can_safe_cast_to",
    "check_fp_or_complex", "corresponding_complex_dtype", "corresponding_real_dtype",
    "dtype_or_default", "dtype_to_type", "dtype_to_type_ctor", "elementwise_dtypes",
    "get_acc_type", "get_computation_dtype", "get_dtype", "get_higher_dtype", "get_higher_type",
    "is_boolean_dtype", "is_complex_dtype", "is_float_dtype", "is_grad_dtype", "is_integer_dtype",
    "is_low_precision_dtype", "is_weakly_lesser_type", "number_type", "reduction_dtypes",
    "type_to_dtype",
]  # fmt: skip

_LOW = (torch.float16, torch.bfloat16, torch.complex32)
_COMPLEX = {
    torch.float16: torch.complex32, torch.bfloat16: torch.complex64,
    torch.float32: torch.complex64, torch.float64: torch.complex128,
}  # fmt: skip
_REAL = {
    torch.complex32: torch.float16, torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}  # fmt: skip
_TYPES = (bool, int, float, complex)


class ELEMENTWISE_TYPE_PROMOTION_KIND(Enum):  # noqa: N801 - PyTorch's name
    """How an elementwise operator chooses its dtypes; see `elementwise_dtypes`."""

    DEFAULT = (0,)
    NO_OPMATH = (1,)
    INT_TO_FLOAT = (2,)
    ALWAYS_BOOL = (3,)
    COMPLEX_TO_FLOAT = (4,)
    BOOL_TO_LONG = (5,)


class REDUCTION_OUTPUT_TYPE_KIND(Enum):  # noqa: N801 - PyTorch's name
    """How a reduction chooses its result's dtype."""

    SAME = (0,)
    COMPLEX_TO_FLOAT = (1,)
    KEEP_PROMOTED_TYPE = (2,)
    ALWAYS_BOOL = (3,)


def is_boolean_dtype(dtype: Any) -> bool:
    """Whether it is bool."""
    return dtype is torch.bool


def is_integer_dtype(dtype: Any) -> bool:
    """Whether it is an integer dtype; bool is none."""
    return dtype_to_type(dtype) is int


def is_low_precision_dtype(dtype: Any) -> bool:
    """Whether it is float16, bfloat16 or complex32."""
    return dtype in _LOW


def is_float_dtype(dtype: Any) -> bool:
    """Whether it is a floating-point dtype."""
    return bool(dtype.is_floating_point)


def is_complex_dtype(dtype: Any) -> bool:
    """Whether it is a complex dtype."""
    return bool(dtype.is_complex)


def is_grad_dtype(dtype: Any) -> bool:
    """Whether its tensors may require gradients."""
    return bool(dtype.is_floating_point or dtype.is_complex)


def corresponding_real_dtype(dtype: Any) -> Any:
    """The dtype of a complex dtype's parts."""
    return _REAL[dtype]


def corresponding_complex_dtype(dtype: Any) -> Any:
    """The complex dtype whose parts have a dtype."""
    return _COMPLEX[dtype]


def dtype_to_type(dtype: Any) -> type:
    """The type of Python's numbers of a dtype.

    Example:
        >>> torch._prims_common.dtype_to_type(torch.int8)
        <class 'int'>
    """
    if not isinstance(dtype, torch.dtype):
        raise AssertionError(f"dtype must be torch.dtype, got {type(dtype)}")
    if dtype is torch.bool:
        return bool
    if dtype.is_complex:
        return complex
    return float if dtype.is_floating_point else int


def dtype_to_type_ctor(dtype: Any) -> Callable[[Any], Any]:
    """The function that makes a number of a dtype's type."""
    return dtype_to_type(dtype)


def type_to_dtype(typ: type) -> Any:
    """The dtype of tensors of a type of numbers.

    Raises:
        ValueError: it is no type of numbers.
    """
    if typ is float:
        return torch.get_default_dtype()
    if typ is complex:
        return corresponding_complex_dtype(torch.get_default_dtype())
    dtypes = {bool: torch.bool, int: torch.int64}
    if typ not in dtypes:
        raise ValueError(f"Invalid type {typ}!")
    return dtypes[typ]


def get_dtype(x: Any) -> Any:
    """The dtype of a tensor or number."""
    return x.dtype if isinstance(x, torch.Tensor) else type_to_dtype(type(x))


def number_type(x: Any) -> type:
    """The type of a number."""
    return type(x)


def dtype_or_default(dtype: Any) -> Any:
    """A dtype, or the default one instead of None."""
    return torch.get_default_dtype() if dtype is None else dtype


def is_weakly_lesser_type(a: type, b: type) -> bool:
    """Whether a type of numbers is contained in another: bool, int, float, complex.

    Raises:
        RuntimeError: another type.
    """
    for kind in (a, b):
        if kind not in _TYPES:
            raise RuntimeError(f"Expected builtin numeric types, found {a}, {b}")
    return _TYPES.index(a) <= _TYPES.index(b)


def get_higher_type(a: type, b: type) -> type:
    """The type that contains the other."""
    return b if is_weakly_lesser_type(a, b) else a


def can_safe_cast_to(*, cast_to: Any, cast_from: Any) -> bool:
    """Whether a dtype's category contains another's."""
    return is_weakly_lesser_type(dtype_to_type(cast_from), dtype_to_type(cast_to))


def get_higher_dtype(a: Any, b: Any) -> Any:
    """The dtype that two promote to; None is ignored.

    Args:
        a, b: dtypes, tensors, numbers or None.
    """
    kinds = [x if x is None or isinstance(x, torch.dtype) else get_dtype(x) for x in (a, b)]
    if None in kinds:
        return next((kind for kind in kinds if kind is not None), None)
    return torch.promote_types(*kinds)


def get_computation_dtype(dtype: Any) -> Any:
    """The dtype in which elementwise operators compute."""
    dtypes = {torch.bfloat16: torch.float32, torch.float16: torch.float32,
             torch.complex32: torch.complex64}  # fmt: skip
    return dtypes.get(dtype, dtype)


def get_acc_type(dtype: Any, device: Any) -> Any:
    """The dtype in which sums accumulate: on the CPU, a wider one."""
    if torch.device(device).type != "cpu":
        return get_computation_dtype(dtype)
    wider = {
        torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.float32: torch.float64,
        torch.complex32: torch.complex128, torch.complex64: torch.complex128,
    }  # fmt: skip
    return wider.get(dtype, dtype)


def check_fp_or_complex(dtype: Any, fn_name: str, allow_low_precision_dtypes: bool = True) -> None:
    """Raises RuntimeError for integers, or for half precision where that is excluded."""
    if not is_grad_dtype(dtype):
        raise RuntimeError(
            f"{fn_name}: Expected a floating point or complex tensor as input. Got {dtype}"
        )
    if not allow_low_precision_dtypes and is_low_precision_dtype(dtype):
        raise RuntimeError(f"{fn_name}: Half precision dtypes not supported. Got {dtype}")


def elementwise_dtypes(*_args: Any, type_promotion_kind: Any) -> tuple[Any, Any]:
    """The dtypes in which an elementwise operator computes and returns.

    Args:
        _args: its operands: tensors and numbers; None is left out.
        type_promotion_kind: an `ELEMENTWISE_TYPE_PROMOTION_KIND`.

    Returns:
        tuple: dtype of computation, dtype of the result.

    Example:
        >>> from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Kind
        >>> x = torch.ones(2, dtype=torch.float16)
        >>> torch._prims_common.elementwise_dtypes(x, 2, type_promotion_kind=Kind.DEFAULT)
        (torch.float32, torch.float16)
    """
    args = [x for x in _args if x is not None]
    for x in args:
        if not isinstance(x, (torch.Tensor, *_TYPES)):
            raise ValueError(f"Unexpected type {type(x)} when computing elementwise dtypes")
    result = _promoted(args)
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND
    if type_promotion_kind is kind.INT_TO_FLOAT and not is_grad_dtype(result):
        result = torch.get_default_dtype()
    elif type_promotion_kind is kind.BOOL_TO_LONG and result is torch.bool:
        result = torch.int64
    if type_promotion_kind is kind.NO_OPMATH:
        return result, result
    computation = get_computation_dtype(result)
    if type_promotion_kind is kind.ALWAYS_BOOL:
        return computation, torch.bool
    if type_promotion_kind is kind.COMPLEX_TO_FLOAT and result.is_complex:
        return computation, corresponding_real_dtype(result)
    return computation, result


def _promoted(args: list[Any]) -> Any:
    """The dtype of the operands of the highest category; within it, tensors with dimensions lead,
    then tensors without, then numbers."""
    category = bool
    for x in args:
        category = get_higher_type(category, dtype_to_type(get_dtype(x)))
    for group in (
        [x for x in args if isinstance(x, torch.Tensor) and x.dim() > 0],
        [x for x in args if isinstance(x, torch.Tensor) and x.dim() == 0],
    ):
        highest = None
        for x in group:
            if dtype_to_type(x.dtype) is category:
                highest = get_higher_dtype(highest, x.dtype)
        if highest is not None:
            return highest
    floats = [x.dtype for x in args if isinstance(x, torch.Tensor) and x.dtype.is_floating_point]
    if category is complex and floats:
        highest = None
        for dtype in floats:
            highest = get_higher_dtype(highest, dtype)
        return corresponding_complex_dtype(highest)
    return type_to_dtype(category)


def reduction_dtypes(arg: Any, output_dtype_kind: Any, dtype: Any = None) -> tuple[Any, Any]:
    """The dtypes in which a reduction computes and returns; the latter None: the promoted one.

    Args:
        arg: the tensor.
        output_dtype_kind: a `REDUCTION_OUTPUT_TYPE_KIND`.
        dtype: of the result, if the caller passed one.
    """
    chosen = dtype if dtype is not None else arg.dtype
    computation = get_computation_dtype(chosen)
    kind = REDUCTION_OUTPUT_TYPE_KIND
    if output_dtype_kind is kind.KEEP_PROMOTED_TYPE:
        return computation, None
    if output_dtype_kind is kind.ALWAYS_BOOL:
        return computation, torch.bool
    if output_dtype_kind is kind.COMPLEX_TO_FLOAT and chosen.is_complex:
        return computation, corresponding_real_dtype(chosen)
    return computation, chosen
