"""Which function answers a call of an operator with a masked tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from flambeau.core.tensors import Tensor
from flambeau.masked import geometry, pointwise, reduce
from flambeau.masked.tensor import MaskedTensor

# Operators with a rule of their own; families are sets of names beside their functions.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: reduce.plain(name) for name in reduce.PLAIN},
    **{name: reduce.along(name) for name in reduce.ALONG},
    "norm": reduce.norm, "vector_norm": reduce.vector_norm, "all": reduce.all_of,
    "var": reduce.spread("var"), "std": reduce.spread("std"),
    "where": pointwise.where, "copy_": pointwise.copy_,
}  # fmt: skip
# These have in-place forms that would change a tensor's dtype or sizes.
NEVER_IN_PLACE = frozenset({"angle", "isfinite", "isnan", "isreal", "ones_like", "positive",
                            "signbit", "isclose"})  # fmt: skip


def refuse(name: str, hint: str = "apply it to x.to_tensor(value), or to x.get_data()") -> NoReturn:
    """Raises for an operator that masked tensors do not have."""
    raise TypeError(f"[{name}] not implemented for masked tensors\nhint: {hint}")


@functools.cache
def _answer(op: Any) -> Callable[..., Any] | None:
    name = op.__name__
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in pointwise.LARGER:
        return functools.partial(_larger, op, name)
    base = name.removesuffix("_")
    if base != name and base in NEVER_IN_PLACE:
        return None
    families = (
        (pointwise.UNARY, base, pointwise.unary), (pointwise.BINARY, base, pointwise.binary),
        (pointwise.KEPT, name, pointwise.kept), (geometry.MOVED, name, geometry.moved),
    )  # fmt: skip
    for names, key, function in families:
        if key in names:
            return functools.partial(_of, function, op, name)
    return None


def _larger(op: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """`max(x, y)` compares tensors; `max(x)` would reduce, which is `amax`."""
    if not any(isinstance(x, Tensor) for x in (*args[1:], kwargs.get("other"))):
        refuse(name, f"use a{name}, or arg{name}")
    return _of(pointwise.binary, op, name, *args, **kwargs)


def _of(function: Callable[..., Any], op: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    if "input" in kwargs:
        args, kwargs = (kwargs.pop("input"), *args), kwargs
    return function(op, name, args, kwargs)


def call(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operator with a masked operand.

    Raises:
        TypeError: masked tensors do not have the operator, or a dense tensor would take a result.
    """
    function = _answer(op)
    if function is None:
        refuse(op.__name__)
    if kwargs.pop("out", None) is not None:
        raise ValueError(f"[{op.__name__}] masked tensors do not take out=\nhint: leave it away")
    if op.__name__.endswith("_") and args and not isinstance(args[0], MaskedTensor):
        refuse(op.__name__, "a dense tensor cannot take a masked result: leave the _ away")
    if "self" in kwargs:
        kwargs["input"] = kwargs.pop("self")
    if "axis" in kwargs:
        kwargs["dim"] = kwargs.pop("axis")
    return function(*args, **kwargs)
