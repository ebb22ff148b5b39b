"""Reads at data-dependent indices: gather, take, index_nd; and the check of such indices.

Indices are i64, already wrapped to be non-negative and checked (`check_index`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau.ir.geometry import Index
from flambeau.ir.node import Node, node
from flambeau.ir.size import Size
from flambeau.prims.common import (
    INTEGERS,
    Gradients,
    Type,
    check_axis,
    check_count,
    check_dtype,
    check_same,
    show,
)
from flambeau.prims.create import iota, zeros_like
from flambeau.prims.record import (
    NOT_DIFFERENTIABLE,
    Batched,
    BatchRule,
    Derivative,
    Elements,
    Linearity,
    Lower,
    Primitive,
    bind,
    expand,
    leading,
    register,
)
from flambeau.prims.shape import permute

Samples = Iterator[tuple[list[Any], dict[str, Any]]]
I64 = frozenset({"i64"})
MATRIX = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def check_places(name: str, x: Node, index: Node, axis: int) -> None:
    """Raise unless index is i64, of x's rank and not larger than x beside the axis."""
    check_dtype(name, index, I64)
    if index.ndim != x.ndim:
        raise ValueError(
            f"[{name}] index {show(index.shape)} has not the rank of {show(x.shape)}\n"
            "hint: give it one dimension per dimension of the operand"
        )
    for d, (n, limit) in enumerate(zip(index.shape, x.shape)):
        if d != axis and isinstance(n, int) and isinstance(limit, int) and n > limit:
            raise ValueError(
                f"[{name}] index {show(index.shape)} is larger than {show(x.shape)} in {d}\n"
                "hint: only the indexed dimension may be larger"
            )


def check_dims(name: str, x: Node, dims: Sequence[int], indices: Sequence[Node]) -> None:
    """Raise unless `dims` are adjacent dimensions of x with one i64 index each, of one shape."""
    if list(dims) != list(range(dims[0], dims[0] + len(indices))):
        raise ValueError(
            f"[{name}] dims {tuple(dims)} are not one adjacent dimension for each of "
            f"{len(indices)} indices\nhint: permute the operand first"
        )
    check_axis(name, dims[-1], x.ndim)
    check_dtype(name, indices[0], I64)
    check_same(name, indices)


