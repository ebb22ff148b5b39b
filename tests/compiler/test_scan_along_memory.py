"""Scans along memory are regrouped in vectors, those beside memory are not: the bits are equal."""

from __future__ import annotations

import numpy
import pytest

import flambeau as torch


def _values(length: int, dtype: str) -> numpy.ndarray:
    """Three rows with equals; floats also with both zeros, infinities and NaNs."""
    generator = numpy.random.default_rng(length)
    x = generator.integers(-3, 4, (3, length)).astype(dtype)
    if dtype == "float32":
        x[generator.random(x.shape) < 0.3] = -0.0
        x[generator.random(x.shape) < 0.1] = -numpy.inf
        x[2, generator.random(length) < 0.1] = numpy.nan
    return x


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 16, 31, 33, 257])
def test_extremes(length: int, dtype: str) -> None:
    x = _values(length, dtype)
    rows, columns = torch.from_numpy(x), torch.from_numpy(numpy.ascontiguousarray(x.T))
    for function in (torch.cummax, torch.cummin):
        along, beside = function(rows, 1), function(columns, 0)
        for a, b in zip(along, beside, strict=True):
            assert a.numpy().tobytes() == numpy.ascontiguousarray(b.numpy().T).tobytes()
    values = torch.cummax(rows, 1)[0].numpy()
    assert numpy.array_equal(values, numpy.maximum.accumulate(x, axis=1), equal_nan=True)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 100])
def test_integer_sums(length: int) -> None:
    x = _values(length, "int64")
    assert (torch.from_numpy(x).cumsum(1).numpy() == x.cumsum(1)).all()
    small = torch.from_numpy(x.astype("int8") * 50)
    wrapped = (x.astype("int8") * 50).cumsum(1, dtype="int8")
    assert (small.cumsum(1, dtype=torch.int8).numpy() == wrapped).all()


def test_runs() -> None:
    x = torch.tensor([4, 4, 1, 1, 1, 4, 0, 0])
    values, inverse, counts = torch.unique_consecutive(x, return_inverse=True, return_counts=True)
    assert values.tolist() == [4, 1, 4, 0]
    assert inverse.tolist() == [0, 0, 1, 1, 1, 2, 3, 3]
    assert counts.tolist() == [2, 3, 1, 2]
