"""Containers flattened by a structure that was recorded before: inputs of graphs of containers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.utils._pytree import LeafSpec, TreeSpec

Flatten = Callable[[Any, TreeSpec], list[Any]]
Matches = Callable[[Any, TreeSpec], bool]

SUPPORTED_NODES: dict[type, Flatten] = {}
SUPPORTED_NODES_EXACT_MATCH: dict[type, Matches | None] = {}


def register_pytree_flatten_spec(
    cls: type, flatten_fn_spec: Flatten, flatten_fn_exact_match_spec: Matches | None = None
) -> None:
    """Says how values of a type are flattened by a recorded structure.

    Args:
        cls: the type, which `torch.utils._pytree` knows as well.
        flatten_fn_spec: takes a value and a structure, returns its children.
        flatten_fn_exact_match_spec: whether a value has exactly that structure.
    """
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def _deregister_pytree_flatten_spec(cls: type) -> None:
    del SUPPORTED_NODES[cls]
    del SUPPORTED_NODES_EXACT_MATCH[cls]


def _children(spec: TreeSpec) -> Sequence[TreeSpec]:
    children = getattr(spec, "children_specs", None)
    return spec.children if children is None else children


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves of nested containers, in the order of a recorded structure.

    Args:
        pytree: the containers.
        spec: the structure: parts that it lacks are left out.

    Raises:
        RuntimeError: a type that is not registered.
    """
    if isinstance(spec, LeafSpec):
        return [pytree]
    kind = tuple if _is_namedtuple(pytree) and type(pytree) not in SUPPORTED_NODES else None
    kind = kind or type(pytree)
    flatten = SUPPORTED_NODES.get(kind)
    if flatten is None:
        raise RuntimeError(
            f"{type(pytree)} does not have a flatten_fn_spec associated with it. Please register "
            "one with torch.fx._pytree.register_pytree_flatten_spec.  If you have serialized your "
            "model, make sure that any custom pytrees have been registered before loading it."
        )
    leaves: list[Any] = []
    for child, child_spec in zip(flatten(pytree, spec), _children(spec), strict=False):
        leaves += tree_flatten_spec(child, child_spec)
    return leaves


def _dict_flatten_spec(d: dict[Any, Any], spec: TreeSpec) -> list[Any]:
    return [d[key] for key in spec.context]


def _list_flatten_spec(d: list[Any], spec: TreeSpec) -> list[Any]:
    return [d[index] for index in range(len(_children(spec)))]


def _tuple_flatten_spec(d: tuple[Any, ...], spec: TreeSpec) -> list[Any]:
    return [d[index] for index in range(len(_children(spec)))]


def _namedtuple_flatten_spec(d: Any, spec: TreeSpec) -> list[Any]:
    return [d[index] for index in range(len(_children(spec)))]


def _dict_flatten_spec_exact_match(d: dict[Any, Any], spec: TreeSpec) -> bool:
    return list(d) == list(spec.context)


def _list_flatten_spec_exact_match(d: list[Any], spec: TreeSpec) -> bool:
    return len(d) == len(_children(spec))


def _tuple_flatten_spec_exact_match(d: tuple[Any, ...], spec: TreeSpec) -> bool:
    return len(d) == len(_children(spec))


def _namedtuple_flatten_spec_exact_match(d: Any, spec: TreeSpec) -> bool:
    return len(d) == len(_children(spec))


register_pytree_flatten_spec(dict, _dict_flatten_spec, _dict_flatten_spec_exact_match)
register_pytree_flatten_spec(list, _list_flatten_spec, _list_flatten_spec_exact_match)
register_pytree_flatten_spec(tuple, _tuple_flatten_spec, _tuple_flatten_spec_exact_match)
