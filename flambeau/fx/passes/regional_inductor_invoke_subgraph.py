"""`regional_inductor_invoke_subgraph`: as `regional_inductor`, for calls of sub-graphs."""

from __future__ import annotations

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.passes.regional_inductor import regional_inductor

__all__ = ["regional_inductor_invoke_subgraph"]


def regional_inductor_invoke_subgraph(gm: GraphModule, *example_args: object) -> GraphModule:
    """Compiles marked regions; sub-graphs are modules here, which are part of their region.

    Args:
        gm: the module.
        example_args: its inputs; not used.
    """
    return regional_inductor(gm, *example_args)
