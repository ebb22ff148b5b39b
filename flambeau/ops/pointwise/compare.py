"""Comparisons: element by element to `bool`, and of whole tensors.

Operands are compared in their promoted dtype: a number first takes that dtype, halves included, so
that `x == 0.1` holds for a half tensor made from 0.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language import promotion
from flambeau.language.definition import OpDefinition, op
from flambeau.language.no_data import refuse_meta
from flambeau.language.samples import ErrorSample, Sample, T, binary_samples, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import apply, as_node, is_complex, participant, unsupported

Value = Any  # a Node or a Python number

_RELATIONS = {
    "eq": ("==", "", "equal"),
    "ne": ("!=", "not_equal", "not_equal"),
    "lt": ("<", "less", "less"),
    "le": ("<=", "less_equal", "less_equal"),
    "gt": (">", "greater", "greater"),
    "ge": (">=", "greater_equal", "greater_equal"),
}


def _promoted(self: Node, other: Value) -> tuple[Node, Node]:
    common = promotion.result_type([participant(self), participant(other)])
    inner = promotion.compute_dtype(common)
    left, right = as_node(self, common), as_node(other, common)
    return prims.cast(left, inner), prims.cast(right, inner)


def _comparison(name: str) -> OpDefinition:
    sign, alias, reference = _RELATIONS[name]
    function: Callable[[Node, Node], Node] = getattr(prims, name)

    def body(self: Node, other: Value) -> Node:
        a, b = _promoted(self, other)
        if is_complex(a) and name not in ("eq", "ne"):
            raise unsupported(name, a, "complex numbers have no order")
        return apply(name, function, a, b)

    body.__doc__ = f"""`self {sign} other`, element by element, as `bool`.

    Operands broadcast and are compared in their promoted dtype.

    Raises:
        RuntimeError: sizes do not broadcast.

    Example:
        >>> torch.{name}(torch.tensor([1, 2]), 2).dtype
        torch.bool
    """
    return op(
        f"{name}(Tensor self, Tensor|Scalar other) -> Tensor",
        kind="pointwise",
        promote="none",
        runtime="other",
        aliases=alias,
        samples=binary_samples(),
        errors=_shape_errors,
        reference=f"numpy.{reference}",
    )(body)


def _shape_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3), T(4)), RuntimeError, "The size of tensor a (3) must match")


eq = _comparison("eq")
ne = _comparison("ne")
lt = _comparison("lt")
le = _comparison("le")
gt = _comparison("gt")
ge = _comparison("ge")


def _close_samples() -> Iterator[Sample]:
    yield from binary_samples(scalar=None)()
    special = T(4, values=[float("nan"), float("inf"), -float("inf"), 1.0], dtype="f32")
    yield sample(special, special)
    yield sample(special, special, equal_nan=True)
    yield sample(T(4, values=[1.0, 2.0, 3.0, 4.0]), T(4, values=[1.0, 2.1, 3.0, 5.0]), 0.1, 0.2)


@op(layout="follow", samples=_close_samples, reference="numpy.isclose")
def isclose(
    self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Whether |self - other| <= atol + rtol * |other|; equal elements are close, infinities too.

    Raises:
        RuntimeError: different dtypes, or a negative tolerance.

    Example:
        >>> torch.isclose(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1]))
        tensor([ True, False])
    """
    _check_tolerances("isclose", rtol, atol)
    if self.dtype != other.dtype:
        names = " did not match ".join(x.dtype for x in (self, other))
        raise failure(RuntimeError, "isclose", f"{names}", "convert one of the tensors")
    close: Node = eq(self, other)
    if equal_nan and promotion.CATEGORY[self.dtype] == 2:
        close = close | apply("isclose", prims.bitwise_and, ne(self, self), ne(other, other))
    if rtol == 0 and atol == 0:
        return close
    a, b = _differences(self, other)
    error = prims.abs(apply("isclose", prims.sub, a, b))
    allowed = prims.broadcast_to(prims.abs(b) * rtol + atol, error.shape)
    return close | ((error <= allowed) & _finite(error))


def _check_tolerances(name: str, rtol: float, atol: float) -> None:
    for label, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            problem = f"{label} must be greater than or equal to zero, but got {value}"
            raise failure(RuntimeError, name, problem, "0")


def _differences(self: Node, other: Node) -> tuple[Node, Node]:
    """Both operands in a dtype their difference can be measured in."""
    if promotion.CATEGORY[self.dtype] < 2:
        return prims.cast(self, "f64"), prims.cast(other, "f64")
    wide = promotion.compute_dtype(self.dtype)
    return prims.cast(self, wide), prims.cast(other, wide)


def _finite(x: Node) -> Node:
    return ~(prims.isinf(x) | prims.isnan(x))


@op(host=True, samples=_close_samples, reference="numpy.allclose")
def allclose(
    self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether all elements are close; see `isclose`. A Python bool.

    Example:
        >>> torch.allclose(torch.tensor([1.0]), torch.tensor([1.0 + 1e-9]))
        True
    """
    return bool(_all_true(isclose(self, other, rtol, atol, equal_nan)))


@op(
    host=True,
    samples=lambda: [sample(T(3, 4), T(3, 4)), sample(T(3), T(4)), sample(T(0), T(0))],
    reference="numpy.array_equal",
)
def equal(self: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same size and equal elements. A Python bool.

    Example:
        >>> torch.equal(torch.tensor([1, 2]), torch.tensor([1, 2]))
        True
    """
    if not isinstance(other, tensors.Tensor):
        problem = f"other must be Tensor, not {type(other).__name__}"
        raise failure(TypeError, "equal", problem, "(self == other).all()")
    refuse_meta("equal", self)
    if self.is_nested or other.is_nested:
        return self.is_nested and bool(type(self).equal(self, other))
    if tuple(self.shape) != tuple(other.shape):
        return False
    return bool(_all_true(eq(self, other)))


def _all_true(mask: Any) -> Any:
    from flambeau.ops.reduction.reduce import all as all_elements

    return all_elements(mask)


@op(host=True, samples=lambda: [sample(T(1))])
def is_nonzero(self: Tensor) -> bool:
    """Whether the only element of a tensor is not zero. A Python bool.

    Raises:
        RuntimeError: not exactly one element.

    Example:
        >>> torch.is_nonzero(torch.tensor([1.5]))
        True
    """
    if not isinstance(self, tensors.Tensor):
        problem = f"input must be Tensor, not {type(self).__name__}"
        raise failure(TypeError, "is_nonzero", problem, "bool(input)")
    if self.numel() != 1:
        what = "no values" if self.numel() == 0 else "more than one value"
        problem = f"Boolean value of Tensor with {what} is ambiguous"
        raise failure(RuntimeError, "is_nonzero", problem, "any() or all()")
    return bool(self.item())
