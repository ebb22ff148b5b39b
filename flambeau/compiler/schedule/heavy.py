"""Which values of a graph are points of decision (*heavy*); all others are recomputed freely.

Heavy are: the graph's results, reductions, scans, everything native routines produce or consume,
wide concatenations, and values that are dear and used more than once (or repeated by a broadcast).
A heavy value gets memory only if another kernel needs it; inside one kernel it is inlined.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flambeau.compiler.schedule.prepare import Prepared, is_opaque
from flambeau.compiler.schedule.views import count
from flambeau.ir.node import Node, topological
from flambeau.prims.record import PRIMITIVES

LOAD_COST = 2  # of one element read, in the unit of `Primitive.cost` (an addition is 1)
DEAR = 8  # a value of this cost is kept rather than computed twice
DEPTH_LIMIT = 120  # longest chain of values inlined into one kernel
SIZE_LIMIT = 400  # most values inlined below one value

# Operations that read one operand element for many results.
REPEATING = frozenset({"broadcast", "windows"})
# Internal nodes (see `prepare`) and the inputs of graphs are no primitives.
_KINDS = {"input": "input", "scalar": "create", "s.blocks": "reduce", "s.cat": "cat"}
_ROOTS = frozenset({"s.copy", "s.part", "s.base"})


@dataclass
class Analysis:
    """What the scheduler knows about each node.

    Attributes:
        prepared: the graph, with destinations.
        nodes: all nodes, operands first.
        users: distinct users of each node.
        roles: heavy nodes in order: "input", "reduce", "scan", "opaque", "cat" or "root".
        cost: cost of computing one element from heavy values.
    """

    prepared: Prepared
    nodes: list[Node]
    users: dict[Node, list[Node]]
    roles: dict[Node, str] = field(default_factory=dict)
    cost: dict[Node, int] = field(default_factory=dict)


def kind_of(value: Node) -> str:
    """The primitive kind of a node, also of internal ones."""
    record = PRIMITIVES.get(value.op)
    return record.kind if record is not None else _KINDS.get(value.op, "pointwise")


def analyse(prepared: Prepared) -> Analysis:
    """Finds the heavy nodes of a prepared graph."""
    nodes = list(topological(prepared.destinations))
    users: dict[Node, list[Node]] = {}
    for value in nodes:
        for operand in dict.fromkeys(value.inputs):
            users.setdefault(operand, []).append(value)
    found = Analysis(prepared, nodes, users)
    apart = [v for v in nodes if is_opaque(v) or v.op == "s.copy" and v.attribute("alone")]
    operands = {i for value in apart for i in value.inputs}
    _assign_roles(found, operands | prepared.destinations.keys())
    return found


def _assign_roles(analysis: Analysis, needed: set[Node]) -> None:
    """One pass, operands first: roles, and costs of what is not heavy."""
    roles, cost = analysis.roles, analysis.cost
    depth: dict[Node, int] = {}
    size: dict[Node, int] = {}
    for value in analysis.nodes:
        if value.op == "input":
            roles[value] = "input"
            cost[value], depth[value], size[value] = LOAD_COST, 0, 1
            continue
        role = _role(value)
        own = _own_cost(value)
        below = [_reach(i, roles, cost, depth, size) for i in value.inputs]
        cost[value] = own + sum(b[0] for b in below)
        depth[value] = 1 + max((b[1] for b in below), default=0)
        size[value] = 1 + sum(b[2] for b in below)
        if role is None and value in needed and not _is_number(value):
            role = "root"
        if role is None and _is_dear(value, analysis):
            role = "root"
        if role is None and (depth[value] > DEPTH_LIMIT or size[value] > SIZE_LIMIT):
            exact = _exact_size(value, roles)
            size[value] = exact
            if depth[value] > DEPTH_LIMIT or exact > SIZE_LIMIT:
                role = "root"
        if role is not None:
            roles[value] = role


def _reach(
    operand: Node,
    roles: dict[Node, str],
    cost: dict[Node, int],
    depth: dict[Node, int],
    size: dict[Node, int],
) -> tuple[int, int, int]:
    if operand in roles:
        return LOAD_COST, 0, 1
    return cost[operand], depth[operand], size[operand]


def _exact_size(value: Node, roles: dict[Node, str]) -> int:
    seen = {value}
    stack = [value]
    while stack and len(seen) <= SIZE_LIMIT:
        for operand in stack.pop().inputs:
            if operand not in seen:
                seen.add(operand)
                if operand not in roles:
                    stack.append(operand)
    return len(seen)


def _role(value: Node) -> str | None:
    kind = kind_of(value)
    if kind == "reduce" or kind == "scan":
        return kind
    if is_opaque(value):
        return "opaque"
    if kind == "cat":
        return "cat"
    return "root" if value.op in _ROOTS else None


def _is_number(value: Node) -> bool:
    """Whether a routine takes this operand as a scalar argument."""
    return value.op in ("scalar", "full") and not value.shape


def _own_cost(value: Node) -> int:
    record = PRIMITIVES.get(value.op)
    if record is None or record.kind in ("create", "shape"):
        return 0
    return LOAD_COST if record.kind == "index" else record.cost


def _is_dear(value: Node, analysis: Analysis) -> bool:
    """Whether to keep a value that would otherwise be computed several times."""
    if analysis.cost[value] < DEAR or kind_of(value) not in ("pointwise", "index"):
        return False
    users = analysis.users.get(value, ())
    if count(value.shape) == 1:
        return False
    if len(users) > 1:
        return True
    return any(user.op in REPEATING and _repeats(value, user, analysis) for user in users)


def _repeats(value: Node, user: Node, analysis: Analysis) -> bool:
    if user.op == "broadcast":
        return count(value.shape) != count(user.shape)
    return True
