"""Histograms over given or evenly spaced edges, of one or several dimensions.

A bin holds its left edge and not its right one; the last bin holds both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language import layout
from flambeau.language.definition import op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import insist, unsupported
from flambeau.ops.common import same_sizes, shown, static_size
from flambeau.ops.indexing.search import insertion_places

Pieces = Sequence[Node]


def _error(text: str, hint: str) -> RuntimeError:
    return RuntimeError(f"[histogramdd] torch.histogramdd: {text}\nhint: {hint}")


def _check(x: Node, weight: Node | None) -> None:
    if x.dtype not in ("f32", "f64"):
        raise unsupported("histogramdd", x, "convert to float32 first")
    if weight is None:
        return
    if not same_sizes(weight.shape, x.shape[:-1]):
        raise _error(
            "if weight tensor is provided it should have the same shape as the input tensor "
            f"excluding its innermost dimension, but got input with shape {shown(x.shape)} and "
            f"weight with shape {shown(weight.shape)}",
            "one weight per point",
        )
    if weight.dtype != x.dtype:
        raise _error(
            "if weight tensor is provided, input tensor and weight tensor should have the same "
            f"dtype, but got {x.dtype} and {weight.dtype}",
            "convert the weights",
        )


def _bounds(x: Node, low: float | None, high: float | None, dimension: int) -> tuple[Node, Node]:
    """The range of a vector's bins: as given, or the extremes; a single point gets a half."""
    if low is not None and high is not None:
        if not (math.isfinite(low) and math.isfinite(high)):
            raise _error(f"dimension {dimension}'s range [{low}, {high}] is not finite", "bounds")
        if low > high:
            raise _error(
                f"min should not exceed max, but got min {low} max {high} for dimension "
                f"{dimension}",
                "range=(least, greatest)",
            )
        first, last = prims.full(low, (), x.dtype), prims.full(high, (), x.dtype)
    elif layout.same(x.shape[0], 0):
        first, last = prims.full(0, (), x.dtype), prims.full(1, (), x.dtype)
    else:
        first, last = prims.min(x, 0), prims.max(x, 0)
        spoilt = ~prims.lt(prims.abs(last - first), prims.full(math.inf, (), x.dtype))
        text = (
            f"[histogramdd] torch.histogramdd: dimension {dimension}'s range is not "
            "finite\nhint: give range=(least, greatest)"
        )
        first = insist(first, spoilt, "histogramdd", text)
    same = prims.eq(first, last)
    return prims.where(same, first - 0.5, first), prims.where(same, last + 0.5, last)


