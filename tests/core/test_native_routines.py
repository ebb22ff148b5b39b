"""Native routines against NumPy, called by name."""

from __future__ import annotations

import pytest

from flambeau import _core

np = pytest.importorskip("numpy")

DTYPES = {
    "f32": np.float32, "f64": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "u8": np.uint8, "bool": np.bool_, "c64": np.complex64, "c128": np.complex128,
    "f16": np.float16,
}  # fmt: skip
SORTABLE = ("f32", "f64", "f16", "i8", "i16", "i32", "i64", "u8", "bool")


def shared(array):
    """A tensor over an array's memory."""
    return _core.from_numpy(array)


def random(dtype, shape, seed=0):
    generator = np.random.default_rng(seed)
    kind = np.dtype(DTYPES[dtype])
    if kind.kind in "iub":
        return generator.integers(0 if kind.kind != "i" else -5, 6, shape).astype(kind)
    values = generator.standard_normal(shape)
    if kind.kind == "c":
        values = values + 1j * generator.standard_normal(shape)
    return values.astype(kind)


def sort(dtype, x, descending):
    values, indices = np.empty_like(x), np.empty(x.shape, np.int64)
    sizes = [x.shape[0], x.shape[1], int(descending)]
    _core.call_routine(f"sort_{dtype}", [shared(x), shared(values), shared(indices)], sizes)
    return values, indices


@pytest.mark.parametrize("dtype", SORTABLE)
@pytest.mark.parametrize("length", [1, 7, 100, 511, 3000])
def test_sort(dtype, length):
    x = random(dtype, (3, length))
    if dtype in ("f32", "f64", "f16"):
        x = np.round(x * 4) / 4  # ties
        x[1, ::5] = np.nan
        x[2, ::3] = -0.0
    values, indices = sort(dtype, x, False)
    expected = np.argsort(x, axis=1, kind="stable")
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))
    values, indices = sort(dtype, x, True)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1)[:, ::-1])
    keys = np.take_along_axis(x, indices, 1)
    same = (keys[:, 1:] == keys[:, :-1]) | (np.isnan(keys[:, 1:]) & np.isnan(keys[:, :-1]))
    assert (indices[:, 1:] > indices[:, :-1])[same].all()


def test_select():
    x = random("i32", (4, 900))
    for largest in (0, 1):
        for k in (1, 5, 500):
            values, indices = np.empty((4, k), np.int32), np.empty((4, k), np.int64)
            buffers = [shared(x), shared(values), shared(indices)]
            _core.call_routine("select_i32", buffers, [4, 900, 0, k, largest, 0])
            everything = sort("i32", x, largest)
            np.testing.assert_array_equal(values, everything[0][:, :k])
            np.testing.assert_array_equal(indices, everything[1][:, :k])
    value, index = np.empty(4, np.int32), np.empty(4, np.int64)
    buffers = [shared(x), shared(value), shared(index)]
    _core.call_routine("select_i32", buffers, [4, 900, 299, 1, 0, 0])
    np.testing.assert_array_equal(value, np.sort(x, axis=1)[:, 299])
    np.testing.assert_array_equal(index, np.argsort(x, axis=1, kind="stable")[:, 299])
    with pytest.raises(IndexError, match="place out of the row"):
        _core.call_routine("select_i32", buffers, [4, 900, 900, 1, 0])


def test_searchsorted():
    rows = np.sort(random("f32", (3, 50)), axis=1)
    values = random("f32", (3, 20), 1)
    values[:, :5] = rows[:, 10:15]
    out = np.empty((3, 20), np.int64)
    for right in (0, 1):
        buffers = [shared(rows), shared(values), shared(out)]
        _core.call_routine("searchsorted_f32", buffers, [3, 50, 20, right, 50])
        for r in range(3):
            side = "right" if right else "left"
            np.testing.assert_array_equal(out[r], np.searchsorted(rows[r], values[r], side))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
def test_scatter(axis, mode):
    base, index = random("f32", (5, 6, 7)), random("u8", (4, 5, 6)).astype(np.int64) % 5
    source = random("f32", (4, 5, 6), 1)
    expected = base.copy()
    for i in np.ndindex(*index.shape):
        at = (*i[:axis], index[i], *i[axis + 1 :])
        old, new = expected[at], source[i]
        expected[at] = {"set": new, "add": old + new, "mul": old * new, "max": max(old, new),
                        "min": min(old, new)}[mode]  # fmt: skip
    strides = [s // x.itemsize for x in (base, index, source) for s in x.strides]
    out = base.copy()
    buffers = [shared(out), shared(index), shared(source)]
    _core.call_routine(
        f"scatter_{mode}_f32", buffers, [3, axis, 4, 5, 6, *strides, base.shape[axis]]
    )
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("inner", [1, 3, 200])
@pytest.mark.parametrize("outer", [1, 6])
def test_put(inner, outer):
    count = 3000
    base = random("f32", (outer, 4, 5, inner))
    source = random("f32", (outer, count, inner), 1)
    generator = np.random.default_rng(2)
    rows, columns = generator.integers(0, 4, count), generator.integers(0, 5, count)
    expected = base.copy()
    for i in range(count):
        expected[:, rows[i], columns[i]] += source[:, i]
    out = base.copy()
    buffers = [shared(out), shared(source), shared(rows), shared(columns)]
    _core.call_routine("put_add_f32", buffers, [count, outer, inner, 2, 4, 5])
    np.testing.assert_array_equal(out, expected)


def test_unknown_routine():
    with pytest.raises(NotImplementedError, match="no native routine"):
        _core.call_routine("matmul_f8", [], [])
