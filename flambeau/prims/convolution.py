"""Convolution, and its two gradients: three products of one sum, each the derivative of the others.

    convolution         y[n, o, p] = sum over c, k of w[o, c, k] x[n, c, i]
    convolution_input   x[n, c, i] = sum over o, k of w[o, c, k] y[n, o, p]
    convolution_weight  w[o, c, k] = sum over n, p of y[n, o, p] x[n, c, i]

where i = p stride + k dilation - low.

Indices have one to three dimensions; x is zero outside of its extents, so that the padding behind x
follows from the sizes. Every one takes the spatial sizes of its result as the attribute `size`:
the strides make them ambiguous. With groups, channels o and c belong to one group.

The sums run over (channel, kernel position) in chains of 64, or over (sample, position) in the
chunks of products, the last index fastest; positions outside of x add zeros to the sum. With the
attribute `method` "winograd" (3 x 3 taps side by side, enough channels) results are computed by
squares of 2 x 2 positions, and sums of bfloat16 numbers that were cast may be taken by pairs
(`codegen/c/kernels/c_template_convolution.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

from flambeau.ir.environment import current_environment, less, same_size
from flambeau.ir.geometry import Shape
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, prod
from flambeau.prims import shape
from flambeau.prims.common import FLOATS, Gradients, Type, check_count, check_dtype, show
from flambeau.prims.record import Addressing, Batched, Primitive, Routine, bind, register

Samples = Iterator[tuple[list[Any], dict[str, Any]]]
Geometry = dict[str, Any]  # stride, low, dilation, groups, method

_GEOMETRY = ("stride", "low", "dilation", "groups", "method")
_FEWEST = 32  # channels on both sides from which Winograd's algorithm pays


def _method(
    dtype: str, weight: Sequence[Size], stride: Sequence[int], dilation: Sequence[int], groups: int
) -> str:
    """How the sums are computed, which is part of their meaning: it decides their bits."""
    suits = (
        tuple(weight[2:]) == (3, 3)
        and groups == 1
        and {*stride, *dilation} == {1}
        and dtype == "f32"
    )
    if not suits or less(weight[0], _FEWEST) or less(weight[1], _FEWEST):
        return "plain"
    return "winograd"


def _geometry(value: Node) -> Geometry:
    return {name: value.attribute(name) for name in _GEOMETRY}


def _check(name: str, operands: tuple[Node, ...], constants: dict[str, Any]) -> tuple[Node, Node]:
    check_count(name, operands, 2)
    a, b = operands
    # Panels of float64 weights have more rows than a vector has lanes.
    check_dtype(name, a, frozenset({"f32"}) if constants["method"] == "winograd" else FLOATS)
    check_dtype(name, b, frozenset({a.dtype}))
    count = len(constants["stride"])
    lengths = {len(constants[key]) for key in ("low", "dilation", "size")}
    if a.ndim != count + 2 or b.ndim != count + 2 or lengths != {count} or not 1 <= count <= 3:
        raise ValueError(
            f"[{name}] operands {show(a.shape)} and {show(b.shape)} do not have {count} spatial "
            "dimensions\nhint: (N, C, *S) and (O, C / groups, *kernel), at most three"
        )
    return a, b


def _fits(name: str, a: Size, b: Size, what: str) -> None:
    if not same_size(a, b):
        raise ValueError(
            f"[{name}] {what} differ: {show((a,))[1:-2]} and {show((b,))[1:-2]}\n"
            "hint: the weight is (O, C / groups, *kernel)"
        )


# ------------------------------------------------------------------------------------ forward


def _infer_forward(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    x, weight = _check("convolution", operands, constants)
    _fits("convolution", x.shape[1], weight.shape[1] * constants["groups"], "channels")
    return x.dtype, (x.shape[0], weight.shape[0], *constants["size"])


def _forward_rule(g: Node, y: Node, x: Node, weight: Node) -> Gradients:
    geometry = _geometry(y)
    return (
        bind("convolution_input", g, weight, size=x.shape[2:], **geometry),
        bind("convolution_weight", g, x, size=weight.shape[2:], **geometry),
    )


def _infer_input(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    g, weight = _check("convolution_input", operands, constants)
    _fits("convolution_input", g.shape[1], weight.shape[0], "channels")
    return g.dtype, (g.shape[0], weight.shape[1] * constants["groups"], *constants["size"])


def _input_rule(grad: Node, dx: Node, g: Node, weight: Node) -> Gradients:
    geometry = _geometry(dx)
    return (
        bind("convolution", grad, weight, size=g.shape[2:], **geometry),
        bind("convolution_weight", g, grad, size=weight.shape[2:], **geometry),
    )


def _infer_weight(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    g, x = _check("convolution_weight", operands, constants)
    _fits("convolution_weight", g.shape[0], x.shape[0], "batch sizes")
    channels = floordiv(x.shape[1], constants["groups"])
    return g.dtype, (g.shape[1], channels, *constants["size"])


def _weight_rule(grad: Node, dw: Node, g: Node, x: Node) -> Gradients:
    geometry = _geometry(dw)
    return (
        bind("convolution", x, grad, size=g.shape[2:], **geometry),
        bind("convolution_input", g, grad, size=x.shape[2:], **geometry),
    )


# ------------------------------------------------------------------------------------ references


def _places(constants: dict[str, Any], kernel: Sequence[int], at: Sequence[int], out: Any) -> Any:
    """Per dimension the indices of the result and of x that kernel position `at` connects."""
    import numpy

    places, outputs = [], []
    for d, k in enumerate(at):
        p = numpy.arange(out[d][0])
        i = p * constants["stride"][d] + k * constants["dilation"][d] - constants["low"][d]
        inside = (i >= 0) & (i < out[d][1])
        places.append(p[inside])
        outputs.append(i[inside])
    return places, outputs


def _reference(name: str, arrays: list[Any], constants: dict[str, Any]) -> Any:
    """All three, position by position of the kernel; `y`, `x` and `weight` are split by group."""
    import numpy

    groups, size = constants["groups"], tuple(constants["size"])
    a, b = arrays
    if name == "convolution":
        x, weight = a, b
        y = numpy.zeros((x.shape[0], weight.shape[0], *size), a.dtype)
    elif name == "convolution_input":
        y, weight = a, b
        x = numpy.zeros((y.shape[0], weight.shape[1] * groups, *size), a.dtype)
    else:
        y, x = a, b
        weight = numpy.zeros((y.shape[1], x.shape[1] // groups, *size), a.dtype)
    extents = list(zip(y.shape[2:], x.shape[2:], strict=True))
    outer, inner = weight.shape[0] // groups, weight.shape[1]
    every = numpy.arange(x.shape[0])
    for at in product(*map(range, weight.shape[2:])):
        places, outputs = _places(constants, weight.shape[2:], at, extents)
        for g in range(groups):
            to = numpy.arange(outer) + g * outer
            of = numpy.arange(inner) + g * inner
            left, right = numpy.ix_(every, to, *places), numpy.ix_(every, of, *outputs)
            w = weight[(to, slice(None), *at)]
            if name == "convolution":
                y[left] += numpy.einsum("oc,nc...->no...", w, x[right])
            elif name == "convolution_input":
                x[right] += numpy.einsum("oc,no...->nc...", w, y[left])
            else:
                count = math.prod(map(len, places))
                flat_y = y[left].reshape(x.shape[0], outer, count)
                flat_x = x[right].reshape(x.shape[0], inner, count)
                weight[(to, slice(None), *at)] = numpy.einsum("nop,ncp->oc", flat_y, flat_x)
    return {"convolution": y, "convolution_input": x, "convolution_weight": weight}[name]


def _array(*shape: int) -> Any:
    """Nested lists of numbers that are neither equal nor small."""
    if not shape:
        return 1.0
    scale = [0.5, -1.25, 0.75, 1.5, -0.6, 0.9, -1.1]
    return [_scaled(_array(*shape[1:]), scale[(i + len(shape)) % 7]) for i in range(shape[0])]


def _scaled(values: Any, factor: float) -> Any:
    if isinstance(values, list):
        return [_scaled(v, factor + 0.1 * i) for i, v in enumerate(values)]
    return values * factor


_PLAIN = {"method": "plain"}
_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Geometry], ...] = (
    # x, weight, spatial size of y
    (
        (2, 3, 5),
        (2, 3, 3),
        (3,),
        {"stride": (1,), "low": (0,), "dilation": (1,), "groups": 1},
    ),
    (
        (1, 4, 6),
        (4, 2, 2),
        (4,),
        {"stride": (2,), "low": (1,), "dilation": (2,), "groups": 2},
    ),
    (
        (2, 2, 4, 3),
        (2, 1, 3, 2),
        (2, 4),
        {"stride": (2, 1), "low": (1, 1), "dilation": (1, 1), "groups": 2},
    ),
    (
        (1, 2, 3, 2, 2),
        (1, 2, 2, 1, 2),
        (2, 2, 1),
        {
            "stride": (1, 1, 2),
            "low": (0, 0, 0),
            "dilation": (1, 1, 1),
            "groups": 1,
            "method": "plain",
        },
    ),
)


def _samples(name: str) -> Samples:
    for x, weight, out, geometry in _CASES:
        y = (x[0], weight[0], *out)
        if name == "convolution":
            yield [_array(*x), _array(*weight)], {**geometry, **_PLAIN, "size": out}
        elif name == "convolution_input":
            yield [_array(*y), _array(*weight)], {**geometry, **_PLAIN, "size": x[2:]}
        else:
            yield [_array(*y), _array(*x)], {**geometry, **_PLAIN, "size": weight[2:]}


def _folded(b: Batched, places: Sequence[int], place: int, count: Size, **changed: int) -> Node:
    """The routine with the batch folded into a dimension of each operand and of the result."""
    operands = [shape.fold(x, at) for x, at in zip(b.all(), places, strict=True)]
    return shape.unfold(b.same(*operands, **changed), place, b.extent, count)


def _batch_forward(b: Batched) -> Node:
    """x (N, C, *S), weight (O, C / groups, *K): more samples, more channels, or more groups."""
    (x, weight), sizes = b.operands, b.node.shape
    if not b.flags[1]:
        return shape.unfold(b.same(shape.fold(x, 0), weight), 0, b.extent, sizes[0])
    if not b.flags[0] and b.attribute("groups") == 1:
        return shape.unfold(b.same(x, shape.fold(weight, 0)), 1, b.extent, sizes[1])
    return _grouped(b, (1, 0), 1)


def _grouped(b: Batched, places: Sequence[int], place: int) -> Node:
    """A group for every sample; the number of groups is a constant of a convolution."""
    extent = b.extent
    if not isinstance(extent, int):
        extent = current_environment().specialise(extent)
    if b.attribute("method") != "plain":  # its sums are those of one group
        operands = b.all()
        single = [b.same(*(_sample(x, i) for x in operands)) for i in range(extent)]
        return shape.cat([shape.reshape(x, (1, *x.shape)) for x in single], 0)
    groups = b.attribute("groups") * extent
    return _folded(b, places, place, b.node.shape[place], groups=groups)


def _sample(x: Node, number: int) -> Node:
    return shape.reshape(shape.slice(x, 0, number, 1), x.shape[1:])


def _batch_input(b: Batched) -> Node:
    """g (N, O, *out), weight (O, C / groups, *K) -> (N, C, *S)."""
    g, weight = b.operands
    if not b.flags[1]:
        return shape.unfold(b.same(shape.fold(g, 0), weight), 0, b.extent, b.node.shape[0])
    return _grouped(b, (1, 0), 1)


def _batch_weight(b: Batched) -> Node:
    """g (N, O, *out), x (N, C, *S) -> (O, C / groups, *K), summed over samples and positions."""
    g, x = b.operands
    if not b.flags[1] and b.attribute("groups") == 1:
        return shape.unfold(b.same(shape.fold(g, 1), x), 0, b.extent, b.node.shape[0])
    if not b.flags[0] and b.attribute("groups") == 1:
        return shape.unfold(b.same(g, shape.fold(x, 1)), 1, b.extent, b.node.shape[1])
    return _grouped(b, (1, 1), 0)


def is_depthwise(value: Node) -> bool:
    """Whether groups of a convolution or its gradient have one channel: they run along rows."""
    shapes = value.attribute("shapes")  # of what is read, once the memory is known that it is in
    operand = value.inputs[1].shape if shapes is None else shapes[1]
    weight = value.shape if value.op == "convolution_weight" else operand
    return bool(weight[1] == 1 and value.attribute("groups") != 1)


def _addressing(value: Node) -> Addressing:
    return "rows" if is_depthwise(value) else "strided"


def _places_of_channels(value: Node) -> Shape:
    """Samples, channels and positions, in one row."""
    return (*value.shape[:2], prod(value.shape[2:]))


def _routine(name: str) -> Routine:
    epilogue = _places_of_channels if name == "convolution" else None
    return Routine(name, _addressing, _addressing, epilogue, narrow=True, tuned=True)


for _name, _infer, _rule, _batch in (
    ("convolution", _infer_forward, _forward_rule, _batch_forward),
    ("convolution_input", _infer_input, _input_rule, _batch_input),
    ("convolution_weight", _infer_weight, _weight_rule, _batch_weight),
):
    register(
        Primitive(
            _name,
            "routine",
            _infer,
            _rule,
            routine=_routine(_name),
            cost=64,
            reference=partial(_reference, _name),
            samples=partial(_samples, _name),
            linear="each",
            batch=_batch,
        )
    )


# ------------------------------------------------------------------------------------ constructors


def _constants(
    dtype: str,
    weight: Sequence[Size],
    stride: Sequence[int],
    low: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Geometry:
    return {
        "stride": tuple(stride),
        "low": tuple(low),
        "dilation": tuple(dilation),
        "groups": groups,
        "method": _method(dtype, weight, stride, dilation, groups),
    }


def convolution(
    x: Node,
    weight: Node,
    size: Sequence[Size],
    stride: Sequence[int],
    low: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Node:
    """The convolution of (N, C, *S) with (O, C / groups, *kernel), of spatial sizes `size`."""
    geometry = _constants(x.dtype, weight.shape, stride, low, dilation, groups)
    return bind("convolution", x, weight, size=tuple(size), **geometry)


def convolution_input(
    y: Node,
    weight: Node,
    size: Sequence[Size],
    stride: Sequence[int],
    low: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Node:
    """The transposed convolution of (N, O, *out) with (O, C / groups, *kernel)."""
    geometry = _constants(y.dtype, weight.shape, stride, low, dilation, groups)
    return bind("convolution_input", y, weight, size=tuple(size), **geometry)


def convolution_weight(
    y: Node,
    x: Node,
    size: Sequence[Size],
    stride: Sequence[int],
    low: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Node:
    """The gradient of a weight (O, C / groups, *kernel) = `size`, from y (N, O, *out) and x."""
    geometry = _constants(y.dtype, size, stride, low, dilation, groups)
    return bind("convolution_weight", y, x, size=tuple(size[2:]), **geometry)
