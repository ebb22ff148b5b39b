"""Arithmetic of two and three operands; powers, bits and logic are in `powers.py`, `bits.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import MINIFLOATS
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import OpDefinition, given_dtype, op
from flambeau.language.promotion import CATEGORY, HALF, number_dtype, result_type
from flambeau.language.samples import ErrorSample, Sample, T, binary_samples, sample
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.broadcasting import (
    apply,
    as_node,
    check_one_dtype,
    is_complex,
    participant,
    rounded,
    together,
    unsupported,
)
from flambeau.ops.common import is_one

Value = Any  # a Node or a Python number


@op(kind="pointwise", runtime="other", samples=binary_samples(), reference="numpy.add")
def add(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`self + alpha * other`, with broadcasting and type promotion.

    Shapes: any two that broadcast. Dtypes: all; `bool` adds as "or".

    Raises:
        RuntimeError: sizes do not broadcast, or a floating `alpha` meets integers.

    Example:
        >>> torch.add(torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]), alpha=0.5)
        tensor([ 6., 12.])
    """
    return apply("add", prims.bitwise_or if self.dtype == "bool" else prims.add, self, other)


@add.overload(
    fits="alpha",
    runtime="other alpha",
    participants="self other",
)
def _add_alpha(self: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    return add(self, _scaled("add", self, other, alpha))


def _scaled(name: str, self: Node, other: Any, alpha: Any) -> Any:
    """`alpha * other` in the dtype both operands were promoted to."""
    _check_alpha(name, self.dtype, alpha)
    if self.dtype == "bool":
        return apply(name, prims.bitwise_and, prims.cast(other, "bool"), alpha)
    return apply(name, prims.mul, as_node(other, self.dtype), as_node(alpha, self.dtype))


def _check_alpha(name: str, dtype: str, alpha: Any) -> None:
    kind = alpha.dtype if isinstance(alpha, Node) else {bool: "bool", int: "i64"}.get(type(alpha))
    if kind == "bool" and dtype != "bool":
        problem = "Boolean alpha only supported for Boolean results."
        raise failure(RuntimeError, name, problem, "pass a number")
    if kind not in ("bool", "i64") and dtype not in ("f32", "f64", "c64", "c128"):
        problem = "For integral input tensors, argument alpha must not be a floating point number."
        raise failure(
            RuntimeError, name, problem, "pass an integer alpha, or convert the operands to floats"
        )


_BOOL_SUB = (
    "[sub] Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
    "to invert a mask, use the `~` or `logical_not()` operator instead."
    "\nhint: use ~mask, or convert the mask to numbers"
)
_BOOLS_SUB = (
    "[sub] Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
    "`logical_xor()` operator instead.\nhint: use mask ^ other"
)


def refuse_bools(self: Node, other: Any) -> None:
    """Masks have no difference: PyTorch refuses `True` on either side, numbers included."""
    kinds = [
        given_dtype(x) if isinstance(x, Node) else number_dtype(type(x)) for x in (self, other)
    ]
    if "bool" in kinds:
        raise RuntimeError(_BOOLS_SUB if kinds[0] == kinds[1] else _BOOL_SUB)


def _bool_errors() -> Iterator[ErrorSample]:
    mask = T(3, dtype="bool")
    yield ErrorSample(sample(mask, mask), RuntimeError, "with two bool tensors is not supported")
    for operands in ((T(3), mask), (mask, T(3)), (mask, 2), (T(3), True)):
        yield ErrorSample(sample(*operands), RuntimeError, "with a bool tensor is not supported")
    yield ErrorSample(sample(T(3), T(4)), RuntimeError, "The size of tensor a (3) must match")


@op(
    kind="pointwise",
    runtime="other",
    aliases="subtract",
    errors=_bool_errors,
    samples=binary_samples(),
    reference="numpy.subtract",
)
def sub(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`self - alpha * other`, with broadcasting and type promotion.

    Shapes: any two that broadcast. Dtypes: all but `bool`.

    Raises:
        RuntimeError: sizes do not broadcast, an operand is bool, or a floating `alpha` meets
            integers.

    Example:
        >>> torch.sub(torch.tensor([1.0, 2.0]), 1)
        tensor([0., 1.])
    """
    refuse_bools(self, other)
    return apply("sub", prims.sub, self, other)


@sub.overload(
    fits="alpha",
    runtime="other alpha",
    participants="self other",
)
def _sub_alpha(self: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    refuse_bools(self, other)
    return sub(self, _scaled("sub", self, other, alpha))


@op(
    where="torch",
    promote="default",
    layout="follow",
    runtime="other",
    errors=_bool_errors,
    samples=binary_samples(),
)
def rsub(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`other - alpha * self`: subtraction with the operands exchanged.

    Example:
        >>> torch.rsub(torch.tensor([1.0, 2.0]), 1)
        tensor([ 0., -1.])
    """
    refuse_bools(self, other)
    return apply("rsub", lambda a, b: prims.sub(b, a), self, other)


@rsub.overload(
    fits="alpha",
    runtime="other alpha",
    participants="self other",
)
def _rsub_alpha(self: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    refuse_bools(self, other)
    return rsub(_scaled("rsub", self, self, alpha), other)


@op(
    kind="pointwise",
    runtime="other",
    aliases="multiply",
    samples=binary_samples(),
    reference="numpy.multiply",
)
def mul(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`self * other`, with broadcasting and type promotion; `bool` multiplies as "and".

    Example:
        >>> torch.mul(torch.tensor([1.0, 2.0]), 3)
        tensor([3., 6.])
    """
    if self.dtype in MINIFLOATS and isinstance(other, Node) and not other.is_scalar:
        wide = apply("mul", prims.mul, prims.cast(self, "f32"), prims.cast(other, "f32"))
        return prims.cast(wide, self.dtype)
    return apply("mul", prims.bitwise_and if self.dtype == "bool" else prims.mul, self, other)


@op(
    kind="elementary",
    runtime="other",
    aliases="divide true_divide",
    saves_result=False,
    samples=lambda: _division_samples(),
    reference="numpy.true_divide",
)
def div(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`self / other`, optionally rounded ("trunc" towards zero, "floor" down).

    Without `rounding_mode` integers divide to the default float dtype; with it they stay integers.
    The gradient of a rounded quotient is zero.

    Raises:
        RuntimeError: sizes do not broadcast, or an unknown `rounding_mode`.

    Example:
        >>> torch.div(torch.tensor([7, -7]), 2, rounding_mode="floor")
        tensor([ 3, -4])
    """
    return apply("div", prims.div, self, other)


def _division_samples() -> Iterator[Sample]:
    yield from binary_samples(low=0.5)()
    for mode in ("trunc", "floor", None):
        yield sample(T(3, 4, low=-9, high=9), T(4, low=0.5, high=3), rounding_mode=mode)
        yield sample(T(3, 4, low=-9, high=9), -2.0, rounding_mode=mode)


@div.overload(
    runtime="other",
    promote="none",
)
def _div_mode(self: Tensor, other: Tensor | Scalar, *, rounding_mode: str | None) -> Tensor:
    if rounding_mode is None:
        return div(self, other)
    if rounding_mode == "floor":
        return _div_floor(self, other)
    if rounding_mode == "trunc":
        return _div_trunc(self, other)
    problem = "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
    problem += f"'{rounding_mode}'"
    raise failure(RuntimeError, "div", problem, "leave it out for the exact quotient")


def _flat(value: Node, a: Node, b: Node) -> Node:
    return prims.with_derivative(value, a, b, rule="flat")


@op(kind="pointwise", where="method", runtime="other")
def _div_floor(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`div` rounded down."""
    a, b = _divisible("div", self, other)
    half = _rounding_half(self, other)
    value = prims.floor_div(a, b) if half is None else _floor_in_steps(a, b, half)
    return _flat(value, a, b) if CATEGORY[a.dtype] == 2 else value


def _rounding_half(self: Node, other: Any) -> str | None:
    """The half type to which PyTorch rounds each step of a division by other than one number."""
    if not isinstance(other, Node) or all(is_one(n) for n in other.shape):
        return None
    half, mine = given_dtype(other), given_dtype(self)
    return half if half in HALF and (mine == half or not self.shape) else None


def _floor_in_steps(a: Node, b: Node, half: str) -> Node:
    """The quotient rounded down, from the remainder, every step rounded to `half`."""
    left = prims.fmod(a, b)
    quotient = rounded(rounded(a - left, half) / b, half)
    below = prims.ne(left, prims.zeros_like(left)) & prims.ne(b < 0.0, left < 0.0)
    quotient = prims.where(below, rounded(quotient - 1.0, half), quotient)
    floor = prims.floor(quotient)
    floor = prims.where(rounded(quotient - floor, half) > 0.5, rounded(floor + 1.0, half), floor)
    exact = a / b
    zero = prims.copysign(prims.zeros_like(exact), exact)
    floor = prims.where(prims.eq(quotient, prims.zeros_like(quotient)), zero, floor)
    return prims.where(prims.eq(b, prims.zeros_like(b)), exact, floor)


@op(kind="pointwise", where="method", runtime="other")
def _div_trunc(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`div` rounded towards zero."""
    a, b = _divisible("div", self, other)
    if CATEGORY[a.dtype] == 2:
        quotient = rounded(a / b, _rounding_half(self, other) or a.dtype)
        return _flat(prims.trunc(quotient), a, b)
    return prims.floor_div(a - prims.fmod(a, b), b)  # an exact multiple: down is towards zero


def _real_pair(name: str, *values: Any) -> tuple[Node, ...]:
    """Operands of an operator that is defined for integers and real floats."""
    nodes = together(name, *values)
    if is_complex(nodes[0]):
        raise unsupported(name, nodes[0], "apply it to the real and imaginary parts")
    if nodes[0].dtype == "bool":
        raise unsupported(name, nodes[0], "convert one of the operands to integers")
    return nodes


def _divisible(name: str, *values: Any) -> tuple[Node, Node]:
    """Operands of a division with remainder; an integer zero on the right raises."""
    a, b = _real_pair(name, *values)
    return a, _nonzero(name, b)


def _nonzero(name: str, b: Node) -> Node:
    """An integer divisor, checked when the program runs."""
    if CATEGORY[b.dtype] == 2:
        return b
    zero = prims.cast(prims.eq(b, prims.zeros_like(b)), "i64")
    message = f"[{name}] ZeroDivisionError\nhint: an integer was divided by zero"
    checked = prims.check_index(zero, 1, name, message, error="runtime")
    return b + prims.cast(checked, b.dtype)


@op(kind="elementary", where="method", inplace=False, runtime="other")
def _rdiv(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`other / self`: division with the operands exchanged."""
    return apply("div", lambda a, b: prims.div(b, a), self, other)


def _division_pairs() -> Iterator[Sample]:
    for shape in ((), (7,), (3, 4), (0, 3)):
        yield sample(T(*shape, low=-9, high=9), T(*shape, low=0.5, high=3))
        yield sample(T(*shape, low=-9, high=9), -2.0)
    yield sample(T(3, 1, low=-9, high=9), T(4, low=0.5, high=3))


@op(kind="pointwise", runtime="other", samples=_division_pairs, reference="numpy.floor_divide")
def floor_divide(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`self // other`: the quotient rounded down, as in Python.

    Raises:
        RuntimeError: an integer was divided by zero ("ZeroDivisionError").

    Example:
        >>> torch.floor_divide(torch.tensor([7.0, -7.0]), 2)
        tensor([ 3., -4.])
    """
    return prims.floor_div(*_divisible("floor_divide", self, other))


@op(kind="pointwise", where="method", inplace=False, runtime="other")
def _rfloordiv(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`other // self`."""
    b, a = _divisible("floor_divide", other, self)
    return prims.floor_div(b, a)


@op(kind="pointwise", runtime="other", samples=_division_pairs, reference="numpy.remainder")
def remainder(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`self % other`: the remainder with the sign of `other`, as in Python.

    Example:
        >>> torch.remainder(torch.tensor([7.0, -7.0]), 4)
        tensor([3., 1.])
    """
    return prims.remainder(*_divisible("remainder", self, other))


@remainder.overload(runtime="self", inplace=False)
def _scalar_remainder(self: Scalar, other: Tensor) -> Tensor:
    return prims.remainder(*_divisible("remainder", as_node(self, other.dtype), other))


@op(kind="pointwise", where="method", inplace=False, runtime="other")
def _rmod(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`other % self`."""
    b, a = _divisible("remainder", other, self)
    return prims.remainder(b, a)


@op(kind="pointwise", runtime="other", samples=_division_pairs, reference="numpy.fmod")
def fmod(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """The remainder with the sign of `self`, as C's fmod.

    Example:
        >>> torch.fmod(torch.tensor([7.0, -7.0]), 4)
        tensor([ 3., -3.])
    """
    return prims.fmod(*_divisible("fmod", self, other))


# ------------------------------------------------------------------------------------ extremes


def _extreme(name: str, text: str, relation: str, reference: str) -> Any:
    logical = prims.bitwise_or if relation == "ge" else prims.bitwise_and

    def body(self: Node, other: Node) -> Node:
        a, b = together(name, self, other)
        if a.dtype == "bool":
            return logical(a, b)
        if is_complex(a):
            raise unsupported(name, a, "complex numbers have no order")
        if name in ("maximum", "minimum") or CATEGORY[a.dtype] < 2:
            return (prims.maximum if relation == "ge" else prims.minimum)(a, b)
        wins = a >= b if relation == "ge" else a <= b
        return prims.where(wins | prims.isnan(b), a, b)

    body.__doc__ = f"""{text}

    Operands broadcast and promote. Raises NotImplementedError for complex tensors.

    Example:
        >>> torch.{name}(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 2.0])).shape
        torch.Size([2])
    """
    return op(
        f"{name}(Tensor self, Tensor other) -> Tensor",
        kind="pointwise",
        inplace=False,
        samples=binary_samples(scalar=None),
        reference=reference,
    )(body)


maximum = _extreme(
    "maximum",
    "The greater of two elements, the first of equal ones; NaN wins, ties share the gradient.",
    "ge",
    "numpy.maximum",
)
minimum = _extreme(
    "minimum",
    "The lesser of two elements, the first of equal ones; NaN wins, ties share the gradient.",
    "le",
    "numpy.minimum",
)
fmax = _extreme("fmax", "The greater of two elements; NaN loses.", "ge", "numpy.fmax")
fmin = _extreme("fmin", "The lesser of two elements; NaN loses.", "le", "numpy.fmin")


# ------------------------------------------------------------------------------------ combinations


def _lerp_samples() -> Iterator[Sample]:
    for shape in ((), (7,), (3, 4), (0, 3)):
        yield sample(T(*shape), T(*shape), 0.3)
        yield sample(T(*shape), T(*shape), T(*shape, low=-0.5, high=1.5))
    yield sample(T(3, 1), T(4), 0.75)


@op(kind="pointwise", participants="self end", runtime="weight", samples=_lerp_samples)
def lerp(self: Tensor, end: Tensor, weight: Tensor | Scalar) -> Tensor:
    """`self + weight * (end - self)`, written so that weight 1 gives exactly `end`.

    Raises:
        NotImplementedError: integer or bool tensors.
        RuntimeError: the dtypes of the tensors differ; a weight without dimensions may have any.

    Example:
        >>> torch.lerp(torch.tensor([0.0, 2.0]), torch.tensor([4.0, 4.0]), 0.25)
        tensor([1.0000, 2.5000])
    """
    if CATEGORY[self.dtype] < 2:
        raise unsupported("lerp", self, "convert to a floating-point type first")
    check_one_dtype("lerp", input=self, end=end)
    if isinstance(weight, Node) and weight.shape:
        check_one_dtype("lerp", input=self, weight=weight)
    return interpolated(*together("lerp", self, end, weight))


def interpolated(a: Node, b: Node, weight: Node) -> Node:
    """`a + weight * (b - a)`, computed from the nearer end: exact at weights 0 and 1."""
    difference = b - a
    near_a = prims.abs(weight) < 0.5
    return prims.where(near_a, a + weight * difference, b - difference * (1 - weight))


def _triple_samples(low: float = -2.0) -> Any:
    def make() -> Iterator[Sample]:
        for shape in ((), (7,), (3, 4), (0, 3)):
            yield sample(T(*shape), T(*shape), T(*shape, low=low))
            yield sample(T(*shape), T(*shape), T(*shape, low=low), value=0.5)
        yield sample(T(3, 4), T(3, 1), T(4, low=low), value=-2)

    return make


@op(
    kind="pointwise",
    participants="self tensor1 tensor2",
    runtime="value",
    samples=_triple_samples(),
)
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor:
    """`self + value * tensor1 * tensor2`, with broadcasting.

    Example:
        >>> torch.addcmul(torch.ones(2), torch.ones(2), torch.ones(2), value=0.5)
        tensor([1.5000, 1.5000])
    """
    a, b, c = together("addcmul", self, tensor1, tensor2)
    return a + as_node(value, a.dtype) * b * c


@op(
    kind="pointwise",
    participants="self tensor1 tensor2",
    runtime="value",
    samples=_triple_samples(0.5),
)
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor:
    """`self + value * tensor1 / tensor2`, with broadcasting.

    Raises:
        RuntimeError: integer tensors only, or an integer quotient.

    Example:
        >>> torch.addcdiv(torch.ones(2), torch.ones(2), torch.ones(2), value=0.5)
        tensor([1.5000, 1.5000])
    """
    quotient = max(CATEGORY[given_dtype(x)] for x in (tensor1, tensor2))
    if min(CATEGORY[self.dtype], quotient) < 2:
        raise RuntimeError(
            "[addcdiv] Integer division with addcdiv is no longer supported\n"
            "hint: convert to float, or add value * torch.div(tensor1, tensor2, "
            "rounding_mode='trunc')"
        )
    a, b, c = together("addcdiv", self, tensor1, tensor2)
    return a + as_node(value, a.dtype) * b / c


# ------------------------------------------------------------------------------- numbers first


def _as_tensor(number: Any, other: Any) -> Node:
    """A number that stands where a tensor does, as a node of the dtype of both operands."""
    return as_node(number, result_type([participant(number), participant(other)]))


def _number_first(definition: OpDefinition, promote: str) -> None:
    """Lets `torch.mul(2, x)` and `torch.mul(2, 3)` work: the number becomes a tensor."""

    def body(self: Any, other: Any) -> Node:
        return definition(_as_tensor(self, other), other)

    schema = f"{definition.name}.Scalar(Scalar self, Tensor|Scalar other) -> Tensor"
    options = {"runtime": "self other", "inplace": False, "promote": promote}
    definition.overload(schema, **options)(body)


def _number_first_alpha(definition: OpDefinition) -> None:
    """The same with `alpha`."""
    scaled = definition.overloads[1]

    def body(self: Any, other: Any, alpha: Any) -> Node:
        result: Node = scaled.run((_as_tensor(self, other), other, alpha))
        return result

    definition.overload(
        f"{definition.name}.Scalar_alpha(Scalar self, Tensor|Scalar other, *, Scalar alpha=1) "
        "-> Tensor",
        fits="alpha",
        runtime="self other alpha",
        participants="self other",
        inplace=False,
        promote="default",
    )(body)


for _definition in (add, sub, mul, floor_divide):
    _number_first(_definition, "default")
_number_first(div, "float")
for _definition in (add, sub):
    _number_first_alpha(_definition)


@div.overload(
    runtime="self other",
    inplace=False,
    promote="none",
)
def _number_div_mode(self: Scalar, other: Tensor | Scalar, *, rounding_mode: str | None) -> Tensor:
    operand = other if isinstance(other, Node) and not other.is_scalar else _as_tensor(other, self)
    result: Node = div.overloads[1].run((_as_tensor(self, other), operand, rounding_mode))
    return result
