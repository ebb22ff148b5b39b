"""Finds the checks of a call's data that its arguments answer without running it.

Eager mode raises at the call. A recorded call runs later, so the native recorder looks at its
indices when it is called: an index tensor whose values are there is compared with the size it
indexes, and results of `topk` and its kind are known to be positions in what was sorted. Calls that
cannot be judged this way run at once.
"""

from __future__ import annotations

from flambeau.ir.node import ITEM_SIZE, Graph, Node, topological
from flambeau.ir.plan import Bound, Check
from flambeau.ir.size_program import Program
from flambeau.prims.record import record_of

_NOTHING, _CONSTANT, _SCALAR = range(3)
_INTEGERS = frozenset({"u8", "i8", "i16", "i32", "i64"})


def faults_of(graph: Graph, program: Program) -> tuple[list[Check], bool, list[Bound]]:
    """The checks of a program that its arguments answer, whether more may go wrong, and what its
    results may index.

    Args:
        graph: the traced operator.
        program: its sizes; those that are compared with are added.
    """
    checks: dict[Check, None] = {}
    others = False
    for x in topological(o.node for o in graph.outputs):
        record = record_of(x)
        if record.kind == "check":
            check = _check(x, program)
            others |= check is None
            if check is not None:
                checks[check] = None
        others |= record.raises
    bounds = [bound for k, o in enumerate(graph.outputs) if (bound := _bound(k, o.node, program))]
    return list(checks), others, bounds


def _bound(number: int, output: Node, program: Program) -> Bound | None:
    """Returns the bound of an output's elements; None if there is none."""
    index = _source(output)
    if index.dtype not in _INTEGERS:
        return None
    if index.is_input:
        return Bound(number, -1, index.attribute("slot"))
    record = record_of(index)
    axis = None if record.positions is None else record.positions(index)
    if axis is not None:
        return Bound(number, program.register(index.inputs[0].shape[axis]), -1)
    interval = None if record.interval is None else record.interval(index)
    return None if interval is None else _between(number, *map(_source, interval))


def _between(number: int, low: Node, high: Node) -> Bound | None:
    """The bound of an output whose elements are drawn from [low, high)."""
    if not high.is_scalar or not (low.is_scalar or _is_zero(low)):
        return None
    first = low.attribute("slot") if low.is_scalar else -1
    return Bound(number, -1, -1, high.attribute("slot"), first)


def _divisor(checked: Node) -> Check | None:
    """The check of a run-time number that must not be 0, where that is what is checked."""
    wrong = checked.inputs[0]
    if (
        not record_of(wrong).converts
        or wrong.inputs[0].op != "eq"
        or checked.attribute("size") != 1
    ):
        return None
    number, zero = wrong.inputs[0].inputs
    bits = 64
    while record_of(number).same_elements and number.dtype in _INTEGERS:
        bits = min(bits, 8 * ITEM_SIZE[number.dtype])
        number = number.inputs[0]
    if not number.is_scalar or number.dtype not in _INTEGERS or not _is_zero(_source(zero)):
        return None
    return Check(-1, bits, False, _SCALAR, number.attribute("slot"))


def _is_zero(x: Node) -> bool:
    return record_of(x).constant and x.attribute("value") == 0


def _check(checked: Node, program: Program) -> Check | None:
    divisor = _divisor(checked)
    if divisor is not None:
        return divisor
    index, exempt = _source(checked.inputs[0]), (_NOTHING, 0)
    if index.op == "where":
        parts = _exempt(*index.inputs)
        if parts is None:
            return None
        index, *limits = parts
        exempt = (limits[0], limits[1])
    if not index.is_input or index.dtype not in _INTEGERS:
        return None
    size = program.register(checked.attribute("size"))
    return Check(index.attribute("slot"), size, bool(checked.attribute("strict")), *exempt)


def _source(x: Node) -> Node:
    """The node whose values `x` has, or some of them, as integers."""
    while (record := record_of(x)).same_elements:
        if record.converts and (x.dtype != "i64" or x.inputs[0].dtype not in _INTEGERS):
            break
        x = x.inputs[0]
    return x


def _exempt(condition: Node, checked: Node, other: Node) -> tuple[Node, int, int] | None:
    """`where(x != value, x, 0)` as (x, how the value is recognised, value)."""
    index, zero = _source(checked), _source(other)
    if condition.op != "ne" or not _is_zero(zero):
        return None
    left, right = (_source(x) for x in condition.inputs)
    if left is not index:
        return None
    if record_of(right).constant:
        return index, _CONSTANT, int(right.attribute("value"))
    return (index, _SCALAR, right.attribute("slot")) if right.is_scalar else None
