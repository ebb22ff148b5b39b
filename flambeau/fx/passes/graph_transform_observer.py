"""`GraphTransformObserver`: a `with` block that sees which nodes a pass makes and erases."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.graph_drawer import FxGraphDrawer
from flambeau.fx.traceback import NodeSource, NodeSourceAction

__all__ = ["GraphTransformObserver"]

_Result = TypeVar("_Result")


@compatibility(is_backward_compatible=False)
class GraphTransformObserver:
    """Notes the nodes that a pass makes and erases, and draws the graph before and after it.

    Args:
        gm: the module.
        passname: the name of the pass.
        subsystem: the component that it is part of.
        log_url: a folder for drawings; None: none are made.

    Example:
        >>> from torch.fx.passes.graph_transform_observer import GraphTransformObserver
        >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
        >>> with GraphTransformObserver(traced, "relu to tanh") as observer:
        ...     _ = torch.fx.replace_pattern(traced, lambda a: torch.relu(a), lambda a: a.tanh())
        >>> sorted(observer.created_nodes), sorted(observer.erased_nodes)
        (['tanh'], ['relu'])
    """

    __pass_count = 0

    def __init__(
        self,
        gm: GraphModule,
        passname: str,
        subsystem: str | None = None,
        log_url: str | None = None,
    ) -> None:
        self.gm = gm
        self.passname = passname
        self.subsystem = subsystem
        self.log_url = log_url
        self.erased_nodes: set[str] = set()
        self.created_nodes: set[str] = set()
        self.name_to_node: dict[str, Node] = {}
        self.copied_gms: list[GraphModule] = []
        self._node_creation_hook = self.get_node_creation_hook()
        self._node_erase_hook = self.get_node_erase_hook()
        self._node_replace_hook = self.get_node_replace_hook()
        self._deepcopy_hook = self.get_deepcopy_hook()
        GraphTransformObserver.__pass_count += 1
        self.input_dot_graph: Any = None
        if log_url is not None:
            self.input_dot_graph = FxGraphDrawer(gm, passname).get_dot_graph()

    @classmethod
    def get_current_pass_count(cls) -> int:
        """How many observers were made."""
        return cls.__pass_count

    def apply_gm_pass(self, pass_fn: Callable[[GraphModule], _Result]) -> _Result | None:
        """Runs a pass of modules under observation.

        Args:
            pass_fn: the pass.
        """
        with self:
            return pass_fn(self.gm)

    def apply_graph_pass(self, pass_fn: Callable[[Graph], _Result]) -> _Result | None:
        """Runs a pass of graphs under observation.

        Args:
            pass_fn: the pass.
        """
        with self:
            return pass_fn(self.gm.graph)

    def _check_disable_pass(self) -> bool:
        return False

    def __enter__(self) -> GraphTransformObserver:
        self.gm._register_create_node_hook(self._node_creation_hook)
        self.gm._register_erase_node_hook(self._node_erase_hook)
        self.gm._register_replace_node_hook(self._node_replace_hook)
        self.gm._register_deepcopy_hook(self._deepcopy_hook)
        self.erased_nodes.clear()
        self.created_nodes.clear()
        return self

    def __exit__(self, *exception: object) -> None:
        for module in [self.gm, *self.copied_gms]:
            module._unregister_create_node_hook(self._node_creation_hook)
            module._unregister_erase_node_hook(self._node_erase_hook)
            module._unregister_replace_node_hook(self._node_replace_hook)
            module._unregister_deepcopy_hook(self._deepcopy_hook)
        if self.log_url is None or not (self.created_nodes or self.erased_nodes):
            return
        base = os.path.join(
            self.log_url, f"pass_{GraphTransformObserver.__pass_count}_{self.passname}"
        )
        self.input_dot_graph.write(f"{base}_input_graph.dot")
        FxGraphDrawer(self.gm, self.passname).get_dot_graph().write(f"{base}_output_graph.dot")

    def get_node_creation_hook(self) -> Callable[[Node], None]:
        """Returns the hook that runs when a node is created."""

        def created(node: Node) -> None:
            self.created_nodes.add(node.name)
            self.name_to_node[node.name] = node
            source = NodeSource(None, self.passname, NodeSourceAction.CREATE)
            node.meta.setdefault("from_node", [source])

        return created

    def get_node_erase_hook(self) -> Callable[[Node], None]:
        """Returns the hook that runs when a node is erased."""

        def erased(node: Node) -> None:
            self.erased_nodes.add(node.name)
            self.name_to_node.pop(node.name, None)

        return erased

    def get_node_replace_hook(self) -> Callable[[Node, str, Node], None]:
        """Returns the hook that runs when a node replaces another."""

        def replaced(old: Node, new: str, user: Node) -> None:
            node = self.name_to_node.get(new)
            if node is not None:
                actions = [NodeSourceAction.REPLACE]
                if node.name in self.created_nodes:
                    actions.append(NodeSourceAction.CREATE)
                node.meta["from_node"] = [NodeSource(old, self.passname, actions)]

        return replaced

    def get_deepcopy_hook(self) -> Callable[[GraphModule], None]:
        """Returns the hook that runs when the module is copied: the copy is observed, too."""

        def copied(gm: GraphModule) -> None:
            self.copied_gms.append(gm)

        return copied
