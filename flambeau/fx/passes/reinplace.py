"""`reinplace`: operators that write their first argument in place of ones that do not."""

from __future__ import annotations

from typing import Any

from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph_module import GraphModule

__all__ = ["reinplace"]


@compatibility(is_backward_compatible=True)
def reinplace(gm: GraphModule, *sample_args: Any) -> GraphModule:
    """Returns the module as it is.

    In PyTorch this pass lets operators write into memory that nothing reads any more. Here the
    compiler plans memory when a graph is compiled: a value's memory is used again as soon as it is
    free. The result of the pass is the same, bit for bit.

    Args:
        gm: a module, whose graph stays as it is.
        sample_args: its inputs; not used.
    """
    return gm
