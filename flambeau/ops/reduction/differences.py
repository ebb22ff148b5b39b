"""`gradient`: derivatives of sampled functions by finite differences.

Inside the interval: central differences of second order, also for uneven steps (Fornberg,
Generation of Finite Difference Formulas on Arbitrarily Spaced Grids, Math. Comp. 51, 1988).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.environment import less
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.layout import same
from flambeau.language.promotion import CATEGORY, compute_dtype, default_dtype
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.broadcasting import rounded
from flambeau.ops.common import normalise_dims, number_shown, shown
from flambeau.ops.creation.creation import filled


def _error(text: str, hint: str) -> RuntimeError:
    return RuntimeError(f"[gradient] torch.gradient {text}\nhint: {hint}")


def _part(x: Node, axis: int, first: int, dropped: int) -> Node:
    """x without its first `first` and last `dropped - first` elements along an axis."""
    return prims.slice(x, axis, first, x.shape[axis] - dropped)


def _at(x: Node, axis: int, place: int) -> Node:
    """One element along an axis, kept; negative places count from the end."""
    return prims.slice(x, axis, place if place >= 0 else x.shape[axis] + place, 1)


def _edge(x: Node, axis: int, steps: Sequence[Node], order: int, last: bool, dtype: str) -> Node:
    """The one-sided difference at an end; `steps` are the distances of the nearest elements."""
    sign = -1 if last else 1
    near, middle, *further = (_at(x, axis, (-1 - k) if last else k) for k in range(order + 1))
    first = steps[0]
    if not further:
        return rounded(middle - near, dtype) / first * sign
    second, far = steps[1], further[0]
    distance = first + second
    slope = (
        middle * (distance / (first * second))
        - near * ((first + distance) / (first * distance))
        - far * (first / (second * distance))
    )
    return slope * sign


def _derivative(x: Node, axis: int, order: int, steps: Node, dtype: str) -> Node:
    """The derivative along an axis of elements that are `steps` (one fewer, a vector) apart."""
    steps = prims.reshape(steps, (*[1] * axis, steps.shape[0], *[1] * (x.ndim - axis - 1)))
    before, after = _part(steps, axis, 0, 1), _part(steps, axis, 1, 1)
    rise, fall = _part(x, axis, 2, 2), _part(x, axis, 0, 2)
    distance = before + after
    inner = (
        rise * (before / (after * distance))
        + _part(x, axis, 1, 2) * ((after - before) / (before * after))
        - fall * (after / (before * distance))
    )
    ends = []
    for last in (False, True):
        near = [_at(steps, axis, (-1 - k) if last else k) for k in range(order)]
        ends.append(_edge(x, axis, near, order, last, dtype))
    return prims.cat([ends[0], inner, ends[1]], axis)


def _values(self: Node) -> Node:
    dtype = self.dtype if CATEGORY[self.dtype] >= 2 else default_dtype()
    return prims.cast(self, compute_dtype(dtype))


def _result_dtype(self: Node) -> str:
    return self.dtype if CATEGORY[self.dtype] >= 2 else default_dtype()


def _even(self: Node, dim: int, order: int, spacing: Any) -> Node:
    """The derivative along one dimension of samples that are `spacing` apart."""
    x = _values(self)
    step = filled(spacing, (1,) * x.ndim, x.dtype)
    inner = rounded(_part(x, dim, 2, 2) - _part(x, dim, 0, 2), self.dtype) / (step + step)
    ends = [_edge(x, dim, (step, step), order, last, self.dtype) for last in (False, True)]
    return prims.cast(prims.cat([ends[0], inner, ends[1]], dim), _result_dtype(self))


def _uneven(self: Node, dim: int, order: int, places: Node) -> Node:
    """The derivative along one dimension of samples that were taken at a vector's elements."""
    if places.ndim != 1 or not same(places.shape[0], self.shape[dim]):
        raise _error(
            f"expected the coordinates of dimension {dim} to be a vector of "
            f"{number_shown(self.shape[dim])} elements, got {shown(places.shape)}",
            "one coordinate per sample",
        )
    x = _values(self)
    places = prims.cast(places, x.dtype)
    steps = _part(places, 0, 1, 1) - _part(places, 0, 0, 1)
    return prims.cast(_derivative(x, dim, order, steps, self.dtype), _result_dtype(self))


