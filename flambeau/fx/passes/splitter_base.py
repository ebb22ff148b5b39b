"""Splits a module into parts that a backend runs and parts that it does not."""

from __future__ import annotations

import argparse
import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.operator_support import OperatorSupportBase, _get_arg_dtype
from flambeau.fx.passes.shape_prop import ShapeProp
from flambeau.fx.passes.split_utils import move_non_tensor_nodes_on_boundary, split_by_tags
from flambeau.fx.passes.tools_common import (
    CALLABLE_NODE_OPS,
    FxNetAccFusionsFinder,
    get_node_target,
    is_node_output_tensor,
)

__all__ = [
    "FxNetAccNodesFinder",
    "FxNetSplitterInternalError",
    "NodeEvent",
    "NodeEventTracker",
    "SplitResult",
    "Subgraph",
    "generate_inputs_for_submodules",
]

DEFAULT_MIN_ACC_MODULE_SIZE = 1
DEFAULT_SKIP_FUSION = False
DEFAULT_ALLOW_NON_TENSOR = False

FusionsOfNodes = dict[Node, set[Node]]


class _SplitterSettingBase:
    """Settings of a splitter; arguments of the command line change them.

    Args:
        min_acc_module_size: the least number of nodes of a part for the backend.
        skip_fusion: whether nodes that pass each other no tensors may be parted.
        allow_non_tensor: whether values that are no tensors may enter or leave such a part.
        max_acc_splits: the most parts for the backend; -1: any number.
        move_non_tensor_nodes_on_boundary: whether such nodes go to the part that reads them.
    """

    def __init__(
        self,
        min_acc_module_size: int = DEFAULT_MIN_ACC_MODULE_SIZE,
        skip_fusion: bool = DEFAULT_SKIP_FUSION,
        allow_non_tensor: bool = DEFAULT_ALLOW_NON_TENSOR,
        max_acc_splits: int = -1,
        move_non_tensor_nodes_on_boundary: bool = False,
    ) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--min-acc-module-size", "--min_acc_module_size", type=int)
        parser.add_argument("--max-acc-splits", "--max_acc_splits", type=int)
        parser.add_argument("--skip-fusion", "--skip_fusion", action="store_true")
        parser.add_argument("--allow-non-tensor", "--allow_non_tensor", action="store_true")
        options, _ = parser.parse_known_args()
        size, splits = options.min_acc_module_size, options.max_acc_splits
        self.min_acc_module_size: int = min_acc_module_size if size is None else size
        self.skip_fusion: bool = options.skip_fusion or skip_fusion
        self.allow_non_tensor: bool = options.allow_non_tensor or allow_non_tensor
        self.max_acc_splits: int = max_acc_splits if splits is None else splits
        self.move_non_tensor_nodes_on_boundary = move_non_tensor_nodes_on_boundary


@compatibility(is_backward_compatible=False)
class NodeEvent:
    """An event of a node while the parts were chosen.

    Args:
        source: the node.
        desc: what happened.
        dep: the node that caused it.
    """

    def __init__(self, source: Node, desc: str, dep: Node | None = None) -> None:
        self.source = source
        self.desc = desc
        self.dep = dep

    def to_str(self) -> str:
        """A line."""
        return f"{self.source.name}: {self.desc} {self.dep.name if self.dep else '#'}"


@compatibility(is_backward_compatible=False)
class NodeEventTracker:
    """Remembers events.

    Args:
        tracker_mode: 0: none; others: all.
        dump_prefix: beginning of the names of files that `dump` writes.
    """

    def __init__(self, tracker_mode: int, dump_prefix: str) -> None:
        self.tracker_mode = tracker_mode
        self.dump_prefix = dump_prefix
        self.enabled = tracker_mode > 0
        self.events: list[NodeEvent] = []
        self.node_events: dict[str, list[int]] = {}
        self.writer: Callable[[str], object] = print

    def add(self, node: Node, desc: str, dep: Node | None = None) -> None:
        """Adds an event."""
        if not self.enabled:
            return
        self.events.append(NodeEvent(node, desc, dep))
        self.node_events.setdefault(node.name, []).append(len(self.events) - 1)

    def print_node(
        self,
        node_name: str,
        recursive: bool = False,
        tab: str = "",
        writer: Callable[[str], object] | None = None,
    ) -> None:
        """Prints the events of a node.

        Args:
            node_name: its name.
            recursive: whether those of the nodes that caused them follow.
            tab: what lines begin with.
            writer: takes each line; the default prints.
        """
        write = writer or self.writer
        for index in self.node_events.get(node_name, ()):
            event = self.events[index]
            write(tab + event.to_str())
            if recursive and event.dep is not None:
                self.print_node(event.dep.name, True, f"| {tab}", writer)

    def to_dict(self) -> dict[str, list[str]]:
        """Lines by node."""
        return {
            name: [self.events[index].to_str() for index in indices]
            for name, indices in self.node_events.items()
        }

    def print_all(self, writer: Callable[[str], object] | None = None) -> None:
        """Prints all events."""
        write = writer or self.writer
        for name in self.node_events:
            write(f"Node: {name}:")
            self.print_node(name, False, "  ", writer)

    def dump(self) -> None:
        """Writes all events to a file."""
        if self.enabled:
            with open(f"{self.dump_prefix}_all.txt", "w", encoding="utf-8") as file:
                self.print_all(lambda line: file.write(line + "\n"))


