"""Scans: running reductions along one axis, in sequential order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ir.node import Node
from flambeau.prims import pointwise, shape
from flambeau.prims.common import (
    FLOATS,
    INEXACT,
    INTEGERS,
    NUMBERS,
    Gradients,
    Type,
    check_axis,
    check_count,
    check_dtype,
    check_same,
)
from flambeau.prims.create import full, iota, zeros_like
from flambeau.prims.record import (
    AlongAxis,
    Derivative,
    Linearity,
    Primitive,
    along_axis,
    bind,
    register,
)
from flambeau.prims.scatter import scatter

Samples = Iterator[tuple[list[Any], dict[str, Any]]]


def _infer(name: str, count: int, allowed: frozenset[str]) -> Any:
    def infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
        check_count(name, operands, count)
        check_dtype(name, operands[0], allowed)
        check_same(name, operands)
        check_axis(name, constants["axis"], operands[0].ndim)
        return operands[0].dtype, operands[0].shape

    return infer


def _running(step: Callable[..., Any]) -> Callable[[list[Any], dict[str, Any]], Any]:
    """Return a reference that runs `step(previous or None, *elements)` along the axis."""

    def reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
        import numpy

        moved = [numpy.moveaxis(x, constants["axis"], 0) for x in arrays]
        out = numpy.empty_like(moved[0])
        previous = None
        with numpy.errstate(all="ignore"):
            for k in range(out.shape[0]):
                out[k] = previous = step(previous, *(x[k] for x in moved))
        return numpy.moveaxis(out, 0, constants["axis"])

    return reference


def _numpy_step(name: str) -> Callable[..., Any]:
    def step(previous: Any, x: Any) -> Any:
        import numpy

        return x if previous is None else getattr(numpy, name)(previous, x)

    return step


def _samples() -> Samples:
    matrix = [[3.0, 1.5, 2.0, 4.0], [4.0, -5.0, 0.5, 7.0]]
    yield [matrix], {"axis": 1}
    yield [matrix], {"axis": 0}


def _product_samples() -> Samples:
    yield from _samples()
    yield [[[3.0, 0.0, 2.0, 0.0, 5.0]]], {"axis": 1}


def _linear_samples() -> Samples:
    a = [[0.5, -1.5, 2.0], [0.0, 0.3, 1.1]]
    yield [a, [[1.0, 2.0, -1.0], [0.5, 0.7, 3.0]]], {"axis": 1}
    yield [a, [[1.0, 2.0, -1.0], [0.5, 0.7, 3.0]]], {"axis": 0}


def _scan(
    name: str,
    documentation: str,
    allowed: frozenset[str],
    derivative: Derivative,
    step: Callable[..., Any],
    samples: Callable[[], Samples] = _samples,
    linear: Linearity | None = None,
) -> AlongAxis:
    register(
        Primitive(
            name,
            "scan",
            _infer(name, 1, allowed),
            derivative,
            cost=2,
            reference=_running(step),
            samples=samples,
            linear=linear,
        )
    )
    return along_axis(name, documentation)


def _cumsum_rule(g: Node, y: Node, x: Node) -> Gradients:
    axis = y.attribute("axis")
    return (shape.flip(cumsum(shape.flip(g, (axis,)), axis), (axis,)),)


def _cumprod_rule(g: Node, y: Node, x: Node) -> Gradients:
    # y[k] = y[k-1] * x[k]: with the sum s[i] = g[i] + x[i+1] * s[i+1] of all later gradients the
    # derivative is y[i-1] * s[i], which divides by nothing and so is right at zeros.
    axis = y.attribute("axis")
    one = full(1, (), x.dtype)
    return (_adjoint(g, x, axis) * pointwise.conj(shift(y, axis, 1, one)),)


def _adjoint(g: Node, factors: Node, axis: int) -> Node:
    """s[i] = g[i] + conj(factors[i+1]) * s[i+1]."""
    following = pointwise.conj(shift(factors, axis, -1))
    backwards = linear_scan(shape.flip(following, (axis,)), shape.flip(g, (axis,)), axis)
    return shape.flip(backwards, (axis,))


def _linear_rule(g: Node, y: Node, a: Node, b: Node) -> Gradients:
    axis = y.attribute("axis")
    total = _adjoint(g, a, axis)
    return total * pointwise.conj(shift(y, axis, 1)), total


def _extreme_rule(g: Node, y: Node, x: Node) -> Gradients:
    axis = y.attribute("axis")
    return (scatter(zeros_like(x), extreme_index(y, x, axis), g, axis, "add"),)


def extreme_index(running: Node, x: Node, axis: int) -> Node:
    """Index of the running extreme `cummax(x)` or `cummin(x)`: the last of equals, as PyTorch."""
    taken = pointwise.eq(x, running)
    if x.dtype in FLOATS:
        taken = taken | pointwise.isnan(x)
    places = iota(x.shape, axis)
    return cummax(pointwise.where(taken, places, zeros_like(places)), axis)


def shift(x: Node, axis: int, places: int, fill: Node | float = 0) -> Node:
    """Move elements by `places` (1: later, -1: earlier) along the axis."""
    low = [0] * x.ndim
    low[axis] = places
    return shape.pad(x, low, [-n for n in low], fill)


def _linear_step(previous: Any, a: Any, b: Any) -> Any:
    return b if previous is None else a * previous + b


REALS = INTEGERS | FLOATS
cumsum = _scan("cumsum", "Running sum.", NUMBERS, _cumsum_rule, _numpy_step("add"), linear="each")
cumprod = _scan(
    "cumprod",
    "Running product.",
    NUMBERS,
    _cumprod_rule,
    _numpy_step("multiply"),
    _product_samples,
)
cummax = _scan("cummax", "Running maximum; NaN wins.", REALS, _extreme_rule, _numpy_step("maximum"))
cummin = _scan("cummin", "Running minimum; NaN wins.", REALS, _extreme_rule, _numpy_step("minimum"))

register(
    Primitive(
        "linear_scan",
        "scan",
        _infer("linear_scan", 2, INEXACT),
        _linear_rule,
        cost=3,
        reference=_running(_linear_step),
        samples=_linear_samples,
        linear="last",
    )
)


def linear_scan(a: Node, b: Node, axis: int) -> Node:
    """Linear recurrence h[k] = a[k] * h[k-1] + b[k] along the axis, with h[0] = b[0].

    Its derivative is again a linear recurrence, which makes products and recurrent sums
    differentiable to any order.
    """
    return bind("linear_scan", a, b, axis=axis)


def exclusive_cumprod(x: Node, axis: int) -> Node:
    """Product of all elements before each one; 1 for the first."""
    return cumprod(shift(x, axis, 1, full(1, (), x.dtype)), axis)
