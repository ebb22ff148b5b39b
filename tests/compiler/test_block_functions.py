"""Block functions give the bits of compiled kernels, on every target, and touch no other memory.

Operands and results end at a page that nobody may touch, so that one element too many is a fault.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
from pathlib import Path

import numpy as np
import pytest
from kernel_reference import N0, R, decode, encode, reduce_canonical, run, scan

import flambeau as torch
from flambeau import _core
from flambeau.compiler import baseline, codegen, targets, toolchain
from flambeau.compiler.baseline import functions, reductions
from flambeau.ir import kernel as K
from flambeau.ir.dtypes import MEMORY, MINIFLOATS
from flambeau.ir.kernel import Kernel, Pass
from flambeau.ir.node import node

HALVES = ("f16", "bf16")
COUNTS = (1, 3, 16, 19, 500, 1024)
LENGTHS = (0, 1, 31, 32, 33, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097, 8193, 100000)
SHAPES = ((0, 3), (1, 64), (5, 1), (33, 7), (100, 64), (512, 5), (513, 64), (4097, 9), (9000, 3))
NUMPY = {"u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8", "u128": "V16", "i8": "i1", "i16": "i2"}
NUMPY |= {"i32": "i4", "i64": "i8", "f32": "f4", "f64": "f8"}
generator = np.random.default_rng(0)


def machine_runs(target):
    return target.features <= targets._processor_flags()


RUNNING = [
    target.name
    for target in targets.TARGETS.values()
    if machine_runs(target) and (Path(baseline.DIRECTORY) / f"{target.name}.so").exists()
]


class Guarded:
    """Memory in front of a page that may not be touched."""

    BYTES, PAGE = 1 << 21, mmap.PAGESIZE

    def __init__(self):
        self.memory = mmap.mmap(-1, self.BYTES + self.PAGE)
        self.bytes = np.frombuffer(self.memory, np.uint8)
        forbidden = self.bytes.ctypes.data + self.BYTES
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(forbidden), self.PAGE, 0) == 0

    def place(self, array):
        """A copy that ends where the memory does."""
        start = self.BYTES - array.nbytes
        self.bytes[max(0, start - 64) : start] = 0xA5
        copy = self.bytes[start : self.BYTES].view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy

    def untouched(self, array):
        """Whether the bytes in front of what was placed are as they were."""
        start = self.BYTES - array.nbytes
        return bool((self.bytes[max(0, start - 64) : start] == 0xA5).all())


class Library:
    """The block functions of a target, called through ctypes."""

    TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    def __init__(self, target):
        loaded = ctypes.CDLL(str(Path(baseline.DIRECTORY) / f"{target}.so"))
        self.addresses, self.slots = {}, [Guarded() for _ in range(5)]
        start = ctypes.addressof(ctypes.c_char.in_dll(loaded, "fb_block_names"))
        offsets = (ctypes.c_int32 * 10000).in_dll(loaded, "fb_block_offsets")
        for offset in offsets:
            name = ctypes.string_at(start)
            if not name:
                break
            self.addresses[name.decode()] = ctypes.addressof(offsets) + offset
            start += len(name) + 1

    def call(self, name, arrays, *numbers):
        """Calls a function on copies, and returns those."""
        placed = [slot.place(array) for slot, array in zip(self.slots, arrays)]
        self.run(name, placed, *numbers)
        assert all(slot.untouched(array) for slot, array in zip(self.slots, placed)), name
        return placed

    def run(self, name, arrays, *numbers):
        """Calls a function on arrays where they are."""
        pointers = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
        self.TYPE(self.addresses[name])(pointers, (ctypes.c_longlong * 6)(*numbers))

    def state(self, name):
        """Fresh memory of a state: any bits."""
        size = ctypes.c_longlong.from_address(self.addresses[f"state {name}"]).value
        return np.full(size, 0xFF, np.uint8)


@pytest.fixture(scope="module")
def libraries():
    assert targets.detect() in RUNNING, "no block functions\nhint: python -m tools.build_baseline"
    return {name: Library(name) for name in RUNNING}


def dtype_of(dtype):
    """NumPy's type of a dtype in value form."""
    return np.dtype("f4" if dtype in HALVES else "i4" if dtype == "bool" else NUMPY[MEMORY[dtype]])


