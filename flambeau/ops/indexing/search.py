"""Places of elements: nonzero, masks turned into places, and binary search.

How many places there are is data: these operators read that number first (which ends a recorded
stream) and compute the rest in one program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.environment import hint, less
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.ir.size import Size, prod
from flambeau.language import layout
from flambeau.language.definition import op
from flambeau.language.dtypes import object_of
from flambeau.language.no_data import refuse_meta
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, SymInt, Tensor
from flambeau.ops.common import gathered, same_sizes, shown, strides_of
from flambeau.ops.creation.creation import filled
from flambeau.ops.indexing.index import connected
from flambeau.ops.pointwise.choice import check_mask

Samples = Iterator[Sample]


def _truth(x: Node) -> Node:
    return x if x.dtype == "bool" else prims.ne(x, prims.zeros_like(x))


def _ranks(mask: Node) -> Node:
    """How many true elements precede each place of a flat mask."""
    ones = prims.cast(mask, "i64")
    return prims.cumsum(ones, 0) - ones


def _is_contiguous(x: Node) -> bool:
    return strides_of(x) == layout.contiguous_strides(x.shape)


def _selected(x: Node, mask: Node, total: Size, dense: bool) -> Node:
    """The entries of `x` where a mask of its leading dimensions is true.

    Args:
        x, mask: the operands.
        total: how many elements of the mask are true.
        dense: whether x is contiguous: its entries are copied without an index for each.
    """
    flat = prims.reshape(mask, (prod(mask.shape),))
    entries = prims.reshape(x, (*flat.shape, *x.shape[mask.ndim :]))
    if dense:
        return prims.compress(entries, flat, total)
    return prims.take(entries, prims.true_positions(flat, total), 0)


# ------------------------------------------------------------------------------------ nonzero


@op(name="_count_nonzero", where="torch", differentiable=False)
def _count(self: Tensor) -> Tensor:
    """Number of elements that are not zero, int64."""
    flat = prims.reshape(self, (prod(self.shape),))
    return prims.sum(prims.cast(_truth(flat), "i64"), axis=0)


@op(where="torch", differentiable=False)
def _nonzero(self: Tensor, total: SymInt) -> Tensor:
    """Index vectors of the elements that are not zero, shape (ndim, total)."""
    return prims.true_indices(_truth(self), total)


def _nonzero_samples() -> Samples:
    yield sample(T(3, 4, dtype="i64", low=0, high=2, grad=False))
    yield sample(T(3, 4, dtype="bool", low=0, high=2, grad=False), as_tuple=True)
    yield sample(T(5, grad=False))
    yield sample(T(grad=False))
    yield sample(T(0, 3, grad=False))


@op(out="exact", overlap="any", host=True, samples=_nonzero_samples)
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Places of the elements that are not zero, in row-major order.

    Args:
        as_tuple: one index vector per dimension instead of a matrix (count, ndim).

    Example:
        >>> torch.tensor([0, 5, 6]).nonzero(as_tuple=True)
        (tensor([1, 2]),)
    """
    if not isinstance(as_tuple, bool):
        problem = f"as_tuple must be bool, not {type(as_tuple).__name__}"
        raise failure(TypeError, "nonzero", problem, "True or False")
    if as_tuple:
        x = input if input.ndim else input.unsqueeze(0)
        return tuple(_coordinates(x).unbind(0))
    return _coordinates(input).t()


def _coordinates(x: Any) -> Any:
    """Index vectors of the elements that are not zero, shape (ndim, count)."""
    refuse_meta("nonzero", x)
    if (total := tensors.count_true(x)) is None:
        total = int(_count(x).item()) if x.numel() else 0
    if total == 0 or x.ndim == 0:
        return x.new_zeros((x.ndim, total), dtype=object_of("i64"))
    return _nonzero(x, total)


