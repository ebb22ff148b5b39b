"""`torch.signal.windows`: weights of a signal's samples before a Fourier transform.

Source of the formulas: Harris, On the Use of Windows for Harmonic Analysis, Proc. IEEE 66, 1978.
All are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core.dtypes import PUBLIC_NAMES
from flambeau.core.samples import ErrorSample, Sample, sample
from flambeau.ir.node import Node
from flambeau.ops.common import dtype_or
from flambeau.ops.creation import creation

_HOME = "signal.windows"


def _samples(**given: Any) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        for count in (0, 1, 2, 7):
            yield sample(count, **given)
        yield sample(8, sym=False, **given)

    return make


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(-1), ValueError, "non-negative window length")


def _window(name: str, count: int, dtype: Any, weights: Callable[[Node], Node]) -> Node:
    """`weights` of the sample numbers, as `dtype`; a window of one sample is 1."""
    if count < 0:
        raise ValueError(
            f"[{name}] {name} requires non-negative window length, got M={count}\nhint: 0 or more"
        )
    target = dtype_or(dtype)
    if target not in ("f32", "f64"):
        raise ValueError(
            f"[{name}] {name} expects float32 or float64 dtypes, got: "
            f"torch.{PUBLIC_NAMES[target]}\nhint: convert the window afterwards"
        )
    if count == 1:
        return prims.full(1, (1,), target)
    places = prims.iota((count,), 0, "f64")
    return prims.cast(weights(places), target)


def _span(count: int, sym: bool) -> int:
    """Steps from a symmetric window's first to its last sample; a periodic one has one more."""
    return max(count - 1 if sym else count, 1)


def _cosines(name: str, count: int, weights: Sequence[float], sym: bool, dtype: Any) -> Node:
    if not weights:
        raise ValueError(f"[{name}] Coefficients cannot be empty\nhint: give at least one")

    def compute(places: Node) -> Node:
        angle = places * (2 * math.pi / _span(count, sym))
        total = prims.full_like(weights[0], places)
        for order, weight in enumerate(weights[1:], 1):
            total = total + prims.cos(angle * order) * (weight if order % 2 == 0 else -weight)
        return total

    return _window(name, count, dtype, compute)


