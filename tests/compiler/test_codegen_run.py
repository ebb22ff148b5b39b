"""Compiled kernels compute what their grammar says, for every size, target and chunk split."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_reference import (
    KK,
    N0,
    N1,
    N2,
    P0,
    R,
    chunks_of,
    const,
    decode,
    encode,
    op,
    reduce_canonical,
    run,
    scan,
)

from flambeau.compiler import targets
from flambeau.ir import kernel as K
from flambeau.ir import size as S
from flambeau.ir.kernel import Kernel, Pass, ReducePass, RowStores, ScanPass

TARGETS = [target.name for target in targets.of_this_machine()]
SIZES = [*range(0, 71), 127, 128, 129, 4095, 4096, 4097]
generator = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return generator.standard_normal(shape).astype(dtype)


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape and a.dtype == b.dtype
    assert a.tobytes() == b.tobytes(), f"{a}\n!=\n{b}"


def map_kernel(value, parameters, count=1, scalars=()):
    store = Pass(stores=((len(parameters) - 1, R, value),))
    return Kernel("map", tuple(parameters), count, tuple(scalars), (), N0, (store,))


# ------------------------------------------------------------------------------- map


@pytest.mark.parametrize("target", TARGETS)
def test_map_of_every_size(target):
    a, b = K.load(0, R, "f32"), K.load(1, R, "f32")
    value = op("mul", op("add", a, b), const(0.5))
    kernel = map_kernel(value, [("f32", "r"), ("f32", "r"), ("f32", "w")])
    for n in [*SIZES, 8191, 8192, 8193, 30000]:
        x, y = normal(n), normal(n)
        out = np.full(n + 8, 7, np.float32)
        run(kernel, [x, y, out], [n], target=target)
        same(out[:n], (x + y) * np.float32(0.5))
        assert (out[n:] == 7).all()


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_doubles_between_floats(target, compared):
    """Batch norm and what follows it: computed in float64, from float32 to float32."""
    x, shift = K.load(0, R, "f32"), K.load(1, P0, "f64")
    wide = op("cast", x, dtype="f64")
    centred = op("sub", wide, shift)
    if compared:
        less = op("lt", centred, wide, dtype="bool")
        centred = op("where", less, centred, op("neg", wide), dtype="f64")
    half = op("cast", op("mul", centred, K.scalar(0, "f64")), dtype="f32")
    value = op("where", op("lt", half, x, dtype="bool"), op("mul", half, half), x, dtype="f32")
    store = Pass(stores=((2, S.add(S.mul(P0, N0), R), value),))
    parameters = (("f32", "r"), ("f64", "r"), ("f32", "w"))
    kernel = Kernel("map", parameters, 2, ("f64",), (N1,), N0, (store,))
    for n in SIZES:
        a, b = normal(3 * n).reshape(3, n), normal(3, dtype=np.float64)
        out = np.zeros((3, n), np.float32)
        run(kernel, [a, b, out], [n, 3], scalars=[0.7], target=target)
        doubles = a.astype(np.float64)
        apart = doubles - b[:, None]
        apart = np.where(apart < doubles, apart, -doubles) if compared else apart
        small = (apart * 0.7).astype(np.float32)
        same(out[0], np.where(small < a, small * small, a)[0])  # each row reads the first one


@pytest.mark.parametrize("target", TARGETS)
def test_map_chunks_may_be_split(target):
    kernel = map_kernel(op("neg", K.load(0, R, "f32")), [("f32", "r"), ("f32", "w")])
    x, out = normal(50000), np.zeros(50000, np.float32)
    assert chunks_of(kernel, [50000]) == 7
    run(kernel, [x, out], [50000], target=target, splits=[1, 2, 5])
    same(out, -x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "i64", "u8", "i16", "bool"])
def test_rows_with_strides_broadcasts_and_gaps(target, dtype):
    """out[p, r] = x[r, p] or y[p] + z[2 r]: strided, row-scalar and gathered loads."""
    strided = K.load(0, S.add(P0, S.mul(R, N2)), dtype)
    scalar = K.load(1, P0, dtype)
    spaced = K.load(2, S.mul(R, 2), dtype)
    condition = K.load(3, R, "bool")
    value = op("where", condition, strided, op("maximum", scalar, spaced), dtype=dtype)
    kernel = Kernel(
        "map",
        ((dtype, "r"),) * 3 + (("bool", "r"), (dtype, "w")),
        4,
        (),
        (N1,),
        N0,
        (Pass(stores=((4, S.add(S.mul(P0, N0), R), value),)),),
    )
    for width, height in [(1, 3), (7, 5), (16, 2), (37, 4), (64, 3), (70, 1)]:
        x = encode(decode(_random(dtype, width * height), dtype), dtype).reshape(width, height)
        y, z = _random(dtype, height), _random(dtype, 2 * width)
        mask = generator.integers(0, 2, width).astype(np.uint8)
        out = np.zeros((height, width), x.dtype)
        run(kernel, [x, y, z, mask, out], [width, height, height, 2], target=target)
        best = np.maximum(decode(y, dtype)[:, None], decode(z, dtype)[None, ::2])
        expected = np.where(mask != 0, decode(x, dtype).T, best)
        same(out, encode(expected, dtype))


def _random(dtype, n):
    if dtype == "bool":
        return generator.integers(0, 2, n).astype(np.uint8)
    if dtype in ("u8", "i8", "i16", "i32", "i64"):
        kind = {"u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
        info = np.iinfo(kind[dtype])
        return generator.integers(info.min, info.max, n, dtype=kind[dtype], endpoint=True)
    if dtype == "f64":
        return normal(n, dtype=np.float64)
    return encode(normal(n), dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_masked_loads_do_not_touch_memory(target):
    """Padding: elements outside of [2, n + 2) are the fill value; x itself ends at a guard."""
    inside = op(
        "bitwise_and",
        op("ge", K.index(R), const(2, "i64"), dtype="bool"),
        op("lt", K.index(R), K.index(S.add(N1, 2)), dtype="bool"),
    )
    value = K.load(0, S.sub(R, 2), "f32", mask=inside, other=K.encode_constant(1.5, "f32"))
    kernel = map_kernel(value, [("f32", "r"), ("f32", "w")], count=2)
    for n in (0, 1, 5, 16, 31, 40):
        x, out = normal(n), np.zeros(n + 5, np.float32)
        run(kernel, [x, out], [n + 5, n], target=target)
        same(out, np.concatenate([[1.5, 1.5], x, [1.5] * 3]).astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_data_dependent_loads(target):
    index = K.load(1, R, "i64")
    d0 = S.symbol("d0")
    value = K.load(0, S.add(S.mul(d0, 3), 1), "f32", inputs=[index])
    folded = K.load(0, S.mod(S.add(d0, R), N1), "f32", inputs=[index])
    kernel = map_kernel(op("sub", value, folded), [("f32", "r"), ("i64", "r"), ("f32", "w")], 2)
    for n in (1, 7, 8, 16, 17, 50):
        x, at = normal(90), generator.integers(0, 29, n)
        out = np.zeros(n, np.float32)
        run(kernel, [x, at, out], [n, 90], target=target)
        same(out, x[at * 3 + 1] - x[(at + np.arange(n)) % 90])


@pytest.mark.parametrize("target", TARGETS)
def test_index_errors_are_reported_and_clamped(target):
    checked = op("check_index", K.load(1, R, "i64"), size=N1, parameter=3, dimension=2)
    value = K.load(0, S.symbol("d0"), "f32", inputs=[checked])
    kernel = map_kernel(value, [("f32", "r"), ("i64", "r"), ("error", "w"), ("f32", "w")], 2)
    kernel = Kernel(
        "map", (("f32", "r"), ("i64", "r"), ("f32", "w"), ("error", "w")), 2, (), (), N0,
        (Pass(stores=((2, R, value),)),),
    )  # fmt: skip
    x, error = normal(10), np.zeros(4, np.int64)
    at = np.array([0, -1, 9, -10] * 5)
    out = np.zeros(20, np.float32)
    run(kernel, [x, at, out, error], [20, 10], target=target)
    same(out, x[at])
    assert not error.any()
    at[13] = 10
    run(kernel, [x, at, out, error], [20, 10], target=target)
    assert error.tolist() == [1, 10, 10, 2]
    error[:] = 0
    run(kernel, [x, at, out, error], [20, 0], target=target)
    assert error[0] == 1


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_complex_numbers_are_moved(dtype):
    number = {"c64": np.complex64, "c128": np.complex128}[dtype]
    spaced = K.load(0, S.mul(R, 2), dtype)
    value = op("where", K.load(1, R, "bool"), spaced, const(1.5 - 2j, dtype), dtype=dtype)
    kernel = map_kernel(value, [(dtype, "r"), ("bool", "r"), (dtype, "w")])
    for target in TARGETS:
        for n in (1, 3, 4, 9, 33):
            x = (normal(2 * n) + 1j * normal(2 * n)).astype(number)
            mask = generator.integers(0, 2, n).astype(np.uint8)
            out = np.zeros(n, number)
            run(kernel, [x, mask, out], [n], target=target)
            same(out, np.where(mask != 0, x[::2], number(1.5 - 2j)))


def test_scalars():
    value = op(
        "where",
        K.scalar(2, "bool"),
        op("mul", K.load(0, R, "f32"), op("cast", K.scalar(0, "f64"), dtype="f32")),
        op("cast", K.scalar(1, "i64"), dtype="f32"),
        dtype="f32",
    )
    kernel = map_kernel(value, [("f32", "r"), ("f32", "w")], scalars=["f64", "i64", "bool"])
    x, out = normal(20), np.zeros(20, np.float32)
    run(kernel, [x, out], [20], [0.25, 7, 1])
    same(out, x * np.float32(0.25))
    run(kernel, [x, out], [20], [0.25, 7, 0])
    same(out, np.full(20, 7, np.float32))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "u8"])
def test_tiled_transpose(target, dtype):
    turned = K.load(0, S.add(P0, S.mul(R, N1)), dtype)
    value = op("maximum", turned, K.load(1, R, dtype))
    kernel = Kernel(
        "map", ((dtype, "r"), (dtype, "r"), (dtype, "w")), 3, (), (N1,), N0,
        (Pass(stores=((2, S.add(S.mul(P0, N0), R), value),)),), tiled=True,
    )  # fmt: skip
    for height, width in [(1, 1), (5, 70), (64, 64), (130, 65), (200, 33)]:
        x, y = _random(dtype, height * width).reshape(width, height), _random(dtype, width)
        out = np.zeros((height, width), x.dtype)
        run(kernel, [x, y, out], [width, height, 1], target=target)
        same(out, encode(np.maximum(decode(x, dtype).T, decode(y, dtype)), dtype))


# ------------------------------------------------------------------------------- row, column

REDUCTIONS = [
    ("sum", "f32"), ("sum", "f64"), ("sum", "i64"), ("prod", "f32"), ("max", "f32"),
    ("min", "f32"), ("max", "i64"), ("min", "i16"), ("max", "u8"), ("argmax", "f32"),
    ("argmin", "f32"), ("argmax", "i64"), ("argmax", "u8"), ("argmin", "f64"), ("any", "bool"),
    ("all", "bool"), ("sum", "i32"), ("max", "bf16"), ("xor", "i64"), ("xor", "i16"),
]  # fmt: skip


def reduction_kernels(operation, dtype):
    """The same reduction of a [rows, length] array as "row" and, transposed, as "column"."""
    result = "i64" if operation.startswith("arg") else dtype
    parameters = ((dtype, "r"), (result, "w"))
    done = K.reduced("a", result)
    along_r = K.load(0, S.add(S.mul(P0, N0), R), dtype)
    row = Kernel(
        "row", parameters, 3, (), (N1,), N0,
        (Pass(reductions=(("a", operation, along_r),)), RowStores(((1, P0, done),))),
    )  # fmt: skip
    along_k = K.load(0, S.add(S.mul(KK, N1), R), dtype)
    column = Kernel(
        "column", parameters, 3, (), (), N1,
        (ReducePass(reductions=(("a", operation, along_k),)), Pass(stores=((1, R, done),))),
        reduce=N0,
    )  # fmt: skip
    return row, column


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operation,dtype", REDUCTIONS)
def test_reductions(target, operation, dtype):
    row, column = reduction_kernels(operation, dtype)
    for length in [*range(0, 67, 3), 16, 32, 64, 100, 4096, 4097, 9000]:
        for rows in (1, 5) if length < 60 else (3, 70):
            x = _random(dtype, rows * length).reshape(rows, length)
            if operation == "prod":
                x = (1 + x * np.float32(0.01)).astype(x.dtype)
            expected = reduce_canonical(operation, decode(x, dtype))
            if operation.startswith("arg"):
                expected = expected.astype(np.int64)
            else:
                with np.errstate(all="ignore"):
                    expected = encode(expected, dtype)
            out = np.zeros(rows, expected.dtype)
            run(row, [x, out], [length, rows, 2], target=target)
            same(out, expected)
            out = np.zeros(rows, expected.dtype)
            turned = np.ascontiguousarray(x.T)
            run(column, [turned, out], [length, rows, 1], target=target)
            same(out, expected)


@pytest.mark.parametrize("target", TARGETS)
def test_sum_beyond_two_levels(target):
    row, _ = reduction_kernels("sum", "f32")
    length = 4096 * 4096 + 4096 * 3 + 5
    x = normal(length)
    out = np.zeros(1, np.float32)
    run(row, [x, out], [length, 1, 1], target=target)
    same(out, reduce_canonical("sum", x[None]))


@pytest.mark.parametrize("target", TARGETS)
def test_nan_and_signed_zeros_in_extrema(target):
    for operation, zero in (("max", 0.0), ("min", -0.0)):
        row, column = reduction_kernels(operation, "f32")
        for length in (2, 40, 5000):
            for flip in (False, True):
                x = np.zeros((2, length), np.float32)
                x[0, 1 :: 2 if flip else 1] = -0.0
                x[1] = normal(length)
                x[1, length // 2] = np.nan
                for kernel, memory in ((row, x), (column, np.ascontiguousarray(x.T))):
                    out = np.ones(2, np.float32)
                    run(kernel, [memory, out], [length, 2, 1], target=target)
                    assert np.isnan(out[1]) and out[0] == 0
                    if flip:
                        assert np.signbit(out[0]) == np.signbit(zero)
    row, column = reduction_kernels("argmax", "f32")
    x = normal(2, 5000)
    x[0, [77, 4500]] = np.nan
    x[1, [4200, 30, 4900]] = 9
    for kernel, memory in ((row, x), (column, np.ascontiguousarray(x.T))):
        out = np.zeros(2, np.int64)
        run(kernel, [memory, out], [5000, 2, 1], target=target)
        assert out.tolist() == [77, 30]


def softmax_kernel():
    x = K.load(0, S.add(S.mul(P0, N0), R), "f32")
    largest = K.reduced("m", "f32")
    power = op("exp", op("sub", x, largest))
    scale = op("div", K.kept("e", "f32"), K.reduced("s", "f32"))
    return Kernel(
        "row", (("f32", "r"), ("f32", "w")), 3, (), (N1,), N0,
        (
            Pass(reductions=(("m", "max", x),)),
            Pass(reductions=(("s", "sum", power),), keeps=(("e", power),)),
            Pass(stores=((1, S.add(S.mul(P0, N0), R), scale),)),
        ),
    )  # fmt: skip


def column_softmax_kernel():
    x = K.load(0, S.add(S.mul(KK, N1), R), "f32")
    power = op("exp", op("sub", x, K.reduced("m", "f32")))
    scale = op("div", power, K.reduced("s", "f32"))
    return Kernel(
        "column", (("f32", "r"), ("f32", "w")), 3, (), (), N1,
        (
            ReducePass(reductions=(("m", "max", x),)),
            ReducePass(reductions=(("s", "sum", power),)),
            ReducePass(stores=((1, S.add(S.mul(KK, N1), R), scale),)),
        ),
        reduce=N0,
    )  # fmt: skip


def test_softmax_has_the_same_bits_everywhere():
    row, column = softmax_kernel(), column_softmax_kernel()
    for rows, length in [(1, 1), (3, 5), (2, 17), (5, 64), (70, 100), (3, 5000)]:
        x = normal(rows, length)
        results = []
        for target in TARGETS:
            for splits in (None, list(range(1, rows, 2))):
                out = np.zeros_like(x)
                run(row, [x, out], [length, rows, 1], target=target, splits=splits)
                results.append(out)
            turned, out = np.ascontiguousarray(x.T), np.zeros((length, rows), np.float32)
            run(column, [turned, out], [length, rows, 1], target=target)
            results.append(np.ascontiguousarray(out.T))
        for result in results:
            same(result, results[0])
        power = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        np.testing.assert_allclose(results[0], power / power.sum(1, keepdims=True), 2e-6)


def test_column_hoists_what_depends_on_columns_only():
    """Batch-norm-like: (x - mean) * rsqrt(variance + eps) per column."""
    count = op("cast", K.index(N0), dtype="f32")
    x = K.load(0, S.add(S.mul(KK, N1), R), "f32")
    mean = op("div", K.reduced("s", "f32"), count)
    distance = op("sub", x, mean)
    inverse = op("rsqrt", op("add", op("div", K.reduced("v", "f32"), count), const(1e-5)))
    kernel = Kernel(
        "column", (("f32", "r"), ("f32", "w")), 3, (), (), N1,
        (
            ReducePass(reductions=(("s", "sum", x),)),
            ReducePass(reductions=(("v", "sum", op("mul", distance, distance)),)),
            ReducePass(stores=((1, S.add(S.mul(KK, N1), R), op("mul", distance, inverse)),)),
        ),
        reduce=N0,
    )  # fmt: skip
    for target in TARGETS:
        x = normal(50, 83)
        out = np.zeros_like(x)
        run(kernel, [x, out], [50, 83, 1], target=target)
        double = x.astype(np.float64)
        expected = (double - double.mean(0)) / np.sqrt(double.var(0) + 1e-5)
        np.testing.assert_allclose(out, expected, 1e-5, 1e-6)


def test_blocks_of_a_long_sum_may_be_separate_kernels():
    """Two kernels, blocks and then their results, give the bits of one."""
    one, _ = reduction_kernels("sum", "f32")
    length = S.minimum(4096, S.sub(N0, S.mul(P0, 4096)))
    block = K.load(0, S.add(S.mul(P0, 4096), R), "f32")
    first = Kernel(
        "row", (("f32", "r"), ("f32", "w")), 3, (), (N1,), length,
        (
            Pass(reductions=(("a", "sum", block),)),
            RowStores(((1, P0, K.reduced("a", "f32")),)),
        ),
    )  # fmt: skip
    for n in (1, 4096, 4097, 50000):
        x, blocks = normal(n), -(-n // 4096)
        whole, parts, out = (np.zeros(k, np.float32) for k in (1, blocks, 1))
        run(one, [x, whole], [n, 1, 1])
        run(first, [x, parts], [n, blocks, 1])
        run(one, [parts, out], [blocks, 1, 1])
        same(out, whole)


# ------------------------------------------------------------------------------- scan


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "operation,dtype",
    [("sum", "f32"), ("sum", "i64"), ("prod", "f64"), ("max", "f32"), ("min", "i32"),
     ("argmax", "f32"), ("argmin", "i64"), ("argmax", "u8")],
)  # fmt: skip
@pytest.mark.parametrize("along_rows", [False, True])
def test_scans(target, operation, dtype, along_rows):
    result = "i64" if operation.startswith("arg") else dtype
    index = S.add(S.mul(KK, N1), R)
    if along_rows:  # x is [rows, length], one row a time
        index = S.add(S.mul(P0, N0), KK)
    x = K.load(0, index, dtype)
    kernel = Kernel(
        "scan", ((dtype, "r"), (result, "w")), 3, (), (N1,) if along_rows else (),
        1 if along_rows else N1,
        (ScanPass((("c", operation, x),), ((1, index, K.carry("c", result)),)),), reduce=N0,
    )  # fmt: skip
    for length, columns in [(1, 1), (5, 3), (40, 70), (3, 64)]:
        shape = (columns, length) if along_rows else (length, columns)
        x = _random(dtype, length * columns).reshape(shape)
        if operation.startswith("arg"):
            x = x % 4 if dtype in ("u8", "i64") else np.round(x)
        if dtype == "f32" and length > 10:
            x[7 if along_rows else 4, 2] = np.nan
        axis_last = x if along_rows else x.T
        with np.errstate(all="ignore"):
            expected = scan(operation, axis_last)
        out = np.zeros(shape, expected.dtype)
        run(kernel, [x, out], [length, columns, 2], target=target)
        found = out if along_rows else out.T
        if expected.dtype.kind == "f":
            assert np.array_equal(found, expected, equal_nan=True)
        else:
            assert np.array_equal(found, expected)
