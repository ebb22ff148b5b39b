"""Random draws: numbers of a generator's stream, ordered by `sequence`.

Every draw of a program is a node of its own: `sequence` numbers the draws, so that equal draws are
not shared, and fixes their order in the stream. Draws are never computed twice.

Distributions and their operands (f64 scalars unless said otherwise):

    uniform      low, high                normal       mean, std
    exponential  rate                     cauchy       median, scale
    log_normal   mean, std                geometric    probability
    bernoulli    probability              bernoulli_each   probabilities: f32/f64 of the shape
    integers     low, high (i64; high is not drawn)
    integers_from  low, top (i64; top may be drawn)
    any_integer  -                        permutation  -  (i64, one dimension)
    poisson      rates: f64 of the shape  standard_gamma   shapes: f64 of the shape
    normal_sequential  mean, std: the stream of a tensor that is not dense, see docs/random.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau.ir.environment import next_sequence, same_shape
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.prims.common import COMPLEX, FLOATS, Type, check_count, show
from flambeau.prims.create import full
from flambeau.prims.record import NOT_DIFFERENTIABLE, Primitive, bind, register

PARAMETERS = {
    "uniform": 2,
    "normal": 2,
    "exponential": 1,
    "cauchy": 2,
    "log_normal": 2,
    "geometric": 1,
    "bernoulli": 1,
    "bernoulli_each": 1,
    "integers": 2,
    "integers_from": 2,
    "any_integer": 0,
    "poisson": 1,
    "standard_gamma": 1,
    "normal_sequential": 2,
    "permutation": 0,
}
CONTINUOUS = frozenset(
    {"uniform", "normal", "normal_sequential", "exponential", "cauchy", "log_normal"}
    | {"poisson", "standard_gamma"}
)
# One parameter per element, of these dtypes.
EACH = {"bernoulli_each": {"f32", "f64"}, "poisson": {"f64"}, "standard_gamma": {"f64"}}
INTEGERS = frozenset({"integers", "integers_from"})


def _infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    distribution, dtype, shape = (constants[k] for k in ("distribution", "dtype", "shape"))
    if distribution not in PARAMETERS:
        raise ValueError(
            f"[random] unknown distribution {distribution!r}\nhint: one of {', '.join(PARAMETERS)}"
        )
    check_count("random", operands, PARAMETERS[distribution])
    if dtype in COMPLEX or (distribution in CONTINUOUS and dtype not in FLOATS):
        raise TypeError(f"[random] no {distribution} of {dtype}\nhint: draw floats and cast")
    wanted: tuple[Size, ...] = shape if distribution in EACH else ()
    allowed = EACH.get(distribution, {"i64" if distribution in INTEGERS else "f64"})
    for x in operands:
        if x.dtype not in allowed or not same_shape(x.shape, wanted):
            raise TypeError(
                f"[random] a parameter of {distribution} is {x!r}\n"
                f"hint: it takes {'/'.join(sorted(allowed))}{show(wanted)}"
            )
    if distribution == "permutation" and len(shape) != 1:
        raise ValueError(f"[random] permutation of {show(shape)}\nhint: one dimension only")
    return dtype, shape


def _reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
    """Right in distribution, and reproducible; only the native core has PyTorch's streams."""
    import numpy

    generator = numpy.random.default_rng(constants["sequence"] + 1000 * constants["generator"])
    shape, distribution = constants["shape"], constants["distribution"]
    if distribution == "permutation":
        return generator.permutation(shape[0])
    if distribution == "any_integer":
        return generator.integers(0, 100, shape)
    if distribution.startswith("bernoulli"):
        return generator.random(shape) < arrays[0]
    if distribution == "integers_from":
        return generator.integers(arrays[0], arrays[1], shape, endpoint=True)
    names = {"log_normal": "lognormal", "normal_sequential": "normal"}
    if distribution == "exponential":
        return generator.exponential(1 / arrays[0], shape)
    if distribution == "cauchy":
        return arrays[0] + arrays[1] * generator.standard_cauchy(shape)
    draw = getattr(generator, names.get(distribution, distribution))
    return draw(*arrays, size=shape)


def _samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    common = {"shape": (2, 3), "sequence": 0, "generator": 0}
    yield [0.0, 1.0], {"distribution": "uniform", "dtype": "f32", **common}
    yield [0.3], {"distribution": "bernoulli", "dtype": "bool", **common}
    yield [2, 7], {"distribution": "integers", "dtype": "i64", **common}


register(
    Primitive(
        "random",
        "random",
        _infer,
        NOT_DIFFERENTIABLE,
        spelling="random",
        cost=20,
        reference=_reference,
        samples=_samples,
    )
)


def random(
    distribution: str,
    shape: Sequence[Size],
    dtype: str,
    *parameters: Node | float,
    generator: int = 0,
    sequence: int | None = None,
) -> Node:
    """Draw numbers; see the module for distributions. `generator` is a slot of the graph."""
    kind = "i64" if distribution in INTEGERS else "f64"
    operands = [p if isinstance(p, Node) else full(p, (), kind) for p in parameters]
    return bind(
        "random",
        *operands,
        distribution=distribution,
        shape=tuple(shape),
        dtype=dtype,
        generator=generator,
        sequence=next_sequence() if sequence is None else sequence,
    )
