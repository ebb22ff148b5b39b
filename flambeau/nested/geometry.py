"""Jagged tensors permuted, sliced, joined and reshaped; the ragged dimension is never split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.ir.lock import importing
from flambeau.nested.ragged import RaggedInt, ragged_from_lengths
from flambeau.nested.tensor import JaggedTensor, NestedTensor, jagged, refuse


def normal(name: str, ndim: int, dim: int) -> int:
    """A dimension counted from the front.

    Raises:
        IndexError: there is none.
    """
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"[{name}] Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], "
            f"but got {dim})\nhint: the batch is dimension 0"
        )
    return dim % ndim


def inner(name: str, tensor: Tensor, dim: int) -> int:
    """The values' dimension of a regular dimension.

    Raises:
        RuntimeError: it is the batch or the ragged one.
    """
    d = normal(name, tensor.dim(), dim)
    if d == 0:
        refuse(name, f"{name}(): not supported for NestedTensor on dim=0")
    if d == tensor._ragged_idx:
        refuse(name, f"{name}(): not supported for NestedTensor on ragged dim")
    return d - 1


# ------------------------------------------------------------------------------ order of dims
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions swapped, neither of them the batch."""
    a, b = (normal("transpose", input.dim(), d) for d in (dim0, dim1))
    if a == b:
        return input._like(input._kept)
    if 0 in (a, b):
        raise ValueError(
            "[transpose] Transpose is not supported on the batch dimension for jagged NT\n"
            "hint: transpose the samples of x.unbind()"
        )
    r = {a: b, b: a}.get(input._ragged_idx, input._ragged_idx)
    return jagged(input._kept.transpose(a - 1, b - 1), input._ragged, r)


def last_two(input: Any) -> Any:
    """The last two dimensions swapped."""
    return transpose(input, -2, -1)


def permute(input: Tensor, *dims: Any) -> Any:
    """Another order of the dimensions behind the batch."""
    order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    places = [normal("permute", input.dim(), d) for d in order]
    if sorted(places) != list(range(input.dim())):
        raise RuntimeError(
            f"[permute] permute(dims): {tuple(order)} is no order of {input.dim()} dimensions\n"
            "hint: name each dimension once"
        )
    if places[0] != 0:
        raise ValueError(
            "[permute] Permute is not supported on the batch dimension for jagged NT\n"
            "hint: the first dimension stays 0"
        )
    values = input._kept.permute([p - 1 for p in places[1:]])
    return jagged(values, input._ragged, places.index(input._ragged_idx))


def reversed_dims(input: Tensor) -> Any:
    """`x.T`: would move the batch."""
    return permute(input, *reversed(range(input.dim())))


def movedim(input: Any, source: Any, destination: Any) -> Any:
    """Dimensions moved, the batch excepted."""
    froms = [source] if isinstance(source, int) else list(source)
    tos = [destination] if isinstance(destination, int) else list(destination)
    moves = {normal("movedim", input.dim(), t): normal("movedim", input.dim(), f)
             for f, t in zip(froms, tos, strict=True)}  # fmt: skip
    left = iter([d for d in range(input.dim()) if d not in moves.values()])
    return permute(input, [moves[d] if d in moves else next(left) for d in range(input.dim())])


# ------------------------------------------------------------------------------ sizes of one
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A dimension of size 1 more, behind the batch."""
    d = normal("unsqueeze", input.dim() + 1, dim)
    if d == 0:
        refuse("unsqueeze", "unsqueeze(): not supported for NestedTensor on dim=0")
    r = input._ragged_idx + (d <= input._ragged_idx)
    return jagged(input._kept.unsqueeze(d - 1), input._ragged, r)


def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without regular dimensions of size 1."""
    if dim is None:
        refuse("squeeze", "squeeze(): for jagged tensors a dim is needed", "squeeze(dim)")
    requested = (dim,) if isinstance(dim, int) else tuple(dim)
    dims = sorted(inner("squeeze", input, d) for d in requested)
    gone = [d for d in dims if input._kept.shape[d] == 1]
    r = input._ragged_idx - sum(d < input._ragged_idx - 1 for d in gone)
    return jagged(input._kept.squeeze(gone), input._ragged, r)


