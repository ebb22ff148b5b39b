"""Python values, NumPy, buffers and DLPack: values right, memory shared, lifetimes right."""

from __future__ import annotations

import gc
import math
import struct
import sys
import warnings
import weakref
from typing import Any

import pytest

from flambeau import _core
from flambeau.core import tensor as tensor_module

np = pytest.importorskip("numpy")
tensor_module.install()
make = _core.tensor_from_python

NUMPY_DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


# ------------------------------------------------------------------------------ Python values
@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1, "int64", ()),
        (1.5, "float32", ()),
        (True, "bool", ()),
        (1j, "complex64", ()),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        ([1, 2.5], "float32", (2,)),
        ([True, 2], "int64", (2,)),
        ([1, 2j], "complex64", (2,)),
        (range(4), "int64", (4,)),
        (bytearray(b"ab"), "int64", (2,)),
        ([(1, 2), [3, 4]], "int64", (2, 2)),
        ([np.float64(1), np.int32(2)], "float64", (2,)),
        ([np.ones(2), np.zeros(2)], "float64", (2, 2)),
        (np.float16(3), "float16", ()),
        ([make(1), 2.5], "float32", (2,)),
        ([make([1]), make([2])], "int64", (2,)),
    ],
)
def test_inference(data: Any, dtype: str, shape: tuple[int, ...]) -> None:
    t = make(data)
    assert t.dtype is getattr(_core, dtype) and t.shape == shape


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        ([[1, 2], [3]], ValueError, r"expected sequence of length 2 at dim 1 \(got 1\)"),
        ([[1, 2], [3, 4, 5]], ValueError, r"expected sequence of length 2 at dim 1 \(got 3\)"),
        ([[1], 2], TypeError, "not a sequence"),
        ([1, [2]], TypeError, "'list' object cannot be interpreted"),
        (["a"], ValueError, "too many dimensions 'str'"),
        ("a", TypeError, r"new\(\): invalid data type 'str'"),
        (None, RuntimeError, "Could not infer dtype of NoneType"),
        ([None], RuntimeError, "Could not infer dtype of NoneType"),
        ({1: 2}, RuntimeError, "Could not infer dtype of dict"),
        (2**63, ValueError, "Overflow when unpacking long long"),
        ([make([1.0, 2.0])], ValueError, "only one element tensors"),
    ],
)
def test_what_no_tensor_can_be_made_of(data: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make(data)


def test_lists_inside_themselves() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="too many dimensions"):
        make(loop)


def test_a_list_that_changes_while_it_is_read() -> None:
    class Nasty:
        def __init__(self, victim: list[Any]) -> None:
            self.victim = victim

        def item(self) -> float:
            self.victim.clear()
            return 1.0

    victim: list[Any] = [1.0] * 50
    victim[1] = Nasty(victim)
    with pytest.raises(RuntimeError, match="changed while it was read"):
        make(victim, _core.float32)


@pytest.mark.parametrize(
    ("value", "dtype", "good"),
    [
        (255, "uint8", 255),
        (-1, "uint8", 255),
        (256, "uint8", None),
        (-256, "uint8", None),
        (-0.5, "uint8", None),
        (127.5, "int8", None),
        (-128, "int8", -128),
        (1.9, "int64", 1),
        (2.0**63, "int64", None),
        (-(2.0**63), "int64", -(2**63)),
        (float("nan"), "int32", None),
        (2.5, "bool", True),
        (1e300, "float32", math.inf),
        (65519.9, "float16", 65504.0),
        (65520.0, "float16", math.inf),
        (2.0**-25, "float16", 0.0),
        (2.0**-24 * 1.5, "float16", 2.0**-23),
        (2**70, "float64", 2.0**70),
    ],
)
def test_range_of_scalars(value: Any, dtype: str, good: Any) -> None:
    if good is None:
        with pytest.raises(RuntimeError, match="without overflow"):
            make(value, getattr(_core, dtype))
    else:
        assert make(value, getattr(_core, dtype)).item() == good


def test_complex_needs_a_complex_dtype() -> None:
    with pytest.raises(TypeError, match="must be real number"):
        make(1j, _core.float32)


