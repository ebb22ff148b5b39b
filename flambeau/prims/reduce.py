"""Reductions over one axis, in the canonical order (docs/design.md § 3).

The order depends on the reduced length alone: 32 lanes accumulate chunks of 512 elements, whose
lanes are added within a block of 4096; a fixed tree joins the lanes, block results are reduced the
same way. The references follow it.

The product of complex numbers along the last axis is a native routine: a complex product is no pair
of real folds. Its derivative is the product of the other numbers, by a tree of multiplications, and
so right where numbers are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau.ir.environment import current_environment
from flambeau.ir.node import Node
from flambeau.ir.size import Size, SizeExpr, mul, prod
from flambeau.prims import pointwise, shape
from flambeau.prims.annotation import register_rule, with_derivative
from flambeau.prims.common import (
    BOOL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    Gradients,
    Type,
    check_axis,
    check_count,
    check_dtype,
)
from flambeau.prims.create import full_like
from flambeau.prims.record import (
    NOT_DIFFERENTIABLE,
    AlongAxis,
    Arguments,
    Derivative,
    Linearity,
    Primitive,
    Routine,
    along_axis,
    axis_of,
    bind,
    leading,
    register,
)

LANES, CHUNK, BLOCK = 32, 512, 4096
Samples = Iterator[tuple[list[Any], dict[str, Any]]]


def spread(reduced: Node, like: Node, axis: int) -> Node:
    """Repeat a reduction's result along the axis it dropped."""
    remaining = [d for d in range(like.ndim) if d != axis]
    return shape.broadcast(reduced, like.shape, remaining)


