"""What `random_calls` calls: families of operators whose kernels compute indices, one function
each, which chooses operands and arguments and makes one call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as torch
from tests.sanitize.random_calls import Case, backward, forward

F = torch.nn.functional
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def both(case: Case, call: Callable[..., Any], *operands: Any, out: int = 0) -> None:
    """Forward alone, perhaps with `out`, or forward and backward."""
    if any(x.requires_grad for x in operands) and case.chance(0.7):
        backward(case, call, *operands)
        return
    with torch.no_grad():
        forward(case, call, out)


def image(case: Case, count: int, dtype: Any = None, channels: int = 3) -> Any:
    """(N, C, *S) or (C, *S)."""
    high = {1: 40, 2: 12, 3: 7}[count]
    while True:
        spatial = [case.size(1, high) for _ in range(count)]
        lead = [case.size(1, channels) for _ in range(case.pick(1, 2, 2))]
        if math.prod(lead + spatial) <= 4000:
            break
    kind = case.real() if dtype is None else dtype
    grad = kind.is_floating_point and case.chance(0.6)
    return case.tensor(*lead, *spatial, dtype=kind, grad=grad)


# ------------------------------------------------------------------------------------ pooling


def avg_pool(case: Case) -> None:
    """Means over windows, 1-d to 3-d."""
    count = case.random.randint(1, 3)
    x = image(case, count)
    function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[count - 1]
    options: dict[str, Any] = {"ceil_mode": case.flag(), "count_include_pad": case.flag()}
    if count > 1 and case.chance(0.3):
        options["divisor_override"] = case.number(1, 9)
    kernel = case.numbers(count, 1, 4)
    stride = case.pick(None, case.numbers(count, 1, 4))
    padding = case.numbers(count, 0, 2)
    both(case, lambda **o: function(x, kernel, stride, padding, **options, **o), x, out=count > 1)


def max_pool(case: Case) -> None:
    """Maxima over windows and their indices, 1-d to 3-d."""
    count = case.random.randint(1, 3)
    x = image(case, count, dtype=torch.int64 if case.chance(0.1) else None)
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[count - 1]
    options = {"ceil_mode": case.flag(), "return_indices": case.flag()}
    windows = (
        case.numbers(count, 1, 4), case.pick(None, case.numbers(count, 1, 4)),
        case.numbers(count, 0, 2), case.numbers(count, 1, 3),
    )  # fmt: skip
    both(case, lambda: function(x, *windows, **options), x)


def adaptive_pool(case: Case) -> None:
    """Windows that follow from the result's size."""
    count = case.random.randint(1, 3)
    x = image(case, count)
    means = case.flag()
    name = f"adaptive_{'avg' if means else 'max'}_pool{count}d"
    size = case.numbers(count, 1, 9)
    options = {} if means else {"return_indices": case.flag()}
    both(case, lambda: getattr(F, name)(x, size, **options), x)


def lp_pool(case: Case) -> None:
    """Norms over windows."""
    count = case.random.randint(1, 3)
    x = image(case, count)
    norm = case.pick(1.0, 2.0, 3.0, 0.5, math.inf)
    windows = case.numbers(count, 1, 4), case.pick(None, case.numbers(count, 1, 4)), case.flag()
    both(case, lambda: getattr(F, f"lp_pool{count}d")(x, norm, *windows), x)


def fractional_pool(case: Case) -> None:
    """Windows at random positions."""
    count = case.pick(2, 3)
    x = image(case, count)
    kernel = case.numbers(count, 1, 3)
    options: dict[str, Any] = {"return_indices": case.flag()}
    if case.flag():
        options["output_size"] = case.numbers(count, 1, 6)
    else:
        options["output_ratio"] = case.pick(0.5, 0.9, (0.3,) * count, 1.0, 1e-9, math.nan)
    if case.flag():
        samples = [case.pick(0.0, 0.5, 0.999999, 1.0) for _ in range(x.shape[-count - 1] * count)]
        drawn = torch.tensor(samples).reshape(-1, count)
        batch = x.shape[0] if x.ndim == count + 2 else 1
        options["_random_samples"] = drawn.expand(batch, *drawn.shape).to(x.dtype)
    call = getattr(F, f"fractional_max_pool{count}d")
    both(case, lambda: call(x, kernel, **options), x)


