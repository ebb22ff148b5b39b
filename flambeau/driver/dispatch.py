"""The slow path of an op call: from an operator's definition to the Plans of its calls.

Called by the native core when neither cache level knows a call's class; `driver/planner.py` finds
or makes the Plan, and `driver/specify.py` traces the definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.core.tensors import struct_sequence
from flambeau.driver.calls import Call
from flambeau.driver.planner import Source
from flambeau.ir.lock import importing
from flambeau.language.definition import Overload

if TYPE_CHECKING:
    from flambeau.driver.specify import Specification

# Options of a definition that decide about its programs.
_OPTIONS = ("promote", "participants", "layout", "view", "returns_self", "differentiable")


def builder(overload: Overload, variant: str) -> Callable[[Call], Any]:
    """The build function of one native overload.

    Args:
        overload: the definition.
        variant: "functional" or "inplace" (the result overwrites the first argument).
    """

    def specify(call: Call) -> Specification:
        with importing:
            from flambeau.driver.specify import specify_call

        return specify_call(overload, variant, call)

    def identity() -> str | None:
        body = overload.body
        if not body.__module__.startswith("flambeau."):
            return None  # the package's sources say nothing about it
        options = [getattr(overload.options, name) for name in _OPTIONS]
        where = (body.__module__, body.__qualname__)
        return repr((overload.text, overload._runtime, variant, where, options))

    return Source(specify, identity, lambda: struct_sequence_of(overload), overload).build


def struct_sequence_of(overload: Overload) -> Any:
    """The type of an overload's results, which have names."""
    prefix = "linalg_" if overload.options.where[0] == "linalg" else ""
    return struct_sequence(prefix + overload.name, overload.schema.returns)
