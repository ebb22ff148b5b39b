"""Operators that draw with parameters of their own: `binomial`, `poisson`, `rrelu`.

The streams are PyTorch's, see docs/random.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.core import install, tensors
from flambeau.core.devices import has_data
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.dtypes import object_of
from flambeau.language.samples import ErrorSample, Sample, T, sample, unary_samples
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.broadcasting import is_float, unsupported
from flambeau.ops.random.random import FLOAT_NAMES, GENERATOR, check_floating

# ------------------------------------------------------------------------------ binomial


def _binomial_samples() -> Iterator[Sample]:
    counts = {"low": 0.0, "high": 60.0, "grad": False}
    yield sample(T(3, 8, **counts), T(3, 8, low=-0.1, high=1.1, grad=False))
    yield sample(T(4, 1, **counts), T(5, low=0.0, high=1.0, grad=False))


def _binomial_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(2), T(2, dtype="f64")), RuntimeError, "expected")
    yield ErrorSample(sample(T(2, dtype="i64"), T(2)), ValueError, "floating-point")
    half = sample(T(2, dtype="f16"), T(2, dtype="f16"))
    yield ErrorSample(half, NotImplementedError, "not implemented for")


def _check_binomial(count: Node, prob: Node) -> None:
    for name, dtype in (("count", count.dtype), ("prob", prob.dtype)):
        if dtype not in ("f16", "bf16", "f32", "f64"):
            problem = f"binomial only supports floating-point dtypes for {name}, got: {dtype}"
            raise failure(ValueError, "binomial", problem, "convert it with .float()")
    if count.dtype != prob.dtype:
        problem = f"prob is {prob.dtype}, expected {count.dtype}"
        raise failure(RuntimeError, "binomial", problem, "one dtype for both")
    if count.dtype in ("f16", "bf16"):
        problem = f"not implemented for {count.dtype}"
        raise failure(NotImplementedError, "binomial", problem, "convert with .float()")


@op(
    f"binomial(Tensor count, Tensor prob, {GENERATOR}) -> Tensor",
    where="torch",
    samples=_binomial_samples,
    errors=_binomial_errors,
    dtypes="f32 f64",
)
def binomial(count: Node, prob: Node, generator: Any) -> Node:
    """Numbers of successes among `count` trials that succeed with probability `prob`.

    Sources: Devroye, Non-Uniform Random Variate Generation, 1986 (X.4.3), where fewer than ten
    successes are expected; else Hörmann, The generation of binomial random variates, 1993 (BTRS).

    Shape: broadcast; float32 and float64. A NaN gives NaN; gradients are zero.

    Raises:
        RuntimeError: two dtypes, or an infinite count.
        ValueError: a dtype that is not floating.
        NotImplementedError: a half type.

    Example:
        >>> torch.binomial(torch.tensor([3.0, 7.0]), torch.tensor([1.0, 0.0]))
        tensor([3., 0.])
    """
    _check_binomial(count, prob)
    shape = prims.broadcast_shapes(count.shape, prob.shape)
    wide = [prims.cast(prims.broadcast_to(x, shape), "f64") for x in (count, prob)]
    draw = prims.random("binomial", shape, count.dtype, *wide, generator=int(generator))
    return prims.with_derivative(draw, count, prob, rule="draw")


# ------------------------------------------------------------------------------ each its own


def _define_each(name: str, distribution: str, text: str, parameter: str) -> None:
    def body(self: Node, generator: Any) -> Node:
        check_floating(self.dtype, name)
        values = prims.cast(self, "f64")
        slot = int(generator)
        draw = prims.random(distribution, self.shape, self.dtype, values, generator=slot)
        rule = "gamma draw" if distribution == "standard_gamma" else "draw"
        return prims.with_derivative(draw, self, rule=rule)

    body.__doc__ = f"""Numbers of the {text} distribution; the tensor holds each one's {parameter}.

    Raises:
        NotImplementedError: an integer dtype.
        RuntimeError: a negative {parameter}.

    Example:
        >>> torch.{name}(torch.ones(3)).shape
        torch.Size([3])
    """
    op(
        f"{name}(Tensor self, {GENERATOR}) -> Tensor",
        where="torch",
        dtypes="f32 f64" if distribution == "standard_gamma" else FLOAT_NAMES,
        samples=lambda: [sample(T(3, 8, low=0.5, high=20.0, grad=False))],
    )(body)


_define_each("poisson", "poisson", "Poisson", "rate")
_define_each("_standard_gamma", "standard_gamma", "standard gamma", "shape")


# ------------------------------------------------------------------------------ rrelu

_RRELU = (
    "Tensor{} self, float lower=0.125, float upper=0.3333333333333333, bool training=False, "
    "generator? generator=None) -> Tensor"
)


def _rrelu_samples() -> Iterator[Sample]:
    yield from unary_samples(-3, 3)()
    yield sample(T(3, 4), 0.1, 0.3, True)
    yield sample(T(4, 6, layout="transposed"), 0.25, 0.25, True)


def _rrelu_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3), 0.5, 0.25), RuntimeError, "less than or equal")
    yield ErrorSample(sample(T(3), 0.5, math.inf, True), RuntimeError, "finite")
    yield ErrorSample(sample(T(3), -math.inf, 0.5, True), RuntimeError, "finite")


def _check_bounds(name: str, lower: float, upper: float) -> None:
    if lower > upper:
        problem = f"Lower bound should be less than or equal to the upper bound: {lower} and "
        problem += f"{upper}"
        raise failure(RuntimeError, name, problem, "the slope is drawn from [lower, upper]")
    for side, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise RuntimeError(f"[{name}] {side} bound must be finite, got {bound}\nhint: a slope")


def slopes(input: Any, lower: float, upper: float, generator: Any) -> Any:
    """A slope per element; a number is drawn, in float64, for each that is not positive."""
    negative = input.detach() <= 0
    slopes = input.detach().new_ones(()).expand(input.shape).clone()
    if not has_data(input):  # as many as there are numbers to look at
        return slopes
    drawn = tensors.empty((int(negative.sum()),), object_of("f64"), input.device)
    low, high = (float(slopes.new_full((), bound)) for bound in (lower, upper))
    drawn = drawn.uniform_(generator=generator) * (high - low) + low  # not fused: the stream
    slopes[negative] = drawn.to(slopes.dtype)
    return slopes


def _sloped_samples() -> Iterator[Sample]:
    yield sample(T(3, 4), None, 0.25)
    yield sample(T(3, 4), T(3, 4, grad=False), 0.25)


@op(
    where="torch",
    promote="default",
    layout="follow",
    inplace=True,
    participants="self",
    runtime="slope",
    samples=_sloped_samples,
)
def _sloped(self: Tensor, noise: Tensor | None, slope: Scalar) -> Tensor:
    """Computes `rrelu` from drawn slopes (`noise`), or from one slope."""
    if not is_float(self):
        raise unsupported("rrelu", self, "convert to a floating-point type first")
    if noise is not None:
        return self * noise
    return prims.where(self > 0, self, self * prims.constant(slope, self))


@op(
    "rrelu(" + _RRELU.format(""),
    where="torch",
    host=True,
    samples=_rrelu_samples,
    errors=_rrelu_errors,
)
def rrelu(
    input: Any,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """x for x > 0, else slope * x; the slope is random in [lower, upper] when training.

    Source: Xu et al., Empirical Evaluation of Rectified Activations, 2015.

    Shape: any -> the same, row by row in memory; floating dtypes.

    Raises:
        RuntimeError: bounds in the wrong order, or infinite.

    Example:
        >>> torch.rrelu(torch.tensor([-2.0, 3.0]), 0.25, 0.75)
        tensor([-1.,  3.])
    """
    _check_bounds("rrelu", lower, upper)
    if not training:
        return _sloped.native(input, None, (lower + upper) / 2).contiguous()
    return _sloped.native(input.contiguous(), slopes(input, lower, upper, generator), 0.0)


@op(
    "rrelu_(" + _RRELU.format("!"),
    where="torch",
    host=True,
    samples=lambda: [sample(T(3, 4)), sample(T(3, 4), 0.1, 0.3, True)],
    errors=_rrelu_errors,
)
def rrelu_(
    input: Any,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """`rrelu` in place.

    Raises:
        RuntimeError: bounds in the wrong order, or infinite.

    Example:
        >>> torch.rrelu_(torch.tensor([-2.0, 3.0]), 0.25, 0.75)
        tensor([-1.,  3.])
    """
    _check_bounds("rrelu_", lower, upper)
    noise = slopes(input, lower, upper, generator) if training else None
    return install.INPLACE["_sloped_"](input, noise, (lower + upper) / 2)
