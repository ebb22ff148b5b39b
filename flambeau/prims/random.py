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
    binomial     counts, probabilities: f64 of the shape
    normal_sequential  mean, std: the stream of a tensor that is not dense, see docs/random.md
    `places`     -  (i32; attribute draws: sizes R, C): states of the stream before every
                    `PLACE_ROWS` rows of matrices [*, R, C] of bernoulli draws, which
                    `kept_elements` repeats; its shape is [*, ceil(R / PLACE_ROWS), PLACE_WORDS]
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau.ir.dtypes import PUBLIC
from flambeau.ir.environment import next_sequence, same_shape
from flambeau.ir.node import Node
from flambeau.ir.size import Size, ceildiv
from flambeau.prims.common import COMPLEX, FLOATS, Type, check_count, show
from flambeau.prims.create import full
from flambeau.prims.record import NOT_DIFFERENTIABLE, Primitive, Routine, bind, leading, register

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
    "binomial": 2,
    "standard_gamma": 1,
    "normal_sequential": 2,
    "permutation": 0,
    "places": 0,
}
PLACE_ROWS = 64  # of a matrix of draws, from one saved place of the stream to the next one
PLACE_WORDS = 640  # of a place: Generator::kPlaceWords in native/random/random.h
CONTINUOUS = frozenset(
    {"uniform", "normal", "normal_sequential", "exponential", "cauchy", "log_normal"}
    | {"poisson", "standard_gamma", "binomial"}
)
# Parameters of one number per element, of these dtypes.
EACH = {"bernoulli_each": {"f32", "f64"}, "poisson": {"f64"}, "standard_gamma": {"f64"},
        "binomial": {"f64"}}  # fmt: skip
PRECISE = frozenset({"binomial", "standard_gamma"})  # float32 and float64 alone
INTEGERS = frozenset({"integers", "integers_from"})


def _infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    distribution, dtype, shape = (constants[k] for k in ("distribution", "dtype", "shape"))
    if distribution not in PARAMETERS:
        raise ValueError(
            f"[random] unknown distribution {distribution!r}\nhint: one of {', '.join(PARAMETERS)}"
        )
    check_count("random", operands, PARAMETERS[distribution])
    wide = distribution not in PRECISE or dtype in ("f32", "f64")
    if dtype in COMPLEX or not wide or (distribution in CONTINUOUS and dtype not in FLOATS):
        raise NotImplementedError(
            f"[random] {distribution} is not implemented for {PUBLIC[dtype]}\n"
            "hint: draw floats and cast"
        )
    expected: tuple[Size, ...] = shape if distribution in EACH else ()
    allowed = EACH.get(distribution, {"i64" if distribution in INTEGERS else "f64"})
    for x in operands:
        if x.dtype not in allowed or not same_shape(x.shape, expected):
            raise TypeError(
                f"[random] a parameter of {distribution} is {x!r}\n"
                f"hint: it takes {'/'.join(sorted(allowed))}{show(expected)}"
            )
    if distribution == "places" and (dtype != "i32" or "draws" not in constants):
        raise TypeError("[random] places are int32 numbers\nhint: prims.random_places")
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
    if distribution == "places":
        return numpy_places(generator.bit_generator.random_raw(1)[0], constants)
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


def numpy_places(seed: Any, constants: dict[str, Any]) -> Any:
    """Saved states of a stream that starts with a seed."""
    import numpy

    bits = numpy.random.MT19937()
    bits._legacy_seeding(int(seed) & 0xFFFFFFFF)
    *heads, blocks, words = constants["shape"]
    rows, columns = constants["draws"]
    positions = numpy.zeros((math.prod(heads), blocks, words), "u4")
    for place in positions:
        for block in range(blocks):
            state = bits.state["state"]
            place[block, :624] = state["key"]
            place[block, 624:626] = state["pos"], 624 - state["pos"]
            bits.random_raw(2 * columns * min(PLACE_ROWS, rows - block * PLACE_ROWS), False)
    return positions.view("i4").reshape(constants["shape"])


