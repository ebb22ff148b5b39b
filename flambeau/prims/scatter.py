"""Writes at data-dependent indices, sequential and so deterministic.

Operands are (base, *indices, source); the result is base with source written into it. Modes: set
(the last write wins), add, mul, max, min (NaN wins).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau.ir.environment import same_shape
from flambeau.ir.node import Node
from flambeau.prims import pointwise
from flambeau.prims.common import (
    Gradients,
    Type,
    check_axis,
    check_count,
    check_dtype,
    check_same,
    show,
)
from flambeau.prims.create import full_like, zeros_like
from flambeau.prims.index import (
    along,
    check_dims,
    check_places,
    from_front,
    gather,
    index_nd,
    sample_numbers,
    take,
    to_front,
)
from flambeau.prims.record import (
    Batched,
    BatchRule,
    Derivative,
    Primitive,
    Routine,
    any_strides,
    bind,
    register,
)

MODES = ("set", "add", "mul", "max", "min")
Samples = Iterator[tuple[list[Any], dict[str, Any]]]


def _check_mode(name: str, mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"[{name}] unknown mode {mode!r}\nhint: one of {', '.join(MODES)}")


def _check_source(name: str, base: Node, source: Node, shape: Any) -> None:
    check_dtype(name, source, frozenset({base.dtype}))
    if not same_shape(source.shape, shape):
        raise ValueError(
            f"[{name}] source is {show(source.shape)}, indexed places are {show(shape)}\n"
            "hint: broadcast the source first"
        )


def _infer_scatter(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("scatter", operands, 3)
    base, index, source = operands
    check_axis("scatter", constants["axis"], base.ndim)
    _check_mode("scatter", constants["mode"])
    check_places("scatter", base, index, constants["axis"])
    check_dtype("scatter", source, frozenset({base.dtype}))
    check_same("scatter", (index, source), dtypes=False)
    return base.dtype, base.shape


def _infer_put_nd(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    base, *indices, source = operands
    dims = constants["dims"]
    _check_mode("put_nd", constants["mode"])
    check_dims("put_nd", base, dims, indices)
    places = base.shape[: dims[0]] + indices[0].shape + base.shape[dims[-1] + 1 :]
    _check_source("put_nd", base, source, places)
    return base.dtype, base.shape


def _infer_take_add(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("take_add", operands, 3)
    base, index, source = operands
    axis = check_axis("take_add", constants["axis"], base.ndim)
    check_dtype("take_add", index, frozenset({"i64"}))
    places = base.shape[:axis] + index.shape + base.shape[axis + 1 :]
    _check_source("take_add", base, source, places)
    return base.dtype, base.shape


Read = Callable[[Node], Node]
Write = Callable[[Node, Node, str], Node]
Factors = tuple[Node, Node, Node]


def _write_rule(
    g: Node, y: Node, base: Node, source: Node, mode: str, read: Read, write: Write
) -> tuple[Node, Node]:
    """Gradients of base and source; `read` and `write` access the primitive's indices."""
    if mode == "add":
        return g, read(g)
    if mode == "set":
        return write(g, zeros_like(source), "set"), read(g)
    if mode == "mul":
        return _product_rule(g, base, source, read, write)
    # Equal extremes share the gradient evenly, the base being one of them.
    mine = pointwise.cast(pointwise.eq(base, y), base.dtype)
    theirs = pointwise.cast(pointwise.eq(source, read(y)), base.dtype)
    share = g / write(mine, theirs, "add")
    return _kept(share, mine), _kept(read(share), theirs)


def _kept(x: Node, weight: Node) -> Node:
    return pointwise.where(pointwise.ne(weight, zeros_like(weight)), x, zeros_like(x))


def _product_rule(g: Node, base: Node, source: Node, read: Read, write: Write) -> tuple[Node, Node]:
    """Zeros are counted and left out of the product, so that nothing is divided by zero.

    Where one zero is among the others, their product is that zero times the rest: 0, with the rest
    as its derivative. With more of them it is 0 up to its first derivative, so that two derivatives
    of the whole are right at any zeros.
    """
    mine, theirs = _without_zeros(base), _without_zeros(source)
    product = write(mine[0], theirs[0], "mul")  # of all factors that are not zero
    zeros, count = (write(mine[i], theirs[i], "add") for i in (1, 2))

    def others(factors: Factors, at: Read) -> Node:
        safe, own, is_zero = factors
        of_others, left = at(product) / safe, at(count) - is_zero
        none, one = (pointwise.eq(left, full_like(n, left)) for n in (0, 1))
        product_of_others = pointwise.where(
            one, of_others * (at(zeros) - own), zeros_like(of_others)
        )
        return pointwise.conj(pointwise.where(none, of_others, product_of_others))

    return g * others(mine, lambda x: x), read(g) * others(theirs, read)


def _without_zeros(x: Node) -> Factors:
    """(x with 1 in place of zeros, x with 0 elsewhere, 1 for a zero)."""
    zero = pointwise.eq(x, zeros_like(x))
    safe = pointwise.where(zero, full_like(1, x), x)
    return safe, pointwise.where(zero, x, zeros_like(x)), pointwise.cast(zero, x.dtype)


def _scatter_rule(g: Node, y: Node, base: Node, index: Node, source: Node) -> Gradients:
    axis = y.attribute("axis")
    first, last = _write_rule(
        g,
        y,
        base,
        source,
        y.attribute("mode"),
        lambda x: gather(x, index, axis),
        lambda x, values, mode: scatter(x, index, values, axis, mode),
    )
    return first, None, last


def _put_nd_rule(g: Node, y: Node, base: Node, *operands: Node) -> Gradients:
    *indices, source = operands
    dims = y.attribute("dims")
    first, last = _write_rule(
        g,
        y,
        base,
        source,
        y.attribute("mode"),
        lambda x: index_nd(x, indices, dims),
        lambda x, values, mode: put_nd(x, indices, values, dims, mode),
    )
    return first, *[None] * len(indices), last