# ------------------------------------------------------------------------------ reshaping
def _sizes(size: Sequence[Any]) -> list[Any]:
    packed = len(size) == 1 and not isinstance(size[0], (int, RaggedInt))
    return list(size[0] if packed else size)


def reshape(input: Tensor, *size: Any, _name: str = "reshape") -> Tensor:
    """Other sizes of the regular dimensions; -1 or the symbol stand for the ragged one.

    Raises:
        RuntimeError: the batch or the ragged dimension would change.
    """
    target = _sizes(size)
    shape, r = input.shape, input._ragged_idx
    if not target or target[0] not in (shape[0], -1) or len(target) < 2:
        refuse(_name, f"cannot view shape {tuple(shape)} as {target}",
               "the batch stays the first dimension")  # fmt: skip
    place = next((i for i, n in enumerate(target) if i and isinstance(n, RaggedInt)), None)
    if place is None:
        place = next((i for i, n in enumerate(target) if i and n == -1), None)
    elif target[place] != shape[r]:
        place = None
    if place is None:
        refuse(_name, f"cannot view shape {tuple(shape)} as {target}",
               "give -1 or the symbol for the ragged dimension")  # fmt: skip
    front, behind = target[1:place], target[place + 1 :]
    if -1 not in front and math.prod(front) != math.prod(shape[1:r]):
        refuse(_name, f"cannot view shape {tuple(shape)} as {target}",
               "regular dimensions do not move across the ragged one")  # fmt: skip
    total = input._kept.shape[r - 1]
    sizes = [*front, total, *behind]
    change = input._kept.view if _name == "view" else input._kept.reshape
    return jagged(change(sizes), input._ragged, place)


def view(input: Tensor, *size: Any) -> Tensor:
    """`reshape` without a copy; a dtype gives other bits their meaning."""
    if len(size) == 1 and isinstance(size[0], torch.dtype):
        return input._like(input._kept.view(size[0]))
    return reshape(input, *size, _name="view")


def view_as(self: Any, other: Any) -> Any:
    """A view with the sizes of another nested tensor."""
    return view(self, other.shape)


def reshape_as(self: Any, other: Any) -> Any:
    """Sizes of another nested tensor."""
    return reshape(self, other.shape)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Neighbouring regular dimensions as one."""
    first, last = (normal("flatten", input.dim(), d) for d in (start_dim, end_dim))
    if first == last:
        return input._like(input._kept)
    r = input._ragged_idx
    if first == 0:
        refuse("flatten", "flatten(): not supported for NestedTensor on dim=0")
    if first <= r <= last:
        refuse("flatten", "flatten(): not supported for NestedTensor on ragged dim")
    values = input._kept.flatten(first - 1, last - 1)
    return jagged(values, input._ragged, r - (last - first) * (last < r))


def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """A regular dimension as several."""
    d = inner("unflatten", input, dim)
    values = input._kept.unflatten(d, sizes)
    grown = values.dim() - input._kept.dim()
    return jagged(values, input._ragged, input._ragged_idx + grown * (d < input._ragged_idx - 1))


def expand(input: Tensor, *size: Any) -> Tensor:
    """Regular dimensions of size 1 shown several times."""
    target, shape = _sizes(size), input.shape
    if len(target) != len(shape) or target[0] not in (-1, shape[0]):
        refuse("expand", f"expand(): cannot expand shape {tuple(shape)} -> {target}")
    r = input._ragged_idx
    if target[r] not in (-1, shape[r]):
        refuse("expand", f"expand(): cannot expand shape {tuple(shape)} -> {target}")
    sizes = [-1 if d == r else n for d, n in enumerate(target)][1:]
    return input._like(input._kept.expand(sizes))


def expand_as(input: Any, other: Any) -> Any:
    """A tensor shown with the sizes of another one, which may be the nested one."""
    if isinstance(input, JaggedTensor):
        return expand(input, other.shape)
    with importing:
        from flambeau.nested.pointwise import broadcast

    return other._like(broadcast("expand_as", other, input).expand_as(other._kept))


# ------------------------------------------------------------------------------ parts
def unbind(input: Tensor, dim: int = 0) -> Any:
    """The samples."""
    if normal("unbind", input.dim(), dim) != 0:
        refuse("unbind", "unbind(): only supported for NestedTensor on dim=0")
    return input._parts()


def select(input: Tensor, dim: int, index: int) -> Any:
    """A sample, or one place of a regular dimension."""
    d = normal("select", input.dim(), dim)
    if d == 0:
        if isinstance(index, int) and not -len(input) <= index < len(input):
            raise IndexError(
                f"[select] index {index} is out of bounds for dimension 0 with size {len(input)}\n"
                "hint: there are as many samples"
            )
        return input._parts()[index]
    values = input._kept.select(inner("select", input, dim), index)
    return jagged(values, input._ragged, input._ragged_idx - (d < input._ragged_idx))


def narrow(input: Any, dim: int, start: int, length: int) -> Any:
    """A section of a regular dimension, or some of the samples."""
    if normal("narrow", input.dim(), dim) == 0:
        return samples(input, range(len(input))[start:][:length])
    return input._like(input._kept.narrow(inner("narrow", input, dim), start, length))


def slice_of(input: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Indices start, start + step, ... of a regular dimension, or some of the samples."""
    cut = slice(start, end, step)
    if normal("slice", input.dim(), dim) == 0:
        return samples(input, range(len(input))[cut])
    d = inner("slice", input, dim)
    return input._like(input._kept[(slice(None),) * d + (cut,)])


