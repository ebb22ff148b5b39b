"""Shape primitives: every result element is one operand element (or a fill value) elsewhere.

A record's `reads` is the index map, `(node, index) -> list[Read]`: where the element at `index` of
the result is read (`shape_rules.py`). The derivative of each is its transpose.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from flambeau.ir.environment import less, same_shape, same_size
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, known_equal, known_less, mul, prod
from flambeau.prims import pointwise
from flambeau.prims import shape_rules as rules
from flambeau.prims.common import (
    ShapeMismatch,
    Type,
    check_axis,
    check_count,
    check_dtype,
    show,
)
from flambeau.prims.create import full, zeros_like
from flambeau.prims.record import (
    Batched,
    BatchRule,
    Derivative,
    IndexMap,
    Linearity,
    Lower,
    Primitive,
    Simplification,
    Unview,
    View,
    bind,
    expand,
    next_dimension,
    register,
)

Samples = Iterator[tuple[list[Any], dict[str, Any]]]


def _shape_primitive(
    name: str,
    infer: Callable[[tuple[Node, ...], dict[str, Any]], Type],
    derivative: Derivative,
    reads: IndexMap,
    reference: Callable[..., Any],
    samples: Callable[[], Samples],
    linear: Linearity | None = "each",
    *,
    lower: Lower | None = None,
    view: View | None = None,
    simplify: Simplification | None = None,
    unview: Unview | None = None,
    same_elements: bool = False,
    concatenates: bool = False,
    repeats: Literal["dimensions", "windows"] | None = None,
    moves: bool = False,
    batch: BatchRule | None = None,
) -> None:
    register(
        Primitive(
            name,
            "shape",
            infer,
            derivative,
            cost=0,
            reference=reference,
            samples=samples,
            linear=linear,
            reads=reads,
            lower=lower,
            view=view,
            simplify=simplify,
            unview=unview,
            same_elements=same_elements,
            concatenates=concatenates,
            repeats=repeats,
            moves=moves,
            batch=batch,
        )
    )


MATRIX = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]

# ------------------------------------------------------------------------------------ broadcast


def _infer_broadcast(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("broadcast", operands, 1)
    [x] = operands
    shape, dimensions = constants["shape"], constants["dimensions"]
    if len(dimensions) != x.ndim or list(dimensions) != sorted(set(dimensions)):
        raise ValueError(
            f"[broadcast] dimensions {dimensions} do not place {x.ndim} dimensions in order\n"
            "hint: give one increasing result dimension per operand dimension"
        )
    for extent, dimension in zip(x.shape, dimensions):
        check_axis("broadcast", dimension, len(shape))
        if known_equal(extent, 1) is not True and not same_size(extent, shape[dimension]):
            raise ShapeMismatch(
                f"[broadcast] {show(x.shape)} does not fit {show(shape)} at {dimensions}\n"
                "hint: operand sizes must be 1 or equal to the result's"
            )
    return x.dtype, shape


def _expanded(x: Node, shape: tuple[Size, ...], dimensions: tuple[int, ...]) -> list[int]:
    """Return the result dimensions along which elements repeat."""
    placed = dict(zip(dimensions, x.shape))
    return [
        d
        for d, extent in enumerate(shape)
        if d not in placed
        or (known_equal(placed[d], 1) is True and known_equal(extent, 1) is not True)
    ]


def _broadcast_rule(g: Node, y: Node, x: Node) -> tuple[Node]:
    from flambeau.prims import reduce

    dimensions = y.attribute("dimensions")
    summed = reduce.reduce_dims("sum", g, _expanded(x, y.shape, dimensions), keepdim=False)
    return (reshape(summed, x.shape),)


def _numpy_broadcast(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    [x] = arrays
    placed = dict(zip(constants["dimensions"], x.shape))
    ndim = len(constants["shape"])
    return numpy.broadcast_to(
        x.reshape([placed.get(d, 1) for d in range(ndim)]), constants["shape"]
    )


def _broadcast_samples() -> Samples:
    yield [[1.0, 2.0]], {"shape": (2, 3), "dimensions": (0,)}
    yield [[[1.0], [2.0]]], {"shape": (4, 2, 3), "dimensions": (1, 2)}
    yield [1.5], {"shape": (2, 2), "dimensions": ()}


def _batch_broadcast(b: Batched) -> Node:
    dimensions = (0, *(d + 1 for d in b.attribute("dimensions")))
    return broadcast(b.operands[0], (b.extent, *b.node.shape), dimensions)


_shape_primitive(
    "broadcast",
    _infer_broadcast,
    _broadcast_rule,
    rules.broadcast_reads,
    _numpy_broadcast,
    _broadcast_samples,
    view=rules.broadcast_view,
    simplify=rules.simpler_broadcast,
    same_elements=True,
    repeats="dimensions",
    batch=_batch_broadcast,
)


def broadcast(x: Node, shape: Sequence[Size], dimensions: Sequence[int]) -> Node:
    """Repeat x: its dimension i becomes `dimensions[i]` of the result; size 1 stretches."""
    shape, dimensions = tuple(shape), tuple(dimensions)
    if x.shape == shape and dimensions == tuple(range(x.ndim)):
        return x
    if x.op == "full":
        _infer_broadcast((x,), {"shape": shape, "dimensions": dimensions})
        return bind("full", value=x.attribute("value"), shape=shape, dtype=x.dtype)
    return bind("broadcast", x, shape=shape, dimensions=dimensions)


# ------------------------------------------------------------------------------------ reshape


def _infer_reshape(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("reshape", operands, 1)
    [x] = operands
    shape = constants["shape"]
    if not same_size(prod(x.shape), prod(shape)):
        raise ShapeMismatch(
            f"[reshape] {show(x.shape)} has other elements than {show(shape)}: "
            f"{prod(x.shape)} != {prod(shape)}\nhint: the products of the sizes must be equal"
        )
    return x.dtype, shape


def _numpy_reshape(arrays: list[Any], constants: dict[str, Any]) -> Any:
    return arrays[0].reshape(constants["shape"])


def _reshape_samples() -> Samples:
    yield [MATRIX], {"shape": (3, 2)}
    yield [MATRIX], {"shape": (2, 1, 3, 1)}


def _batch_reshape(b: Batched) -> Node:
    return reshape(b.operands[0], (b.extent, *b.node.shape))


_shape_primitive(
    "reshape",
    _infer_reshape,
    lambda g, y, x: (reshape(g, x.shape),),
    rules.reshape_reads,
    _numpy_reshape,
    _reshape_samples,
    view=rules.reshape_view,
    unview=rules.reshape_unview,
    simplify=rules.simpler_reshape,
    same_elements=True,
    batch=_batch_reshape,
)


def reshape(x: Node, shape: Sequence[Size]) -> Node:
    """The same elements in row-major order, in another shape (no -1 here)."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    if x.op == "full":
        _infer_reshape((x,), {"shape": shape})
        return bind("full", value=x.attribute("value"), shape=shape, dtype=x.dtype)
    return bind("reshape", x, shape=shape)