def unpool(case: Case) -> None:
    """Values put back at the indices of maxima."""
    count = case.random.randint(1, 3)
    x = image(case, count)
    kernel, stride = case.numbers(count, 1, 3), case.pick(None, case.numbers(count, 1, 3))
    padding = case.numbers(count, 0, 1)
    size = [case.size(1, 9) for _ in range(count)] if case.chance(0.3) else None
    extent = math.prod(x.shape[-count:]) * case.pick(1, 2, 4)
    places = case.index(*x.shape, below=extent, wrong=0.05)
    call = getattr(F, f"max_unpool{count}d")
    both(case, lambda: call(x, places, kernel, stride, padding, size), x)


def max_pool_gradient(case: Case) -> None:
    """The gradient of pooling as an operator of its own, with indices of any kind."""
    x = image(case, 2, dtype=torch.float32).detach()
    windows = 2, case.number(1, 3), case.number(0, 1), case.number(1, 2), case.flag()
    pooled, places = F.max_pool2d_with_indices(x, *windows)
    if case.chance(0.3):
        places = case.index(*places.shape, below=x.shape[-1] * x.shape[-2])
    gradient = case.tensor(*pooled.shape, dtype=torch.float32)
    call = torch.ops.aten.max_pool2d_with_indices_backward
    forward(case, lambda: call(gradient, x, *windows, places))


# ------------------------------------------------------------------------------------ windows


def unfold(case: Case) -> None:
    """Sliding windows of a tensor and of images, and their sums."""
    kind = case.pick("tensor", "images", "fold", "fold")
    kernel, dilation = case.numbers(2, 1, 3), case.numbers(2, 1, 2)
    padding, stride = case.numbers(2, 0, 2), case.numbers(2, 1, 3)
    if kind == "tensor":
        x = case.tensor(*case.shape(), dtype=case.real(), grad=True)
        d = case.number(-x.ndim, x.ndim - 1)
        size, step = case.number(0, 4), case.number(1, 3)
        both(case, lambda: x.unfold(d, size, step).clone(), x)
    elif kind == "images":
        x = image(case, 2)
        both(case, lambda: F.unfold(x, kernel, dilation, padding, stride), x)
    else:
        size = case.numbers(2, 1, 7)
        pairs = [(n, n) if isinstance(n, int) else n for n in (size, kernel, dilation, padding)]
        steps = (stride, stride) if isinstance(stride, int) else stride
        counts = [
            max(0, (s + 2 * p - d * (k - 1) - 1) // t + 1) if t > 0 else 0
            for s, k, d, p, t in zip(*pairs, steps, strict=True)
        ]
        places = min(math.prod(counts), 100) + (case.chance(0.03))
        area = min(abs(math.prod(pairs[1])), 16)
        shape = (case.size(1, 2), 2 * area, places)[case.pick(0, 0, 1) :]
        x = case.tensor(*shape, dtype=case.real(), grad=True)
        both(case, lambda: F.fold(x, size, kernel, dilation, padding, stride), x)


def pad(case: Case) -> None:
    """Every mode; negative widths, too."""
    mode = case.pick("constant", "constant", "reflect", "replicate", "circular")
    if mode == "constant":
        x = case.tensor(*case.shape(), grad=False)
        dims = case.random.randint(1, x.ndim)
    else:
        dims = case.random.randint(1, 3)
        x = image(case, dims)
    widths = [case.number(-2, 3) for _ in range(2 * dims)]
    both(case, lambda: F.pad(x, widths, mode), x)


def resize(case: Case) -> None:
    """Interpolation and shuffling of pixels."""
    count = case.random.randint(1, 3)
    modes = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}[count]
    mode = case.pick("nearest", "nearest-exact", "area", *modes)
    x = image(case, count)
    options: dict[str, Any] = {"mode": mode}
    if mode in modes:
        options["align_corners"] = case.flag()
        options["antialias"] = count == 2 and case.flag()
    if case.flag():
        options["size"] = case.numbers(count, 1, 12)
    else:
        options["scale_factor"] = case.pick(0.5, 1.7, 2.0, 1e-9, 0.999999, math.nan, -1.0, 1e30)
        options["recompute_scale_factor"] = case.pick(None, True)
    both(case, lambda: F.interpolate(x, **options), x)


