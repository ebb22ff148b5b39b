"""Gradients of inner operators that move, join and look up elements: see `derivatives`."""

from __future__ import annotations

from typing import Any

from flambeau.decompositions.composites import reshape
from flambeau.decompositions.derivatives import Gradients, Recorded, gradient
from flambeau.decompositions.inner import FLASH
from flambeau.ops import aten
from flambeau.runtime.symbolic import SymInt

Tensor = Any


# ------------------------------------------------------------------------------ shapes
@gradient("view _unsafe_view")
def _view(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": reshape(grad, c.shapes["self"])}


@gradient("t")
def _t(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.t(grad)}


@gradient("transpose")
def _transpose(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.transpose(grad, c.dim0, c.dim1)}


@gradient("permute")
def _permute(c: Recorded, grad: Tensor) -> Gradients:
    dims = [d % grad.ndim for d in c.dims]
    return {"self": aten.permute(grad, [dims.index(d) for d in range(len(dims))])}


@gradient("expand")
def _expand(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": grad}  # summed as any broadcast value


@gradient("unsqueeze")
def _unsqueeze(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.squeeze(grad, c.dim)}


@gradient("squeeze.dim squeeze.default squeeze.dims")
def _squeeze(c: Recorded, grad: Tensor) -> Gradients:
    shape, dims = c.shapes["self"], c.dim
    chosen = range(len(shape)) if dims is None else [dims] if isinstance(dims, int) else dims
    for dim in sorted(d % len(shape) for d in chosen) if shape else ():
        if shape[dim] == 1:
            grad = aten.unsqueeze(grad, dim)
    return {"self": grad}


@gradient("clone alias contiguous")
def _clone(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": grad}


@gradient("_to_copy")
def _to_copy(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten._to_copy(grad, dtype=c.dtypes["self"])}


@gradient("copy")
def _copy(c: Recorded, grad: Tensor) -> Gradients:
    return {"src": grad}


@gradient("flip")
def _flip(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.flip(grad, c.dims)}


@gradient("roll")
def _roll(c: Recorded, grad: Tensor) -> Gradients:
    shifts = [c.shifts] if isinstance(c.shifts, int) else list(c.shifts)
    dims = [c.dims] if isinstance(c.dims, int) else list(c.dims or ())
    if not dims:
        return {"self": aten.roll(grad, [-s for s in shifts])}
    return {"self": aten.roll(grad, [-s for s in reversed(shifts)], list(reversed(dims)))}


@gradient("tril")
def _tril(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.tril(grad, c.diagonal)}


@gradient("triu")
def _triu(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.triu(grad, c.diagonal)}


@gradient("constant_pad_nd")
def _constant_pad(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.constant_pad_nd(grad, [-n for n in c.pad])}


@gradient("pixel_shuffle")
def _pixel_shuffle(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.pixel_unshuffle(grad, c.upscale_factor)}


@gradient("pixel_unshuffle")
def _pixel_unshuffle(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.pixel_shuffle(grad, c.downscale_factor)}


@gradient("channel_shuffle")
def _channel_shuffle(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.channel_shuffle(grad, c.shapes["self"][1] // c.groups)}


# ------------------------------------------------------------------------------ parts and joins
@gradient("select")
def _select(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.select_backward(grad, c.shapes["self"], c.dim, c.index)}


@gradient("slice")
def _slice(c: Recorded, grad: Tensor) -> Gradients:
    shape = c.shapes["self"]
    first = 0 if c.start is None else c.start
    last = shape[c.dim] if c.end is None else c.end
    return {"self": aten.slice_backward(grad, shape, c.dim, first, last, c.step)}


@gradient("diagonal")
def _diagonal(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.diagonal_backward(grad, c.shapes["self"], c.offset, c.dim1, c.dim2)}


@gradient("diag_embed")
def _diag_embed(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.diagonal(grad, c.offset, c.dim1, c.dim2)}


@gradient("split split_with_sizes unsafe_split")
def _split(c: Recorded, grad: Tensor) -> Gradients:
    shape = list(c.shapes["self"])
    name = next(iter(c.shapes))
    dim = c.dim % len(shape)
    named = ("split_sizes", "split_size", "split_size_or_sections")
    sizes = next(getattr(c, word) for word in named if hasattr(c, word))
    if isinstance(sizes, (int, SymInt)):
        count = len(c.grads)
        sizes = [min(sizes, shape[dim] - k * sizes) for k in range(count)]
    some = next(g for g in c.grads if g is not None)
    parts = []
    for size, part in zip(sizes, c.grads, strict=True):
        if part is None:
            part = aten.zeros([*shape[:dim], size, *shape[dim + 1 :]], dtype=some.dtype)
        parts.append(part)
    return {name: aten.cat(parts, dim)}


@gradient("unbind")
def _unbind(c: Recorded, grad: Tensor) -> Gradients:
    some = next(g for g in c.grads if g is not None)

    def part(grad: Tensor | None) -> Tensor:
        if grad is not None:
            return grad
        return aten.expand(aten.zeros([], dtype=some.dtype), tuple(some.shape))

    return {"self": aten.stack([part(g) for g in c.grads], c.dim)}


@gradient("cat")
def _cat(c: Recorded, grad: Tensor) -> Gradients:
    parts, start = [], 0
    for shape, needed in zip(c.shapes["tensors"], c.needs_each("tensors"), strict=True):
        end = start + (shape[c.dim] if len(shape) == grad.ndim else 0)
        parts.append(aten.slice(grad, c.dim, start, end) if needed else None)
        start = end
    return {"tensors": parts}


@gradient("stack")
def _stack(c: Recorded, grad: Tensor) -> Gradients:
    needed = c.needs_each("tensors")
    parts = [aten.select(grad, c.dim, k) if need else None for k, need in enumerate(needed)]
    return {"tensors": parts}


@gradient("repeat")
def _repeat(c: Recorded, grad: Tensor) -> Gradients:
    shape = c.shapes["self"]
    lead = len(c.repeats) - len(shape)
    pairs: list[int] = list(c.repeats[:lead])
    dims = list(range(lead))
    for count, extent in zip(c.repeats[lead:], shape, strict=True):
        if count != 1:
            dims.append(len(pairs))
            pairs.append(count)
        pairs.append(extent)
    return {"self": aten.sum(aten.view(grad, tuple(pairs)), dims) if dims else grad}


# ------------------------------------------------------------------------------ look-ups
@gradient("index", "indices")
def _index(c: Recorded, grad: Tensor) -> Gradients:
    zeros = aten.new_zeros(grad, c.shapes["self"])
    return {"self": aten.index_put(zeros, c.indices, grad, True)}


@gradient("gather", "index")
def _gather(c: Recorded, grad: Tensor) -> Gradients:
    zeros = aten.new_zeros(grad, c.shapes["self"])
    return {"self": aten.scatter_add(zeros, c.dim, c.index, grad)}


@gradient("index_select", "index")
def _index_select(c: Recorded, grad: Tensor) -> Gradients:
    zeros = aten.new_zeros(grad, c.shapes["self"])
    return {"self": aten.index_add(zeros, c.dim, c.index, grad)}


@gradient("embedding", "indices")
def _embedding(c: Recorded, grad: Tensor) -> Gradients:
    rows = c.shapes["weight"][0]
    return {
        "weight": aten.embedding_dense_backward(
            grad, c.indices, rows, c.padding_idx, c.scale_grad_by_freq
        )
    }


# ------------------------------------------------------------------------------ windows
@gradient("max_pool2d_with_indices max_pool3d_with_indices", "self results1")
def _max_pool(c: Recorded, grad: Tensor) -> Gradients:
    rank = len(c.kernel_size) if not isinstance(c.kernel_size, int) else 2
    backward = getattr(aten, f"max_pool{rank}d_with_indices_backward")
    windows = (c.kernel_size, c.stride, c.padding, c.dilation, c.ceil_mode)
    return {"self": backward(grad, c.self, *windows, c.results1)}


def _avg_pool(rank: int) -> None:
    def run(c: Recorded, grad: Tensor) -> Gradients:
        backward = getattr(aten, f"avg_pool{rank}d_backward")
        stride = c.stride or c.kernel_size
        windows = (c.kernel_size, stride, c.padding, c.ceil_mode, c.count_include_pad)
        return {"input": backward(grad, c.input, *windows, c.divisor_override)}

    gradient(f"avg_pool{rank}d", "input")(run)


def _adaptive(rank: int) -> None:
    def run(c: Recorded, grad: Tensor) -> Gradients:
        backward = getattr(aten, f"_adaptive_avg_pool{rank}d_backward")
        return {"self": backward(grad, c.self)}

    gradient(f"_adaptive_avg_pool{rank}d", "self")(run)


def _padded(name: str) -> None:
    def run(c: Recorded, grad: Tensor) -> Gradients:
        return {"self": getattr(aten, f"{name}_backward")(grad, c.self, c.padding)}

    gradient(name, "self")(run)


def _upsampled(name: str, scales: list[str]) -> None:
    def run(c: Recorded, grad: Tensor) -> Gradients:
        aligned = (c.align_corners,) if hasattr(c, "align_corners") else ()
        values = [getattr(c, scale) for scale in scales]
        backward = getattr(aten, f"{name}_backward")
        return {"self": backward(grad, c.output_size, c.shapes["self"], *aligned, *values)}

    gradient(name)(run)


_SCALES = {1: ["scales"], 2: ["scales_h", "scales_w"], 3: ["scales_d", "scales_h", "scales_w"]}
for _rank in (1, 2, 3):
    _padded(f"reflection_pad{_rank}d")
    _padded(f"replication_pad{_rank}d")
    _upsampled(f"upsample_nearest{_rank}d", _SCALES[_rank])
    _upsampled(f"_upsample_nearest_exact{_rank}d", _SCALES[_rank])
    if _rank > 1:
        _avg_pool(_rank)
        _adaptive(_rank)
for _mode, _rank in (("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)):
    _upsampled(f"upsample_{_mode}{_rank}d", _SCALES[_rank])


@gradient("im2col")
def _im2col(c: Recorded, grad: Tensor) -> Gradients:
    windows = (c.kernel_size, c.dilation, c.padding, c.stride)
    return {"self": aten.col2im(grad, c.shapes["self"][-2:], *windows)}


@gradient("col2im")
def _col2im(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.im2col(grad, c.kernel_size, c.dilation, c.padding, c.stride)}


@gradient(FLASH, "query key value attn_mask result results1")
def _attention(c: Recorded, grad: Tensor) -> Gradients:
    gradients = getattr(aten, f"{FLASH}_backward")(
        grad, c.query, c.key, c.value, c.result, c.results1, c.dropout_p, c.is_causal,
        attn_mask=c.attn_mask, scale=c.scale,
    )  # fmt: skip
    return dict(zip(("query", "key", "value"), gradients, strict=True))
