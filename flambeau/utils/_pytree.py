"""Nested containers as a flat list of leaves and a description of their form.

Containers: list, tuple, dict, OrderedDict, defaultdict, deque, named tuples, results with named
fields (`torch.return_types.sort` ...), and registered types (see `_pytree_kinds`). A form can be
written as JSON.
"""
# ruff: noqa: F401 - re-exports of kinds

from __future__ import annotations

import json
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flambeau.ir.failure import failure
from flambeau.ir.lock import computed_once
from flambeau.utils._pytree_kinds import (
    BUILTIN_TYPES,
    CONSTANT_NODES,
    DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL,
    NO_SERIALIZED_TYPE_NAME_FOUND,
    SERIALIZED_TYPE_TO_PYTHON_TYPE,
    STANDARD_DICT_TYPES,
    SUPPORTED_NODES,
    SUPPORTED_SERIALIZED_TYPES,
    ConstantNode,
    Context,
    DumpableContext,
    FlattenFn,
    FlattenWithKeysFn,
    FromDumpableContextFn,
    GetAttrKey,
    IsLeaf,
    KeyEntry,
    KeyPath,
    MappingKey,
    NodeDef,
    PyTree,
    SequenceKey,
    ToDumpableContextFn,
    UnflattenFn,
    _defaultdict_deserialize,
    _defaultdict_flatten,
    _defaultdict_flatten_with_keys,
    _defaultdict_serialize,
    _defaultdict_unflatten,
    _deque_flatten,
    _deque_flatten_with_keys,
    _deque_unflatten,
    _deregister_pytree_node,
    _dict_flatten,
    _dict_flatten_with_keys,
    _dict_unflatten,
    _get_node_type,
    _Key,
    _list_flatten,
    _list_flatten_with_keys,
    _list_unflatten,
    _namedtuple_deserialize,
    _namedtuple_flatten,
    _namedtuple_flatten_with_keys,
    _namedtuple_serialize,
    _namedtuple_unflatten,
    _odict_flatten,
    _odict_unflatten,
    _ordereddict_flatten,
    _ordereddict_flatten_with_keys,
    _ordereddict_unflatten,
    _private_register_pytree_node,
    _register_namedtuple,
    _register_pytree_node,
    _Serial,
    _tuple_flatten,
    _tuple_flatten_with_keys,
    _tuple_unflatten,
    is_constant_class,
    is_namedtuple,
    is_namedtuple_class,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_class,
    is_structseq_instance,
    key_get,
    keystr,
    register_constant,
    register_dataclass,
    register_pytree_node,
)

__all__ = [
    "Context",
    "DumpableContext",
    "FlattenFn",
    "FromDumpableContextFn",
    "LeafSpec",
    "PyTree",
    "PyTreeSpec",
    "ToDumpableContextFn",
    "TreeSpec",
    "UnflattenFn",
    "is_namedtuple",
    "is_namedtuple_class",
    "is_namedtuple_instance",
    "is_structseq",
    "is_structseq_class",
    "is_structseq_instance",
    "key_get",
    "keystr",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
    "treespec_dumps",
    "treespec_loads",
    "treespec_pprint",
]

# -------------------------------------------------------------------------------------------------
# Forms


