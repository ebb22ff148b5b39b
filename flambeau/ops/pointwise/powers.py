"""Powers, logarithmic sums, angles and other floating-point functions of two operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import UNSIGNED
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.promotion import CATEGORY, HALF, result_type
from flambeau.language.samples import ErrorSample, Sample, T, binary_samples, sample
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.broadcasting import (
    apply,
    as_node,
    broadcast_sizes,
    check_one_dtype,
    is_complex,
    is_float,
    participant,
    together,
    unsupported,
)
from flambeau.prims.create import normal_value

Value = Any  # a Node or a Python number


def _power_samples() -> Iterator[Sample]:
    for shape in ((), (7,), (3, 4), (0, 3)):
        yield sample(T(*shape, low=0.2), T(*shape))
        for exponent in (2, 3, 0.5, -1, 0, 1.7):
            yield sample(T(*shape, low=0.2), exponent)
    yield sample(T(3, 1, low=0.2), T(4))
    yield sample(2.0, T(3, 4))


def _power_errors() -> Iterator[ErrorSample]:
    integers = T(3, dtype="i64", low=1, high=4)
    yield ErrorSample(sample(integers, -1), RuntimeError, "Integers to negative integer powers")


def power(base: Node, exponent: Value) -> Node:
    """base to the exponent, both in the dtype of the result; small numbers become products."""
    if base.dtype == "bool" and isinstance(exponent, bool):
        return base if exponent else prims.full_like(True, base)
    if base.dtype == "bool":
        raise unsupported("pow", base, "convert to int first")
    if isinstance(exponent, (int, float)) and not isinstance(exponent, bool):
        _check_exponent(base.dtype, exponent)
        short = _SHORT_POWERS.get(exponent)
        if short is not None and (exponent in (1, 2, 3) or is_float(base)):
            return short(base)
    return apply("pow", prims.pow, base, exponent)


def _check_exponent(dtype: str, exponent: float) -> None:
    if CATEGORY[dtype] != 1:
        return
    if exponent < 0:
        problem = "Integers to negative integer powers are not allowed."
        raise failure(RuntimeError, "pow", problem, "convert the base to a floating-point type")
    if normal_value(exponent, dtype) != exponent:
        problem = f"value cannot be converted to type {dtype} without overflow"
        raise failure(RuntimeError, "pow", problem, f"{exponent} is an exponent for a wider dtype")


_SHORT_POWERS: dict[float, Callable[[Node], Node]] = {
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: prims.sqrt,
    -0.5: prims.rsqrt,
    -1: lambda x: 1 / x,
    -2: lambda x: 1 / (x * x),
}


@op(
    kind="pointwise",
    saves_result=False,
    samples=_power_samples,
    errors=_power_errors,
    reference="numpy.power",
)
def pow(self: Tensor, exponent: Tensor | Scalar) -> Tensor:
    """`self ** exponent`; either may be a number.

    A number as exponent is part of the program: 2, 3, 0.5, -0.5, -1 and -2 become products and
    roots. The gradient with respect to the base is 0 where the exponent is 0; that with respect to
    the exponent is 0 where the base is 0 and the exponent not negative.

    Raises:
        RuntimeError: integers to a negative integer number.
        NotImplementedError: `bool` operands only, the exponent a tensor.

    Example:
        >>> torch.pow(torch.tensor([1.0, 2.0, 3.0]), 2)
        tensor([1., 4., 9.])
    """
    return power(self, exponent)


@pow.overload(runtime="self", inplace=False)
def _scalar_power(self: Scalar, exponent: Tensor) -> Tensor:
    return power(as_node(self, exponent.dtype), exponent)


@op(kind="pointwise", where="method", inplace=False, runtime="other")
def _rpow(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """`other ** self`."""
    return power(as_node(other, self.dtype), self)


@op(
    layout="follow",
    inplace=True,
    out="exact",
    unsaved="self exponent",
    samples=lambda: [sample(T(3, 4, low=0.2), T(4)), sample(T(3, low=0.2), 2)],
    reference="numpy.float_power",
)
def float_power(self: Tensor, exponent: Tensor | Scalar) -> Tensor:
    """`self ** exponent`, computed in float64 (complex128 for complex operands).

    Example:
        >>> torch.float_power(torch.tensor([1, 2]), 2)
        tensor([1., 4.], dtype=torch.float64)
    """
    return power(*_doubles(self, exponent))


@float_power.overload(unsaved="exponent", inplace=False)
def _scalar_float_power(self: Scalar, exponent: Tensor) -> Tensor:
    base, exponent = _doubles(self, exponent)
    return power(as_node(base, exponent.dtype), exponent)


def _doubles(*values: Value) -> tuple[Any, ...]:
    wide = any(is_complex(v) if isinstance(v, Node) else isinstance(v, complex) for v in values)
    dtype = "c128" if wide else "f64"
    return tuple(prims.cast(v, dtype) if isinstance(v, Node) else v for v in values)


def _floats(name: str, *values: Value) -> tuple[Node, ...]:
    """Operands of a function that is defined for floats only."""
    nodes = together(name, *values)
    if not is_float(nodes[0]):
        raise unsupported(name, nodes[0], "convert to a floating-point type first")
    return nodes


@op(
    kind="elementary",
    aliases="arctan2",
    samples=binary_samples(scalar=None),
    reference="numpy.arctan2",
)
def atan2(self: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, self) to the first axis, in [-pi, pi].

    Example:
        >>> torch.atan2(torch.tensor([0.0]), torch.tensor([1.0]))
        tensor([0.])
    """
    return prims.atan2(*_floats("atan2", self, other))


