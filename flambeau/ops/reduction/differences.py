"""`gradient`: derivatives of sampled functions by finite differences.

Inside the interval: central differences of second order, also for uneven steps (Fornberg,
Generation of Finite Difference Formulas on Arbitrarily Spaced Grids, Math. Comp. 51, 1988).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.promotion import CATEGORY, compute_dtype, default_dtype
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.broadcasting import rounded
from flambeau.ops.common import normalise_dims
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


@op(where="private", runtime="spacing")
def _gradient(self: Tensor, dim: int, order: int, spacing: Tensor | Scalar) -> Tensor:
    """The derivative along one dimension of samples, `spacing` apart or taken at a vector."""
    x = _values(self)
    if spacing.is_scalar:
        step = filled(spacing, (1,) * x.ndim, x.dtype)
        inner = rounded(_part(x, dim, 2, 2) - _part(x, dim, 0, 2), self.dtype) / (step + step)
        ends = [_edge(x, dim, (step, step), order, last, self.dtype) for last in (False, True)]
        return prims.cast(prims.cat([ends[0], inner, ends[1]], dim), _result_dtype(self))
    places = prims.cast(spacing, x.dtype)
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


def _checked(x: Any, dims: Sequence[int], spacing: Any, order: int) -> None:
    if order not in (1, 2):
        raise _error(f"only supports edge_order=1 and edge_order=2, got {order}", "1 or 2")
    if x.dtype in (_named("bool"), _named("uint8")):
        raise _error(f"does not support {x.dtype} tensors", "convert to float32")
    if isinstance(spacing, (list, tuple)) and len(spacing) != len(dims):
        raise _error(
            f"expected spacing to be unspecified, a scalar, or a list of length {len(dims)}, got "
            f"a list of length {len(spacing)}",
            "one spacing per dimension",
        )
    for steps in spacing if isinstance(spacing, (list, tuple)) else ():
        if tensors.is_tensor(steps) and steps.device != x.device:
            raise _error(
                "expected each tensor to be on the same device, but got devices "
                f"{x.device} and {steps.device}!",
                "move the coordinates",
            )
    for dim in dims:
        if x.shape[dim] < order + 1:
            raise _error(
                "expected each dimension size to be at least edge_order+1, but got size "
                f"{x.shape[dim]} at dimension {dim}",
                "take more samples",
            )


def _named(name: str) -> Any:
    from flambeau.language.dtypes import object_of

    return object_of({"uint8": "u8"}.get(name, name))


@op(
    "gradient(Tensor input, *, object spacing=None) -> (Tensor...)",
    where="torch",
    host=True,
    samples=_samples,
    errors=_errors,
)
def gradient(
    input: Any, *, spacing: Any = None, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> Any:
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
    stated = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = normalise_dims(tuple(stated), input.ndim, "gradient")
    _checked(input, dims, spacing, edge_order)
    if spacing is None:
        spacing = 1.0
    if tensors.is_tensor(spacing):
        if spacing.ndim:
            problem = "gradient(): spacing is a number, a list of numbers or a list of vectors, "
            problem += f"got a tensor of shape {list(spacing.shape)}"
            raise failure(TypeError, "gradient", problem, "[spacing]")
        spacing = spacing.item()
    several = isinstance(spacing, (list, tuple))
    steps = list(spacing) if several else [spacing] * len(dims)
    results = []
    for d, step in zip(dims, steps, strict=True):
        if tensors.is_tensor(step) and (step.ndim != 1 or step.shape[0] != input.shape[d]):
            raise _error(
                f"expected the coordinates of dimension {d} to be a vector of {input.shape[d]} "
                f"elements, got {list(step.shape)}",
                "one coordinate per sample",
            )
        results.append(_gradient(input, d, edge_order, step))
    return tuple(results)
