"""Activations: pointwise ones, softmax and its relatives (a row each).

Formulas: Hendrycks & Gimpel 2016 (GELU), Ramachandran et al. 2017 (SiLU), Klambauer et al. 2017
(SELU), Misra 2019 (Mish), Howard et al. 2019 (hard variants).
"""

from __future__ import annotations

import math
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import floordiv
from flambeau.language.definition import OpDefinition, op
from flambeau.language.layout import same
from flambeau.language.samples import ErrorSample, Samples, T, sample, unary_samples
from flambeau.language.schema import DType, Scalar, Tensor
from flambeau.ops.broadcasting import is_float, unsupported
from flambeau.ops.common import dtype_or, normalise_dim, number_shown

_HOMES = "nn.functional"
SQRT_HALF = math.sqrt(0.5)


def _check_float(name: str, x: Node) -> None:
    if not is_float(x):
        raise unsupported(name, x, "convert to a floating-point type first")


@op(
    kind="pointwise",
    where="torch method nn.functional",
    out=False,
    samples=unary_samples(),
    reference=lambda x: x * (x > 0),
    zero_preserving=True,
)
def relu(self: Tensor) -> Tensor:
    """max(x, 0); the gradient at 0 is 0.

    Source: Nair and Hinton, Rectified Linear Units, 2010.

    Shape: any.

    Example:
        >>> torch.relu(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    value = prims.maximum(self, prims.full_like(0, self))
    return prims.with_derivative(value, self, rule="relu")


prims.register_rule(
    "relu",
    lambda grad, out, x: (prims.where(out <= 0, prims.full_like(0, grad), grad),),
)


@op(
    kind="pointwise", where=_HOMES, inplace=True, samples=unary_samples(-8, 8), zero_preserving=True
)
def relu6(input: Tensor) -> Tensor:
    """min(max(x, 0), 6).

    Source: Krizhevsky, Convolutional Deep Belief Networks on CIFAR-10, 2010.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.relu6(torch.tensor([-2.0, 0.0, 3.0]) * 3)
        tensor([0., 0., 6.])
    """
    inside = ~((input <= 0) | (input >= 6))  # NaN is
    value = prims.minimum(
        prims.maximum(input, prims.full_like(0, input)), prims.full_like(6, input)
    )
    return prims.with_derivative(value, input, prims.stop_gradient(inside), rule="gate")


prims.register_rule(
    "gate",
    lambda grad, out, x, inside: (prims.where(inside, grad, prims.full_like(0, grad)), None),
)


@op(
    kind="elementary",
    where="torch method nn.functional special",
    aliases="expit",
    samples=unary_samples(-6, 6),
    reference="scipy.special.expit",
)
def sigmoid(self: Tensor) -> Tensor:
    """1 / (1 + exp(-x)).

    Shape: any; integers become the default float dtype.

    Example:
        >>> torch.sigmoid(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([0.2689, 0.5000, 0.7311])
    """
    return prims.sigmoid(self)


@op(
    kind="pointwise",
    where=_HOMES,
    out="exact",
    samples=unary_samples(-4, 4),
    reference=lambda x: 0.5 * x * (1 + __import__("scipy.special").special.erf(x * SQRT_HALF)),
    zero_preserving=True,
)
def gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """x Phi(x), Phi the normal distribution function; or its tanh approximation.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.

    Shape: any -> the same; floating dtypes.

    Args:
        approximate: "none" or "tanh".

    Raises:
        RuntimeError: another value of `approximate`.

    Example:
        >>> F.gelu(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1587,  0.0000,  0.8413])
    """
    if approximate == "none":
        return self * 0.5 * (prims.erf(self * SQRT_HALF) + 1.0)
    if approximate != "tanh":
        problem = f"approximate argument must be either none or tanh, got {approximate!r}"
        raise failure(RuntimeError, "gelu", problem, "use approximate='tanh'")
    inner = (self + self * self * self * 0.044715) * math.sqrt(2 / math.pi)
    return self * 0.5 * (prims.tanh(inner) + 1.0)


@op(
    kind="pointwise", where=_HOMES, inplace=True, samples=unary_samples(-6, 6), zero_preserving=True
)
def silu(self: Tensor) -> Tensor:
    """x * sigmoid(x).

    Source: Elfwing et al., Sigmoid-Weighted Linear Units, 2018.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.silu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.2384,  0.0000,  2.8577])
    """
    return self * prims.sigmoid(self)


@op(
    kind="pointwise", where=_HOMES, inplace=True, samples=unary_samples(-6, 6), zero_preserving=True
)
def mish(self: Tensor) -> Tensor:
    """x * tanh(softplus(x)).

    Source: Misra, Mish, 2019.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.mish(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.2525,  0.0000,  2.9865])
    """
    return self * prims.tanh(_softplus(self))


def _softplus(x: Node) -> Node:
    """log(1 + exp(x)) without overflow."""
    return prims.maximum(x, prims.full_like(0, x)) + prims.log1p(prims.exp(-prims.abs(x)))


@op(
    kind="pointwise",
    where=_HOMES,
    out="exact",
    participants="self",
    runtime="beta threshold",
    samples=unary_samples(-6, 6),
)
def softplus(self: Tensor, beta: Scalar = 1, threshold: Scalar = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.softplus(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0.1269, 0.6931, 3.0486])
    """
    b, limit = prims.constant(beta, self), prims.constant(threshold, self)
    scaled = self * b
    linear = scaled > limit
    bent = prims.where(linear, prims.zeros_like(scaled), scaled)  # no infinity times 0 in gradients
    return prims.where(linear, self, prims.log1p(prims.exp(bent)) / b)


