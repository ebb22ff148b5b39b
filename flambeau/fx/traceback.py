"""The provenance of nodes: `meta` that passes carry over to new nodes."""

from __future__ import annotations

import contextlib
import copy
import functools
import traceback
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from flambeau.fx._compatibility import compatibility

if TYPE_CHECKING:
    from flambeau.fx.graph import Graph
    from flambeau.fx.node import Node

__all__ = [
    "NodeSource",
    "NodeSourceAction",
    "annotate",
    "annotate_fn",
    "format_stack",
    "get_current_meta",
    "get_current_replay_node",
    "get_graph_provenance_json",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "reset_grad_fn_seq_nr",
    "set_current_meta",
    "set_current_replay_node",
    "set_grad_fn_seq_nr",
    "set_stack_trace",
]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

current_meta: dict[str, Any] = {}
current_replay_node: Node | None = None
should_preserve_node_meta = False


@compatibility(is_backward_compatible=False)
class NodeSourceAction(Enum):
    """The action by which a pass made a node."""

    CREATE = "create"
    REPLACE = "replace"


@compatibility(is_backward_compatible=False)
class NodeSource:
    """The node, the graph and the pass that a node was made from.

    Args:
        node: the node before; None if there was none.
        pass_name: the name of the pass.
        action: one or more of `NodeSourceAction`.
    """

    class NodeInfo:
        """Name, target and graph of a node that may be gone."""

        def __init__(self, name: str, target: str, graph_id: int) -> None:
            self.name = name
            self.target = target
            self.graph_id = graph_id

    pass_name: str
    action: list[NodeSourceAction]
    from_node: list[NodeSource]
    node_info: NodeInfo | None

    def __init__(
        self,
        node: Node | None,
        pass_name: str = "",
        action: NodeSourceAction | list[NodeSourceAction] | None = None,
    ) -> None:
        self.pass_name = pass_name
        actions = [] if action is None else action
        if not isinstance(actions, list):
            actions = [actions]
        for each in actions:
            if not isinstance(each, NodeSourceAction):
                raise AssertionError(f"Expected NodeSourceAction, got {type(each)}")
        self.action = actions
        self.node_info = None
        self.from_node = []
        if node is not None:
            self.node_info = self.NodeInfo(node.name, str(node.target), id(node.graph))
            self.from_node = copy.deepcopy(node.meta.get("from_node", []))

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node_info.name if self.node_info else ""

    @property
    def target(self) -> str:
        """The node's target."""
        return self.node_info.target if self.node_info else ""

    @property
    def graph_id(self) -> int:
        """The identity of its graph; -1 without a node."""
        return self.node_info.graph_id if self.node_info else -1

    def _get_action_string(self) -> str:
        return "+".join(action.name.lower() for action in self.action)

    def __repr__(self) -> str:
        return self.print_readable()

    def print_readable(self, indent: int = 0) -> str:
        """Nested lines, the newest source first.

        Args:
            indent: depth of the first line.
        """
        if indent > 9:
            return ""
        text = (
            f"{' ' * 4 * indent}(name={self.name}, pass_name={self.pass_name}, "
            f"action={self._get_action_string()}, graph_id={self.graph_id})\n"
        )
        return text + "".join(source.print_readable(indent + 1) for source in self.from_node)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": self._get_action_string(),
            "from_node": [source.to_dict() for source in self.from_node],
        }

    @classmethod
    def _from_dict(cls, d: dict[str, Any] | None) -> NodeSource | None:
        """The inverse of `to_dict`."""
        if d is None:
            return None
        names = filter(None, d.get("action", "").split("+"))
        source = cls(None, d.get("pass_name", ""), [NodeSourceAction[n.upper()] for n in names])
        if d.get("name") or d.get("target") or d.get("graph_id", -1) != -1:
            source.node_info = cls.NodeInfo(d["name"], d["target"], d["graph_id"])
        before = (cls._from_dict(each) for each in d.get("from_node", ()))
        source.from_node = [each for each in before if each is not None]
        return source

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeSource) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.name, self.target, self.graph_id, self.pass_name))


@compatibility(is_backward_compatible=False)
@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """A `with` block in which new nodes take over the current `meta`.

    Args:
        enable: False turns it off.
    """
    global should_preserve_node_meta, current_meta
    before, before_meta = should_preserve_node_meta, current_meta.copy()
    should_preserve_node_meta = enable or should_preserve_node_meta
    try:
        yield
    finally:
        should_preserve_node_meta, current_meta = before, before_meta