def memory(dtype, count):
    """Random elements as they lie in memory: small and large numbers, and those at the limits."""
    kind = np.dtype(NUMPY[MEMORY[dtype]])
    if dtype == "bool":
        return generator.integers(0, 2, count).astype(np.uint8)
    if dtype in ("f32", "f64", *HALVES):
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 1e-40, 3e9, -2.0])
        numbers = generator.standard_normal(count) * generator.choice([1, 0.01, 50], count)
        numbers[::7] = generator.choice(special, numbers[::7].size)
        return numbers.astype(kind) if dtype[0] == "f" and dtype != "f16" else encode(
            numbers.astype(np.float32), dtype
        )  # fmt: skip
    elements = generator.integers(0, 256, (count, kind.itemsize), dtype=np.uint8)
    if kind.kind in "iu":
        elements[::3, 1:] = 0  # few and zero divisors, shifts
        elements[::9] = 0
        elements[::5] = generator.choice([0, 255], (elements[::5].shape[0], 1))
    return np.ascontiguousarray(elements).view(kind)[:, 0]


def values(array, dtype):
    """Elements in value form."""
    if dtype == "bool":
        return -(array != 0).astype(np.int32)
    return np.ascontiguousarray(decode(array, dtype)) if dtype in HALVES else array


def same(a, b, what):
    assert a.tobytes() == b.tobytes(), f"{what}\n{a}\n!=\n{b}"


# ------------------------------------------------------------------------------- pointwise


def pointwise(library, signature, operands, count):
    result = np.full(count, 7, np.uint8).astype(dtype_of(signature.result))
    return library.call(signature.name, [result, *operands], count)[0]


@pytest.mark.parametrize("count", COUNTS)
def test_targets_agree(libraries, count):
    """Of every pointwise function; in place, too, where the types allow."""
    for signature in functions.signatures():
        operands = [values(memory(dtype, count), dtype) for dtype in signature.operands]
        expected, *others = (
            pointwise(each, signature, operands, count) for each in libraries.values()
        )
        expected = expected.copy()
        for result in others:
            same(result, expected, signature.name)
        for library in libraries.values():
            if operands[-1].dtype == expected.dtype:
                placed = operands[-1].copy()
                library.run(signature.name, [placed, *operands[:-1], placed], count)
                same(placed, expected, f"{signature.name} in place")


def kernel_of(signature):
    """The kernel of one primitive on contiguous operands."""
    loads = [K.load(i, R, dtype) for i, dtype in enumerate(signature.operands)]
    value = node(signature.primitive, loads, (), signature.result)
    store = Pass(stores=((len(loads), R, value),))
    parameters = (*((dtype, "r") for dtype in signature.operands), (signature.result, "w"))
    return Kernel("map", parameters, 1, (), (), N0, (store,))


def test_kernels_agree(libraries):
    """Of every fifth pointwise function, through memory: loads, the primitive, stores."""
    library, count = libraries[targets.detect()], 100
    chosen = [
        each
        for each in functions.signatures()[::5]
        if not {*each.operands, each.result} & {"c32", "c64", "c128", *MINIFLOATS, "e2m1fnx2"}
    ]
    assert len(chosen) > 80
    codegen.build([kernel_of(signature) for signature in chosen])
    for signature in chosen:
        operands = [memory(dtype, count) for dtype in signature.operands]
        expected = np.zeros(count, NUMPY[MEMORY[signature.result]])
        run(kernel_of(signature), [*operands, expected], [count])
        blocks = [decoded(library, x, d) for x, d in zip(operands, signature.operands)]
        result = pointwise(library, signature, blocks, count).copy()
        same(encoded(library, result, signature.result), expected, signature.name)


def test_kernels_touch_no_other_memory():
    """Of vectors of which the last one is incomplete, results are stored by masks."""
    for signature in functions.signatures():
        sizes = {dtype_of(dtype).itemsize for dtype in (*signature.operands, signature.result)}
        if signature.primitive != "cast" or sizes != {4, 8} or "bool" in signature.operands:
            continue
        operand, result = (
            Guarded().place(memory(d, 3)) for d in (signature.operands[0], signature.result)
        )
        run(kernel_of(signature), [operand, result], [3])


def decoded(library, array, dtype):
    if dtype not in functions.ENCODED:
        return array
    result = np.zeros(array.size, dtype_of(dtype))
    return library.call(f"decode {dtype}", [result, array], array.size)[0].copy()


def encoded(library, array, dtype):
    if dtype not in functions.ENCODED:
        return array
    result = np.zeros(array.size, NUMPY[MEMORY[dtype]])
    return library.call(f"encode {dtype}", [result, array], array.size)[0].copy()


def test_every_primitive_has_functions():
    listed = {signature.primitive for signature in functions.signatures()}
    written = {"real", "imag", "complex"}  # in terms of real parts, before
    from flambeau.ir.spelling import SPELLINGS

    assert SPELLINGS.keys() - listed == written