@op(
    kind="pointwise",
    where=_HOMES,
    inplace=True,
    participants="self",
    runtime="alpha scale input_scale",
    samples=unary_samples(-3, 3),
    zero_preserving=True,
)
def elu(self: Tensor, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> Tensor:
    """scale * x for x > 0, else scale * alpha * (exp(input_scale * x) - 1).

    Source: Clevert et al., Exponential Linear Units, 2016.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.elu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.8647,  0.0000,  3.0000])
    """
    a, s, k = (prims.constant(v, self) for v in (alpha, scale, input_scale))
    return prims.where(self <= 0, prims.expm1(_negative(self) * k) * a * s, self * s)


def _negative(x: Node) -> Node:
    """x where it is not above 0, else 0; unlike a minimum, its derivative at 0 is 1."""
    return prims.where(x <= 0, x, prims.full_like(0, x))


@op(
    where="torch nn.functional",
    promote="default",
    layout="follow",
    inplace=True,
    samples=unary_samples(-3, 3),
    zero_preserving=True,
)
def selu(self: Tensor) -> Tensor:
    """Self-normalising ELU with its two fixed constants.

    Source: Klambauer et al., Self-Normalizing Neural Networks, 2017.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.selu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-1.5202,  0.0000,  3.1521])
    """
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    below = prims.expm1(_negative(self)) * (alpha * scale)
    return prims.where(self <= 0, below, self * scale)


@op(
    where="torch nn.functional",
    promote="default",
    layout="follow",
    inplace=True,
    participants="self",
    samples=unary_samples(-3, 3),
    zero_preserving=True,
)
def celu(self: Tensor, alpha: Scalar = 1.0) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    Source: Barron, Continuously Differentiable Exponential Linear Units, 2017.

    Shape: any -> the same; floating dtypes.

    Raises:
        RuntimeError: alpha is 0.

    Example:
        >>> F.celu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.8647,  0.0000,  3.0000])
    """
    if alpha == 0:
        problem = "ZeroDivisionError: alpha cannot be 0 for CELU"
        raise failure(RuntimeError, "celu", problem, "alpha=1.0, or relu(x)")
    a = prims.constant(alpha, self)
    return prims.where(self <= 0, prims.expm1(_negative(self) / a) * a, self)


@op(
    kind="pointwise",
    where=_HOMES,
    inplace=True,
    participants="self",
    runtime="negative_slope",
    samples=unary_samples(-3, 3),
    zero_preserving=True,
)
def leaky_relu(self: Tensor, negative_slope: Scalar = 0.01) -> Tensor:
    """x for x > 0, else negative_slope * x.

    Source: Maas et al., Rectifier Nonlinearities, 2013.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.leaky_relu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.0200,  0.0000,  3.0000])
    """
    _check_float("leaky_relu", self)
    return prims.where(self > 0, self, self * prims.constant(negative_slope, self))


@op(
    where="torch method nn.functional",
    layout="first",
    samples=lambda: [sample(T(2, 3, 4), T(3)), sample(T(5), T(1))],
    autocast="lower",
)
def prelu(self: Tensor, weight: Tensor) -> Tensor:
    """x for x > 0, else weight * x; one weight, or one per channel (dimension 1).

    Source: He et al., Delving Deep into Rectifiers, 2015.

    Shape: `(N, C, *)`, weight `(1)` or `(C)` -> the same.

    Raises:
        RuntimeError: the number of weights fits neither.

    Example:
        >>> F.prelu(torch.tensor([-2.0, 0.0, 3.0]), torch.tensor([0.25]))
        tensor([-0.5000,  0.0000,  3.0000])
    """
    _check_float("prelu", self)
    if weight.ndim > 1:
        raise failure(RuntimeError, "prelu", "weight must have at most 1 dimension", "flatten it")
    channels = self.ndim >= 2 and weight.ndim == 1
    shape = tuple(weight.shape[0] if d == 1 and channels else 1 for d in range(self.ndim))
    factor = prims.broadcast_to(prims.reshape(weight, shape), self.shape)
    return prims.where(self > 0, self, self * factor)


@op(
    kind="pointwise",
    where=_HOMES,
    inplace=True,
    fits="min_val max_val",
    participants="self",
    runtime="min_val max_val",
    samples=unary_samples(-3, 3),
)
def hardtanh(self: Tensor, min_val: Scalar = -1, max_val: Scalar = 1) -> Tensor:
    """x limited to [min_val, max_val]; no gradient outside and on the border.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.hardtanh(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-1.,  0.,  1.])
    """
    low, high = prims.constant(min_val, self), prims.constant(max_val, self)
    inside = (self > low) & (self < high)
    value = prims.minimum(prims.maximum(self, low), high)
    return prims.with_derivative(value, self, prims.stop_gradient(inside), rule="gate")


@op(kind="pointwise", where=_HOMES, inplace=True, samples=unary_samples(-5, 5))
def hardsigmoid(self: Tensor) -> Tensor:
    """relu6(x + 3) / 6.

    Source: Courbariaux et al., BinaryConnect, 2015.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.hardsigmoid(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0.1667, 0.5000, 1.0000])
    """
    value = prims.stop_gradient(relu6(self + 3.0) / 6.0)
    inside = prims.stop_gradient((self > -3) & (self < 3))
    return prims.with_derivative(value, self, inside, rule="hardsigmoid")


def _hardsigmoid_rule(grad: Node, out: Node, x: Node, inside: Node) -> tuple[Node, None]:
    """A sixth is float32's in every dtype, as in PyTorch."""
    return prims.where(inside, grad * 0.1666666716337204, prims.full_like(0, grad)), None