def test_half_conversions_are_exact() -> None:
    """Every float16 bit pattern survives; rounding agrees with NumPy around every value."""
    bits = np.arange(65536, dtype=np.uint16)
    half = bits.view(np.float16)
    t = _core.from_numpy(half.astype(np.float32))
    back = make(t, _core.float16).numpy()
    finite = ~np.isnan(half)
    assert (back.view(np.uint16)[finite] == bits[finite]).all() and np.isnan(back[~finite]).all()
    single = half.astype(np.float32)[finite & np.isfinite(half)]
    for direction in (-np.inf, np.inf):
        for factor in (1.0, 1.00024414):  # next to values, and near the midpoints
            near = np.nextafter(single * np.float32(factor), np.float32(direction))
            with np.errstate(over="ignore"):
                expected = near.astype(np.float16)
            found = make(_core.from_numpy(near), _core.float16).numpy()
            assert (found.view(np.uint16) == expected.view(np.uint16)).all()


def test_bfloat16_rounds_to_even() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = values[~np.isnan(values)]
    t = make(_core.from_numpy(values), _core.bfloat16)
    found = np.frombuffer(_core.tensor_bytes(t), np.uint16)
    wide = values.view(np.uint32).astype(np.uint64)
    expected = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
    assert (found == expected).all()
    assert math.isnan(make(float("nan"), _core.bfloat16).item())


def test_casts_of_large_integers_round_once() -> None:
    values = np.array([2**53 + 1, 2**24 + 1, 16777217 * 2**20 + 1, -(2**62) - 1])
    assert (make(_core.from_numpy(values), _core.float32).numpy() == values.astype("f4")).all()


# ------------------------------------------------------------------------------ NumPy
@pytest.mark.parametrize("name", NUMPY_DTYPES)
def test_numpy_shares_memory_both_ways(name: str) -> None:
    array = np.array([[0, 1, 2], [3, 4, 5]]).astype(name)
    t = _core.from_numpy(array)
    assert t.dtype is getattr(_core, name) and t.tolist() == array.tolist()
    assert t.data_ptr() == array.ctypes.data
    back = t.numpy()
    assert back.dtype == array.dtype and (back == array).all()
    back[0, 0] = 1
    assert array[0, 0] == 1


def test_strided_views_travel() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    for view in (array.T, array[:, ::2], array[..., 1], array[1:, :, ::3]):
        t = _core.from_numpy(view)
        assert t.tolist() == view.tolist()
        assert t.numpy().strides == view.strides or view.size == 0
    expanded = _core.from_numpy(np.broadcast_to(np.float64(2), (3, 2)).copy()[:, :1])
    assert expanded.numpy().shape == (3, 1)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    t = _core.from_numpy(np.empty(shape))
    assert t.shape == shape and t.numpy().shape == shape and t.numel() == 0


def test_lifetimes() -> None:
    array = np.arange(1000.0)
    reference = weakref.ref(array)
    t = _core.from_numpy(array)
    del array
    gc.collect()
    assert reference() is not None and t.tolist()[999] == 999
    out = t.numpy()
    del t
    gc.collect()
    assert out[999] == 999
    del out
    gc.collect()
    assert reference() is None
    made = make([1.0, 2.0, 3.0]).numpy()  # the tensor is gone, its memory is not
    assert made.tolist() == [1, 2, 3]


def test_exported_memory_cannot_be_resized() -> None:
    t = make([1.0, 2.0])
    array = t.numpy()
    with pytest.raises(RuntimeError, match="not resizable"):
        t.untyped_storage().resize_(1000)
    assert array.tolist() == [1, 2]