def _samples() -> Iterator[Sample]:
    yield sample(T(7))
    yield sample(T(4, 5), spacing=0.5, edge_order=2)
    yield sample(T(4, 5), spacing=[2.0, 0.25], dim=(0, 1))
    places = T(5, values=[0.0, 0.5, 2.0, 3.0, 3.5], grad=False)
    yield sample(T(4, 5), spacing=[places], dim=1)
    yield sample(T(4, 5), spacing=(places,), dim=-1, edge_order=2)


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(4), edge_order=3), RuntimeError, "edge_order")
    yield ErrorSample(sample(T(1, 4)), RuntimeError, "at least")
    yield ErrorSample(sample(T(4, 4), spacing=[1.0]), RuntimeError, "spacing")
    yield ErrorSample(sample(T(4, 4), dim=(0, 0)), RuntimeError, "multiple times")


def _dims(x: Node, dim: Sequence[int] | None, order: int, steps: int | None) -> tuple[int, ...]:
    """Dimensions to differentiate along, checked with the number of spacings."""
    dims = normalise_dims(range(x.ndim) if dim is None else dim, x.ndim, "gradient")
    if order not in (1, 2):
        raise _error(f"only supports edge_order=1 and edge_order=2, got {order}", "1 or 2")
    if x.dtype in ("bool", "u8"):
        raise _error(f"does not support {x.dtype} tensors", "convert to float32")
    if steps not in (None, len(dims)):
        raise _error(
            f"expected spacing to be unspecified, a scalar, or a list of length {len(dims)}, got "
            f"a list of length {steps}",
            "one spacing per dimension",
        )
    for d in dims:
        if less(x.shape[d], order + 1):
            raise _error(
                "expected each dimension size to be at least edge_order+1, but got size "
                f"{number_shown(x.shape[d])} at dimension {d}",
                "take more samples",
            )
    return dims


@op(where="torch", runtime="spacing", samples=_samples, errors=_errors)
def gradient(
    input: Tensor,
    *,
    spacing: Scalar | None = None,
    dim: Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """Derivatives of a sampled function along dimensions, one tensor for each.

    Args:
        input: the samples; integers are differentiated in the default float dtype.
        spacing: the distance of neighbours (1), one per dimension, or vectors of coordinates.
        dim: which dimensions; all when None.
        edge_order: order of the one-sided differences at both ends, 1 or 2.

    Raises:
        RuntimeError: bool or uint8, too few samples, or a list of spacings of another length.

    Example:
        >>> torch.gradient(torch.tensor([1.0, 4.0, 9.0]))
        (tensor([3., 4., 5.]),)
    """
    step = 1.0 if spacing is None else spacing
    dims = _dims(input, dim, edge_order, None)
    return tuple(_even(input, d, edge_order, step) for d in dims)


@gradient.overload(samples=None, errors=None)
def _gradient_numbers(
    input: Tensor,
    *,
    spacing: Sequence[float] | None,
    dim: Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    steps = spacing or ()
    dims = _dims(input, dim, edge_order, len(steps))
    return tuple(_even(input, d, edge_order, s) for d, s in zip(dims, steps, strict=True))


@gradient.overload(samples=None, errors=None)
def _gradient_vectors(
    input: Tensor,
    *,
    spacing: Sequence[Tensor],
    dim: Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    dims = _dims(input, dim, edge_order, len(spacing))
    return tuple(_uneven(input, d, edge_order, s) for d, s in zip(dims, spacing, strict=True))