def _spaced(first: Node, last: Node, bins: int, dimension: int) -> Node:
    """bins + 1 edges, symmetrical from both ends as `linspace`'s numbers are."""
    if bins <= 0:
        problem = f"torch.histogram(): bins must be > 0, but got {bins} for dimension {dimension}"
        raise failure(RuntimeError, "histogram", problem, "a number of parts")
    index = prims.iota((bins + 1,), 0)
    low, high = (prims.broadcast_to(end, index.shape) for end in (first, last))
    step = (high - low) * (1 / bins)
    ahead = low + prims.cast(index, low.dtype) * step
    behind = high - prims.cast(prims.full(bins, index.shape, "i64") - index, low.dtype) * step
    return prims.where(index < (bins + 1) // 2, ahead, behind)


def _given_edges(x: Node, edges: Node, dimension: int) -> Node:
    if edges.dtype != x.dtype:
        raise _error(
            "input tensor and bins tensors should have the same dtype, but got input with dtype "
            f"{x.dtype} and bins for dimension {dimension} with dtype {edges.dtype}",
            "convert the edges",
        )
    if edges.ndim != 1 or layout.same(edges.shape[0], 0):
        raise _error(
            f"bins tensor should have one dimension, but got {edges.ndim} dimensions in the bins "
            f"tensor for dimension {dimension}",
            "the edges of the bins in increasing order",
        )
    return edges


def _counted(x: Node, edges: Pieces, weight: Node | None, density: bool) -> Node:
    """Sums of the weights of the points (rows of x) per bin."""
    counts = [static_size(e.shape[0]) - 1 for e in edges]
    total = math.prod(counts)
    points = x.shape[:1]
    place, inside = prims.full(0, points, "i64"), prims.full(True, points, "bool")
    for d, (edge, count) in enumerate(zip(edges, counts, strict=True)):
        values = prims.squeeze(prims.slice(x, 1, d, 1), 1)
        bin_index = insertion_places(edge, values, True) - 1
        first, last = (
            prims.broadcast_to(prims.squeeze(prims.slice(edge, 0, at, 1), 0), points)
            for at in (0, count)
        )
        inside = inside & (values >= first) & (values <= last)
        place = place * count + prims.minimum(bin_index, prims.full(count - 1, points, "i64"))
    place = prims.where(inside, place, prims.full(total, points, "i64"))
    source = prims.full(1, points, x.dtype) if weight is None else weight
    base = prims.full(0, (total + 1,), x.dtype)
    hist = prims.slice(prims.take_add(base, place, source, 0), 0, 0, total)
    hist = prims.reshape(hist, tuple(counts))
    return _density(hist, edges, counts) if density else hist


def _density(hist: Node, edges: Pieces, counts: Sequence[int]) -> Node:
    """Shares of the sum per unit of volume."""
    flat = prims.reshape(hist, (math.prod(counts),))
    result = hist / prims.broadcast_to(prims.sum(flat, 0), hist.shape)
    for d, (edge, count) in enumerate(zip(edges, counts, strict=True)):
        widths = prims.slice(edge, 0, 1, count) - prims.slice(edge, 0, 0, count)
        result = result / prims.broadcast(widths, hist.shape, (d,))
    return result


def _flat(x: Node, weight: Node | None) -> tuple[Node, Node | None]:
    """Points as rows of coordinates, and their weights as a vector."""
    count = layout.numel(x.shape[:-1])
    _check(x, weight)
    if weight is not None:
        weight = prims.reshape(weight, (count,))
    return prims.reshape(x, (count, x.shape[-1])), weight


# ------------------------------------------------------------------------------------ vectors


def _samples() -> Iterator[Sample]:
    yield sample(T(17, grad=False), 5)
    yield sample(T(3, 4, grad=False), 4, range=(-1.0, 1.5), density=True)
    yield sample(T(3, 4, grad=False), 4, weight=T(3, 4, low=0.5, grad=False))
    yield sample(T(17, grad=False), T(4, values=[-1.0, 0.0, 0.25, 1.0], grad=False))
    yield sample(T(0, grad=False), 3)


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(4), 0), RuntimeError, "bins must be > 0")
    yield ErrorSample(sample(T(4), 3, range=(2.0, 1.0)), RuntimeError, "min should not exceed")
    yield ErrorSample(sample(T(4), T(2, 2)), RuntimeError, "one dimension")
    yield ErrorSample(sample(T(4), 3, weight=T(3)), RuntimeError, "same shape")


_REST = "Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)"


@op(
    f"histogram(Tensor self, int bins=100, *, float[]? range=None, {_REST}",
    out="exact",
    differentiable=False,
    samples=_samples,
    errors=_errors,
    dtypes="f32 f64",
    varying=True,
)
def histogram(
    self: Node, bins: int, range: Sequence[float] | None, weight: Node | None, density: bool
) -> tuple[Node, Node]:
    """How many elements fall into each bin, and the bins' edges.

    Args:
        bins: how many equal parts, or a vector of edges in increasing order.
        range: (least, greatest) edge; the extremes of the data when None.
        weight: what each element counts, of the tensor's shape.
        density: shares per unit of width instead of counts.

    Raises:
        RuntimeError: no bins, a range that is not finite or reversed, or shapes that differ.
        NotImplementedError: neither float32 nor float64.

    Example:
        >>> torch.histogram(torch.tensor([0.0, 1.0, 1.5, 2.0]), 2).hist
        tensor([1., 3.])
    """
    x, weights = _flat(prims.unsqueeze(self, self.ndim), weight)
    low, high = _pair(range)
    values = prims.squeeze(x, 1)
    edges = _spaced(*_bounds(values, low, high, 0), bins, 0)
    return _counted(x, [edges], weights, density), edges


@histogram.overload(f"histogram.bins_tensor(Tensor self, Tensor bins, *, {_REST}", samples=None)
def _histogram_edges(
    self: Node, bins: Node, weight: Node | None, density: bool
) -> tuple[Node, Node]:
    x, weights = _flat(prims.unsqueeze(self, self.ndim), weight)
    edges = _given_edges(x, bins, 0)
    return _counted(x, [edges], weights, density), edges


