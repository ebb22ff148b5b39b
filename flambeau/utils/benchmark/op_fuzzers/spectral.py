"""Random inputs of Fourier transforms."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.utils.benchmark.op_fuzzers import shapes
from flambeau.utils.benchmark.utils.fuzzer import (
    FuzzedParameter,
    FuzzedTensor,
    Fuzzer,
    ParameterAlias,
)

__all__ = ["SpectralOpFuzzer"]

_LARGEST = 1024
_REGULAR = [n for n in (
    2**a * 3**b * 5**c * 7**d * 11**e
    for a in range(11) for b in range(7) for c in range(5) for d in range(4) for e in range(3)
) if 8 <= n <= _LARGEST]  # fmt: skip


class SpectralOpFuzzer(Fuzzer):
    """A tensor whose sizes are products of small primes, or any numbers.

    Args:
        seed: of the parameters.
        dtype: of the tensor.
        cuda: False.
        probability_regular: how often a size is a product of the primes up to 11.

    Example:
        >>> from flambeau.utils.benchmark.op_fuzzers.spectral import SpectralOpFuzzer
        >>> tensors, _, _ = next(SpectralOpFuzzer(seed=0).take(1))
        >>> sorted(tensors)
        ['x']
    """

    def __init__(
        self, *, seed: int, dtype: Any = None, cuda: bool = False, probability_regular: float = 1.0
    ) -> None:
        regular = dict.fromkeys(_REGULAR, 1 / len(_REGULAR))
        parameters: list[Any] = [shapes.dimensions(), shapes.seed_of(), shapes.steps("step")]
        for name in ("k0", "k1", "k2"):
            choice: dict[Any, float] = {
                ParameterAlias(f"{name}_regular"): probability_regular,
                ParameterAlias(f"{name}_any"): 1 - probability_regular,
            }
            parameters += [
                FuzzedParameter(f"{name}_any", 8, _LARGEST, "loguniform"),
                FuzzedParameter(f"{name}_regular", distribution=regular),
                FuzzedParameter(name, distribution=choice),
            ]
        x = FuzzedTensor(
            name="x", size=("k0", "k1", "k2"), steps=("step_0", "step_1", "step_2"),
            probability_contiguous=0.75, min_elements=64, max_elements=_LARGEST**2,
            dim_parameter="dim", dtype=torch.float64 if dtype is None else dtype, cuda=cuda,
        )  # fmt: skip
        super().__init__(parameters=parameters, tensors=[x], seed=seed)
