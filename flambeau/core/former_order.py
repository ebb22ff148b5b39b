"""Former orders of arguments: a factor before what it multiplies, `add(x, alpha, other)`.

PyTorch still takes them, with one warning per process; optimizers written before 2020 use them.
The native core calls this module when a call fits no overload.
"""

from __future__ import annotations

from typing import Any

from flambeau import _core
from flambeau.core.warned import warn_once

Call = tuple[tuple[Any, ...], dict[str, Any]]

_TEXT = (
    "This overload of an operator is deprecated: a number before the tensor that it multiplies, "
    "add(x, alpha, other) say\n"
    "Consider using the following signature instead: add(x, other, *, alpha)"
)
# Operators with one factor: its name, then the operands behind it.
_ONE_FACTOR = {
    "add": ("alpha", ("other",)),
    "sub": ("alpha", ("other",)),
    "addcmul": ("value", ("tensor1", "tensor2")),
    "addcdiv": ("value", ("tensor1", "tensor2")),
}
# Products added to a tensor, with a factor for each: the names of the two operands.
_TWO_FACTORS = {
    "addmm": ("mat1", "mat2"),
    "addmv": ("mat", "vec"),
    "addr": ("vec1", "vec2"),
    "addbmm": ("batch1", "batch2"),
    "baddbmm": ("batch1", "batch2"),
    "sspaddmm": ("mat1", "mat2"),
}


def _is_factor(value: Any) -> bool:
    """Whether a value is a number: a tensor without dimensions is one, too."""
    if isinstance(value, _core.Tensor):
        return value.dim() == 0 and not value.requires_grad
    return isinstance(value, (int, float, complex))


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, _core.Tensor) else value


def _with_one(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    factor, operands = _ONE_FACTOR[name]
    named = [operand for operand in operands if operand in kwargs]
    fits = len(args) + len(named) == 2 + len(operands) and operands[len(args) - 2 :] == (*named,)
    if not fits or factor in kwargs or len(args) < 2 or not _is_factor(args[1]):
        return None
    return (args[0], *args[2:]), {**kwargs, factor: _number(args[1])}


def _with_two(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    del name
    if not 4 <= len(args) <= 5 or "beta" in kwargs or "alpha" in kwargs:
        return None
    numbers, tensors = list(args[:-2]), args[-2:]
    own = numbers.pop(0 if isinstance(args[0], _core.Tensor) and args[0].dim() else 1)
    if not isinstance(own, _core.Tensor) or not all(map(_is_factor, numbers)):
        return None
    factors = dict(zip(("beta", "alpha"), map(_number, numbers), strict=False))
    return (own, *tensors), {**kwargs, **factors}


def reordered(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """The arguments of a call in today's order; None where they are in no former order.

    Args:
        name: of the operator, "add_" say.
        args, kwargs: of a call that fits no overload.

    Example:
        >>> x = torch.ones(2)
        >>> reordered("add_", (x, 2, x), {})[1]
        {'alpha': 2}
    """
    base = name.removesuffix("_")
    rule = _with_one if base in _ONE_FACTOR else _with_two if base in _TWO_FACTORS else None
    call = rule(base, args, kwargs) if rule else None
    if call is not None:
        warn_once(_TEXT)
    return call
