"""Operators of one operand that work element by element: rounding, signs, tests, bounds.

Elementary and special functions (`exp`, `erf` ...) are in `elementary.py`.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator

from flambeau import prims
from flambeau.ir.dtypes import MINIFLOATS, OPAQUE, UNSIGNED
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import OpDefinition, op
from flambeau.language.promotion import CATEGORY, compute_dtype
from flambeau.language.samples import ErrorSample, Sample, T, sample, unary_samples
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.broadcasting import (
    Value,
    as_node,
    broadcast_sizes,
    dtype_of,
    is_complex,
    is_float,
    unsupported,
)

FLOAT_LIMITS = {
    "f16": 65504.0, "bf16": float.fromhex("0x1.fep127"), "f32": float.fromhex("0x1.fffffep127"),
    "f64": float.fromhex("0x1.fffffffffffffp1023"),
}  # fmt: skip


@op(
    kind="pointwise",
    out="exact",
    aliases="negative",
    samples=unary_samples(),
    errors=lambda: [ErrorSample(sample(T(3, dtype="bool")), RuntimeError, "Negation")],
    reference="numpy.negative",
    linear=True,
)
def neg(self: Tensor) -> Tensor:
    """Minus each element. Dtypes: all but `bool`.

    Raises:
        RuntimeError: a `bool` tensor.

    Example:
        >>> torch.neg(torch.tensor([1.0, -2.0]))
        tensor([-1.,  2.])
    """
    if self.dtype == "bool":
        problem = "Negation, the `-` operator, on a bool tensor is not supported. If you are "
        problem += "trying to invert a mask, use the `~` or `logical_not()` operator instead."
        raise failure(RuntimeError, "neg", problem, "use ~mask")
    return prims.neg(self)


@op(
    layout="follow",
    returns_self=True,
    samples=unary_samples(),
    reference="numpy.positive",
    linear=True,
)
def positive(self: Tensor) -> Tensor:
    """The tensor itself: `+x`. Dtypes: all but `bool`.

    Raises:
        RuntimeError: a `bool` tensor.

    Example:
        >>> torch.positive(torch.tensor([1.0, -2.0]))
        tensor([ 1., -2.])
    """
    if self.dtype == "bool":
        problem = "The `+` operator, on a bool tensor is not supported."
        raise failure(RuntimeError, "positive", problem, "convert to int")
    return self


@op(
    kind="pointwise",
    promote="keep",
    aliases="absolute",
    samples=unary_samples(),
    reference="numpy.abs",
    zero_preserving=True,
)
def abs(self: Tensor) -> Tensor:
    """The magnitude of each element; complex tensors give real ones.

    Raises:
        NotImplementedError: a `bool` tensor.

    Example:
        >>> torch.abs(torch.tensor([-1.0, 2.0]))
        tensor([1., 2.])
    """
    if self.dtype == "bool":
        raise unsupported("abs", self, "convert to int first")
    if self.dtype in MINIFLOATS:  # a sign is a bit; the one that has no -0 keeps its NaN
        bits = prims.bitcast(self, "u8")
        cleared = prims.bitwise_and(bits, prims.full_like(0x7F, bits))
        nan = prims.ne(self, self)
        return prims.bitcast(prims.where(nan, bits, cleared), self.dtype)
    return self if self.dtype == "u8" else prims.abs(self)


@op(
    kind="pointwise",
    out="exact",
    samples=unary_samples(),
    reference="numpy.sign",
    zero_preserving=True,
)
def sign(self: Tensor) -> Tensor:
    """-1, 0 or 1 by the sign of each element; 0 for NaN.

    Raises:
        NotImplementedError: a complex tensor.

    Example:
        >>> torch.sign(torch.tensor([-3.0, 0.0, 2.0]))
        tensor([-1.,  0.,  1.])
    """
    if is_complex(self):
        raise unsupported("sign", self, "use sgn for complex numbers")
    return self if self.dtype == "bool" else prims.sign(self)


@op(kind="pointwise", out="exact", samples=unary_samples(), zero_preserving=True)
def sgn(self: Tensor) -> Tensor:
    """`sign`, and x / |x| (0 at 0) for complex numbers.

    Example:
        >>> torch.sgn(torch.tensor([-3.0, 0.0]))
        tensor([-1.,  0.])
    """
    if not is_complex(self):
        return sign(self)
    size = prims.abs(self)
    zero = prims.eq(size, prims.zeros_like(size))
    divisor = prims.cast(prims.where(zero, prims.full_like(1, size), size), self.dtype)
    return self / divisor


def _rounding(name: str, where: str, aliases: str, text: str, example: str) -> OpDefinition:
    primitive: Callable[[Node], Node] = getattr(prims, name)

    def body(self: Node) -> Node:
        if self.dtype == "bool" or is_complex(self):
            raise unsupported(name, self, "convert to a real number type first")
        return primitive(self) if is_float(self) else self

    body.__doc__ = f"""{text} Integers stay as they are; the gradient is zero.

    Raises:
        NotImplementedError: a `bool` or complex tensor.

    Example:
        >>> torch.{name}(torch.tensor([-1.5, 2.5]))
        {example}
    """
    return op(
        f"{name}(Tensor self) -> Tensor",
        kind="pointwise",
        where=where,
        out="exact",
        aliases=aliases,
        samples=unary_samples(-4, 4),
        reference="numpy." + name,
        zero_preserving=True,
    )(body)


_HOMES = "torch method"
ceil = _rounding("ceil", _HOMES, "", "The least integer not below x.", "tensor([-1.,  3.])")
floor = _rounding("floor", _HOMES, "", "The greatest integer not above x.", "tensor([-2.,  2.])")
trunc = _rounding("trunc", _HOMES, "fix", "The integer part of x.", "tensor([-1.,  2.])")


def _round_samples() -> Iterator[Sample]:
    yield from unary_samples(-4, 4)()
    yield sample(T(3, 4), decimals=1)
    yield sample(T(3, 4, low=-400, high=400), decimals=-2)


@op(
    kind="pointwise",
    where="torch method special",
    out="exact",
    samples=_round_samples,
    zero_preserving=True,
)
def round(self: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest number with so many decimals, ties to even; the gradient is zero.

    Raises:
        NotImplementedError: a `bool` or complex tensor, or decimals of integers.

    Example:
        >>> torch.round(torch.tensor([0.125, 2.5]), decimals=2)
        tensor([0.1200, 2.5000])
    """
    if self.dtype == "bool" or is_complex(self) or (decimals and not is_float(self)):
        raise unsupported("round", self, "convert to a floating-point type first")
    if not is_float(self):
        return self
    if decimals == 0:
        return prims.round(self)
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return prims.round(self * scale) / scale
    return prims.round(self / scale) * scale


