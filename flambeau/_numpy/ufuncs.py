"""NumPy's universal functions as operators on tensors.

NumPy itself resolves the types of operands and of the result (`ufunc.resolve_dtypes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import flambeau as torch
from flambeau._numpy.dtypes import Untranslated, cast, torch_dtype

__all__ = ["UFUNCS", "accumulated", "called", "outer", "reduced"]

Value = Any  # a tensor, a number
Rule = Callable[..., Value]


def _cbrt(x: Value) -> Value:
    return torch.sign(x) * torch.pow(torch.abs(x), 1 / 3)


def _by_zero(rule: Rule) -> Rule:
    """A division of integers that is 0 where the divisor is, as in NumPy."""

    def divide(a: Value, b: Value) -> Value:
        if a.is_floating_point():
            return rule(a, b)
        zero = b == 0
        return torch.where(zero, torch.zeros_like(a), rule(a, torch.where(zero, 1, b)))

    return divide


def _minimum(take: Rule) -> Rule:
    """`fmin` and `fmax` of numbers that are no floats, too."""
    plain = {torch.fmin: torch.minimum, torch.fmax: torch.maximum}[take]
    return lambda a, b: (take if a.is_floating_point() else plain)(a, b)


def _integral(rule: Rule) -> Rule:
    """A function that rounds: integers are what they are."""
    return lambda x: rule(x) if x.is_floating_point() else x


def _float_test(rule: Rule, otherwise: bool) -> Rule:
    def test(x: Value) -> Value:
        if x.is_floating_point() or x.is_complex():
            return rule(x)
        return torch.full_like(x, otherwise, dtype=torch.bool)

    return test


def _reciprocal(x: Value) -> Value:
    if not (x.is_floating_point() or x.is_complex()):
        raise Untranslated("reciprocal of integers")
    return torch.reciprocal(x)


def _divmod(a: Value, b: Value) -> Value:
    return UFUNCS["floor_divide"](a, b), UFUNCS["remainder"](a, b)


UFUNCS: dict[str, Rule] = {
    "negative": torch.neg, "positive": torch.positive, "absolute": torch.abs, "fabs": torch.abs,
    "sign": torch.sign, "sqrt": torch.sqrt, "square": torch.square, "cbrt": _cbrt,
    "reciprocal": _reciprocal, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1,
    "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "arcsin": torch.asin,
    "arccos": torch.acos, "arctan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "tanh": torch.tanh, "arcsinh": torch.asinh, "arccosh": torch.acosh, "arctanh": torch.atanh,
    "floor": _integral(torch.floor), "ceil": _integral(torch.ceil),
    "trunc": _integral(torch.trunc), "rint": _integral(torch.round),
    "isnan": _float_test(torch.isnan, False), "isinf": _float_test(torch.isinf, False),
    "isfinite": _float_test(torch.isfinite, True), "signbit": torch.signbit,
    "logical_not": torch.logical_not, "invert": torch.bitwise_not, "conjugate": torch.conj_physical,
    "degrees": torch.rad2deg, "rad2deg": torch.rad2deg, "radians": torch.deg2rad,
    "deg2rad": torch.deg2rad,
    "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div,
    "floor_divide": _by_zero(torch.floor_divide), "remainder": _by_zero(torch.remainder),
    "fmod": _by_zero(torch.fmod), "divmod": _divmod, "power": torch.pow, "float_power": torch.pow,
    "arctan2": torch.atan2, "hypot": torch.hypot, "maximum": torch.maximum,
    "minimum": torch.minimum, "fmax": _minimum(torch.fmax), "fmin": _minimum(torch.fmin),
    "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le,
    "greater": torch.gt, "greater_equal": torch.ge, "logical_and": torch.logical_and,
    "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor, "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift, "copysign": torch.copysign,
    "nextafter": torch.nextafter, "logaddexp": torch.logaddexp, "logaddexp2": torch.logaddexp2,
    "heaviside": torch.heaviside, "gcd": torch.gcd, "lcm": torch.lcm, "matmul": torch.matmul,
    "vecdot": lambda a, b: torch.linalg.vecdot(a, b),
}  # fmt: skip
_COMPARING_COMPLEX = frozenset(("equal", "not_equal"))


def called(ufunc: Value, operands: Sequence[Value], dtype: Value = None) -> Value:
    """The results of a universal function, as tensors.

    Args:
        ufunc: of NumPy.
        operands: tensors with NumPy's dtype, as pairs, and numbers of Python.
        dtype: of the computation, None: as NumPy chooses it.

    Raises:
        Untranslated: there is no operator.
    """
    rule = UFUNCS.get(ufunc.__name__)
    if rule is None:
        raise Untranslated(ufunc.__name__)
    types = [type(x) if _is_number(x) else x[1] for x in operands]
    results = (None,) * ufunc.nout
    options = {}
    if dtype is not None:
        kinds = (*(None,) * ufunc.nin, *(np.dtype(dtype),) * ufunc.nout)
        options["signature"] = kinds
    resolved = ufunc.resolve_dtypes((*types, *results), **options)
    inputs = [_cast(x, kind) for x, kind in zip(operands, resolved, strict=False)]
    if inputs[0].is_complex() and ufunc.__name__ in ("sign", "floor_divide", "maximum", "minimum"):
        raise Untranslated(f"{ufunc.__name__} of complex numbers")
    values = rule(*inputs)
    ours = [torch_dtype(kind) for kind in resolved[ufunc.nin :]]
    if ufunc.nout > 1:
        return tuple([cast(x, kind) for x, kind in zip(values, ours, strict=True)])
    return cast(values, ours[0])


def _is_number(value: Value) -> bool:
    return type(value) in (int, float, complex)


def _cast(operand: Value, dtype: Value) -> Value:
    kind = torch_dtype(dtype)
    if _is_number(operand):
        return torch.full((), operand, dtype=kind)
    return cast(operand[0], kind)


# ------------------------------------------------------------------------------ along an axis
_REDUCED = {"add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin",
            "logical_and": "all", "logical_or": "any"}  # fmt: skip
_ACCUMULATED = {"add": "cumsum", "multiply": "cumprod"}


def reduced(name: str) -> str:
    """The function of NumPy that a reduction by a universal function is.

    Raises:
        Untranslated: there is none.
    """
    if name not in _REDUCED:
        raise Untranslated(f"{name}.reduce")
    return _REDUCED[name]


def accumulated(name: str) -> str:
    """The function of NumPy that gives the results on the way; see `reduced`."""
    if name not in _ACCUMULATED:
        raise Untranslated(f"{name}.accumulate")
    return _ACCUMULATED[name]


def outer(a: Value, b: Value) -> tuple[Value, Value]:
    """Operands whose pairs are those of `ufunc.outer`."""
    return a.reshape(*a.shape, *(1,) * b.ndim), b
