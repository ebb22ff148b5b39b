"""Compositions of operators that move, join and split: see `composites`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flambeau import _core
from flambeau.decompositions.composites import cast, composes, contiguous, reshape
from flambeau.ops import aten
from flambeau.ops.legacy.queries import broadcast_shapes
from flambeau.runtime.symbolic import SymInt, has_symbols

Tensor = Any


# ------------------------------------------------------------------------------ shapes
@composes("reshape")
def _reshape(self: Tensor, shape: Any) -> Tensor:
    return reshape(self, shape)


@composes("reshape_as view_as")
def _reshape_as(self: Tensor, other: Tensor) -> Tensor:
    return reshape(self, tuple(other.shape))


@composes("ravel")
def _ravel(self: Tensor) -> Tensor:
    return reshape(self, (-1,))


@composes("flatten")
def _flatten(self: Tensor, start_dim: int, end_dim: int) -> Tensor:
    if not self.ndim:
        return reshape(self, (1,))
    first, last = start_dim % self.ndim, end_dim % self.ndim
    if first == last:
        return NotImplemented
    inside = self.shape[first : last + 1]
    extent = math.prod(inside) if has_symbols(inside) else -1
    return reshape(self, (*self.shape[:first], extent, *self.shape[last + 1 :]))


@composes("unflatten")
def _unflatten(self: Tensor, dim: int, sizes: Any) -> Tensor:
    place = dim % self.ndim
    return aten.view(self, (*self.shape[:place], *sizes, *self.shape[place + 1 :]))


@composes("contiguous")
def _contiguous(self: Tensor, **memory_format: Any) -> Tensor:
    return contiguous(self, **memory_format)


@composes("to type_as")
def _to(self: Tensor, dtype: Any = None, other: Any = None, **options: Any) -> Tensor:
    target_dtype = dtype if other is None else other.dtype
    return (
        NotImplemented
        if target_dtype is None or self.dtype == target_dtype
        else cast(self, target_dtype)
    )


def _cast_named(name: str) -> None:
    dtype = getattr(_core, name)

    def compose(self: Tensor, **options: Any) -> Tensor:
        return NotImplemented if options or self.dtype == dtype else cast(self, dtype)

    composes(_CASTS[name])(compose)


_CASTS = {
    "float16": "half", "float32": "float", "float64": "double", "bfloat16": "bfloat16",
    "complex64": "cfloat", "complex128": "cdouble", "int64": "long", "int32": "int",
    "int16": "short", "int8": "char", "uint8": "byte", "bool": "bool",
}  # fmt: skip
for _name in _CASTS:
    _cast_named(_name)


@composes("broadcast_to expand_as")
def _broadcast_to(self: Tensor, size: Any = None, other: Any = None) -> Tensor:
    return aten.expand(self, tuple(other.shape if size is None else size))


@composes("_broadcast_tensors broadcast_tensors")
def _broadcast_tensors(tensors: Sequence[Tensor] | Tensor) -> Any:
    if isinstance(tensors, _core.Tensor):  # the only argument of broadcast_tensors
        tensors = [tensors]
    shape = broadcast_shapes(*[x.shape for x in tensors])
    return [aten.expand(x, tuple(shape)) for x in tensors]


@composes("_meshgrid")
def _meshgrid(tensors: Sequence[Tensor], swap: bool) -> Any:
    if swap and len(tensors) > 1:
        return NotImplemented
    shape = [x.numel() for x in tensors]
    grids = []
    for place, x in enumerate(tensors):
        own = [-1 if i == place else 1 for i in range(len(tensors))]
        grids.append(aten.expand(aten.view(x, tuple(own)), tuple(shape)))
    return grids


@composes("sum_to_size")
def _sum_to_size(self: Tensor, size: Any) -> Tensor:
    lead = self.ndim - len(size)
    dims = [*range(lead), *[lead + i for i, n in enumerate(size) if n == 1 != self.shape[lead + i]]]
    if not dims:
        return NotImplemented
    total = aten.sum(self, dims, True)
    return aten.view(total, tuple(size)) if lead else total


# ------------------------------------------------------------------------------ orders
@composes("swapaxes swapdims")
def _swapped(self: Tensor, **dims: int) -> Tensor:
    first, second = dims.values()
    return aten.transpose(self, first, second)


@composes("_matrix_transpose mT")
def _matrix_transpose(self: Tensor) -> Tensor:
    if self.ndim < 2:
        return NotImplemented
    return aten.transpose(self, -2, -1)


@composes("movedim moveaxis")
def _movedim(self: Tensor, source: Any, destination: Any) -> Tensor:
    sources, places = [
        [d % self.ndim for d in ([dims] if isinstance(dims, int) else dims)]
        for dims in (source, destination)
    ]
    left = iter([d for d in range(self.ndim) if d not in sources])
    target = dict(zip(places, sources, strict=True))
    return aten.permute(self, [target[i] if i in target else next(left) for i in range(self.ndim)])


@composes("take_along_dim")
def _take_along_dim(self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        return NotImplemented

    def spread(x: Tensor, other: Tensor) -> Tensor:
        shape = list(broadcast_shapes(_without(x, dim), _without(other, dim)))
        shape.insert(dim % x.ndim, x.shape[dim])
        return aten.expand(x, tuple(shape))

    index, x = spread(indices, self), spread(self, indices)
    # PyTorch takes remainders, for which no index is out of bounds.
    index = aten.where(aten.lt(index, 0), aten.add(index, x.shape[dim]), index)
    return aten.gather(x, dim, index)


def _without(x: Tensor, dim: int) -> tuple[int, ...]:
    place = dim % x.ndim
    return (*x.shape[:place], *x.shape[place + 1 :])


@composes("nonzero")
def _nonzero(input: Tensor, as_tuple: bool = False) -> Any:  # noqa: A002
    if not as_tuple:
        return aten.nonzero(input)
    return aten.unbind(aten.nonzero(input if input.ndim else aten.unsqueeze(input, 0)), 1)


@composes("unique")
def _unique(
    input: Tensor,  # noqa: A002
    sorted: bool = True,  # noqa: A002
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    if dim is not None:
        return NotImplemented
    results = aten._unique2(input, sorted, return_inverse, return_counts)
    flags = (True, return_inverse, return_counts)
    parts = tuple([x for x, shown in zip(results, flags, strict=True) if shown])
    return parts[0] if len(parts) == 1 else parts


@composes("fliplr")
def _fliplr(self: Tensor) -> Tensor:
    return aten.flip(self, [1])


@composes("flipud")
def _flipud(self: Tensor) -> Tensor:
    return aten.flip(self, [0])


@composes("diag")
def _diag(self: Tensor, diagonal: int) -> Tensor:
    if self.ndim == 1:
        return aten.diag_embed(self, diagonal)
    return aten.diagonal_copy(self, diagonal)


@composes("diagflat")
def _diagflat(self: Tensor, offset: int) -> Tensor:
    return aten.diag_embed(reshape(self, (-1,)), offset)


# ------------------------------------------------------------------------------ parts
@composes("narrow")
def _narrow(self: Tensor, dim: int, start: Any, length: int) -> Tensor:
    if isinstance(start, _core.Tensor):
        return NotImplemented
    first = start + self.shape[dim] * (start < 0)
    return aten.slice(self, dim, first, first + length)


def _chunk_size(x: Tensor, chunks: int, dim: int) -> int:
    return max(1, -(-x.shape[dim] // chunks))


@composes("chunk")
def _chunk(dim: int, chunks: int, **tensor: Tensor) -> Any:
    (x,) = tensor.values()
    return aten.split(x, _chunk_size(x, chunks, dim), dim)


@composes("unsafe_chunk")
def _unsafe_chunk(self: Tensor, chunks: int, dim: int) -> Any:
    return aten.unsafe_split(self, _chunk_size(self, chunks, dim), dim)


@composes("split")
def _split(dim: int, **arguments: Any) -> Any:
    x, sizes = arguments.values()
    if isinstance(sizes, (int, SymInt)):
        return NotImplemented
    return aten.split_with_sizes(x, list(sizes), dim)


def _parts(x: Tensor, cuts: Any, dim: int) -> Any:
    extent = x.shape[dim]
    if isinstance(cuts, int):
        size, remainder = divmod(extent, cuts)
        edges = [0]
        for k in range(cuts):
            edges.append(edges[-1] + size + (k < remainder))
    else:
        edges = [0, *[min(c + extent * (c < 0), extent) for c in cuts], extent]
    return [
        aten.slice(x, dim, first, max(first, last))
        for first, last in zip(edges, edges[1:], strict=False)
    ]


@composes("tensor_split")
def _tensor_split(self: Tensor, dim: int, **cuts: Any) -> Any:
    (where,) = cuts.values()
    return NotImplemented if isinstance(where, _core.Tensor) else _parts(self, where, dim)


def _split_along(name: str, dim: int) -> None:
    def compose(self: Tensor, **cuts: Any) -> Any:
        (where,) = cuts.values()
        return _parts(self, where, 0 if name == "hsplit" and self.ndim == 1 else dim)

    composes(name)(compose)


for _name, _dim in (("vsplit", 0), ("hsplit", 1), ("dsplit", 2)):
    _split_along(_name, _dim)


# ------------------------------------------------------------------------------ joins
@composes("hstack")
def _hstack(tensors: Sequence[Tensor]) -> Tensor:
    operands = [x if x.ndim else aten.view(x, (1,)) for x in tensors]
    return aten.cat(operands, 0 if operands[0].ndim == 1 else 1)


@composes("vstack")
def _vstack(tensors: Sequence[Tensor]) -> Tensor:
    return aten.cat([x if x.ndim > 1 else aten.unsqueeze(x, 0) for x in tensors])


@composes("column_stack")
def _column_stack(tensors: Sequence[Tensor]) -> Tensor:
    columns = [x if x.ndim > 1 else reshape(x, (x.numel(), 1)) for x in tensors]
    return aten.cat(columns, 1)


@composes("_atleast_1d")
def _atleast_1d(self: Tensor) -> Tensor:
    return aten.view(self, (1,)) if not self.ndim else NotImplemented


@composes("_atleast_2d")
def _atleast_2d(self: Tensor) -> Tensor:
    if self.ndim > 1:
        return NotImplemented
    return aten.view(self, (1, 1)) if not self.ndim else aten.unsqueeze(self, 0)


@composes("_atleast_3d")
def _atleast_3d(self: Tensor) -> Tensor:
    if not self.ndim:
        return aten.view(self, (1, 1, 1))
    if self.ndim > 2:
        return NotImplemented
    return aten.unsqueeze(self if self.ndim > 1 else aten.unsqueeze(self, 0), -1)


@composes("dstack")
def _dstack(tensors: Sequence[Tensor]) -> Tensor:
    def deep(x: Tensor) -> Tensor:
        x = x if x.ndim > 1 else aten.unsqueeze(x, 0)
        return x if x.ndim > 2 else aten.unsqueeze(x, -1)

    return aten.cat([deep(x) for x in tensors], 2)


# ------------------------------------------------------------------------------ subscripts
@composes("_getitem")
def _getitem(self: Tensor, key: Any) -> Tensor:
    if isinstance(key, _core.Tensor) and key.dtype == _core.bool:
        return aten.index(self, [key])
    return NotImplemented


@composes("_basic_index")
def _basic_index(self: Tensor, pattern: str, numbers: Any) -> Tensor:
    remaining, dim = iter(numbers), 0
    for item in pattern:
        if item == "n":
            self = aten.unsqueeze(self, dim)
        elif item == "i":
            self = aten.select(self, dim, next(remaining))
            continue
        elif item == "s":
            start, length, step = next(remaining), next(remaining), next(remaining)
            if (start, length, step) != (0, self.shape[dim], 1):
                end = min(start + length * step, self.shape[dim])
                self = aten.slice(self, dim, start, end, step)
        dim += 1
    return self