prims.register_rule("hardsigmoid", _hardsigmoid_rule)


@op(
    kind="pointwise", where=_HOMES, inplace=True, samples=unary_samples(-5, 5), zero_preserving=True
)
def hardswish(self: Tensor) -> Tensor:
    """x * relu6(x + 3) / 6.

    Source: Howard et al., Searching for MobileNetV3, 2019.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.hardswish(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.3333,  0.0000,  3.0000])
    """
    return self * relu6(self + 3.0) / 6.0


@op(
    where=_HOMES,
    promote="float",
    layout="follow",
    saves_result=False,
    samples=unary_samples(-3, 3),
    zero_preserving=True,
)
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|).

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.softsign(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-0.6667,  0.0000,  0.7500])
    """
    return input / prims.cast(prims.abs(input) + 1.0, input.dtype)


@op(
    where=_HOMES,
    promote="float",
    layout="follow",
    unsaved="input",
    samples=unary_samples(-3, 3),
    zero_preserving=True,
)
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x).

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.tanhshrink(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-1.0360,  0.0000,  2.0049])
    """
    return input - prims.tanh(input)


def _within(x: Node, limit: Node) -> Node:
    """Whether x lies in [-limit, limit]; NaN does not."""
    return (x >= -limit) & (x <= limit)