# ------------------------------------------------------------------------------- moves


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize("width", functions.WIDTHS)
def test_moves(libraries, target, width):
    library, kind = libraries[target], np.dtype(NUMPY[functions.WIDTHS[width]])
    for count in COUNTS:
        x, empty = elements(kind, count * 3), np.zeros(count, kind)
        for stride in (0, 1, 3):
            span = x[: (count - 1) * stride + 1]
            gathered, _ = library.call(f"gather {width}", [empty, span], 1, count, 0, stride)
            same(gathered, x[np.arange(count) * stride], "gather")
            if stride:
                numbers = 1, count, 0, stride
                base, _ = library.call(f"scatter {width}", [span, x[:count]], *numbers)
                expected = span.copy()
                expected[::stride] = x[:count]
                same(base, expected, "scatter")
        positions = generator.permutation(count * 3)[:count].astype(np.int64)
        same(library.call(f"take {width}", [empty, x, positions], count)[0], x[positions], "take")
        base = library.call(f"give {width}", [x, positions, x[:count]], count)[0]
        expected = x.copy()
        expected[positions] = x[:count]
        same(base, expected, "give")


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize("width", functions.WIDTHS)
def test_moves_of_rows(libraries, target, width):
    library, kind = libraries[target], np.dtype(NUMPY[functions.WIDTHS[width]])
    for s, w, row, stride in ((3, 64, 70, 1), (16, 64, 64, 1), (5, 7, 0, 1), (9, 21, 50, 2)):
        at = np.arange(s)[:, None] * row + np.arange(w) * stride
        x, empty = elements(kind, int(at.max()) + 1), np.zeros((s, w), kind)
        numbers = s, w, row, stride
        block = library.call(f"gather {width}", [empty, x], *numbers)[0].copy()
        same(block, x[at], f"gather {s} x {w}")
        if row:
            expected = elements(kind, x.size)
            base = library.call(f"scatter {width}", [expected, block], *numbers)[0]
            expected[at] = block
            same(base, expected, f"scatter {s} x {w}")


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize("width", functions.WIDTHS)
def test_transposes(libraries, target, width):
    library, kind = libraries[target], np.dtype(NUMPY[functions.WIDTHS[width]])
    for s, w, stride in ((1, 3, 5), (8, 8, 8), (16, 64, 100), (13, 21, 13), (16, 9, 17)):
        x = elements(kind, (w - 1) * stride + s)
        expected = x[np.arange(s)[:, None] + np.arange(w) * stride]
        block = library.call(f"transpose {width}", [np.zeros_like(expected), x], s, w, stride)[0]
        same(block, expected, f"transpose {s} x {w}")


def test_positions_and_their_check(libraries):
    library = libraries[targets.detect()]
    x = generator.integers(-50, 50, (7, 37))
    numbers = (7, 37, 11, 1000, 3, -5)
    index = library.call("index", [np.zeros_like(x), x], *numbers)[0]
    same(index, 11 + np.arange(7)[:, None] * 1000 + np.arange(37) * 3 - 5 * x, "index")
    for size, strict in ((50, 0), (49, 0), (50, 1), (0, 0)):
        wrapped = np.where(x < 0, x + (0 if strict else size), x)
        good = (wrapped >= 0) & (wrapped < size)
        record = np.zeros(4, np.int64)
        y, _, record = library.call("check", [np.zeros_like(x), x, record], x.size, size, 2, strict)
        same(y, np.where(good, wrapped, 0), f"check {size}")
        first = [] if good.all() else [1, x[~good][0], size, 2]
        assert record.tolist() == (first or [0, 0, 0, 0])