def sample_grid(case: Case) -> None:
    """Images read at coordinates."""
    count = case.pick(2, 2, 3)
    x = image(case, count)
    places = [case.size(1, 5) for _ in range(count)]
    grid = case.tensor(x.shape[0], *places, count, dtype=x.dtype, grad=True)
    mode = case.pick("bilinear", "nearest", *(["bicubic"] if count == 2 else []))
    options = mode, case.pick("zeros", "border", "reflection"), case.flag()
    both(case, lambda: F.grid_sample(x, grid, *options), x, grid)


def convolve(case: Case) -> None:
    """Convolutions with any stride, padding, dilation and groups."""
    count = case.random.randint(1, 3)
    groups, out, inner = case.pick(1, 1, 2, 3), case.size(1, 4), case.size(1, 4)
    high = {1: 30, 2: 9, 3: 5}[count]
    x = case.tensor(
        case.size(1, 3), groups * inner, *(case.size(1, high) for _ in range(count)),
        dtype=torch.float32, grad=case.flag(),
    )  # fmt: skip
    taps = [case.random.randint(1, 3) for _ in range(count)]
    turned = case.chance(0.4)
    sizes = (groups * inner, out) if turned else (groups * out, inner)
    weight = case.tensor(*sizes, *taps, dtype=torch.float32, grad=case.flag())
    bias = case.tensor(groups * out, dtype=torch.float32, grad=True) if case.flag() else None
    stride, padding = case.numbers(count, 1, 3), case.numbers(count, 0, 3)
    dilation = case.numbers(count, 1, 3)
    if turned:
        options = stride, padding, case.numbers(count, 0, 2), groups, dilation
    else:
        options = stride, padding, dilation, groups
    call = getattr(F, f"conv{'_transpose' if turned else ''}{count}d")
    both(case, lambda: call(x, weight, bias, *options), x, weight)


# ------------------------------------------------------------------------------------ indices


def line_of(case: Case) -> tuple[Any, int, int]:
    """A tensor, one of its dimensions, and that dimension's size."""
    x = case.tensor(*case.shape(), dtype=case.pick(case.real(), case.dtype()))
    d = case.number(-x.ndim, x.ndim - 1, odd=0.01)
    return x, d, x.shape[d] if -x.ndim <= d < x.ndim else 1


def as_variable(case: Case, x: Any) -> Any:
    """The same tensor, perhaps as a variable."""
    return x.detach().requires_grad_() if x.dtype.is_floating_point and case.flag() else x


def look_up(case: Case) -> None:
    """gather, index_select, take, take_along_dim, subscripts, embedding."""
    x, d, extent = line_of(case)
    x = as_variable(case, x)
    like = [n if case.chance(0.7) else min(n, case.size()) for n in x.shape]
    shape = tuple(like)
    wide = case.index(*shape, below=extent)
    few = case.index(case.size(), below=extent, dtype=torch.int32)
    flat = case.index(*case.shape(), below=x.numel())
    pairs = [case.index(3, 1, below=n) if case.flag() else slice(None) for n in x.shape]
    name, call, out = case.pick(
        ("gather", lambda **o: torch.gather(x, d, wide, **o), 1),
        ("index_select", lambda **o: torch.index_select(x, d, few, **o), 1),
        ("take", lambda **o: torch.take(x, flat, **o), 1),
        ("take_along_dim", lambda **o: torch.take_along_dim(x, wide, d, **o), 1),
        ("subscript", lambda: x[tuple(pairs)], 0),
        ("embedding", lambda: F.embedding(few, x if x.ndim == 2 else x.reshape(extent, -1)), 0),
    )
    del name
    both(case, call, x, out=out)


