"""Rules of `autocast` for operators that PyTorch makes of several others.

Such an operator follows the rules of its parts, which may depend on its arguments. A rule here is a
function that is called instead of the operator, with the operator as its first argument
(docs/design.md § 8, `autocast`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.core.tensors import autocast_call


def call_with(rule: str, op: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls an operator with operands that are cast by a rule; "" leaves them as they are."""
    return autocast_call(rule or None, op, args, kwargs)


def by_arguments(choose: Callable[..., str]) -> Callable[..., Any]:
    """A rule that depends on the arguments.

    Args:
        choose: has the operator's arguments, returns the rule's name.
    """

    def call(op: Any, *args: Any, **kwargs: Any) -> Any:
        return call_with(choose(*args, **kwargs), op, *args, **kwargs)

    return call


def lower_result(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator in its operands' dtypes, its result in the region's: it ends in a product."""
    result = call_with("", op, *args, **kwargs)
    return call_with("lower", _same, result)


def _same(x: Any) -> Any:
    return x


def untouched(op: Any, *args: Any, **kwargs: Any) -> Any:
    """No rule applies, to the operators that the operator is made of neither."""
    return call_with("", op, *args, **kwargs)
