"""Sorting and selection: the stable order whatever the length, the algorithm or the threads."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch

LENGTHS = (1, 2, 9, 64, 500, 512, 3000, 20_000, 70_000, 140_000)
DTYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "uint8", "bool")


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def rows_of(random, length, dtype):
    """Rows with ties, and with NaN, infinities and both zeros where the dtype has them."""
    shape = (1 if length > 10_000 else 3, length)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith("float"):
        rows = np.round(random.normal(size=shape) * 64) / 64
        for value in (np.nan, np.inf, -np.inf, 0.0, -0.0):
            rows[random.random(shape) < 0.02] = value
        return rows.astype(dtype)
    limits = np.iinfo(dtype)
    if random.random() < 0.5:
        return random.integers(0, 100, shape).astype(dtype)
    return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def places_of(rows, descending):
    """The stable order by NumPy, NaN greatest."""
    if not descending:
        return np.argsort(rows, axis=1, kind="stable")
    backwards = np.argsort(rows[:, ::-1], axis=1, kind="stable")
    return rows.shape[1] - 1 - backwards[:, ::-1]


def check(pair, rows, places):
    values, indices = (x.numpy() for x in pair)
    assert np.array_equal(indices, places)
    wanted = np.take_along_axis(rows, places, 1)
    assert np.ascontiguousarray(values).tobytes() == np.ascontiguousarray(wanted).tobytes()


def check_topk(pair, rows, places, before):
    """The values of the stable order, from as many places, equal ones in any order but one."""
    indices = pair[1].numpy()
    check(pair, rows, indices)
    wanted = np.take_along_axis(rows, places, 1)
    kind = rows.dtype.kind
    assert np.array_equal(np.take_along_axis(rows, indices, 1), wanted, equal_nan=kind == "f")
    assert all(len(set(row)) == len(row) for row in indices.tolist())
    assert before is None or np.array_equal(indices, before)
    return indices


@pytest.mark.parametrize("dtype", DTYPES)
def test_order(dtype):
    random = np.random.default_rng(DTYPES.index(dtype))
    for length in LENGTHS:
        rows = rows_of(random, length, dtype)
        x = torch.from_numpy(rows.copy())
        for descending in (False, True):
            places, before = places_of(rows, descending), {}
            for threads in (1, 2, 3, 7):
                torch.set_num_threads(threads)
                check(x.sort(1, descending=descending), rows, places)
                assert np.array_equal(x.argsort(1, descending=descending).numpy(), places)
                for k in {0, 1, min(5, length), length, -(-length // 9), length // 3}:
                    pair = x.topk(k, 1, largest=descending)
                    before[k] = check_topk(pair, rows, places[:, :k], before.get(k))
        ascending = places_of(rows, False)
        for threads in (1, 3):
            torch.set_num_threads(threads)
            for k in {1, length, -(-length // 3)}:
                pair = [y.unsqueeze(1) for y in x.kthvalue(k, 1)]
                check(pair, rows, ascending[:, k - 1 : k])


def test_medians_with_nan():
    rows = np.array([[1.0, np.nan, 3.0, np.nan], [4.0, 1.0, 2.0, 2.0]], dtype=np.float32)
    values, places = torch.from_numpy(rows).median(1)
    assert places.tolist() == [1, 2] and values[1].item() == 2.0 and values[0].isnan()


def test_gradient_of_selection():
    x = torch.randn(4, 5, 600, dtype=torch.float64, requires_grad=True)
    values, places = x.topk(7, 1 + 1)
    values.square().sum().backward()
    wanted = torch.zeros_like(x).scatter(2, places, 2 * values.detach())
    assert torch.equal(x.grad, wanted)
    y = torch.randn(5, 6, requires_grad=True)
    y.kthvalue(2, 0)[0].sum().backward()
    assert y.grad.sum() == 6 and torch.equal(y.grad.sum(0), torch.ones(6))


def test_compiled_is_eager():
    def program(x, k):
        return x.topk(k, 0), x.median(0)[0], x.kthvalue(2, 1)[1]

    compiled = torch.compile(program)
    for rows in (40, 41):
        x = torch.randn(rows, 33)
        eager, found = program(x, 3), compiled(x, 3)
        assert torch.equal(eager[0].values, found[0].values)
        assert torch.equal(eager[0].indices, found[0].indices)
        assert torch.equal(eager[1], found[1]) and torch.equal(eager[2], found[2])