class TreeSpec:
    """The form of a nested structure.

    Attributes:
        type: of the container; None for a leaf.
        context: what is needed to build it beside its items.
    """

    __slots__ = ("type", "context", "_children", "__dict__")

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:  # noqa: A002
        self.type, self.context = type, context
        self._children = list(children_specs)

    @property
    def children_specs(self) -> list[TreeSpec]:
        """Forms of the items."""
        return self._children

    @computed_once
    def num_leaves(self) -> int:
        """Leaves in the whole structure."""
        return 1 if self.type is None else sum(child.num_leaves for child in self._children)

    @computed_once
    def num_nodes(self) -> int:
        """Containers and leaves in the whole structure."""
        return 1 + sum(child.num_nodes for child in self._children)

    @property
    def num_children(self) -> int:
        """Items of this container."""
        return len(self._children)

    def children(self) -> list[TreeSpec]:
        """Forms of the items."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """The form of one item."""
        return self._children[index]

    def is_leaf(self) -> bool:
        """Whether this is no container."""
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The structure with these leaves.

        Raises:
            ValueError: another number of leaves.
        """
        values = leaves if isinstance(leaves, (list, tuple)) else list(leaves)
        if len(values) != self.num_leaves:
            problem = f"{len(values)} leaves for a structure of {self.num_leaves}"
            raise failure(ValueError, "tree_unflatten", problem, "keep the number of leaves")
        return _built(iter(values), self)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Returns the subtrees of `tree` at the positions of the leaves.

        Raises:
            ValueError: `tree` has another form above them.
        """
        leaves: list[Any] = []
        _matched(tree, self, leaves)
        return leaves

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (
            self.type == other.type
            and self.context == other.context
            and self._children == other._children
        )

    def __hash__(self) -> int:
        context = self.context
        if self.type in STANDARD_DICT_TYPES or isinstance(context, list):
            context = repr(context)
        return hash((self.type, context, tuple(self._children)))

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        inner = indent + 2
        parts = [child.__repr__(inner) for child in self._children]
        joint = ",\n" + " " * inner
        return f"TreeSpec({self.type.__name__}, {self.context}, [{joint.join(parts)}])"

    def __reduce__(self) -> Any:
        return TreeSpec, (self.type, self.context, self._children)


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """The form of a single leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    def __reduce__(self) -> Any:
        return LeafSpec, ()

    __hash__ = TreeSpec.__hash__


_LEAF_SPEC = LeafSpec()


def treespec_leaf() -> LeafSpec:
    """The form of a single leaf."""
    return _LEAF_SPEC


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The form of a tuple of items of some forms."""
    return TreeSpec(tuple, None, list(iterable))


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The form of a dict of items of some forms."""
    items = dict(mapping, **kwargs)
    return TreeSpec(dict, list(items), list(items.values()))


def _built(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    unflatten = SUPPORTED_NODES[spec.type].unflatten_fn
    return unflatten([_built(leaves, child) for child in spec._children], spec.context)


def _collect(value: Any, leaves: list[Any], is_leaf: IsLeaf | None) -> TreeSpec:
    kind = None if is_leaf is not None and is_leaf(value) else _get_node_type(value)
    definition = SUPPORTED_NODES.get(kind)
    if definition is None:
        leaves.append(value)
        return _LEAF_SPEC
    items, context = definition.flatten_fn(value)
    return TreeSpec(kind, context, [_collect(item, leaves, is_leaf) for item in items])


def _differs(what: str) -> ValueError:
    return ValueError(f"[tree_map] structures differ: {what}\nhint: pass trees of one form")


def _matched(tree: Any, spec: TreeSpec, leaves: list[Any]) -> None:
    """Collects the parts of `tree` at the positions of the leaves of `spec`."""
    if spec.type is None:
        leaves.append(tree)
        return
    kind = _get_node_type(tree)
    dicts = kind in STANDARD_DICT_TYPES and spec.type in STANDARD_DICT_TYPES
    if kind != spec.type and not dicts:
        raise _differs(f"{type(tree).__name__} instead of {spec.type.__name__}")
    if dicts:
        keys = spec.context[1] if spec.type is defaultdict else spec.context
        if tree.keys() != set(keys):
            raise _differs(f"keys {list(tree)} instead of {keys}")
        items = [tree[key] for key in keys]
    else:
        items, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        if kind is not deque and context != spec.context:
            raise _differs(f"{context} instead of {spec.context}")
    if len(items) != len(spec._children):
        raise _differs(f"{len(items)} items instead of {len(spec._children)}")
    for item, child in zip(items, spec._children, strict=True):
        _matched(item, child, leaves)


def tree_is_leaf(tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether an object is no container."""
    if is_leaf is not None and is_leaf(tree):
        return True
    return _get_node_type(tree) not in SUPPORTED_NODES


_is_leaf = tree_is_leaf


def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the form.

    Args:
        tree: nested containers.
        is_leaf: says of containers that they count as leaves.

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
        TypeError: no form.
    """
    if not isinstance(treespec, TreeSpec):
        problem = f"expected a TreeSpec, got {type(treespec)}"
        raise failure(TypeError, "tree_unflatten", problem, "pass what tree_flatten returns")
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves in order."""
    leaves: list[Any] = []
    _collect(tree, leaves, is_leaf)
    return leaves


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of all arguments."""
    return tree_leaves((args, kwargs))


def tree_iter(tree: Any, is_leaf: IsLeaf | None = None) -> Iterable[Any]:
    """Iterates over the leaves."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeSpec:
    """The form."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """A structure of the same form with `func(leaf, *leaves of the others)`.

    Raises:
        ValueError: the others have another form.

    Example:
        >>> tree_map(lambda x, y: x + y, [1, (2,)], [10, (20,)])
        [11, (22,)]
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(other) for other in rests)]
    return spec.unflatten([func(*values) for values in zip(*columns, strict=True)])