def _cosine_family(name: str, weights: tuple[float, ...], text: str) -> None:
    def body(M: int, sym: bool, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:  # noqa: N803
        return _cosines(name, M, weights, sym, dtype)

    body.__doc__ = f"""{text}

    `sym=False` makes it periodic: for transforms instead of filters.

    Raises:
        ValueError: a negative length, or another dtype than float32 and float64.

    Example:
        >>> torch.signal.windows.{name}(1)
        tensor([1.])
    """
    creation(f"{name}(int M, *, bool sym=True", where=_HOME, samples=_samples(), errors=_errors)(
        body
    )


_cosine_family("hann", (0.5, 0.5), "Hann's window: a raised cosine that ends at 0.")
_cosine_family("hamming", (0.54, 0.46), "Hamming's window: a raised cosine with low side lobes.")
_cosine_family("blackman", (0.42, 0.5, 0.08), "Blackman's window of three cosine terms.")
_cosine_family(
    "nuttall",
    (0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "Nuttall's window of four terms (Nuttall, IEEE Trans. ASSP 29, 1981).",
)


@creation(
    "general_cosine(int M, *, object a, bool sym=True",
    where=_HOME,
    samples=_samples(a=(0.4, 0.5, 0.1)),
)
def general_cosine(
    M: int,  # noqa: N803 - PyTorch's name
    a: Any,
    sym: bool,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    """A weighted sum of cosines, with alternating signs: the weights are `a`.

    Raises:
        ValueError: no weights, a negative length, or another dtype than float32 and float64.
        TypeError: `a` is no iterable.

    Example:
        >>> torch.signal.windows.general_cosine(2, a=[1.0])
        tensor([1., 1.])
    """
    if not hasattr(a, "__iter__"):
        raise TypeError("[general_cosine] Coefficients must be a list/tuple\nhint: a=[0.5, 0.5]")
    return _cosines("general_cosine", M, tuple(a), sym, dtype)


@creation(
    "general_hamming(int M, *, float alpha=0.54, bool sym=True", where=_HOME, samples=_samples()
)
def general_hamming(
    M: int,  # noqa: N803 - PyTorch's name
    alpha: float,
    sym: bool,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    """A raised cosine: alpha - (1 - alpha) cos(2 pi n / (M - 1)).

    Raises:
        ValueError: a negative length, or another dtype than float32 and float64.

    Example:
        >>> torch.signal.windows.general_hamming(1)
        tensor([1.])
    """
    return _cosines("general_hamming", M, (alpha, 1 - alpha), sym, dtype)


@creation("bartlett(int M, *, bool sym=True", where=_HOME, samples=_samples(), errors=_errors)
def bartlett(
    M: int,  # noqa: N803 - PyTorch's name
    sym: bool,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    """Bartlett's window: a triangle that ends at 0.

    Raises:
        ValueError: a negative length, or another dtype than float32 and float64.

    Example:
        >>> torch.signal.windows.bartlett(3)
        tensor([0., 1., 0.])
    """

    def compute(places: Node) -> Node:
        return prims.full_like(1, places) - prims.abs(places * (2 / _span(M, sym)) - 1)

    return _window("bartlett", M, dtype, compute)


@creation("cosine(int M, *, bool sym=True", where=_HOME, samples=_samples(), errors=_errors)
def cosine(
    M: int,  # noqa: N803 - PyTorch's name
    sym: bool,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    """The first half wave of a sine, sampled between its zeros.

    Raises:
        ValueError: a negative length, or another dtype than float32 and float64.

    Example:
        >>> torch.signal.windows.cosine(1)
        tensor([1.])
    """
    step = math.pi / (_span(M, sym) + 1)
    return _window("cosine", M, dtype, lambda places: prims.sin((places + 0.5) * step))


@creation(
    "exponential(int M, *, float? center=None, float tau=1.0, bool sym=True",
    where=_HOME,
    samples=_samples(tau=2.0),
)
def exponential(
    M: int,  # noqa: N803 - PyTorch's name
    center: float | None,
    tau: float,
    sym: bool,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    """Poisson's window: exp(-|n - center| / tau); the center is the middle.

    Raises:
        ValueError: tau is not positive, a center is given for a symmetric window, a negative
            length, or another dtype than float32 and float64.

    Example:
        >>> torch.signal.windows.exponential(1)
        tensor([1.])
    """
    if tau <= 0:
        raise ValueError(f"[exponential] Tau must be positive, got: {tau} instead.\nhint: tau > 0")
    if sym and center is not None:
        raise ValueError("[exponential] Center must be None for symmetric windows\nhint: sym=False")
    middle = _span(M, sym) / 2 if center is None else center
    return _window(
        "exponential", M, dtype, lambda places: prims.exp(prims.abs(places - middle) * (-1 / tau))
    )


@creation("gaussian(int M, *, float std=1.0, bool sym=True", where=_HOME, samples=_samples(std=2.0))
def gaussian(
    M: int,  # noqa: N803 - PyTorch's name
    std: float,
    sym: bool,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    """The bell curve exp(-(n - middle)^2 / (2 std^2)).

    Raises:
        ValueError: std is not positive, a negative length, or another dtype than float32 and
            float64.

    Example:
        >>> torch.signal.windows.gaussian(1)
        tensor([1.])
    """
    if std <= 0:
        raise ValueError(
            f"[gaussian] Standard deviation must be positive, got: {std} instead.\nhint: std > 0"
        )

    def compute(places: Node) -> Node:
        from_middle = (places - _span(M, sym) / 2) * (1 / (std * math.sqrt(2)))
        return prims.exp(-(from_middle * from_middle))

    return _window("gaussian", M, dtype, compute)
