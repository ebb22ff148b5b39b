"""Random inputs of operators of two sparse tensors."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.utils.benchmark.op_fuzzers import shapes
from flambeau.utils.benchmark.utils.fuzzer import FuzzedParameter, Fuzzer
from flambeau.utils.benchmark.utils.sparse_fuzzer import FuzzedSparseTensor

__all__ = ["BinaryOpSparseFuzzer"]

_SIZES = "k0 k1 k2"


class BinaryOpSparseFuzzer(Fuzzer):
    """Two sparse tensors of one shape.

    Args:
        seed: of the parameters.
        dtype: of the tensors.
        cuda: False.

    Example:
        >>> from flambeau.utils.benchmark.op_fuzzers.sparse_binary import BinaryOpSparseFuzzer
        >>> tensors, _, _ = next(BinaryOpSparseFuzzer(seed=0).take(1))
        >>> sorted(tensors)
        ['x', 'y']
    """

    def __init__(self, seed: int | None, dtype: Any = None, cuda: bool = False) -> None:
        options: dict[str, Any] = {
            "max_elements": 1024**2,
            "min_elements": 64,
            "sparse_dim": "sparse_dim",
            "density": "density",
            "coalesced": "coalesced",
            "dim_parameter": "dim",
            "dtype": torch.float32 if dtype is None else dtype,
            "cuda": cuda,
        }
        super().__init__(
            parameters=[
                shapes.dimensions(2),
                shapes.sizes(_SIZES),
                shapes.seed_of(),
                FuzzedParameter("density", 0.1, 0.8, "uniform"),
                FuzzedParameter("coalesced", distribution={True: 0.5, False: 0.5}),
                FuzzedParameter("sparse_dim", distribution={1: 0.5, 2: 0.5}),
            ],
            tensors=[
                FuzzedSparseTensor(name="x", size=("k0", "k1", "k2"), **options),
                FuzzedSparseTensor(name="y", size=("k0", "k1", "k2"), **options),
            ],
            seed=seed,
        )
