"""Parts of a tensor as views: slices, diagonals, windows, and splitting into several of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, ceildiv, floordiv, mod, mul
from flambeau.language import layout
from flambeau.language.definition import op
from flambeau.language.dtypes import object_of
from flambeau.language.samples import ErrorSample, T, sample
from flambeau.language.schema import SymInt, Tensor
from flambeau.ops.common import normalise_dim, number_shown, shown, static_size
from flambeau.ops.shape.views import Samples, Shape, viewed

# ------------------------------------------------------------------------------------ one part


def _narrow_samples() -> Samples:
    yield sample(T(4, 5), 1, 2, 3)
    yield sample(T(4, 5), 0, -2, 1)
    yield sample(T(4, 5), 0, 4, 0)


@op(view=True, samples=_narrow_samples, varying=True)
def narrow(self: Tensor, dim: int, start: SymInt, length: SymInt) -> Tensor:
    """`length` elements of a dimension from `start` on; a negative start counts from the end.

    Raises:
        IndexError: start outside of the dimension.
        RuntimeError: start + length beyond the dimension, or a negative length.

    Example:
        >>> torch.arange(5).narrow(0, 1, 3)
        tensor([1, 2, 3])
    """
    d = normalise_dim(dim, self.ndim, "narrow")
    if self.ndim == 0:
        raise RuntimeError("[narrow] narrow() cannot be applied to a 0-dim tensor\nhint: unsqueeze")
    extent = self.shape[d]
    if isinstance(length, int) and length < 0:
        raise RuntimeError("[narrow] narrow(): length must be non-negative\nhint: swap the bounds")
    first = start + extent if isinstance(start, int) and start < 0 else start
    if less(extent, first) or less(first, 0):
        problem = f"start out of range (expected to be in range of [-{number_shown(extent)}, "
        problem += f"{number_shown(extent)}], but got {number_shown(start)})"
        raise failure(IndexError, "narrow", problem, "check the start")
    if less(extent - first, length):
        problem = f"start ({number_shown(first)}) + length ({number_shown(length)}) exceeds "
        problem += f"dimension size ({number_shown(extent)})."
        raise failure(RuntimeError, "narrow", problem, "shorten the length")
    return prims.slice(self, d, first, length)


@narrow.overload(
    host=True,
    samples=None,
)
def _narrow_tensor(self: Tensor, dim: int, start: Tensor, length: SymInt) -> Any:
    integral = not (start.is_floating_point() or start.is_complex())
    if start.ndim or not integral or start.dtype is object_of("bool"):
        problem = "start must be an 0-dim integral Tensor."
        raise failure(RuntimeError, "narrow", problem, "start.item(), or an int64")
    return narrow(self, dim, int(start.item()), length)


def _select_samples() -> Samples:
    yield sample(T(4, 5), 1, 2)
    yield sample(T(4, 5), 0, -1)
    yield sample(T(4, 6, layout="transposed"), 0, 0)


def _select_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(4, 5), 1, 5), IndexError, "out of range")
    yield ErrorSample(sample(T(), 0, 0), IndexError, "0-dim tensor")


@op(view=True, samples=_select_samples, errors=_select_errors, varying=True)
def select(self: Tensor, dim: int, index: SymInt) -> Tensor:
    """The slice at `index` of a dimension, which disappears.

    Raises:
        IndexError: outside of the dimension, or no dimension at all.

    Example:
        >>> torch.arange(6).reshape(2, 3).select(1, 2)
        tensor([2, 5])
    """
    if self.ndim == 0:
        raise IndexError("[select] select() cannot be applied to a 0-dim tensor.\nhint: use item()")
    d = normalise_dim(dim, self.ndim, "select")
    return _dropped(prims.slice(self, d, position(self, d, index), 1), d)


def position(x: Node, d: int, index: Size) -> Size:
    """An index into dimension d, counted from its start.

    Raises:
        IndexError: outside of the dimension.
    """
    extent = x.shape[d]
    place = index + extent if isinstance(index, int) and index < 0 else index
    if less(place, 0) or not less(place, extent):
        problem = f"select(): index {number_shown(index)} out of range for tensor of size "
        problem += f"{shown(x.shape)} at dimension {d}"
        raise failure(IndexError, "select", problem, f"the size there is {number_shown(extent)}")
    return place


def _dropped(x: Node, d: int) -> Any:
    """Dimension d, of size 1, removed."""
    return viewed(
        x,
        prims.reshape(x, (*x.shape[:d], *x.shape[d + 1 :])),
        lambda sizes, strides, offset: ((*strides[:d], *strides[d + 1 :]), offset),
    )


@op(
    name="slice",
    where="method",
    view=True,
    samples=lambda: [sample(T(6, 2), 0, 1, 5, 2), sample(T(6, 2), 1, -1)],
    varying=True,
)
def slice_of(
    self: Tensor,
    dim: int = 0,
    start: SymInt | None = None,
    end: SymInt | None = None,
    step: SymInt = 1,
) -> Tensor:
    """Every `step`-th element of a dimension from `start` to before `end`, as Python slices.

    Example:
        >>> torch.arange(6)[1:5:2]
        tensor([1, 3])
    """
    d = normalise_dim(dim, self.ndim, "slice")
    extent = self.shape[d]
    if less(step, 1):
        raise failure(RuntimeError, "slice", "slice step must be positive", "flip() reverses")

    def bounded(value: Size | None, default: Size) -> Size:
        if value is None:
            return default
        if isinstance(value, int) and value < 0:
            value = value + extent
            return 0 if less(value, 0) else value
        return extent if less(extent, value) else value

    first, last = bounded(start, 0), bounded(end, extent)
    if not less(first, last):
        return prims.slice(self, d, first if not less(extent, first) else extent, 0)
    return prims.slice(self, d, first, floordiv(last - first + step - 1, step), step)


def _diagonal_samples() -> Samples:
    yield sample(T(3, 4))
    yield sample(T(3, 4), 1)
    yield sample(T(4, 3), -1)
    yield sample(T(2, 3, 4), 0, 2, 0)
    yield sample(T(3, 3), 5)


@op(view=True, samples=_diagonal_samples, reference="numpy.diagonal", varying=True)
def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Elements whose places along dim1 and dim2 differ by `offset`, as a new last dimension.

    Raises:
        RuntimeError: dim1 and dim2 are the same.

    Example:
        >>> torch.arange(6).reshape(2, 3).diagonal(1)
        tensor([1, 5])
    """
    a = normalise_dim(dim1, self.ndim, "diagonal")
    b = normalise_dim(dim2, self.ndim, "diagonal")
    if a == b:
        problem = f"diagonal dimensions cannot be identical {dim1}, {dim2}"
        raise failure(RuntimeError, "diagonal", problem, "choose two")
    others = [d for d in range(self.ndim) if d not in (a, b)]
    rows, columns = self.shape[a] + min(offset, 0), self.shape[b] - max(offset, 0)
    length = _least(rows, columns)
    lead = tuple(self.shape[d] for d in others)
    if isinstance(length, int) and length == 0:
        x = prims.permute(self, [*others, a, b])
        value = prims.reshape(
            prims.slice(prims.slice(x, len(others), 0, 0), len(others) + 1, 0, 0), (*lead, 0)
        )
        return viewed(self, value, lambda n, s, at: ((*(s[d] for d in others), s[a] + s[b]), at))
    square = prims.slice(prims.permute(self, [*others, a, b]), len(others), max(-offset, 0), length)
    square = prims.slice(square, len(others) + 1, max(offset, 0), length)
    flat = prims.reshape(square, (*lead, length * length))
    value = prims.slice(flat, len(others), 0, length, length + 1)

    def move(sizes: Shape, strides: Shape, at: Size) -> tuple[Shape, Size]:
        moved = at + mul(max(-offset, 0), strides[a]) + mul(max(offset, 0), strides[b])
        return (*(strides[d] for d in others), strides[a] + strides[b]), moved

    return viewed(self, value, move)


