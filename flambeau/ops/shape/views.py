"""Views: results that share their operand's memory under another geometry.

Bodies state the value in shape primitives, from which derivatives follow, and the exact strides
PyTorch would show; where an argument is no plain tensor (inside another op) only the value counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import PARTS
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, mod, mul, prod
from flambeau.language import layout
from flambeau.language.definition import View, function, op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import SymInt, Tensor
from flambeau.ops.common import (
    geometry_of,
    hint_of,
    is_one,
    normalise_dim,
    normalise_dims,
    number_shown,
    same_sizes,
    shown,
)
from flambeau.ops.shape.convert import contiguous

Shape = tuple[Size, ...]
Move = Callable[[Shape, Shape, Size], tuple[Shape, Size]]
Samples = Iterator[Sample]


def viewed(x: Node, value: Node, move: Move) -> Node | View:
    """`value` with the geometry that `move` makes of x's sizes, strides and offset."""
    geometry = geometry_of(x)
    if geometry is None:
        return value
    strides, offset = move(*geometry)
    return View(value, strides, offset)


def infer_shape(numel: Size, size: Sequence[Size], name: str) -> Shape:
    """`size` with a -1 replaced by what is left.

    Raises:
        RuntimeError: more than one -1, another negative size, or another number of elements.
    """
    negative = [d for d, n in enumerate(size) if isinstance(n, int) and n < 0]
    if any(size[d] != -1 for d in negative):
        bad = next(size[d] for d in negative if size[d] != -1)
        raise failure(RuntimeError, name, f"invalid shape dimension {bad}", "only -1 is inferred")
    if len(negative) > 1:
        raise failure(RuntimeError, name, "only one dimension can be inferred", "give the others")
    if not negative:
        if not layout.same(numel, prod(size)):
            raise _invalid_shape(numel, size, name)
        return tuple(size)
    others = prod([n for d, n in enumerate(size) if d != negative[0]])
    if isinstance(others, int) and others == 0:
        problem = f"cannot reshape tensor of {number_shown(numel)} elements into shape "
        problem += f"{shown(size)} because the unspecified dimension size -1 can be any value and "
        problem += "is ambiguous"
        raise failure(RuntimeError, name, problem, "write the size instead of -1")
    if not layout.same(mod(numel, others), 0):
        raise _invalid_shape(numel, size, name)
    result = list(size)
    result[negative[0]] = floordiv(numel, others)
    return tuple(result)


def _invalid_shape(numel: Size, size: Sequence[Size], name: str) -> RuntimeError:
    return RuntimeError(
        f"[{name}] shape '{shown(size)}' is invalid for input of size {number_shown(numel)}\n"
        "hint: the product of the sizes must stay the same"
    )


# ------------------------------------------------------------------------------------ reshaping


def _view_samples() -> Samples:
    yield sample(T(2, 6), (3, 4))
    yield sample(T(2, 6), (-1,))
    yield sample(T(), (1, 1))
    yield sample(T(0, 3), (3, 0))
    yield sample(T(2, 3, 4), (6, -1))


def _view_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(2, 6), (5, 2)), RuntimeError, "is invalid for input of size 12")
    yield ErrorSample(sample(T(2, 6, layout="transposed"), (12,)), RuntimeError, "not compatible")


@op(where="method", view=True, samples=_view_samples, errors=_view_errors)
def view(self: Tensor, size: Sequence[SymInt]) -> Tensor:
    """The same data with another shape; never copies.

    Shapes: any to `size`, which may hold one -1. `view(dtype)` reads the bytes as another type.

    Raises:
        RuntimeError: other number of elements, or strides that no view can follow.

    Example:
        >>> torch.arange(6).view(2, 3).shape
        torch.Size([2, 3])
    """
    shape = infer_shape(prod(self.shape), size, "view")
    base = geometry_of(self)
    if base is not None:
        strides = layout.reshape_strides(base[0], base[1], shape)
        if strides is None:
            problem = f"view size {shown(shape)} is not compatible with input tensor's size "
            problem += f"{shown(self.shape)} and stride {shown(base[1])} (at least one dimension "
            problem += "spans across two contiguous subspaces). Use .reshape(...) instead."
            raise failure(RuntimeError, "view", problem, "reshape copies when it must")
    return prims.reshape(self, shape)


