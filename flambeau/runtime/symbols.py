"""`torch.sym_max` and its relatives: arithmetic of sizes, of numbers and of symbols."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from flambeau import _core
from flambeau.ir import size, size_program
from flambeau.runtime.symbolic import apply, is_symbolic, rule_for

__all__ = [
    "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum",
]  # fmt: skip


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _overridable(function: _Function) -> _Function:
    """Lets `__torch_function__` of the arguments take over: graphs record the call."""

    @functools.wraps(function)
    def asked(*args: Any) -> Any:
        if _core.has_torch_function(args):
            return _core.handle_torch_function(asked, args, args, {})
        if any(map(is_symbolic, args)):
            return apply(asked, *args)
        return function(*args)

    return asked  # type: ignore[return-value]


def _extreme(name: str, choose: Callable[[Any, Any], Any], a: Any, b: Any) -> int | float:
    for value in (a, b):
        if not isinstance(value, (int, float)):
            raise AssertionError(f"[{name}] takes numbers, got {type(value)}\nhint: x.item()")
    extreme: int | float = choose(a, b)
    return float(extreme) if isinstance(a, float) or isinstance(b, float) else extreme


@_overridable
def sym_max(a: Any, b: Any) -> int | float:
    """The larger of two numbers; a float where one is.

    Raises:
        AssertionError: no numbers.

    Example:
        >>> torch.sym_max(3, 2.0)
        3.0
    """
    return _extreme("sym_max", builtins.max, a, b)


@_overridable
def sym_min(a: Any, b: Any) -> int | float:
    """The smaller of two numbers; a float where one is.

    Raises:
        AssertionError: no numbers.

    Example:
        >>> torch.sym_min(3, 2)
        2
    """
    return _extreme("sym_min", builtins.min, a, b)


@_overridable
def sym_not(a: Any) -> bool:
    """Whether a condition is false.

    Example:
        >>> torch.sym_not(True)
        False
    """
    return not a


@_overridable
def sym_int(a: Any) -> int:
    """A number's whole part.

    Example:
        >>> torch.sym_int(-2.5)
        -2
    """
    return int(a)


@_overridable
def sym_float(a: Any) -> float:
    """A number as a float.

    Example:
        >>> torch.sym_float(2)
        2.0
    """
    return float(a)


@_overridable
def sym_sqrt(a: Any) -> float:
    """A number's square root.

    Raises:
        ValueError: it is negative.

    Example:
        >>> torch.sym_sqrt(4)
        2.0
    """
    return math.sqrt(a)


def sym_sum(*args: Any) -> Any:
    """The sum of numbers, or of those of a sequence.

    Example:
        >>> torch.sym_sum(1, 2, 3), torch.sym_sum([1, 2])
        (6, 3)
    """
    terms: Sequence[Any] = args
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        terms = args[0]
    return sum(terms)


@_overridable
def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """`t` where a condition holds, else `f`.

    Raises:
        AssertionError: no condition, or values of different types.

    Example:
        >>> torch.sym_ite(True, 1, 2)
        1
    """
    if not isinstance(b, bool):
        raise AssertionError(f"[sym_ite] takes a bool, got {type(b)}\nhint: bool(condition)")
    if type(t) is not type(f):
        raise AssertionError(
            f"[sym_ite] values of different types: {type(t)} and {type(f)}\nhint: convert one"
        )
    return t if b else f


rule_for(sym_max, integers=size.maximum)
rule_for(sym_min, integers=size.minimum)
rule_for(sym_int, integers=lambda a: a)
rule_for(sym_not, truths=size_program.not_)
