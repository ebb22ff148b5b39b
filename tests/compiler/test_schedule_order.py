"""The order of launches keeps little memory alive."""

from __future__ import annotations

from flambeau import prims
from flambeau.compiler.pipeline import schedule
from flambeau.compiler.schedule import Schedule
from flambeau.ir.node import Graph, GraphOutput, Node, attributes, node

SIDE = 64


def peak(found: Schedule) -> int:
    """The most bytes of temporaries alive at once."""
    return max(
        sum(int(b.where) for b in found.buffers if b.kind == "temporary" and b.first <= i <= b.last)
        for i in range(len(found.launches))
    )


def test_gradients_of_weights_are_taken_when_their_operands_are_at_hand() -> None:
    def operand(slot: int) -> Node:
        packed = attributes(slot=slot, strides=(SIDE, 1))
        return node("input", (), packed, "f32", (SIDE, SIDE))

    count = 8
    weights = [operand(i) for i in range(count + 1)]
    kept = [weights[-1]]
    for weight in weights[:-1]:
        kept.append(prims.matmul(kept[-1], weight))
    gradient = kept.pop()
    outputs: list[Node] = []
    for weight, value in zip(reversed(weights[:-1]), reversed(kept)):
        turned = prims.permute(value, (1, 0))
        outputs.append(
            prims.mul(prims.matmul(turned, gradient), prims.full(0.5, weight.shape, "f32"))
        )
        gradient = prims.matmul(gradient, prims.permute(weight, (1, 0)))
    targets = [
        GraphOutput(value, (SIDE, 1)) for value in [gradient, *reversed(outputs)]
    ]  # the last gradient first: its chain must not run ahead of the weights' products
    graph = Graph((), tuple(weights), (), tuple(targets), len(targets))
    square = SIDE * SIDE * 4
    # The activations, one gradient, the next one and one product.
    assert peak(schedule(graph)) <= (count + 2) * square
