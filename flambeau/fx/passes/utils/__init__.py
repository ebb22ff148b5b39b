"""Helpers of passes: matching, fusing, lifting parts of graphs."""

from flambeau.fx.passes.utils.common import HolderModule, compare_graphs, lift_subgraph_as_module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]