@op(
    out="exact",
    overlap="any",
    differentiable=False,
    samples=lambda: [
        sample(T(3, 4, dtype="i64", low=0, high=2, grad=False), size=5),
        sample(T(5, grad=False), size=7, fill_value=9),
        sample(T(grad=False), size=2),
        sample(T(0, 3, grad=False), size=2),
    ],
    errors=lambda: [ErrorSample(sample(T(3), size=-1), RuntimeError, "non-negative")],
    varying=True,
)
def nonzero_static(self: Tensor, *, size: SymInt, fill_value: int = -1) -> Tensor:
    """The first `size` rows of `nonzero(self)`, filled up where there are fewer: (size, ndim).

    The shape does not depend on the data, so nothing waits for it.

    Raises:
        RuntimeError: a negative size.

    Example:
        >>> torch.nonzero_static(torch.tensor([0, 5, 6]), size=3)
        tensor([[ 1],
                [ 2],
                [-1]])
    """
    if less(size, 0):
        problem = "nonzero_static: 'size' must be an non-negative integer"
        raise failure(RuntimeError, "nonzero_static", problem, "0")
    if self.ndim == 0 or any(isinstance(n, int) and n == 0 for n in self.shape):
        return prims.full(fill_value, (size, self.ndim), "i64")
    positions = prims.transpose(prims.true_indices(_truth(self), size), 0, 1)
    return prims.where(positions < 0, prims.full_like(fill_value, positions), positions)


@op(
    "argwhere(Tensor self) -> Tensor",
    host=True,
    samples=lambda: [sample(T(3, 4, dtype="i64", low=0, high=2, grad=False))],
)
def argwhere(input: Any) -> Any:
    """`nonzero(input)`: places of the elements that are not zero, shape (count, ndim).

    Example:
        >>> torch.argwhere(torch.tensor([0, 5]))
        tensor([[1]])
    """
    return nonzero(input)


# ------------------------------------------------------------------------------------ masks


@op(where="torch", out="separate")
def _masked_select(self: Tensor, mask: Tensor, total: SymInt) -> Tensor:
    """The elements where the mask is true, in order; mask and tensor broadcast."""
    chosen, x = prims.broadcast_all(mask, self)
    return _selected(x, chosen, total, x is self and _is_contiguous(self))


@op(where="torch")
def _count_mask(self: Tensor, mask: Tensor) -> Tensor:
    """Number of true elements of a mask, broadcast with a tensor."""
    check_mask(mask, "masked_select")
    shape = prims.broadcast_shapes(self.shape, mask.shape)
    flat = prims.reshape(prims.broadcast_to(mask, shape), (prod(shape),))
    return prims.sum(prims.cast(flat, "i64"), axis=0)


def _mask(*shape: int) -> Any:
    return T(*shape, dtype="bool", low=0, high=2, grad=False)


@op(
    "masked_select(Tensor input, Tensor mask) -> Tensor",
    out=True,
    host=True,
    samples=lambda: [
        sample(T(3, 4), _mask(3, 4)),
        sample(T(3, 4), _mask(4)),
        sample(T(3, 1), _mask(4)),
    ],
)
def masked_select(input: Any, mask: Any, *, out: Any = None) -> Any:
    """The elements where the mask is true, as a vector; mask and tensor broadcast.

    Raises:
        RuntimeError: a mask that is not boolean.

    Example:
        >>> torch.tensor([1, 2, 3]).masked_select(torch.tensor([True, False, True]))
        tensor([1, 3])
    """
    if input.is_nested:
        return type(input).masked_select(input, mask, out=out)
    refuse_meta("masked_select", input)
    total = tensors.count_true(mask) if mask.shape == input.shape else None
    if total is None:
        total = int(_count_mask(input.detach(), mask).item())
    return _masked_select(input, mask, total, out=out)


@op(where="torch")
def _masked_slices(self: Tensor, mask: Tensor, total: SymInt) -> Tensor:
    """`self[mask]` for a mask of the leading dimensions with `total` true elements."""
    value = _selected(self, _truth(mask), total, _is_contiguous(self))
    return gathered(value, (), strides_of(self)[mask.ndim :], [((total,), (1,))])


def masked_slices(self: Any, mask: Any) -> Any:
    """`self[mask]` for a mask of the leading dimensions."""
    refuse_meta("index", mask, "nonzero")
    if (total := tensors.count_true(mask)) is None:
        total = int(_count.native(mask).item()) if mask.numel() else 0
    return _masked_slices.native(self, mask, total)


