"""Reductions of segments of a dimension, and pieces of several tensors side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language import layout
from flambeau.language.definition import op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import is_float, unsupported
from flambeau.ops.common import normalise_dim, same_sizes, shown, static_size

_REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}
_REDUCTIONS |= {"amax": "max", "amin": "min"}
_EMPTY = {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}


def _samples() -> Iterator[Sample]:
    lengths = T(3, dtype="i64", values=[2, 1, 2], grad=False)
    for reduce in ("sum", "mean", "max", "min", "prod"):
        yield sample(T(5, 2), reduce, lengths=lengths)
    gap = T(3, dtype="i64", values=[2, 0, 3], grad=False)
    yield sample(T(5, grad=False), "mean", lengths=gap)
    yield sample(T(5), "mean", lengths=gap, initial=1.5)
    rows = T(2, 2, dtype="i64", values=[[2, 3], [1, 4]], grad=False)
    yield sample(T(2, 5, 3), "max", lengths=rows, axis=1)
    yield sample(T(5), "sum", offsets=T(3, dtype="i64", values=[1, 2, 4], grad=False))
    yield sample(T(5), "max", lengths=T(2, dtype="i64", values=[2, 1], grad=False), unsafe=True)


def _errors() -> Iterator[ErrorSample]:
    lengths = T(2, dtype="i64", values=[2, 1], grad=False)
    yield ErrorSample(sample(T(5), "sum"), RuntimeError, "must be defined")
    yield ErrorSample(sample(T(5), "middle", lengths=lengths), RuntimeError, "reduce argument")
    yield ErrorSample(sample(T(5), "sum", lengths=lengths), RuntimeError, "to sum to data.size")
    yield ErrorSample(sample(T(5), "sum", lengths=lengths, axis=1), IndexError, "out of range")


def _error(text: str, hint: str) -> RuntimeError:
    return RuntimeError(f"[segment_reduce] segment_reduce(): {text}\nhint: {hint}")


def _checked_rows(data: Node, ends: Node, axis: int, dim: int) -> int:
    d = normalise_dim(dim, data.ndim, "segment_reduce")
    if ends.dtype not in ("i64", "i32"):
        raise unsupported("segment_reduce", ends, "lengths and offsets are int64 or int32")
    if ends.ndim != d + 1 or not same_sizes(ends.shape[:-1], data.shape[:d]):
        raise _error(
            f"Expected axis to be the last dimension of lengths but got {axis}, for lengths of "
            f"shape {shown(ends.shape)} and data of shape {shown(data.shape)}",
            "lengths has the sizes of data in front of the axis",
        )
    return d


def _bounds(limits: Node, offsets: bool, extent: Size, unsafe: bool) -> tuple[Node, Node]:
    """Where each segment begins and ends: two matrices (rows, segments)."""
    if offsets:
        count = limits.shape[-1] - 1
        return prims.slice(limits, 1, 0, count), prims.slice(limits, 1, 1, count)
    if layout.same(limits.shape[-1], 0):
        return limits, limits
    ends = prims.cumsum(limits, 1)
    if not unsafe:
        fault = _fault(limits, extent)
        ends = ends + prims.broadcast(fault, ends.shape, (0,))
    return ends - limits, ends


def _fault(lengths: Node, extent: Size) -> Node:
    """Zeros, one per row; refused at run time where lengths are negative or miss the size."""
    total = prims.sum(lengths, 1)
    wrong = prims.ne(total, prims.constant(extent, total)) | (prims.min(lengths, 1) < 0)
    text = (
        "[segment_reduce] segment_reduce(): Expected all rows of lengths along axis to sum "
        "to data.size(lengths.dim()-1) when !unsafe, without negative ones.\n"
        "hint: one length per segment, none negative"
    )
    return prims.check_index(prims.cast(wrong, "i64"), 1, "segment_reduce", text, error="runtime")


def _segment_of(begins: Node, ends: Node, extent: Size) -> Node:
    """The segment of each element, (rows, extent); one too many where there is none."""
    rows, count = ends.shape
    row = prims.iota((rows, count), 0)
    marks = prims.full(0, (rows, extent + 1), "i64")
    one = prims.full(1, (rows, count), "i64")

    def passed(places: Node) -> Node:
        limit = prims.constant(extent, places)
        inside = prims.minimum(prims.maximum(places, prims.zeros_like(places)), limit)
        marked = prims.put_nd(marks, (row, inside), one, (0, 1), "add")
        return prims.slice(prims.cumsum(marked, 1), 1, 0, extent)

    ended = passed(ends)
    outside = prims.le(passed(begins), ended)
    return prims.where(outside, prims.constant(count, ended), ended)


@op(where="torch", aliases="_segment_reduce", samples=_samples, errors=_errors)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reduces consecutive parts of a dimension, each to one element.

    As in PyTorch a half type adds up in itself, element by element.

    Args:
        data: (*rows, elements, *rest), the elements along `axis`.
        reduce: "sum", "mean", "max", "min" or "prod".
        lengths: (*rows, segments), of the segments, which cover the axis; or
        offsets: (*rows, segments + 1), where they begin, and where the last one ends.
        unsafe: does not check that lengths sum to the size of the axis.
        initial: what each segment's reduction starts from. Without it an empty segment gives what
            changes nothing (0, 1, -inf, inf), and NaN for "mean".

    Raises:
        RuntimeError: an unknown reduction, neither lengths nor offsets, or lengths that do not fit.
        NotImplementedError: data that is not floating-point.

    Example:
        >>> torch.segment_reduce(torch.arange(5.0), "sum", lengths=torch.tensor([2, 3]))
        tensor([1., 9.])
    """
    mode = _REDUCTIONS.get(reduce)
    if mode is None:
        raise _error(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}", "sum"
        )
    segments = offsets if lengths is None else lengths
    if segments is None or indices is not None:
        raise _error(
            "Either lengths or offsets must be defined; indices based reduction is not supported.",
            "lengths=...",
        )
    if not is_float(data):
        raise unsupported("segment_reduce", data, "convert to float32 first")
    d = _checked_rows(data, segments, axis, axis)
    rows, extent, trailing = layout.numel(data.shape[:d]), data.shape[d], data.shape[d + 1 :]
    flat = prims.cast(prims.reshape(segments, (rows, segments.shape[-1])), "i64")
    begins, ends = _bounds(flat, lengths is None, extent, unsafe)
    segment = _segment_of(begins, ends, extent)
    count = ends.shape[-1]
    start = _EMPTY[mode] if initial is None else initial
    x = prims.reshape(data, (rows, extent, layout.numel(trailing)))
    base = prims.full(start, (rows, count + 1, x.shape[2]), x.dtype)
    places = (prims.iota(segment.shape, 0), segment)
    reduced = prims.slice(prims.put_nd(base, places, x, (0, 1), mode), 1, 0, count)
    if reduce == "mean":
        reduced = _mean(reduced, ends - begins, initial)
    return prims.reshape(reduced, (*segments.shape[:-1], count, *trailing))