@op(
    kind="pointwise",
    where=_HOMES,
    out="exact",
    participants="self",
    samples=unary_samples(-3, 3),
    errors=lambda: [ErrorSample(sample(T(3), -0.5), RuntimeError, "lambda must be")],
    zero_preserving=True,
)
def softshrink(self: Tensor, lambd: Scalar = 0.5) -> Tensor:
    """x - lambd above lambd, x + lambd below -lambd, else 0; NaN stays NaN.

    Shape: any -> the same; floating dtypes.

    Raises:
        RuntimeError: lambd is negative.

    Example:
        >>> F.softshrink(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-1.5000,  0.0000,  2.5000])
    """
    if lambd < 0:
        problem = f"lambda must be in range [0, inf], but found {lambd}"
        raise failure(RuntimeError, "softshrink", problem, "lambd=0.5")
    _check_float("softshrink", self)
    limit = prims.full_like(lambd, self)
    outside = prims.where(self > limit, self - limit, self + limit)
    return prims.where(_within(self, limit), self * 0, outside)


@op(
    where="torch method nn.functional",
    promote="default",
    layout="follow",
    out="exact",
    participants="self",
    runtime="lambd",
    samples=unary_samples(-3, 3),
    zero_preserving=True,
)
def hardshrink(self: Tensor, lambd: Scalar = 0.5) -> Tensor:
    """x where |x| > lambd, else 0; NaN stays NaN.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.hardshrink(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-2.,  0.,  3.])
    """
    _check_float("hardshrink", self)
    inside = _within(self, prims.constant(lambd, self))
    return prims.where(inside, prims.full_like(0, self), self)


@op(
    kind="pointwise",
    where="torch nn.functional",
    inplace=True,
    repeats=True,
    overlap="copy",
    fits="threshold value",
    participants="self",
    runtime="threshold value",
    samples=lambda: [sample(T(3, 4), 0.1, 20.0)],
)
def threshold(self: Tensor, threshold: Scalar, value: Scalar) -> Tensor:
    """x where x > threshold, else value; NaN stays NaN.

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.threshold(torch.tensor([-2.0, 0.0, 3.0]), 1.0, 9.0)
        tensor([9., 9., 3.])
    """
    limit, other = prims.constant(threshold, self), prims.constant(value, self)
    return prims.where(self <= limit, other, self)


@op(
    where=_HOMES,
    promote="float",
    out="exact",
    overlap="copy",
    samples=unary_samples(-6, 6),
    pointwise=True,
)
def logsigmoid(self: Tensor) -> Tensor:
    """log(sigmoid(x)).

    Shape: any -> the same; floating dtypes.

    Example:
        >>> F.logsigmoid(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([-2.1269, -0.6931, -0.0486])
    """
    return prims.minimum(self, prims.full_like(0, self)) - prims.log1p(prims.exp(-prims.abs(self)))


@op(
    where=_HOMES,
    promote="keep",
    layout="first",
    out=True,
    samples=lambda: [sample(T(3, 6)), sample(T(4, 3), 0)],
)
def glu(self: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b), the two halves of x along `dim`.

    Source: Dauphin et al., Gated Convolutional Networks, 2017.

    Shape: `(*, 2 n, *)` -> `(*, n, *)`.

    Raises:
        RuntimeError: the size along `dim` is odd.

    Example:
        >>> F.glu(torch.tensor([2.0, 4.0, 0.0, 0.0]))
        tensor([1., 2.])
    """
    if self.ndim == 0:
        problem = "glu does not support scalars because halving size must be even"
        raise failure(RuntimeError, "glu", problem, "unsqueeze")
    axis = normalise_dim(dim, self.ndim, "glu")
    extent = self.shape[axis]
    half = floordiv(extent, 2)
    if not same(half * 2, extent):
        problem = f"Halving dimension must be even, but dimension {axis} is size "
        problem += f"{number_shown(extent)}"
        raise failure(RuntimeError, "glu", problem, "choose another dim")
    a = prims.slice(self, axis, 0, half)
    b = prims.slice(self, axis, half, half)
    return a * prims.sigmoid(b)


# ---------------------------------------------------------------------------- rows


def row_max(x: Node, axis: int) -> Node:
    """Maximum along an axis, kept, without gradient; an infinite one makes its row NaN."""
    top = prims.reduce_dims("max", x, (axis,), True)
    return prims.stop_gradient(prims.broadcast_to(top, x.shape))


def softmax_value(x: Node, axis: int) -> Node:
    """Softmax of a float node; its gradient uses only the result."""
    shifted = prims.exp(x - row_max(x, axis))
    total = prims.reduce_dims("sum", shifted, (axis,), True)
    return prims.with_derivative(shifted / total, x, rule="softmax", axis=axis)


def _softmax_rule(grad: Node, out: Node, x: Node) -> Any:
    axis = out.attribute("axis")
    inner = prims.reduce_dims("sum", grad * out, (axis,), True)
    return ((grad - inner) * out,)


def log_softmax_value(x: Node, axis: int) -> Node:
    """Logarithm of softmax; its gradient uses only the result."""
    centred = x - row_max(x, axis)
    total = prims.reduce_dims("sum", prims.exp(centred), (axis,), True)
    return prims.with_derivative(centred - prims.log(total), x, rule="log_softmax", axis=axis)


def _log_softmax_rule(grad: Node, out: Node, x: Node) -> Any:
    axis = out.attribute("axis")
    total = prims.reduce_dims("sum", grad, (axis,), True)
    return (grad - prims.exp(out) * total,)


prims.register_rule("softmax", _softmax_rule)
prims.register_rule("log_softmax", _log_softmax_rule)


def _row_samples() -> Samples:
    def make() -> Any:
        yield sample(T(3, 5), 1)
        yield sample(T(3, 5), 0)
        yield sample(T(2, 3, 4), -2)
        yield sample(T(2, 40), -1)
        yield sample(T(4, 33, layout="transposed"), 1)
        yield sample(T(0, 3), 1)

    return make


def _checked_float(x: Node, name: str, dtype: Any) -> Node:
    if dtype is not None:
        return prims.cast(x, dtype_or(dtype))
    if x.dtype[0] not in "fb" or x.dtype == "bool":
        raise unsupported(name, x, "pass dtype=torch.float32")
    return x


def _implicit_dim(x: Node, dim: int | None) -> int:
    """PyTorch's choice where no dimension is named."""
    return dim if dim is not None else 0 if x.ndim in (0, 1, 3) else 1


