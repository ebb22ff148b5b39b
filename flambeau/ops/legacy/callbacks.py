"""Python functions applied element by element, in place: slow, outside of the autograd graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.core.devices import has_data
from flambeau.ir.failure import failure
from flambeau.language.definition import REGISTRY, function
from flambeau.language.samples import ErrorSample, T, sample
from flambeau.language.schema import Mutable, Tensor
from flambeau.ops.creation import creation  # noqa: F401 - defines `tensor`


def _elements(tensor: Any) -> list[Any]:
    """The elements in logical order."""
    flat: list[Any] = tensor.detach().reshape(-1).tolist()
    return flat


def _number(name: str, kind: Any, value: Any) -> Any:
    if isinstance(value, str):
        raise failure(TypeError, name, "must be a number, not str", "return a number")
    return kind(value)


def _write(name: str, self: Any, function: Callable[..., Any], *others: Any) -> Any:
    """Replaces every element by the function's value of it and of the others' elements."""
    if any(x.requires_grad for x in (self, *others)):
        problem = f"Can't call {name}() on a tensor that requires grad"
        raise failure(RuntimeError, name, problem, f"x.detach().{name}()")
    for other in others:
        if other.dtype != self.dtype:
            problem = f"expected tensors of {self.dtype}, got {other.dtype}"
            raise failure(TypeError, name, problem, f"other.to({self.dtype})")
    if not callable(function):
        raise failure(TypeError, name, f"{function!r} is not callable", "give a function")
    if not has_data(self):
        return self
    dtype = self.dtype
    kind: Any = complex if dtype.is_complex else float if dtype.is_floating_point else int
    operands = [_elements(x) for x in (self, *(other.expand(self.shape) for other in others))]
    values = [_number(name, kind, function(*each)) for each in zip(*operands, strict=True)]
    return self.copy_(REGISTRY["tensor"].native(values, dtype=dtype).reshape(self.shape))


def _grown(x: float, *others: float) -> float:
    return x * 2 + sum(others)


@function(
    where="method",
    differentiable=False,
    samples=lambda: [sample(T(2, 3, grad=False), _grown)],
    errors=lambda: [ErrorSample(sample(T(2), 3), TypeError, "callable")],
)
def apply_(self: Mutable[Tensor], callable: Callable[[Any], Any]) -> Any:
    """Replaces every element by a Python function's value of it.

    Raises:
        RuntimeError: a tensor that requires a gradient.
        TypeError: no function, or one that returns no number.

    Example:
        >>> torch.tensor([1, 2]).apply_(lambda x: x * 10)
        tensor([10, 20])
    """
    return _write("apply_", self, callable)


@function(
    where="method",
    differentiable=False,
    samples=lambda: [sample(T(2, 3, grad=False), T(3, grad=False), _grown)],
    errors=lambda: [
        ErrorSample(sample(T(2), T(2, 2), _grown), RuntimeError, "expand"),
        ErrorSample(sample(T(2), T(2, dtype="i64"), _grown), TypeError, "expected"),
    ],
)
def map_(self: Mutable[Tensor], other: Tensor, callable: Callable[[Any, Any], Any]) -> Any:
    """Replaces every element by a Python function's value of it and of another tensor's.

    Shape: `other` broadcasts to the tensor's.

    Raises:
        RuntimeError: a tensor that requires a gradient, or shapes that do not fit.
        TypeError: dtypes that differ, or a function that returns no number.

    Example:
        >>> torch.tensor([1, 2]).map_(torch.tensor([10, 20]), lambda x, y: x + y)
        tensor([11, 22])
    """
    return _write("map_", self, callable, other)


@function(
    where="method",
    differentiable=False,
    samples=lambda: [sample(T(2, 3, grad=False), T(3, grad=False), T(2, 1, grad=False), _grown)],
    errors=lambda: [
        ErrorSample(sample(T(2), T(2, dtype="i64"), T(2), _grown), TypeError, "expected")
    ],
)
def map2_(self: Mutable[Tensor], x: Tensor, y: Tensor, callable: Callable[..., Any]) -> Any:
    """Replaces every element by a Python function's value of it and of two other tensors'.

    Shape: `x` and `y` broadcast to the tensor's.

    Raises:
        RuntimeError: a tensor that requires a gradient, or shapes that do not fit.
        TypeError: dtypes that differ, or a function that returns no number.

    Example:
        >>> x = torch.tensor([1, 2])
        >>> x.map2_(x, torch.tensor(5), lambda a, b, c: a * b + c)
        tensor([6, 9])
    """
    return _write("map2_", self, callable, x, y)