@compatibility(is_backward_compatible=False)
class FxNetAccNodesFinder:
    """The nodes that the backend runs: supported ones that exchange tensors with the others.

    Args:
        module: the module.
        operator_support: which nodes are supported.
        allow_non_tensor: whether other values may be exchanged.
    """

    def __init__(
        self, module: GraphModule, operator_support: OperatorSupportBase, allow_non_tensor: bool
    ) -> None:
        self.module = module
        self.operator_support = operator_support
        self.allow_non_tensor = allow_non_tensor
        self.acc_nodes: set[Node] = set()
        self.tracker = NodeEventTracker(0, "")

    def reduce_acc_nodes_non_tensor_input_helper(self, cpu_worklist: list[Node]) -> None:
        """Takes away the users of values that are no tensors, as far as that goes.

        Args:
            cpu_worklist: nodes that the backend does not run.
        """
        while cpu_worklist:
            node = cpu_worklist.pop(0)
            for user in node.users:
                if user in self.acc_nodes:
                    self.acc_nodes.remove(user)
                    self.tracker.add(user, "acc_del|user_of_new_cpu_node", node)
                    if not is_node_output_tensor(user):
                        cpu_worklist.append(user)

    def reduce_acc_nodes_non_tensor_input(self) -> None:
        """Takes away nodes that would read what is no tensor."""
        self.reduce_acc_nodes_non_tensor_input_helper(
            [
                node
                for node in self.module.graph.nodes
                if node.op in CALLABLE_NODE_OPS
                and node not in self.acc_nodes
                and not is_node_output_tensor(node)
            ]
        )

    def reduce_acc_nodes_non_tensor_output(self) -> None:
        """Takes away nodes that would give what is no tensor."""
        while True:
            new_cpu_nodes = [
                node
                for node in self.acc_nodes
                if not is_node_output_tensor(node)
                and any(user not in self.acc_nodes for user in node.users)
            ]
            if not new_cpu_nodes:
                return
            for node in new_cpu_nodes:
                self.acc_nodes.remove(node)
                self.tracker.add(node, "acc_del|non_tensor_output")
            self.reduce_acc_nodes_non_tensor_input_helper(new_cpu_nodes)

    def __call__(self) -> set[Node]:
        """The nodes."""
        submodules = dict(self.module.named_modules())
        self.acc_nodes = {
            node
            for node in self.module.graph.nodes
            if node.op in CALLABLE_NODE_OPS
            and self.operator_support.is_node_supported(submodules, node)
        }
        if not self.allow_non_tensor:
            self.reduce_acc_nodes_non_tensor_input()
            self.reduce_acc_nodes_non_tensor_output()
        return self.acc_nodes


@compatibility(is_backward_compatible=False)
class FxNetSplitterInternalError(Exception):
    """The parts cannot be chosen."""


@compatibility(is_backward_compatible=False)
@dataclass
class Subgraph:
    """One part.

    Attributes:
        is_acc: whether the backend runs it.
        nodes: its nodes.
        device_ordinal: the device, if there are several.
    """

    is_acc: bool
    nodes: list[Node]
    device_ordinal: int | None = None


@compatibility(is_backward_compatible=False)
class SplitResult(NamedTuple):
    """A split module with the inputs of its parts.

    Attributes:
        split_module: the module.
        submodule_inputs: inputs by name of the part.
        non_acc_submodule_prefix: beginning of the names of parts that the backend does not run.
    """

    split_module: GraphModule
    submodule_inputs: dict[str, Any]
    non_acc_submodule_prefix: str


@compatibility(is_backward_compatible=False)
def generate_inputs_for_submodules(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    target_submodules: Iterable[str],
    deepcopy: bool = False,
) -> dict[str, Any]:
    """The inputs that submodules get when a module runs.

    Args:
        model: the module.
        inputs: its inputs.
        target_submodules: names.
        deepcopy: whether the inputs are copied.

    Returns:
        dict: name -> inputs.
    """
    handles, results = [], {}
    names = {module: name for name, module in model.named_modules()}

    def note(module: Any, module_inputs: Any) -> None:
        name = names[module]
        results[name] = copy.deepcopy(module_inputs) if deepcopy else module_inputs

    try:
        for name, module in model.named_modules():
            if name in target_submodules:
                handles.append(module.register_forward_pre_hook(note))
        with torch.no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return results


