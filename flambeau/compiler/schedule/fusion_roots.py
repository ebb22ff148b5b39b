"""Finds the fusion roots of a graph; all other values are recomputed where they are read.

Fusion roots are the graph's results, reductions, scans, everything native routines produce or
consume, wide concatenations, and expensive values that are used more than once (or repeated by a
broadcast).
A fusion root gets memory only if another kernel needs it; inside one kernel it is inlined.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flambeau.compiler.schedule.domain import Domain
from flambeau.compiler.schedule.lower import Lowering
from flambeau.compiler.schedule.prepare import Prepared, is_opaque, number_of
from flambeau.ir.geometry import Index, count, reshape_groups
from flambeau.ir.node import Node, topological
from flambeau.ir.schedule_grammar import BASE, BLOCKS, CAT, COPY, PART, numbered
from flambeau.ir.size import Size
from flambeau.prims.record import record_of
from flambeau.prims.shape import is_reshape

LOAD_COST = 2  # of one element read, in the unit of `Primitive.cost` (an addition is 1)
EXPENSIVE = 8  # a value of this cost is held in scratch rather than computed twice
STORED = 24  # a value of this cost is written to memory and read again rather than computed twice
DEPTH_LIMIT = 120  # longest chain of values inlined into one kernel
SIZE_LIMIT = 400  # most values inlined below one value
CROSSING_LIMIT = 32  # values between a broadcast and a reduction of it

# Internal nodes (see `prepare`) and the inputs of graphs are no primitives.
_KINDS = {"input": "input", "scalar": "create", BLOCKS.name: "reduce", CAT.name: "cat"}
_COPIES = (COPY, PART, BASE)


@dataclass
class Analysis:
    """The scheduler's facts about each node.

    Attributes:
        prepared: the graph, with destinations.
        nodes: all nodes, operands first.
        users: distinct users of each node.
        roles: fusion roots in order: "input", "reduce", "scan", "opaque", "cat" or "root".
        cost: cost of computing one element from fusion roots.
        epilogues: values that an epilogue of a template may compute.
    """

    prepared: Prepared
    nodes: list[Node]
    users: dict[Node, list[Node]]
    epilogues: frozenset[Node] = frozenset()
    roles: dict[Node, str] = field(default_factory=dict)
    cost: dict[Node, int] = field(default_factory=dict)

    def text(self) -> str:
        """Every value with its role, or the cost of computing it where it is needed."""
        lines, numbers = numbered(self.nodes)
        for value in self.nodes:
            note = self.roles.get(value) or f"inlined, cost {self.cost[value]}"
            lines[numbers[value]] += f"  # {note}"
        return "\n".join(lines) + "\n"


def kind_of(value: Node) -> str:
    """The primitive kind of a node, also of internal ones."""
    kind = record_of(value).kind
    return _KINDS.get(value.op, "pointwise") if kind == "none" else kind


def is_copy(value: Node) -> bool:
    """Whether a value is another in memory of its own."""
    return any(form.matches(value) for form in _COPIES)


def is_reduction(value: Node) -> bool:
    """Whether a value is the result of a reduction or scan, and so of a loop of its own."""
    return kind_of(value) in ("reduce", "scan")


def takes_epilogue(value: Node) -> bool:
    """Whether a template computes the value, with what follows it by pieces of a row: what is
    constant along a row is then computed again and again."""
    routine = record_of(value).routine
    return routine is not None and routine.epilogue is not None


def analyse(prepared: Prepared) -> Analysis:
    """Finds the fusion roots of a prepared graph."""
    nodes = _with_draws_in_order(topological(prepared.destinations))
    users: dict[Node, list[Node]] = {}
    for value in nodes:
        for operand in dict.fromkeys(value.inputs):
            users.setdefault(operand, []).append(value)
    analysis = Analysis(prepared, nodes, users, _behind_templates(nodes))
    apart = [v for v in nodes if is_opaque(v) or COPY.matches(v) and v.attribute("alone")]
    operands = {i for value in apart for i in value.inputs if not _is_number(value, i)}
    _assign_roles(analysis, operands | prepared.destinations.keys())
    return analysis


def _with_draws_in_order(nodes: list[Node]) -> list[Node]:
    """The nodes, operands first, so that draws of random numbers stand in program order."""
    draws = [value for value in nodes if record_of(value).kind == "random"]
    if len(draws) < 2:
        return nodes
    ordered = sorted(draws, key=lambda draw: int(draw.attribute("sequence")))
    return nodes if draws == ordered else topological([*ordered, *nodes])


def _behind_templates(nodes: list[Node]) -> frozenset[Node]:
    """Templates' values and what follows from them element by element."""
    behind = {value for value in nodes if takes_epilogue(value)}
    for value in nodes if behind else ():
        if not behind.isdisjoint(value.inputs):
            kind = kind_of(value)
            spreads = record_of(value).repeats == "dimensions"
            if kind == "pointwise" or kind == "shape" and not spreads:
                behind.add(value)
    return frozenset(behind)