@op(
    inplace=True,
    samples=lambda: [sample(T(3, 4), _mask(3, 4), T(12)), sample(T(3, 4), _mask(4), T(3, 5))],
)
def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements where the mask is true taken from source, in order.

    Raises:
        RuntimeError: a mask that is not boolean, dtypes that differ, or a source with fewer
            elements than the mask has true ones.

    Example:
        >>> x, mask = torch.zeros(3), torch.tensor([True, False, True])
        >>> x.masked_scatter(mask, torch.tensor([5., 6.]))
        tensor([5., 0., 6.])
    """
    check_mask(mask, "masked_scatter")
    if source.dtype != self.dtype:
        problem = "masked_scatter: expected self and source to have same dtypes but got "
        problem += f"{self.dtype} and {source.dtype}"
        raise failure(RuntimeError, "masked_scatter", problem, "convert the source")
    chosen, x = prims.broadcast_all(mask, self)
    count, available = prod(x.shape), prod(source.shape)
    flat = prims.reshape(chosen, (count,))
    rank = prims.where(flat, _ranks(flat), prims.full(0, flat.shape, "i64"))
    short = (
        "[masked_scatter] Number of elements of source < number of ones in mask: {size} "
        "elements\nhint: source needs one element per true one of the mask"
    )
    if isinstance(available, int) and available == 0:
        untrue = prims.check_index(
            prims.cast(chosen, "i64"), 1, "masked_scatter", short.format(size=0), error="runtime"
        )
        return prims.where(untrue > 0, prims.zeros_like(x), connected(x, source))
    places = prims.check_index(rank, available, "masked_scatter", short, error="runtime")
    values = prims.take(prims.reshape(source, (available,)), places, 0)
    return prims.where(chosen, prims.reshape(values, x.shape), x)


# ------------------------------------------------------------------------------------ search


def _search(ordered: Node, values: Node, right: bool, sorter: Node | None) -> Node:
    """First places whose elements are not less (`right`: greater) than the values.

    Powers of two are added to the place while the element before it is less: as many steps as
    the length has binary digits, for all values at once.
    """
    n = ordered.shape[-1]
    flat = prims.reshape(ordered, (prod(ordered.shape),))
    order = None if sorter is None else _checked_order(sorter)
    place = prims.full(0, values.shape, "i64")
    row = prims.full(0, values.shape, "i64")
    if ordered.ndim > 1:
        for d in range(ordered.ndim - 1):
            extent = prims.constant(ordered.shape[d], row)
            row = row * extent + prims.iota(values.shape, d)
        row = row * prims.constant(n, row)
    if isinstance(n, int) and n == 0:
        return place
    limit = prims.constant(n, place)
    step = 1 << (hint(n).bit_length() - 1)
    while not less(n, 2 * step):  # holds already: the guard ties the program to this length
        step *= 2
    while step:
        ahead = place + step
        inside = prims.le(ahead, limit)
        at = row + prims.where(inside, ahead - 1, prims.full(0, place.shape, "i64"))
        if order is not None:
            at = prims.take(order, at, 0)
            at = at + row
        element = prims.take(flat, at, 0)
        beyond = prims.gt(element, values) if right else prims.ge(element, values)
        place = prims.where(inside & prims.bitwise_not(beyond), ahead, place)
        step //= 2
    return place


def _checked_order(sorter: Node) -> Node:
    text = (
        "[searchsorted] torch.searchsorted(): sorter index out of range\n"
        "hint: sorter = boundaries.argsort()"
    )
    flat = prims.reshape(sorter, (prod(sorter.shape),))
    return prims.check_index(
        flat, sorter.shape[-1], "searchsorted", text, error="runtime", strict=True
    )


def insertion_places(ordered: Node, values: Node, right: bool) -> Node:
    """`searchsorted` of nodes of one dtype; `ordered` is a vector."""
    return _search(ordered, values, right, None)


def _check_search(ordered: Node, values: Node, scalar: bool) -> None:
    if scalar and ordered.ndim != 1:
        problem = "torch.searchsorted(): input value can be a scalar only when boundaries tensor "
        problem += f"dimension is 1, but we got boundaries tensor dim({ordered.ndim})"
        raise failure(RuntimeError, "searchsorted", problem, "pass a tensor of values")
    lead = ordered.shape[:-1]
    fits = ordered.ndim == 1 or (
        values.ndim == ordered.ndim
        and all(layout.same(a, b) for a, b in zip(lead, values.shape[:-1], strict=True))
    )
    if not fits:
        problem = "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
        problem += "dimensions of boundaries tensor and input value tensor must match, but we got "
        problem += f"boundaries tensor {shown(ordered.shape)} and input value tensor "
        problem += f"{shown(values.shape)}"
        raise failure(RuntimeError, "searchsorted", problem, "expand the boundaries")


def _check_sorter(ordered: Node, sorter: Node | None) -> None:
    if sorter is None:
        return
    if sorter.dtype != "i64" or not same_sizes(sorter.shape, ordered.shape):
        problem = "torch.searchsorted(): boundary and sorter must have the same size, and sorter "
        problem += f"int64, but got {shown(ordered.shape)} and {shown(sorter.shape)} of "
        problem += f"{sorter.dtype}"
        raise failure(RuntimeError, "searchsorted", problem, "sorter = boundaries.argsort()")


def searched(
    ordered: Node,
    values: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Node | None = None,
) -> Node:
    """Positions as `searchsorted` finds them, for other operators' bodies."""
    scalar = not (isinstance(values, Node) and not values.is_scalar)
    if scalar:
        kind = "f64" if ordered.dtype in ("f16", "bf16", "f32", "f64") else None
        number = values.dtype if isinstance(values, Node) else "f64"
        values = filled(values, (), kind or number)
    _check_search(ordered, values, scalar)
    if not _is_contiguous(ordered):
        late("flambeau.core.warned").warn_once(
            "torch.searchsorted(): boundary tensor is non-contiguous, this will lower the "
            "performance due to an extra copy. This message will only appear once per program."
        )
    _check_sorter(ordered, sorter)
    if side not in (None, "left", "right") or (side == "left" and right):
        problem = f"side and right can't be set to opposites, got side of {side} while right was "
        problem += f"{right}"
        raise failure(RuntimeError, "searchsorted", problem, "side='right' alone")
    if "c64" in (ordered.dtype, values.dtype) or "c128" in (ordered.dtype, values.dtype):
        raise NotImplementedError(
            "[searchsorted] not implemented for complex numbers, which have no order\n"
            "hint: search among real parts or absolute values"
        )
    if ordered.dtype != values.dtype:
        common = "f64" if "f64" in (ordered.dtype, values.dtype) or scalar else None
        common = common or max(ordered.dtype, values.dtype, key=_width)
        ordered, values = prims.cast(ordered, common), prims.cast(values, common)
    result = _search(ordered, values, right or side == "right", sorter)
    return prims.cast(result, "i32") if out_int32 else result


