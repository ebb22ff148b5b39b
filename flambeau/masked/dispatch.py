"""Dispatches calls of operators with masked tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from flambeau.autograd.composition import Operator, Rule, Rules, larger, named
from flambeau.masked import geometry, pointwise, reduce
from flambeau.masked.tensor import MaskedTensor

# Operators with a rule of their own; the others come in families.
FUNCTIONS: dict[str, Rule] = {
    **{name: reduce.plain(name) for name in reduce.PLAIN},
    **{name: reduce.along(name) for name in reduce.ALONG},
    "norm": reduce.norm, "vector_norm": reduce.vector_norm, "all": reduce.all_of,
    "var": reduce.spread("var"), "std": reduce.spread("std"),
    "where": pointwise.where, "copy_": pointwise.copy_,
}  # fmt: skip
# Of two operands, of which a masked one takes a number for the other.
_WITH_NUMBER = named("clamp clamp_ float_power float_power_ ones_like pow pow_ _rpow")
# PyTorch's masked tensors take these pointwise operators and refuse all others.
_POINTWISE = frozenset(
    """
abs acos acosh angle asin asinh atan atanh bitwise_not ceil clamp conj_physical cos cosh deg2rad
digamma erf erfc erfinv exp exp2 expm1 float_power floor frac i0 isfinite isnan isreal lgamma log
log10 log1p log2 logit nan_to_num neg ones_like positive pow rad2deg reciprocal round rsqrt sgn
sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc add atan2 bitwise_and
bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor div eq floor_divide fmax fmin fmod ge
gt isclose le logaddexp logaddexp2 lt maximum minimum mul ne nextafter remainder sub
_div_floor _div_trunc _rdiv _rfloordiv _rlshift _rmod _rrshift rsub
""".split()
)


def refuse(name: str, hint: str = "apply it to x.to_tensor(value), or to x.get_data()") -> NoReturn:
    """Raises for an operator that masked tensors do not have."""
    raise TypeError(f"[{name}] not implemented for masked tensors\nhint: {hint}")


def _on_data(operator: Operator) -> bool:
    """Returns whether PyTorch applies the operator to the data of masked tensors."""
    return operator.base in _POINTWISE


def _reduced(op: Rule, name: str, args: Any, kwargs: Any) -> NoReturn:
    del op, args, kwargs
    refuse(name, f"use a{name}, or arg{name}")


FAMILIES = (
    (named("max min"), larger(pointwise.binary, _reduced)),
    (named(pointwise.KEPT), pointwise.kept),
    (named(geometry.MOVED), geometry.moved),
    (_WITH_NUMBER, pointwise.unary),
    (lambda x: _on_data(x) and x.operands == 1, pointwise.unary),
    (_on_data, pointwise.binary),
    (named("rsub"), pointwise.binary),
)
RULES = Rules(MaskedTensor, FUNCTIONS, FAMILIES, lambda name, tensor: refuse(name))


def call(op: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operator with a masked operand.

    Raises:
        TypeError: masked tensors do not have the operator, or a dense tensor would take a result.
    """
    if RULES.rule(op) is not None:
        if kwargs.pop("out", None) is not None:
            raise ValueError(
                f"[{op.__name__}] masked tensors do not take out=\nhint: leave it away"
            )
        if op.__name__.endswith("_") and args and not isinstance(args[0], MaskedTensor):
            refuse(op.__name__, "a dense tensor cannot take a masked result: leave the _ away")
    if "axis" in kwargs:
        kwargs["dim"] = kwargs.pop("axis")
    return RULES.call(op, args, kwargs)