def test_numpy_refusals() -> None:
    with pytest.raises(ValueError, match="negative"):
        _core.from_numpy(np.ones(3)[::-1])
    with pytest.raises(ValueError, match="byte order"):
        _core.from_numpy(np.ones(3, ">f4"))
    with pytest.raises(ValueError, match="aligned"):
        _core.from_numpy(np.frombuffer(bytearray(9), "u1")[1:].view("f4"))
    for wrong in (
        np.array(["a"]),
        np.array([None]),
        np.ones(2, np.longdouble),
        np.ones(1, "M8[s]"),
    ):
        with pytest.raises(TypeError, match="can't convert np.ndarray"):
            _core.from_numpy(wrong)
    with pytest.raises(TypeError, match="expected np.ndarray"):
        _core.from_numpy([1])
    with pytest.raises(RuntimeError, match="requires grad"):
        make([1.0], requires_grad=True).numpy()
    with pytest.raises(TypeError, match="BFloat16"):
        make([1.0], _core.bfloat16).numpy()
    assert make([1.0], requires_grad=True).numpy(force=True) == 1


def test_read_only_arrays_warn() -> None:
    array = np.ones(2)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        _core.from_numpy(array)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make(array).tolist() == [1, 1]  # a copy needs no warning


def test_array_protocol() -> None:
    t = make([1.5, 2.5])
    assert np.asarray(t).ctypes.data == t.data_ptr()
    assert np.array(t, dtype="i4").tolist() == [1, 2]
    assert np.array(t, copy=True).ctypes.data != t.data_ptr()
    assert isinstance(np.add(t, 1), _core.Tensor) or np.add(t, 1).tolist() == [2.5, 3.5]


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float32, np.complex128])
def test_tensors_of_arrays_copy_every_geometry(dtype: type[np.generic]) -> None:
    array = np.arange(60).reshape(3, 1, 4, 5).astype(dtype)
    rows = np.broadcast_to(array[..., :1], (3, 1, 4, 7))
    for part in (
        array,
        array.T,
        array[:, :, ::2],
        array[:0],
        array[..., 1],
        rows,
        array[0, 0, 0, 0],
    ):
        for source in (np.asarray(part), _core.as_tensor(np.asarray(part))):
            t = make(source)
            assert t.is_contiguous()
            np.testing.assert_array_equal(t.numpy(), part)
            assert not np.shares_memory(t.numpy(), array)


def test_as_tensor_shares_what_it_can() -> None:
    t = make([1.0])
    array = np.ones(2, np.float32)
    assert _core.as_tensor(t) is t
    assert _core.as_tensor(array).data_ptr() == array.ctypes.data
    converted = _core.as_tensor(array, _core.float64)
    assert converted.dtype is _core.float64 and converted.tolist() == [1, 1]
    assert _core.as_tensor([1, 2], _core.int8).dtype is _core.int8


def test_operators_take_arrays_and_numpy_scalars() -> None:
    saved = {name: _core.get_operator(name) for name in ("sub", "rsub", "mul", "eq")}
    try:
        for name in saved:
            _core.set_operator(name, lambda *args, name=name: (name, *args))
        t, array = make([1.0, 2.0]), np.ones(2)
        name, left, right = t - array
        assert name == "sub" and left is t and right.data_ptr() == array.ctypes.data
        name, left, right = array - t
        assert name == "sub" and right is t and left.data_ptr() == array.ctypes.data
        assert np.float32(2.5) - t == ("rsub", t, 2.5)
        assert np.float64(2.5) * t == ("mul", t, 2.5) and type((t * np.int8(2))[2]) is int
        assert (t == array)[0] == "eq"
    finally:
        for name, function in saved.items():
            _core.set_operator(name, function)


# ------------------------------------------------------------------------------ buffers, bytes
def test_frombuffer() -> None:
    data = bytearray(struct.pack("<4h", 1, 2, 3, 4))
    t = _core.frombuffer(data, dtype=_core.int16, offset=2, count=2)
    assert t.tolist() == [2, 3]
    data[2] = 9
    assert t.tolist() == [9, 3]
    with pytest.raises(BufferError):
        data.append(1)  # held
    with pytest.warns(UserWarning, match="not writable"):
        _core.frombuffer(b"abcd", dtype=_core.uint8)


