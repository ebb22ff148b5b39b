"""Parameters that the fuzzers of operators share: dimensions, sizes, steps."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.utils.benchmark.utils.fuzzer import FuzzedParameter, ParameterAlias
from flambeau.utils.benchmark.utils.sparse_fuzzer import FuzzedSparseTensor

SMALLEST, LARGEST = 16, 16 * 1024**2
POWERS = tuple(2**power for power in range(int(math.log2(SMALLEST)), int(math.log2(LARGEST)) + 1))


def dimensions(first: int = 1) -> FuzzedParameter:
    """How many dimensions: one to three."""
    shares = {1: 0.3, 2: 0.4, 3: 0.3} if first == 1 else {2: 0.6, 3: 0.4}
    return FuzzedParameter("dim", distribution=shares)


def sizes(names: str, smallest: int = 4) -> list[FuzzedParameter]:
    """Sizes: half of them any number, the others powers of two, smaller ones more often."""
    powers = dict.fromkeys(POWERS, 1 / len(POWERS))
    parameters = []
    for name in names.split():
        any_number = FuzzedParameter(f"{name}_any", smallest, LARGEST, "loguniform")
        power = FuzzedParameter(f"{name}_power", distribution=powers)
        choice: dict[Any, float] = {
            ParameterAlias(f"{name}_any"): 0.6,
            ParameterAlias(f"{name}_power"): 0.4,
        }
        parameters += [any_number, power, FuzzedParameter(name, distribution=choice)]
    return parameters


def steps(prefix: str) -> list[FuzzedParameter]:
    """Steps of slices along three dimensions: mostly 1."""
    shares = {1: 0.8, 2: 0.06, 4: 0.06, 8: 0.04, 16: 0.04}
    return [FuzzedParameter(f"{prefix}_{number}", distribution=shares) for number in range(3)]


def broadcast(names: str, share: float = 0.2) -> list[FuzzedParameter]:
    """Sizes of a second operand: those of the first, or 1."""
    return [
        FuzzedParameter(f"other_{name}", distribution={ParameterAlias(name): 1 - share, 1: share})
        for name in names.split()
    ]


def seed_of() -> FuzzedParameter:
    """A seed of values."""
    return FuzzedParameter("random_value", 0, 2**32 - 1, "uniform")


def sparse(names: str, dtype: Any, cuda: bool) -> dict[str, Any]:
    """Parameters and tensors of a fuzzer of sparse operands of one shape, float32 by default."""
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
    parameters = [
        dimensions(2),
        sizes("k0 k1 k2"),
        seed_of(),
        FuzzedParameter("density", 0.1, 0.8, "uniform"),
        FuzzedParameter("coalesced", distribution={True: 0.5, False: 0.5}),
        FuzzedParameter("sparse_dim", distribution={1: 0.5, 2: 0.5}),
    ]
    size = ("k0", "k1", "k2")
    tensors = [FuzzedSparseTensor(name=name, size=size, **options) for name in names.split()]
    return {"parameters": parameters, "tensors": tensors}
