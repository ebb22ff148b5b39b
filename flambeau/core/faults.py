"""What can be wrong with the data of a call: which of an operator's checks need no run to answer.

Eager mode raises at the call. A recorded call runs later, so the native recorder looks at its
indices when it is called: an index tensor whose values are there is compared with the size it
indexes. What cannot be looked at this way runs at once wherever somebody could tell the difference.
"""

from __future__ import annotations

from flambeau.ir.node import Graph, Node, topological
from flambeau.ir.size_program import Program

# Primitives beside `check_index` that may raise: no convergence, or a user's Python.
_RAISING = frozenset({"custom_op", "eig", "eigh", "svd"})
FAILING = _RAISING | {"check_index"}
_SAME_VALUES = frozenset({"cast", "reshape", "broadcast", "permute", "slice", "with_derivative"})
_NOTHING, _CONSTANT, _SCALAR = range(3)
_INTEGERS = frozenset({"u8", "i8", "i16", "i32", "i64"})

Check = tuple[int, int, bool, int, int]


def faults_of(graph: Graph, program: Program) -> tuple[list[Check], bool] | None:
    """The checks of a program that its arguments answer, and whether there are others.

    Args:
        graph: the traced operator.
        program: its sizes; those that are compared with are added.

    Returns:
        ((tensor slot, register of the size, no negative ones, 1 or 2 where one value is exempt,
        that value or the slot of the number that is it) of each check, whether more may go wrong);
        None: nothing can.
    """
    checks: dict[Check, None] = {}
    more = False
    for x in topological(o.node for o in graph.outputs):
        if x.op == "check_index":
            check = _check(x, program)
            more |= check is None
            if check is not None:
                checks[check] = None
        more |= x.op in _RAISING
    return (list(checks), more) if checks or more else None


def may_fail(graph: Graph) -> bool:
    """Whether there are data for which the program raises."""
    fails = graph.notes.get("may_fail")
    if fails is None:
        fails = any(x.op in FAILING for x in topological(o.node for o in graph.outputs))
        graph.notes["may_fail"] = fails
    return bool(fails)


def _check(checked: Node, program: Program) -> Check | None:
    index, exempt = _source(checked.inputs[0]), (_NOTHING, 0)
    if index.op == "where":
        found = _exempt(*index.inputs)
        if found is None:
            return None
        index, *rest = found
        exempt = (rest[0], rest[1])
    if index.op != "input" or index.dtype not in _INTEGERS:
        return None
    size = program.register(checked.attribute("size"))
    return (index.attribute("slot"), size, bool(checked.attribute("strict")), *exempt)


def _source(x: Node) -> Node:
    """The node whose values `x` has, or some of them, as integers."""
    while x.op in _SAME_VALUES and (x.op != "cast" or x.dtype == "i64"):
        if x.op == "cast" and x.inputs[0].dtype not in _INTEGERS:
            break
        x = x.inputs[0]
    return x


def _exempt(condition: Node, kept: Node, other: Node) -> tuple[Node, int, int] | None:
    """`where(x != value, x, 0)` as (x, how the value is told, value)."""
    index, zero = _source(kept), _source(other)
    if condition.op != "ne" or zero.op != "full" or zero.attribute("value") != 0:
        return None
    left, right = (_source(x) for x in condition.inputs)
    if left is not index:
        return None
    if right.op == "full":
        return index, _CONSTANT, int(right.attribute("value"))
    return (index, _SCALAR, right.attribute("slot")) if right.op == "scalar" else None
