"""Launches of selections: some places of a sorted row, without sorting the rest.

    select_<t>      x, values, indices      rows, length, first, count, descending

The table in `native/routines.cpp` tells more. The handler joins those of `schedule/routines.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau.compiler.schedule.build import Place
from flambeau.compiler.schedule.routines import HANDLERS, RoutineCall
from flambeau.compiler.schedule.views import count
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import mul

Reads = Callable[[Node], Place]


def _select(values: list[Node], reads: Reads) -> RoutineCall:
    value = values[0]
    operand = value.inputs[0]
    call = RoutineCall(f"select_{operand.dtype}")
    place = reads(operand)
    [(_, offset)] = value.attribute("views")
    call.add(place.memory, mul(offset + place.offset, ITEM_SIZE[operand.dtype]))
    for result, dtype in (("values", operand.dtype), ("places", "i64")):
        made = next((v for v in values if v.attribute("result") == result), None)
        if made is None:  # the routine writes it all the same
            unused = node("s.unused", (), (("of", value), ("result", result)), dtype, value.shape)
            call.add(("temporary", unused))
            continue
        target = reads(made)
        call.add(target.memory, mul(target.offset, ITEM_SIZE[dtype]))
    [shape] = value.attribute("shapes")
    chosen = [value.attribute(name) for name in ("first", "count", "descending")]
    call.sizes = [count(shape[:-1]), shape[-1], *chosen[:2], int(chosen[2])]
    call.work = mul(count(shape), 2)
    return call


HANDLERS["select"] = _select