def _infer_gather(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("gather", operands, 2)
    x, index = operands
    check_axis("gather", constants["axis"], x.ndim)
    check_places("gather", x, index, constants["axis"])
    return x.dtype, index.shape


def _infer_take(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("take", operands, 2)
    x, index = operands
    axis = check_axis("take", constants["axis"], x.ndim)
    check_dtype("take", index, I64)
    return x.dtype, x.shape[:axis] + index.shape + x.shape[axis + 1 :]


def _infer_index_nd(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    x, *indices = operands
    dims = constants["dims"]
    check_dims("index_nd", x, dims, indices)
    return x.dtype, x.shape[: dims[0]] + indices[0].shape + x.shape[dims[-1] + 1 :]


def _infer_check_index(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("check_index", operands, 1)
    check_dtype("check_index", operands[0], INTEGERS)
    return "i64", operands[0].shape


def _gather_rule(g: Node, y: Node, x: Node, index: Node) -> Gradients:
    from flambeau.prims.scatter import scatter

    return scatter(zeros_like(x), index, g, y.attribute("axis"), "add"), None


def _take_rule(g: Node, y: Node, x: Node, index: Node) -> Gradients:
    from flambeau.prims.scatter import take_add

    return take_add(zeros_like(x), index, g, y.attribute("axis")), None


def _index_nd_rule(g: Node, y: Node, x: Node, *indices: Node) -> Gradients:
    from flambeau.prims.scatter import put_nd

    total = put_nd(zeros_like(x), indices, g, y.attribute("dims"), "add")
    return total, *[None] * len(indices)


def along(index: Any, axis: int) -> tuple[Any, ...]:
    """NumPy's advanced index for indices along one axis."""
    import numpy

    grid = numpy.indices(index.shape, sparse=True)
    return tuple(index if d == axis else places for d, places in enumerate(grid))


def _numpy_gather(arrays: list[Any], constants: dict[str, Any]) -> Any:
    return arrays[0][along(arrays[1], constants["axis"])]


def _numpy_take(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    return numpy.take(arrays[0], arrays[1], axis=constants["axis"])


def _numpy_index_nd(arrays: list[Any], constants: dict[str, Any]) -> Any:
    x, *indices = arrays
    return x[(*[slice(None)] * constants["dims"][0], *indices)]


def _numpy_check_index(arrays: list[Any], constants: dict[str, Any]) -> Any:
    [index] = arrays
    size = constants["size"]
    wrong = index[(index < (0 if constants.get("strict") else -size)) | (index >= size)]
    if wrong.size:
        raise IndexError(
            f"[{constants['name']}] index {wrong.flat[0]} is out of bounds for size {size}\n"
            "hint: check the indices"
        )
    return (index + (index < 0) * size).astype("int64")


def _gather_samples() -> Samples:
    yield [MATRIX, [[2, 0], [1, 1]]], {"axis": 1}
    yield [MATRIX, [[1, 0, 1]]], {"axis": 0}


def _take_samples() -> Samples:
    yield [MATRIX, [[2, 0], [1, 1]]], {"axis": 1}
    yield [MATRIX, [1, 1, 0]], {"axis": 0}
    yield [MATRIX, 1], {"axis": 0}


def _index_nd_samples() -> Samples:
    yield [MATRIX, [0, 1, 1], [2, 0, 0]], {"dims": (0, 1)}
    yield [[MATRIX], [[1, 0]], [[2, 2]]], {"dims": (1, 2)}
    yield [MATRIX, [2, 0, 0]], {"dims": (1,)}


def _check_samples() -> Samples:
    yield [[0, -1, 2]], {"size": 3, "name": "take"}
    yield [[0, 1, 2]], {"size": 3, "name": "gather", "strict": True}


def _lower_gather(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    operand, positions = value.inputs
    axis = value.attribute("axis")
    chosen = elements.data(elements.at(positions, index, mask), operand.shape[axis])
    return elements.at(operand, (*index[:axis], chosen, *index[axis + 1 :]), mask)


def _lower_take(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    operand, positions = value.inputs
    axis = value.attribute("axis")
    end = axis + positions.ndim
    chosen = elements.data(elements.at(positions, index[axis:end], mask), operand.shape[axis])
    return elements.at(operand, (*index[:axis], chosen, *index[end:]), mask)


def _lower_index_nd(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    operand, *positions = value.inputs
    dimensions = value.attribute("dims")
    first = dimensions[0]
    end = first + positions[0].ndim
    inner = index[first:end]
    chosen = [
        elements.data(elements.at(p, inner, mask), operand.shape[d])
        for p, d in zip(positions, dimensions)
    ]
    return elements.at(operand, (*index[:first], *chosen, *index[end:]), mask)


def _lower_check(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    place = elements.at(value.inputs[0], index, mask)
    if place.dtype != "i64":
        place = node("cast", (place,), (("dtype", "i64"),), "i64")
    return node("s.check", (place,), value.attributes, "i64")


def sample_numbers(b: Batched, shape: Sequence[Size], place: int = 0) -> Node:
    """The number of the sample, at every place of a value."""
    return iota(tuple(shape), place)


def _batch_gather(b: Batched) -> Node:
    x, index = b.all()
    return gather(x, index, b.attribute("axis") + 1)


def to_front(x: Node, start: int, count: int) -> Node:
    """Dimensions start .. start + count behind the batch, before all others."""
    moved = range(start, start + count)
    return permute(x, (0, *moved, *(d for d in range(1, x.ndim) if d not in moved)))


def from_front(x: Node, count: int, start: int) -> Node:
    """The inverse of `to_front`: count dimensions behind the batch go to `start`."""
    trailing = [*range(1 + count, x.ndim)]
    before, after = trailing[: start - 1], trailing[start - 1 :]
    return permute(x, (0, *before, *range(1, 1 + count), *after))


def _read(b: Batched, x: Node, indices: Sequence[Node], first: int) -> Node:
    """x[..., indices, ...] at dimensions from `first` on, all of them batched."""
    count, rank = len(indices), indices[0].ndim - 1
    numbers = sample_numbers(b, indices[0].shape)
    picked = index_nd(to_front(x, first + 1, count), (numbers, *indices), tuple(range(count + 1)))
    return from_front(picked, rank, first + 1)


def _batch_take(b: Batched) -> Node:
    (x, index), axis = b.operands, b.attribute("axis")
    if not b.flags[1]:
        return take(x, index, axis + 1)
    if b.flags[0]:
        return _read(b, x, (index,), axis)
    gathered = take(x, index, axis)  # the batch is at dimension `axis`
    others = [d for d in range(gathered.ndim) if d != axis]
    return permute(gathered, (axis, *others))


def _batch_index_nd(b: Batched) -> Node:
    dims = b.attribute("dims")
    if not any(b.flags[1:]):
        x, *indices = b.operands
        return index_nd(x, indices, tuple(d + 1 for d in dims))
    if not b.flags[0]:
        x = b.operands[0]
        places = [
            i if flag else expand(i, b.extent)
            for i, flag in zip(b.operands[1:], b.flags[1:], strict=True)
        ]
        gathered = index_nd(x, places, dims)
        others = [d for d in range(gathered.ndim) if d != dims[0]]
        return permute(gathered, (dims[0], *others))
    x, *indices = b.all()
    return _read(b, x, indices, dims[0])


def _register(
    name: str,
    kind: Any,
    infer: Callable[..., Type],
    derivative: Derivative | str,
    reference: Callable[..., Any],
    samples: Callable[[], Samples],
    lower: Lower,
    batch: BatchRule,
) -> None:
    linear: Linearity | None = "first" if kind == "index" else None
    register(
        Primitive(
            name,
            kind,
            infer,
            derivative,
            cost=2,
            reference=reference,
            samples=samples,
            linear=linear,
            lower=lower,
            batch=batch,
        )
    )


_register(
    "gather",
    "index",
    _infer_gather,
    _gather_rule,
    _numpy_gather,
    _gather_samples,
    _lower_gather,
    _batch_gather,
)
_register(
    "take",
    "index",
    _infer_take,
    _take_rule,
    _numpy_take,
    _take_samples,
    _lower_take,
    _batch_take,
)
_register(
    "index_nd",
    "index",
    _infer_index_nd,
    _index_nd_rule,
    _numpy_index_nd,
    _index_nd_samples,
    _lower_index_nd,
    _batch_index_nd,
)
_register(
    "check_index",
    "check",
    _infer_check_index,
    NOT_DIFFERENTIABLE,
    _numpy_check_index,
    _check_samples,
    _lower_check,
    leading,
)


def gather(x: Node, index: Node, axis: int) -> Node:
    """out[i, j, k] = x[i, index[i, j, k], k] for axis 1; shape of index."""
    return bind("gather", x, index, axis=axis)


def take(x: Node, index: Node, axis: int) -> Node:
    """x with dimension `axis` replaced by the elements at `index` (any rank)."""
    return bind("take", x, index, axis=axis)


def index_nd(x: Node, indices: Sequence[Node], dims: Sequence[int]) -> Node:
    """x at indices given by one index tensor per dimension of the adjacent `dims`."""
    if len(indices) == 1:
        return take(x, indices[0], dims[0])
    return bind("index_nd", x, *indices, dims=tuple(dims))


def check_index(
    index: Node,
    size: Size,
    name: str,
    message: str | None = None,
    *,
    error: str = "index",
    strict: bool = False,
) -> Node:
    """The index as i64 in [0, size): wrapped, with an error at run time if outside.

    Args:
        index: integers.
        size: of what is indexed.
        name: of the operator.
        message: replaces the usual one; with {value}, {size} and {dimension}.
        error: kind of the exception, see `ir.plan.ERRORS`.
        strict: whether a negative index is outside, too.
    """
    options: dict[str, Any] = {} if message is None else {"message": message}
    if error != "index":
        options["error"] = error
    if strict:
        options["strict"] = True
    return bind("check_index", index, size=size, name=name, **options)