def numpy_kept(places: Any, draws: tuple[int, int], probability: float) -> Any:
    """The reference of `kept_elements`: draws of NumPy's generator."""
    import numpy

    rows, columns = draws
    mask = numpy.zeros((*places.shape[:-2], rows, columns), bool)
    for head in numpy.ndindex(*places.shape[:-2]):
        for block, place in enumerate(places[head].view("u4")):
            bits = numpy.random.MT19937()
            state: Any = {"key": place[:624].copy(), "pos": 624 - int(place[625])}
            bits.state = {"bit_generator": "MT19937", "state": state}
            first = block * PLACE_ROWS
            count = min(PLACE_ROWS, rows - first)
            words = bits.random_raw(2 * count * columns).reshape(count, columns, 2)
            high, low = words[..., 0] & 0x1FFFFF, words[..., 1]
            units = (high * 2**32 + low) * 2.0**-53
            mask[(*head, slice(first, first + count))] = units < probability
    return mask


def _samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    common = {"shape": (2, 3), "sequence": 0, "generator": 0}
    yield [0.0, 1.0], {"distribution": "uniform", "dtype": "f32", **common}
    yield [0.3], {"distribution": "bernoulli", "dtype": "bool", **common}
    yield [2, 7], {"distribution": "integers", "dtype": "i64", **common}
    places = {"distribution": "places", "dtype": "i32", "draws": (70, 9)}
    yield [], {**places, **common, "shape": (1, 2, PLACE_WORDS)}


def _interval(x: Node) -> tuple[Node, Node] | None:
    if x.attribute("distribution") != "integers":
        return None
    low, high = x.inputs
    return low, high


register(
    Primitive(
        "random",
        "random",
        _infer,
        NOT_DIFFERENTIABLE,
        routine=Routine("random"),
        cost=20,
        reference=_reference,
        samples=_samples,
        interval=_interval,
    )
)


def sample_place(seed: int, following: int) -> array[int]:
    """Some place of a stream, as int32: its next word is number `following`."""
    words = [(1812433253 * i + 12345) % 2**31 for i in range(seed, seed + 624)]
    padding = [0] * (PLACE_WORDS - 626)
    return array("i", [*words, following, 624 - following, *padding])


def _infer_kept(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("kept_elements", operands, 1)
    [places] = operands
    if places.dtype != "i32" or not places.ndim >= 2:
        raise TypeError(f"[kept_elements] {places!r} are no places\nhint: prims.random_places")
    return "bool", (*places.shape[:-2], *constants["draws"])


def _kept_samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    places = [sample_place(0, 600), sample_place(1, 5)]
    yield [[places]], {"draws": (66, 5), "kept": 0.7}


register(
    Primitive(
        "kept_elements",
        "routine",
        _infer_kept,
        NOT_DIFFERENTIABLE,
        routine=Routine("kept_elements"),
        cost=8,
        reference=lambda arrays, constants: numpy_kept(
            arrays[0], constants["draws"], constants["kept"]
        ),
        samples=_kept_samples,
        batch=leading,
    )
)


def kept_elements(places: Node, draws: tuple[Size, Size], kept: float) -> Node:
    """Recomputes the draws (bool [*, R, C]) of `random("bernoulli", ..)` from saved `places`."""
    return bind("kept_elements", places, draws=draws, kept=kept)


def random_places(heads: Sequence[Size], draws: tuple[Size, Size], generator: int) -> Node:
    """Draws matrices [*heads, R, C] with bernoulli's words; stores only states of the stream."""
    shape = (*heads, ceildiv(draws[0], PLACE_ROWS), PLACE_WORDS)
    return bind(
        "random",
        distribution="places",
        shape=shape,
        dtype="i32",
        draws=draws,
        generator=generator,
        sequence=next_sequence(),
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
