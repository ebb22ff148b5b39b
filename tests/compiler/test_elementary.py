"""Accuracy, special values and bit equality of the elementary functions of generated kernels.

Every function is compiled at several lane counts and compared with NumPy and SciPy in float64:
over random bit patterns of all exponents, over ordinary values, and at the edges. The helpers
above the tests also serve ``bench/elementary_accuracy.py``.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
special = pytest.importorskip("scipy.special")

from flambeau.compiler import targets  # noqa: E402
from flambeau.compiler.codegen.c.math import library  # noqa: E402
from flambeau.compiler.codegen.c.math.records import FUNCTIONS  # noqa: E402
from flambeau.compiler.codegen.c.printer.c_unit import render  # noqa: E402

C_TYPES = {"f32": "float", "f64": "double"}
LANES = (1, 4, 8, 16)

_NUMPY_NAMES = {
    name: f"arc{name[1:]}" for name in ("asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")
}


def _library_lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a pole, or beyond the largest number
        return math.inf


# SciPy's own erfc and gammaln lose digits at the ends of float64; its gammaln(-inf) is -inf,
# where C and PyTorch say +inf.
_REFERENCES = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": special.expit,
    "erf": special.erf,
    "erfc": np.vectorize(math.erfc, otypes=[np.float64]),
    "erfinv": special.erfinv,
    "lgamma": np.vectorize(_library_lgamma, otypes=[np.float64]),
    "digamma": special.digamma,
    "pow": np.power,
}

# Two roundings in rsqrt; the rest is within an ulp, or near it.
ULPS_F32 = {"rsqrt": 1.5, "expm1": 1.15, "exp": 1.05, "erf": 1.05}
ULPS_F32 |= {"tanh": 1.25, "sin": 1.2, "cos": 1.2, "sigmoid": 1.15}
# SciPy and math.lgamma are float64 oracles with errors of their own.
ULPS_F64 = {"digamma": 16, "lgamma": 16, "erfinv": 5}
EXACT = {"floor", "ceil", "trunc", "rint", "sqrt", "fmod", "nextafter"}


def compilers() -> list[tuple[str, ...]]:
    """Command lines of the C compilers at hand."""
    found = [(name,) for name in ("gcc", "clang") if shutil.which(name)]
    if importlib.util.find_spec("ziglang"):
        found.append((sys.executable, "-m", "ziglang", "cc"))
    return found


def loop(name: str, dtype: str, lanes: int) -> str:
    """C text of a function that applies ``name`` to arrays."""
    scalar, vector = C_TYPES[dtype], f"{dtype}x{lanes}"
    names = ("x", "y")[: FUNCTIONS[name]]
    parameters = "".join(f"const {scalar} *{argument}, " for argument in names)
    values = ", ".join(f"*(const {vector} *)({argument} + i)" for argument in names)
    return (
        f"void run_{name}_{dtype}x{lanes}({parameters}{scalar} *out, long n) {{\n"
        f"  for (long i = 0; i < n; i += {lanes})\n"
        f"    *({vector} *)(out + i) = fb_{name}_{vector}({values});\n}}\n"
    )


def build(
    folder: Path,
    compiler: tuple[str, ...],
    dtype: str,
    names: tuple[str, ...] = tuple(FUNCTIONS),
    lane_counts: tuple[int, ...] = LANES,
    target: str = "native",
) -> ctypes.CDLL:
    """Compiles the loops of all functions into one library."""
    loops = [loop(name, dtype, lanes) for lanes in lane_counts for name in names]
    source = folder / f"{Path(compiler[-1]).name}_{dtype}_{target}.c"
    source.write_text(render([("fb_loops", "".join(loops))], targets.current()))
    built = source.with_suffix(".so")
    flags = ["-O2", "-ffp-contract=off", f"-march={target}", "-fPIC", "-shared", "-Wall", "-Wextra"]
    subprocess.run([*compiler, *flags, "-o", built, source, "-lm"], check=True)
    return ctypes.CDLL(str(built))


def apply(library, name: str, dtype: str, lanes: int, *arrays):
    """The function over whole arrays, whose length is a multiple of 16."""
    out = np.empty_like(arrays[0])
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, out)]
    getattr(library, f"run_{name}_{dtype}x{lanes}")(*pointers, ctypes.c_long(out.size))
    return out


def reference(name: str, *arrays):
    """NumPy's or SciPy's result; for float32 arguments of inexact functions, in float64."""
    if name not in EXACT:
        arrays = tuple(array.astype(np.float64) for array in arrays)
    function = _REFERENCES.get(name) or getattr(np, _NUMPY_NAMES.get(name, name))
    with np.errstate(all="ignore"):
        return function(*arrays)


def inputs(dtype: str, count: int, seed: int = 0):
    """Random bit patterns, ordinary values, values near 1, and the edges."""
    random = np.random.default_rng(seed)
    floating = np.float32 if dtype == "f32" else np.float64
    unsigned = np.uint32 if dtype == "f32" else np.uint64
    limits = np.finfo(floating)
    patterns = random.integers(0, limits.max.view(unsigned), count, dtype=unsigned, endpoint=True)
    sign_bit = unsigned(1) << unsigned(limits.bits - 1)
    patterns |= np.where(random.integers(0, 2, count) == 1, sign_bit, unsigned(0))
    ordinary = random.standard_normal(count) * random.choice([0.5, 1, 3, 10, 50], count)
    near_one = 1 + random.standard_normal(count) * random.choice([1e-6, 1e-3, 0.1, 0.5], count)
    edges = [0.0, np.inf, np.nan, 0.5, 1, 1.5, 2, 3, 4, 1e5, np.pi, np.pi / 2, 8.49, 18, 87.4, 88.8]
    edges += [103.9, 104.1, 149, 150, 709.8, 745.2]
    edges += [limits.smallest_subnormal, limits.smallest_normal, limits.max]
    edges = np.array(edges, floating)
    x = np.concatenate([patterns.view(floating), ordinary, near_one, edges, -edges])
    return np.resize(x.astype(floating), -(-x.size // 16) * 16)


def arguments(name: str, dtype: str, count: int):
    """One or two arrays of arguments; the edges meet each other in the second array's order."""
    x = inputs(dtype, count)
    if FUNCTIONS[name] == 1:
        return (x,)
    edges = np.resize(x[-64:], 4096)
    order = np.random.default_rng(1).permutation
    first = np.concatenate([x, edges])
    return first, np.concatenate([order(x), order(edges)])


