"""Lists and dictionaries that cannot be changed: the arguments of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar

from flambeau.utils import _pytree

__all__ = ["immutable_dict", "immutable_list"]

_Value = TypeVar("_Value")
_Key = TypeVar("_Key")

_help_mutation = """If you are attempting to modify the kwargs or args of a torch.fx.Node object,
instead create a new copy of it and assign the copy to the node:

    new_args = ...  # copy and mutate args
    node.args = new_args"""


def _no_mutation(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises: arguments of nodes are replaced, not changed."""
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. {_help_mutation}",
    )


class immutable_list(list[_Value]):
    """A list that raises when it is changed.

    Example:
        >>> from torch.fx.immutable_collections import immutable_list
        >>> immutable_list([1, 2]) == [1, 2]
        True
    """

    __delitem__ = __iadd__ = __imul__ = __setitem__ = _no_mutation  # type: ignore[assignment]
    append = clear = extend = insert = pop = _no_mutation  # type: ignore[assignment]
    remove = reverse = sort = _no_mutation  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self),)


class immutable_dict(dict[_Key, _Value]):
    """A dictionary that raises when it is changed."""

    __delitem__ = __ior__ = __setitem__ = clear = pop = _no_mutation  # type: ignore[assignment]
    popitem = setdefault = update = _no_mutation  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self.items()),)


def _immutable_list_flatten(values: immutable_list[Any]) -> tuple[list[Any], Any]:
    return list(values), None


def _immutable_list_unflatten(values: Iterable[Any], context: Any) -> immutable_list[Any]:
    return immutable_list(values)


def _immutable_dict_flatten(values: immutable_dict[Any, Any]) -> tuple[list[Any], Any]:
    return list(values.values()), list(values)


def _immutable_dict_unflatten(values: Iterable[Any], context: Any) -> immutable_dict[Any, Any]:
    return immutable_dict(zip(context, values, strict=True))


_pytree.register_pytree_node(immutable_list, _immutable_list_flatten, _immutable_list_unflatten)
_pytree.register_pytree_node(immutable_dict, _immutable_dict_flatten, _immutable_dict_unflatten)