def scatter(case: Case) -> None:
    """Values written at indices, in place and out of place."""
    x, d, extent = line_of(case)
    shape = tuple(min(n, case.size()) if case.chance(0.3) else n for n in x.shape)
    wide = case.index(*shape, below=extent)
    source = as_variable(case, case.tensor(*(n + case.pick(0, 0, 1) for n in shape), dtype=x.dtype))
    reduce, included = case.pick(*REDUCTIONS), case.flag()
    call = case.pick(
        lambda **o: torch.scatter(x, d, wide, source, **o),
        lambda **o: torch.scatter(x, d, wide, 3, **o),
        lambda **o: torch.scatter_add(x, d, wide, source, **o),
        lambda **o: torch.scatter_reduce(x, d, wide, source, reduce, include_self=included, **o),
    )
    both(case, call, source, out=1)


def index_writes(case: Case) -> None:
    """index_add and its relatives, put, index_put, masked writes."""
    x, d, extent = line_of(case)
    count = case.size()
    few = case.index(count, below=extent, dtype=torch.int32)
    other = list(x.shape)
    if -x.ndim <= d < x.ndim:
        other[d] = count
    source = as_variable(case, case.tensor(*other, dtype=x.dtype))
    flat = case.index(case.size(), below=x.numel())
    line = as_variable(case, case.tensor(flat.numel(), dtype=x.dtype))
    mask = case.tensor(*x.shape, dtype=torch.bool)
    reduce, included = case.pick(*REDUCTIONS[1:]), case.flag()
    call, out = case.pick(
        (lambda **o: torch.index_add(x, d, few, source, **o), 1),
        (lambda **o: torch.index_copy(x, d, few, source, **o), 1),
        (lambda **o: torch.index_reduce(x, d, few, source, reduce, include_self=included, **o), 1),
        (lambda: torch.index_fill(x, d, few, 2), 0),
        (lambda: torch.put(x, flat, line, included), 0),
        (lambda: torch.masked_scatter(x, mask, line), 0),
        (lambda: torch.masked_fill(x, mask, 1), 0),
        (lambda **o: torch.masked_select(x, mask, **o), 1),
        (lambda: x[mask], 0),
        (lambda **o: torch.nonzero(x, **o), 1),
    )
    both(case, call, source, line, out=out)


def put_at_pairs(case: Case) -> None:
    """index_put with some of the dimensions."""
    x = case.tensor(*case.shape(2, 3), dtype=case.dtype())
    count = case.size()
    pairs = tuple(case.index(count, below=n) if case.chance(0.7) else None for n in x.shape)
    if all(p is None for p in pairs):
        return
    values = as_variable(case, case.tensor(*case.pick((), (1,), (count,)), dtype=x.dtype))
    accumulate = case.flag()
    both(case, lambda: torch.index_put(x, pairs, values, accumulate), values)


def bags(case: Case) -> None:
    """Sums of looked-up rows."""
    rows, count = case.size(1, 9), case.size(0, 12)
    table = case.tensor(rows, case.size(1, 20), dtype=torch.float32, grad=True)
    kind = case.pick(None, torch.int32)
    mode, last = case.pick("sum", "mean", "max"), case.flag()
    padding = case.number(-rows, rows - 1) if case.chance(0.3) else None
    if case.chance(0.3):
        words, offsets = case.index(case.size(), case.size(), below=rows, dtype=kind), None
    else:
        words = case.index(count, below=rows, dtype=kind)
        starts = sorted([0, *(case.random.randint(0, count) for _ in range(case.size(0, 4)))])
        if case.chance(0.1):
            starts[-1] = case.number(0, count, odd=0.9)
        offsets = torch.tensor(starts).to(words.dtype)
    weighted = mode == "sum" and case.flag()
    shares = case.tensor(*words.shape, dtype=torch.float32, grad=True) if weighted else None

    def call() -> Any:
        return F.embedding_bag(
            words, table, offsets, mode=mode, per_sample_weights=shares,
            include_last_offset=last and offsets is not None, padding_idx=padding,
        )  # fmt: skip

    both(case, call, table)


