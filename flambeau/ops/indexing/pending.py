"""Views of conjugates and of negatives: tensors whose elements are made of what memory holds.

`x.conj()` shares x's memory and has a bit that says so. Views of it inherit the bit; every other
operator is called with a resolved copy, and what it writes is written back. In a recorded region
the copies are recorded operators like any other, so they fuse.
"""

from __future__ import annotations

from typing import Any

from flambeau.core import tensors
from flambeau.ir.failure import failure

CONJUGATE, NEGATIVE = 1, 2
_REFUSED = {"view_as_real", "view"}
_operators: dict[str, Any] = {}


def set_operators(**operators: Any) -> None:
    """Takes the operators that views are made and resolved with, from the operator library."""
    _operators.update(operators)


def bits_of(x: Any) -> int:
    """Returns the pending bits: `CONJUGATE`, `NEGATIVE`, both (3) or none (0)."""
    return CONJUGATE * x.is_conj() + NEGATIVE * x.is_neg()


def is_pending(x: Any) -> bool:
    """Whether a value is a view of conjugates or negatives."""
    return tensors.is_tensor(x) and (x.is_conj() or x.is_neg())


def toggled(x: Any, bits: int) -> Any:
    """A view of the same memory with these bits changed."""
    if bits & CONJUGATE:
        x = _operators["conj_alias"](x)._toggle(CONJUGATE)
    if bits & NEGATIVE:
        x = _operators["neg_alias"](x)._toggle(NEGATIVE)
    return x


def computed(x: Any, bits: int) -> Any:
    """A copy with the conjugate or the negative (or both) of each element."""
    if bits & CONJUGATE:
        x = _operators["conj_physical"](x)
    return -x if bits & NEGATIVE else x


def resolved(x: Any) -> Any:
    """A copy without pending bits."""
    bits = bits_of(x)
    return computed(toggled(x, bits), bits)


def write(target: Any, value: Any) -> None:
    """Writes a value through a view of conjugates to the memory behind it."""
    bits = bits_of(target)
    toggled(target, bits).copy_(computed(value, bits))


def call_resolved(call: tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]) -> Any:
    """Calls an operator with resolved copies; writes back what it changes.

    Args:
        call: the operator, its arguments, and the views among them that it writes.

    Raises:
        RuntimeError: an operator that reads memory as other numbers.
    """
    op, args, kwargs, written = call
    if op.__name__ in _REFUSED:
        problem = f"{op.__name__} doesn't work on unresolved conjugated tensors. To resolve the "
        problem += "conjugate tensor so you can view it, use self.resolve_conj(); however, be "
        problem += "warned that the resulting tensor will NOT alias the original."
        raise failure(RuntimeError, op.__name__, problem, "x.resolve_conj()")
    copies: dict[int, Any] = {}

    def copied(x: Any) -> Any:
        if isinstance(x, (list, tuple)) and any(is_pending(item) for item in x):
            return type(x)(copied(item) for item in x)
        if not is_pending(x):
            return x
        if id(x) not in copies:
            copies[id(x)] = resolved(x)
        return copies[id(x)]

    result = op(*map(copied, args), **{name: copied(value) for name, value in kwargs.items()})
    originals = {}
    for target in written:
        write(target, copies[id(target)])
        originals[id(copies[id(target)])] = target
    if tensors.is_tensor(result):
        return originals.get(id(result), result)
    if originals and type(result) in (tuple, list):
        return type(result)(originals.get(id(item), item) for item in result)
    return result
