"""A breakpoint in generated code."""

from __future__ import annotations

from flambeau.fx import GraphModule

__all__ = ["set_trace"]


def set_trace(gm: GraphModule) -> GraphModule:
    """Makes the generated `forward` stop in the debugger.

    Args:
        gm: the module, which is changed.
    """

    def insert(body: list[str]) -> list[str]:
        return ["import pdb; pdb.set_trace()\n", *body]

    with gm.graph.on_generate_code(
        make_transformer=lambda before: lambda body: insert(before(body) if before else body)
    ):
        gm.recompile()
    return gm