def ulp_errors(result, exact):
    """|result - exact| in units in the last place of ``result``'s dtype at ``exact``."""
    limits = np.finfo(result.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(result.dtype)
        exponent = np.maximum(np.frexp(np.abs(exact))[1] - 1, limits.minexp)
        unit = np.ldexp(1.0, exponent - limits.nmant)
        errors = np.abs(result.astype(np.float64) - exact) / unit
    same = (result == rounded) & np.isinf(rounded) | np.isnan(result) & np.isnan(rounded)
    return np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """Library by dtype, made by the first compiler found."""
    if not compilers():
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("elementary")
    return {dtype: build(folder, compilers()[0], dtype) for dtype in C_TYPES}


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - EXACT))
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_within_the_promised_error(libraries, name, dtype):
    arrays = arguments(name, dtype, 40_000)
    result = apply(libraries[dtype], name, dtype, 8, *arrays)
    exact = reference(name, *arrays)
    errors = ulp_errors(result, exact)
    if dtype == "f64" and name in ("lgamma", "digamma"):
        # Near their zeros Python's and SciPy's versions are the worse ones.
        errors = np.where((np.abs(exact) < 1) | (arrays[0] < 0), 0.0, errors)
    worst = int(np.argmax(errors))
    limit = (ULPS_F32 if dtype == "f32" else ULPS_F64).get(name, 1.0 if dtype == "f32" else 3)
    found = [array[worst] for array in arrays], result[worst], exact[worst]
    assert errors[worst] <= limit, found


@pytest.mark.parametrize("name", sorted(EXACT))
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_exact_functions_are_exact(libraries, name, dtype):
    arrays = arguments(name, dtype, 20_000)
    result = apply(libraries[dtype], name, dtype, 8, *arrays)
    np.testing.assert_array_equal(result, reference(name, *arrays))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_zeros_keep_their_sign(libraries, name, dtype):
    arrays = arguments(name, dtype, 1_000)
    result = apply(libraries[dtype], name, dtype, 8, *arrays)
    exact = reference(name, *arrays)
    if name == "erfinv":  # SciPy loses the sign of its argument's zero
        exact = np.where(arrays[0] == 0, arrays[0], exact)
    zeros = (exact == 0) & (result == 0)
    np.testing.assert_array_equal(np.signbit(result[zeros]), np.signbit(exact[zeros]))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_lane_count_does_not_change_a_bit(libraries, name, dtype):
    arrays = arguments(name, dtype, 20_000)
    results = [apply(libraries[dtype], name, dtype, lanes, *arrays) for lanes in LANES]
    unsigned = f"u{results[0].itemsize}"
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].view(unsigned), other.view(unsigned))


@pytest.mark.parametrize("compiler", compilers()[1:], ids=lambda command: command[-1])
def test_compiler_does_not_change_a_bit(libraries, tmp_path, compiler):
    other = build(tmp_path, compiler, "f32")
    for name in FUNCTIONS:
        arrays = arguments(name, "f32", 20_000)
        ours = apply(libraries["f32"], name, "f32", 16, *arrays)
        theirs = apply(other, name, "f32", 16, *arrays)
        np.testing.assert_array_equal(ours.view("u4"), theirs.view("u4"), err_msg=name)


def test_pow_follows_the_standard(libraries):
    """C99 F.9.4.4, one line per rule."""
    inf, nan = np.inf, np.nan
    cases = [
        (0.0, -3, inf), (-0.0, -3, -inf), (-0.0, -2, inf), (0.0, -inf, inf), (-1, inf, 1),
        (-1, -inf, 1), (1, nan, 1), (nan, 0, 1), (nan, -0.0, 1), (-8, 1 / 3, nan),
        (0.5, -inf, inf), (2, -inf, 0), (0.5, inf, 0), (2, inf, inf), (-inf, -3, -0.0),
        (-inf, -2, 0), (-inf, -0.5, 0), (-inf, 3, -inf), (-inf, 0.5, inf), (inf, -1, 0),
        (inf, 1, inf), (-0.0, 3, -0.0), (-0.0, 2.5, 0.0), (-2, 3, -8), (nan, 1, nan), (2, nan, nan),
    ]  # fmt: skip
    padded = np.resize(np.array(cases, np.float32), (32, 3))
    x, y, expected = (np.ascontiguousarray(column) for column in padded.T)
    for dtype, floating in (("f32", np.float32), ("f64", np.float64)):
        found = apply(libraries[dtype], "pow", dtype, 8, x.astype(floating), y.astype(floating))
        rounded = y != np.float32(1 / 3)
        np.testing.assert_array_equal(found[rounded], expected[rounded])
        zeros = expected == 0
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


def test_unknown_function_names_itself():
    with pytest.raises(NotImplementedError, match="bessel"):
        library.definition("fb_bessel_f32x8", targets.current())
    with pytest.raises(NotImplementedError, match="i32x8"):
        library.definition("fb_exp_i32x8", targets.current())
