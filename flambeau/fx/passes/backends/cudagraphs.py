"""Parts that CUDA graphs could run: there are none without CUDA."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import flambeau as torch
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, map_arg
from flambeau.fx.passes.fake_tensor_prop import FakeTensorProp
from flambeau.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from flambeau.fx.passes.operator_support import OperatorSupport
from flambeau.fx.passes.tools_common import CALLABLE_NODE_OPS


class CudaGraphsSupport(OperatorSupport):
    """Supports nodes all of whose tensors are on a CUDA device."""

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        """Whether a node reads and gives CUDA tensors alone."""
        if node.op not in CALLABLE_NODE_OPS:
            return False
        if node.target is operator.getitem:
            return True
        devices: set[str] = set()

        def note(each: Node) -> Node:
            value = each.meta.get("val")
            if isinstance(value, torch.Tensor):
                devices.add(value.device.type)
            return each

        map_arg(node.args, note)
        note(node)
        return devices == {"cuda"}


def partition_cudagraphs(gm: GraphModule, inputs: Sequence[object]) -> GraphModule:
    """Puts the nodes on CUDA devices in submodules.

    Args:
        gm: the module.
        inputs: its inputs.
    """
    FakeTensorProp(gm).propagate(*inputs)
    supported = CudaGraphsSupport()
    return CapabilityBasedPartitioner(
        gm, supported, allows_single_node_partition=True
    ).partition_and_fuse()
