"""Random arrays for property tests: shapes, layouts and dtypes, the same in both libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from hypothesis import HealthCheck
from hypothesis import strategies as st

import flambeau
from flambeau.language.samples import T, TensorSpec
from tests.ops.inputs import array, tensor_builder, values

LAYOUTS = ("contiguous", "transposed", "sliced", "expanded")
PLAIN = LAYOUTS[:1]
# Derandomised, so that a run compiles the same kernels as the one before.
SETTINGS: dict[str, Any] = {"deadline": None, "derandomize": True, "database": None,
                            "suppress_health_check": list(HealthCheck)}  # fmt: skip
TOLERANCE = {"f16": 2e-3, "f32": 2e-5, "c64": 2e-5}


def specs(rank: tuple[int, int] = (0, 3), smallest: int = 0, dtypes: str = "f32",
          low: float = -2.0, high: float = 2.0,
          layouts: Sequence[str] = LAYOUTS) -> st.SearchStrategy[TensorSpec]:  # fmt: skip
    """Tensors of these ranks, with sizes from `smallest` to 5, of these layouts."""
    sizes = st.lists(st.integers(smallest, 5), min_size=rank[0], max_size=rank[1])
    return st.builds(
        lambda shape, dtype, layout: T(*shape, dtype=dtype, low=low, high=high, layout=layout),
        sizes, st.sampled_from(dtypes.split()), st.sampled_from(layouts),
    )  # fmt: skip


def twins(spec: TensorSpec, position: int = 0) -> tuple[Any, numpy.ndarray]:
    """(tensor, array) of equal values."""
    dtype = spec.dtype or "f32"
    tensor = tensor_builder(flambeau)(spec, position, dtype)
    return tensor, values(spec, position, dtype).astype(array(tensor).dtype)


def near(found: Any, expected: Any, dtype: str = "f32", scale: float = 1.0) -> None:
    """Same shape, close values: exact for integers and truths.

    Args:
        scale: of the tolerance, where values are sums of many.
    """
    mine, theirs = array(found), numpy.asarray(expected)
    assert mine.shape == theirs.shape, f"{mine.shape}, expected {theirs.shape}"
    if mine.dtype.kind in "iub":
        numpy.testing.assert_array_equal(mine, theirs)
    else:
        bound = TOLERANCE.get(dtype, 1e-12) * scale
        numpy.testing.assert_allclose(mine, theirs, rtol=bound, atol=bound)
