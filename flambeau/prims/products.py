"""The product of complex numbers along the last axis, by a native routine.

Kernels fold real numbers only: a complex product is no pair of real ones. The derivative is the
product of the other numbers, by a tree of multiplications, and so right where numbers are zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.ir.environment import current_environment
from flambeau.ir.node import Node
from flambeau.ir.size import SizeExpr
from flambeau.prims import pointwise, shape
from flambeau.prims.common import COMPLEX, Gradients, Type, check_count, check_dtype
from flambeau.prims.create import full_like
from flambeau.prims.record import Primitive, bind, register


def _infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("complex_product", operands, 1)
    [x] = operands
    check_dtype("complex_product", x, COMPLEX)
    if not x.ndim:
        raise ValueError("[complex_product] the operand has no dimension\nhint: reshape it to [1]")
    return x.dtype, x.shape[:-1]


def _others(x: Node, count: int) -> Node:
    """For each number along the last axis the product of all others."""
    axis = x.ndim - 1
    if count < 2:
        return full_like(1, x)
    half, odd = count // 2, count % 2
    low, high = shape.slice(x, axis, 0, half), shape.slice(x, axis, half, half)
    last = [shape.slice(x, axis, 2 * half, 1)] if odd else []
    outer = _others(shape.cat([low * high, *last], axis), half + odd)
    of_pairs = shape.slice(outer, axis, 0, half)
    parts = [of_pairs * high, of_pairs * low]
    if odd:
        parts.append(shape.slice(outer, axis, half, 1))
    return shape.cat(parts, axis)


def _rule(g: Node, y: Node, x: Node) -> Gradients:
    count = x.shape[-1]
    if isinstance(count, SizeExpr):
        environment = current_environment()
        if environment is None:
            raise NotImplementedError(
                f"[complex_product] the derivative depends on the value of {count}\n"
                "hint: trace with concrete sizes"
            )
        count = environment.specialise(count)
    spread = shape.broadcast(g, x.shape, range(x.ndim - 1))
    return (spread * pointwise.conj(_others(x, int(count))),)


def _reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    return numpy.prod(arrays[0], axis=-1)


def _samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    for count in (1, 2, 5):
        yield [[[complex(i - 1.5, 0.5 * j - i) for i in range(count)] for j in range(2)]], {}


register(
    Primitive(
        "complex_product", "routine", _infer, _rule, spelling="complex_product", cost=32,
        reference=_reference, samples=_samples,
    )
)  # fmt: skip


def complex_product(x: Node) -> Node:
    """The product of complex numbers along the last axis, which is dropped; 1 of nothing."""
    return bind("complex_product", x)