def _row_op(x: Node, dim: int, dtype: Any, name: str, function: Any) -> Node:
    axis = normalise_dim(dim, x.ndim, name)
    x = _checked_float(x, name, dtype)
    final = x.dtype
    x = prims.cast(x, "f32") if final in ("f16", "bf16") else x
    if x.ndim == 0:
        return prims.reshape(prims.cast(function(prims.reshape(x, (1,)), 0), final), ())
    return prims.cast(function(x, axis), final)


@op(out="exact", samples=_row_samples())
def softmax(self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`, shifted by the maximum.

    Shape: any -> the same; floating dtypes, or integers with `dtype`.

    Args:
        dtype: the input is cast to it first.

    Example:
        >>> torch.softmax(torch.zeros(4), dim=0)
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    return _row_op(self, dim, dtype, "softmax", softmax_value)


@op(out="exact", samples=_row_samples())
def log_softmax(self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """x - log(sum(exp(x))) along `dim`.

    Shape: any -> the same; floating dtypes, or integers with `dtype`.

    Args:
        dtype: the input is cast to it first.

    Example:
        >>> torch.log_softmax(torch.zeros(4), dim=0)
        tensor([-1.3863, -1.3863, -1.3863, -1.3863])
    """
    return _row_op(self, dim, dtype, "log_softmax", log_softmax_value)


def _define_functional(definition: OpDefinition) -> None:
    """The form of `nn.functional`: `dim` may be missing; `_stacklevel` stands before `dtype`."""
    name = definition.name

    def body(
        self: Tensor,
        dim: int | None = None,
        _stacklevel: int | None = 3,
        dtype: DType | None = None,
    ) -> Tensor:
        return definition.overloads[0].body(self, _implicit_dim(self, dim), dtype)

    body.__doc__ = (definition.__doc__ or "").replace(f"torch.{name}(", f"F.{name}(")
    op(
        name=name,
        where=_HOMES,
        out="exact",
        samples=_row_samples(),
        reference=lambda x, dim: getattr(__import__("scipy.special").special, name)(x, axis=dim),
    )(body)


_define_functional(softmax)
_define_functional(log_softmax)


@op(where=_HOMES, out=True, samples=_row_samples())
def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int | None = 3, dtype: DType | None = None
) -> Tensor:
    """softmax(-x).

    Example:
        >>> F.softmin(torch.zeros(4), dim=0)
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    return _row_op(prims.neg(input), _implicit_dim(input, dim), dtype, "softmin", softmax_value)
