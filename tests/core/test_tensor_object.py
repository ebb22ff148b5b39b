"""The Tensor type itself: geometry, attributes, autograd flags, life cycle, copies, operators."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from flambeau import _core
from flambeau.core import tensor as tensor_module

tensor_module.install()
make = _core.tensor_from_python


class Sub(_core.Tensor):  # type: ignore[misc, name-defined]
    """A subclass, as users write them."""


@pytest.fixture
def operators() -> Iterator[None]:
    """Restores operators that a test replaces."""
    saved = {name: _core.get_operator(name) for name in _core.operator_names()}
    yield
    for name, function in saved.items():
        _core.set_operator(name, function)


# ------------------------------------------------------------------------------ geometry
def test_shape_and_strides() -> None:
    t = _core.tensor_empty((2, 3, 4), _core.float32)
    assert t.shape == (2, 3, 4) and type(t.shape) is _core.Size
    assert t.stride() == (12, 4, 1) and t.stride(-1) == 1
    assert (t.size(0), t.size(dim=-1), t.dim(), t.ndim, t.numel()) == (2, 4, 3, 3, 24)
    assert (t.itemsize, t.element_size(), t.nbytes, t.storage_offset()) == (4, 4, 96, 0)
    assert t.is_contiguous() and t.device == _core.device("cpu") and t.layout is _core.strided
    assert not (t.is_cuda or t.is_sparse or t.is_meta or t.is_quantized)


def test_size_is_a_tuple_with_extras() -> None:
    size = _core.Size([2, 3])
    assert repr(size) == "torch.Size([2, 3])" and size.numel() == 6
    for derived in (size + (1,), (1,) + size, size * 2, 2 * size, size[:1]):
        assert type(derived) is _core.Size
    assert hash(size) == hash((2, 3)) and size == (2, 3) and size[-1] == 3
    assert pickle.loads(pickle.dumps(size)) == size
    with pytest.raises(TypeError, match="item 1 is 'float'"):
        _core.Size([1, 2.5])


@pytest.mark.parametrize("dim", [3, -4, 2**62])
def test_dimension_out_of_range(dim: int) -> None:
    t = _core.tensor_empty((2, 3, 4))
    with pytest.raises(IndexError, match="Dimension out of range"):
        t.size(dim)
    with pytest.raises(IndexError, match="Dimension out of range"):
        t.stride(dim)


@pytest.mark.parametrize(
    "sizes", [(-1,), (2**62, 4), (2**40, 2**40), (2**63 - 1,), (3, -2), (2**32, 2**32, 0, -1)]
)
def test_bad_sizes_are_refused_before_allocation(sizes: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError):
        _core.tensor_empty(sizes, _core.float64)


def test_too_many_dimensions() -> None:
    assert _core.tensor_empty([1] * 64).ndim == 64
    with pytest.raises(RuntimeError, match="too many dimensions"):
        _core.tensor_empty([1] * 65)
    with pytest.raises(RuntimeError, match="too many dimensions"):
        _core.tensor_alias(make(1.0), [1] * 65, [1] * 65)


def test_empty_tensors_of_large_sizes() -> None:
    t = _core.tensor_empty((2**32, 0, 2**30))
    assert t.numel() == 0 and t.nbytes == 0 and t.stride() == (2**30, 2**30, 1)
    for overflowing in ((2**62, 2**62, 0), (0, 2**62, 2**62)):
        with pytest.raises(RuntimeError, match="overflow"):
            _core.tensor_empty(overflowing)


def test_allocation_failure_is_a_runtime_and_memory_error() -> None:
    with pytest.raises(RuntimeError, match="can't allocate memory") as caught:
        _core.tensor_empty((2**45,), _core.float32)
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, _core.OutOfMemoryError)


@pytest.mark.parametrize(
    ("sizes", "strides", "offset"),
    [
        ((7,), (1,), 0),
        ((2,), (-1,), 0),
        ((2,), (1,), 5),
        ((2,), (2**62,), 0),
        ((2**62, 2), (1, 1), 0),
        ((1,), (1,), -1),
        ((1,), (1,), 2**62),
        ((2, 2), (1,), 0),
        ((2, 2**33), (2**31, 2**31), 0),
    ],
)
def test_alias_is_bounds_checked(
    sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    t = make([0.0, 1, 2, 3, 4, 5])
    with pytest.raises(RuntimeError):
        _core.tensor_alias(t, sizes, strides, offset)


def test_alias_shares_memory_and_version() -> None:
    t = make([0.0, 1, 2, 3, 4, 5])
    view = _core.tensor_alias(t, (2, 2), (1, 3), 1)
    assert view.tolist() == [[1, 4], [2, 5]] and not view.is_contiguous()
    _core.tensor_fill_bytes(view, make([[9.0, 8], [7, 6]]).numpy().tobytes())
    assert t.tolist() == [0, 9, 7, 3, 8, 6]
    assert t._version == view._version == 1
    assert t.untyped_storage() is view.untyped_storage()
    assert view.is_set_to(_core.tensor_alias(t, (2, 2), (1, 3), 1)) and not view.is_set_to(t)


def test_channels_last() -> None:
    t = _core.tensor_empty_strided((2, 3, 4, 5), (60, 1, 15, 3))
    assert t.is_contiguous(memory_format=_core.channels_last) and not t.is_contiguous()
    plain = _core.tensor_empty((2, 3, 4, 5))
    assert not plain.is_contiguous(memory_format=_core.channels_last)
    with pytest.raises(TypeError):
        plain.is_contiguous(memory_format="channels_last")


def test_meta_tensors_have_no_data() -> None:
    t = _core.tensor_empty((2**30, 2**20), _core.float32, "meta")
    assert t.is_meta and t.device.type == "meta" and t.data_ptr() == 0
    small = _core.tensor_empty((), _core.float32, "meta")
    with pytest.raises(RuntimeError, match="meta"):
        small.item()
    with pytest.raises(NotImplementedError, match="meta"):
        t.tolist()


# ------------------------------------------------------------------------------ numbers
def test_conversion_to_python_numbers() -> None:
    assert float(make(2)) == 2.0 and int(make(-2.9)) == -2 and complex(make(1 + 2j)) == 1 + 2j
    assert bool(make([[2.0]])) and not bool(make(0))
    assert [5, 6, 7][make(1)] == 6 and list(range(make([3]))) == [0, 1, 2]
    assert make([1.5]).item() == 1.5 and make(True).item() is True


@pytest.mark.parametrize(
    ("convert", "value", "error"),
    [
        (float, [1.0, 2.0], ValueError),
        (int, [], ValueError),
        (complex, [1, 2], ValueError),
        (bool, [1, 2], RuntimeError),
        (bool, [], RuntimeError),
        (float, 1 + 2j, RuntimeError),
        (int, float("nan"), ValueError),
        (int, float("inf"), OverflowError),
        (range, 3.0, TypeError),
        (len, 1, TypeError),
        (iter, 1, TypeError),
    ],
)
def test_conversion_errors(convert: Any, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        convert(make(value))


def test_item_of_many() -> None:
    with pytest.raises(RuntimeError, match="a Tensor with 2 elements cannot be converted"):
        make([1, 2]).item()


def test_format() -> None:
    assert f"{make(1.5):.3f}" == "1.500" and f"{make([1, 2])}" == "tensor([1, 2])"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{make([1.0]):.1f}"


# ------------------------------------------------------------------------------ autograd slots
def test_requires_grad_flag() -> None:
    t = make([1.0])
    assert not t.requires_grad and t.is_leaf and t.grad_fn is None and t.grad is None
    assert t.requires_grad_() is t and t.requires_grad
    t.requires_grad = False
    assert not t.requires_grad
    with pytest.raises(RuntimeError, match="only Tensors of floating point"):
        make([1]).requires_grad_()
    with pytest.raises(RuntimeError, match="must be a bool"):
        t.requires_grad = 1


def test_grad_must_match() -> None:
    t = make([1.0, 2.0])
    t.grad = make([3.0, 4.0])
    assert t.grad.tolist() == [3, 4]
    with pytest.raises(TypeError, match="expected to be a Tensor or None"):
        t.grad = 3
    for wrong, match in ((make([1, 2]), "type"), (make([1.0]), "size"), (t, "own grad")):
        with pytest.raises(RuntimeError, match=match):
            t.grad = wrong
    t.grad = None
    assert t.grad is None


def test_data_and_detach() -> None:
    t = make([1.0, 2.0], requires_grad=True)
    for alias in (t.data, t.detach()):
        assert not alias.requires_grad and alias.data_ptr() == t.data_ptr()
    t.data = make([[5.0], [6.0], [7.0]])
    assert t.shape == (3, 1) and t.requires_grad and t.tolist() == [[5], [6], [7]]
    with pytest.raises(TypeError, match="has to be a tensor"):
        t.data = 3
    with pytest.raises(RuntimeError, match="floating point or complex"):
        t.data = make([1])


# ------------------------------------------------------------------------------ objects
def test_identity_hash_attributes_and_weakrefs() -> None:
    t, u = make([1.0]), make([1.0])
    assert len({t, u}) == 2 and hash(t) == hash(t)
    t.note = {"a": 1}
    assert t.__dict__ == {"note": {"a": 1}}
    reference = weakref.ref(t)
    assert reference() is t
    del t
    assert reference() is None


def test_cycles_are_collected() -> None:
    class Witness:
        pass

    t = make([1.0])
    t.me, t.witness = t, Witness()
    reference = weakref.ref(t.witness)
    del t
    gc.collect()
    assert reference() is None
    owner = make([1.0])
    owner.grad = make([2.0])
    owner.grad.owner = owner
    reference = weakref.ref(owner)
    del owner
    gc.collect()
    assert reference() is None


def test_recycled_tensors_start_clean() -> None:
    for _ in range(3):
        tensors = [make([1.0], requires_grad=True) for _ in range(600)]
        for t in tensors:
            t.mark = 1
            t.grad = make([2.0])
        del tensors, t
        fresh = make([1.0])
        assert not fresh.requires_grad and fresh.grad is None and not fresh.__dict__


def test_subclasses() -> None:
    base = make([1.0, 2.0])
    s = base.as_subclass(Sub)
    assert type(s) is Sub and s.data_ptr() == base.data_ptr()
    made = _core.Tensor._make_subclass(Sub, base, True)
    assert type(made) is Sub and made.requires_grad and made.is_leaf
    made.x = 3
    assert made.__dict__ == {"x": 3} and repr(made) == "Sub([1., 2.], requires_grad=True)"
    assert type(Sub([1, 2])) is Sub and Sub(2, 3).shape == (2, 3)
    with pytest.raises(TypeError, match="inherits from Tensor"):
        base.as_subclass(int)
    with pytest.raises(TypeError):
        _core.Tensor._make_subclass(Sub, 3)


def test_legacy_constructor() -> None:
    assert _core.Tensor().shape == (0,) and _core.Tensor(2, 3).shape == (2, 3)
    assert _core.Tensor(_core.Size((2, 1))).shape == (2, 1)
    assert _core.Tensor([1, 2]).dtype is _core.float32
    assert _core.Tensor((2, 3)).tolist() == [2, 3]
    with pytest.raises(TypeError):
        _core.Tensor(2.5)


# ------------------------------------------------------------------------------ copies
def test_pickle_keeps_sharing_and_attributes() -> None:
    t = make([0.0, 1, 2, 3])
    view = _core.tensor_alias(t, (2,), (2,), 1)
    a, b = pickle.loads(pickle.dumps((t, view)))
    assert b.tolist() == [1, 3] and a.untyped_storage() is b.untyped_storage()
    s = _core.Tensor._make_subclass(Sub, t, True)
    s.note = "x"
    restored = pickle.loads(pickle.dumps(s))
    assert type(restored) is Sub and restored.requires_grad and restored.note == "x"
    meta = pickle.loads(pickle.dumps(_core.tensor_empty((3,), None, "meta")))
    assert meta.is_meta and meta.shape == (3,)


@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "float16", "bfloat16", "complex64"])
def test_pickle_every_kind_of_dtype(name: str) -> None:
    t = make([[0, 1], [1, 0]], getattr(_core, name))
    restored = pickle.loads(pickle.dumps(t))
    assert restored.dtype is t.dtype and restored.tolist() == t.tolist()
    assert pickle.loads(pickle.dumps(t.dtype)) is t.dtype


def test_damaged_pickles_stay_in_bounds() -> None:
    storage = make([1.0]).untyped_storage()
    with pytest.raises(RuntimeError, match="out of bounds"):
        tensor_module.rebuild_tensor(storage, _core.float32, 0, (1000,), (1,))
    with pytest.raises(RuntimeError):
        tensor_module.rebuild_tensor(storage, _core.float32, -1, (1,), (1,))


def test_deepcopy() -> None:
    t = make([0.0, 1, 2, 3], requires_grad=True)
    t.grad = make([1.0, 1, 1, 1])
    t.note = [1]
    view = _core.tensor_alias(t, (2,), (2,), 1)
    a, b = copy.deepcopy((t, view))
    assert a.requires_grad and a.tolist() == t.tolist() and a.data_ptr() != t.data_ptr()
    assert a.grad.tolist() == [1] * 4 and a.grad is not t.grad and a.note is not t.note
    assert b.untyped_storage() is a.untyped_storage()
    assert copy.copy(t).data_ptr() == t.data_ptr()


def test_share_memory() -> None:
    t = make([1.0, 2.0])
    assert not t.is_shared() and t.share_memory_() is t and t.is_shared()
    assert t.tolist() == [1, 2] and t.share_memory_() is t


# ------------------------------------------------------------------------------ operators
def test_operators_dispatch_in_order(operators: None) -> None:
    t = make([1.0])
    for name in ("add", "sub", "rsub", "isub", "eq", "lt", "neg", "getitem", "matmul", "pow"):
        _core.set_operator(name, lambda *args, name=name: (name, *args))
    _core.set_operator("radd", None)
    _core.set_operator("rpow", None)
    assert t + 2 == ("add", t, 2) and 2 + t == ("add", t, 2)  # commutative
    assert 2**t == ("pow", 2, t)
    assert t - 2 == ("sub", t, 2) and 2 - t == ("rsub", t, 2)
    assert (t == 3)[0] == "eq" and (3 > t)[0] == "lt"
    assert (-t)[0] == "neg" and t[1:][0] == "getitem"
    assert (t @ t)[0] == "matmul" and (t**2)[0] == "pow"
    u = t
    u -= 1
    assert u == ("isub", t, 1)


def test_foreign_operands_follow_python(operators: None) -> None:
    class Other:
        def __radd__(self, left: Any) -> str:
            return "other"

    t = make([1.0])
    assert t + Other() == "other"
    assert (t == "a") is False and (t != None) is True  # noqa: E711
    for wrong in ("a", None, object()):
        with pytest.raises(TypeError, match="unsupported operand"):
            t - wrong
    with pytest.raises(TypeError):
        del t[0]


def test_operators_report_what_is_missing(operators: None) -> None:
    _core.set_operator("mul", None)
    with pytest.raises(NotImplementedError, match="mul"):
        make([1.0]) * 2
    with pytest.raises(ValueError, match="unknown operator"):
        _core.set_operator("nonsense", None)
    with pytest.raises(TypeError):
        _core.set_operator("mul", 3)


def test_setitem_and_contains(operators: None) -> None:
    seen = []
    _core.set_operator("setitem", lambda *args: seen.append(args))
    t = make([1.0, 2.0])
    t[0] = 5
    assert seen == [(t, 0, 5)]
    with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
        "a" in t  # noqa: B015


# ------------------------------------------------------------------------------ dtypes, devices
def test_dtype_objects() -> None:
    assert repr(_core.float32) == "torch.float32" and _core.float is _core.float32
    assert _core.bfloat16.itemsize == 2 and _core.complex64.is_complex
    assert _core.complex128.to_real() is _core.float64
    assert _core.float64.to_complex() is _core.complex128
    with pytest.raises(TypeError):
        _core.dtype()


def test_promotion() -> None:
    assert _core.promote_types(_core.uint8, _core.int8) is _core.int16
    assert _core.promote_types(_core.float16, _core.bfloat16) is _core.float32
    assert _core.result_type(make([1]), 1.5) is _core.float32
    assert _core.result_type(make([1.0]), make(1.0, _core.float64)) is _core.float32
    assert _core.result_type(make([1], _core.int8), 1000) is _core.int8
    assert _core.can_cast(_core.int64, _core.float16)
    assert not _core.can_cast(_core.float32, _core.int64)


def test_default_dtype() -> None:
    try:
        _core.set_default_dtype(_core.float64)
        assert make(1.0).dtype is _core.float64 and make(1j).dtype is _core.complex128
        with pytest.raises(TypeError, match="only floating-point types"):
            _core.set_default_dtype(_core.int64)
    finally:
        _core.set_default_dtype(_core.float32)


def test_finfo_and_iinfo() -> None:
    half = _core.finfo(_core.float16)
    assert (half.max, half.eps, half.bits) == (65504.0, 2.0**-10, 16)
    assert _core.iinfo(_core.int8).min == -128 and _core.iinfo(_core.int64).max == 2**63 - 1
    with pytest.raises(TypeError, match="requires a floating point"):
        _core.finfo(_core.int8)
    with pytest.raises(TypeError, match="requires an integer"):
        _core.iinfo(_core.float32)


def test_devices() -> None:
    device = _core.device("cuda", 1)
    assert (device.type, device.index, str(device)) == ("cuda", 1, "cuda:1")
    assert repr(_core.device("cpu")) == "device(type='cpu')"
    assert pickle.loads(pickle.dumps(device)) == device and device != _core.device("cuda")
    for wrong in ("", "foo", "cuda:", "cuda:01", "cuda:a", "cpu:999", ":1"):
        with pytest.raises(RuntimeError):
            _core.device(wrong)
    for absent, error in (("cuda", AssertionError), ("mps", NotImplementedError)):
        with pytest.raises(error, match="not available"):
            _core.tensor_empty((1,), None, absent)
    with _core.device("meta"):
        assert _core.tensor_empty((1,)).is_meta
    assert not _core.tensor_empty((1,)).is_meta


def test_threads_share_the_type_safely() -> None:
    errors = []

    def work() -> None:
        try:
            for _ in range(2000):
                t = make([1.0, 2.0], requires_grad=True)
                t.x = t.detach()
                assert t.x.tolist() == [1, 2]
        except Exception as error:  # pragma: no cover
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