def tree_map_(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """Calls `func` on all leaves for its effect; returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Any], Callable[[Any], Any]]:
    """A decorator: the function is called with some values, others stay.

    Args:
        type_or_types_or_pred: a type, a tuple or union of types, or a predicate.

    Raises:
        TypeError: something else.

    Example:
        >>> map_only(int)(lambda x: x + 1)("a")
        'a'
    """
    kinds = type_or_types_or_pred
    if isinstance(kinds, (type, tuple, types.UnionType)):

        def chosen(value: Any) -> bool:
            return isinstance(value, kinds)

    elif callable(kinds):
        chosen = kinds
    else:
        raise TypeError(
            f"Argument must be a type, a tuple of types, or a callable, got {kinds!r}\n"
            "hint: pass torch.Tensor, say"
        )

    def decorate(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda value: function(value) if chosen(value) else value

    return decorate


def tree_map_only(
    type_or_types_or_pred: Any,
    /,
    func: Callable[[Any], Any],
    tree: Any,
    is_leaf: IsLeaf | None = None,
) -> Any:
    """`tree_map` on leaves of a type (or types, or that a predicate accepts); others stay."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any,
    /,
    func: Callable[[Any], Any],
    tree: Any,
    is_leaf: IsLeaf | None = None,
) -> Any:
    """Calls `func` on such leaves for its effect; returns the tree itself."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether all leaves satisfy `pred`."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether some leaf satisfies `pred`."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(
    type_or_types: Any,
    /,
    pred: Callable[[Any], bool],
    tree: Any,
    is_leaf: IsLeaf | None = None,
) -> bool:
    """Whether all leaves of a type satisfy `pred`."""
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(
    type_or_types: Any,
    /,
    pred: Callable[[Any], bool],
    tree: Any,
    is_leaf: IsLeaf | None = None,
) -> bool:
    """Whether some leaf of a type satisfies `pred`."""
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: IsLeaf | None = None
) -> list[Any] | None:
    """A leaf per leaf of a form; a leaf of `tree` is repeated for a whole part; or None."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    kind = _get_node_type(tree)
    if treespec.is_leaf() or kind != treespec.type:
        return None
    items, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(items) != treespec.num_children or context != treespec.context:
        return None
    parts = [
        _broadcast_to_and_flatten(item, child, is_leaf)
        for item, child in zip(items, treespec._children, strict=True)
    ]
    if any(part is None for part in parts):
        return None
    return [leaf for part in parts for leaf in part or ()]


# -------------------------------------------------------------------------------------------------
# Paths


