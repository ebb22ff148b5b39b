"""Forward mode: tangents of a program's values, from the primitives' own derivative rules.

A rule says how gradients go back through a node, linearly. Its transpose with respect to the
gradient carries tangents forward: derived per node, from the same rule, so that there is one place
where a derivative is defined (and none of the transposed program is left over: what the rule
computed for the gradient that nobody gives is never read).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from flambeau import prims
from flambeau.derivation.derive import differentiable_operands, differentiate
from flambeau.ir.node import Node, topological
from flambeau.prims.common import DIFFERENTIABLE
from flambeau.prims.record import PRIMITIVES, bind

_slots = itertools.count(3 << 30)  # stand-ins for gradients; gone when the tangent is there


def push_forward(
    outputs: Sequence[Node | None], tangents: Mapping[Node, Node]
) -> list[Node | None]:
    """The tangents of outputs, given those of some inputs.

    Args:
        outputs: of a program; None: absent.
        tangents: per input with a tangent, the tangent (of its dtype and shape).

    Returns:
        Per output its tangent; None where it is zero.
    """
    tangent_of: dict[Node, Node] = dict(tangents)
    for current in topological(x for x in outputs if x is not None):
        if current in tangent_of or current.dtype not in DIFFERENTIABLE:
            continue
        allowed = differentiable_operands(current)
        moving = [x for x in allowed if x in tangent_of]
        if moving:
            tangent = _tangent(current, allowed, tangent_of)
            if tangent is not None:
                tangent_of[current] = tangent
    return [None if x is None else tangent_of.get(x) for x in outputs]


def _tangent(
    current: Node, allowed: Sequence[Node], tangent_of: Mapping[Node, Node]
) -> Node | None:
    record, constants = PRIMITIVES[current.op], dict(current.attributes)
    if record.linear == "each" and len(current.inputs) == 1:  # f(x + t) = f(x) + f(t)
        return bind(current.op, tangent_of[current.inputs[0]], **constants)
    if record.linear == "write" and constants.get("mode", "add") in ("set", "add"):
        # Overwritten elements contribute to no tangent, but each gets a gradient as if its write
        # were the last: the transposed derivative would add them up.
        base, *places, source = current.inputs
        moved = [tangent_of[x] if x in tangent_of else prims.zeros_like(x) for x in (base, source)]
        return bind(current.op, moved[0], *places, moved[1], **constants)
    derivative = record.derivative
    assert not isinstance(derivative, str)
    seed = prims.input_node(next(_slots), current.dtype, current.shape, ())
    parts = derivative(seed, current, *current.inputs)
    pairs = [
        (part, tangent_of[x])
        for x, part in zip(current.inputs, parts, strict=True)
        if part is not None and x in allowed and x in tangent_of
    ]
    if not pairs:
        return None
    grads, tangents = [part for part, _ in pairs], [t for _, t in pairs]
    [result] = differentiate(grads, tangents, [seed])
    return None if result is None else prims.cast(result, current.dtype)
