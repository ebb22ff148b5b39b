"""Distinct elements: results whose size is known only when the data are.

Two programs with a look at the data between them: the first orders the elements and numbers the
groups of equals, the second gathers the groups once their number is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language import layout
from flambeau.language.definition import function, op
from flambeau.language.dtypes import object_of
from flambeau.language.no_data import refuse_meta
from flambeau.language.promotion import compute_dtype, result_type
from flambeau.language.samples import Sample, T, sample
from flambeau.language.schema import Scalar, SymInt, Tensor
from flambeau.ops.broadcasting import participant
from flambeau.ops.common import normalise_dim
from flambeau.ops.indexing.sorting import sortable
from flambeau.ops.reduction.extremes import ordered


@op(name="_unique_ranks", where="method", differentiable=False)
def unique_ranks(self: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A vector in groups of equals: elements in order, their groups, each element's group."""
    values, places = prims.sort(sortable(ordered("unique", self)), 0)
    ranks = _run_numbers(prims.ne(values, _previous(values)))
    group = prims.scatter(prims.zeros_like(ranks), places, ranks, 0, "set")
    return [prims.cast(sortable(values, self.dtype), self.dtype), ranks, group]


@op(name="_run_numbers", where="method", differentiable=False)
def run_numbers(self: Tensor) -> Tensor:
    """The number of the run of equals that each element of a vector belongs to."""
    x = ordered("unique_consecutive", self)
    return _run_numbers(prims.ne(x, _previous(x)))


def _previous(x: Node) -> Node:
    """The element (or row) before each one; 0 before the first."""
    low = [1] + [0] * (x.ndim - 1)
    return prims.pad(x, low, [-n for n in low], prims.full(0, (), x.dtype))


def _run_numbers(changed: Node) -> Node:
    """How many runs began before each place; what is said of the first one does not count."""
    position = prims.iota(changed.shape, 0)
    starts = changed & prims.ne(position, prims.zeros_like(position))
    return prims.cumsum(prims.cast(starts, "i64"), 0)


@op(name="_unique_groups", where="method", differentiable=False)
def unique_groups(self: Tensor, ranks: Tensor, total: SymInt) -> Tensor:
    """One element of each group."""
    return prims.scatter(prims.full(0, (total,), self.dtype), ranks, self, 0, "set")


@op(name="_unique_counts", where="method", differentiable=False)
def unique_counts(ranks: Tensor, total: SymInt) -> Tensor:
    """The groups' sizes."""
    ones = prims.full(1, ranks.shape, "i64")
    return prims.scatter(prims.full(0, (total,), "i64"), ranks, ones, 0, "add")


@op(name="_row_starts", where="method", differentiable=False)
def row_starts(self: Tensor) -> Tensor:
    """The number of the run of equal rows that each row of a matrix belongs to."""
    x = ordered("unique_consecutive", self)
    return _run_numbers(prims.any(prims.ne(x, _previous(x)), 1))


def _total(ranks: Any, inner: str) -> int:
    refuse_meta("unique", ranks, inner)
    return int(ranks[-1].item()) + 1 if ranks.numel() else 0


def _selected(output: Any, inverse: Any, ranks: Any, total: int, wants: tuple[bool, bool]) -> Any:
    results = [output]
    if wants[0]:
        results.append(inverse)
    if wants[1]:
        results.append(unique_counts(ranks, total))
    return tuple(results) if len(results) > 1 else output


def _flat_unique(x: Any, sort: bool, wants: tuple[bool, bool]) -> Any:
    flat = x.reshape(-1)
    if sort:
        values, ranks, group = unique_ranks(flat)
    else:
        ranks = group = run_numbers(flat)
        values = flat
    total = _total(ranks, "_unique2" if sort else "unique_consecutive")
    output = unique_groups(values, ranks, total)
    return _selected(output, group.reshape(tuple(x.shape)), ranks, total, wants)


def _row_groups(rows: Any) -> Any:
    """The rank of each row in lexicographic order; columns refine the ranks one after the other."""
    size = rows.shape[0]
    group = unique_ranks(rows[:, 0].contiguous())[2]
    for column in range(1, rows.shape[1]):
        finer = unique_ranks(rows[:, column].contiguous())[2]
        group = unique_ranks(group * size + finer)[2]
    return group


def _rows_unique(x: Any, dim: int, sort: bool, wants: tuple[bool, bool]) -> Any:
    axis = normalise_dim(dim, x.dim(), "unique")
    moved = x.movedim(axis, 0)
    if not x.shape[axis] and all(n for d, n in enumerate(x.shape) if d != axis):
        nothing = x.new_empty(0, dtype=object_of("i64"))
        results = [x.new_empty(tuple(x.shape)), *[nothing] * wants[0], *[nothing] * wants[1]]
        return tuple(results) if len(results) > 1 else results[0]
    rows = moved.reshape(moved.shape[0], math.prod(moved.shape[1:]))
    if not rows.numel():
        problem = "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
        problem += "applied"
        raise failure(RuntimeError, "unique", problem, "the tensor has no elements")
    group = _row_groups(rows) if sort else row_starts(rows)
    ranks = unique_ranks(group)[1] if sort else group
    total = _total(ranks, "unique_dim" if sort else "unique_consecutive")
    last = unique_groups(group.argsort(stable=True) if sort else _places(group), ranks, total)
    output = moved.index_select(0, last).movedim(0, axis)
    return _selected(output, group, ranks, total, wants)


