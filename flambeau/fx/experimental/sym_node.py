"""Names of the operations on symbolic sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from flambeau.runtime import symbols
from flambeau.runtime.symbolic import SymNode

__all__ = ["DynamicInt", "SymNode", "magic_methods", "method_to_operator"]

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "int_truediv": operator.truediv, "float_truediv": operator.truediv, "mod": operator.mod,
    "floordiv": operator.floordiv, "int_floordiv": operator.floordiv, "pow": operator.pow,
    "pow_by_natural": operator.pow, "float_pow": operator.pow, "eq": operator.eq,
    "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "neg": operator.neg, "pos": operator.pos, "abs": operator.abs, "and": operator.and_,
    "or": operator.or_, "lshift": operator.lshift, "rshift": operator.rshift,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "ceil": math.ceil, "floor": math.floor, "trunc": math.trunc, "round": round,
    "is_integer": float.is_integer, "sym_float": symbols.sym_float, "sym_int": symbols.sym_int,
    "sym_ite": symbols.sym_ite, "sym_max": symbols.sym_max, "sym_min": symbols.sym_min,
    "sym_not": symbols.sym_not,
}  # fmt: skip

magic_methods: dict[str, Callable[..., Any]] = dict(_OPERATIONS)


def method_to_operator(method: str) -> Callable[..., Any]:
    """The function of a name in `magic_methods`.

    Args:
        method: such as "add".

    Example:
        >>> from torch.fx.experimental.sym_node import method_to_operator
        >>> method_to_operator("floordiv")(7, 2)
        3
    """
    return _OPERATIONS[method]


class DynamicInt(int):
    """A number that `torch.compile` may take for one that varies."""

    def __repr__(self) -> str:
        return f"DynamicInt({int(self)})"