@op(kind="pointwise", out="exact", samples=unary_samples(-4, 4), zero_preserving=True)
def frac(self: Tensor) -> Tensor:
    """The part behind the point, with the sign of x: x - trunc(x).

    Raises:
        NotImplementedError: not a floating-point tensor.

    Example:
        >>> torch.frac(torch.tensor([1.5, -2.25]))
        tensor([ 0.5000, -0.2500])
    """
    if not is_float(self):
        raise unsupported("frac", self, "convert to a floating-point type first")
    return self - prims.trunc(self)


@op(
    kind="pointwise",
    promote="none",
    samples=unary_samples(),
    reference="numpy.square",
    zero_preserving=True,
)
def square(self: Tensor) -> Tensor:
    """x * x; `bool` counts as int64.

    Example:
        >>> torch.square(torch.tensor([-2.0, 3.0]))
        tensor([4., 9.])
    """
    x = prims.cast(self, "i64" if self.dtype == "bool" else compute_dtype(self.dtype))
    return prims.cast(x * x, x.dtype if self.dtype == "bool" else self.dtype)


# ------------------------------------------------------------------------------------ tests


def _test(
    name: str, text: str, function: Callable[[Node], Node], out: bool | str = "exact"
) -> OpDefinition:
    def body(self: Node) -> Node:
        return function(self)

    body.__doc__ = f"""{text} A `bool` tensor; integers are always finite.

    Example:
        >>> torch.{name}(torch.tensor([1.0])).dtype
        torch.bool
    """
    return op(
        f"{name}(Tensor self) -> Tensor",
        layout="follow",
        out=out,
        samples=unary_samples(),
        reference="numpy." + name,
        zero_preserving=name != "isfinite",
    )(body)


def _wide(x: Node) -> Node:
    return prims.cast(x, compute_dtype(x.dtype))


def _parts(x: Node, test: Callable[[Node], Node]) -> Node:
    """A test of floats that holds for a complex number when it holds for a part."""
    if is_complex(x):
        return test(prims.real(x)) | test(prims.imag(x))
    return test(_wide(x)) if is_float(x) else prims.full_like(False, x, "bool")


def _finite(x: Node) -> Node:
    if x.dtype == "e8m0fnu":
        return prims.eq(x, x)
    return ~(_parts(x, prims.isinf) | _parts(x, prims.isnan))


def _infinite(x: Node, sign: float, name: str) -> Node:
    if is_complex(x):
        raise failure(RuntimeError, name, "does not support complex inputs.", "test x.real, x.imag")
    if not is_float(x):
        return prims.full_like(False, x, "bool")
    return prims.eq(_wide(x), prims.full_like(sign * math.inf, _wide(x)))