def _mean(total: Node, lengths: Node, initial: float | None) -> Node:
    size = prims.broadcast(lengths, total.shape, (0, 1))
    none = prims.eq(size, prims.zeros_like(size))
    divisor = prims.cast(prims.maximum(size, prims.full_like(1, size)), total.dtype)
    result = total / divisor
    return (
        prims.where(none, prims.full_like(math.nan, result), result) if initial is None else result
    )


# ------------------------------------------------------------------------------------ pieces


@op(
    where="torch",
    out="join",
    samples=lambda: [sample([T(3, 2), T(5, 4)], 0, 2), sample([T(3, 2), T(3, 3)], 1, 2)],
    errors=lambda: [ErrorSample(sample([T(3)], 0, 0), RuntimeError, "positive num_chunks")],
    varying=True,
)
def _chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Tensor:
    """Each tensor's dimension filled up by zeros and cut into chunks; equal chunks side by side.

    The result is (*sizes before dim, num_chunks, elements of a chunk of all tensors).

    Raises:
        RuntimeError: no tensors, an empty one, or different dtypes or sizes in front of `dim`.

    Example:
        >>> torch._chunk_cat([torch.ones(3), torch.ones(2)], 0, 2)
        tensor([[1., 1., 1.],
                [1., 0., 1.]])
    """
    if not tensors or num_chunks < 1:
        problem = "_chunk_cat expects a non-empty input tensor list and positive num_chunks, got "
        problem += f"{num_chunks}"
        raise failure(RuntimeError, "_chunk_cat", problem, "at least one of both")
    if not all(-x.ndim <= dim < x.ndim for x in tensors):
        problem = f"_chunk_cat expects dim < ndim for all input tensors, got dim={dim}"
        raise failure(RuntimeError, "_chunk_cat", problem, "unsqueeze them")
    lead = tensors[0].shape[: normalise_dim(dim, tensors[0].ndim, "_chunk_cat")]
    pieces = []
    for x in tensors:
        d = normalise_dim(dim, x.ndim, "_chunk_cat")
        if x.dtype != tensors[0].dtype or not same_sizes(x.shape[:d], lead):
            problem = "_chunk_cat expects same sizes of 0,...,dim-1 dimensions and the same dtype "
            problem += "for all tensors"
            raise failure(RuntimeError, "_chunk_cat", problem, "convert them")
        extent = static_size(x.shape[d])
        if layout.same(layout.numel(x.shape), 0):
            raise RuntimeError("[_chunk_cat] _chunk_cat expects non-empty tensor\nhint: drop it")
        high = [0] * x.ndim
        high[d] = -extent % num_chunks
        padded = prims.pad(x, (0,) * x.ndim, tuple(high))
        inner = layout.numel(((extent + high[d]) // num_chunks, *x.shape[d + 1 :]))
        pieces.append(prims.reshape(padded, (*lead, num_chunks, inner)))
    return prims.cat(pieces, len(lead) + 1)
