"""`with_derivative`: a value whose derivative is given, instead of derived from its parts.

For composites whose derived gradient would waste memory or lose digits (softmax, norms). A rule is
a named function `rule(grad, out, *operands) -> gradient per operand`, where `out` is the annotated
node: its first input is the value, its attributes are the rule's constants. Simplified away before
scheduling.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from flambeau.ir.geometry import Index
from flambeau.ir.node import Node
from flambeau.prims.common import Gradients, Type
from flambeau.prims.record import Batched, Derivative, Elements, Primitive, bind, expand, register
from flambeau.prims.simplification import first_operand

RULES: dict[str, Derivative] = {}


def register_rule(name: str, rule: Derivative) -> Derivative:
    """Name a derivative rule; a name may be taken once."""
    if name in RULES:
        raise ValueError(f"[with_derivative] rule {name} is defined twice\nhint: rename it")
    RULES[name] = rule
    return rule


def _infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    if constants["rule"] not in RULES:
        raise ValueError(f"[with_derivative] no rule {constants['rule']}\nhint: register_rule")
    return operands[0].dtype, operands[0].shape


def _derivative(grad: Node, out: Node, value: Node, *operands: Node) -> Gradients:
    return None, *RULES[out.attribute("rule")](grad, out, *operands)


def _reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
    return arrays[0]


def _samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    yield [[1.0, 2.0]], {"rule": "stop"}


def _lower(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    return elements.at(value.inputs[0], index, mask)


def _batch(b: Batched) -> Node:
    """Applies a value's rule to one sample, and batches its result."""
    value, *operands = b.operands
    if not b.flags[0]:
        value = expand(value, b.extent)
    return bind(
        "with_derivative",
        value,
        *operands,
        rule="batched",
        single=(b.node.op, b.node.attributes),
        flags=tuple(b.flags[1:]),
    )


register_rule("stop", lambda grad, out: ())
register(
    Primitive(
        "with_derivative",
        "annotation",
        _infer,
        _derivative,
        cost=0,
        reference=_reference,
        samples=_samples,
        linear="first",
        lower=_lower,
        simplify=first_operand,
        unview=lambda value, strides: strides,
        same_elements=True,
        batch=_batch,
    )
)


def with_derivative(value: Node, *operands: Node, rule: str, **constants: Hashable) -> Node:
    """`value`, differentiated by `rule` with respect to `operands` only."""
    return bind("with_derivative", value, *operands, rule=rule, **constants)


def stop_gradient(value: Node) -> Node:
    """`value` as a constant of differentiation."""
    return with_derivative(value, rule="stop")


def stops_gradient(value: Node) -> bool:
    """Whether a node is what `stop_gradient` returns."""
    return value.op == "with_derivative" and len(value.inputs) == 1
