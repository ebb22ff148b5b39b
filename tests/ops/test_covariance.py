"""Covariances of weighted observations in several dtypes, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch

DATA = np.random.default_rng(0).standard_normal((3, 6))
IMPORTANCE = np.array([0.3, 0.2, 0.7, 0.1, 0.9, 0.4])
TIMES = np.array([1, 2, 3, 1, 1, 4])


@pytest.mark.parametrize("times", [None, TIMES])
@pytest.mark.parametrize("correction", [0, 1])
def test_weights_of_a_wider_dtype(times, correction):
    x, importance = torch.from_numpy(DATA.astype("float32")), torch.from_numpy(IMPORTANCE)
    count = None if times is None else torch.from_numpy(times)
    found = torch.cov(x, correction=correction, fweights=count, aweights=importance)
    weights = {"fweights": times, "aweights": IMPORTANCE}
    exact = np.cov(DATA.astype("float32").astype("float64"), ddof=correction, **weights)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), exact, rtol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "weights", "expected"),
    [("int64", "float16", "float16"), ("int64", "float64", "float64"),
     ("float64", "float32", "float64"), ("complex64", "float64", "complex128")],
)  # fmt: skip
def test_dtype_of_the_result(dtype, weights, expected):
    x = torch.empty(2, 3, dtype=getattr(torch, dtype), device="meta")
    importance = torch.empty(3, dtype=getattr(torch, weights), device="meta")
    assert torch.cov(x, aweights=importance).dtype == getattr(torch, expected)