def canonical(x: Any, axis: int, combine: Callable[[Any, Any], Any], identity: Any) -> Any:
    """Reduce a NumPy array along an axis in the canonical order."""
    import numpy

    x = numpy.moveaxis(x, axis, 0)
    chunk = CHUNK
    while True:
        n = x.shape[0]
        blocks = max(1, -(-n // BLOCK))
        fill = numpy.full((blocks * BLOCK - n, *x.shape[1:]), identity, x.dtype)
        rows = BLOCK // LANES if blocks > 1 else -(-n // LANES)
        padded = numpy.concatenate([x, fill])[: blocks * rows * LANES]
        steps = padded.reshape(blocks, rows, LANES, *x.shape[1:])
        lanes = numpy.full((blocks, LANES, *x.shape[1:]), identity, x.dtype)
        used = numpy.arange(blocks * rows * LANES).reshape(blocks, rows, LANES) < n
        for first in range(0, rows, chunk // LANES):
            part = numpy.full_like(lanes, identity)
            for row in range(first, min(first + chunk // LANES, rows)):
                mask = used[:, row].reshape(blocks, LANES, *[1] * (x.ndim - 1))
                part = numpy.where(mask, combine(part, steps[:, row]), part)
            lanes = combine(lanes, part)
        width = LANES // 2
        while width:
            lanes = combine(lanes[:, :width], lanes[:, width : 2 * width])
            width //= 2
        x = lanes[:, 0]
        if blocks == 1:
            return x[0]
        chunk = BLOCK  # results of blocks are few


def _reference_ordered(name: str, identity: int) -> Callable[[list[Any], dict[str, Any]], Any]:
    def reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
        import numpy

        with numpy.errstate(all="ignore"):
            return canonical(arrays[0], constants["axis"], getattr(numpy, name), identity)

    return reference


def _reference(name: str) -> Callable[[list[Any], dict[str, Any]], Any]:
    def reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
        import numpy

        return getattr(numpy, name)(arrays[0], axis=constants["axis"])

    return reference


def _reference_ufunc(name: str) -> Callable[[list[Any], dict[str, Any]], Any]:
    def reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
        import numpy

        return getattr(numpy, name).reduce(arrays[0], axis=constants["axis"])

    return reference


def _infer(name: str, allowed: frozenset[str], result: str) -> Any:
    def infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
        check_count(name, operands, 1)
        [x] = operands
        check_dtype(name, x, allowed)
        axis = check_axis(name, constants["axis"], x.ndim)
        dtype = x.dtype if result == "same" else result
        return dtype, x.shape[:axis] + x.shape[axis + 1 :]

    return infer


def _number_samples() -> Samples:
    matrix = [[3.0, 1.5, 2.0], [4.0, -5.0, 0.5]]
    yield [matrix], {"axis": 0}
    yield [matrix], {"axis": 1}


def _prod_samples() -> Samples:
    yield from _number_samples()
    yield [[[3.0, 0.0, 2.0], [0.0, 0.0, 0.5]]], {"axis": 1}


def _bool_samples() -> Samples:
    yield [[[True, False], [False, False]]], {"axis": 1}


def _bit_samples() -> Samples:
    yield [[[3, -5, 12], [4, 9, 9]]], {"axis": 0}
    yield [[[3, -5, 12], [4, 9, 9]]], {"axis": 1}


def _reduction(
    name: str,
    documentation: str,
    allowed: frozenset[str],
    derivative: Derivative | str,
    reference: Callable[..., Any],
    result: str = "same",
    samples: Callable[[], Samples] = _number_samples,
    linear: Linearity | None = None,
    of_nothing: bool | int | None = None,
    positions: Callable[[Node], int | None] | None = None,
) -> AlongAxis:
    register(
        Primitive(
            name,
            "reduce",
            _infer(name, allowed, result),
            derivative,
            reference=reference,
            samples=samples,
            linear=linear,
            of_nothing=of_nothing,
            positions=positions,
        )
    )
    return along_axis(name, documentation)


def _sum_rule(g: Node, y: Node, x: Node) -> Gradients:
    return (spread(g, x, y.attribute("axis")),)


def _prod_rule(g: Node, y: Node, x: Node) -> Gradients:
    # The product of all others, as (product before) * (product after): right with any number of
    # zeros, to any order of differentiation, and without a division.
    from flambeau.prims import scan

    axis = y.attribute("axis")
    before = scan.exclusive_cumprod(x, axis)
    after = shape.flip(scan.exclusive_cumprod(shape.flip(x, (axis,)), axis), (axis,))
    return (spread(g, x, axis) * pointwise.conj(before * after),)


def _extreme_rule(g: Node, y: Node, x: Node) -> Gradients:
    # Equal extremes share the gradient evenly. No element equals NaN: the division gives NaN.
    axis = y.attribute("axis")
    mask = pointwise.eq(x, spread(y, x, axis))
    count = sum(pointwise.cast(mask, x.dtype), axis)
    share = pointwise.where(mask, spread(g, x, axis), full_like(0, x))
    return (share / spread(count, x, axis),)


# fmt: off
REALS = INTEGERS | FLOATS
sum = _reduction("sum", "Sum along an axis, which is dropped.", NUMBERS, _sum_rule,
                 _reference_ordered("add", 0), linear="each", of_nothing=0)
prod_ = _reduction("prod", "Product along an axis, which is dropped.", NUMBERS, _prod_rule,
                   _reference_ordered("multiply", 1), samples=_prod_samples, of_nothing=1)
max_ = _reduction("max", "Maximum along an axis, which is dropped; NaN wins.", REALS,
                  _extreme_rule, _reference("max"))
min_ = _reduction("min", "Minimum along an axis, which is dropped; NaN wins.", REALS,
                  _extreme_rule, _reference("min"))
argmax = _reduction("argmax", "First index of the maximum along an axis; NaN wins.", REALS,
                    NOT_DIFFERENTIABLE, _reference("argmax"), "i64",
                    positions=axis_of)
argmin = _reduction("argmin", "First index of the minimum along an axis; NaN wins.", REALS,
                    NOT_DIFFERENTIABLE, _reference("argmin"), "i64",
                    positions=axis_of)
any_ = _reduction("any", "Whether any element along an axis is True.", BOOL, NOT_DIFFERENTIABLE,
                  _reference("any"), samples=_bool_samples, of_nothing=False)
all_ = _reduction("all", "Whether all elements along an axis are True.", BOOL, NOT_DIFFERENTIABLE,
                  _reference("all"), samples=_bool_samples, of_nothing=True)
xor = _reduction("xor", "Exclusive or of the bits along an axis, which is dropped.", INTEGERS,
                 NOT_DIFFERENTIABLE, _reference_ufunc("bitwise_xor"), samples=_bit_samples,
                 of_nothing=0)
# fmt: on


def _extremes_rule(g: Node, y: Node, x: Node) -> Gradients:
    # Group by group, an extreme that is alone in its group would get more than its share.
    dims = y.attribute("dims")
    remaining = [d for d in range(x.ndim) if d not in dims]

    def over(value: Node) -> Node:
        return shape.broadcast(value, x.shape, remaining)

    mask = pointwise.eq(x, over(y))
    count = reduce_dims("sum", pointwise.cast(mask, x.dtype), dims)
    return (pointwise.where(mask, over(g), full_like(0, x)) / over(count),)


register_rule("extremes", _extremes_rule)


def reduce_dims(name: str, x: Node, dims: Sequence[int], keepdim: bool = False) -> Node:
    """Reduce several dimensions with primitive `name`.

    Adjacent dimensions become one axis; several such groups are reduced innermost first. That is
    the canonical order of a reduction over many dimensions.
    """
    groups: list[list[int]] = []
    for d in sorted(set(dims)):
        if groups and groups[-1][-1] == d - 1:
            groups[-1].append(d)
        else:
            groups.append([d])
    result = x
    for group in reversed(groups):
        first, last = group[0], group[-1] + 1
        extent = prod(result.shape[first:last])
        joined = (*result.shape[:first], extent, *result.shape[last:])
        result = bind(name, shape.reshape(result, joined), axis=first)
    if name in ("max", "min") and len(groups) > 1 and x.dtype in FLOATS:
        result = with_derivative(result, x, rule="extremes", dims=tuple(sorted(set(dims))))
    if keepdim and groups:
        chosen = set(dims)
        keepdim_shape: tuple[Size, ...] = tuple(
            1 if d in chosen else n for d, n in enumerate(x.shape)
        )
        result = shape.reshape(result, keepdim_shape)
    return result


def _complex_infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
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


def _complex_rule(g: Node, y: Node, x: Node) -> Gradients:
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


def _complex_reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    return numpy.prod(arrays[0], axis=-1)


def _complex_samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    for count in (1, 2, 5):
        yield [[[complex(i - 1.5, 0.5 * j - i) for i in range(count)] for j in range(2)]], {}


def _complex_arguments(value: Node) -> Arguments:
    [operand] = value.attribute("shapes")
    sizes = (prod(operand[:-1]), operand[-1])
    return Arguments(f"complex_product_{value.dtype}", sizes, mul(prod(operand), 4))


register(
    Primitive(
        "complex_product", "routine", _complex_infer, _complex_rule,
        routine=Routine("complex_product", arguments=_complex_arguments), cost=32, batch=leading,
        reference=_complex_reference, samples=_complex_samples,
    )
)  # fmt: skip


def complex_product(x: Node) -> Node:
    """The product of complex numbers along the last axis, which is dropped; 1 of nothing."""
    return bind("complex_product", x)
