"""`FxGraphDrawer`: graphs as pictures, by the package `pydot`."""

from __future__ import annotations

import hashlib
from typing import Any

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph import _parse_stack_trace
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, _format_arg, _get_qualified_name
from flambeau.fx.passes.shape_prop import TensorMetadata

try:
    import pydot  # type: ignore[import-untyped]

    HAS_PYDOT = True
except ModuleNotFoundError:
    HAS_PYDOT = False
    pydot = None

__all__ = ["FxGraphDrawer"]

_COLOR_MAP = {
    "placeholder": '"AliceBlue"', "call_module": "LemonChiffon1", "get_param": "Yellow2",
    "get_attr": "LightGrey", "output": "PowderBlue",
}  # fmt: skip
_HASH_COLOR_MAP = [
    "CadetBlue1", "Coral", "DarkOliveGreen1", "DarkSeaGreen1", "GhostWhite", "Khaki1",
    "LavenderBlush1", "LightSkyBlue", "MistyRose1", "MistyRose2", "PaleTurquoise2",
    "PeachPuff1", "Salmon", "Thistle1", "Thistle3", "Wheat1",
]  # fmt: skip
_WEIGHT_TEMPLATE = {
    "fillcolor": "Salmon", "style": '"filled,rounded"', "fontcolor": "#000000",
}  # fmt: skip


