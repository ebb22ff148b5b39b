"""`annotate`: the type of a traced value."""

from __future__ import annotations

from typing import Any

from flambeau.fx._compatibility import compatibility
from flambeau.fx.proxy import Proxy

__all__ = ["annotate"]


@compatibility(is_backward_compatible=False)
def annotate(val: Any, type: type) -> Any:  # noqa: A002
    """Sets the type of the node behind a proxy; other values are returned as they are.

    Args:
        val: a value of a traced function.
        type: its type.

    Raises:
        RuntimeError: the node has a type already.
    """
    if not isinstance(val, Proxy):
        return val
    if val.node.type:
        raise RuntimeError(
            f"Tried to annotate a value that already had a type on it! Existing type is "
            f"{val.node.type} and new type is {type}. This could happen if you tried to annotate "
            "a function parameter value (in which case you should use the type slot on the "
            "function signature) or you tried to annotate the same value twice"
        )
    val.node.type = type
    return val