def strided(case: Case) -> None:
    """Windows of storage, and writes through them."""
    x = case.tensor(*case.shape(), dtype=case.real())
    shape = tuple(case.size(0, 3) for _ in range(case.pick(1, 2, 3)))
    strides = tuple(case.number(0, 4) for _ in shape)
    offset = case.pick(None, case.number(0, 9))
    source = as_variable(case, case.tensor(*shape, dtype=x.dtype))
    d, at = case.number(-x.ndim, x.ndim - 1), case.number(-2, 3)
    start, end, step = case.number(-9, 9), case.number(-9, 9), case.number(1, 4)
    part = case.tensor(*x.shape[1:], dtype=x.dtype)
    call = case.pick(
        lambda: x.as_strided(shape, strides, offset).clone(),
        lambda: torch.as_strided_copy(x, shape, strides, offset),
        lambda: torch.as_strided_scatter(x, source, shape, strides, offset),
        lambda: torch.select_scatter(x, part, 0, at),
        lambda: torch.slice_scatter(x, source, d, start, end, step),
        lambda: torch.narrow_copy(x, d, start, end),
        lambda: torch.diagonal_scatter(x, source, at),
        lambda: x[start:end:step].clone(),
        lambda: x.select(d, at).clone(),
        lambda: torch.split(x, case.number(1, 4), d)[0].clone(),
    )
    both(case, call, source)


def rearrange(case: Case) -> None:
    """Elements at other positions."""
    x = as_variable(case, case.tensor(*case.shape(1, 4), dtype=case.dtype()))
    d, by, times = case.number(-x.ndim, x.ndim - 1), case.number(-9, 9), case.number(0, 3)
    dims = [case.number(-x.ndim, x.ndim - 1, 0.01) for _ in range(case.random.randint(1, x.ndim))]
    factor = case.number(1, 3)
    repeats = case.index(x.shape[d] if -x.ndim <= d < x.ndim else 1, below=4)
    call, out = case.pick(
        (lambda: torch.roll(x, by, d), 0),
        (lambda: torch.flip(x, dims), 0),
        (lambda: torch.rot90(x, by, (0, -1)), 0),
        (lambda **o: torch.tril(x, by, **o), 1),
        (lambda **o: torch.triu(x, by, **o), 1),
        (lambda **o: torch.diag(x, by, **o), 1),
        (lambda: torch.diag_embed(x, by), 0),
        (lambda: x.repeat(*(times for _ in x.shape)), 0),
        (lambda: torch.repeat_interleave(x, repeats, d), 0),
        (lambda: F.pixel_shuffle(x, factor), 0),
        (lambda: F.pixel_unshuffle(x, factor), 0),
        (lambda **o: torch.cat([x, x], d, **o), 1),
        (lambda **o: torch.stack([x, x], d, **o), 1),
        (lambda: torch.diff(x, times, d), 0),
        (lambda: torch.tile(x, (times, 2)), 0),
        (lambda: torch.block_diag(x.reshape(-1)[:9], x.reshape(-1)[:3]), 0),
    )
    both(case, call, x, out=out)


# ------------------------------------------------------------------------------- scans, sorting


def scan(case: Case) -> None:
    """Running sums, products, maxima."""
    x = as_variable(case, case.tensor(*case.shape(), dtype=case.dtype()))
    d = case.number(-x.ndim, x.ndim - 1)
    call, out = case.pick(
        (lambda **o: torch.cumsum(x, d, **o), 1),
        (lambda **o: torch.cumprod(x, d, **o), 1),
        (lambda **o: torch.logcumsumexp(x, d, **o), 1),
        (lambda **o: torch.cummax(x, d, **o), 2),
        (lambda **o: torch.cummin(x, d, **o), 2),
        (lambda: torch.cumulative_trapezoid(x, dim=d), 0),
    )
    both(case, call, x, out=out)