def _signbit(x: Node) -> Node:
    if x.dtype == "bool" or x.dtype == "u8" or x.dtype in UNSIGNED:
        return prims.full_like(False, x, "bool")
    return prims.signbit(_wide(x)) if is_float(x) else x < 0


def _unequal(x: Node) -> Node:
    return prims.ne(x, x) if x.dtype in OPAQUE else _parts(x, prims.isnan)


isnan = _test("isnan", "Whether each element is NaN.", _unequal, False)
isinf = _test("isinf", "Whether each element is infinite.", lambda x: _parts(x, prims.isinf), False)
isfinite = _test("isfinite", "Whether each element is a number.", _finite, False)
isneginf = _test(
    "isneginf", "Whether each element is -inf.", lambda x: _infinite(x, -1, "isneginf")
)
isposinf = _test("isposinf", "Whether each element is +inf.", lambda x: _infinite(x, 1, "isposinf"))
signbit = _test("signbit", "Whether the sign bit of each element is set.", _signbit)


@op(layout="follow", samples=unary_samples())
def isreal(self: Tensor) -> Tensor:
    """Whether each element has no imaginary part.

    Example:
        >>> torch.isreal(torch.tensor([1.0]))
        tensor([True])
    """
    if is_complex(self):
        part = prims.imag(self)
        return prims.eq(part, prims.zeros_like(part))
    return prims.full_like(True, self, "bool")


@op(kind="pointwise", promote="none", samples=unary_samples())
def logical_not(self: Tensor) -> Tensor:
    """Whether each element is zero.

    Example:
        >>> torch.logical_not(torch.tensor([0, 3]))
        tensor([ True, False])
    """
    return prims.bitwise_not(prims.cast(self, "bool"))


def _integer_samples() -> Iterator[Sample]:
    for shape in ((), (7,), (3, 4), (0, 3)):
        yield sample(T(*shape, dtype="i32", low=-9, high=9))
    yield sample(T(5, dtype="bool"))


@op(
    kind="pointwise",
    out="exact",
    samples=_integer_samples,
    dtypes="bool u8 i8 i16 i32 i64",
    reference="numpy.bitwise_not",
)
def bitwise_not(self: Tensor) -> Tensor:
    """The complement of the bits; logical for `bool`.

    Raises:
        NotImplementedError: floating-point or complex tensors.

    Example:
        >>> ~torch.tensor([True, False])
        tensor([False,  True])
    """
    if CATEGORY[self.dtype] >= 2:
        raise unsupported("bitwise_not", self, "use logical_not, or convert to an integer type")
    return prims.bitwise_not(self)


# ------------------------------------------------------------------------------------ bounds


def _nan_samples() -> Iterator[Sample]:
    values = [math.nan, math.inf, -math.inf, 1.5]
    yield sample(T(4, values=values))
    yield sample(T(4, values=values), 1.0, posinf=7.0)
    yield sample(T(3, dtype="i64"))