def samples(input: Tensor, which: Sequence[int]) -> Tensor:
    """Some of the samples, copied behind each other."""
    d, parts = input._ragged_idx - 1, input._parts()
    chosen = [parts[i] for i in which]
    counts = [part.shape[d] for part in chosen]
    values = torch.cat(chosen, d) if chosen else input._kept.narrow(d, 0, 0)
    return jagged(values, ragged_from_lengths(counts, values.device), d + 1)


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """About equal sections of the batch or of a regular dimension."""
    if normal("chunk", input.dim(), dim) == 0:
        step = max(-(-len(input) // chunks), 1)
        return split(input, step)
    return tuple(map(input._like, input._kept.chunk(chunks, inner("chunk", input, dim))))


def split(
    tensor: Tensor, split_size: Any = None, dim: int = 0, *, split_size_or_sections: Any = None
) -> tuple[Tensor, ...]:
    """Sections of given sizes of the batch or of a regular dimension."""
    split_size = split_size_or_sections if split_size is None else split_size
    if normal("split", tensor.dim(), dim) != 0:
        pieces = tensor._kept.split(split_size, inner("split", tensor, dim))
        return tuple(map(tensor._like, pieces))
    count = len(tensor)
    if isinstance(split_size, int):
        starts = list(range(0, max(count, 1), split_size))
        return tuple(samples(tensor, range(s, min(s + split_size, count))) for s in starts)
    ends = [sum(split_size[: i + 1]) for i in range(len(split_size))]
    return tuple(samples(tensor, range(e - n, e)) for e, n in zip(ends, split_size, strict=True))


def sections(input: Any, split_sizes: Any, dim: int = 0) -> Any:
    """`split` under its other name."""
    return split(input, split_sizes, dim)


# ------------------------------------------------------------------------------ joining
def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Nested tensors behind each other along a regular dimension or the batch.

    Raises:
        RuntimeError: one is dense, or they do not share offsets.
    """
    first = next(x for x in tensors if isinstance(x, NestedTensor))
    d = normal("cat", first.dim(), dim)
    if any(not isinstance(x, JaggedTensor) for x in tensors):
        refuse("cat", "nested and dense tensors cannot be joined", "make all of them nested")
    if any(x._ragged_idx != first._ragged_idx for x in tensors):
        refuse("cat", "the operands have different ragged dimensions", "transpose() them")
    if d == 0:
        parts = [part for x in tensors for part in x._parts()]
        axis = first._ragged_idx - 1
        ragged = ragged_from_lengths([p.shape[axis] for p in parts], first.device)
        return jagged(torch.cat(parts, axis), ragged, first._ragged_idx)
    if any(x._ragged is not first._ragged for x in tensors):
        refuse("cat", "the operands do not share offsets", "cat(dim=0) joins batches")
    return first._like(torch.cat([x._kept for x in tensors], inner("cat", first, d)))


def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Nested tensors that share offsets, along a new dimension behind the batch."""
    first = next(x for x in tensors if isinstance(x, NestedTensor))
    if normal("stack", first.dim() + 1, dim) == 0:
        refuse("stack", "stack(): not supported for NestedTensor on dim=0")
    d = normal("stack", first.dim() + 1, dim)
    return cat([unsqueeze(x, d) for x in tensors], d)


# ------------------------------------------------------------------------------ memory
def contiguous(self: Any, memory_format: Any = None) -> Tensor:
    """Samples behind each other, without holes, in row-major order."""
    del memory_format
    if self.is_contiguous():
        return self
    if self._ragged.lengths is None:
        return self._like(self._kept.contiguous())
    return samples(self, range(len(self)))


def copy_(self: Any, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Takes the values of a nested tensor of the same shapes."""
    del non_blocking
    if not isinstance(self, NestedTensor) or not isinstance(src, NestedTensor):
        refuse("copy_", "copy_ only supports two nested tensors", "nested_tensor_from_jagged(...)")
    if not self._same_form(src):
        refuse("copy_", "expected compatible input and src shapes", "samples have equal shapes")
    self._kept.copy_(src._kept)
    return self


# ------------------------------------------------------------------------------ x[...]
def subscript(tensor: Tensor, key: Any) -> Any:
    """`x[key]`: a sample, or sections of regular dimensions.

    Raises:
        RuntimeError: the ragged dimension is indexed.
    """
    keys = key if isinstance(key, tuple) else (key,)
    keys = _spread(keys, tensor.dim())
    if not keys:
        return tensor._like(tensor._kept)
    first, others = keys[0], keys[1:]
    if isinstance(first, int):
        part = select(tensor, 0, first) if isinstance(tensor, JaggedTensor) else _sample(
            tensor, first)  # fmt: skip
        return part[others] if others else part
    if first != slice(None):
        refuse("slice", "slice(): not supported for NestedTensor on dim=0",
               "x.unbind()[...], or narrow(0, start, length)")  # fmt: skip
    if not isinstance(tensor, JaggedTensor):
        parts = [part[others] for part in tensor._parts()]
        from flambeau.nested.construct import strided_of

        return strided_of(parts)
    return _regular(tensor, others)


def _sample(tensor: Any, index: int) -> Any:
    if not -len(tensor) <= index < len(tensor):
        raise IndexError(
            f"[select] index {index} is out of bounds for dimension 0 with size {len(tensor)}\n"
            "hint: there are as many samples"
        )
    return tensor._parts()[index]


def _spread(keys: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Keys with `...` written out."""
    if not any(k is Ellipsis for k in keys):
        return keys
    at = next(i for i, k in enumerate(keys) if k is Ellipsis)
    used = sum(k is not None and k is not Ellipsis for k in keys)
    return (*keys[:at], *(slice(None),) * (ndim - used), *keys[at + 1 :])


def _regular(tensor: Tensor, keys: tuple[Any, ...]) -> Tensor:
    """Keys of the dimensions behind the batch."""
    d, place, r = 1, 1, tensor._ragged_idx
    for key in keys:
        if key is None:
            place += 1
            continue
        if not isinstance(key, (int, slice)) or isinstance(key, bool):
            raise NotImplementedError(
                "[getitem] not implemented for nested tensors with tensors as index\n"
                "hint: index x.values(), or the samples of x.unbind()"
            )
        if d == r:
            if key != slice(None):
                refuse("slice", "slice(): not supported for NestedTensor on ragged dim",
                       "x.unbind()[i][...]")  # fmt: skip
            break
        place += not isinstance(key, int)
        d += 1
    else:
        place += r - d
    return jagged(tensor._kept[keys] if keys else tensor._kept, tensor._ragged, place)
