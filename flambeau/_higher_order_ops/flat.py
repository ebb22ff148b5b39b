"""Functions of containers as functions of flat sequences, which operators take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["Flat", "Function", "Value"]

Value = Any  # of a user's function: a tensor, a number, a container of them
Function = Callable[..., Value]


class Flat:
    """A function of the leaves of another one's arguments; it returns the leaves of its result.

    Args:
        function: of containers.
        spec: the structure of its positional arguments, as a tuple.

    Attributes:
        spec: the structure of the last result.
    """

    def __init__(self, function: Function, spec: Value) -> None:
        self.function = function
        self.arguments = spec
        self.spec: Value = None

    def __call__(self, *leaves: Value) -> tuple[Value, ...]:
        """Calls the function."""
        result = self.function(*tree_unflatten(list(leaves), self.arguments))
        flat, self.spec = tree_flatten(result)
        return tuple(flat)

    def structured(self, leaves: Sequence[Value]) -> Value:
        """Leaves in the structure of the last result.

        Args:
            leaves: as many as the last result had.
        """
        return tree_unflatten(list(leaves), self.spec)