def _least(a: Size, b: Size) -> Size:
    if less(a, 1) or less(b, 1):
        return 0
    return b if less(b, a) else a


def _unfold_samples() -> Samples:
    yield sample(T(7), 0, 3, 1)
    yield sample(T(2, 7), 1, 3, 2)
    yield sample(T(7, 2), 0, 2, 3)
    yield sample(T(), 0, 1, 1)


@op(where="method", view=True, samples=_unfold_samples)
def unfold(self: Tensor, dimension: int, size: SymInt, step: SymInt) -> Tensor:
    """Windows of `size` elements, every `step`-th one; the place in the window comes last.

    Raises:
        RuntimeError: size larger than the dimension, negative, or a step below 1.

    Example:
        >>> torch.arange(5).unfold(0, 2, 2)
        tensor([[0, 1],
                [2, 3]])
    """
    d = normalise_dim(dimension, self.ndim, "unfold")
    extent = self.shape[d] if self.ndim else 1
    if less(extent, size):
        problem = f"maximum size for tensor at dimension {d} is {number_shown(extent)} but size "
        problem += f"is {number_shown(size)}"
        raise failure(RuntimeError, "unfold", problem, "pad the tensor")
    if less(size, 0):
        problem = f"size is {number_shown(size)} but must be >= 0"
        raise failure(RuntimeError, "unfold", problem, "a window's elements")
    if less(step, 1):
        raise failure(RuntimeError, "unfold", f"step is {step} but must be > 0", "use 1")
    if self.ndim == 0:  # one window, of at most one element
        one = prims.reshape(self, (1,))
        return viewed(self, prims.slice(one, 0, 0, size), lambda _n, _s, offset: ((1,), offset))

    def move(sizes: Shape, strides: Shape, offset: Size) -> tuple[Shape, Size]:
        stepped = mul(strides[d], step)
        return (*strides[:d], stepped, *strides[d + 1 :], strides[d]), offset

    return viewed(self, prims.windows(self, d, size, step), move)