class _SplitterBase:
    """Splits a module: supported nodes in parts for the backend, all others in parts without it.

    Args:
        module: the module.
        sample_input: inputs, to find shapes and types with.
        operator_support: which nodes are supported.
        settings: see `_SplitterSettingBase`.
        non_acc_submodule_name: beginning of the names of parts without the backend.
        return_tuple: whether parts with one result return a tuple.
        nodes_finder: finds the nodes for the backend.
    """

    PCIe_BW = 100 * 2**30

    def __init__(
        self,
        module: GraphModule,
        sample_input: Sequence[Any],
        operator_support: OperatorSupportBase,
        settings: _SplitterSettingBase,
        non_acc_submodule_name: str = "_run_on_cpu_",
        return_tuple: bool = False,
        nodes_finder: FxNetAccNodesFinder | None = None,
    ) -> None:
        self.module = module
        ShapeProp(self.module).propagate(*sample_input)
        self.settings = settings
        self.operator_support = operator_support
        self.sample_input = sample_input
        finder = nodes_finder or FxNetAccNodesFinder(
            self.module, self.operator_support, self.settings.allow_non_tensor
        )
        self.acc_nodes = finder()
        self.fusions: FusionsOfNodes = {}
        if not self.settings.skip_fusion:
            self.fusions = FxNetAccFusionsFinder(module, self.acc_nodes)()
        self.deps = self.find_deps()
        self.update_deps_for_fusions()
        self.non_acc_submodule_name = non_acc_submodule_name
        self._node_submodule_map: dict[str, str] = {}
        self._return_tuple = return_tuple
        self.tags: list[str] = []

    def get_node_submodule_map(self) -> dict[str, str]:
        """The part of each node, by name."""
        return self._node_submodule_map

    def find_deps(self) -> dict[Node, set[Node]]:
        """The nodes that each node reads, inputs and attributes aside."""
        deps: dict[Node, set[Node]] = defaultdict(set)
        for node in self.module.graph.nodes:
            if node.op in CALLABLE_NODE_OPS:
                deps[node] |= {n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS}
        return deps

    def update_deps_for_fusions(self) -> None:
        """Lets nodes of a group wait for what any of them reads."""
        for node, group in self.fusions.items():
            for each in group:
                self.deps[node] |= self.deps[each] - group
            self.deps[node] -= group

    def _lower_model_to_backend(self, mod: GraphModule, inputs: Any) -> torch.nn.Module:
        """Lowers a part for the backend; the default returns the part itself."""
        return mod

    def _find_culprit(self, mod: GraphModule, inputs: Any) -> str:
        """A text about why the backend fails on a part."""
        return "Unable to find a culprit because _find_culprit() function is not implemented."

    def node_support_preview(self, dump_graph: bool = False) -> str:
        """A text about which kinds of nodes are supported.

        Args:
            dump_graph: accepted; pictures are made by `FxGraphDrawer`.
        """
        submodules = dict(self.module.named_modules())
        kinds: dict[bool, dict[str, set[str]]] = {True: {}, False: {}}

        def dtype_of(argument: Any) -> str:
            return str(_get_arg_dtype(argument)) if isinstance(argument, Node) else "None"

        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                continue
            target = get_node_target(submodules, node)
            dtypes = [dtype_of(each) for each in node.args if isinstance(each, Node)]
            tail = "," if len(dtypes) == 1 else ""
            named = {key: dtype_of(v) for key, v in node.kwargs.items() if isinstance(v, Node)}
            text = f"(({', '.join(dtypes)}{tail}), {named})"
            supported = self.operator_support.is_node_supported(submodules, node)
            kinds[supported].setdefault(target, set()).add(text)
        report = ""
        for supported, title in ((True, "Supported"), (False, "Unsupported")):
            report += f"\n{title} node types in the model:\n"
            for target, texts in kinds[supported].items():
                report += "".join(f"{target}: {text}\n" for text in sorted(texts))
        print(report)
        return report

    def split_preview(self, dump_graph: bool = False) -> str:
        """A text about the parts and what passes between them.

        Args:
            dump_graph: accepted.
        """
        subgraphs = self.remove_small_acc_subgraphs(self.put_nodes_into_subgraphs())
        acc = sum(each.is_acc for each in subgraphs)
        report = (
            f"Before removing small acc subgraphs, total {len(subgraphs)} subgraphs are created:"
        )
        report += f" {acc} acc subgraphs and {len(subgraphs) - acc} cpu subgraphs.\n"
        print(report)
        return report

    def find_reverse_deps(self, tag_id: int | None = None) -> dict[Node, set[Node]]:
        """The users of each node.

        Args:
            tag_id: the part beyond which users are left out.
        """
        result: dict[Node, set[Node]] = defaultdict(set)
        for node in self.module.graph.nodes:
            for user in node.users:
                if user.op not in CALLABLE_NODE_OPS:
                    continue
                if tag_id is None or int(user.tag.split("_")[-1]) < tag_id:
                    result[node].add(user)
        return result

    def starter_nodes(self) -> tuple[set[Node], set[Node]]:
        """Nodes that read nothing but inputs: without the backend, and with it."""
        cpu: set[Node] = set()
        acc: set[Node] = set()
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS or self.deps[node]:
                continue
            (acc if node in self.acc_nodes else cpu).add(node)
        return cpu, acc

    def put_nodes_into_subgraphs(self) -> list[Subgraph]:
        """The parts: as many nodes of one kind as can run, then of the other, and so on."""
        nodes = [node for node in self.module.graph.nodes if node.op in CALLABLE_NODE_OPS]
        done: set[Node] = set()
        cpu, acc = self.starter_nodes()
        is_acc = not cpu
        subgraphs: list[Subgraph] = []
        if not nodes:
            raise FxNetSplitterInternalError("No subgraphs created")
        idle = 0
        while len(done) < len(nodes):
            current: list[Node] = []
            progress = True
            while progress:
                progress = False
                for node in nodes:
                    ready = node not in done and self.deps[node] <= done
                    if ready and (node in self.acc_nodes) == is_acc:
                        members = [n for n in nodes if n in self.fusions.get(node, {node})]
                        current += [n for n in members if n not in done]
                        done.update(members)
                        progress = True
            if current:
                position = {node: index for index, node in enumerate(nodes)}
                current.sort(key=lambda node: position[node])
                subgraphs.append(Subgraph(is_acc=is_acc, nodes=current))
                idle = 0
            else:
                idle += 1
                if idle > 2:
                    raise FxNetSplitterInternalError("Subgraph can't be empty")
            is_acc = not is_acc
        return subgraphs

    def remove_small_acc_subgraphs(self, subgraphs: list[Subgraph]) -> list[Subgraph]:
        """Parts for the backend that are too small join their neighbours."""
        result: list[Subgraph] = []
        for each in subgraphs:
            large = each.is_acc and len(each.nodes) >= self.settings.min_acc_module_size
            if each.is_acc and large or not result and not each.is_acc:
                result.append(each)
            elif result and not result[-1].is_acc:
                result[-1].nodes.extend(each.nodes)
            else:
                each.is_acc = False
                result.append(each)
        return result

    def tag(self, subgraphs: list[Subgraph]) -> None:
        """Gives each node the name of its part.

        Raises:
            FxNetSplitterInternalError: it has one already.
        """
        self.tags = []
        for number, each in enumerate(subgraphs):
            name = "_run_on_acc_" if each.is_acc else self.non_acc_submodule_name
            tag = f"{name}{number}"
            self.tags.append(tag)
            for node in each.nodes:
                if hasattr(node, "tag"):
                    raise FxNetSplitterInternalError(f"Node {node} was already tagged")
                node.tag = tag
                self._node_submodule_map[node.name] = tag

    def split(self, remove_tag: bool = False) -> GraphModule:
        """The module of tagged parts.

        Args:
            remove_tag: whether the tags are taken away afterwards.
        """
        module = split_by_tags(self.module, self.tags, return_tuple=self._return_tuple)
        if remove_tag:
            for node in self.module.graph.nodes:
                if hasattr(node, "tag"):
                    del node.tag
        return module

    def __call__(self) -> GraphModule:
        """Chooses the parts and splits."""
        subgraphs = self.remove_small_acc_subgraphs(self.put_nodes_into_subgraphs())
        if self.settings.move_non_tensor_nodes_on_boundary:
            move_non_tensor_nodes_on_boundary(subgraphs)
        acc = sum(each.is_acc for each in subgraphs)
        limit = self.settings.max_acc_splits
        if limit > 0 and acc > limit:
            raise ValueError(
                f"Too many acc splits: {acc} > {limit}, increase max_acc_splits to allow them"
            )
        print(f"Got {acc} acc subgraphs and {len(subgraphs) - acc} non-acc subgraphs")
        self.tag(subgraphs)
        return self.split()

    def generate_split_results(self) -> SplitResult:
        """The split module, and the inputs of its parts."""
        module = self()
        names = [name for name, _ in module.named_children()]
        inputs = generate_inputs_for_submodules(module, self.sample_input, names)
        return SplitResult(module, inputs, self.non_acc_submodule_name)
