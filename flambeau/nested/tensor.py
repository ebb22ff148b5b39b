"""Nested tensors: a batch whose samples have sizes of their own.

`JaggedTensor` (layout `torch.jagged`) stores the rows of all samples behind each other in one dense
tensor, *values*, and where each sample begins (`Ragged`). One dimension is ragged; dimension d of
the nested tensor is dimension d - 1 of the values, and the batch has none.
`StridedTensor` (layout `torch.strided`) stores the elements of all samples behind each other in one
vector, and a list of shapes: any dimension may differ from sample to sample.

Operators come to `__torch_function__`, and `nested.dispatch` composes the result of operators on
the values (docs/design.md, § 10e).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import flambeau as torch
from flambeau.autograd.composite import GEOMETRY, Composite, Wrapper, hollow, refuse_methods
from flambeau.core.tensors import Tensor
from flambeau.ir.lock import importing
from flambeau.nested.ragged import Ragged, Sizes


def refuse(op: str, what: str, hint: str = "apply it to values(), or to_padded_tensor()") -> None:
    """Raises for a call that PyTorch refuses too."""
    raise RuntimeError(f"[{op}] {what}\nhint: {hint}")


class NestedTensor(Wrapper):
    """A batch whose samples have sizes of their own.

    Made by the functions of `torch.nested`, not by calling the class.
    """

    _ndim: int
    _made_by = ("NestedTensor", "torch.nested.nested_tensor(...)")
    _composed_in = "flambeau.nested"
    _called = ("nested tensor", "x.values(), or x.to_padded_tensor(0.0)")

    @property
    def is_nested(self) -> bool:
        """True."""
        return True

    def numel(self) -> int:
        """Number of elements of all samples."""
        return sum(math.prod(shape) for shape in self._shapes_of_parts())

    nelement = numel

    def _shapes_of_parts(self) -> list[tuple[int, ...]]:
        raise NotImplementedError

    def _parts(self) -> tuple[Any, ...]:
        """The samples: differentiable views."""
        raise NotImplementedError

    def _nested_tensor_size(self) -> Any:
        """(B, dimensions of a sample) int64: the shapes."""
        return torch.tensor([list(s) for s in self._shapes_of_parts()], dtype=torch.int64)

    def to_padded_tensor(
        self, padding: float, output_size: Sequence[int] | None = None, out: Any = None
    ) -> Tensor:
        """A dense tensor in which samples are filled up; see `torch.nested.to_padded_tensor`."""
        from flambeau.nested.construct import to_padded_tensor

        return to_padded_tensor(self, padding, output_size, out)

    def _values_of_gradient(self, gradient: Tensor) -> Any:
        if not isinstance(gradient, NestedTensor) or not self._same_form(gradient):
            raise RuntimeError(
                "[backward] a gradient does not fit its nested tensor\n"
                "hint: a gradient has its tensor's layout and shapes, torch.ones_like(x) say"
            )
        return gradient._kept

    def _same_form(self, other: Any) -> bool:
        raise NotImplementedError

    def share_memory_(self) -> Tensor:
        """Moves the values where other processes see them."""
        self._kept.share_memory_()
        return self

    def _only_element(self) -> Any:
        return torch.cat([p.reshape(-1) for p in self._parts()]).item()

    def masked_select(self, mask: Tensor, *, out: Any = None) -> Tensor:
        """Selects the elements of every sample (a vector) where a nested mask is True."""
        with importing:
            from flambeau.nested.dispatch import refuse as not_implemented
            from flambeau.nested.selection import masked_select

        if out is not None or self.layout is not torch.jagged:
            not_implemented("masked_select", self)
        return masked_select(self, mask)

    def equal(self, other: Any) -> bool:
        """Whether the other is nested too, of the same layout, shapes and elements."""
        if not isinstance(other, type(self)):
            return False
        if self._shapes_of_parts() != other._shapes_of_parts():
            return False
        pairs = zip(self._parts(), other._parts(), strict=True)
        return all(torch.equal(one, two) for one, two in pairs)

    # ------------------------------------------------------------------ Python's protocols
    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError(
            "[setitem] not implemented for nested tensors\n"
            "hint: write to x.values(), or to a sample of x.unbind()"
        )

    def __iter__(self) -> Any:
        return iter(self._parts())


def _refuse(name: str, tensor: Composite) -> NoReturn:
    raise NotImplementedError(
        f"[{name}] not implemented for nested tensors of layout {tensor.layout}\n"
        "hint: the operator without _, or nested_tensor_from_jagged"
    )


refuse_methods(NestedTensor, GEOMETRY, _refuse)


# ------------------------------------------------------------------------------ one ragged dim
class JaggedTensor(NestedTensor):
    """Values of all samples along one ragged dimension; made by `torch.nested.nested_tensor`."""

    _ragged: Ragged
    _ragged_idx: int

    @property
    def layout(self) -> Any:
        """`torch.jagged`."""
        return torch.jagged

    def _like(self, values: Any) -> Tensor:
        return jagged(values, self._ragged, self._ragged_idx)

    def _same_form(self, other: Any) -> bool:
        return (
            isinstance(other, JaggedTensor)
            and self._ragged_idx == other._ragged_idx
            and tuple(self._kept.shape) == tuple(other._kept.shape)
            and (self._ragged is other._ragged or self._ragged.same_parts(other._ragged))
        )

    @property
    def shape(self) -> Any:
        """(B, ..., symbol, ...)."""
        sizes = [self._ragged.batch, *self._kept.shape]
        sizes[self._ragged_idx] = self._ragged.size
        return Sizes(sizes)

    def size(self, dim: int | None = None) -> Any:
        """`shape`, or one of its entries."""
        return self.shape if dim is None else self.shape[_checked(dim, self.dim())]

    def stride(self, dim: int | None = None) -> Any:
        """Strides; that of the batch is a multiple of the symbol."""
        inner = self._kept.stride()
        first = self._ragged.size * inner[self._ragged_idx - 1]
        steps = (first, *inner)
        return steps if dim is None else steps[_checked(dim, self.dim())]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether samples are consecutive in memory, in row-major order."""
        del memory_format
        return self._ragged.lengths is None and bool(self._kept.is_contiguous())

    def _shapes_of_parts(self) -> list[tuple[int, ...]]:
        d = self._ragged_idx - 1
        shape = tuple(self._kept.shape)
        return [(*shape[:d], n, *shape[d + 1 :]) for _, n in self._ragged.spans]

    def _parts(self) -> tuple[Any, ...]:
        d = self._ragged_idx - 1
        return tuple(self._kept.narrow(d, begin, n) for begin, n in self._ragged.spans)

    # ------------------------------------------------------------------ parts
    def values(self) -> Tensor:
        """The rows of all samples: (..., sum of lengths, ...); differentiable."""
        return self._kept.view_as(self._kept) if self._kept.requires_grad else self._kept

    def _values_copy(self) -> Tensor:
        return self.values().clone()

    @property
    def _values(self) -> Any:
        return self._kept

    def offsets(self) -> Tensor:
        """(B + 1): where each sample begins among the values."""
        return self._ragged.offsets

    _offsets = property(offsets)

    def lengths(self) -> Tensor | None:
        """(B): lengths of samples between which there are holes; None without holes."""
        return self._ragged.lengths

    _lengths = property(lengths)

    @property
    def _min_seqlen(self) -> int:
        return self._ragged.shortest

    @property
    def _max_seqlen(self) -> int:
        return self._ragged.longest

    _get_min_seqlen = lambda self: self._ragged.shortest  # noqa: E731
    _get_max_seqlen = lambda self: self._ragged.longest  # noqa: E731

    @property
    def _maybe_min_seqlen(self) -> int | None:
        return self._ragged._shortest

    @property
    def _maybe_max_seqlen(self) -> int | None:
        return self._ragged._longest

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        del protocol
        ragged = self._ragged
        leaf = self.requires_grad and self.is_leaf
        return rebuild, (self._kept.detach(), ragged.offsets, ragged.lengths, self._ragged_idx,
                         ragged._shortest, ragged._longest, leaf)  # fmt: skip