def _assign_roles(analysis: Analysis, needed: set[Node]) -> None:
    """One pass, operands first: roles, and costs of the other values."""
    roles, cost = analysis.roles, analysis.cost
    extents, choices = _Extents(roles), set[Node]()
    for value in analysis.nodes:
        if value.is_input:
            roles[value] = "input"
            cost[value] = LOAD_COST
            continue
        extents.add(value)
        cost[value] = _cost(value, roles, cost)
        role = _role(value)
        if role == "reduce":
            operand = value.inputs[0]
            if operand not in roles and extents.follows_reduction(operand):
                roles[operand] = "root"  # one value per row: cheaper stored than its parts
            if operand in choices:
                roles.update(dict.fromkeys(_divided(operand, choices, roles), "root"))
        if role is None and value in needed:
            role = "root"
        if role is None and (_is_expensive(value, analysis) or extents.too_large(value)):
            role = "root"
        if role is not None:
            roles[value] = role
        elif _chooses(value) or not choices.isdisjoint(value.inputs):
            choices.add(value)
    analysis.roles = {value: roles[value] for value in analysis.nodes if value in roles}


def _chooses(value: Node) -> bool:
    """Whether each element is one of several operands', by its position."""
    record = record_of(value)
    return record.kind == "shape" and record.lower is not None


def _divided(value: Node, choices: set[Node], roles: dict[Node, str]) -> list[Node]:
    """The values below which a choice by position is inlined, and whose dimensions are merged into
    one: there, each position would be found by a division."""
    divided, stack, seen = [], [value], {value}
    while stack:
        current = stack.pop()
        for operand in current.inputs:
            if operand in seen or operand in roles or operand not in choices:
                continue
            seen.add(operand)
            if kind_of(current) == "shape" and _merges(operand, current):
                divided.append(operand)
            else:
                stack.append(operand)
    return divided


def _merges(value: Node, reshaped: Node) -> bool:
    """Whether a reshape makes one dimension of several."""
    if not is_reshape(reshaped):
        return False
    return any(len(first) > 1 for first, _ in reshape_groups(value.shape, reshaped.shape))


def _cost(value: Node, roles: dict[Node, str], cost: dict[Node, int]) -> int:
    """Cost of one element from fusion roots. A value that a broadcast repeats is computed once per
    row or is a fusion root that stays in the cache."""
    below = sum([LOAD_COST if i in roles else cost[i] for i in value.inputs])
    if record_of(value).repeats == "dimensions":
        return min(below, 1)
    return below + _own_cost(value)


class _Extents:
    """How much would be inlined below each value."""

    def __init__(self, roles: dict[Node, str]) -> None:
        self.roles = roles
        self.depth: dict[Node, int] = {}
        self.size: dict[Node, int] = {}
        self.rows: dict[Node, Size] = {}  # element count of a reduction inlined below

    def add(self, value: Node) -> None:
        """Notes a value whose operands are noted."""
        depth, size = 0, 1
        for operand in value.inputs:
            role = self.roles.get(operand)
            if role is None:
                depth = max(depth, self.depth[operand])
                size += self.size[operand]
                if operand in self.rows:
                    self.rows[value] = self.rows[operand]
            elif role == "reduce":
                self.rows[value] = count(operand.shape)
        self.depth[value], self.size[value] = depth + 1, size

    def follows_reduction(self, value: Node) -> bool:
        """Whether a value has one element per result of a reduction it is computed from."""
        return value in self.rows and self.rows[value] == count(value.shape)

    def too_large(self, value: Node) -> bool:
        """Whether so much is below that this value should be one to load."""
        if self.depth[value] > DEPTH_LIMIT:
            return True
        if self.size[value] <= SIZE_LIMIT:
            return False
        self.size[value] = _exact_size(value, self.roles)  # shared parts were counted twice
        return self.size[value] > SIZE_LIMIT