@pytest.mark.parametrize(
    ("length", "arguments"),
    [
        (0, {}),
        (5, {}),
        (4, {"count": 0}),
        (4, {"count": 3}),
        (4, {"count": 2**62}),
        (4, {"offset": -1}),
        (4, {"offset": 4}),
        (8, {"offset": 1, "count": 1}),
    ],
)
def test_frombuffer_ranges(length: int, arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        _core.frombuffer(bytearray(length), dtype=_core.int16, **arguments)


def test_frombuffer_types() -> None:
    with pytest.raises(ValueError, match="buffer protocol"):
        _core.frombuffer(3, dtype=_core.int16)
    with pytest.raises(TypeError):
        _core.frombuffer(bytearray(4))


def test_bytes_round_trip() -> None:
    t = _core.tensor_alias(make([[1, 2, 3], [4, 5, 6]]), (3, 2), (1, 3))
    raw = _core.tensor_bytes(t)
    assert raw == struct.pack("<6q", 1, 4, 2, 5, 3, 6)
    target = _core.tensor_alias(_core.tensor_empty((2, 3), _core.int64), (3, 2), (1, 3))
    _core.tensor_fill_bytes(target, raw)
    assert target.tolist() == t.tolist()
    with pytest.raises(ValueError, match="bytes"):
        _core.tensor_fill_bytes(target, raw[:-1])


def test_storages() -> None:
    t = make([1, 2], _core.int16)
    storage = t.untyped_storage()
    assert (storage.nbytes(), len(storage), storage.tolist()) == (4, 4, [1, 0, 2, 0])
    assert bytes(memoryview(storage)) == b"\1\0\2\0" and storage.device.type == "cpu"
    other = _core.UntypedStorage(8)
    other.resize_(16)
    assert other.nbytes() == 16
    with pytest.raises(RuntimeError):
        other.resize_(-1)
    with pytest.raises(RuntimeError, match="out of bounds"):
        _core.tensor_from_storage(other, _core.float64, (3,), (1,))
    with pytest.raises(ValueError, match="bytes"):
        other.fill_bytes(b"abc")


# ------------------------------------------------------------------------------ DLPack
@pytest.mark.parametrize("name", [n for n in NUMPY_DTYPES])
def test_dlpack_with_numpy(name: str) -> None:
    array = np.array([[0, 1, 2], [3, 4, 5]]).astype(name)
    t = _core.from_dlpack(array)
    assert t.tolist() == array.tolist() and t.data_ptr() == array.ctypes.data
    out = np.from_dlpack(t)
    assert out.dtype == array.dtype and out.tolist() == array.tolist()


def test_dlpack_lifetimes_and_bfloat16() -> None:
    t = make([1.0, 2.0], _core.bfloat16)
    for versions in ({}, {"max_version": (1, 0)}):
        capsule = t.__dlpack__(**versions)
        again = _core.from_dlpack(capsule)
        assert again.dtype is _core.bfloat16 and again.data_ptr() == t.data_ptr()
        with pytest.raises(RuntimeError, match="once"):
            _core.from_dlpack(capsule)
    unused = t.__dlpack__()
    del unused  # frees what it holds
    pointer = t.data_ptr()
    del t
    gc.collect()
    assert again.data_ptr() == pointer and again.tolist() == [1, 2]


def test_dlpack_arguments() -> None:
    t = make([1.0, 2.0])
    assert t.__dlpack_device__() == (1, 0)
    copied = _core.from_dlpack(t, copy=True)
    assert copied.data_ptr() != t.data_ptr() and copied.tolist() == [1, 2]
    with pytest.raises(BufferError, match="detach"):
        make([1.0], requires_grad=True).__dlpack__()
    with pytest.raises(BufferError):
        t.__dlpack__(dl_device=(2, 0))
    with pytest.raises(TypeError, match="no __dlpack__"):
        _core.from_dlpack(3)


def test_no_reference_leaks() -> None:
    array = np.ones(4)
    before = sys.getrefcount(array)
    for _ in range(100):
        _core.from_numpy(array).numpy()
        _core.from_dlpack(array)
        make(array)
        make([array, array])
        with pytest.raises(ValueError):
            _core.from_numpy(array[::-1])
    assert sys.getrefcount(array) == before