def elements(kind, count):
    return generator.integers(0, 256, count * kind.itemsize).astype(np.uint8).view(kind)


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize("width", functions.WIDTHS)
def test_masked_moves_do_not_read_what_is_masked(libraries, target, width):
    library, kind = libraries[target], np.dtype(NUMPY[functions.WIDTHS[width]])
    for count in COUNTS:
        mask = -generator.integers(0, 2, count).astype(np.int32)
        mask[count // 2 :] = 0
        x, other, empty = elements(kind, count), elements(kind, 1), np.zeros(count, kind)
        expected = np.where(mask != 0, x, other[0])
        beyond = x[: max(1, count // 2)]
        arrays = [empty, beyond, mask, other]
        same(library.call(f"gatherif {width}", arrays, count, 1)[0], expected, "gatherif")
        positions = np.where(mask != 0, np.arange(count), 1 << 60)
        arrays = [empty, beyond, positions, mask, other]
        same(library.call(f"takeif {width}", arrays, count)[0], expected, "takeif")


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize("width", functions.WIDTHS)
def test_copies(libraries, target, width):
    library, kind = libraries[target], np.dtype(NUMPY[functions.WIDTHS[width]])
    for s, w in ((1, 1), (1, 7), (5, 1), (8, 64), (3, 33), (1024, 1), (1, 1024), (17, 30)):
        column, row, block = elements(kind, s), elements(kind, w), np.zeros((s, w), kind)
        spread = library.call(f"spread {width}", [block, column], s, w)[0]
        same(spread, np.repeat(column, w), "spread")
        same(library.call(f"repeat {width}", [block, row], s, w)[0], np.tile(row, s), "repeat")
        one = library.call(f"splat {width}", [block, row[:1]], s * w)[0]
        same(one, np.repeat(row[:1], s * w), "splat")


# ------------------------------------------------------------------------------- reductions


def reductions_of(operations):
    return [
        (operation, dtype) for operation in operations for dtype in reductions._dtypes(operation, 1)
    ]


REDUCTIONS = reductions_of(K.REDUCTIONS)


def reducible(dtype, shape, operation):
    """Values of a reduction, without zeros (of which NumPy's extremes take either)."""
    count = int(np.prod(shape))
    if dtype in ("f32", "f64", *HALVES):
        numbers = generator.standard_normal(count)
        if operation == "prod":
            numbers = 1 + numbers / 100
        numbers = values(encode(numbers.astype(dtype_of(dtype)), dtype), dtype).copy()
        if operation.startswith("arg"):
            numbers = np.round(numbers)
        if count > 40 and operation not in ("sum", "prod"):
            numbers[generator.integers(0, count, 2)] = np.nan
    else:
        numbers = values(memory(dtype, count), dtype)
    return numbers.reshape(shape)


def expected_of(operation, array, dtype):
    """The result along the last axis, in value form."""
    if dtype == "bool":
        return -reduce_canonical(operation, array != 0).astype(np.int32)
    with np.errstate(all="ignore"):
        result = np.asarray(reduce_canonical(operation, array))
    if operation.startswith("arg"):
        return result.astype(np.int64)
    return values(encode(result, dtype), dtype) if dtype in HALVES else result.astype(array.dtype)


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize(("operation", "dtype"), REDUCTIONS)
def test_reductions(libraries, target, operation, dtype):
    library, name = libraries[target], f"{operation} {dtype}"
    for length, step in itertools.product(LENGTHS, (512, 1024)):
        x, state = reducible(dtype, length, operation), library.state(f"reduce {name}")
        state = library.slots[2].place(state)
        for position in range(0, length, step):
            block = library.slots[1].place(x[position : position + step])
            library.run(f"reduce {name}", [state, block], block.size, position)
        expected = expected_of(operation, x, dtype)
        result = np.zeros(1, expected.dtype)
        library.run(f"reduced {name}", [result, state], length)
        same(result, expected, f"{name} of {length}")
        assert library.slots[2].untouched(state)
    for s, w in (
        (1, 0),
        (3, 1),
        (5, 3),
        (40, 7),
        (16, 32),
        (3, 100),
        (1, 512),
        (1, 700),
        (1, 1024),
    ):
        x = reducible(dtype, (s, w), operation)
        expected = expected_of(operation, x, dtype)
        result = np.zeros(s, expected.dtype)
        same(library.call(f"reducerows {name}", [result, x], s, w)[0], expected, f"{name} {s} {w}")


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize(("operation", "dtype"), REDUCTIONS)
def test_columns(libraries, target, operation, dtype):
    library, name = libraries[target], f"{operation} {dtype}"
    for extent, w in SHAPES:
        x, rows = reducible(dtype, (extent, w), operation), {1: 512, 3: 128}.get(w, 8)
        state = library.slots[2].place(library.state(f"columns {name}"))
        for k in range(0, extent, rows):
            block = library.slots[1].place(x[k : k + rows])
            library.run(f"columns {name}", [state, block], len(block), w, k, extent)
        expected = expected_of(operation, np.ascontiguousarray(x.T), dtype)
        result = library.slots[0].place(np.zeros(w, expected.dtype))
        library.run(f"columned {name}", [result, state], w, extent)
        same(result, expected, f"{name} of {extent} x {w}")
        assert library.slots[2].untouched(state) and library.slots[0].untouched(result)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_sums_are_those_of_kernels(libraries, dtype):
    library, name = libraries[targets.detect()], {"float32": "f32", "float64": "f64", "int8": "i8"}
    for length in LENGTHS:
        x = reducible(name[dtype], (length, 2), "sum")
        state = library.state(f"columns sum {name[dtype]}")
        for k in range(0, length, 64):
            arrays = [state, np.ascontiguousarray(x[k : k + 64])]
            library.run(f"columns sum {name[dtype]}", arrays, len(arrays[1]), 2, k, length)
        result = np.zeros(2, x.dtype)
        library.run(f"columned sum {name[dtype]}", [result, state], 2, length)
        columns = torch.from_numpy(x).sum(0, dtype=getattr(torch, dtype))
        rows = torch.from_numpy(np.ascontiguousarray(x.T)).sum(1, dtype=getattr(torch, dtype))
        same(result, columns.numpy(), f"{length} rows")
        same(result, rows.numpy(), f"{length} columns")


# ------------------------------------------------------------------------------- scans


def scans():
    for operation in K.SCANS:
        linear = operation == "linear"
        primitive = "linear_scan" if linear else f"cum{operation}"
        for dtype in reductions._dtypes(primitive, 1 + linear):
            yield operation, dtype
    for operation in ("argmax", "argmin"):
        for dtype in reductions._dtypes(f"cum{operation[3:]}", 1):
            yield operation, dtype


def running(operation, dtype, x, y):
    """The running values of columns, rounded at every step."""
    if operation not in ("sum", "prod", "linear"):
        return np.ascontiguousarray(scan(operation, x.T).T)
    result, before = np.empty_like(x), None
    for k in range(len(x)):
        with np.errstate(all="ignore"):
            if operation == "linear":
                before = y[k] if before is None else x[k] * before + y[k]
            else:
                start = np.zeros_like(x[k]) if operation == "sum" else np.ones_like(x[k])
                before = start if before is None else before
                before = before + x[k] if operation == "sum" else before * x[k]
        if dtype in HALVES:
            before = values(encode(before, dtype), dtype)
        result[k] = before
    return result


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize(("operation", "dtype"), list(scans()))
def test_scans(libraries, target, operation, dtype):
    library = libraries[target]
    name = f"{'scanat' if operation.startswith('arg') else 'scan'} {operation} {dtype}"
    for extent, w in ((1, 1), (40, 1), (1500, 1), (5, 3), (100, 17), (70, 64)):
        x, y = (reducible(dtype, (extent, w), operation) for _ in range(2))
        state = library.slots[3].place(library.state(name))
        expected, rows = running(operation, dtype, x, y), 1024 // w
        for k in range(0, extent, rows):
            blocks = [array[k : k + rows] for array in (x, y)]
            result, a, b = (
                slot.place(array)
                for slot, array in zip(
                    library.slots, [np.zeros_like(expected[k : k + rows]), *blocks]
                )
            )
            operands = [a, b] if operation == "linear" else [a]
            library.run(name, [result, state, *operands], len(a), w, k)
            same(result, expected[k : k + rows], f"{name} {extent} x {w}")
            assert library.slots[0].untouched(result) and library.slots[3].untouched(state)


# ------------------------------------------------------------------------------- the core


def test_the_core_finds_all_functions():
    assert baseline.available()
    baseline.load()
    pieces = functions.pieces(targets.current())
    listed = [name for piece in pieces for name, _ in (*piece.functions, *piece.constants)]
    assert len(listed) == len(set(listed)) and set(_core.block_function_names()) == set(listed)


def test_a_library_without_a_table_is_refused(tmp_path):
    missing = tmp_path / "missing.so"
    with pytest.raises(RuntimeError, match=r"\[baseline\] .*\nhint: "):
        _core.load_block_functions(str(missing))
    with pytest.raises(RuntimeError, match="it has no table"):
        _core.load_block_functions(_core.__file__)
    baseline.load()
    assert "add f32,f32>f32" in _core.block_function_names()


def test_a_library_of_another_interface_is_refused(tmp_path, monkeypatch):
    """A core of another version would call its functions with other operands."""

    def built(interface):
        monkeypatch.setattr(functions, "INTERFACE", interface)
        path = tmp_path / f"{interface}.so"
        toolchain.find().compile(functions.table([]), targets.TARGETS["generic"], path)
        return str(path)

    same, later = built(functions.INTERFACE), built(functions.INTERFACE + 1)
    baseline.load()
    names = _core.block_function_names()
    with pytest.raises(RuntimeError, match=r"another version of the core\nhint: run `./go build`"):
        _core.load_block_functions(later)
    assert _core.block_function_names() == names
    try:
        _core.load_block_functions(same)
        assert _core.block_function_names() == []
    finally:
        _core.load_block_functions(baseline.library())
