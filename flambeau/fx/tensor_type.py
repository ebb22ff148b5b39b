"""Types of tensors with known and unknown sizes, for gradual type checks of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class TensorType:
    """A tensor's sizes, `Dyn` where one is not known.

    Args:
        dim: the sizes.

    Example:
        >>> from torch.fx.tensor_type import Dyn, TensorType, is_consistent
        >>> is_consistent(TensorType((1, Dyn)), TensorType((1, 3)))
        True
    """

    def __init__(self, dim: Sequence[Any]) -> None:
        self.__origin__ = TensorType
        self.__args__ = dim

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"

    @property
    def dims(self) -> Sequence[Any]:
        """The sizes."""
        return self.__args__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and list(self.__args__) == list(other.__args__)

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def __class_getitem__(*args: Any) -> TensorType:
        dims = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        return TensorType(tuple(dims))


class _DynType:
    """The type of what is not known."""

    def __init__(self) -> None:
        self.__name__ = "_DynType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self.__class__)

    def __str__(self) -> str:
        return "Dyn"

    def __repr__(self) -> str:
        return "Dyn"

    __hash__ = None  # type: ignore[assignment]


Dyn = _DynType()


def _related(t1: Any, t2: Any, relation: Any) -> bool:
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        left, right = t1.__args__, t2.__args__
        return len(left) == len(right) and all(map(relation, left, right))
    return False


def is_consistent(t1: Any, t2: Any) -> bool:
    """Whether two types can be of the same value.

    Args:
        t1: a `TensorType`, a size or `Dyn`.
        t2: likewise.
    """
    if t1 == t2 or t1 == Dyn or t2 == Dyn or _is_variable(t1) or _is_variable(t2):
        return True
    return _related(t1, t2, is_consistent)


def is_more_precise(t1: Any, t2: Any) -> bool:
    """Whether the first type says at least as much as the second.

    Args:
        t1: a `TensorType`, a size or `Dyn`.
        t2: likewise.
    """
    if t1 == t2 or t2 == Dyn or _is_variable(t2):
        return True
    return _related(t1, t2, is_more_precise)


def _is_variable(kind: Any) -> bool:
    return type(kind).__name__ == "Var"
