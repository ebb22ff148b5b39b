"""`insert_deferred_runtime_asserts`: checks of symbolic sizes, of which there are none here."""

from __future__ import annotations

from typing import Any

from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph_module import GraphModule

__all__ = ["insert_deferred_runtime_asserts"]


@compatibility(is_backward_compatible=True)
def insert_deferred_runtime_asserts(
    gm: GraphModule, shape_env: Any, name: str, export: bool = False
) -> None:
    """Leaves the module as it is: sizes are numbers in a graph here, and nothing is deferred.

    Args:
        gm: the module.
        shape_env: a `ShapeEnv`, which is empty here.
        name: what the module is called in messages.
        export: accepted.

    Raises:
        NotImplementedError: a `ShapeEnv` with deferred checks.
    """
    if getattr(shape_env, "deferred_runtime_asserts", None):
        raise NotImplementedError(
            f"[insert_deferred_runtime_asserts] {name} has deferred checks of symbolic sizes\n"
            "hint: torch._check(condition) in the program is checked when it runs"
        )
