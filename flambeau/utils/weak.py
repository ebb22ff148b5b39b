"""`torch.utils.weak`: dictionaries with weak keys, which are compared by identity."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]

WeakRef = weakref.ref


class WeakIdRef(weakref.ref[Any]):
    """A weak reference that compares by the identity of its object, not by its value."""

    __slots__ = ("_id",)

    def __new__(cls, key: Any, callback: Callable[[Any], Any] | None = None) -> WeakIdRef:
        """The reference."""
        self: WeakIdRef = super().__new__(cls, key, callback)  # type: ignore[arg-type]
        self._id = id(key)
        return self

    def __init__(self, key: Any, callback: Callable[[Any], Any] | None = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine, theirs = self(), other() if isinstance(other, weakref.ref) else None
        if mine is None or theirs is None:
            return self is other
        return mine is theirs


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dictionary of objects by identity; an entry goes when its key does.

    Args:
        dict: entries to begin with.
        ref_type: class of the weak references.
    """

    def __init__(self, dict: Any = None, ref_type: Any = WeakIdRef) -> None:  # noqa: A002
        self.ref_type = ref_type
        self.data: dict[Any, Any] = {}
        data = self.data

        def forget(reference: Any) -> None:
            data.pop(reference, None)

        self._remove = forget
        if dict is not None:
            self.update(dict)

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __contains__(self, key: Any) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:
            return False

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        for reference in list(self.data):
            key = reference()
            if key is not None:
                yield key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def copy(self) -> WeakIdKeyDictionary:
        """A dictionary with the same entries."""
        return type(self)(self, self.ref_type)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> WeakIdKeyDictionary:
        from copy import deepcopy

        result = type(self)(None, self.ref_type)
        for key, value in self.items():
            result[key] = deepcopy(value, memo)
        return result

    def keyrefs(self) -> list[Any]:
        """Weak references to the keys."""
        return list(self.data)

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, MutableMapping):
            return NotImplemented
        result = self.copy()
        result.update(other)
        return result

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MutableMapping):
            return NotImplemented
        mine = {id(key): value for key, value in self.items()}
        return mine == {id(key): value for key, value in other.items()}

    __hash__ = None  # type: ignore[assignment]


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor; called, it returns the tensor or None."""

    def __init__(self, tensor: Any) -> None:
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Any:
        """The tensor, or None."""
        return self.ref()
