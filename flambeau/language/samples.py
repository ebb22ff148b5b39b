"""Sample inputs as plain data, so that flambeau, NumPy and an oracle can each build them.

An op definition's `samples` is a function that yields `Sample`s. `T(2, 3)` stands for a tensor of
shape (2, 3) filled reproducibly; tests choose the dtype unless the spec fixes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple


class TensorSpec(SimpleNamespace):
    """A tensor to be made by a test.

    Attributes:
        shape: its sizes.
        dtype: IR dtype name, or None for the dtype under test.
        low, high: values are drawn uniformly from [low, high).
        values: explicit nested lists instead of random ones.
        layout: "contiguous", "transposed" (last two dimensions), "sliced" (every second element)
            or "expanded".
        grad: False for operands that never need a gradient.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str | None = None,
        low: float = -2.0,
        high: float = 2.0,
        values: Any = None,
        layout: str = "contiguous",
        grad: bool = True,
    ) -> None:
        super().__init__(
            shape=shape,
            dtype=dtype,
            low=low,
            high=high,
            values=values,
            layout=layout,
            grad=grad,
        )

    def relaid(self, layout: str) -> TensorSpec:
        """The same tensor, lying in memory differently."""
        return TensorSpec(**vars(self) | {"layout": layout})


def T(*shape: int, **options: Any) -> TensorSpec:  # noqa: N802 - short on purpose: tables of samples
    """A `TensorSpec` of this shape."""
    return TensorSpec(tuple(shape), **options)


class Sample(NamedTuple):
    """Arguments of one call; tensors are given as `TensorSpec`s, also inside lists."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def sample(*args: Any, **kwargs: Any) -> Sample:
    """A `Sample` with these arguments."""
    return Sample(args, kwargs)


Samples = Callable[[], Iterator[Sample]]


class ErrorSample(NamedTuple):
    """A call that must fail: exception type name and a fragment of its message."""

    sample: Sample
    error: type[BaseException]
    fragment: str


def unary_samples(low: float = -2.0, high: float = 2.0) -> Samples:
    """Shapes and layouts every unary pointwise op must survive."""

    def make() -> Iterator[Sample]:
        for shape in ((), (1,), (7,), (3, 4), (2, 3, 5), (0, 3), (33, 17)):
            yield sample(T(*shape, low=low, high=high))
        yield sample(T(4, 6, low=low, high=high, layout="transposed"))
        yield sample(T(5, 8, low=low, high=high, layout="sliced"))
        yield sample(T(3, 5, low=low, high=high, layout="expanded"))

    return make


def binary_samples(
    low: float = -2.0, high: float = 2.0, right_low: float | None = None, scalar: Any = 1.5
) -> Samples:
    """Broadcasts, layouts and a Python number on the right."""
    b_low = low if right_low is None else right_low

    def make() -> Iterator[Sample]:
        shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
            ((), ()), ((5,), (5,)), ((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)),
            ((2, 3, 4), (3, 1)), ((4,), ()), ((0, 3), (3,)), ((17, 35), (17, 35)),
        ]  # fmt: skip
        for a, b in shapes:
            yield sample(T(*a, low=low, high=high), T(*b, low=b_low, high=high))
        yield sample(
            T(4, 6, low=low, high=high, layout="transposed"), T(4, 6, low=b_low, high=high)
        )
        if scalar is not None:
            yield sample(T(3, 4, low=low, high=high), scalar)

    return make
