"""Calls of inner modules whose form a program has: arguments and results, with their structure.

Such a call is marked in the graph by a node that takes its arguments and one that takes its
results. What changes the graph later changes them as well, until they are read and removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flambeau as torch
from flambeau.export.graph_signature import ModuleCallSignature
from flambeau.fx import Graph, GraphModule
from flambeau.ir.failure import failure
from flambeau.utils import _pytree as pytree

__all__ = ["InnerCalls"]

Value = Any  # an argument or a result of a module


def _boundary(path: str, of_results: bool, leaves: Sequence[Value]) -> None:
    """Marks where a module begins or ends."""


class InnerCalls:
    """The calls of some modules in one run.

    Args:
        module: the exported module.
        paths: of modules in it.

    Attributes:
        signatures: by path, of a further call of a module `path@1`.

    Raises:
        AttributeError: there is no such module.
    """

    def __init__(self, module: torch.nn.Module, paths: Sequence[str]) -> None:
        self.modules: dict[str, Value] = {}
        for path in paths:
            self.modules[path] = module
            for part in path.split("."):
                self.modules[path] = getattr(self.modules[path], part)
        self.signatures: dict[str, ModuleCallSignature] = {}
        self._specs: dict[str, list[Value]] = {}

    @contextlib.contextmanager
    def watched(self, record: Callable[..., None]) -> Iterator[None]:
        """A `with` block whose calls are marked.

        Args:
            record: adds the call of a function with values of the run.
        """
        handles: list[Value] = []
        for path, module in self.modules.items():
            before, behind = self._hooks(path, record)
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(behind))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hooks(
        self, path: str, record: Callable[..., None]
    ) -> tuple[Callable[..., None], Callable[..., None]]:
        running: list[str] = []
        count = 0

        def before(module: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> None:
            nonlocal count
            name = f"{path}@{count}" if count else path
            count += 1
            running.append(name)
            self._mark(path, name, (args, kwargs), record)

        def behind(module: Value, args: tuple[Value, ...], result: Value) -> None:
            self._mark(path, running.pop(), result, record)

        return before, behind

    def _mark(self, path: str, name: str, value: Value, record: Callable[..., None]) -> None:
        leaves, spec = pytree.tree_flatten(value)
        specs = self._specs.setdefault(name, [])
        first = self._specs[path][len(specs)] if name != path else spec
        if first != spec:
            side = "out_spec" if specs else "in_spec"
            raise AssertionError(f"{side} mismatch for {path}: {spec} != {first}")
        record(_boundary, (name, bool(specs), leaves))
        specs.append(spec)

    def read(self, graph: Graph, parts: dict[str, Value], argument_of: Value) -> None:
        """Makes signatures of the marks, and removes them.

        Args:
            graph: the graph.
            parts: attributes of its module.
            argument_of: describes a node or a value.

        Raises:
            NotImplementedError: a call inside of another graph of the program.
        """
        for part in parts.values():
            if isinstance(part, GraphModule) and _marks(part.graph):
                problem = (
                    "a module whose call is preserved runs inside of a block without gradients"
                )
                hint = "preserve the call of the module around it"
                raise failure(NotImplementedError, "export", problem, hint)
        for node in _marks(graph):
            name, of_results, leaves = node.args
            in_spec, out_spec = self._specs[name]
            described = [argument_of(leaf) for leaf in leaves]
            signature = self.signatures.setdefault(
                name, ModuleCallSignature([], [], in_spec, out_spec)
            )
            (signature.outputs if of_results else signature.inputs).extend(described)
            graph.erase_node(node)


def _marks(graph: Graph) -> list[Value]:
    return list(graph.find_nodes(op="call_function", target=_boundary))
