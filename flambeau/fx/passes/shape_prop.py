"""`ShapeProp`: runs a graph and notes the shape and dtype of every value."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


@compatibility(is_backward_compatible=True)
class TensorMetadata(NamedTuple):
    """The metadata of a tensor that `ShapeProp` stores.

    Attributes:
        shape: its sizes.
        dtype: its dtype.
        requires_grad: whether it takes part in gradients.
        stride: its strides.
        memory_format: the order of its dimensions in memory, if it is a known one.
        is_quantized: always False; no tensor is.
        qparams: empty.
    """

    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Any, include_contiguity: bool = True) -> TensorMetadata:
    """The metadata of a tensor."""
    layout = None
    if include_contiguity and result.layout is torch.strided:
        formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
        for each in formats:
            dimensions = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(each)
            fits = dimensions is None or result.dim() == dimensions
            if fits and result.is_contiguous(memory_format=each):
                layout = each
                break
    stride = result.stride() if result.layout is torch.strided else ()
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, stride, layout, False, {}
    )


@compatibility(is_backward_compatible=True)
class ShapeProp(Interpreter):
    """Runs a graph; each node gets `meta["tensor_meta"]` and `meta["type"]`.

    Args:
        gm: the module.
        fake_mode: a `FakeTensorMode`: nothing is computed then.

    Example:
        >>> from torch.fx.passes.shape_prop import ShapeProp
        >>> traced = torch.fx.symbolic_trace(lambda x: x.sum(1))
        >>> _ = ShapeProp(traced).propagate(torch.ones(2, 3))
        >>> [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes]
        [(2, 3), (2,), (2,)]
    """

    def __init__(self, gm: GraphModule, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode = fake_mode
        self.real_module = self.module

    def run_node(self, n: Node) -> Any:
        """Runs a node and notes what its value is like."""
        try:
            if self.fake_mode is None:
                result = super().run_node(n)
            else:
                with self.fake_mode:
                    result = super().run_node(n)
        except Exception as error:
            traceback.print_exc()
            raise RuntimeError(
                f"ShapeProp error for: node={n.format_node()} with meta={n.meta}"
            ) from error
        tensors = False

        def extract(value: Any) -> Any:
            nonlocal tensors
            if not isinstance(value, torch.Tensor):
                return value
            tensors = True
            return _extract_tensor_metadata(value)

        meta = map_aggregate(result, extract)
        if tensors:
            n.meta["tensor_meta"] = meta
        if self.fake_mode is not None:
            n.meta["val"] = result
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph.

        Args:
            args: its inputs.
        """
        if self.fake_mode is not None:
            args = tuple(
                self.fake_mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
                for value in args
            )
        return super().run(*args)