@compatibility(is_backward_compatible=False)
def set_stack_trace(stack: list[str]) -> None:
    """Sets the stack trace of the nodes to come.

    Args:
        stack: lines as of `traceback.format_stack`.
    """
    if should_preserve_node_meta and stack:
        current_meta["stack_trace"] = "".join(stack)


@compatibility(is_backward_compatible=False)
@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """A `with` block whose nodes have these entries in `meta["custom"]`.

    Args:
        annotation_dict: the entries; an inner block adds to those of an outer one.
    """
    before = "custom" in current_meta, current_meta.get("custom", {})
    current_meta["custom"] = {**before[1], **annotation_dict}
    try:
        yield
    finally:
        if before[0]:
            current_meta["custom"] = before[1]
        else:
            del current_meta["custom"]


@compatibility(is_backward_compatible=False)
def annotate_fn(
    annotation_dict: dict[str, Any],
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """`annotate` as a decorator.

    Args:
        annotation_dict: the entries.
    """

    def decorate(func: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        @functools.wraps(func)
        def wrapper(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            with annotate(annotation_dict):
                return func(*args, **kwargs)

        return wrapper

    return decorate


@compatibility(is_backward_compatible=False)
def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """Remembers the number of the `grad_fn` whose nodes come next."""
    if should_preserve_node_meta:
        current_meta["grad_fn_seq_nr"] = [*current_meta.get("grad_fn_seq_nr", []), seq_nr]
        current_meta["in_grad_fn"] = current_meta.get("in_grad_fn", 0) + 1


@compatibility(is_backward_compatible=False)
def reset_grad_fn_seq_nr() -> None:
    """Ends the innermost `set_grad_fn_seq_nr`."""
    if not should_preserve_node_meta:
        return
    depth = current_meta.get("in_grad_fn", 0)
    if depth <= 0:
        raise AssertionError(f"Expected current_level > 0, got {depth}")
    if depth == 1:
        del current_meta["in_grad_fn"], current_meta["grad_fn_seq_nr"]
    else:
        current_meta["in_grad_fn"] = depth - 1
        current_meta["grad_fn_seq_nr"] = current_meta["grad_fn_seq_nr"][:-1]


@compatibility(is_backward_compatible=False)
def format_stack() -> list[str]:
    """The current stack trace: that of the node which is run, or of Python."""
    if should_preserve_node_meta:
        return [current_meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


@compatibility(is_backward_compatible=False)
def has_preserved_node_meta() -> bool:
    """Whether new nodes take over the current `meta`."""
    return should_preserve_node_meta


@compatibility(is_backward_compatible=False)
@contextlib.contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """A `with` block whose nodes come from a node.

    Args:
        node: the node whose `meta` they take over.
        pass_name: the pass that makes them.
    """
    global current_meta
    if not should_preserve_node_meta or not node.meta:
        yield
        return
    before = current_meta
    current_meta = node.meta.copy()
    current_meta["from_node"] = [NodeSource(node, pass_name, NodeSourceAction.CREATE)]
    try:
        yield
    finally:
        current_meta = before


@compatibility(is_backward_compatible=False)
def get_current_meta() -> dict[str, Any]:
    """Returns the metadata that new nodes inherit."""
    return current_meta


@compatibility(is_backward_compatible=False)
@contextlib.contextmanager
def set_current_replay_node(node: Node | None) -> Iterator[None]:
    """A `with` block in which a node is being run.

    Args:
        node: the node.
    """
    global current_replay_node
    before, current_replay_node = current_replay_node, node
    try:
        yield
    finally:
        current_replay_node = before


@compatibility(is_backward_compatible=False)
def get_current_replay_node() -> Node | None:
    """The node that is being run."""
    return current_replay_node


@compatibility(is_backward_compatible=False)
def get_graph_provenance_json(graph: Graph) -> dict[str, Any]:
    """From which nodes the nodes of a graph were made, as plain data.

    Args:
        graph: the graph.
    """
    table: dict[str, Any] = {}
    for node in graph.nodes:
        if node.op in ("get_attr", "placeholder", "output"):
            continue
        sources = node.meta.get("from_node", [])
        table[node.name] = [source.to_dict() for source in sources]
    return table
