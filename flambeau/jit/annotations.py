"""`torch.jit.annotations`: types that signatures of scripted code use."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple, Union  # noqa: UP035 - PyTorch has these names here

from flambeau.jit.script_types import optional_of
from flambeau.nn import Module

__all__ = [
    "Any",
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "Dict",
    "List",
    "Module",
    "Tuple",
    "is_optional",
]


class _BroadcastingList:
    """`BroadcastingList2[int]`: one value, or a list of as many."""

    def __getitem__(self, element: Any) -> Any:
        return Union[element, List[element]]  # noqa: UP006, UP007


BroadcastingList1 = _BroadcastingList()
BroadcastingList2 = _BroadcastingList()
BroadcastingList3 = _BroadcastingList()


def is_optional(ann: Any) -> bool:
    """Whether a type is `Optional[...]`.

    Example:
        >>> torch.jit.annotations.is_optional(int | None)
        True
    """
    return optional_of(ann) is not None
