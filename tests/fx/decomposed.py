"""Calls of the op table as graphs of operators, for tests of decompositions."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.utils import _pytree as pytree
from tests.ops.inputs import arguments, leaves, tensor_builder
from tests.ops.table import Entry, seed


class TableCall:
    """One sample of an operator as a function of its tensors.

    Attributes:
        tensors: the sample's.
    """

    def __init__(self, entry: Entry, sample: Any) -> None:
        args, kwargs = arguments(sample, tensor_builder(torch), "f32")
        self.flat, self.spec = pytree.tree_flatten((args, kwargs))
        self.tensors = [x for x in self.flat if isinstance(x, torch.Tensor)]
        self.function = entry.function

    def __call__(self, *tensors: Any) -> Any:
        """The operator's result."""
        values = iter(tensors)
        flat = [next(values) if isinstance(x, torch.Tensor) else x for x in self.flat]
        args, kwargs = pytree.tree_unflatten(flat, self.spec)
        return self.function(*args, **kwargs)

    def graph(self, table: Any = None) -> Any:
        """The module of the call; None: it reads data, which graphs do not."""
        try:
            with torch.no_grad():
                return make_fx(self, table)(*self.tensors)
        except RuntimeError as error:
            if "value of data" in str(error):
                return None
            raise

    def results(self, function: Any) -> list[Any]:
        """Tensors of the result of a function of these tensors."""
        seed()
        with torch.no_grad():
            result = function(*self.tensors)
        return [x for x in leaves(result) if isinstance(x, torch.Tensor)]


def targets(module: Any) -> list[Any]:
    """Operators of a graph in order."""
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    return [node.target for node in nodes if hasattr(node.target, "overloadpacket")]
