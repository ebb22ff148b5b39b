"""`torch.utils._ordered_set`: a set that preserves the order of insertion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import Any, TypeVar

__all__ = ["OrderedSet"]

Element = TypeVar("Element")


class OrderedSet(MutableSet[Element]):
    """A set that iterates in the order of insertion.

    Example:
        >>> list(OrderedSet([3, 1, 3]) | {2})
        [3, 1, 2]
    """

    def __init__(self, iterable: Iterable[Element] | None = None) -> None:
        self._dict: dict[Element, None] = dict.fromkeys(iterable or ())

    def __contains__(self, elem: object) -> bool:
        return elem in self._dict

    def __iter__(self) -> Iterator[Element]:
        return iter(self._dict)

    def __reversed__(self) -> Iterator[Element]:
        return reversed(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def add(self, elem: Element) -> None:
        """Adds an element at the end, unless it is there."""
        self._dict[elem] = None

    def discard(self, elem: Element) -> None:
        """Takes an element out, if it is there."""
        self._dict.pop(elem, None)

    def clear(self) -> None:
        """Takes all elements out."""
        self._dict.clear()

    def pop(self) -> Element:
        """Takes out the newest element."""
        if not self._dict:
            raise KeyError("pop from an empty set")
        return self._dict.popitem()[0]

    def copy(self) -> OrderedSet[Element]:
        """A set of the same elements."""
        return OrderedSet(self)

    def update(self, *others: Iterable[Element]) -> None:
        """Adds the elements of others."""
        for other in others:
            self._dict.update(dict.fromkeys(other))

    def union(self, *others: Iterable[Element]) -> OrderedSet[Element]:
        """All elements."""
        result = self.copy()
        result.update(*others)
        return result

    def intersection(self, *others: Iterable[Any]) -> OrderedSet[Element]:
        """Elements that all sets have."""
        sets = [set(other) for other in others]
        return OrderedSet(e for e in self if all(e in other for other in sets))

    def difference(self, *others: Iterable[Any]) -> OrderedSet[Element]:
        """Elements that no other set has."""
        return OrderedSet(e for e in self if not any(e in set(other) for other in others))

    def __repr__(self) -> str:
        return f"OrderedSet({list(self)})"