def _reshape_samples() -> Samples:
    yield from _view_samples()
    yield sample(T(4, 6, layout="transposed"), (3, 8))
    yield sample(T(4, 6, layout="expanded"), (2, 12))


@op(view=True, samples=_reshape_samples, reference="numpy.reshape")
def reshape(self: Tensor, shape: Sequence[SymInt]) -> Tensor:
    """The same elements with another shape: a view where possible, else a copy.

    Raises:
        RuntimeError: other number of elements.

    Example:
        >>> torch.arange(6).reshape(3, -1).shape
        torch.Size([3, 2])
    """
    return prims.reshape(self, infer_shape(prod(self.shape), shape, "reshape"))


@op(where="torch", view=True, samples=lambda: [sample(T(2, 3))])
def alias(self: Tensor) -> Tensor:
    """Another tensor of the same memory and geometry.

    Example:
        >>> x = torch.zeros(2)
        >>> torch.alias(x).data_ptr() == x.data_ptr()
        True
    """
    return self


def _pair_samples() -> Samples:
    yield sample(T(2, 6), T(3, 4, grad=False))
    yield sample(T(0, 3), T(3, 0, grad=False))


@op(where="method", view=True, samples=_pair_samples)
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """`view(other.shape)`.

    Example:
        >>> torch.zeros(6).view_as(torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """
    return view(self, other.shape)