def _width(dtype: str) -> int:
    from flambeau.ir.node import DTYPES

    return DTYPES.index(dtype)


def _search_samples() -> Samples:
    ordered = T(5, values=[-1.5, -0.5, 0.0, 0.5, 1.5], grad=False)
    rows = T(2, 3, values=[[-1.0, 0.0, 1.0], [0.0, 0.5, 1.0]], grad=False)
    yield sample(ordered, T(3, 4, grad=False))
    yield sample(ordered, T(7, grad=False), right=True)
    yield sample(rows, T(2, 4, grad=False), side="right")
    yield sample(ordered, 0.5, out_int32=True)


@op(
    kind="creation",
    out="exact",
    runtime="input",
    samples=_search_samples,
    reference="numpy.searchsorted",
)
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Places where values would be inserted so that the last dimension stays sorted.

    Args:
        right: after equal elements instead of before (also `side="right"`).
        sorter: indices that sort the sequence.

    Raises:
        RuntimeError: leading dimensions that differ, or a number for several sequences.

    Example:
        >>> torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([3, 4]))
        tensor([1, 2])
    """
    return searched(sorted_sequence, input, out_int32, right, side, sorter)


@op(
    out="exact",
    runtime="input",
    differentiable=False,
    samples=lambda: [
        sample(T(3, 4, grad=False), T(3, values=[-1.0, 0.0, 1.0], grad=False)),
        sample(T(3, grad=False), T(3, values=[-1.0, 0.0, 1.0], grad=False), right=True),
    ],
    errors=lambda: [ErrorSample(sample(T(3), T(2, 2)), RuntimeError, "must be 1 dimension")],
)
def bucketize(
    input: Tensor | Scalar, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Numbers of the intervals between sorted boundaries that values fall into.

    Args:
        right: intervals [a, b) instead of (a, b].

    Raises:
        RuntimeError: boundaries of several dimensions.

    Example:
        >>> torch.bucketize(torch.tensor([0.5, 2.5]), torch.tensor([1., 2.]))
        tensor([0, 2])
    """
    if boundaries.ndim != 1:
        problem = f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})"
        raise failure(RuntimeError, "bucketize", problem, "searchsorted takes several sequences")
    return searched(boundaries, input, out_int32, right)
