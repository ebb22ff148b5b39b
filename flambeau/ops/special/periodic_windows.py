"""`torch.hann_window` and its relatives: windows that are periodic unless told otherwise.

The weights are those of `torch.signal.windows`, here in any floating-point dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import REGISTRY
from flambeau.language.dtypes import PUBLIC_NAMES
from flambeau.language.promotion import CATEGORY
from flambeau.language.samples import ErrorSample, Sample, sample
from flambeau.ops.common import dtype_or
from flambeau.ops.creation.creation import creation
from flambeau.ops.special import windows  # noqa: F401 - defines the windows

# name: its own arguments, and a sample of them
_OWN: dict[str, tuple[str, tuple[float, ...]]] = {
    "bartlett": ("", ()),
    "blackman": ("", ()),
    "hamming": (", float alpha=0.54, float beta=0.46", (0.6, 0.3)),
    "hann": ("", ()),
    "kaiser": (", float beta=12.0", (5.0,)),
}


def _weights(name: str, count: int, periodic: bool, own: tuple[float, ...]) -> Node:
    """A window in float64."""
    source, parameters = (name, own) if name != "hamming" else ("general_cosine", (own,))
    body = REGISTRY[f"signal.windows.{source}"].overloads[0].body
    weights: Node = body(count, *parameters, not periodic, "f64", None, None, None)
    return weights


def _define(name: str) -> None:
    arguments, values = _OWN[name]

    def body(window_length: int, periodic: bool, *options: Any) -> Node:
        own, target = options[: len(values)], dtype_or(options[len(values)])
        if window_length < 0 or CATEGORY[target] != 2:
            problem = f"{name}_window requires non-negative window_length and a floating point "
            problem += f"dtype, got window_length={window_length}, torch.{PUBLIC_NAMES[target]}"
            raise failure(RuntimeError, f"{name}_window", problem, "convert the window afterwards")
        return prims.cast(_weights(name, window_length, periodic, own), target)

    body.__doc__ = f"""`torch.signal.windows.{name}`, periodic unless told otherwise.

    Periodic windows are for transforms, symmetric ones (`periodic=False`) for filters. The dtype
    is any floating-point one, the default when None.

    Raises:
        RuntimeError: a negative length, or a dtype that is not floating-point.

    Example:
        >>> torch.{name}_window(1)
        tensor([1.])
    """

    def samples() -> Iterator[Sample]:
        for count in (0, 1, 2, 7):
            yield sample(count)
        yield sample(8, False, *values)

    creation(
        f"{name}_window(int window_length, bool periodic=True{arguments}",
        out=False,
        varying=True,
        samples=samples,
        errors=lambda: [ErrorSample(sample(-1), RuntimeError, "non-negative window_length")],
    )(body)


for _name in _OWN:
    _define(_name)
