"""`regional_inductor`: marked regions of a graph compiled by themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from flambeau.fx.passes.operator_support import create_op_support

__all__ = ["regional_inductor"]


def _needs_inductor_compile(node: Node) -> bool:
    """Whether `torch.fx.traceback.annotate` marked a node."""
    custom = node.meta.get("custom") or {}
    return node.op not in ("placeholder", "output") and "compile_with_inductor" in custom


def _dummy_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls another one."""

    @functools.wraps(fn)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return inner


@compatibility(is_backward_compatible=False)
def regional_inductor(gm: GraphModule, *example_args: object) -> GraphModule:
    """Compiles the nodes that are marked with "compile_with_inductor" by `torch.compile`.

    Args:
        gm: the module.
        example_args: its inputs; not used.
    """
    support = create_op_support(lambda _, node: _needs_inductor_compile(node))
    partitioner = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True)
    fused = partitioner.partition_and_fuse(prefix="__marked_inductor_submod")
    for name, module in list(fused.named_children()):
        if name.startswith("__marked_inductor_submod"):
            setattr(fused, name, torch.compile(module))
    return fused
