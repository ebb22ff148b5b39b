"""The derivative of a gamma sample by its shape: implicit differentiation, by quadrature.

A sample x of shape a solves P(a, x) = u, so dx/da = -(dP/da) / p for the distribution function P
and the density p (Figurnov, Mohamed and Mnih 2018). dP/da is an integral of the density times
digamma(a) - log t, over the side of x away from the mode; the ratio to the density at x keeps
every exponent at most about zero. The rule is the double exponential one of Takahasi and Mori
(1974), in float64.
"""

from __future__ import annotations

from flambeau import prims
from flambeau.ir.node import Node

STEP, FIRST, COUNT = 0.125, -4.0, 80
SMALLEST = 1e-300


def gamma_gradient(x: Node, shape: Node) -> Node:
    """dx/da of standard gamma samples x of shape a, in float64 (elements beside elements)."""
    a = prims.cast(shape, "f64")
    x = prims.maximum(prims.cast(x, "f64"), prims.constant(SMALLEST, a))
    below = prims.lt(x, a)
    distance = prims.abs(a - x)
    scale = 2.0 / (distance + prims.sqrt(distance * distance + 2.0 * x))
    centre = prims.digamma(a) - prims.log(x)
    sizes = (*a.shape, COUNT)
    near, shape, scale, centre, lower = (
        prims.broadcast_to(prims.unsqueeze(v, -1), sizes) for v in (x, a, scale, centre, below)
    )
    t = FIRST + STEP * prims.cast(prims.iota(sizes, len(sizes) - 1), "f64")
    decay = prims.exp(-t)
    s = scale * prims.exp(t - decay)
    signed = prims.where(lower, -s, s)  # the integral runs over x exp(signed)
    density = prims.exp(shape * signed - near * prims.expm1(signed))
    factor = prims.where(lower, centre + s, s - centre)
    terms = STEP * s * (1.0 + decay) * factor * density
    total = prims.sum_to_shape(terms, (*sizes[:-1], 1))
    return x * prims.reshape(total, sizes[:-1])
