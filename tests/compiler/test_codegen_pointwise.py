"""Every pointwise primitive, for every dtype that C spells: equal bits on all targets, and NumPy's
values."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_reference import N0, NUMPY, R, const, decode, encode, op, run

from flambeau.compiler import codegen, targets
from flambeau.compiler.codegen.c.printer.c_printer import print_kernel
from flambeau.ir import kernel as K
from flambeau.ir.kernel import Kernel, Pass
from flambeau.ir.spelling import SPELLINGS
from flambeau.prims.record import PRIMITIVES
from flambeau.runtime import settings

TARGETS = [t for t in ("avx512", "avx2", "generic") if targets.detect() in ("avx512", t)]
FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("u8", "i8", "i16", "i32", "i64")
DTYPES = (*FLOATS, *INTEGERS, "bool")
BOOL_RESULT = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "signbit"}
# No public op of these is exact, or NumPy has none: values: see test_elementary.
INEXACT = {
    name for name, spelling in SPELLINGS.items()
    if spelling.c.get("f", "").startswith("fb_")
    and name not in ("abs", "sqrt", "floor", "ceil", "trunc", "round", "copysign", "sign",
                     "maximum", "minimum", "fmod")
}  # fmt: skip
DOMAIN = {"acosh": (1, 9), "atanh": (-0.9, 0.9), "erfinv": (-0.9, 0.9), "asin": (-1, 1),
          "acos": (-1, 1), "lgamma": (0.3, 9), "digamma": (0.3, 9), "pow": (0.1, 4),
          "zeta": (1.1, 9), "igamma": (0.1, 30), "igammac": (0.1, 30),
          "orthogonal_polynomial": (-1, 1)}  # fmt: skip


def values_of(dtype, name, operand):
    generator = np.random.default_rng(operand)
    if dtype == "bool":
        return generator.integers(0, 2, 67).astype(np.uint8)
    if dtype in INTEGERS:
        info = np.iinfo(NUMPY[dtype])
        if name == "pow":
            return generator.integers(0 if operand else -3 if info.min else 0, 5, 67).astype(
                info.dtype
            )
        edges = [info.min, info.max, 0, 1, info.max // 2, *((-1, -2) if info.min else ())]
        if name.startswith("shift") and operand:
            edges = [0, 1, 3, info.bits - 1]
        random = generator.choice(edges, 67)
        small = generator.integers(0 if not info.min else -20, 20, 67)
        mixed = np.where(generator.random(67) < 0.5, random, small)
        if name.startswith("shift") and operand:
            mixed = random
        if name in ("floor_div", "fmod", "remainder") and operand:
            mixed = np.where(mixed == 0, 3, mixed)
        return mixed.astype(info.dtype)
    if name == "orthogonal_polynomial" and operand:  # degrees, then Chebyshev's family
        whole = generator.integers(0, 12 if operand == 1 else 1, 67)
        return encode(whole.astype(np.float64 if dtype == "f64" else np.float32), dtype)
    low, high = DOMAIN.get(name, (-4, 4))
    values = generator.uniform(low, high, 67)
    if name not in DOMAIN:
        values[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.5, -1.5, 0.5]
        generator.shuffle(values)
    if name in ("sqrt", "rsqrt", "log", "log2", "log10", "log1p"):
        values = np.abs(values)
    return encode(values.astype(np.float32 if dtype != "f64" else np.float64), dtype)


def operand_count(name):
    texts = SPELLINGS[name].c.values()
    return max(
        i for i, mark in enumerate(("{a}", "{b}", "{c}"), 1) if any(mark in t for t in texts)
    )


def cases():
    for name, spelling in SPELLINGS.items():
        if name == "where":
            continue
        for dtype in (*FLOATS, *INTEGERS, "bool"):
            group = "b" if dtype == "bool" else "f" if dtype in FLOATS else "i"
            if group in spelling.c:
                yield name, dtype


def kernel_of(name, dtype):
    count, out_dtype = operand_count(name), "bool" if name in BOOL_RESULT else dtype
    value = op(name, *(K.load(i, R, dtype) for i in range(count)), dtype=out_dtype)
    return Kernel(
        "map", (*((dtype, "r"),) * count, (out_dtype, "w")), 1, (), (), N0,
        (Pass(stores=((count, R, value),)),),
    )  # fmt: skip


def cast_kernel(source, wanted):
    return Kernel(
        "map", ((source, "r"), (wanted, "w")), 1, (), (), N0,
        (Pass(stores=((1, R, op("cast", K.load(0, R, source), dtype=wanted)),)),),
    )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _all_kernels_at_once():
    """Kernels of one unit share what they have in common: far faster than one by one."""
    kernels = [cast_kernel(a, b) for a in DTYPES for b in DTYPES]
    kernels += [kernel_of(name, dtype) for name, dtype in cases()]
    for target in TARGETS:
        with settings.override(TARGET=target):
            codegen.build(kernels)


def result_of(name, dtype, arrays, target):
    out_dtype = "bool" if name in BOOL_RESULT else dtype
    kernel = kernel_of(name, dtype)
    out = np.zeros(len(arrays[0]), NUMPY[out_dtype])
    run(kernel, [*arrays, out], [len(out)], target=target)
    return out, out_dtype


def reference_of(name, dtype, arrays):
    if name == "nextafter" and dtype in ("f16", "bf16"):
        return _next_half(*arrays, dtype)
    operands = [decode(array, dtype) for array in arrays]
    if name == "copysign":
        return np.copysign(*operands)
    if name in ("shift_left", "shift_right"):
        return (np.left_shift if name.endswith("left") else np.right_shift)(*operands)
    if dtype == "bool":
        a, b = (*operands, operands[0])[:2]
        table = {"abs": a, "sign": a, "add": a | b, "mul": a & b, "maximum": a | b,
                 "minimum": a & b, "bitwise_not": ~a}  # fmt: skip
        if name in table:
            return table[name]
    with np.errstate(all="ignore"):
        if name in ("floor", "ceil", "trunc", "round") and dtype in INTEGERS:
            return operands[0]
        return PRIMITIVES[name].reference(operands, {})


def _next_half(a, b, dtype):
    x, y = decode(a, dtype), decode(b, dtype)
    ordered = np.where(a & 0x8000, 0x8000 - a.astype(np.int32), a.astype(np.int32) + 0)
    stepped = ordered + np.sign(np.nan_to_num(y - x, nan=0, posinf=1, neginf=-1)).astype(np.int32)
    bits = np.where(stepped < 0, 0x8000 - stepped, stepped).astype(np.uint16)
    value = np.where(x == y, y, decode(bits, dtype))
    return np.where(np.isnan(x) | np.isnan(y), np.float32(np.nan), value).astype(np.float32)


@pytest.mark.parametrize("name,dtype", list(cases()))
def test_primitive(name, dtype):
    arrays = [values_of(dtype, name, i) for i in range(operand_count(name))]
    results = [result_of(name, dtype, arrays, target) for target in TARGETS]
    out, out_dtype = results[0]
    for other, _ in results[1:]:
        assert other.tobytes() == out.tobytes()
    expected = reference_of(name, dtype, arrays)
    found = decode(out, out_dtype)
    if dtype in FLOATS and name in INEXACT | {"div", "rsqrt"}:
        tolerance = {"f64": 1e-12, "f32": 4e-6, "f16": 2e-3, "bf16": 1.6e-2}[dtype]
        np.testing.assert_allclose(found, expected, tolerance, tolerance)
    elif dtype in FLOATS and out_dtype != "bool":
        expected = decode(encode(np.asarray(expected, found.dtype), dtype), dtype)
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_array_equal(found, np.asarray(expected).astype(found.dtype))


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("wanted", [*FLOATS, *INTEGERS, "bool"])
def test_cast(source, wanted):
    array = values_of(source, "neg", 0)
    if source in FLOATS:
        big = [1e9, -1e9, 3e9, 1e20, -1e20, 300.7, -300.7, 65519.0, 65520.0, 1e-7, 6e-8, 3.4e38]
        decoded = decode(array, source)
        array = encode(np.concatenate([decoded, np.array(big, decoded.dtype)]), source)
    kernel = cast_kernel(source, wanted)
    results = []
    for target in TARGETS:
        out = np.zeros(len(array), NUMPY[wanted])
        run(kernel, [array, out], [len(array)], target=target)
        results.append(out)
    for other in results[1:]:
        assert other.tobytes() == results[0].tobytes()
    values, found = decode(array, source), decode(results[0], wanted)
    with np.errstate(all="ignore"):
        if wanted == "bool":
            expected = values != 0
        elif wanted in ("f16", "bf16"):
            expected = decode(encode(values.astype(np.float32), wanted), wanted)
        elif source in FLOATS and wanted in INTEGERS:
            wide = np.int64 if wanted == "i64" or (wanted == "u8" and source == "f64") else np.int32
            limit = 2.0 ** (np.iinfo(wide).bits - 1)
            inside = (values >= -limit) & (values < limit)
            expected = np.where(
                inside, np.where(inside, values, 0).astype(wide), np.iinfo(wide).min
            )
            expected = expected.astype(NUMPY[wanted])
        else:
            expected = values.astype(NUMPY[wanted])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_every_half_value_survives(half):
    """Load, widen, round and store all 65536 patterns; NaNs stay NaNs."""
    array = np.arange(65536, dtype=np.uint16)
    wide = op("cast", K.load(0, R, half), dtype="f32")
    kernel = Kernel(
        "map", ((half, "r"), ("f32", "w"), (half, "w")), 1, (), (), N0,
        (Pass(stores=((1, R, wide), (2, R, op("cast", wide, dtype=half)))),),
    )  # fmt: skip
    first = None
    for target in TARGETS:
        single, back = np.zeros(65536, np.float32), np.zeros(65536, np.uint16)
        run(kernel, [array, single, back], [65536], target=target)
        nan = np.isnan(decode(array, half))
        np.testing.assert_array_equal(single, decode(array, half))
        assert (back[~nan] == array[~nan]).all() and np.isnan(decode(back[nan], half)).all()
        first = first or (single.tobytes(), back.tobytes())
        assert first == (single.tobytes(), back.tobytes())


def test_division_by_zero_does_not_trap():
    for dtype in INTEGERS:
        info = np.iinfo(NUMPY[dtype])
        a = np.array([info.min, info.max, 0, 5] * 5, NUMPY[dtype])
        b = np.array([0, 0, 0, 0, -1 if info.min else 1] * 4, NUMPY[dtype])
        for name in ("floor_div", "fmod", "remainder"):
            for target in TARGETS:
                out, _ = result_of(name, dtype, [a, b], target)
                assert (out[b == 0] == 0).all()


def test_shift_counts_out_of_range():
    a = np.array([1, -1, 5, -8], np.int32)
    b = np.array([32, 40, -1, 31], np.int32)
    for target in TARGETS:
        assert result_of("shift_left", "i32", [a, b], target)[0].tolist() == [0, 0, 0, 0]
        assert result_of("shift_right", "i32", [a, b], target)[0].tolist() == [0, -1, 0, -1]


def test_constants_keep_their_bits():
    for dtype, number in [("f32", 0.1), ("f32", -0.0), ("f64", 0.1), ("f16", 0.1), ("bf16", 0.1),
                          ("i64", -(2**63)), ("i64", 2**63 - 1), ("i32", -(2**31)), ("u8", 255),
                          ("i8", -128), ("bool", True), ("f32", float("inf")),
                          ("f16", 1e9)]:  # fmt: skip
        kernel = Kernel(
            "map", ((dtype, "w"),), 1, (), (), N0, (Pass(stores=((0, R, const(number, dtype)),)),)
        )
        out = np.zeros(20, NUMPY[dtype])
        run(kernel, [out], [20])
        wanted = np.array([number], np.float64 if dtype == "f64" else np.float32)
        if dtype not in FLOATS:
            wanted = np.array([number], NUMPY[dtype])
        elif dtype != "f64":
            wanted = encode(wanted, dtype)
        assert out.tobytes() == np.repeat(wanted, 20).tobytes(), dtype


def test_what_is_not_spelled_is_refused_by_name():
    kernel = Kernel(
        "map", (("bool", "r"), ("bool", "w")), 1, (), (), N0,
        (Pass(stores=((1, R, op("sub", K.load(0, R, "bool"), K.load(0, R, "bool"))),)),),
    )  # fmt: skip
    with pytest.raises(NotImplementedError, match=r"'sub' for bool\nhint"):
        print_kernel(kernel, targets.TARGETS["generic"])
