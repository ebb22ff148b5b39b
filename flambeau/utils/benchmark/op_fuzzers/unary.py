"""Random inputs of operators of one tensor."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.utils.benchmark.op_fuzzers import shapes
from flambeau.utils.benchmark.utils.fuzzer import FuzzedTensor, Fuzzer

__all__ = ["UnaryOpFuzzer"]

_SIZES = "k0 k1 k2"


class UnaryOpFuzzer(Fuzzer):
    """A tensor of one to three dimensions.

    Args:
        seed: of the parameters.
        dtype: of the tensors.
        cuda: False.

    Example:
        >>> from flambeau.utils.benchmark.op_fuzzers.unary import UnaryOpFuzzer
        >>> tensors, _, _ = next(UnaryOpFuzzer(seed=0).take(1))
        >>> sorted(tensors)
        ['x']
    """

    def __init__(self, seed: int | None, dtype: Any = None, cuda: bool = False) -> None:
        options: dict[str, Any] = {
            "max_elements": 32 * 1024**2,
            "min_elements": 4 * 1024,
            "probability_contiguous": 0.75,
            "dim_parameter": "dim",
            "dtype": torch.float32 if dtype is None else dtype,
            "cuda": cuda,
        }
        super().__init__(
            parameters=[
                shapes.dimensions(),
                shapes.sizes(_SIZES),
                shapes.seed_of(),
                shapes.steps("x_step"),
            ],
            tensors=[
                FuzzedTensor(
                    name="x",
                    size=("k0", "k1", "k2"),
                    steps=("x_step_0", "x_step_1", "x_step_2"),
                    **options,
                ),
            ],
            seed=seed,
        )
