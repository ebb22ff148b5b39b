"""`torch.signal.windows`: weights of a signal's samples before a Fourier transform.

Source of the formulas: Harris, On the Use of Windows for Harmonic Analysis, Proc. IEEE 66, 1978.
All are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import OpDefinition
from flambeau.language.dtypes import PUBLIC_NAMES
from flambeau.language.samples import ErrorSample, Sample, sample
from flambeau.language.schema import schema_name
from flambeau.ops.common import dtype_or
from flambeau.ops.creation.creation import creation
from flambeau.ops.special.bessel import scaled_i

Weights = Callable[[Node], Node]  # of the samples' numbers, in float64

_RAISES = """
    Returns:
        A 1-dimensional tensor of `M` elements of `dtype` (float32 or float64; the default dtype
        when None). `sym=False` makes it periodic: for transforms instead of filters.

    Raises:
        ValueError: {wrong}a negative length, a sparse layout, or another dtype than float32 and
            float64."""


def _window(
    arguments: str, wrong: str = "", **named: Any
) -> Callable[[Callable[..., Weights]], OpDefinition]:
    """Defines a window, a function of the length `M`, of its own arguments and of `sym`.

    Args:
        arguments: the signature up to `sym`; the options of creation follow.
        wrong: which of its own arguments raise ValueError, for the docstring.
        given: values of its own arguments in the samples.
    """
    signature = f"{arguments}, bool sym=True"
    name = schema_name(signature)

    def decorate(window: Callable[..., Weights]) -> OpDefinition:
        def body(M: int, *options: Any) -> Node:  # noqa: N803 - PyTorch's name
            *own, dtype, layout, _device, _pin_memory = options
            _check_strided(name, layout)
            return _sampled(name, M, dtype, window(M, *own))

        text, _, example = (window.__doc__ or "").partition("\n\n    Example:")
        body.__doc__ = f"{text}\n{_RAISES.format(wrong=wrong)}\n\n    Example:{example}"
        options = {"where": "signal.windows", "samples": _samples(named), "errors": _errors(named)}
        options["varying"] = True
        return creation(signature, **options)(body)

    return decorate


def _samples(options: dict[str, Any]) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        for count in (0, 1, 2, 7):
            yield sample(count, **options)
        yield sample(8, sym=False, **options)

    return make


def _errors(options: dict[str, Any]) -> Callable[[], Iterator[ErrorSample]]:
    return lambda: [ErrorSample(sample(-1, **options), ValueError, "non-negative window length")]


def _check_strided(name: str, layout: Any) -> None:
    if layout is not None and layout is not tensors.strided:
        problem = f"{name} is implemented for strided tensors only, got: {layout}"
        raise failure(ValueError, name, problem, "layout=torch.strided")


def _sampled(name: str, count: int, dtype: Any, weights: Weights) -> Node:
    """`weights` of the sample numbers, as `dtype`; a window of one sample is 1."""
    if count < 0:
        problem = f"{name} requires non-negative window length, got M={count}"
        raise failure(ValueError, name, problem, "0 or more")
    target = dtype_or(dtype)
    if target not in ("f32", "f64"):
        problem = f"{name} expects float32 or float64 dtypes, got: torch.{PUBLIC_NAMES[target]}"
        raise failure(ValueError, name, problem, "convert the window afterwards")
    if count == 1:
        return prims.full(1, (1,), target)
    return prims.cast(weights(prims.iota((count,), 0, "f64")), target)


def _span(count: int, sym: bool) -> int:
    """Steps from a symmetric window's first to its last sample; a periodic one has one more."""
    return max(count - 1 if sym else count, 1)


def _cosines(count: int, sym: bool, weights: Sequence[float]) -> Weights:
    """A sum of cosines of 0, 1, 2 ... periods, with alternating signs."""

    def compute(places: Node) -> Node:
        angle = places * (2 * math.pi / _span(count, sym))
        total = prims.full_like(weights[0], places)
        for order, weight in enumerate(weights[1:], 1):
            total = total + prims.cos(angle * order) * (weight if order % 2 == 0 else -weight)
        return total

    return compute


def _cosine_family(name: str, weights: tuple[float, ...], text: str) -> None:
    def window(count: int, sym: bool) -> Weights:
        return _cosines(count, sym, weights)

    window.__doc__ = f"""{text}

    Example:
        >>> torch.signal.windows.{name}(1)
        tensor([1.])
    """
    _window(f"{name}(int M, *")(window)