def _pair(range: Sequence[float] | None) -> tuple[float | None, float | None]:
    if range is None:
        return None, None
    if len(range) != 2:
        raise _error(
            f"for a 1-dimensional histogram range should have 2 elements, but got {len(range)}",
            "range=(least, greatest)",
        )
    return float(range[0]), float(range[1])


# ------------------------------------------------------------------------------------ points


def _edges_samples() -> Iterator[Sample]:
    yield sample(T(5, 3, 2, grad=False), [3, 3], range=(-1.0, 1.0, -2.0, 1.5))


@op(kind="creation", out=False, samples=_edges_samples)
def _histogramdd_bin_edges(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    """The edges of evenly spaced bins for each coordinate of points (..., coordinates)."""
    x, _ = _flat(self, None)
    edges = []
    for d, count in enumerate(bins):
        low, high = (None, None) if range is None else range[2 * d : 2 * d + 2]
        values = prims.squeeze(prims.slice(x, 1, d, 1), 1)
        edges.append(_spaced(*_bounds(values, low, high, d), count, d))
    return edges


@op(
    kind="creation",
    out=False,
    samples=lambda: [sample(T(9, 2, grad=False), [T(3, values=[-1.0, 0.0, 1.0], grad=False)] * 2)],
)
def _histogramdd_from_bin_tensors(
    self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """Weights of points (..., coordinates) per bin."""
    x, weights = _flat(self, weight)
    return _counted(x, [_given_edges(x, b, d) for d, b in enumerate(bins)], weights, density)


def _points_samples() -> Iterator[Sample]:
    yield sample(T(17, 2, grad=False), [3, 4])
    yield sample(T(5, 3, 2, grad=False), 3, range=(-1.0, 1.0, -2.0, 1.5), density=True)
    edges = T(3, values=[-1.0, 0.0, 1.0], grad=False)
    yield sample(T(9, 2, grad=False), [edges, edges], weight=T(9, low=0.5, grad=False))


def _points_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(4), [2]), RuntimeError, "at least 2 dimensions")
    yield ErrorSample(sample(T(4, 2), [2]), RuntimeError, "size of bins")


def points_result() -> Any:
    """The type of the results: its second field is a list, which no schema of an op can say."""
    return tensors.struct_sequence("histogramdd", ("hist", "bin_edges"))


@op(
    "histogramdd(Tensor input, object bins) -> (Tensor...)",
    where="torch",
    host=True,
    samples=_points_samples,
    errors=_points_errors,
    dtypes="f32 f64",
)
def histogramdd(
    input: Any,
    bins: Any,
    range: Sequence[float] | None = None,
    weight: Any = None,
    density: bool = False,
) -> Any:
    """How many points fall into each bin of a grid, and the grid's edges.

    Args:
        input: points (..., coordinates).
        bins: parts per coordinate (one number for all), or a vector of edges for each.
        range: least and greatest edge of each coordinate in turn; the data's extremes when None.
        weight, density: see `histogram`.

    Raises:
        RuntimeError: sizes that do not fit, no bins, or a range that is not finite.
        NotImplementedError: neither float32 nor float64.

    Example:
        >>> points = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> torch.histogramdd(points, bins=[2, 2]).hist
        tensor([[0., 1.],
                [1., 1.]])
    """
    if input.ndim < 2:
        raise _error("input tensor should have at least 2 dimensions", "(points, coordinates)")
    count = input.shape[-1]
    bins_per_dim = [bins] * count if isinstance(bins, int) else list(bins)
    if len(bins_per_dim) != count:
        problem = "histogramdd: The size of bins must be equal to the innermost dimension of the "
        problem += f"input: {len(bins_per_dim)} and {count}"
        raise failure(RuntimeError, "histogramdd", problem, "one number or vector per coordinate")
    if range is not None and len(range) != 2 * count:
        raise _error(
            f"for a {count}-dimensional histogram range should have {2 * count} elements, but got "
            f"{len(range)}",
            "(least, greatest) of each coordinate in turn",
        )
    edges = bins_per_dim
    if all(isinstance(item, int) for item in bins_per_dim):
        edges = _histogramdd_bin_edges(input, bins_per_dim, range=range)
    counts = _histogramdd_from_bin_tensors(input, edges, weight=weight, density=density)
    return points_result()((counts, tuple(edges)))