# ------------------------------------------------------------------------------------ many parts


def _split_samples() -> Samples:
    yield sample(T(7, 2), 3)
    yield sample(T(4, 6), 2, 1)
    yield sample(T(7), [2, 0, 5])
    yield sample(T(0, 3), 2)


def _split_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(7), [2, 3]), RuntimeError, "to sum exactly to 7")


def _pieces(self: Node, split_size: Size, d: int, name: str) -> list[Node]:
    extent = self.shape[d]
    if isinstance(split_size, int) and split_size < 0:
        problem = f"split expects split_size be non-negative, but got split_size={split_size}"
        raise failure(RuntimeError, name, problem, "give the length of a piece")
    if isinstance(extent, int) and extent == 0:
        return [prims.slice(self, d, 0, 0)]
    if isinstance(split_size, int) and split_size == 0:
        problem = "split_size can only be 0 if dimension size is 0, but got dimension size of "
        problem += f"{number_shown(extent)}"
        raise failure(RuntimeError, name, problem, "give the length of a piece")
    count = static_size(ceildiv(extent, split_size))
    starts = [i * split_size for i in range(count)]
    lengths = [*[split_size] * (count - 1), extent - starts[-1]]
    return [prims.slice(self, d, s, n) for s, n in zip(starts, lengths, strict=True)]


_NO_PIECES = "[{}] split expects at least a 1-dimensional tensor\nhint: unsqueeze"