def _exact_size(value: Node, roles: dict[Node, str]) -> int:
    """The number of values that inlining makes, up to the limit. A node read at several positions
    (slices of one value) is one value at each of them."""
    lowering = _BoundedLowering(roles)
    try:
        lowering.expand(value, Domain("map", value.shape).index)
    except _LimitError:
        pass
    return lowering.size + 1


class _LimitError(Exception):
    """More is inlined than the limit allows."""


class _BoundedLowering(Lowering):
    """A lowering that stops at the limit; what it has made is counted, then dropped."""

    @property
    def size(self) -> int:
        """The number of values so far, those at which it stops included."""
        return len(self._memo)

    def at(self, value: Node, index: Index, mask: Node | None = None) -> Node:
        """The value at an index, as long as the limit is not reached."""
        if self.size >= SIZE_LIMIT:
            raise _LimitError
        return super().at(value, index, mask)


def _role(value: Node) -> str | None:
    kind = kind_of(value)
    if kind == "reduce" or kind == "scan":
        return kind
    if is_opaque(value):
        return "opaque"
    if kind == "cat":
        return "cat"
    return "root" if is_copy(value) else None


def _is_number(routine: Node, operand: Node) -> bool:
    """Whether a routine takes this operand as a scalar argument: only draws do."""
    return (
        record_of(routine).kind == "random" and not operand.shape and number_of(operand) is not None
    )


def _own_cost(value: Node) -> int:
    record = record_of(value)
    if record.kind in ("create", "shape", "none"):
        return 0
    return LOAD_COST if record.kind == "index" else record.cost


def _is_expensive(value: Node, analysis: Analysis) -> bool:
    """Whether to store a value that would otherwise be computed several times."""
    if kind_of(value) not in ("pointwise", "index") and not (record_of(value).concatenates):
        return False
    users = analysis.users.get(value, ())
    if value in analysis.epilogues and any(record_of(user).moves for user in users):
        return True  # by the epilogue, which then need not store the template's own result
    if analysis.cost[value] < EXPENSIVE:
        return False
    if count(value.shape) == 1:
        return False
    if analysis.cost[value] * (len(users) - 1) >= STORED:
        return True
    if any(record_of(user).repeats and _repeats(value, user, analysis) for user in users):
        return True
    if analysis.cost[value] < STORED:
        return False
    forms = [value, *(user for user in users if _is_reshaped(user))]
    return any(_is_crossed(form, analysis) for form in forms)


def _is_reshaped(value: Node) -> bool:
    """Whether a value is another one in another shape."""
    same = count(value.shape) == count(value.inputs[0].shape)
    return same and kind_of(value) == "shape" and value.attribute("order", None) is None


def _is_crossed(value: Node, analysis: Analysis) -> bool:
    """Whether a value is repeated along the last dimension, and that one is moved, or a reduction
    along another one reads it: no kernel has a row along which it would be computed once."""
    for spread in analysis.users.get(value, ()):
        if record_of(spread).repeats != "dimensions" or count(value.shape) == count(spread.shape):
            continue
        stack, seen = [spread], {spread}
        while stack and len(seen) < CROSSING_LIMIT:
            for user in analysis.users.get(stack.pop(), ()):
                last = user.inputs[0].ndim - 1
                if kind_of(user) == "reduce" and user.attribute("axis") != last:
                    return True
                order = user.attribute("order", None)
                if order is not None and order[last] != last:
                    return True
                if user not in seen and (kind_of(user) == "pointwise" or _is_reshaped(user)):
                    seen.add(user)
                    stack.append(user)
    return False


def _repeats(value: Node, user: Node, analysis: Analysis) -> bool:
    """Whether a user would compute the value repeatedly. A value that is constant along the last
    dimension is computed once per row, in an epilogue once per piece of one."""
    if record_of(user).repeats != "dimensions":
        return True
    if count(value.shape) == count(user.shape):
        return False
    if not analysis.epilogues.isdisjoint(analysis.users.get(user, ())):
        return True
    dimensions = user.attribute("dimensions")
    last = max(d for d, extent in enumerate(user.shape) if extent != 1)
    return any(d == last and extent != 1 for d, extent in zip(dimensions, user.inputs[0].shape))