_cosine_family("hann", (0.5, 0.5), "Hann's window: a raised cosine that ends at 0.")
_cosine_family("hamming", (0.54, 0.46), "Hamming's window: a raised cosine with low side lobes.")
_cosine_family("blackman", (0.42, 0.5, 0.08), "Blackman's window of three cosine terms.")
_cosine_family(
    "nuttall",
    (0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "Nuttall's window of four terms (Nuttall, IEEE Trans. ASSP 29, 1981).",
)


@_window("general_cosine(int M, *, object a", wrong="no weights, ", a=(0.4, 0.5, 0.1))
def general_cosine(count: int, a: Any, sym: bool) -> Weights:
    """A weighted sum of cosines, with alternating signs: the weights are `a`.

    Example:
        >>> torch.signal.windows.general_cosine(2, a=[1.0])
        tensor([1., 1.])
    """
    if not hasattr(a, "__iter__"):
        raise TypeError("[general_cosine] Coefficients must be a list/tuple\nhint: a=[0.5, 0.5]")
    weights = tuple(a)
    if not weights:
        raise ValueError("[general_cosine] Coefficients cannot be empty\nhint: give at least one")
    return _cosines(count, sym, weights)


@_window("general_hamming(int M, *, float alpha=0.54")
def general_hamming(count: int, alpha: float, sym: bool) -> Weights:
    """A raised cosine: alpha - (1 - alpha) cos(2 pi n / (M - 1)).

    Example:
        >>> torch.signal.windows.general_hamming(1)
        tensor([1.])
    """
    return _cosines(count, sym, (alpha, 1 - alpha))


@_window("bartlett(int M, *")
def bartlett(count: int, sym: bool) -> Weights:
    """Bartlett's window: a triangle that ends at 0.

    Example:
        >>> torch.signal.windows.bartlett(3)
        tensor([0., 1., 0.])
    """
    step = 2 / _span(count, sym)
    return lambda places: prims.full_like(1, places) - prims.abs(places * step - 1)


@_window("cosine(int M, *")
def cosine(count: int, sym: bool) -> Weights:
    """The first half wave of a sine, sampled between its zeros.

    Example:
        >>> torch.signal.windows.cosine(1)
        tensor([1.])
    """
    step = math.pi / (_span(count, sym) + 1)
    return lambda places: prims.sin((places + 0.5) * step)


@_window(
    "exponential(int M, *, float? center=None, float tau=1.0",
    wrong="tau is not positive, a center is given for a symmetric window, ",
    tau=2.0,
)
def exponential(count: int, center: float | None, tau: float, sym: bool) -> Weights:
    """Poisson's window: exp(-|n - center| / tau); the center is the middle.

    Example:
        >>> torch.signal.windows.exponential(1)
        tensor([1.])
    """
    if tau <= 0:
        raise ValueError(f"[exponential] Tau must be positive, got: {tau} instead.\nhint: tau > 0")
    if sym and center is not None:
        raise ValueError("[exponential] Center must be None for symmetric windows\nhint: sym=False")
    middle = _span(count, sym) / 2 if center is None else center
    return lambda places: prims.exp(prims.abs(places - middle) * (-1 / tau))


@_window("gaussian(int M, *, float std=1.0", wrong="std is not positive, ", std=2.0)
def gaussian(count: int, std: float, sym: bool) -> Weights:
    """The bell curve exp(-(n - middle)^2 / (2 std^2)).

    Example:
        >>> torch.signal.windows.gaussian(1)
        tensor([1.])
    """
    if std <= 0:
        problem = f"Standard deviation must be positive, got: {std} instead."
        raise failure(ValueError, "gaussian", problem, "std > 0")

    def compute(places: Node) -> Node:
        from_middle = (places - _span(count, sym) / 2) * (1 / (std * math.sqrt(2)))
        return prims.exp(-(from_middle * from_middle))

    return compute


@_window("kaiser(int M, *, float beta=12.0", wrong="beta is negative, ", beta=8.6)
def kaiser(count: int, beta: float, sym: bool) -> Weights:
    """Kaiser's window I0(beta sqrt(1 - t^2)) / I0(beta), t from -1 to 1; beta 0 is a rectangle.

    Against mpmath, for beta up to 20: half a unit of the last place of float32, 65 of float64.

    Example:
        >>> torch.signal.windows.kaiser(3, beta=0.0)
        tensor([1., 1., 1.])
    """
    if beta < 0:
        raise ValueError(f"[kaiser] beta must be non-negative, got: {beta} instead.\nhint: 12.0")

    def compute(places: Node) -> Node:
        t = places * (2 / _span(count, sym)) - 1
        inside = prims.maximum((1 - t) * (1 + t), prims.zeros_like(t))
        order, top = prims.sqrt(inside) * beta, prims.full_like(beta, t)
        return scaled_i(0, order) / scaled_i(0, top) * prims.exp(order - top)

    return compute
