"""How indices run along the lanes of a vector."""

from __future__ import annotations

import pytest

from flambeau.compiler.codegen.c.printer.c_index import index_difference, lane_step
from flambeau.ir import kernel as k
from flambeau.ir.node import node
from flambeau.ir.size import Size, SizeExpr, evaluate, floordiv, mod, symbol

R, P = symbol("r"), symbol("p0")
EXPRESSIONS: list[Size] = [
    R,
    3 * R + P,
    R * P,
    mod(R, 64) + 128 * floordiv(R, 64),
    mod(R + 32, 64),
    floordiv(R, 16),
    mod(floordiv(R, 64), 4) * 100 + mod(R, 64),
]
UNEVEN: list[Size] = [floordiv(R, 5), mod(R, 24), mod(R + 3, 64), R * R]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_step_is_what_the_lanes_differ_by(expression: SizeExpr) -> None:
    step = lane_step(expression, 16)
    assert step is not None
    for first in range(0, 1024, 16):
        values = [evaluate(expression, {"r": first + lane, "p0": 7}) for lane in range(16)]
        by = evaluate(step, {"p0": 7})
        assert values == [values[0] + lane * by for lane in range(16)]


@pytest.mark.parametrize("expression", UNEVEN, ids=str)
def test_uneven_lanes_have_no_step(expression: SizeExpr) -> None:
    assert lane_step(expression, 16) is None


def test_difference_of_compared_indices() -> None:
    compared = node("le", (k.index(R), k.index(P)), (), "bool")
    assert index_difference(compared, 16) == (R - P, 1)
    assert index_difference(node("lt", (k.index(R * P), k.index(P)), (), "bool"), 16) is None
    assert index_difference(node("add", (k.index(R), k.index(P)), (), "i64"), 16) is None
