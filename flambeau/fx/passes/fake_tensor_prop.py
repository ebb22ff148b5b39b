"""`FakeTensorProp`: runs a graph on tensors without data and notes them."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node, map_aggregate

__all__ = ["FakeTensorProp"]


@compatibility(is_backward_compatible=False)
class FakeTensorProp(Interpreter):
    """Runs a graph in a fake mode; each node gets `meta["val"]`.

    Args:
        module: the module.
        mode: the mode; the default is a new one.
    """

    def __init__(self, module: GraphModule, mode: FakeTensorMode | None = None) -> None:
        super().__init__(module)
        self._mode = FakeTensorMode() if mode is None else mode
        self.seen_subgraphs: set[str] = set()

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module, without data."""
        value = super().fetch_attr(target)
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return self._mode.from_tensor(value)
        return value

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a submodule whose parameters have no data."""
        module = Interpreter.fetch_attr(self, target)
        names = dict(module.named_parameters()) | dict(module.named_buffers())
        fakes = {name: self._mode.from_tensor(tensor) for name, tensor in names.items()}
        return torch.func.functional_call(module, fakes, args, kwargs)

    def run_node(self, n: Node) -> Any:
        """Runs a node and notes its value."""
        result = super().run_node(n)
        values = False

        def extract(value: Any) -> Any:
            nonlocal values
            values = values or isinstance(value, (FakeTensor, int, float, bool))
            return value

        meta = map_aggregate(result, extract)
        if values:
            n.meta["val"] = meta
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph.

        Args:
            args: its inputs, with or without data.
        """
        fakes = [
            self._mode.from_tensor(value)
            if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
            else value
            for value in args
        ]
        return self.propagate_dont_convert_inputs(*fakes)

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """Runs the graph on inputs that have no data already."""
        with self._mode:
            return super().run(*args)