def _take_add_rule(g: Node, y: Node, base: Node, index: Node, source: Node) -> Gradients:
    return g, None, take(g, index, y.attribute("axis"))


def _write(out: Any, places: tuple[Any, ...], source: Any, mode: str) -> Any:
    import numpy

    if mode == "set":
        out[places] = source
    else:
        names = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
        getattr(numpy, names[mode]).at(out, places, source)
    return out


def _numpy_scatter(arrays: list[Any], constants: dict[str, Any]) -> Any:
    base, index, source = arrays
    return _write(base.copy(), along(index, constants["axis"]), source, constants["mode"])


def _numpy_put_nd(arrays: list[Any], constants: dict[str, Any]) -> Any:
    base, *indices, source = arrays
    places = (*[slice(None)] * constants["dims"][0], *indices)
    return _write(base.copy(), places, source, constants["mode"])


def _numpy_take_add(arrays: list[Any], constants: dict[str, Any]) -> Any:
    base, index, source = arrays
    places = (*[slice(None)] * constants["axis"], index)
    return _write(base.copy(), places, source, "add")


MATRIX = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def _scatter_samples() -> Samples:
    places, source = [[2, 0], [1, 2]], [[0.5, -0.5], [7.0, 9.0]]
    for mode in MODES:
        yield [MATRIX, places, source], {"axis": 1, "mode": mode}
    for mode in ("add", "mul", "max", "min"):
        yield [MATRIX, [[2, 2], [1, 1]], source], {"axis": 1, "mode": mode}
    zeros = [[[1.0, 0.0, 3.0]], [[0, 1, 2, 2]], [[0.0, 2.0, 0.0, 5.0]]]
    yield zeros, {"axis": 1, "mode": "mul"}


def _put_nd_samples() -> Samples:
    for mode in MODES:
        yield [MATRIX, [0, 1], [2, 0], [0.5, 9.0]], {"dims": (0, 1), "mode": mode}
    yield [MATRIX, [0, 0], [2, 2], [0.5, 9.0]], {"dims": (0, 1), "mode": "add"}
    yield [MATRIX, [2, 0], [[0.5, 9.0], [1.0, 2.0]]], {"dims": (1,), "mode": "mul"}


def _take_add_samples() -> Samples:
    yield [MATRIX, [1, 1, 0], [[1.0] * 3, [2.0] * 3, [3.0] * 3]], {"axis": 0}
    yield [MATRIX, [[2], [2]], [[[1.0], [2.0]], [[3.0], [4.0]]]], {"axis": 1}


def _batch_scatter(b: Batched) -> Node:
    base, index, source = b.all()
    return scatter(base, index, source, b.attribute("axis") + 1, b.attribute("mode"))


def _batch_put(b: Batched, indices_flag: bool, dims: Sequence[int], mode: str) -> Node:
    base, *indices, source = b.all()
    if not indices_flag:
        return put_nd(base, b.operands[1:-1], source, tuple(d + 1 for d in dims), mode)
    count, rank, first = len(indices), indices[0].ndim - 1, dims[0]
    places = (sample_numbers(b, indices[0].shape), *indices)
    written = put_nd(
        to_front(base, first + 1, count),
        places,
        to_front(source, first + 1, rank),
        tuple(range(count + 1)),
        mode,
    )
    return from_front(written, count, first + 1)


def _batch_put_nd(b: Batched) -> Node:
    return _batch_put(b, any(b.flags[1:-1]), b.attribute("dims"), b.attribute("mode"))


def _batch_take_add(b: Batched) -> Node:
    axis = b.attribute("axis")
    if not b.flags[1]:
        base, _, source = b.all()
        return take_add(base, b.operands[1], source, axis + 1)
    return _batch_put(b, True, (axis,), "add")


def _register(
    name: str,
    infer: Callable[..., Type],
    derivative: Derivative,
    reference: Callable[..., Any],
    samples: Callable[[], Samples],
    batch: BatchRule,
    routine: Routine,
) -> None:
    register(
        Primitive(
            name,
            "scatter",
            infer,
            derivative,
            cost=4,
            reference=reference,
            samples=samples,
            linear="write",
            batch=batch,
            routine=routine,
        )
    )


_register(
    "scatter",
    _infer_scatter,
    _scatter_rule,
    _numpy_scatter,
    _scatter_samples,
    _batch_scatter,
    Routine("scatter", any_strides, any_strides),
)
_register(
    "put_nd",
    _infer_put_nd,
    _put_nd_rule,
    _numpy_put_nd,
    _put_nd_samples,
    _batch_put_nd,
    Routine("put_nd"),
)
_register(
    "take_add",
    _infer_take_add,
    _take_add_rule,
    _numpy_take_add,
    _take_add_samples,
    _batch_take_add,
    Routine("take_add"),
)


def scatter(base: Node, index: Node, source: Node, axis: int, mode: str = "set") -> Node:
    """base with base[i, index[i, j], ...] = (or +=, *=, ...) source[i, j, ...]."""
    return bind("scatter", base, index, source, axis=axis, mode=mode)


def put_nd(
    base: Node, indices: Sequence[Node], source: Node, dims: Sequence[int], mode: str = "set"
) -> Node:
    """base with source written at indices of adjacent `dims` (as `index_nd` reads them)."""
    return bind("put_nd", base, *indices, source, dims=tuple(dims), mode=mode)


def take_add(base: Node, index: Node, source: Node, axis: int) -> Node:
    """base with source added at `index` along the axis: the transpose of `take`."""
    return bind("take_add", base, index, source, axis=axis)