@op(long_list="split", view=True, samples=_split_samples, errors=_split_errors, varying=True)
def split(self: Tensor, split_size: SymInt, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of `split_size` elements of a dimension (the last may be shorter), or of given sizes.

    Raises:
        RuntimeError: sizes that do not sum to the dimension, or are negative.

    Example:
        >>> torch.arange(5).split(2)
        (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    if self.ndim == 0:
        raise RuntimeError(_NO_PIECES.format("split"))
    return _pieces(self, split_size, normalise_dim(dim, self.ndim, "split"), "split")


@split.overload(
    long_list="split_with_sizes",
)
def _split_sizes(self: Tensor, split_size: Sequence[SymInt], dim: int = 0) -> tuple[Tensor, ...]:
    return split_with_sizes(self, split_size, dim)


@split.overload()
def _split_function(
    tensor: Tensor, split_size_or_sections: SymInt, dim: int = 0
) -> tuple[Tensor, ...]:
    dim = normalise_dim(dim, tensor.ndim, "split")
    return _pieces(tensor, split_size_or_sections, dim, "split")


@split.overload(
    long_list="split_with_sizes",
)
def _split_function_sizes(
    tensor: Tensor, split_size_or_sections: Sequence[SymInt], dim: int = 0
) -> tuple[Tensor, ...]:
    return split_with_sizes(tensor, split_size_or_sections, dim)


@op(long_list="split_with_sizes", view=True, samples=lambda: [sample(T(7, 2), [2, 0, 5])])
def split_with_sizes(
    self: Tensor, split_sizes: Sequence[SymInt], dim: int = 0
) -> tuple[Tensor, ...]:
    """Pieces of the given sizes, which sum to the dimension.

    Example:
        >>> torch.arange(5).split_with_sizes([1, 4])
        (tensor([0]), tensor([1, 2, 3, 4]))
    """
    if self.ndim == 0:
        raise RuntimeError(_NO_PIECES.format("split_with_sizes"))
    d = normalise_dim(dim, self.ndim, "split_with_sizes")
    if any(isinstance(n, int) and n < 0 for n in split_sizes):
        problem = "split_with_sizes expects split_sizes have only non-negative entries, but got "
        problem += f"split_sizes={shown(split_sizes)}"
        raise failure(RuntimeError, "split_with_sizes", problem, "give lengths")
    total: Size = 0
    for n in split_sizes:
        total = total + n
    if not layout.same(total, self.shape[d]):
        raise RuntimeError(
            "[split_with_sizes] split_with_sizes expects split_sizes to sum exactly to "
            f"{number_shown(self.shape[d])} (input tensor's size at dimension {d}), but got "
            f"split_sizes={shown(split_sizes)}\nhint: the pieces must cover the dimension"
        )
    result, start = [], 0
    for n in split_sizes:
        result.append(prims.slice(self, d, start, n))
        start = start + n  # type: ignore[assignment]
    return result


@op(
    long_list="chunk",
    view=True,
    samples=lambda: [sample(T(7, 2), 3), sample(T(4, 6), 4, -1), sample(T(0, 2), 2)],
    varying=True,
)
def chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size; the last may be shorter.

    Raises:
        RuntimeError: chunks below 1.

    Example:
        >>> torch.arange(5).chunk(2)
        (tensor([0, 1, 2]), tensor([3, 4]))
    """
    if chunks < 1 or self.ndim == 0:
        problem = f"chunk expects `chunks` to be greater than 0, got: {chunks}, and at least a "
        problem += "1-dimensional tensor"
        raise failure(RuntimeError, "chunk", problem, "chunks=1 gives the whole")
    d = normalise_dim(dim, self.ndim, "chunk")
    if isinstance(self.shape[d], int) and self.shape[d] == 0:
        return [prims.slice(self, d, 0, 0) for _ in range(chunks)]
    return _pieces(self, ceildiv(self.shape[d], chunks), d, "chunk")


def _tensor_split_samples() -> Samples:
    yield sample(T(7, 2), 3)
    yield sample(T(7), (2, 5))
    yield sample(T(7), (2, -1, 20))


@op(
    long_list="tensor_split",
    view=True,
    single_views=True,
    samples=_tensor_split_samples,
    varying=True,
)
def tensor_split(self: Tensor, sections: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`sections` pieces whose sizes differ by at most one, or pieces between given places.

    Raises:
        RuntimeError: sections below 1, or a tensor without dimensions.

    Example:
        >>> torch.arange(5).tensor_split(2)
        (tensor([0, 1, 2]), tensor([3, 4]))
    """
    if sections < 1 or self.ndim == 0:
        problem = f"number of sections must be larger than 0, got {sections}, and the tensor must "
        problem += "have a dimension"
        raise failure(RuntimeError, "tensor_split", problem, "sections=1 gives the whole")
    d = normalise_dim(dim, self.ndim, "tensor_split")
    longer = static_size(mod(self.shape[d], sections))
    base = floordiv(self.shape[d], sections)
    result, start = [], 0
    for i in range(sections):
        length = base + 1 if i < longer else base
        result.append(prims.slice(self, d, start, length))
        start = start + length  # type: ignore[assignment]
    return result


@tensor_split.overload(
    long_list="tensor_split.indices",
)
def _tensor_split_indices(self: Tensor, indices: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    d = normalise_dim(dim, self.ndim, "tensor_split")
    bounds: list[int | None] = [None, *indices, None]
    return [slice_of(self, d, a, b, 1) for a, b in zip(bounds, bounds[1:], strict=False)]


@tensor_split.overload(
    "tensor_split.tensor(Tensor self, Tensor tensor_indices_or_sections, int dim=0) -> (Tensor...)",
    host=True,
)
def _tensor_split_tensor(self: Any, indices: Any, dim: int = 0) -> Any:
    values = indices.tolist()
    return tensor_split(self, values if isinstance(values, int) else tuple(values), dim)


_PIECES = """Pieces along dimension {axis}, as views (NumPy's `{name}`).

    Args:
        sections: how many equal pieces; or the indices at which pieces start.

    Raises:
        RuntimeError: too few dimensions, or a size that is not divisible.

    Example:
        >>> len(torch.{name}(torch.zeros{shape}, 2))
        2
    """


def _axis_split(name: str, least: int, axis: int) -> None:
    """Defines hsplit, vsplit or dsplit: `tensor_split` along a fixed dimension."""

    def check(self: Node) -> int:
        if self.ndim < least:
            problem = f"torch.{name} requires a tensor with at least {least} dimension, but got a "
            problem += f"tensor with {self.ndim} dimensions!"
            raise failure(RuntimeError, name, problem, "see tensor_split")
        return 0 if name == "hsplit" and self.ndim == 1 else axis

    def body(self: Node, sections: int) -> Any:
        d = check(self)
        if not layout.same(mod(self.shape[d], max(sections, 1)), 0):
            problem = f"torch.{name} attempted to split along dimension {d}, but the size of the "
            problem += f"dimension {number_shown(self.shape[d])} is not divisible by the "
            problem += f"split_size {sections}!"
            raise failure(RuntimeError, name, problem, "tensor_split allows uneven pieces")
        return tensor_split(self, sections, d)

    shape = (4, 4, 4)[: max(least, 2)]
    body.__doc__ = _PIECES.format(name=name, axis=axis, shape=shape)
    samples = [sample(T(*shape), 2), sample(T(*shape), (1, 3))]
    definition = op(
        f"{name}(Tensor self, int sections) -> (Tensor...)",
        view=True,
        single_views=True,
        samples=lambda: iter(samples),
    )(body)
    definition.overload(f"{name}.array(Tensor self, int[] indices) -> (Tensor...)")(
        lambda self, indices: tensor_split(self, tuple(indices), check(self))
    )


for _name, _least_dims, _axis in (("hsplit", 1, 1), ("vsplit", 2, 0), ("dsplit", 3, 2)):
    _axis_split(_name, _least_dims, _axis)


@op(
    long_list="unbind",
    view=True,
    samples=lambda: [sample(T(3, 4)), sample(T(3, 4), -1), sample(T(0, 2))],
)
def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All slices along a dimension, without it.

    Raises:
        IndexError: a tensor without dimensions.

    Example:
        >>> torch.tensor([1, 2]).unbind()
        (tensor(1), tensor(2))
    """
    if self.ndim == 0:
        problem = "Dimension specified as 0 but tensor has no dimensions"
        raise failure(IndexError, "unbind", problem, "item")
    d = normalise_dim(dim, self.ndim, "unbind")
    count = static_size(self.shape[d])
    return [_dropped(prims.slice(self, d, i, 1), d) for i in range(count)]


def _inverse_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(2, 3), T(5, 3), 0, 1, 3), RuntimeError, "storage")


@op(
    "slice_inverse(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, "
    "SymInt step=1) -> Tensor",
    host=True,
    samples=lambda: [sample(T(4, 3), T(4, 3), 0, 0, 4), sample(T(6), T(6))],
    errors=_inverse_errors,
)
def slice_inverse(
    input: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """The view of `input`'s memory with the geometry of `src`, of which `input` was a slice.

    Args:
        src: gives sizes, strides and offset.
        dim, start, end, step: of that slice; they change nothing.

    Raises:
        RuntimeError: the geometry leaves the memory.

    Example:
        >>> x = torch.arange(4)
        >>> torch.slice_inverse(x[1:3], torch.empty(4), 0, 1, 3)
        tensor([0, 1, 2, 3])
    """
    return input.as_strided(src.shape, src.stride(), src.storage_offset())
