"""Names of PyTorch's native core under `torch`: types, containers, archives, refusals."""

from __future__ import annotations

import copy
import io
import pickle
import zipfile

import pytest

import flambeau as torch


def test_every_late_name_loads():
    for name in torch._LAZY:
        assert getattr(torch, name, torch) is not torch, name
    assert torch.torch is torch and torch._C.ListType is torch.ListType


@pytest.mark.parametrize("name", ["int4", "uint7", "bits8", "quint8", "qint32"])
def test_dtypes_without_operators(name):
    dtype = getattr(torch, name)
    assert repr(dtype) == f"torch.{name}" and isinstance(dtype, torch.dtype)
    assert dtype == dtype and dtype != torch.int8 and hash(dtype) == hash(dtype)
    assert dtype.itemsize == {"qint32": 4}.get(name, 1)
    assert pickle.loads(pickle.dumps(torch.int8)) is torch.int8
    assert copy.copy(torch.float32) is torch.float32
    for call in (
        lambda: torch.zeros(2, dtype=dtype),
        lambda: torch.ones(2).to(dtype),
        lambda: torch.ones(2, dtype=torch.uint8).view(dtype),
        lambda: torch.result_type(torch.ones(1), torch.ones(1).to(dtype)),
        lambda: dtype.to_complex(),
        lambda: torch.nn.Linear(2, 2, dtype=dtype),
    ):
        with pytest.raises(NotImplementedError, match=f"torch.{name}"):
            call()
    with pytest.raises((TypeError, NotImplementedError)):
        torch.set_default_dtype(dtype)


def test_methods_of_absent_devices_and_quantized_tensors():
    x = torch.ones(2, dtype=torch.float64)
    assert x.dequantize().dtype == torch.float32
    for name, error in {
        "xpu": AssertionError, "mtia": AssertionError, "ipu": RuntimeError,
        "q_scale": NotImplementedError, "qscheme": NotImplementedError,
        "to_mkldnn": NotImplementedError,
    }.items():  # fmt: skip
        with pytest.raises(error, match="hint"):
            getattr(x, name)()
    with pytest.raises(RuntimeError, match="unknown parameter type"):
        x.record_stream(None)
    with pytest.raises(NotImplementedError, match="aten::cudnn_convolution"):
        torch.cudnn_convolution(x)
    assert torch.cudnn_is_acceptable(x) is False and torch.is_vulkan_available() is False
    assert repr(torch.per_tensor_affine) == "torch.per_tensor_affine"
    assert pickle.loads(pickle.dumps(torch.per_tensor_affine)) is torch.per_tensor_affine


def test_one_dnn_convolution_is_convolution():
    x, w = torch.randn(1, 2, 5, 5), torch.randn(4, 2, 3, 3)
    ours = torch.mkldnn_convolution(x, w, None, (1, 1), (2, 2), (1, 1), 1)
    assert torch.equal(ours, torch.conv2d(x, w, None, 2, 1))


def test_types_of_torch_script():
    kind = torch.ListType(torch.IntType.get())
    assert str(kind) == "List[int]" and kind == torch.ListType.ofInts()
    assert kind.getElementType() is torch.IntType.get() and kind.kind() == "ListType"
    table = torch.DictType(torch.StringType.get(), torch.OptionalType.ofTensor())
    assert table.annotation_str == "Dict[str, Optional[Tensor]]"
    union = torch.UnionType([torch.IntType.get(), torch.TensorType.get()])
    assert str(union) == "Union[Tensor, int]"
    assert torch.IntType.get().isSubtypeOf(union) and not union.isSubtypeOf(torch.IntType.get())
    assert torch.IntType.get().isSubtypeOf(torch.OptionalType(torch.IntType.get()))
    assert torch.unify_type_list([torch.IntType.get()] * 2) is torch.IntType.get()
    with pytest.raises(RuntimeError, match="Could not unify"):
        torch.unify_type_list([torch.IntType.get(), torch.TensorType.get()])
    with pytest.raises(TypeError, match="incompatible"):
        torch.OptionalType("int")
    assert torch.InferredType(kind).success() and torch.InferredType("no").reason() == "no"
    for name in ("Block", "Use", "TracingState", "Code"):
        with pytest.raises(TypeError, match="No constructor defined"):
            getattr(torch, name)()


def test_containers_and_loggers():
    values = torch.ScriptList([1, 2])
    values.extend([3])
    values[0] = 7
    assert list(values) == [7, 2, 3] and 7 in values and values.pop() == 3 and len(values) == 2
    table = torch.ScriptDict({1: 2})
    table[3] = 4
    assert list(table) == [1, 3] and dict(table.items()) == {1: 2, 3: 4}
    logger = torch.LockingLogger()
    logger.set_aggregation_type("x", torch.AVG)
    for value in (2, 4):
        logger.add_stat_value("x", value)
    assert logger.get_counter_val("x") == 3


def test_dispatch_keys():
    keys = torch.DispatchKeySet(torch.DispatchKey.CPU).add(torch.DispatchKey.AutogradCPU)
    assert keys.has(torch.DispatchKey.CPU) and repr(keys) == "DispatchKeySet(CPU, AutogradCPU)"
    assert torch.DispatchKeySet.from_raw_repr(keys.raw_repr()) == keys
    assert keys.highestPriorityTypeId() is torch.DispatchKey.AutogradCPU
    assert str(torch.DispatchKey.CPU) == "DispatchKey.CPU"


def test_archives_of_records():
    buffer = io.BytesIO()
    writer = torch.PyTorchFileWriter(buffer)
    writer.write_record("data/0", b"abc", 3)
    writer.write_end_of_file()
    reader = torch.PyTorchFileReader(io.BytesIO(buffer.getvalue()))
    assert reader.get_record("data/0") == b"abc" and reader.version() == 3
    assert reader.get_all_records() == ["data/0", "version"]
    with pytest.raises(RuntimeError, match="file not found"):
        reader.get_record("x")
    with pytest.raises(RuntimeError, match="failed reading"):
        torch.PyTorchFileReader(io.BytesIO(b"abc"))
    info = zipfile.ZipFile(io.BytesIO(buffer.getvalue())).infolist()[0]
    start = info.header_offset + 30 + len(info.filename) + len(info.extra)
    assert start % 64 == 0
    saved = io.BytesIO()
    torch.save({"x": torch.ones(2)}, saved)
    names = torch.PyTorchFileReader(io.BytesIO(saved.getvalue())).get_all_records()
    assert "data.pkl" in names


def test_namespaces_of_operators_and_classes():
    assert (
        repr(torch.ops.no_such_library) == "<module 'torch.ops.no_such_library' from 'torch.ops'>"
    )
    with pytest.raises(AttributeError, match="'no_such_library' object has no attribute 'nms'"):
        torch.ops.no_such_library.nms  # noqa: B018
    with pytest.raises(RuntimeError, match="Tried to instantiate class 'mine.Thing'"):
        torch.classes.mine.Thing()
    for load in (torch.ops.load_library, torch.classes.load_library):
        with pytest.raises(OSError, match="Could not load this library"):
            load("/no/such/library.so")


def test_ranges_of_sizes():
    torch.sym_constrain_range(3, min=1, max=5)
    torch.sym_constrain_range_for_size(3)
    with pytest.raises(RuntimeError, match=r"Invalid value range for 3 between \[4, 5\]"):
        torch.sym_constrain_range(3, min=4, max=5)
    assert torch.sym_fresh_size(3) == 3
    assert torch._C._jit_set_profiling_mode(False) is True
    assert torch._C._jit_set_profiling_mode(True) is False
