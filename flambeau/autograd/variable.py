"""`autograd.variable.Variable`: the old home of Variable, for code that imports it from there."""

from __future__ import annotations

from flambeau._core import Tensor
from flambeau.autograd import Variable

__all__ = ["Variable", "VariableMeta"]


class VariableMeta(type):
    """A type whose instances are all tensors."""

    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, Tensor)
