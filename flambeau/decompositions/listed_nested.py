"""Inner operators of nested tensors and of their dense forms."""

from __future__ import annotations

import functools
from typing import Any

import flambeau as torch
from flambeau.decompositions.listed import listed, public_calls
from flambeau.ir.failure import failure
from flambeau.nested import padded
from flambeau.nested.construct import nested_tensor_from_jagged, strided_of, to_padded_tensor
from flambeau.nested.ragged import ragged_of
from flambeau.nested.tensor import jagged, strided

__all__: list[str] = []

Tensor = Any
Value = Any

public_calls("nested_to_padded_tensor", lambda name: to_padded_tensor)


# ------------------------------------------------------------------------------ shapes
@listed("_nested_tensor_size")
def _nested_tensor_size(self: Tensor) -> Tensor:
    return self._nested_tensor_size()


@listed("_nested_compute_contiguous_strides_offsets")
def _strides_offsets(sizes: Tensor) -> Value:
    """Strides (B, dimensions) and offsets (B) of samples that follow each other in memory."""
    ones = sizes.new_ones((sizes.shape[0], 1))
    products = torch.cat([ones, sizes.flip(1)], 1).cumprod(1)
    ends = products[:, -1].cumsum(0)
    return products[:, :-1].flip(1), ends - products[:, -1]


@listed("_nested_tensor_strides")
def _nested_tensor_strides(self: Tensor) -> Tensor:
    return _strides_offsets(self._nested_tensor_size())[0]


@listed("_nested_tensor_storage_offsets")
def _nested_tensor_storage_offsets(self: Tensor) -> Tensor:
    return _strides_offsets(self._nested_tensor_size())[1]


# ------------------------------------------------------------------------------ from dense tensors
@listed("_nested_tensor_from_tensor_list")
def _from_list(tensors: Value, dtype: Value, layout: Value, device: Value, pin: Value) -> Tensor:
    return torch.nested.as_nested_tensor(list(tensors), dtype, device)


def _leading(dense: Tensor, sizes: Value) -> Tensor:
    """The first elements of every dimension.

    Raises:
        RuntimeError: there are fewer.
    """
    pairs = list(zip(sizes, dense.shape, strict=False))
    if len(sizes) != dense.ndim or any(size > room for size, room in pairs):
        problem = f"a sample of sizes {list(sizes)} does not fit {list(dense.shape)}"
        raise failure(RuntimeError, "_nested_from_padded", problem, "sizes within the padding")
    return dense[tuple([slice(size) for size in sizes])]


@listed("_nested_from_padded")
def _nested_from_padded(dense: Tensor, sizes: Tensor, fused: bool) -> Tensor:
    if fused:  # (B, heads, n, E / heads)
        dense = dense.transpose(1, 2).flatten(2)
    pairs = zip(dense.unbind(), sizes.tolist(), strict=True)
    return strided_of([_leading(part, shape) for part, shape in pairs])


@listed("_nested_from_padded_and_nested_example")
def _nested_from_example(dense: Tensor, example: Tensor) -> Tensor:
    return _nested_from_padded(dense, example._nested_tensor_size(), False)


@listed("_nested_tensor_from_mask_left_aligned")
def _is_left_aligned(t: Tensor, mask: Tensor) -> bool:
    counts = mask.sum(1, keepdim=True)
    steps = torch.arange(mask.shape[1], device=mask.device)
    return torch.equal(mask, steps < counts)


@listed("_nested_tensor_from_mask")
def _nested_tensor_from_mask(t: Tensor, mask: Tensor, mask_check: bool) -> Tensor:
    fits = mask.dtype is torch.bool and mask.ndim == 2 and t.ndim == 3
    if not fits or t.shape[:2] != mask.shape:
        problem = f"a mask (B, n) of truth values and (B, n, E), got {mask.dtype} and shapes "
        problem += f"{tuple(mask.shape)}, {tuple(t.shape)}"
        raise failure(RuntimeError, "_nested_tensor_from_mask", problem, "the padding mask, bool")
    if mask_check and not _is_left_aligned(t, mask):
        problem = "Mask must be left-aligned without gaps"
        raise failure(RuntimeError, "_nested_tensor_from_mask", problem, "padding at the end")
    return strided_of([x.narrow(0, 0, n) for x, n in zip(t, mask.sum(1).tolist(), strict=True)])


# ------------------------------------------------------------------------------ memory
@listed("_nested_view_from_buffer_copy")
def _nested_view_copy(buffer: Tensor, sizes: Tensor, strides: Tensor, offsets: Tensor) -> Tensor:
    triples = zip(sizes.tolist(), strides.tolist(), offsets.tolist(), strict=True)
    return strided_of([buffer.as_strided(*triple) for triple in triples])


@listed("_nested_view_from_buffer")
def _nested_view(buffer: Tensor, sizes: Tensor, strides: Tensor, offsets: Tensor) -> Tensor:
    expected = _strides_offsets(sizes)
    if not (torch.equal(strides, expected[0]) and torch.equal(offsets, expected[1])):
        problem = "samples that do not follow each other in memory"
        hint = "_nested_view_from_buffer_copy, or the samples as_strided(...)"
        raise failure(NotImplementedError, "_nested_view_from_buffer", problem, hint)
    return strided(buffer[: int(sizes.prod(1).sum())], sizes.tolist())