def order(case: Case) -> None:
    """Sorting, selection and search."""
    x = as_variable(case, case.tensor(*case.shape(), dtype=case.dtype()))
    d, place, keep = case.number(-x.ndim, x.ndim - 1), case.number(0, 7), case.flag()
    edges = case.tensor(case.size(), dtype=x.dtype)
    sorter = case.index(edges.numel(), below=edges.numel())
    shares = torch.tensor([case.pick(0.0, 0.3, 1.0) for _ in range(case.size(0, 3))])
    call, out = case.pick(
        (lambda **o: torch.sort(x, d, keep, **o), 2),
        (lambda **o: torch.topk(x, place, d, keep, **o), 2),
        (lambda **o: torch.kthvalue(x, place, d, keep, **o), 2),
        (lambda **o: torch.median(x, d, keep, **o), 2),
        (lambda **o: torch.mode(x, d, keep, **o), 2),
        (lambda **o: torch.argsort(x, d, keep), 0),
        (lambda **o: torch.msort(x, **o), 1),
        (lambda **o: torch.quantile(x, shares.to(x.dtype), d, **o), 1),
        (lambda **o: torch.searchsorted(edges, x.detach(), right=keep, **o), 1),
        (lambda **o: torch.searchsorted(edges, x.detach(), sorter=sorter, **o), 1),
        (lambda **o: torch.bucketize(x.detach(), edges, right=keep, **o), 1),
        (lambda: torch.unique(x, return_inverse=True, dim=d)[0], 0),
        (lambda: torch.isin(x.detach(), edges), 0),
    )
    both(case, call, x, out=out)


def sequence_loss(case: Case) -> None:
    """ctc_loss of right and wrong lengths."""
    steps, batch = case.size(1, 9), case.size(1, 4)
    classes, longest = case.size(2, 6), case.size(0, 5)
    scores = case.tensor(steps, batch, classes, dtype=torch.float32, grad=True)
    targets = case.index(batch, longest, below=classes, dtype=torch.int32)
    inputs = [case.number(0, steps, 0.02) for _ in range(batch)]
    lengths = [case.number(0, longest, 0.02) for _ in range(batch)]
    blank = case.number(0, classes - 1)
    flat = targets
    if case.flag() and all(0 <= n <= longest for n in lengths):
        rows = [targets[b, :n] for b, n in enumerate(lengths)]
        flat = torch.cat(rows) if rows else targets.flatten()
    options = blank, case.pick("none", "mean", "sum"), case.flag()
    if case.flag():
        bounds = [torch.tensor(n, dtype=torch.int64) for n in (inputs, lengths)]
    else:
        bounds = [inputs, lengths]
    both(case, lambda: F.ctc_loss(scores.log_softmax(2), flat, *bounds, *options), scores)


def segments(case: Case) -> None:
    """Sums of segments, counts of values."""
    count = case.size(0, 12)
    x = case.tensor(count, case.size(1, 5), dtype=torch.float32, grad=True)
    reduce = case.pick("sum", "mean", "max", "min", "prod")
    cuts = sorted(case.random.randint(0, count) for _ in range(case.size(0, 3)))
    bounds = [0, *cuts, count]
    lengths = torch.tensor([b - a for a, b in zip(bounds, bounds[1:], strict=False)])
    values = case.index(*case.shape(1, 1), below=9, wrong=0.001).clamp(max=1000)
    weights = case.tensor(*values.shape, dtype=torch.float32)
    line = case.tensor(*case.shape(1, 2), dtype=torch.float32)
    bins = case.number(1, 9)
    call, out = case.pick(
        (lambda: torch.segment_reduce(x, reduce, lengths=lengths), 0),
        (lambda: torch.segment_reduce(x, reduce, offsets=torch.tensor(bounds)), 0),
        (lambda: torch.bincount(values, weights, bins if bins < 2000 else 3), 0),
        (lambda **o: torch.histc(line, bins if bins < 2000 else 3, -1, 1, **o), 1),
        (lambda: torch.histogram(line, torch.tensor([-1.0, 0.0, 0.5]))[0], 0),
        (lambda: F.one_hot(values), 0),
    )
    both(case, call, x, out=out)


FAMILIES: dict[str, Callable[[Case], None]] = {
    rule.__name__: rule
    for rule in (
        avg_pool, max_pool, adaptive_pool, lp_pool, fractional_pool, unpool, max_pool_gradient,
        unfold, pad, resize, sample_grid, convolve, look_up, scatter, index_writes, put_at_pairs,
        bags, strided, rearrange, scan, order, sequence_loss, segments,
    )
}  # fmt: skip
