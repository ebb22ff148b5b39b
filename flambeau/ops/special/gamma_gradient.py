"""Derivatives of gamma and beta samples by their shapes: implicit differentiation, by quadrature.

A sample x of shape a solves F(x, a) = u, so dx/da = -(dF/da) / p for the distribution function F
and the density p (Figurnov, Mohamed and Mnih 2018). dF/da is an integral of the density times the
derivative of its logarithm, over the side of x away from the mode; the ratio to the density at x
keeps every exponent at most about zero. The rule is the double exponential one of Takahasi and
Mori (1974), in float64.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.samples import Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import check_one_dtype, together

STEP, FIRST, COUNT = 0.125, -4.0, 80
SMALLEST = 1e-300


def _distances(slope: Node, curvature: Node) -> tuple[Node, Node]:
    """Distances from x at which the rule evaluates, (*, COUNT), and their weights.

    Args:
        slope, curvature: of the logarithm of the density at x, without their signs.
    """
    scale = 2.0 / (slope + prims.sqrt(slope * slope + 2.0 * curvature))
    sizes = (*slope.shape, COUNT)
    t = FIRST + STEP * prims.cast(prims.iota(sizes, len(sizes) - 1), "f64")
    decay = prims.exp(-t)
    s = prims.broadcast_to(prims.unsqueeze(scale, -1), sizes) * prims.exp(t - decay)
    return s, STEP * s * (1.0 + decay)


def _repeated(sizes: tuple[int, ...], *values: Node) -> list[Node]:
    return [prims.broadcast_to(prims.unsqueeze(v, -1), sizes) for v in values]


def _sum(terms: Node, like: Node) -> Node:
    return prims.reshape(prims.sum_to_shape(terms, (*terms.shape[:-1], 1)), like.shape)


def gamma_gradient(x: Node, shape: Node) -> Node:
    """dx/da of standard gamma samples x of shape a, in float64 (elements beside elements)."""
    a = prims.cast(shape, "f64")
    x = prims.maximum(prims.cast(x, "f64"), prims.constant(SMALLEST, a))
    below = prims.lt(x, a)
    s, weight = _distances(prims.abs(a - x), x)
    centre = prims.digamma(a) - prims.log(x)
    near, shape, centre, lower = _repeated(s.shape, x, a, centre, below)
    signed = prims.where(lower, -s, s)  # the integral runs over x exp(signed)
    density = prims.exp(shape * signed - near * prims.expm1(signed))
    factor = prims.where(lower, centre + s, s - centre)
    return x * _sum(weight * factor * density, x)


def beta_gradient(x: Node, alpha: Node, beta: Node) -> Node:
    """dx/da of beta samples x of shapes a and b, in float64 (elements beside elements).

    Below the mean the integral runs over x exp(-s), above it over 1 - (1 - x) exp(-s).
    """
    a, b = (prims.cast(v, "f64") for v in (alpha, beta))
    low, high = prims.constant(SMALLEST, a), prims.constant(1.0, a)
    x = prims.minimum(prims.maximum(prims.cast(x, "f64"), low), high)
    complement = prims.maximum(1.0 - x, prims.constant(2.0**-53, a))
    below = prims.lt(x * (a + b), a)
    near, far = prims.where(below, x, complement), prims.where(below, complement, x)
    own, other = prims.where(below, a, b), prims.where(below, b, a) - 1.0
    odds = near / far
    slope = prims.maximum(own - other * odds, prims.full_like(0, own))
    s, weight = _distances(slope, prims.abs(other) * odds * (1.0 + odds))
    centre = prims.digamma(a) - prims.digamma(a + b)
    parts = _repeated(s.shape, own, other, odds, prims.log(x), complement, centre, below)
    own, other, odds, log_x, complement, centre, lower = parts
    density = prims.exp(other * prims.log1p(-odds * prims.expm1(-s)) - own * s)
    above = prims.log1p(-complement * prims.exp(-s)) - centre
    factor = prims.where(lower, centre - log_x + s, above)
    return near * _sum(weight * factor * density, x)


# ------------------------------------------------------------------------------ operators
def _check(name: str, **operands: Node) -> None:
    check_one_dtype(name, **operands)
    for x in operands.values():
        if x.dtype not in ("f32", "f64"):
            problem = f"not implemented for {x.dtype}"
            raise failure(NotImplementedError, name, problem, "convert with .float()")


@op(
    name="_standard_gamma_grad",
    where="ops.aten",
    dtypes="f32 f64",
    differentiable=False,
    samples=lambda: [sample(T(8, low=0.2, high=9.0), T(8, low=0.2, high=9.0))],
)
def standard_gamma_grad(self: Tensor, output: Tensor) -> Tensor:
    """The derivative of samples of `torch._standard_gamma` by their shape.

    Shape: broadcast; float32 and float64.

    Args:
        self: the shapes.
        output: the samples.

    Raises:
        RuntimeError: two dtypes.
        NotImplementedError: another dtype.

    Example:
        >>> torch.ops.aten._standard_gamma_grad(torch.tensor([1.0]), torch.tensor([1.0]))
        tensor([1.1736])
    """
    _check("_standard_gamma_grad", self=self, output=output)
    shape, x = together("_standard_gamma_grad", self, output)
    return prims.cast(gamma_gradient(x, shape), self.dtype)


def _dirichlet_samples() -> Iterator[Sample]:
    yield sample(T(8, low=0.1, high=0.9), T(8, low=0.2, high=4.0), T(8, low=5.0, high=9.0))


@op(
    name="_dirichlet_grad",
    where="ops.aten",
    dtypes="f32 f64",
    differentiable=False,
    samples=_dirichlet_samples,
)
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """The derivative of a Dirichlet sample by its own concentration, divided by 1 - x.

    One element of a sample has the beta distribution of its concentration and of the others' sum.

    Shape: broadcast; float32 and float64.

    Args:
        x: elements of samples.
        alpha: their concentrations.
        total: the sum of all concentrations.

    Raises:
        RuntimeError: two dtypes.
        NotImplementedError: another dtype.

    Example:
        >>> x, alpha, total = torch.tensor([0.25]), torch.tensor([1.0]), torch.tensor([2.0])
        >>> torch.ops.aten._dirichlet_grad(x, alpha, total)
        tensor([0.4621])
    """
    _check("_dirichlet_grad", x=x, alpha=alpha, total=total)
    x, alpha, total = together("_dirichlet_grad", x, alpha, total)
    slope = beta_gradient(x, alpha, total - alpha)
    complement = prims.maximum(1.0 - prims.cast(x, "f64"), prims.full_like(2.0**-53, slope))
    return prims.cast(slope / complement, x.dtype)