@compatibility(is_backward_compatible=False)
class FxGraphDrawer:
    """Draws a graph: a box for each node.

    Args:
        graph_module: the module.
        name: the picture's name.
        ignore_getattr: whether reads of attributes are left out.
        ignore_parameters_and_buffers: whether parameters of modules are left out.
        skip_node_names_in_args: whether arguments that are nodes are left out.
        parse_stack_trace: whether the source line is shown.
        dot_graph_shape: the shape of the boxes.
        normalize_args: whether arguments are shown by name.

    Raises:
        RuntimeError: the package `pydot` is not installed.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        if not HAS_PYDOT:
            raise RuntimeError(
                "FXGraphDrawer requires the pydot package to be installed. Please install pydot "
                "through your favorite Python package manager."
            )
        self._name = name
        self.dot_graph_shape = dot_graph_shape or "record"
        self.normalize_args = normalize_args
        self._options = (
            ignore_getattr, ignore_parameters_and_buffers, skip_node_names_in_args,
            parse_stack_trace,
        )  # fmt: skip
        self._dot_graphs = {name: self._to_dot(graph_module, name, *self._options)}
        for node in graph_module.graph.nodes:
            if node.op != "call_module":
                continue
            leaf: Any = graph_module
            for part in node.target.split("."):
                leaf = getattr(leaf, part)
            if isinstance(leaf, GraphModule):
                inner = f"{name}_{node.target}"
                self._dot_graphs[inner] = self._to_dot(leaf, inner, *self._options)

    def get_dot_graph(self, submod_name: str | None = None) -> Any:
        """The picture as an object of pydot, which can write files.

        Args:
            submod_name: the name of a submodule that is a graph; None: the whole.
        """
        name = self._name if submod_name is None else f"{self._name}_{submod_name}"
        return self._dot_graphs[name]

    def get_main_dot_graph(self) -> Any:
        """The picture of the whole."""
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> Any:
        """The picture of a submodule."""
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, Any]:
        """All pictures by name."""
        return self._dot_graphs

    def _get_node_style(self, node: Node) -> dict[str, str]:
        template = {
            "shape": self.dot_graph_shape, "fillcolor": "#CAFFE3", "style": '"filled,rounded"',
            "fontcolor": "#000000",
        }  # fmt: skip
        if node.op in _COLOR_MAP:
            template["fillcolor"] = _COLOR_MAP[node.op]
        else:
            name = node._pretty_print_target(node.target)
            digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
            template["fillcolor"] = _HASH_COLOR_MAP[int(digest, 16) % len(_HASH_COLOR_MAP)]
        return template

    def _get_leaf_node(self, module: Any, node: Node) -> Any:
        leaf = module
        for part in str(node.target).split("."):
            leaf = getattr(leaf, part)
        return leaf

    def _get_node_label(
        self, module: GraphModule, node: Node, skip_node_names: bool, parse_stack_trace: bool
    ) -> str:
        label = f"{{name=%{node.name}|op_code={node.op}\n"
        if node.op == "call_module":
            leaf = self._get_leaf_node(module, node)
            label += r"\n" + torch.typename(leaf) + r"\n|"
        else:
            label += f"|target={self._typename(node.target)}" + r"\n"
            label += self._arguments(node.args, skip_node_names, "|args=")
            label += self._arguments(node.kwargs, skip_node_names, "|kwargs=")
            label += f"|num_users={len(node.users)}" + r"\n"
        meta = node.meta.get("tensor_meta")
        label += self._tensor_meta_to_label(meta)
        if parse_stack_trace and node.stack_trace is not None:
            parsed = _parse_stack_trace(node.stack_trace)
            if parsed is not None:
                file = parsed.file.rsplit("/", 1)[-1]
                label += f"|file={file}:{parsed.lineno} {parsed.code}" + r"\n"
        return label + "}"

    def _arguments(self, values: Any, skip_node_names: bool, head: str) -> str:
        if not values:
            return ""
        items = values.items() if isinstance(values, dict) else enumerate(values)
        texts = []
        for key, value in items:
            if isinstance(value, Node) and skip_node_names:
                continue
            text = _format_arg(value, max_list_len=8)
            for old, new in (("{", r"\{"), ("}", r"\}"), ("<", ""), (">", ""), ("|", "")):
                text = text.replace(old, new)
            texts.append(f"{key}: {text}" if isinstance(values, dict) else text)
        return head + "(" + ",".join(texts) + r")\n" if texts else ""

    def _typename(self, target: Any) -> str:
        if isinstance(target, str):
            return target
        return _get_qualified_name(target)

    def _tensor_meta_to_label(self, tm: Any) -> str:
        if isinstance(tm, TensorMetadata):
            text = f"|dtype={tm.dtype}" + r"\n" + f"|shape={tuple(tm.shape)}" + r"\n"
            return (
                f"{text}|requires_grad={tm.requires_grad}" + r"\n" + f"|stride={tm.stride}" + r"\n"
            )
        if isinstance(tm, (list, tuple)):
            return "".join(map(self._tensor_meta_to_label, tm))
        return ""

    def _to_dot(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool,
        ignore_parameters_and_buffers: bool,
        skip_node_names_in_args: bool,
        parse_stack_trace: bool,
    ) -> Any:
        """The picture of one graph."""
        dot = pydot.Dot(name, rankdir="TB")
        for node in graph_module.graph.nodes:
            if ignore_getattr and node.op == "get_attr":
                continue
            label = self._get_node_label(
                graph_module, node, skip_node_names_in_args, parse_stack_trace
            )
            dot.add_node(pydot.Node(node.name, label=label, **self._get_node_style(node)))
            if node.op == "call_module" and not ignore_parameters_and_buffers:
                self._add_weights(dot, self._get_leaf_node(graph_module, node), node)
        for node in graph_module.graph.nodes:
            if ignore_getattr and node.op == "get_attr":
                continue
            for user in node.users:
                dot.add_edge(pydot.Edge(node.name, user.name))
        return dot

    def _add_weights(self, dot: Any, leaf: Any, node: Node) -> None:
        style = {"shape": self.dot_graph_shape, **_WEIGHT_TEMPLATE}
        for kind, members in (
            ("parameter", leaf.named_parameters()),
            ("buffer", leaf.named_buffers()),
        ):
            for member, tensor in members:
                full = f"{node.name}.{member}"
                label = f"{full}|op_code=get_{kind}" + r"\l" + f"|{list(tensor.shape)}"
                dot.add_node(pydot.Node(full, label=f"{{{label}}}", **style))
                dot.add_edge(pydot.Edge(full, node.name))