def _places(x: Any) -> Any:
    from flambeau.core.install import namespace

    return namespace("torch")["arange"](x.shape[0])


def _samples() -> Iterator[Sample]:
    numbers = T(9, dtype="i64", low=0, high=5)
    yield sample(numbers)
    yield sample(numbers, return_inverse=True, return_counts=True)
    yield sample(T(3, 4, dtype="i64", low=0, high=3), return_inverse=True)
    yield sample(T(5, values=[2.0, 1.0, 2.0, 3.0, 1.0]))
    yield sample(T(6, 2, dtype="i64", low=0, high=2), dim=0, return_inverse=True)
    yield sample(T(2, 6, dtype="i64", low=0, high=2), dim=1, return_counts=True)
    yield sample(T(0))
    yield sample(T(5, dtype="bool"))


@function(samples=_samples, reference="numpy.unique")
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements (or slices along `dim`), in order; `sorted=False` sorts all the same.

    With `return_inverse` also the place of every element in the result, with `return_counts` how
    often each occurred. NaN differs from every element.

    Raises:
        RuntimeError: slices of an empty tensor.

    Example:
        >>> torch.unique(torch.tensor([3, 1, 3]))
        tensor([1, 3])
    """
    wants = (return_inverse, return_counts)
    if dim is None:
        return _flat_unique(input, True, wants)
    return _rows_unique(input, dim, True, wants)


@function(samples=_samples)
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """One element (or slice along `dim`) of every run of equals, in the order they stand.

    Example:
        >>> torch.unique_consecutive(torch.tensor([1, 1, 2, 1]))
        tensor([1, 2, 1])
    """
    wants = (return_inverse, return_counts)
    if dim is None:
        return _flat_unique(input, False, wants)
    return _rows_unique(input, dim, False, wants)


# ------------------------------------------------------------------------------- membership

_FEW = 256  # up to so many test elements every pair is compared


def _member_samples() -> Iterator[Sample]:
    numbers = T(3, 4, dtype="i64", low=0, high=6)
    yield sample(numbers, T(3, dtype="i64", low=0, high=6))
    yield sample(numbers, T(2, 2, dtype="i64", low=0, high=6), invert=True)
    yield sample(numbers, T(300, dtype="i64", low=4, high=90))
    yield sample(numbers, 3)
    yield sample(T(0), T(3))
    yield sample(T(3), T(0))


@op(where="torch", out="exact", samples=_member_samples, reference="numpy.isin")
def isin(
    elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each element is among the test elements (with `invert`: whether it is not).

    Few test elements are compared with every element, many are sorted and searched.

    Example:
        >>> torch.isin(torch.tensor([1, 2, 3]), torch.tensor([2]))
        tensor([False,  True, False])
    """
    for side in (elements, test_elements):
        if side.dtype == "bool":
            problem = "Unsupported input type encountered for isin(): Bool"
            raise failure(RuntimeError, "isin", problem, "convert masks to integers")
    common = result_type([participant(elements), participant(test_elements)])
    x = prims.cast(ordered("isin", elements), "u8" if common == "bool" else compute_dtype(common))
    tests = prims.cast(ordered("isin", test_elements), x.dtype)
    tests = prims.reshape(tests, (layout.numel(tests.shape),))
    count = tests.shape[0]
    if less(count, _FEW):
        shape = (*x.shape, count)
        pairs = prims.eq(
            prims.broadcast(x, shape, range(x.ndim)), prims.broadcast(tests, shape, [x.ndim])
        )
        member = prims.any(pairs, x.ndim)
    else:
        from flambeau.ops.indexing.search import searchsorted

        values = prims.sort(tests, 0)[0]
        place = prims.cast(searchsorted(values, x), "i64")
        place = prims.minimum(place, prims.broadcast_to(prims.size(count - 1), x.shape))
        member = prims.eq(prims.take(values, place, 0), x)
    return ~member if invert else member


@isin.overload(
    runtime="test_element",
)
def _isin_scalar(
    elements: Tensor, test_element: Scalar, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    from flambeau.ops.pointwise.compare import eq, ne

    return ne(elements, test_element) if invert else eq(elements, test_element)


@isin.overload(
    runtime="element",
)
def _isin_element(
    element: Scalar, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    from flambeau.ops.pointwise.compare import eq

    pairs = eq(test_elements, element)
    member = prims.any(prims.reshape(pairs, (layout.numel(pairs.shape),)), 0)
    return ~member if invert else member
