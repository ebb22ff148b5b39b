"""A fusion root as the member of a kernel: where it fits, what it reads, and why it does not fit.

Fitting is decided by lowering: every reference between members of a kernel must be to the member's
own position, nothing else is fusable. A value that does not fit raises `Refused` with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from flambeau.compiler.schedule.domain import Domain, depends
from flambeau.compiler.schedule.lower import Lowering
from flambeau.ir import kernel as k
from flambeau.ir.node import Node
from flambeau.ir.schedule_grammar import BLOCKS, CAT, REF

# Parts of one tensor that siblings of a kernel read.
PARTS_LIMIT = {"map": 8, "reduce": 4, "scan": 4}

References = Mapping[Node, frozenset[Node]]  # of each target, those to it

SPACE = "its elements are not those of the kernel's iteration space"
OPERATION = "the kernel has no loop of its kind"
AXIS = "it reduces along another axis"
POSITION = "it reads elements that the kernel computes at other points"
UNFINISHED = "it reads a concatenation of which the kernel writes a part"
FEW_COMMON = "they read many parts of one tensor and few in common"


class Refused(Exception):
    """A value has no place in a kernel; the argument is the reason."""


class Member(NamedTuple):
    """A fusion root inside a cluster.

    Attributes:
        level: "full" or "row" (see `domain`).
        value: its expression; for a reduction or scan the operand's.
        refs: what the expression reads.
        size: number of values in it.
    """

    level: str
    value: Node
    refs: tuple[Node, ...] = ()
    size: int = 1


def fit(value: Node, role: str, domain: Domain, lowering: Lowering) -> Member:
    """The value as a member of a cluster over `domain`.

    Raises:
        Refused: it has no place there.
    """
    if role in ("reduce", "scan"):
        return _fit_reduction(value, role, domain, lowering)
    level = domain.level(value.shape)
    if level is None:
        raise Refused(SPACE)
    expression = lowering.expand(value, domain.position(value.shape, level))
    return Member(level, expression, *collect_refs(expression))


def _fit_reduction(value: Node, role: str, domain: Domain, lowering: Lowering) -> Member:
    operand = value.inputs[0]
    if domain.kind != role or domain.blocked != BLOCKS.matches(value):
        raise Refused(OPERATION)
    if domain.level(operand.shape) != "full":
        raise Refused(SPACE)
    position = domain.position(operand.shape, "full")
    axis = value.attribute("axis")
    assert domain.axis is not None
    if operand.shape != domain.shape or axis != domain.axis:
        others = (*position[:axis], *position[axis + 1 :])
        if position[axis] != domain.index[domain.axis] or depends(others, domain.special):
            raise Refused(AXIS)
        if operand.shape[axis] != domain.shape[domain.axis]:
            raise Refused(AXIS)
    expression = lowering.at(operand, position)
    if len(value.inputs) == 2:  # linear_scan
        expression = k.pair(expression, lowering.at(value.inputs[1], position))
    level = "full" if role == "scan" else "row"
    return Member(level, expression, *collect_refs(expression))


def collect_refs(value: Node) -> tuple[tuple[Node, ...], int]:
    """All `s.ref` nodes below a value, and the number of nodes there."""
    refs: list[Node] = []
    seen: set[Node] = {value}
    stack = [value]
    while stack:
        current = stack.pop()
        if REF.matches(current):
            refs.append(current)
        for operand in current.inputs:
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return tuple(refs), len(seen)


def references(members: Iterable[Member], earlier: References | None = None) -> References:
    """The targets that members refer to, with the references to each, added to earlier ones."""
    reads = dict(earlier or {})
    for member in members:
        for reference in member.refs:
            target = reference.attribute("target")
            present = reads.get(target)
            if present is None:
                reads[target] = frozenset((reference,))
            elif reference not in present:
                reads[target] = present | {reference}
    return reads


def check_parts(reads: References, others: References, domain: Domain) -> None:
    """Raises Refused unless values with these references may share a kernel as siblings.

    Values that read many parts of one tensor have no loads in common, and their kernel repeats one
    text for each part: the parts that `split` makes are better served by as many launches of one
    kernel.
    """
    limit = PARTS_LIMIT[domain.kind]
    for target, parts in others.items():
        present = reads.get(target)
        if present is None or len(present) + len(parts) <= limit:
            continue
        nested = present <= parts or parts <= present
        if not nested and len(present | parts) > limit:
            raise Refused(FEW_COMMON)


def check_positions(
    members: Mapping[Node, Member], checked: Collection[Member], domain: Domain
) -> None:
    """Raises Refused unless all references between members are to the member's own position."""
    for member in checked:
        for reference in member.refs:
            target = reference.attribute("target")
            present = members.get(target)
            if present is not None:
                index = reference.attribute("index")
                if index != domain.position(target.shape, present.level):
                    raise Refused(POSITION)
            if CAT.matches(target) and any(part in members for part in target.inputs):
                raise Refused(UNFINISHED)