def is_reshape(value: Node) -> bool:
    """Whether a node is a `reshape`."""
    return value.op == "reshape"


# ------------------------------------------------------------------------------------ permute


def _infer_permute(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("permute", operands, 1)
    [x] = operands
    order = constants["order"]
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(
            f"[permute] {order} is no order of {x.ndim} dimensions\nhint: name each dimension once"
        )
    return x.dtype, tuple(x.shape[d] for d in order)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    inverse = [0] * len(order)
    for position, d in enumerate(order):
        inverse[d] = position
    return tuple(inverse)


def _numpy_permute(arrays: list[Any], constants: dict[str, Any]) -> Any:
    return arrays[0].transpose(constants["order"])


def _permute_samples() -> Samples:
    yield [MATRIX], {"order": (1, 0)}
    yield [[MATRIX]], {"order": (2, 0, 1)}


def _batch_permute(b: Batched) -> Node:
    return permute(b.operands[0], (0, *(d + 1 for d in b.attribute("order"))))


_shape_primitive(
    "permute",
    _infer_permute,
    lambda g, y, x: (permute(g, _inverse(y.attribute("order"))),),
    rules.permute_reads,
    _numpy_permute,
    _permute_samples,
    view=rules.permute_view,
    unview=rules.permute_unview,
    simplify=rules.simpler_permute,
    same_elements=True,
    batch=_batch_permute,
)


def permute(x: Node, order: Sequence[int]) -> Node:
    """Dimension i of the result is dimension `order[i]` of x."""
    order = tuple(order)
    if order == tuple(range(x.ndim)):
        return x
    return bind("permute", x, order=order)


def is_permute(value: Node) -> bool:
    """Whether a node is a `permute`."""
    return value.op == "permute"


# ------------------------------------------------------------------------------------ slice


def _infer_slice(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("slice", operands, 1)
    [x] = operands
    d = check_axis("slice", constants["dimension"], x.ndim)
    start, step, length = constants["start"], constants["step"], constants["length"]
    extent = x.shape[d]
    inside = length == 0 or known_less(start + (length - 1) * step, extent)
    if known_less(step, 1) or known_less(start, 0) or inside is False:
        raise ValueError(
            f"[slice] {length} elements from {start} by {step} leave dimension {d} of "
            f"{show(x.shape)}\nhint: clamp the bounds first"
        )
    return x.dtype, (*x.shape[:d], length, *x.shape[d + 1 :])


def _slice_rule(g: Node, y: Node, x: Node) -> tuple[Node]:
    d, start, step = (y.attribute(name) for name in ("dimension", "start", "step"))
    length, extent = y.shape[d], x.shape[d]
    if known_equal(step, 1) is not True:
        g = dilate(g, d, step)
        length = length * step
    return (pad_axis(g, d, start, extent - start - length),)


def _numpy_slice(arrays: list[Any], constants: dict[str, Any]) -> Any:
    d, start, step, length = (constants[k] for k in ("dimension", "start", "step", "length"))
    picked = [builtins.slice(None)] * d
    chosen = builtins.slice(start, start + length * step, step)
    return arrays[0][(*picked, chosen)]


def _slice_samples() -> Samples:
    yield [MATRIX], {"dimension": 1, "start": 1, "step": 1, "length": 2}
    yield [[1.0, 2.0, 3.0, 4.0, 5.0]], {"dimension": 0, "start": 1, "step": 2, "length": 2}
    yield [[1.0, 2.0, 3.0, 4.0]], {"dimension": 0, "start": 1, "step": 2, "length": 2}
    yield [MATRIX], {"dimension": 0, "start": 2, "step": 1, "length": 0}


_shape_primitive(
    "slice",
    _infer_slice,
    _slice_rule,
    rules.slice_reads,
    _numpy_slice,
    _slice_samples,
    view=rules.slice_view,
    simplify=rules.simpler_slice,
    same_elements=True,
    moves=True,
    batch=next_dimension,
)


def slice(x: Node, dimension: int, start: Size, length: Size, step: Size = 1) -> Node:
    """`length` elements along `dimension`: start, start + step, ..."""
    if start == 0 and step == 1 and known_equal(length, x.shape[dimension]) is True:
        return x
    return bind("slice", x, dimension=dimension, start=start, step=step, length=length)


def dilate(x: Node, dimension: int, step: Size) -> Node:
    """Each element along `dimension` followed by `step - 1` zeros."""
    shape = (*x.shape[: dimension + 1], 1, *x.shape[dimension + 1 :])
    spread = pad_axis(reshape(x, shape), dimension + 1, 0, step - 1)
    extent = x.shape[dimension] * step
    return reshape(spread, (*x.shape[:dimension], extent, *x.shape[dimension + 1 :]))


# ------------------------------------------------------------------------------------ flip


def _infer_flip(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("flip", operands, 1)
    for d in constants["dimensions"]:
        check_axis("flip", d, operands[0].ndim)
    return operands[0].dtype, operands[0].shape


def _numpy_flip(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    return numpy.flip(arrays[0], constants["dimensions"])


def _flip_samples() -> Samples:
    yield [MATRIX], {"dimensions": (1,)}
    yield [MATRIX], {"dimensions": (0, 1)}


def _batch_flip(b: Batched) -> Node:
    return b.same(b.operands[0], dimensions=tuple(d + 1 for d in b.attribute("dimensions")))


_shape_primitive(
    "flip",
    _infer_flip,
    lambda g, y, x: (flip(g, y.attribute("dimensions")),),
    rules.flip_reads,
    _numpy_flip,
    _flip_samples,
    simplify=rules.simpler_flip,
    same_elements=True,
    moves=True,
    batch=_batch_flip,
)


def flip(x: Node, dimensions: Sequence[int]) -> Node:
    """Reverse the order along the dimensions."""
    chosen = tuple(sorted(set(dimensions)))
    return bind("flip", x, dimensions=chosen) if chosen else x


# ------------------------------------------------------------------------------------ pad


def _infer_pad(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("pad", operands, 2)
    x, fill = operands
    low, high = constants["low"], constants["high"]
    if fill.shape != () or fill.dtype != x.dtype:
        raise TypeError(f"[pad] fill is {fill!r}, operand {x!r}\nhint: pass a scalar of its dtype")
    if len(low) != x.ndim or len(high) != x.ndim:
        raise ValueError(f"[pad] {low}, {high} do not fit {show(x.shape)}\nhint: one per dimension")
    shape = tuple(before + n + after for before, n, after in zip(low, x.shape, high))
    if any(known_less(n, 0) for n in shape):
        raise ValueError(f"[pad] {show(x.shape)} becomes {show(shape)}\nhint: crop less")
    return x.dtype, shape


def _pad_rule(g: Node, y: Node, x: Node, fill: Node) -> tuple[Node, Node | None]:
    low, high = y.attribute("low"), y.attribute("high")
    zero = full(0, (), g.dtype)
    inner = pad(g, tuple(-n for n in low), tuple(-n for n in high), zero)
    if fill.op == "full":
        return inner, None
    from flambeau.prims import reduce

    inside = bind("pad", full(True, x.shape, "bool"), full(False, (), "bool"), low=low, high=high)
    outside = pointwise.where(inside, zeros_like(g), g)
    return inner, reduce.reduce_dims("sum", outside, range(g.ndim), keepdim=False)


def _numpy_pad(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    x, fill = arrays
    low, high = constants["low"], constants["high"]
    shape = [a + n + b for a, n, b in zip(low, x.shape, high)]
    out = numpy.full(shape, fill, x.dtype)
    source, target = [], []
    for before, n, extent in zip(low, x.shape, shape):
        first, last = max(before, 0), min(before + n, extent)
        last = max(first, last)
        target.append(builtins.slice(first, last))
        source.append(builtins.slice(first - before, last - before))
    out[tuple(target)] = x[tuple(source)]
    return out


def _pad_samples() -> Samples:
    yield [MATRIX, 0.5], {"low": (1, 0), "high": (0, 2)}
    yield [MATRIX, 0.5], {"low": (-1, 1), "high": (0, -2)}
    yield [MATRIX, 0.5], {"low": (0, -1), "high": (2, 2)}


def _batch_pad(b: Batched) -> Node:
    x, fill = b.operands
    low, high = (0, *b.attribute("low")), (0, *b.attribute("high"))
    x = x if b.flags[0] else expand(x, b.extent)
    if not b.flags[1]:
        return b.same(x, fill, low=low, high=high)
    empty = full(0, (), x.dtype)
    padded = b.same(x, empty, low=low, high=high)
    truth = full(True, x.shape, "bool")
    inside = bind("pad", truth, full(False, (), "bool"), low=low, high=high)
    return pointwise.where(inside, padded, broadcast(fill, padded.shape, (0,)))


_shape_primitive(
    "pad",
    _infer_pad,
    _pad_rule,
    rules.pad_reads,
    _numpy_pad,
    _pad_samples,
    "joint",
    lower=rules.pad_lower,
    moves=True,
    batch=_batch_pad,
)


def pad(x: Node, low: Sequence[Size], high: Sequence[Size], fill: Node | float | bool = 0) -> Node:
    """Add `low[d]` elements `fill` before and `high[d]` after; negative numbers crop."""
    low, high = tuple(low), tuple(high)
    if all(isinstance(n, int) and n == 0 for n in (*low, *high)):
        return x
    value = fill if isinstance(fill, Node) else full(fill, (), x.dtype)
    return bind("pad", x, value, low=low, high=high)


def pad_axis(x: Node, dimension: int, low: Size, high: Size) -> Node:
    """Zeros before and after along one dimension."""
    before: list[Size] = [0] * x.ndim
    after: list[Size] = [0] * x.ndim
    before[dimension], after[dimension] = low, high
    return pad(x, before, after)


# ------------------------------------------------------------------------------------ cat


def _infer_cat(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    first = operands[0]
    d = check_axis("cat", constants["dimension"], first.ndim)
    total: Size = 0
    for x in operands:
        check_dtype("cat", x, frozenset({first.dtype}))
        expected = (*first.shape[:d], *x.shape[d : d + 1], *first.shape[d + 1 :])
        if not same_shape(x.shape, expected):
            raise ShapeMismatch(
                f"[cat] {show(x.shape)} does not join {show(first.shape)} along {d}\n"
                "hint: all other sizes must be equal"
            )
        total = total + x.shape[d]
    return first.dtype, (*first.shape[:d], total, *first.shape[d + 1 :])


def _cat_rule(g: Node, y: Node, *operands: Node) -> tuple[Node, ...]:
    d = y.attribute("dimension")
    start: Size = 0
    gradients = []
    for x in operands:
        gradients.append(slice(g, d, start, x.shape[d]))
        start = start + x.shape[d]
    return tuple(gradients)


def _numpy_cat(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    return numpy.concatenate(arrays, constants["dimension"])


def _cat_samples() -> Samples:
    yield [MATRIX, [[7.0], [8.0]]], {"dimension": 1}
    yield [[1.0], [2.0, 3.0], [4.0]], {"dimension": 0}


_shape_primitive(
    "cat",
    _infer_cat,
    _cat_rule,
    rules.cat_reads,
    _numpy_cat,
    _cat_samples,
    "joint",
    lower=rules.cat_lower,
    concatenates=True,
    batch=next_dimension,
)


def cat(operands: Sequence[Node], dimension: int) -> Node:
    """The operands one after the other along `dimension`."""
    if len(operands) == 1:
        return operands[0]
    return bind("cat", *operands, dimension=dimension)


# ------------------------------------------------------------------------------------ windows


def _infer_windows(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("windows", operands, 1)
    [x] = operands
    d = check_axis("windows", constants["dimension"], x.ndim)
    length, step, dilation = (constants[k] for k in ("length", "step", "dilation"))
    span = (length - 1) * dilation + 1
    if less(x.shape[d], span):
        raise ValueError(
            f"[windows] windows of {span} do not fit dimension {d} of {show(x.shape)}\n"
            "hint: pad the operand first"
        )
    count = floordiv(x.shape[d] - span, step) + 1
    return x.dtype, (*x.shape[:d], count, *x.shape[d + 1 :], length)


def _windows_rule(g: Node, y: Node, x: Node) -> tuple[Node]:
    d, step, dilation = (y.attribute(k) for k in ("dimension", "step", "dilation"))
    return (overlap_add(g, d, x.shape[d], step, dilation),)


def _numpy_windows(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    d, length, step, dilation = (constants[k] for k in ("dimension", "length", "step", "dilation"))
    [x] = arrays
    count = (x.shape[d] - (length - 1) * dilation - 1) // step + 1
    places = numpy.arange(count)[:, None] * step + numpy.arange(length) * dilation
    return numpy.moveaxis(numpy.take(x, places, axis=d), d + 1, -1)


def _windows_samples() -> Samples:
    line = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    yield [line], {"dimension": 0, "length": 3, "step": 1, "dilation": 1}
    yield [line], {"dimension": 0, "length": 3, "step": 2, "dilation": 1}
    yield [line], {"dimension": 0, "length": 2, "step": 3, "dilation": 2}
    yield [[line, line]], {"dimension": 1, "length": 2, "step": 2, "dilation": 1}


_shape_primitive(
    "windows",
    _infer_windows,
    _windows_rule,
    rules.windows_reads,
    _numpy_windows,
    _windows_samples,
    repeats="windows",
    moves=True,
    batch=next_dimension,
)


def windows(x: Node, dimension: int, length: Size, step: Size = 1, dilation: Size = 1) -> Node:
    """Sliding windows along `dimension`: it becomes the window number, the last the place in it.

    Shape `(..., n, ...)` becomes `(..., (n - (length - 1) * dilation - 1) // step + 1, ...,
    length)`.
    """
    return bind("windows", x, dimension=dimension, length=length, step=step, dilation=dilation)


def overlap_add(x: Node, dimension: int, extent: Size, step: Size, dilation: Size) -> Node:
    """Transpose of `windows`: per index below `extent`, the sum over all windows that contain it.

    Written as reads (which window holds place i at offset k?), so that sums are in a fixed order.
    """
    from flambeau.prims import index as indexing
    from flambeau.prims import reduce
    from flambeau.prims.create import iota, size

    count, length = x.shape[dimension], x.shape[-1]
    grid = (extent, length)

    def scalar(value: Size) -> Node:
        return broadcast(size(value), grid, ())

    offset = iota(grid, 1)
    ahead = iota(grid, 0) - offset * scalar(dilation)
    window = pointwise.floor_div(ahead, scalar(step))
    zero = full(0, grid, "i64")
    valid = pointwise.eq(window * scalar(step), ahead) & (window >= 0) & (window < scalar(count))
    safe = pointwise.where(valid, window, zero)
    order = [*range(dimension + 1), x.ndim - 1, *range(dimension + 1, x.ndim - 1)]
    picked = indexing.index_nd(permute(x, order), (safe, offset), (dimension, dimension + 1))
    mask = broadcast(valid, picked.shape, (dimension, dimension + 1))
    masked = pointwise.where(mask, picked, zeros_like(picked))
    return reduce.sum(masked, axis=dimension + 1)


# ------------------------------------------------------------------------------------ as_strided


def _infer_as_strided(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("as_strided", operands, 1)
    shape, strides = constants["shape"], constants["strides"]
    if len(shape) != len(strides):
        raise ValueError(
            f"[as_strided] sizes {show(shape)} and strides {show(strides)} differ in length\n"
            "hint: give one stride per size"
        )
    return operands[0].dtype, shape


def _as_strided_rule(g: Node, y: Node, x: Node) -> tuple[Node]:
    from flambeau.prims.create import iota, size
    from flambeau.prims.scatter import take_add

    def spread(value: Size) -> Node:
        return broadcast(size(value), y.shape, ())

    index = spread(y.attribute("offset"))
    for d, step in enumerate(y.attribute("strides")):
        index = index + iota(y.shape, d) * spread(step)
    # A window may show memory around x, which is none of its elements: one more place for that.
    count = prod(x.shape)
    beyond = spread(count)
    places = pointwise.where((index >= 0) & (index < beyond), index, beyond)
    total = take_add(full(0, (count + 1,), g.dtype), places, g, 0)
    return (reshape(slice(total, 0, 0, count), x.shape),)


def _numpy_as_strided(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    grid = numpy.indices(constants["shape"])
    places = rules.places(list(grid), constants["strides"], constants["offset"])
    return arrays[0].reshape(-1)[places]


def _as_strided_samples() -> Samples:
    yield [MATRIX], {"shape": (2, 2), "strides": (1, 2), "offset": 1}
    yield [[1.0, 2.0, 3.0]], {"shape": (2, 2), "strides": (1, 1), "offset": 0}


def _batch_as_strided(b: Batched) -> Node:
    [x] = b.operands
    strides = (prod(x.shape[1:]), *b.attribute("strides"))
    return as_strided(x, (b.extent, *b.node.shape), strides, b.attribute("offset"))


_shape_primitive(
    "as_strided",
    _infer_as_strided,
    _as_strided_rule,
    rules.as_strided_reads,
    _numpy_as_strided,
    _as_strided_samples,
    None,  # it may read the memory around its operand
    view=rules.as_strided_view,
    batch=_batch_as_strided,
)


def as_strided(x: Node, shape: Sequence[Size], strides: Sequence[Size], offset: Size) -> Node:
    """Elements `offset + sum(index * strides)` of the row-major order of x; they may repeat."""
    return bind("as_strided", x, shape=tuple(shape), strides=tuple(strides), offset=offset)


# ------------------------------------------------------------------------------------ batches


def fold(x: Node, first: int) -> Node:
    """The batch becomes the outer part of dimension `first` of a sample."""
    order = [*range(1, first + 1), 0, *range(first + 1, x.ndim)]
    moved = permute(x, order)
    joined = mul(moved.shape[first], moved.shape[first + 1])
    return reshape(moved, (*moved.shape[:first], joined, *moved.shape[first + 2 :]))


def unfold(x: Node, first: int, extent: Size, inner: Size) -> Node:
    """The inverse of `fold`: dimension `first` is split, its outer part is the batch."""
    split = reshape(x, (*x.shape[:first], extent, inner, *x.shape[first + 1 :]))
    order = [first, *(d for d in range(split.ndim) if d != first)]
    return permute(split, order)
