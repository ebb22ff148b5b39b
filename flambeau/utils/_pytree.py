"""Nested containers as a flat list of leaves and a description of their form.

Containers: list, tuple, dict, OrderedDict, defaultdict, deque, named tuples, and registered types.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flambeau.ir.modules import module_of

__all__ = [
    "LeafSpec",
    "TreeSpec",
    "register_pytree_node",
    "tree_all",
    "tree_any",
    "tree_flatten",
    "tree_iter",
    "tree_leaves",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_structure",
    "tree_unflatten",
]

Flatten = Callable[[Any], tuple[list[Any], Any]]
Unflatten = Callable[[Iterable[Any], Any], Any]


@dataclass(frozen=True)
class _Kind:
    flatten: Flatten
    unflatten: Unflatten


class _Named:
    """Stands for results with named fields: `torch.return_types.sort` ..."""


_KINDS: dict[type, _Kind] = {
    list: _Kind(lambda x: (list(x), None), lambda items, _: list(items)),
    tuple: _Kind(lambda x: (list(x), None), lambda items, _: tuple(items)),
    dict: _Kind(lambda x: (list(x.values()), tuple(x)), lambda items, keys: dict(zip(keys, items))),
    OrderedDict: _Kind(
        lambda x: (list(x.values()), tuple(x)), lambda items, keys: OrderedDict(zip(keys, items))
    ),
    defaultdict: _Kind(
        lambda x: (list(x.values()), (x.default_factory, tuple(x))),
        lambda items, context: defaultdict(context[0], zip(context[1], items)),
    ),
    deque: _Kind(lambda x: (list(x), x.maxlen), lambda items, limit: deque(items, limit)),
    namedtuple: _Kind(  # type: ignore[dict-item] - stands for all of them
        lambda x: (list(x), type(x)), lambda items, kind: kind(*items)
    ),
    _Named: _Kind(lambda x: (list(x), type(x)), lambda items, kind: kind(tuple(items))),
}


@dataclass(frozen=True)
class TreeSpec:
    """The form of a nested structure.

    Attributes:
        type: of the container; None for a leaf.
        context: what is needed to build it beside its items.
        children: forms of the items.
    """

    type: Any
    context: Any = None
    children: tuple[TreeSpec, ...] = field(default=())

    @property
    def num_leaves(self) -> int:
        """Leaves in the whole structure."""
        return 1 if self.type is None else sum(child.num_leaves for child in self.children)

    @property
    def num_children(self) -> int:
        """Items of this container."""
        return len(self.children)

    def is_leaf(self) -> bool:
        """Whether this is no container."""
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The structure with these leaves."""
        return tree_unflatten(leaves, self)


class LeafSpec(TreeSpec):
    """The form of a single leaf."""

    def __init__(self) -> None:
        super().__init__(None)


_LEAF = LeafSpec()


def register_pytree_node(
    cls: type, flatten_fn: Flatten, unflatten_fn: Unflatten, **options: Any
) -> None:
    """Makes `cls` a container.

    Args:
        flatten_fn: object -> (items, context).
        unflatten_fn: (items, context) -> object.
        options: names for serialisation, which is not supported; accepted for PyTorch's sake.

    Raises:
        ValueError: the type is registered already.
    """
    del options
    if cls in _KINDS:
        raise ValueError(f"[pytree] {cls} is already registered\nhint: register it once")
    _KINDS[cls] = _Kind(flatten_fn, unflatten_fn)


def _kind(value: Any) -> Any:
    kind = type(value)
    if kind in _KINDS:
        return kind
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return namedtuple
    if isinstance(value, tuple) and module_of(kind) == "flambeau.return_types":
        return _Named
    return None


def _collect(value: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    kind = None if is_leaf is not None and is_leaf(value) else _kind(value)
    if kind is None:
        leaves.append(value)
        return _LEAF
    items, context = _KINDS[kind].flatten(value)
    children = tuple(_collect(item, leaves, is_leaf) for item in items)
    return TreeSpec(kind, context, children)


def tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the form.

    Example:
        >>> tree_flatten({"a": 1, "b": [2, 3]})[0]
        [1, 2, 3]
    """
    leaves: list[Any] = []
    spec = _collect(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The inverse of `tree_flatten`.

    Raises:
        ValueError: another number of leaves.
    """
    values = list(leaves)
    if len(values) != treespec.num_leaves:
        raise ValueError(
            f"[tree_unflatten] {len(values)} leaves for a structure of {treespec.num_leaves}\n"
            "hint: keep the number of leaves"
        )
    return _built(iter(values), treespec)


def _built(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    return _KINDS[spec.type].unflatten([_built(leaves, c) for c in spec.children], spec.context)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterable[Any]:
    """Iterates over the leaves."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The form."""
    return tree_flatten(tree, is_leaf)[1]


def _matched(tree: Any, spec: TreeSpec, leaves: list[Any]) -> None:
    """Collects what stands in `tree` at the places of the leaves of `spec`."""
    if spec.type is None:
        leaves.append(tree)
        return
    if _kind(tree) != spec.type:
        raise ValueError(
            f"[tree_map] structures differ: {type(tree).__name__} instead of "
            f"{getattr(spec.type, '__name__', spec.type)}\nhint: pass trees of one form"
        )
    items, context = _KINDS[spec.type].flatten(tree)
    if len(items) != len(spec.children) or context != spec.context:
        raise ValueError("[tree_map] structures differ in keys or length\nhint: pass equal forms")
    for item, child in zip(items, spec.children):
        _matched(item, child, leaves)


def tree_map(
    func: Callable[..., Any],
    tree: Any,
    *rests: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """A structure of the same form with `func(leaf, *leaves of the others)`.

    Raises:
        ValueError: the others have another form.

    Example:
        >>> tree_map(lambda x, y: x + y, [1, (2,)], [10, (20,)])
        [11, (22,)]
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves]
    for rest in rests:
        found: list[Any] = []
        _matched(rest, spec, found)
        columns.append(found)
    return tree_unflatten([func(*values) for values in zip(*columns)], spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any) -> Any:
    """Calls `func` on all leaves for its effect; returns the tree itself."""
    tree_map(func, tree, *rests)
    return tree


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """`tree_map` on leaves of a type (or tuple of types, or predicate); others stay."""
    wanted = kind if callable(kind) and not isinstance(kind, type) else None

    def apply(leaf: Any) -> Any:
        chosen = wanted(leaf) if wanted is not None else isinstance(leaf, kind)
        return func(leaf) if chosen else leaf

    return tree_map(apply, tree)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether all leaves satisfy `pred`."""
    return all(pred(leaf) for leaf in tree_leaves(tree))


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether some leaf satisfies `pred`."""
    return any(pred(leaf) for leaf in tree_leaves(tree))
