"""Copies of views (`view_copy`, `permute_copy` ...), and pieces under PyTorch's unsafe names.

A copy's value is that of the view with the same arguments; its memory is its own, contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language import layout
from flambeau.language.definition import REGISTRY, Dense, View, op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import SymInt, Tensor
from flambeau.ops.common import geometry_of, number_shown, same_sizes, shown, strides_of
from flambeau.ops.indexing import indexing, slices  # noqa: F401 - defines the views
from flambeau.ops.shape import bit_views, shape, views  # noqa: F401 - defines the views

_VIEWS: dict[str, tuple[str, tuple[Any, ...]]] = {
    # the view: its arguments after the tensor, and a sample of them for a tensor of (2, 3)
    "alias": ("", ()),
    "diagonal": ("int offset=0, int dim1=0, int dim2=1", (1,)),
    "expand": ("SymInt[] size, *, bool implicit=False", ((2, 2, 3),)),
    "narrow": ("int dim, SymInt start, SymInt length", (1, 1, 2)),
    "permute": ("int[] dims", ((1, 0),)),
    "select": ("int dim, SymInt index", (1, 2)),
    "slice": (
        "int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1",
        (1, 0, 3, 2),
    ),
    "squeeze": ("int[]? dim=None", ()),
    "t": ("", ()),
    "transpose": ("int dim0, int dim1", (0, 1)),
    "unfold": ("int dimension, SymInt size, SymInt step", (1, 2, 1)),
    "unsqueeze": ("int dim", (1,)),
    "view": ("SymInt[] size", ((3, 2),)),
    "view_as_complex": ("", ()),
    "view_as_real": ("", ()),
}
# The tensor of a sample, and in the example, where it is not one of (2, 3).
_OPERANDS = {
    "view_as_complex": (T(3, 2), "torch.ones(3, 2)"),
    "view_as_real": (T(3, dtype="c64"), "torch.ones(3, dtype=torch.complex64)"),
}
_PIECES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "split_copy": ("SymInt split_size, int dim=0", (1,)),
    "split_with_sizes_copy": ("SymInt[] split_sizes, int dim=0", ((2, 1), 1)),
    "unbind_copy": ("int dim=0", (1,)),
    "unsafe_chunk": ("int chunks, int dim=0", (2,)),
    "unsafe_split": ("SymInt split_size, int dim=0", (1,)),
    "unsafe_split_with_sizes": ("SymInt[] split_sizes, int dim=0", ((2, 1), 1)),
}
_PIECES_OF = {"unsafe_chunk": "chunk"}


def _samples(arguments: tuple[Any, ...], operand: Any = None) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        yield sample(operand or T(2, 3), *arguments)

    return make


def _value(result: Any) -> Any:
    return result.node if isinstance(result, View) else result


def _define_view(name: str, arguments: str, sample_arguments: tuple[Any, ...]) -> None:
    source = REGISTRY[name]
    operand, shown = _OPERANDS.get(name, (None, "torch.ones(2, 3)"))

    def body(self: Any, *args: Any) -> Any:
        return _value(source.overloads[0].run((self, *(args[:1] if name == "expand" else args))))

    body.__doc__ = f"""What `{name}` with these arguments shows, copied.

    Raises:
        RuntimeError: where `{name}` does.

    Example:
        >>> torch.{name}_copy({", ".join([shown, *map(str, sample_arguments)])}).is_contiguous()
        True
    """
    text = f"Tensor self, {arguments}" if arguments else "Tensor self"
    home = "torch method" if name == "narrow" else "torch"
    options = {"where": home, "samples": _samples(sample_arguments, operand)}
    options["autocast"] = source.options.autocast
    if source.options.dtypes is not None:
        options["dtypes"] = source.options.dtypes
    op(f"{name}_copy({text}) -> Tensor", kind="copy", **options)(body)


def _define_other_views() -> None:
    """`view_copy(dtype)`: the bytes as elements of another dtype."""
    _, source = REGISTRY["view"].overloads

    def body(self: Any, dtype: Any) -> Any:
        return _value(source.run((self, dtype)))

    schema = "view_copy.dtype(Tensor self, dtype dtype) -> Tensor"
    REGISTRY["view_copy"].overload(schema, samples=None, errors=None)(body)


def _strided_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(6), (3, 2), (2, 2)), RuntimeError, "out of bounds")
    yield ErrorSample(sample(T(6), (2,), (1,), 5), RuntimeError, "out of bounds")
    yield ErrorSample(sample(T(6), (2,), (1,), 2**62), RuntimeError, "")


@op(
    where="torch",
    out="exact",
    host=True,
    samples=_samples(((2, 2), (1, 2), 1)),
    errors=_strided_errors,
)
def as_strided_copy(
    self: Tensor,
    size: Sequence[SymInt],
    stride: Sequence[SymInt],
    storage_offset: SymInt | None = None,
) -> Any:
    """Copies the view of `as_strided` with these arguments.

    Raises:
        RuntimeError: where `as_strided` does.

    Example:
        >>> torch.as_strided_copy(torch.ones(2, 3), (2, 2), (1, 2), 1).is_contiguous()
        True
    """
    window = self.as_strided(size, stride, storage_offset)
    return window.clone(memory_format=tensors.contiguous_format)


@op(where="torch", out="exact", samples=_samples(()))
def detach_copy(self: Tensor) -> Tensor:
    """A copy outside of the autograd graph.

    Example:
        >>> torch.detach_copy(torch.ones(2, requires_grad=True))
        tensor([1., 1.])
    """
    return prims.stop_gradient(self)


def _define_pieces(name: str, arguments: str, sample_arguments: tuple[Any, ...]) -> None:
    original = name.removesuffix("_copy").removeprefix("unsafe_")
    source = REGISTRY[original]
    copied = name.endswith("_copy")

    def body(self: Any, *operands: Any) -> list[Any]:
        return [_value(piece) for piece in source.overloads[0].run((self, *operands))]

    kind = "copied" if copied else "which share the tensor's memory"
    body.__doc__ = f"""The pieces of `{original}`, {kind}.

    Raises:
        RuntimeError: where `{original}` does.

    Example:
        >>> len(torch.{name}({", ".join(["torch.ones(2, 3)", *map(str, sample_arguments)])}))
        {3 if original == "unbind" else 2}
    """
    rule = "any" if original == "split" else "exact"
    op(
        f"{name}(Tensor self, {arguments}) -> (Tensor...)",
        where="torch" if copied else "torch method",
        out=rule if copied else False,
        overlap="partial" if copied else "",
        view=not copied,
        single_views=not copied,
        samples=_samples(sample_arguments),
    )(body)


for _name, (_arguments, _given) in _VIEWS.items():
    _define_view(_name, _arguments, _given)
_define_other_views()
for _name, (_arguments, _given) in _PIECES.items():
    _define_pieces(_name, _arguments, _given)


def _scatter_samples() -> Iterator[Sample]:
    yield sample(T(6), T(2), (2,), (2,), 1)
    yield sample(T(3, 4), T(2, 2), (2, 2), (4, 1))


def _scatter_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(4), T(1), (2,), (2,)), RuntimeError, "src size")
    yield ErrorSample(sample(T(4), T(2), (2,), (2,), 3), RuntimeError, "out of bounds")


def _strided_scatter(x: Node, src: Node, stride: Sequence[Size], offset: Size) -> Node:
    """A row-major tensor with the elements at strided places replaced."""
    places = prims.constant(offset, prims.full(0, src.shape, "i64"))
    for d, step in enumerate(stride):
        along = prims.iota(src.shape, d)
        places = places + along * prims.constant(step, along)
    flat = prims.reshape(x, (layout.numel(x.shape),))
    written = prims.put_nd(flat, (places,), prims.cast(src, x.dtype), (0,), "set")
    return prims.reshape(written, x.shape)


@op(samples=_scatter_samples, errors=_scatter_errors)
def as_strided_scatter(
    self: Tensor,
    src: Tensor,
    size: Sequence[SymInt],
    stride: Sequence[SymInt],
    storage_offset: SymInt | None = None,
) -> Tensor:
    """A copy with what `as_strided` with these arguments shows replaced by src.

    Raises:
        RuntimeError: src has another size, or the view leaves the tensor.

    Example:
        >>> torch.zeros(4).as_strided_scatter(torch.ones(2), (2,), (2,), 1)
        tensor([0., 1., 0., 1.])
    """
    _, strides, first = geometry_of(self) or (None, strides_of(self), 0)
    at = 0 if storage_offset is None else storage_offset - first
    if not same_sizes(src.shape, size) or len(stride) != len(size):
        problem = "expected src to have a size equal to the slice of self. src size = "
        problem += f"{shown(src.shape)}, slice size = {shown(size)}"
        raise failure(RuntimeError, "as_strided_scatter", problem, "expand src")
    last = at + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    count = layout.numel(self.shape)
    outside = less(at, 0) or any(less(step, 0) for step in stride) or not less(last, count)
    if outside and not any(layout.same(n, 0) for n in size):
        problem = f"setStorage: sizes {shown(size)}, strides {shown(stride)}, storage offset "
        start = 0 if storage_offset is None else number_shown(storage_offset)
        problem += f"{start} are out of bounds for a tensor of {number_shown(count)} elements"
        raise failure(RuntimeError, "as_strided_scatter", problem, "lower strides or the offset")
    # Elements are counted as they lie in memory, the slowest dimension first.
    order = layout.by_strides(range(self.ndim), strides)
    written = _strided_scatter(prims.permute(self, order), src, stride, at)
    return Dense(prims.permute(written, tuple(map(order.index, range(self.ndim)))), order)
