"""Comparisons: element by element to `bool`, and of whole tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import prims
from flambeau.core.definition import OpDefinition, op
from flambeau.core.samples import binary_samples
from flambeau.ir.node import Node
from flambeau.ops.broadcasting import apply

_RELATIONS = {
    "eq": ("==", "", "equal"),
    "ne": ("!=", "not_equal", "not_equal"),
    "lt": ("<", "less", "less"),
    "le": ("<=", "less_equal", "less_equal"),
    "gt": (">", "greater", "greater"),
    "ge": (">=", "greater_equal", "greater_equal"),
}


def _comparison(name: str) -> OpDefinition:
    sign, alias, reference = _RELATIONS[name]
    function: Callable[[Node, Node], Node] = getattr(prims, name)

    def body(self: Node, other: Any) -> Node:
        return apply(name, function, self, other)

    body.__doc__ = f"""`self {sign} other`, element by element, as `bool`.

    Operands broadcast and are compared in their promoted dtype.

    Example:
        >>> torch.{name}(torch.tensor([1, 2]), 2).dtype
        torch.bool
    """
    return op(
        f"{name}(Tensor self, Tensor|Scalar other) -> Tensor",
        promote="bool",
        runtime="other",
        aliases=alias,
        samples=binary_samples(),
        reference=f"numpy.{reference}",
    )(body)


eq = _comparison("eq")
ne = _comparison("ne")
lt = _comparison("lt")
le = _comparison("le")
gt = _comparison("gt")
ge = _comparison("ge")