@op(kind="elementary", runtime="other", samples=binary_samples(), reference="numpy.copysign")
def copysign(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """The magnitude of `self` with the sign of `other`; signs of zeros count.

    Example:
        >>> torch.copysign(torch.tensor([1.0, 2.0]), -1)
        tensor([-1., -2.])
    """
    return prims.copysign(*_floats("copysign", self, other))


@op(
    kind="pointwise",
    promote="none",
    samples=binary_samples(scalar=None),
    reference="numpy.nextafter",
    dtypes="f16 bf16 f32 f64",
)
def nextafter(self: Tensor, other: Tensor) -> Tensor:
    """The next number after `self` in the direction of `other`.

    Raises:
        NotImplementedError: not a floating-point dtype.

    Example:
        >>> torch.nextafter(torch.tensor([1.0]), torch.tensor([2.0])) > 1
        tensor([True])
    """
    dtype = result_type(map(participant, (self, other)))
    start, goal = together("nextafter", *(prims.cast(x, dtype) for x in (self, other)))
    if not is_float(start):
        raise unsupported("nextafter", start, "convert to a floating-point type first")
    return _next_half(start, goal) if dtype in HALF else prims.nextafter(start, goal)


def _next_half(start: Node, goal: Node) -> Node:
    """The codes of half types, sign aside, are ordered as their values: one more or one less."""
    code, least = prims.bitcast(start, "i16"), prims.full_like(1, prims.bitcast(start, "i16"))
    x, y = prims.cast(start, "f32"), prims.cast(goal, "f32")
    zero = prims.zeros_like(x)
    outwards = prims.eq(prims.lt(zero, x), prims.lt(x, y))
    moved = prims.where(outwards, code + least, code - least)
    signed = prims.where(prims.lt(y, zero), least | prims.full_like(-(2**15), code), least)
    moved = prims.where(prims.eq(x, zero), signed, moved)
    moved = prims.where(prims.eq(x, y), prims.bitcast(goal, "i16"), moved)
    value = prims.bitcast(moved, start.dtype)
    broken = prims.isnan(x) | prims.isnan(y)
    return prims.where(broken, prims.cast(x + y, start.dtype), value)


@op(kind="pointwise", samples=binary_samples(scalar=None), reference="numpy.hypot")
def hypot(self: Tensor, other: Tensor) -> Tensor:
    """sqrt(self ** 2 + other ** 2) without overflow on the way.

    Raises:
        NotImplementedError: integer or complex tensors.

    Example:
        >>> torch.hypot(torch.tensor([3.0]), torch.tensor([4.0]))
        tensor([5.])
    """
    a, b = _floats("hypot", self, other)
    x, y = prims.abs(a), prims.abs(b)
    large, small = prims.maximum(x, y), prims.minimum(x, y)
    plain = prims.eq(large, prims.zeros_like(x)) | prims.isinf(large)
    ratio = small / prims.where(plain, prims.full_like(1, x), large)
    value = large * prims.sqrt(1 + ratio * ratio)
    infinite = prims.isinf(x) | prims.isinf(y)
    value = prims.where(plain, large, value)
    value = prims.where(infinite, prims.full_like(float("inf"), x), value)
    return prims.with_derivative(value, a, b, rule="hypot")


prims.register_rule("hypot", lambda g, y, a, b: (g * (a / y), g * (b / y)))


def _logaddexp(name: str, base2: bool) -> Any:
    exp = prims.exp2 if base2 else prims.exp
    rule = name

    def tail(x: Node) -> Node:
        return prims.log1p(x) if not base2 else prims.log1p(x) * LOG2_E

    def body(self: Node, other: Node) -> Node:
        if is_complex(self) and not base2:
            return _logaddexp_complex(*together(name, self, other))
        a, b = _floats(name, self, other)
        equal_infinities = prims.eq(a, b) & prims.isinf(a)
        distance = prims.where(equal_infinities, prims.zeros_like(a), prims.abs(a - b))
        value = prims.maximum(a, b) + tail(exp(-distance))
        value = prims.where(equal_infinities, a, value)
        return prims.with_derivative(value, a, b, rule=rule)

    def derivative(g: Node, y: Node, a: Node, b: Node) -> tuple[Node, Node]:
        return g / (1 + exp(b - a)), g / (1 + exp(a - b))

    prims.register_rule(rule, derivative)
    number = "2" if base2 else "e"
    body.__doc__ = f"""The logarithm of the sum of two powers of {number}, without overflow.

    Operands broadcast. Raises NotImplementedError for integer tensors.

    Example:
        >>> torch.{name}(torch.tensor([0.0]), torch.tensor([0.0])).shape
        torch.Size([1])
    """
    return op(
        f"{name}(Tensor self, Tensor other) -> Tensor",
        kind="pointwise",
        inplace=False,
        samples=binary_samples(scalar=None),
        reference="numpy." + name,
    )(body)


def _logaddexp_complex(a: Node, b: Node) -> Node:
    """log(1 + exp(less - more)) + more: the branch of the logarithm is that of `more`."""
    below = prims.lt(prims.real(a), prims.real(b))
    less, greater = prims.where(below, a, b), prims.where(below, b, a)
    same = prims.eq(prims.real(a), prims.real(b)) & prims.isinf(prims.real(a))
    distance = prims.where(same, prims.zeros_like(a), less - greater)
    return prims.where(same, greater, prims.log(1.0 + prims.exp(distance)) + greater)


LOG2_E = 1.4426950408889634
logaddexp = _logaddexp("logaddexp", False)
logaddexp2 = _logaddexp("logaddexp2", True)


def _times_log(name: str, where: str, function: Callable[[Node], Node], shift: int) -> Any:
    """Defines x * log(y + shift) that is 0 at x = 0 whatever y, except NaN."""

    def body(self: Node, other: Value) -> Node:
        x, y = _floats(name, self, other)
        zero = prims.eq(x, prims.zeros_like(x)) & ~prims.isnan(y)
        safe = prims.where(zero, prims.full_like(1, y), y)
        value = prims.where(zero, prims.zeros_like(x), x * function(safe))
        return prims.with_derivative(value, x, y, rule=name)

    def derivative(g: Node, out: Node, x: Node, y: Node) -> tuple[Node, Node]:
        skipped = prims.eq(x, prims.zeros_like(x)) & (y <= -shift)
        argument = y + shift if shift else y  # -0.0 + 0 would lose its sign
        return prims.where(skipped, prims.zeros_like(g), g * function(y)), g * x / argument

    prims.register_rule(name, derivative)
    argument = "y" if shift == 0 else "1 + y"
    body.__doc__ = f"""x * log({argument}): 0 where x is 0, NaN where y is NaN.

    Either operand may be a number; operands broadcast.

    Example:
        >>> torch.special.{name}(torch.tensor([0.0]), torch.tensor([0.0]))
        tensor([0.])
    """
    definition = op(
        f"{name}(Tensor self, Tensor|Scalar other) -> Tensor",
        kind="elementary",
        where=where,
        inplace="method" in where,
        runtime="other",
        samples=binary_samples(low=0.1),
        reference="scipy.special." + name,
    )(body)

    def swapped(self: Value, other: Node) -> Node:
        return body(as_node(self, other.dtype), other)

    scalar = f"{name}.Scalar(Scalar self, Tensor other) -> Tensor"
    definition.overload(scalar, runtime="self", inplace=False)(swapped)
    return definition


xlogy = _times_log("xlogy", "torch method special", prims.log, 0)
xlog1py = _times_log("xlog1py", "special", prims.log1p, 1)


@op(kind="pointwise", out="exact", samples=binary_samples(scalar=None), reference="numpy.heaviside")
def heaviside(self: Tensor, values: Tensor) -> Tensor:
    """0 below zero, `values` at zero, 1 above.

    Raises:
        RuntimeError: the dtypes differ.

    Example:
        >>> torch.heaviside(torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([0.5]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    check_one_dtype("heaviside", self=self, values=values)
    x, at_zero = together("heaviside", self, values)
    if is_complex(x):
        raise unsupported("heaviside", x, "complex numbers have no order")
    zero = prims.zeros_like(x)
    steps = prims.cast(prims.lt(zero, x), x.dtype)
    return prims.stop_gradient(prims.where(prims.eq(x, zero), at_zero, steps))


@op(
    kind="pointwise",
    promote="none",
    overlap="partial self",
    samples=lambda: [sample(T(3, 4), T(4, dtype="i32", low=-3, high=4))],
    reference="numpy.ldexp",
)
def ldexp(self: Tensor, other: Tensor) -> Tensor:
    """`self * 2 ** other`; rounded once where `other` are integers.

    Example:
        >>> torch.ldexp(torch.tensor([1.0]), torch.tensor([3]))
        tensor([8.])
    """
    from flambeau.ops.pointwise.binary import mul

    if is_float(self) and CATEGORY[other.dtype] == 1:
        shape = broadcast_sizes("ldexp", self.shape, other.shape)
        number = prims.broadcast_to(prims.cast(self, "f64"), shape)
        exponent = prims.broadcast_to(prims.cast(other, "i64"), shape)
        return prims.cast(_times_power_of_two(number, exponent), self.dtype)
    result: Node = mul(self, pow(2.0, other))
    return result


def _times_power_of_two(x: Node, exponent: Node) -> Node:
    """x * 2^exponent of float64, in three steps of which only the last one rounds."""
    first, remaining = _within_exponents(exponent)
    second, remaining = _within_exponents(remaining)
    for power in (_within_exponents(remaining)[0], second, first):
        x = x * _power_of_two(power)
    return x


def _within_exponents(exponent: Node) -> tuple[Node, Node]:
    """Splits an exponent into the part that a float64 can hold, and the remainder."""
    low, high = prims.full_like(-1022, exponent), prims.full_like(1023, exponent)
    held = prims.minimum(prims.maximum(exponent, low), high)
    return held, exponent - held


def _power_of_two(exponent: Node) -> Node:
    """2 to the power of an int64 in [-1022, 1023], by its bits."""
    return prims.bitcast(prims.shift_left(exponent + 1023, prims.full_like(52, exponent)), "f64")


def _halves_of(exponent: Node) -> tuple[Node, Node]:
    """2^-exponent as two factors, none of which overflows."""
    half = prims.shift_right(exponent, prims.full_like(1, exponent))
    return _power_of_two(-half), _power_of_two(half - exponent)


@op(
    layout="follow",
    out="exact",
    results="mantissa exponent",
    unsaved="self",
    samples=lambda: [
        sample(T(3, 4)),
        sample(T(4, 6, layout="transposed")),
        sample(T(5, dtype="f32", values=[0.0, -3.0, 8.0, 1e-45, math.inf])),
        sample(T(2, dtype="f64", values=[5e-324, 1.7e308])),
    ],
    errors=lambda: [ErrorSample(sample(T(3, dtype="i64")), RuntimeError, "floating-point dtypes")],
    reference="numpy.frexp",
    zero_preserving=True,
)
def frexp(self: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissas in [0.5, 1) and int32 exponents with x = mantissa * 2^exponent.

    Zero, infinity and NaN are their own mantissas, with exponent 0.

    Raises:
        RuntimeError: not a floating-point tensor.

    Example:
        >>> torch.frexp(torch.tensor([8.0])).exponent
        tensor([4], dtype=torch.int32)
    """
    if not is_float(self):
        problem = "torch.frexp() only supports floating-point dtypes"
        raise failure(RuntimeError, "frexp", problem, "convert to float32")
    x = prims.cast(self, "f64")
    small = prims.abs(x) < 2.0**-1022  # only float64 has such numbers; they have fewer bits
    number = prims.where(small, x * 2.0**54, x)
    bits = prims.shift_right(prims.bitcast(number, "i64"), prims.full(52, x.shape, "i64"))
    exponent = prims.bitwise_and(bits, prims.full_like(0x7FF, bits)) - 1022
    first, second = _halves_of(exponent)
    zero = prims.eq(x, prims.zeros_like(x))
    special = zero | ~prims.lt(prims.abs(x), prims.full_like(math.inf, x))
    mantissa = prims.where(special, x, number * first * second)
    exponent = prims.where(small, exponent - 54, exponent)
    exponent = prims.where(special, prims.zeros_like(exponent), exponent)
    return prims.cast(mantissa, self.dtype), prims.cast(exponent, "i32")


def _integer_pairs() -> Iterator[Sample]:
    for shape in ((), (7,), (3, 4), (0, 3)):
        left = T(*shape, dtype="i32", low=-60, high=60)
        yield sample(left, T(*shape, dtype="i32", low=1, high=60))


def _gcd(a: Node, b: Node) -> Node:
    """Euclid's algorithm, as many steps as the width of the dtype can need (Lamé)."""
    steps = {"u8": 12, "i8": 11, "i16": 23, "i32": 46, "i64": 92}[a.dtype]
    a, b = (x if x.dtype == "u8" else prims.abs(x) for x in (a, b))
    zero, one = prims.zeros_like(a), prims.full_like(1, a)
    for _ in range(steps):
        done = prims.eq(b, zero)
        remainder = prims.remainder(a, prims.where(done, one, b))
        a, b = prims.where(done, a, b), prims.where(done, zero, remainder)
    return a if a.dtype == "u8" else prims.abs(a)  # the least integer has no magnitude


def _whole(name: str, *values: Node) -> tuple[Node, ...]:
    nodes = together(name, *values)
    if CATEGORY[nodes[0].dtype] != 1 or nodes[0].dtype in UNSIGNED:
        raise unsupported(name, nodes[0], "convert to int64 first")
    return nodes


@op(kind="pointwise", samples=_integer_pairs, dtypes="u8 i8 i16 i32 i64", reference="numpy.gcd")
def gcd(self: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisor of integers; never negative.

    Raises:
        NotImplementedError: not integers.

    Example:
        >>> torch.gcd(torch.tensor([12]), torch.tensor([18]))
        tensor([6])
    """
    return _gcd(*_whole("gcd", self, other))


@op(kind="pointwise", samples=_integer_pairs, dtypes="u8 i8 i16 i32 i64", reference="numpy.lcm")
def lcm(self: Tensor, other: Tensor) -> Tensor:
    """The least common multiple of integers; 0 where one is 0.

    Raises:
        NotImplementedError: not integers.

    Example:
        >>> torch.lcm(torch.tensor([4]), torch.tensor([6]))
        tensor([12])
    """
    a, b = _whole("lcm", self, other)
    divisor = _gcd(a, b)
    zero = prims.eq(divisor, prims.zeros_like(a))
    safe = prims.where(zero, prims.full_like(1, a), divisor)
    result = prims.floor_div(a, safe) * b
    return result if a.dtype == "u8" else prims.abs(result)