@op(where="method", view=True, samples=_pair_samples)
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`reshape(other.shape)`.

    Example:
        >>> torch.zeros(6).reshape_as(torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """
    return reshape(self, other.shape)


def _flatten_samples() -> Samples:
    yield sample(T(2, 3, 4))
    yield sample(T())
    yield sample(T(2, 3, 4), 1)
    yield sample(T(2, 3, 4, 5), 1, -2)
    yield sample(T(4, 6, layout="transposed"))


@op(view=True, returns_self=True, samples=_flatten_samples)
def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions `start_dim` to `end_dim` as one; a tensor without dimensions becomes (1,).

    Raises:
        RuntimeError: start_dim lies behind end_dim.

    Example:
        >>> torch.zeros(2, 3, 4).flatten(1).shape
        torch.Size([2, 12])
    """
    first = normalise_dim(start_dim, self.ndim, "flatten")
    last = normalise_dim(end_dim, self.ndim, "flatten")
    if first > last:
        problem = "flatten() has invalid args: start_dim cannot come after end_dim"
        raise failure(RuntimeError, "flatten", problem, f"got {start_dim} and {end_dim}")
    if self.ndim == 0:
        return prims.reshape(self, (1,))
    if first == last:
        return self
    middle = prod(self.shape[first : last + 1])
    return prims.reshape(self, (*self.shape[:first], middle, *self.shape[last + 1 :]))


@op(view=True, samples=lambda: [sample(T(2, 3)), sample(T(6, layout="sliced"))])
def ravel(self: Tensor) -> Tensor:
    """All elements in one dimension, in row-major order: a view of a contiguous tensor, or a copy.

    Example:
        >>> torch.zeros(2, 3).ravel().shape
        torch.Size([6])
    """
    return prims.reshape(contiguous(self), (prod(self.shape),))


def _unflatten_samples() -> Samples:
    yield sample(T(2, 6), 1, (2, 3))
    yield sample(T(2, 6), -1, (-1, 2))


@op(view=True, samples=_unflatten_samples)
def unflatten(self: Tensor, dim: int, sizes: Sequence[SymInt]) -> Tensor:
    """Dimension `dim` as several of the given sizes, one of which may be -1.

    Raises:
        RuntimeError: the sizes do not multiply to the dimension.

    Example:
        >>> torch.zeros(2, 6).unflatten(1, (2, 3)).shape
        torch.Size([2, 2, 3])
    """
    d = normalise_dim(dim, self.ndim, "unflatten")
    if not sizes:
        raise failure(RuntimeError, "unflatten", "sizes must be non-empty", "name the new sizes")
    inner = infer_shape(self.shape[d], sizes, "unflatten")
    return prims.reshape(self, (*self.shape[:d], *inner, *self.shape[d + 1 :]))


def _unsqueeze_samples() -> Samples:
    yield sample(T(2, 3), 0)
    yield sample(T(2, 3), -1)
    yield sample(T(), 0)
    yield sample(T(4, 6, layout="transposed"), 1)


@op(view=True, samples=_unsqueeze_samples)
def unsqueeze(self: Tensor, dim: int) -> Tensor:
    """A dimension of size 1 inserted before `dim`; negative counts from the end of the result.

    Example:
        >>> torch.zeros(3).unsqueeze(-1).shape
        torch.Size([3, 1])
    """
    d = normalise_dim(dim, self.ndim + 1, "unsqueeze")

    def move(sizes: Shape, strides: Shape, offset: Size) -> tuple[Shape, Size]:
        step = mul(sizes[d], strides[d]) if d < len(sizes) else 1
        return (*strides[:d], step, *strides[d:]), offset

    return viewed(self, prims.reshape(self, (*self.shape[:d], 1, *self.shape[d:])), move)


def _squeeze_samples() -> Samples:
    yield sample(T(1, 3, 1))
    yield sample(T(1, 3, 1), 0)
    yield sample(T(1, 3, 1), (0, 2))
    yield sample(T(2, 3), 0)
    yield sample(T(), 0)


@op(view=True, samples=_squeeze_samples)
def squeeze(self: Tensor, dim: Sequence[int] | None = None) -> Tensor:
    """Dimensions of size 1 removed: all, or those of `dim` that have size 1.

    Example:
        >>> torch.zeros(1, 3, 1).squeeze().shape
        torch.Size([3])
    """
    named = range(self.ndim) if dim is None else normalise_dims(dim, self.ndim, "squeeze")
    remaining = [d for d in range(self.ndim) if not (d in named and is_one(self.shape[d]))]
    return viewed(
        self,
        prims.reshape(self, tuple(self.shape[d] for d in remaining)),
        lambda sizes, strides, offset: (tuple(strides[d] for d in remaining), offset),
    )


# ------------------------------------------------------------------------------------ permuting


def _transpose_samples() -> Samples:
    yield sample(T(2, 3), 0, 1)
    yield sample(T(2, 3, 4), 0, -1)
    yield sample(T(), 0, -1)
    yield sample(T(4, 6, layout="sliced"), 1, 0)


def _swapped(self: Node, first: int, second: int, name: str) -> Node:
    a = normalise_dim(first, self.ndim, name)
    b = normalise_dim(second, self.ndim, name)
    return self if self.ndim == 0 else prims.transpose(self, a, b)


@op(view=True, samples=_transpose_samples)
def transpose(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions swapped.

    Example:
        >>> torch.zeros(2, 3).transpose(0, 1).shape
        torch.Size([3, 2])
    """
    return _swapped(self, dim0, dim1, "transpose")


@op(view=True, samples=_transpose_samples)
def swapaxes(self: Tensor, axis0: int, axis1: int) -> Tensor:
    """NumPy's name of `transpose`.

    Example:
        >>> torch.swapaxes(torch.zeros(2, 3), 0, 1).shape
        torch.Size([3, 2])
    """
    return _swapped(self, axis0, axis1, "swapaxes")


@op(view=True, samples=_transpose_samples)
def swapdims(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """The same as `transpose`.

    Example:
        >>> torch.swapdims(torch.zeros(2, 3), 0, 1).shape
        torch.Size([3, 2])
    """
    return _swapped(self, dim0, dim1, "swapdims")


@op(view=True, samples=lambda: [sample(T(2, 3)), sample(T(3))])
def t(self: Tensor) -> Tensor:
    """A matrix transposed; vectors and numbers as they are.

    Raises:
        RuntimeError: more than two dimensions.

    Example:
        >>> torch.zeros(2, 3).t().shape
        torch.Size([3, 2])
    """
    if self.ndim > 2:
        problem = f"t() expects a tensor with <= 2 dimensions, but self is {self.ndim}D"
        raise failure(RuntimeError, "t", problem, "transpose(dim0, dim1) swaps any two")
    return prims.permute(self, range(self.ndim - 1, -1, -1))


@op(name="numpy_T", where="torch", view=True, samples=lambda: [sample(T(2, 3)), sample(T(4))])
def numpy_t(self: Tensor) -> Tensor:
    """All dimensions in reverse order: the attribute `T`.

    Example:
        >>> torch.zeros(2, 3).T.shape
        torch.Size([3, 2])
    """
    if self.ndim not in (0, 2):
        late("flambeau.core.warned").warn_once(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
            "deprecated and it will throw an error in a future release. Consider `x.mT` to "
            "transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to "
            "reverse the dimensions of a tensor."
        )
    return prims.permute(self, range(self.ndim - 1, -1, -1))


@op(
    name="_matrix_transpose",
    where="torch",
    view=True,
    samples=lambda: [sample(T(2, 3)), sample(T())],
)
def matrix_t(self: Tensor) -> Tensor:
    """Matrices transposed: the attribute `mT`."""
    return matrix_transposed(self, "mT")


def matrix_transposed(self: Node, name: str) -> Node:
    """Matrices with rows and columns swapped, for the operator `name`; a number is left alone."""
    if self.ndim == 0:
        return prims.permute(self, ())
    if self.ndim < 2:
        problem = f"tensor.{name} is only supported on matrices or batches of matrices. Got "
        problem += f"{self.ndim}-D tensor."
        raise failure(RuntimeError, name, problem, "unsqueeze a vector first")
    return prims.transpose(self, self.ndim - 2, self.ndim - 1)


def _permute_samples() -> Samples:
    yield sample(T(2, 3, 4), (2, 0, 1))
    yield sample(T(2, 3), (-1, 0))
    yield sample(T(), ())


@op(view=True, samples=_permute_samples)
def permute(self: Tensor, dims: Sequence[int]) -> Tensor:
    """Dimensions reordered: dimension i of the result is `dims[i]` of the input.

    Raises:
        RuntimeError: not one entry per dimension.

    Example:
        >>> torch.zeros(2, 3, 4).permute(2, 0, 1).shape
        torch.Size([4, 2, 3])
    """
    if len(dims) != self.ndim:
        problem = "number of dimensions in the tensor input does not match the length of the "
        problem += f"desired ordering of dimensions i.e. input.dim() = {self.ndim} is not equal to "
        problem += f"len(dims) = {len(dims)}"
        raise failure(RuntimeError, "permute", problem, "name each dimension once")
    return prims.permute(self, normalise_dims(dims, self.ndim, "permute"))


def _movedim_samples() -> Samples:
    yield sample(T(2, 3, 4), 0, 2)
    yield sample(T(2, 3, 4), (0, 1), (-1, 0))


@op(view=True, aliases="moveaxis", samples=_movedim_samples, reference="numpy.moveaxis")
def movedim(self: Tensor, source: Sequence[int], destination: Sequence[int]) -> Tensor:
    """Dimensions `source` moved to the places `destination`, the others keeping their order.

    Raises:
        RuntimeError: different lengths, or a dimension named twice.

    Example:
        >>> torch.zeros(2, 3, 4).movedim(0, -1).shape
        torch.Size([3, 4, 2])
    """
    if len(source) != len(destination):
        problem = f"movedim: Invalid source or destination dims: source ({list(source)} dims) "
        problem += f"should contain the same number of dims as destination ({list(destination)} "
        problem += "dims)"
        raise failure(RuntimeError, "movedim", problem, "one destination per source")
    taken = normalise_dims(source, self.ndim, "movedim")
    places = normalise_dims(destination, self.ndim, "movedim")
    others = iter(d for d in range(self.ndim) if d not in taken)
    moved = dict(zip(places, taken, strict=True))
    return prims.permute(self, [moved[d] if d in moved else next(others) for d in range(self.ndim)])


# ------------------------------------------------------------------------------------ expanding


def _expand_samples() -> Samples:
    yield sample(T(3, 1), (3, 4))
    yield sample(T(3, 1), (2, -1, 4))
    yield sample(T(), (2, 3))
    yield sample(T(1, 3), (0, 3))


def _expand_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3, 2), (3, 4)), RuntimeError, "must match the existing size")


def expanded(self: Node, size: Sequence[Size], name: str) -> Node:
    """x broadcast to `size`, where -1 keeps a dimension."""
    lead = len(size) - self.ndim
    if lead < 0:
        problem = f"expand(tensor{shown(self.shape)}, size={shown(size)}): the number of sizes "
        problem += f"provided ({len(size)}) must be greater or equal to the number of dimensions "
        problem += f"in the tensor ({self.ndim})"
        raise failure(RuntimeError, name, problem, "give one size per dimension")
    target: list[Size] = []
    for d, extent in enumerate(size):
        own = self.shape[d - lead] if d >= lead else None
        if isinstance(extent, int) and extent == -1 and own is not None:
            target.append(own)
            continue
        if isinstance(extent, int) and extent < 0:
            problem = f"The expanded size of the tensor ({extent}) isn't allowed in a leading, "
            problem += f"non-existing dimension {d}"
            raise failure(RuntimeError, name, problem, "-1 stands for an existing dimension")
        if own is None or is_one(own) or layout.same(own, extent):
            target.append(extent if own is None or is_one(own) else own)
            continue
        problem = f"The expanded size of the tensor ({number_shown(extent)}) must match the "
        problem += f"existing size ({number_shown(own)}) at non-singleton dimension {d}.  Target "
        problem += f"sizes: {shown(size)}.  Tensor sizes: {shown(self.shape)}"
        raise failure(RuntimeError, name, problem, "only size 1 expands")
    return prims.broadcast_to(self, target)


@op(where="method", view=True, samples=_expand_samples, errors=_expand_errors)
def expand(self: Tensor, size: Sequence[SymInt], *, implicit: bool = False) -> Tensor:
    """Dimensions of size 1 repeated without copying; new ones in front; -1 keeps a size.

    Raises:
        RuntimeError: a size other than 1 would change.

    Example:
        >>> torch.zeros(3, 1).expand(-1, 4).shape
        torch.Size([3, 4])
    """
    return expanded(self, size, "expand")


@op(where="method", view=True, samples=lambda: [sample(T(3, 1), T(2, 3, 4, grad=False))])
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """`expand(other.shape)`.

    Example:
        >>> torch.zeros(1).expand_as(torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """
    return expanded(self, other.shape, "expand_as")


@op(view=True, samples=_expand_samples)
def broadcast_to(self: Tensor, size: Sequence[SymInt]) -> Tensor:
    """The same as `expand`.

    Example:
        >>> torch.broadcast_to(torch.zeros(3), (2, 3)).shape
        torch.Size([2, 3])
    """
    return expanded(self, size, "broadcast_to")


@op(name="_broadcast_tensors", where="torch", view=True)
def broadcast_list(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    try:
        return list(prims.broadcast_all(*tensors))
    except ValueError as error:
        problem = f"shapes do not broadcast: {', '.join(shown(x.shape) for x in tensors)}"
        raise failure(
            RuntimeError, "broadcast_tensors", problem, "sizes must be equal, or 1"
        ) from error


@function(where="torch", samples=lambda: [sample(T(3, 1), T(4)), sample(T(2, 3))])
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape, as a tuple of views.

    Example:
        >>> a, b = torch.broadcast_tensors(torch.zeros(3, 1), torch.zeros(4))
        >>> a.shape, b.shape
        (torch.Size([3, 4]), torch.Size([3, 4]))
    """
    items = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return broadcast_list(list(items)) if len(items) else ()


# ------------------------------------------------------------------------------------ geometry


@op(
    view=True,
    notes={"any window": True},
    samples=lambda: [sample(T(4, 3), (2, 2), (1, 2), 1), sample(T(6), (4, 3), (1, 1))],
)
def as_strided(
    self: Tensor,
    size: Sequence[SymInt],
    stride: Sequence[SymInt],
    storage_offset: SymInt | None = None,
) -> Tensor:
    """A view with these sizes, strides and offset, in elements of the tensor's storage.

    Raises:
        RuntimeError: sizes and strides differ in length, or leave the storage.
        NotImplementedError: the tensor's own elements are not dense in memory.

    Example:
        >>> torch.arange(6).as_strided((2, 2), (1, 2), 1)
        tensor([[1, 3],
                [2, 4]])
    """
    if len(size) != len(stride):
        problem = "mismatch in length of strides and shape"
        raise failure(RuntimeError, "as_strided", problem, "one stride per size")
    geometry = geometry_of(self)
    if geometry is None:
        at = 0 if storage_offset is None else storage_offset
        return prims.as_strided(self, size, stride, at)
    sizes, strides, offset = geometry
    order = sorted(range(self.ndim), key=lambda d: hint_of(strides[d]), reverse=True)
    ordered = prims.permute(self, order)
    if not same_sizes(
        [strides[d] for d in order if not is_one(sizes[d])],
        [
            s
            for s, n in zip(layout.contiguous_strides(ordered.shape), ordered.shape, strict=True)
            if not is_one(n)
        ],
    ):
        raise NotImplementedError(
            "[as_strided] the tensor is not dense in memory: its strides are "
            f"{shown(strides)}\nhint: call as_strided on the tensor it is a view of"
        )
    at = offset if storage_offset is None else storage_offset
    value = prims.as_strided(ordered, size, stride, at - offset)
    return View(value, tuple(stride), at)


def _complex_samples() -> Samples:
    yield sample(T(3, 2))
    yield sample(T(2))


@op(where="torch", view=True, samples=_complex_samples, dtypes="f32 f64", autocast="float32")
def view_as_complex(self: Tensor) -> Tensor:
    """Pairs of real numbers in the last dimension as complex numbers.

    Raises:
        RuntimeError: the last dimension is not 2, or its stride not 1; not a floating dtype.

    Example:
        >>> torch.view_as_complex(torch.tensor([1., 2.]))
        tensor(1.+2.j)
    """
    if self.dtype not in PARTS.values():
        problem = "view_as_complex is only supported for half, float and double tensors, but got "
        problem += f"a tensor of scalar type: {self.dtype}"
        raise failure(RuntimeError, "view_as_complex", problem, "convert it first")
    if self.ndim == 0 or not layout.same(self.shape[-1], 2):
        problem = "Tensor must have a last dimension of size 2"
        raise failure(RuntimeError, "view_as_complex", problem, "stack the parts")
    d = self.ndim - 1
    real, imaginary = (
        prims.reshape(prims.slice(self, d, part, 1), self.shape[:-1]) for part in (0, 1)
    )

    def move(sizes: Shape, strides: Shape, offset: Size) -> tuple[Shape, Size]:
        halves = [mod(s, 2) for s in (*strides[:-1], offset)]
        if not layout.same(strides[-1], 1) or not all(layout.same(h, 0) for h in halves):
            problem = "Tensor must have a last dimension with stride 1 and all others divisible "
            problem += "by 2"
            raise failure(RuntimeError, "view_as_complex", problem, "contiguous() makes it so")
        return tuple(floordiv(s, 2) for s in strides[:-1]), floordiv(offset, 2)

    return viewed(self, prims.complex(real, imaginary), move)


@op(where="torch", view=True, samples=lambda: [sample(T(3, dtype="c64"))], dtypes="c64 c128")
def view_as_real(self: Tensor) -> Tensor:
    """Complex numbers as pairs of real numbers in a new last dimension.

    Raises:
        RuntimeError: not a complex tensor.

    Example:
        >>> torch.view_as_real(torch.tensor([1 + 2j]))
        tensor([[1., 2.]])
    """
    if self.dtype not in PARTS:
        problem = "view_as_real is only supported for complex tensors"
        raise failure(RuntimeError, "view_as_real", problem, "a real tensor has no parts")
    parts = [prims.reshape(p(self), (*self.shape, 1)) for p in (prims.real, prims.imag)]
    return viewed(
        self,
        prims.cat(parts, self.ndim),
        lambda sizes, strides, offset: ((*(mul(2, s) for s in strides), 1), mul(2, offset)),
    )