def jagged(values: Any, ragged: Ragged, dim: int = 1) -> Tensor:
    """A jagged tensor of parts that fit.

    Args:
        values: not detached from its autograd graph.
        ragged: where samples begin along dimension `dim - 1` of the values.
        dim: the ragged dimension of the result.
    """
    tensor = hollow(JaggedTensor, values.dtype, (ragged.batch, *values.shape))
    tensor._kept, tensor._ragged, tensor._ragged_idx = values, ragged, dim
    return tensor


def rebuild(
    values: Any,
    offsets: Any,
    lengths: Any,
    dim: int,
    shortest: int | None,
    longest: int | None,
    requires_grad: bool,
) -> Tensor:
    """Rebuilds a jagged tensor from a pickle."""
    from flambeau.nested.construct import nested_tensor_from_jagged

    tensor = nested_tensor_from_jagged(values, offsets, lengths, dim, shortest, longest)
    return tensor.requires_grad_(requires_grad)


# ------------------------------------------------------------------------------ any dims
class StridedTensor(NestedTensor):
    """The elements of all samples, and their shapes; made by `torch.nested.nested_tensor`."""

    _shapes: tuple[tuple[int, ...], ...]

    def _like(self, values: Any) -> Tensor:
        return strided(values, self._shapes)

    def _same_form(self, other: Any) -> bool:
        return isinstance(other, StridedTensor) and self._shapes == other._shapes

    @property
    def shape(self) -> Any:
        """Not there: sizes differ from sample to sample.

        Raises:
            RuntimeError: always.
        """
        return self.size()

    def size(self, dim: int | None = None) -> Any:
        """The size of one dimension in which samples are equal.

        Raises:
            RuntimeError: they are not, or no dimension is given.
        """
        if dim is None:
            raise RuntimeError(
                "[size] a nested tensor of layout torch.strided has no one shape\n"
                "hint: x.size(d) of a regular dimension, or the shapes of x.unbind()"
            )
        d = _checked(dim, self.dim())
        if d == 0:
            return len(self._shapes)
        sizes = {shape[d - 1] for shape in self._shapes}
        if len(sizes) != 1:
            raise RuntimeError(
                f"[size] Given dimension {d} is irregular and does not have a size.\n"
                "hint: look at the shapes of x.unbind()"
            )
        return sizes.pop()

    def stride(self, dim: int | None = None) -> Any:
        """Not there.

        Raises:
            RuntimeError: always.
        """
        del dim
        raise RuntimeError(
            "[stride] a nested tensor of layout torch.strided has no strides\n"
            "hint: look at those of x.unbind()"
        )

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """True: samples are consecutive in memory."""
        del memory_format
        return True

    def _shapes_of_parts(self) -> list[tuple[int, ...]]:
        return list(self._shapes)

    def _parts(self) -> tuple[Any, ...]:
        parts, begin = [], 0
        for shape in self._shapes:
            count = math.prod(shape)
            parts.append(self._kept.narrow(0, begin, count).view(shape))
            begin += count
        return tuple(parts)

    def values(self) -> Tensor:
        """The elements of all samples, behind each other; differentiable."""
        return self._kept.view_as(self._kept) if self._kept.requires_grad else self._kept

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        del protocol
        leaf = self.requires_grad and self.is_leaf
        return rebuild_strided, (self._kept.detach(), self._shapes, leaf)


def strided(values: Any, shapes: Sequence[Sequence[int]]) -> Tensor:
    """A nested tensor of layout `torch.strided`: elements (n,) and shapes that fit."""
    ndim = len(shapes[0]) if shapes else 0
    tensor = hollow(StridedTensor, values.dtype, (len(shapes), *(0,) * ndim))
    tensor._kept, tensor._shapes = values, tuple(map(tuple, shapes))
    return tensor


def rebuild_strided(values: Any, shapes: Any, requires_grad: bool) -> Tensor:
    """Rebuilds a strided nested tensor from a pickle."""
    return strided(values, shapes).requires_grad_(requires_grad)


def rebuild_any(layout: str, arguments: tuple[Any, ...]) -> Any:
    """Rebuilds for `torch.load`; offsets outside of the values raise when they are read."""
    return (rebuild if layout == "torch.jagged" else rebuild_strided)(*arguments)


def _checked(dim: int, ndim: int) -> int:
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"[size] Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], "
            f"but got {dim})\nhint: the batch is dimension 0"
        )
    return dim % ndim
