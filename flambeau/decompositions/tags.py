"""`Overload.tags`: properties of operators.

Of the overloads that PyTorch has they are in the table of its operators. Whether another operator,
such as a primitive, is pointwise, draws numbers or writes in place follows from its definition.
"""

from __future__ import annotations

import functools
from typing import Any

from flambeau.core import install
from flambeau.ir.lock import late
from flambeau.language.definition import REGISTRY, OpDefinition
from flambeau.ops import aten
from flambeau.runtime.tags import Tag

Value = Any  # an argument or a result of an operator

__all__ = ["is_core", "is_core_name", "tags_of"]


def is_core(overload: Value) -> bool:
    """Whether an overload of `torch.ops.aten` belongs to core ATen.

    Args:
        overload: of an operator.
    """
    entry = _entry(overload)
    return entry is not None and Tag.core in entry.tags


def is_core_name(name: str) -> bool:
    """Whether an overload of this name ("add.Tensor") belongs to core ATen.

    Args:
        name: of an overload.
    """
    entry = late("flambeau.library.aten_schemas").entry(*name.split("."))
    return entry is not None and Tag.core in entry.tags


def _entry(overload: Value) -> Value:
    """The table's line of an overload; None if PyTorch does not have it."""
    if overload.namespace != "aten":
        return None
    name = overload.overloadpacket.__name__
    return late("flambeau.library.aten_schemas").entry(name, overload._overloadname)


# Families of definitions that reduce dimensions to one element each.
_REDUCING = frozenset(
    f"flambeau.ops.reduction.{family}" for family in "reduce extremes linalg_norms variance".split()
)
# Of these families, operators that do not, or not by themselves.
_NOT_REDUCING = frozenset("cdist dist linalg_matrix_norm linalg_norm renorm renorm_".split())
_WRITES_GEOMETRY = "flambeau.ops.shape.inplace_views"


@functools.cache
def _by_name() -> dict[str, OpDefinition]:
    definitions = list(reversed(REGISTRY.values()))
    other = {name: each for each in definitions for name in each.options.aliases}
    return other | {aten.inner_name(each): each for each in definitions}


def _definition(overload: Value) -> OpDefinition | None:
    """The definition behind an operator, or behind the operator of which it is an in-place form."""
    function = overload.overloadpacket._function
    definition = install.DEFINITIONS.get(id(function))
    if definition is None:
        definition = _by_name().get(overload.overloadpacket.__name__.rstrip("_"))
    return definition


def _is_inplace(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _draws(overload: Value, definition: OpDefinition | None) -> bool:
    texts = getattr(overload.overloadpacket._function, "schemas", ())
    drawing = "generator" in " ".join(texts).replace("_generator", "")
    noisy = "dropout" in overload.__name__ or overload.__name__.startswith("rrelu")
    attends = overload.__name__.startswith("_scaled_dot_product_flash")
    gradient = "_backward" in overload.__name__
    return (drawing or noisy or attends or "multinomial" in overload.__name__) and not gradient


def _is_pointwise(overload: Value, definition: OpDefinition | None) -> bool:
    if definition is None:
        return False
    arguments = [a for each in definition.overloads for a in each.schema.arguments]
    makes = any(argument.kind in ("device?", "generator?") for argument in arguments)
    if overload._overloadname == "other":  # of max and min, which reduce in their other forms
        return True
    return definition.options.is_pointwise and not makes


def _is_reduction(overload: Value, definition: OpDefinition | None) -> bool:
    if definition is None or overload.overloadpacket.__name__ in _NOT_REDUCING:
        return False
    module = definition.overloads[0].body.__module__
    return module in _REDUCING and overload._overloadname != "other"


def _changes_geometry(overload: Value, definition: OpDefinition | None) -> bool:
    """Whether an operator makes its argument show other memory, or in another shape."""
    if not _is_inplace(overload.overloadpacket.__name__) or definition is None:
        return False
    module = definition.overloads[0].body.__module__
    return module == _WRITES_GEOMETRY or definition.options.view


def _is_view_copy(name: str) -> bool:
    base = _by_name().get(name.removesuffix("_copy"))
    named = name.endswith("_copy") and name not in ("_to_copy", "index_copy")
    return name == "slice_scatter" or (named and (base is None or not _is_inplace(base.name)))


@functools.cache
def tags_of(overload: Value) -> tuple[Tag, ...]:
    """The tags of an overload, in the order of their names.

    Args:
        overload: of `torch.ops.aten`, or a primitive.
    """
    entry = _entry(overload)
    if entry is not None:
        return tuple(entry.tags)
    name, definition = overload.overloadpacket.__name__, _definition(overload)
    facts = {
        Tag.pt2_compliant_tag: True,
        Tag.pointwise: _is_pointwise(overload, definition),
        Tag.reduction: _is_reduction(overload, definition),
        Tag.nondeterministic_seeded: _draws(overload, definition),
        Tag.inplace: _is_inplace(name),
        Tag.inplace_view: _changes_geometry(overload, definition),
        Tag.view_copy: _is_view_copy(name),
    }
    return tuple(sorted((tag for tag, holds in facts.items() if holds), key=lambda tag: tag.name))