def _paths(path: KeyPath, tree: Any, is_leaf: IsLeaf | None) -> Iterable[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    definition = SUPPORTED_NODES[_get_node_type(tree)]
    if definition.flatten_with_keys_fn is None:
        problem = f"Did not find a flatten_with_keys_fn for type: {type(tree)}"
        raise failure(ValueError, "pytree", problem, "pass one to register_pytree_node")
    for key, item in definition.flatten_with_keys_fn(tree)[0]:
        yield from _paths((*path, key), item, is_leaf)


_generate_key_paths = _paths


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf | None = None) -> list[tuple[KeyPath, Any]]:
    """Pairs (path, leaf) in order."""
    return list(_paths((), tree, is_leaf))


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf | None = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """Pairs (path, leaf) in order, and the form."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """A structure of the same form with `func(path, leaf, *leaves of the others)`.

    Example:
        >>> tree_map_with_path(lambda path, x: keystr(path), {"a": [5]})
        {'a': ["['a'][0]"]}
    """
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [list(column) for column in zip(*pairs, strict=True)] or [[], []]
    columns += [spec.flatten_up_to(other) for other in rests]
    return spec.unflatten([func(*values) for values in zip(*columns, strict=True)])


# -------------------------------------------------------------------------------------------------
# Forms as text


def _to_json(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    serial = SUPPORTED_SERIALIZED_TYPES.get(spec.type)
    if serial is None or serial.name == NO_SERIALIZED_TYPE_NAME_FOUND:
        raise NotImplementedError(
            f"[treespec_dumps] No registered serialization name for {spec.type} found\n"
            "hint: pass serialized_type_name to register_pytree_node"
        )
    if serial.to_dumpable is not None:
        context = serial.to_dumpable(spec.context)
    else:
        try:
            context = json.dumps(spec.context)
        except TypeError as error:
            raise TypeError(
                f"[treespec_dumps] the context of {spec.type} cannot be written as JSON\n"
                "hint: pass to_dumpable_context to register_pytree_node"
            ) from error
    children = [_to_json(child) for child in spec._children]
    return {"type": serial.name, "context": context, "children_spec": children}


def _from_json(schema: Mapping[str, Any]) -> TreeSpec:
    if schema["type"] is None and schema["context"] is None and not schema["children_spec"]:
        return _LEAF_SPEC
    name = schema["type"]
    if name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        problem = f"Deserializing {name!r}: no class has that serialized_type_name"
        raise failure(NotImplementedError, "treespec_loads", problem, "register it first")
    kind = SERIALIZED_TYPE_TO_PYTHON_TYPE[name]
    read = SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable
    context = json.loads(schema["context"]) if read is None else read(schema["context"])
    return TreeSpec(kind, context, [_from_json(child) for child in schema["children_spec"]])


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A form as JSON.

    Raises:
        TypeError: no form.
        ValueError: another protocol than 1.
        NotImplementedError: a type without a name for texts.
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"treespec_dumps(treespec): expected `treespec` to be instance of TreeSpec but got "
            f"item of type {type(treespec)}.\nhint: pass what tree_structure returns"
        )
    protocol = DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL if protocol is None else protocol
    _check_protocol(protocol)
    return json.dumps((protocol, _to_json(treespec)))


def _check_protocol(protocol: Any) -> None:
    if protocol != DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL:
        raise ValueError(
            f"Unknown protocol {protocol}. Available protocols: "
            f"{[DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL]}"
        )


def treespec_loads(serialized: str) -> TreeSpec:
    """A form from JSON.

    Raises:
        ValueError: another protocol than 1.
        NotImplementedError: a type that is not registered.
    """
    protocol, schema = json.loads(serialized)
    _check_protocol(protocol)
    return _from_json(schema)


pytree_to_str, str_to_pytree = treespec_dumps, treespec_loads


class _Asterisk:
    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """A form as the structure with an asterisk for each leaf."""
    return repr(treespec.unflatten([_Asterisk()] * treespec.num_leaves))
