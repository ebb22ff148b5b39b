"""Helpers of operator modules: dimension arithmetic, geometry of views, dtype arguments.

Everything here works on sizes that may be symbolic: questions that algebra cannot answer are put
to the shape environment, which records a guard. Nothing here computes values.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from flambeau.ir.environment import current_environment
from flambeau.ir.environment import hint as hint_of
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, SizeExpr, known_equal
from flambeau.language import layout, promotion
from flambeau.language.definition import Dense
from flambeau.language.dtypes import name_of
from flambeau.prims.record import record_of

Strided = tuple[Sequence[Size], Sequence[Size]]  # sizes and strides


def normalise_dim(dim: int, ndim: int, name: str) -> int:
    """`dim` in [0, ndim); negative numbers count from the end.

    A tensor without dimensions is treated as if it had one, as in PyTorch.

    Raises:
        IndexError: outside of the dimensions.
    """
    limit = max(ndim, 1)
    if not -limit <= dim < limit:
        problem = f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], "
        problem += f"but got {dim})"
        raise failure(IndexError, name, problem, f"the tensor has {ndim} dimensions")
    return dim + limit if dim < 0 else dim


def columns(x: Node) -> Any:
    """Matrices as a result that lies column by column, as LAPACK's do; also batches of vectors."""
    return x if x.ndim < 2 else Dense(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def turned_copy(value: Node, x: Node, first: int, second: int) -> Dense:
    """A copy of x, seen with two dimensions swapped: it lies as x does."""
    strides = x.attribute("strides") if x.is_input else layout.contiguous_strides(x.shape)
    places = list(range(x.ndim))
    places[first], places[second] = places[second], places[first]
    return Dense(value, [places[d] for d in layout.by_strides(range(x.ndim), strides)])


def normalise_dims(dims: Sequence[int], ndim: int, name: str) -> tuple[int, ...]:
    """Each of `dims` in [0, ndim), all different.

    Raises:
        IndexError: outside of the dimensions.
        RuntimeError: a dimension is named twice.
    """
    result: list[int] = []
    for dim in dims:
        wrapped = normalise_dim(dim, ndim, name)
        if wrapped in result:
            problem = f"dim {wrapped} appears multiple times in the list of dims"
            raise failure(RuntimeError, name, problem, "name each dimension once")
        result.append(wrapped)
    return tuple(result)


def static_size(size: Size) -> int:
    """The size as a number, guarded: for programs whose form depends on it."""
    if not isinstance(size, SizeExpr):
        return operator.index(size)  # of NumPy's integers, too
    environment = current_environment()
    if environment is None:
        problem = f"the program depends on the value of {size}"
        raise failure(NotImplementedError, "size", problem, "trace with concrete sizes")
    return int(environment.specialise(size))


def is_one(size: Size) -> bool:
    """True when a size is the constant 1."""
    return isinstance(size, int) and size == 1


def shown(shape: Sequence[Size]) -> str:
    """A shape with the numbers of this call, for messages."""
    return "[" + ", ".join(str(hint_of(s)) for s in shape) + "]"


def number_shown(size: Size) -> str:
    """One size with the number of this call, for messages."""
    return str(hint_of(size))


def differ(a: Size, b: Size, word: str = "!=") -> str:
    """Two sizes that should be equal, with the numbers of this call, for messages."""
    return f"{number_shown(a)} {word} {number_shown(b)}"


def same_sizes(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether two shapes are equal (guards when symbolic)."""
    return len(a) == len(b) and all(layout.same(x, y) for x, y in zip(a, b, strict=True))


def dtype_or(dtype: Any, default: str | None = None) -> str:
    """IR name of an optional dtype argument; the default float dtype when both are None."""
    if dtype is None:
        return promotion.default_dtype() if default is None else default
    return dtype if isinstance(dtype, str) else name_of(dtype)


def dtype_name(x: Any) -> str:
    """IR name of the dtype of a node, or of a tensor: a composite's body is called with both."""
    return str(x.dtype) if isinstance(x, Node) else name_of(x.dtype)


def gathered(
    value: Node, before: Sequence[Size], after: Sequence[Size], indices: Sequence[Strided]
) -> Dense:
    """Lays out values read at index tensors: as their source in memory, then as the indices.

    Args:
        before, after: strides of the dimensions on either side of those that were indexed.
        indices: sizes and strides of the index tensors.
    """
    wide = value.ndim - len(before) - len(after)
    trailing = [1] * len(after)
    operands = [(value.shape, (*before, *[0] * wide, *after))]
    operands += [((*sizes, *trailing), (*strides, *trailing)) for sizes, strides in indices]
    return Dense(value, layout.follow_order(value.shape, operands))


def geometry_of(x: Node) -> layout.Geometry | None:
    """Sizes, strides and offset of a node that is a view of an argument; None otherwise."""
    offsets = layout.argument_offsets.get()
    if offsets is None:
        return None
    root = x
    while record_of(root).view is not None:
        root = root.inputs[0]
    if not root.is_input:
        return None
    view = layout.view_geometry(x, offsets)
    return None if view is None else view[1]


def strides_of(x: Node) -> tuple[Size, ...]:
    """Strides of a node: those of its view, or contiguous ones for a computed value."""
    geometry = geometry_of(x)
    return layout.contiguous_strides(x.shape) if geometry is None else geometry[1]


def known_positive(size: Size) -> bool:
    """Whether a size is not zero (0 is always a constant)."""
    return known_equal(size, 0) is not True


def window_counts(x: Any, output_size: Any) -> Any:
    """The results of adaptive pooling along its dimensions: a number, or one each, as a tuple.

    Raises:
        ValueError: the tensor has no dimension beside those.
    """
    if not isinstance(output_size, (list, tuple)):
        return output_size
    if x.ndim <= len(output_size):
        problem = f"Input dimension should be at least {len(output_size) + 1}"
        raise failure(ValueError, "adaptive_pool", problem, "(N, C, ...) or (C, ...)")
    return tuple(output_size)