@op(
    layout="follow",
    inplace=True,
    out="exact",
    samples=_nan_samples,
    reference="numpy.nan_to_num",
    zero_preserving=True,
)
def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN replaced by `nan` (0), infinities by the numbers given or the dtype's greatest and least.

    The gradient is zero where an element was replaced.

    Example:
        >>> torch.nan_to_num(torch.tensor([float("nan"), 1.0]), nan=2.0)
        tensor([2., 1.])
    """
    if is_complex(self):
        raise unsupported("nan_to_num", self, "apply it to x.real and x.imag")
    if not is_float(self):
        return self
    x, limit = _wide(self), FLOAT_LIMITS[self.dtype]
    high = prims.full_like(limit if posinf is None else posinf, x)
    low = prims.full_like(-limit if neginf is None else neginf, x)
    result = prims.where(prims.isnan(x), prims.full_like(nan or 0.0, x), x)
    result = prims.where(_infinite(x, 1, "nan_to_num"), high, result)
    result = prims.where(_infinite(x, -1, "nan_to_num"), low, result)
    return prims.cast(result, self.dtype)


def _clamp_rule(g: Node, y: Node, x: Node, *bounds: Node) -> list[Node]:
    """A bound that is active takes the gradient; at equality the element keeps it."""
    names = y.attribute("bounds")
    by_name = dict(zip(names, bounds, strict=True))
    zero = prims.zeros_like(g)
    low, high = by_name.get("min"), by_name.get("max")
    inside = prims.full_like(True, g, "bool")
    if low is not None:
        inside = inside & (x >= low)
    if high is not None:
        inside = inside & (x <= high)
    grads = [prims.where(inside, g, zero)]
    if low is not None:
        taken = (x < low) if high is None else (x < low) & (low < high)
        grads.append(prims.where(taken, g, zero))
    if high is not None:
        taken = (x > high) if low is None else (x > high) | (high < low)
        grads.append(prims.where(taken, g, zero))
    return grads


prims.register_rule("clamp", _clamp_rule)


def clamped(name: str, x: Node, low: Value | None, high: Value | None) -> Node:
    """x between bounds; NaN anywhere gives NaN; `high` wins where the bounds cross."""
    if is_complex(x):
        raise unsupported(name, x, "clamp the real and the imaginary part")
    if x.dtype == "bool":
        if name == "clamp":
            raise unsupported(name, x, "convert to an integer type first")
        bytes_ = [None if v is None else prims.cast(as_node(v, "bool"), "u8") for v in (low, high)]
        return prims.cast(clamped(name, prims.cast(x, "u8"), *bytes_), "bool")
    dtype = dtype_of([x])
    nodes = {n: as_node(v, dtype) for n, v in (("min", low), ("max", high)) if v is not None}
    shape = broadcast_sizes(name, x.shape, *(b.shape for b in nodes.values()))
    x = prims.broadcast_to(x, shape)
    bounds = {n: prims.broadcast_to(b, shape) for n, b in nodes.items()}
    value = x
    if "min" in bounds:
        value = prims.maximum(value, bounds["min"])
    if "max" in bounds:
        value = prims.minimum(value, bounds["max"])
    return prims.with_derivative(value, x, *bounds.values(), rule="clamp", bounds=tuple(bounds))


def _clamp_samples() -> Iterator[Sample]:
    for shape in ((), (7,), (3, 4), (0, 3)):
        yield sample(T(*shape), -1.0, 0.5)
    yield sample(T(3, 4), min=0.0)
    yield sample(T(3, 4), max=0)
    yield sample(T(3, 4), T(4), T(3, 1))
    yield sample(T(3, 4), None, T(3, 1))
    yield sample(T(4, 6, layout="transposed"), 1.0, -1.0)


@op(
    kind="pointwise",
    out="exact",
    fits="min max",
    runtime="min max",
    aliases="clip",
    samples=_clamp_samples,
)
def clamp(self: Tensor, min: Scalar | None = None, max: Scalar | None = None) -> Tensor:
    """Each element moved into [min, max]; a missing bound does not bound.

    Bounds are numbers or tensors that broadcast; NaN anywhere gives NaN; `max` wins over `min`.
    The gradient goes to the element where it lies within the bounds, else to the active bound.

    Raises:
        RuntimeError: no bound given.
        NotImplementedError: a `bool` or complex tensor.

    Example:
        >>> torch.clamp(torch.tensor([-2.0, 0.5, 3.0]), min=-1, max=1)
        tensor([-1.0000,  0.5000,  1.0000])
    """
    if min is None and max is None:
        problem = "torch.clamp: At least one of 'min' or 'max' must not be None"
        raise failure(RuntimeError, "clamp", problem, "pass min=, max= or both")
    return clamped("clamp", self, min, max)


clamp.overload(
    "clamp.tensors(Tensor self, Tensor|Scalar? min=None, Tensor|Scalar? max=None) -> Tensor",
    out=True,
    fits="min max",
    runtime="min max",
)(clamp.overloads[0].body)


@op(
    kind="pointwise",
    out="exact",
    fits="min",
    runtime="min",
    samples=lambda: [sample(T(3, 4), 0.5), sample(T(3, 4), T(4))],
)
def clamp_min(self: Tensor, min: Scalar) -> Tensor:
    """Each element raised to at least `min`; see `clamp`.

    Example:
        >>> torch.clamp_min(torch.tensor([-2.0, 3.0]), 0)
        tensor([0., 3.])
    """
    return clamped("clamp_min", self, min, None)


clamp_min.overload("clamp_min.tensor(Tensor self, Tensor min) -> Tensor", out=True, fits=())(
    clamp_min.overloads[0].body
)


@op(
    kind="pointwise",
    out="exact",
    fits="max",
    runtime="max",
    samples=lambda: [sample(T(3, 4), 0.5), sample(T(3, 4), T(4))],
)
def clamp_max(self: Tensor, max: Scalar) -> Tensor:
    """Each element lowered to at most `max`; see `clamp`.

    Example:
        >>> torch.clamp_max(torch.tensor([-2.0, 3.0]), 0)
        tensor([-2.,  0.])
    """
    return clamped("clamp_max", self, None, max)


clamp_max.overload("clamp_max.tensor(Tensor self, Tensor max) -> Tensor", out=True, fits=())(
    clamp_max.overloads[0].body
)
