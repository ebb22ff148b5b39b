"""Finds the nodes whose results differ between two ways of running a module."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.shape_prop import ShapeProp
from flambeau.fx.passes.split_utils import split_by_tags
from flambeau.fx.passes.splitter_base import generate_inputs_for_submodules
from flambeau.fx.passes.tools_common import CALLABLE_NODE_OPS

__all__ = [
    "FxNetMinimizerBadModuleError",
    "FxNetMinimizerResultMismatchError",
    "FxNetMinimizerRunFuncError",
]

_LOGGER = logging.getLogger(__name__)

Compare = Callable[[Any, Any, list[str]], tuple[float, bool]]


@compatibility(is_backward_compatible=False)
class FxNetMinimizerBadModuleError(Exception):
    """A module cannot be split as requested."""


@compatibility(is_backward_compatible=False)
class FxNetMinimizerRunFuncError(Exception):
    """One of the two ways fails."""


@compatibility(is_backward_compatible=False)
class FxNetMinimizerResultMismatchError(Exception):
    """The results differ."""


@dataclass
class _MinimizerSettingBase:
    """How the nodes are searched.

    Attributes:
        accumulate_error: whether nodes get what the second way gave before.
        traverse_method: "sequential", "binary", "accumulate", "block", "defined" or "skip".
        find_all: whether the search goes on behind the first difference.
        return_intermediate: whether results of single nodes are returned, too.
        all_outputs: whether all results of a part are compared.
    """

    accumulate_error: bool = False
    traverse_method: str = "sequential"
    find_all: bool = False
    return_intermediate: bool = False
    all_outputs: bool = False

    def __str__(self) -> str:
        lines = (f"\t{key}: {value}\n" for key, value in vars(self).items())
        return "FX Minimizer Settings:\n" + "".join(lines)


class _MinimizerBase:
    """Runs parts of a module in two ways and compares. Subclasses define `run_a` and `run_b`.

    Args:
        module: the module.
        sample_input: its inputs.
        compare_fn: of two results and names of outputs: a number, and whether they agree.
        settings: see `_MinimizerSettingBase`.
        module_exporter: called with inputs, a part and its name when results differ.
        exclusion_fn: takes nodes away, of all and the range.
    """

    def __init__(
        self,
        module: GraphModule,
        sample_input: Any,
        compare_fn: Compare,
        settings: _MinimizerSettingBase,
        module_exporter: Callable[..., None] | None = None,
        exclusion_fn: Callable[..., None] | None = None,
    ) -> None:
        if not isinstance(module, GraphModule):
            raise AssertionError(f"Expected GraphModule, got {type(module)}")
        self.module = module
        self.sample_input = sample_input
        self.compare_fn = compare_fn
        self.module_exporter = module_exporter
        self.settings = settings
        self.exclusion_fn = exclusion_fn
        self.a_outputs: dict[str, Any] = {}
        self.b_outputs: dict[str, Any] = {}
        self.results: dict[Any, Any] = {}
        self.reports: list[list[str]] = []
        self.iteration: int = 0
        self.fusions: dict[Node, set[Node]] = {}
        callable_nodes = {n for n in module.graph.nodes if n.op in CALLABLE_NODE_OPS}
        self.run_shape_prop()
        self.nodes = [n for n in module.graph.nodes if n in callable_nodes]

    def run_shape_prop(self) -> None:
        """Notes shapes of all values."""
        ShapeProp(self.module).propagate(*self.sample_input)

    def run_a(self, mod: GraphModule, inputs: Any, report_idx: int = -1) -> Any:
        """The first way.

        Raises:
            RuntimeError: a subclass must define it.
        """
        raise RuntimeError("run_a() is not implemented.")

    def run_b(self, mod: GraphModule, inputs: Any, report_idx: int = -1) -> Any:
        """The second way.

        Raises:
            RuntimeError: a subclass must define it.
        """
        raise RuntimeError("run_b() is not implemented.")

    # ------------------------------------------------------------------------ parts
    def _tag_nodes(self, selected_nodes: set[Node]) -> None:
        """Nodes in front of the chosen ones, the chosen ones, those behind."""
        seen = False
        last = max(selected_nodes)
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                continue
            if node in selected_nodes:
                node.tag, seen = "minimize", True
            elif any(getattr(n, "tag", "") in ("minimize", "main_1") for n in node.all_input_nodes):
                node.tag = "main_1"
            else:
                node.tag = "main_1" if seen and node > last else "main_0"

    def _build_submodule(self, nodes: set[Node]) -> tuple[GraphModule, str]:
        """The module split around nodes, and the name of their part."""
        self._tag_nodes(nodes)
        split = split_by_tags(self.module, ["main_0", "minimize", "main_1"])
        if not hasattr(split, "minimize"):
            raise FxNetMinimizerBadModuleError(f"Did not find the submodule of {nodes}")
        return split, "minimize"

    def _get_submod_inputs(self, main_module: GraphModule, submod_path: str) -> tuple[Any, Any]:
        inputs = generate_inputs_for_submodules(main_module, self.sample_input, [submod_path])
        a_input = tuple(inputs[submod_path])
        if not self.settings.accumulate_error:
            return a_input, a_input
        part = main_module.get_submodule(submod_path)
        names = [n.name for n in part.graph.nodes if n.op == "placeholder"]
        b_input = tuple(
            self.b_outputs.get(name, value) for name, value in zip(names, a_input, strict=True)
        )
        return a_input, b_input

    def _store_outputs(self, a_result: Any, b_result: Any, submodule: GraphModule) -> None:
        output = submodule.graph.output_node().args[0]
        names = [n.name for n in output] if isinstance(output, tuple) else [output.name]
        for results, store in ((a_result, self.a_outputs), (b_result, self.b_outputs)):
            values = results if isinstance(output, tuple) else (results,)
            store.update(zip(names, values, strict=False))

    def _run_and_compare(
        self,
        split_module: GraphModule,
        submod_name: str,
        output_names: list[str],
        report_idx: int = -1,
    ) -> None:
        """Runs a part in both ways.

        Raises:
            FxNetMinimizerRunFuncError: one fails.
            FxNetMinimizerResultMismatchError: the results differ.
        """
        submodule = split_module.get_submodule(submod_name)
        a_input, b_input = self._get_submod_inputs(split_module, submod_name)
        results = []
        for name, run, inputs in (("a", self.run_a, a_input), ("b", self.run_b, b_input)):
            try:
                results.append(run(submodule, inputs, report_idx))
            except Exception as error:
                raise FxNetMinimizerRunFuncError(
                    f"Exception raised when running {submod_name} by run_{name}: {error}"
                ) from error
        a_result, b_result = results
        self._store_outputs(a_result, b_result, submodule)
        names = output_names or [submod_name]
        number, agrees = self.compare_fn(a_result, b_result, names)
        self.results[tuple(names)] = number
        if not agrees:
            if self.module_exporter is not None:
                self.module_exporter(a_input, submodule, f"{names[0]}_cpu")
            raise FxNetMinimizerResultMismatchError(f"Result mismatch for {tuple(names)}")

    def _differs(self, nodes: list[Node]) -> bool:
        """Whether the results of some nodes differ."""
        report = [f"Nodes: {[node.name for node in nodes]}"]
        self.reports.append(report)
        self.iteration += 1
        split, name = self._build_submodule(set(nodes))
        try:
            self._run_and_compare(split, name, [nodes[-1].name], len(self.reports) - 1)
        except (FxNetMinimizerResultMismatchError, FxNetMinimizerRunFuncError) as error:
            report.append(str(error))
            return True
        report.append("No difference")
        return False

    # ------------------------------------------------------------------------ searches
    def _sequential_traverse(self, nodes: list[Node]) -> set[Node]:
        culprits: set[Node] = set()
        for node in nodes:
            if self._differs([node]):
                culprits.add(node)
                if not self.settings.find_all:
                    break
        return culprits

    def _binary_search_impl(self, all_nodes: list[Node], start_idx: int, end_idx: int) -> set[Node]:
        nodes = all_nodes[start_idx:end_idx]
        if not nodes or not self._differs(nodes):
            return set()
        if len(nodes) == 1:
            return set(nodes)
        middle = start_idx + len(nodes) // 2
        culprits = self._binary_search_impl(all_nodes, start_idx, middle)
        if not culprits or self.settings.find_all:
            culprits |= self._binary_search_impl(all_nodes, middle, end_idx)
        return culprits or set(nodes)

    def _binary_traverse(self, nodes: list[Node]) -> set[Node]:
        return self._binary_search_impl(nodes, 0, len(nodes))

    def _accumulate_traverse(self, nodes: list[Node]) -> set[Node]:
        for end in range(1, len(nodes) + 1):
            if self._differs(nodes[:end]):
                return {nodes[end - 1]}
        return set()

    def _block_traverse(self, nodes: list[Node], find_last_node: bool | None) -> set[Node]:
        """The shortest beginning (or end) of the nodes that differs."""
        if not nodes or not self._differs(nodes):
            return set()
        first, last = 0, len(nodes)
        if find_last_node is not False:
            last = self._block_traverse_impl(nodes, 0, len(nodes), True) or len(nodes)
        if find_last_node is not True:
            first = self._block_traverse_impl(nodes[:last], 0, last, False) or 0
        return set(nodes[first:last])

    def _block_traverse_impl(
        self, nodes: list[Node], start_idx: int, end_idx: int, find_last_node: bool
    ) -> int | None:
        if find_last_node:
            ends = (end for end in range(1, end_idx + 1) if self._differs(nodes[:end]))
            return next(ends, None)
        starts = (s for s in range(end_idx - 1, -1, -1) if self._differs(nodes[s:end_idx]))
        return next(starts, None)

    def _defined_traverse(self, nodes: list[Node]) -> set[Node]:
        return set(nodes) if nodes and self._differs(nodes) else set()

    def _skip_traverse(self, all_nodes: list[Node], skip_nodes: list[str]) -> set[Node]:
        culprits: set[Node] = set()
        block: list[Node] = []
        for node in [*all_nodes, None]:
            if node is not None and node.name not in skip_nodes:
                block.append(node)
                continue
            culprits |= self._defined_traverse(block)
            block = []
        return culprits

    def _collect_nodes(self, start: str | None, end: str | None) -> list[Node]:
        names = [node.name for node in self.nodes]
        first = 0 if start is None else names.index(start)
        last = len(names) if end is None else names.index(end) + 1
        nodes = self.nodes[first:last]
        if self.exclusion_fn is not None:
            self.exclusion_fn(nodes, 0, len(nodes))
        return nodes

    def run_nodes(self, start: str | None = None, end: str | None = None) -> None:
        """Compares a range of nodes at once.

        Args:
            start: the name of the first.
            end: the name of the last.
        """
        nodes = self._collect_nodes(start, end)
        split, name = self._build_submodule(set(nodes))
        self._run_and_compare(split, name, [nodes[-1].name])

    def print_report(self, report: list[str]) -> None:
        """Prints the lines of one comparison."""
        for line in report:
            print(line)

    def print_reports(self) -> None:
        """Prints all comparisons."""
        for report in self.reports:
            self.print_report(report)

    def minimize(
        self,
        start: str | None = None,
        end: str | None = None,
        skip_nodes: list[str] | None = None,
        find_last_node: bool | None = None,
    ) -> set[Node]:
        """The nodes whose results differ.

        Args:
            start: the name of the first node to look at.
            end: the name of the last.
            skip_nodes: names that are left out, for "skip".
            find_last_node: which end of a block to find, for "block".
        """
        nodes = self._collect_nodes(start, end)
        method = self.settings.traverse_method
        if method == "sequential":
            return self._sequential_traverse(nodes)
        if method == "binary":
            return self._binary_traverse(nodes)
        if method == "accumulate":
            return self._accumulate_traverse(nodes)
        if method == "skip":
            if skip_nodes is None:
                raise RuntimeError("'skip_nodes' can't be None when 'traverse_method' is 'skip'.")
            return self._skip_traverse(nodes, skip_nodes)
        if method == "defined":
            return self._defined_traverse(nodes)
        if method == "block":
            return self._block_traverse(nodes, find_last_node)
        raise RuntimeError(f"Unknown traverse method {method}!")
