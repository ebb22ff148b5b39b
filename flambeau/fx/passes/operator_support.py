"""`OperatorSupport`: which nodes a backend can run."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx.node import Node
from flambeau.fx.passes.shape_prop import TensorMetadata
from flambeau.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = [
    "OpSupports",
    "OperatorSupport",
    "OperatorSupportBase",
    "any_chain",
    "chain",
    "create_op_support",
]

TargetTypeName = str
SupportedArgumentDTypes = Any
SupportDict = Mapping[TargetTypeName, SupportedArgumentDTypes]
IsNodeSupported = Callable[[Mapping[str, torch.nn.Module], Node], bool]


@compatibility(is_backward_compatible=False)
class OperatorSupportBase(abc.ABC):
    """Checks whether a node is supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        """Whether a node is supported.

        Args:
            submodules: modules by name.
            node: the node.
        """


@compatibility(is_backward_compatible=False)
class OperatorSupport(OperatorSupportBase):
    """Supports the targets of a table, for the dtypes in it.

    Args:
        support_dict: name of a target -> None, or the dtypes of arguments and of those by name.
    """

    _support_dict: SupportDict

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        """Whether a node's target is in the table, and its arguments have a dtype of it."""
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        dtypes = self._support_dict[target]
        if dtypes is None:
            return True
        positional, named = dtypes
        for index, allowed in enumerate(positional):
            if len(node.args) <= index or not isinstance(node.args[index], Node):
                continue
            if _get_arg_dtype(node.args[index]) not in allowed:
                return False
        for name, allowed in named.items():
            if name not in node.kwargs or not isinstance(node.kwargs[name], Node):
                continue
            if _get_arg_dtype(node.kwargs[name]) not in allowed:
                return False
        return True


@compatibility(is_backward_compatible=False)
def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """An `OperatorSupportBase` of a function.

    Args:
        is_node_supported: the function of submodules and node.
    """

    class FunctionalOperatorSupport(OperatorSupportBase):
        """Calls the function."""

        def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
            return is_node_supported(submodules, node)

    return FunctionalOperatorSupport()


@compatibility(is_backward_compatible=False)
def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports what all of several support."""
    return create_op_support(
        lambda modules, node: all(each.is_node_supported(modules, node) for each in op_support)
    )


@compatibility(is_backward_compatible=False)
def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports what one of several supports."""
    return create_op_support(
        lambda modules, node: any(each.is_node_supported(modules, node) for each in op_support)
    )


@compatibility(is_backward_compatible=False)
class OpSupports:
    """Ready rules."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: torch.dtype) -> OperatorSupportBase:
        """Refuses nodes that read a tensor of a dtype.

        Args:
            dtype: the dtype.
        """

        def supported(submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
            return all(_get_arg_dtype(each) != dtype for each in node.all_input_nodes)

        return create_op_support(supported)

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Refuses nodes by name.

        Args:
            disallow_set: the names.
        """
        return create_op_support(lambda _, node: node.name not in disallow_set)


def _get_arg_dtype(arg: Node) -> Any:
    """The dtype of a node's value, or a list of several."""
    meta = arg.meta.get("tensor_meta")
    if isinstance(meta, TensorMetadata):
        return meta.dtype
    if isinstance(meta, Sequence):
        return [each.dtype if isinstance(each, TensorMetadata) else None for each in meta]
    return arg.meta.get("type", None)