# ------------------------------------------------------------------------------ gradients
@listed("_nested_select_backward")
def _nested_select_backward(grad: Tensor, self: Tensor, dim: int, index: int) -> Tensor:
    shapes, dim = self._shapes_of_parts(), dim % self.dim()
    count = len(shapes)
    if dim == 0:
        index %= count
        zeros = [grad.new_zeros(shape) for shape in shapes]
        return strided_of([*zeros[:index], grad, *zeros[index + 1 :]])
    pairs = zip(grad.unbind(), shapes, strict=True)
    return strided_of([
        torch.select_scatter(grad.unbind()[0].new_zeros(shape), part, dim - 1, index)
        for part, shape in pairs
    ])  # fmt: skip


@listed("_nested_sum_backward")
def _nested_sum_backward(grad: Tensor, self: Tensor, dim: Value, keepdim: bool) -> Tensor:
    parts = grad.unbind() if keepdim else [x.unsqueeze(-1) for x in grad.unbind()]
    pairs = zip(parts, self._shapes_of_parts(), strict=True)
    return strided_of([part.expand(shape) for part, shape in pairs])


@listed("_nested_tensor_softmax_with_shape")
def _softmax_with_shape(self: Tensor, query: Tensor) -> Tensor:
    counts = query._nested_tensor_size()[:, 0].reshape(-1, *(1,) * (self.ndim - 1))
    steps = torch.arange(self.shape[-1], device=self.device)
    hidden = (steps >= counts) | (steps.unsqueeze(-1) >= counts)
    weights = self.masked_fill(hidden, -torch.inf).softmax(-1)
    return weights.masked_fill(hidden, 0.0)


# ------------------------------------------------------------------------------ jagged
@listed("_nested_get_values")
def _nested_get_values(self: Tensor) -> Tensor:
    return self.values()


@listed("_nested_get_offsets")
def _nested_get_offsets(self: Tensor) -> Tensor:
    return self.offsets()


@listed("_nested_get_lengths")
def _nested_get_lengths(self: Tensor) -> Value:
    return self.lengths()


@listed("_nested_get_ragged_idx")
def _nested_get_ragged_idx(self: Tensor) -> int:
    return int(self._ragged_idx)


@listed("_nested_get_min_seqlen")
def _nested_get_min_seqlen(self: Tensor) -> Tensor:
    return torch.empty(self._min_seqlen, 0)


@listed("_nested_get_max_seqlen")
def _nested_get_max_seqlen(self: Tensor) -> Tensor:
    return torch.empty(self._max_seqlen, 0)


@functools.cache
def _dummy() -> Tensor:
    return jagged(torch.zeros(1, 1), ragged_of(torch.tensor([0, 1])))


@listed("_nested_get_jagged_dummy")
def _nested_get_jagged_dummy(any: Tensor) -> Tensor:  # noqa: A002
    return _dummy()


def _extremes(shortest: Value, longest: Value) -> Value:
    """Lengths, which PyTorch passes as the first size of an empty tensor."""
    return [None if x is None else int(x.shape[0]) for x in (shortest, longest)]


@listed("_nested_view_from_jagged")
def _nested_view_from_jagged(
    self: Tensor, offsets: Tensor, dummy: Tensor, lengths: Value, dim: int, *extremes: Value
) -> Tensor:
    return nested_tensor_from_jagged(self, offsets, lengths, dim, *_extremes(*extremes))


def _rows(name: str, dense: Tensor, ragged: Value, dim: int, total: Value) -> Tensor:
    """The rows of samples in a dense tensor whose dimension `dim` is filled up."""
    if ragged.longest > dense.shape[dim]:
        problem = f"found batch item of length {ragged.longest} when max length specified by "
        problem += f"padded input is {dense.shape[dim]}"
        raise failure(RuntimeError, name, problem, "offsets that fit")
    end = ragged.offsets[-1].item() if total is None else total
    return padded.to_values(dense.narrow(dim, 0, ragged.longest), ragged, dim, int(end))


@listed("_nested_from_padded_tensor")
def _nested_from_padded_tensor(
    dense: Tensor, offsets: Tensor, dummy: Tensor, dim: int, shortest: Value, longest: Value,
    total: Value,
) -> Tensor:  # fmt: skip
    ragged = ragged_of(offsets, None, *_extremes(shortest, longest))
    rows = _rows("_nested_from_padded_tensor", dense, ragged, dim, total)
    return jagged(rows, ragged, dim)


def _one_ragged(name: str, offsets: Value) -> Value:
    """The `Ragged` of a list of one tensor of offsets.

    Raises:
        RuntimeError: there are several.
    """
    if len(offsets) != 1:
        problem = f"only one ragged dimension is supported, got {len(offsets)}"
        raise failure(RuntimeError, name, problem, "one tensor of offsets")
    return ragged_of(offsets[0])


@listed("_jagged_to_padded_dense_forward")
def _jagged_to_dense(values: Tensor, offsets: Value, lengths: Value, padding: float) -> Tensor:
    ragged = _one_ragged("_jagged_to_padded_dense_forward", offsets)
    dense, room = padded.to_dense(jagged(values, ragged), padding), lengths[0]
    if ragged.longest > room:
        return dense.narrow(1, 0, room).contiguous()
    return padded.enlarged(dense, padding, (dense.shape[0], room, *dense.shape[2:]))


@listed("_padded_dense_to_jagged_forward")
def _dense_to_jagged(dense: Tensor, offsets: Value, total: Value) -> Tensor:
    name = "_padded_dense_to_jagged_forward"
    return _rows(name, dense, _one_ragged(name, offsets), 1, total)
