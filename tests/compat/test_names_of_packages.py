"""Private and absent parts of PyTorch that packages import: present, and honest."""

from __future__ import annotations

import collections
import io
import sys

import pytest

import flambeau as torch
from flambeau.nn.attention import flex_attention as flex


def test_torch_imports_itself():
    assert torch.torch is torch


def test_capture_under_its_private_names():
    dynamo = torch._dynamo
    model = torch.compile(torch.nn.Linear(2, 2))
    assert isinstance(model, dynamo.eval_frame.OptimizedModule)
    assert not dynamo.is_compiling() and issubclass(dynamo.exc.Unsupported, RuntimeError)
    dynamo.mark_dynamic(torch.ones(2), 0)
    dynamo.mark_static_address(torch.ones(2))


def test_onnx_is_refused():
    assert not torch.onnx.is_in_onnx_export()
    torch.onnx.register_custom_op_symbolic("docs::nothing", lambda g: None, 11)
    with pytest.raises(NotImplementedError, match="hint"):
        torch.onnx.export(torch.nn.Linear(1, 1), (torch.ones(1),), "x.onnx")
    from flambeau.onnx import symbolic_opset11

    with pytest.raises(NotImplementedError, match="symbolic_opset11.squeeze"):
        symbolic_opset11.squeeze(None)


def test_quantization_does_nothing_in_float32():
    x = torch.ones(2)
    quantization = torch.ao.quantization
    assert quantization.QuantWrapper(torch.nn.Identity())(x) is x
    functional = torch.ao.nn.quantized.FloatFunctional()
    assert functional.add_relu(x, -2 * x).tolist() == [0, 0] and not functional.state_dict()
    with pytest.raises(NotImplementedError, match="float32"):
        quantization.prepare(torch.nn.Identity())


def test_types_of_quantized_modules_have_no_instances():
    from flambeau.quantization import FakeQuantizeBase, ObserverBase

    assert FakeQuantizeBase is torch.ao.quantization.FakeQuantizeBase
    assert not isinstance(torch.nn.Linear(1, 1), (ObserverBase, FakeQuantizeBase))
    assert issubclass(torch.quantization.MinMaxObserver, ObserverBase)
    with pytest.raises(NotImplementedError, match="MinMaxObserver"):
        torch.quantization.MinMaxObserver()


def test_casts_by_their_former_names():
    x = torch.tensor([1.75, -2.5], requires_grad=True)
    assert torch._cast_Long(x).tolist() == [1, -2]
    assert torch._cast_Float(x) is x and torch._cast_Half(x).dtype == torch.float16
    torch._cast_Double(x).sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_private_state_that_packages_read():
    assert torch.cuda._initialized is False
    assert torch.utils.data._utils.worker._worker_info is None
    assert torch.utils.data._utils.collate.np_str_obj_array_pattern.search("<U3")
    with getattr(torch.backends, "__allow_nonbracketed_mutation")():  # noqa: B009 - mangled
        torch.backends.cudnn.benchmark = False
    with pytest.raises(RuntimeError, match="is_available"):
        torch.distributed.nn.functional.all_gather(torch.ones(1))


def test_probes_of_compilers():
    from flambeau._inductor.cpp_builder import get_cpp_compiler
    from flambeau._inductor.exc import InductorError
    from flambeau.utils._triton import has_triton

    assert get_cpp_compiler() and not has_triton() and issubclass(InductorError, RuntimeError)


def test_sizes_of_storages_in_memory():
    tensor = torch.zeros(1000)
    for storage in (tensor.untyped_storage(), tensor._typed_storage()):
        assert 4000 < sys.getsizeof(storage) < 4200


def test_an_optimizer_around_another_without_a_constructor():
    class Around(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            self._optimizer_step_pre_hooks = collections.OrderedDict()
            self._optimizer_step_post_hooks = collections.OrderedDict()
            self._patch_step_function()

        def step(self, closure=None):
            return self.inner.step(closure)

    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    calls = []
    around = Around(torch.optim.SGD([weight], lr=0.5))
    around.register_step_post_hook(lambda *_: calls.append("after"))
    around.step()
    assert weight.item() == 0.5 and calls == ["after"]


def test_overloads_name_their_operator():
    overload = torch.ops.aten.add.Tensor
    assert overload._overloadpacket is torch.ops.aten.add and overload._opname == "add"
    assert torch.ops.aten.add._qualified_op_name == "aten::add"


def test_tensors_in_plain_pickles_of_pytorch():
    data = io.BytesIO()
    storage = torch.arange(3.0)._typed_storage()
    torch.save(storage, data, _use_new_zipfile_serialization=False)
    again = torch.storage._load_from_bytes(data.getvalue())
    tensor = torch._utils._rebuild_tensor_v2(again, 1, (2,), (1,), True, {})
    assert tensor.tolist() == [1, 2] and tensor.requires_grad


@pytest.mark.parametrize(
    ("name", "bases"),
    [
        ("padding._ConstantPadNd", "ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad2d"),
        ("padding._ReflectionPadNd", "ReflectionPad1d ReflectionPad2d ReflectionPad3d"),
        ("padding._ReplicationPadNd", "ReplicationPad1d ReplicationPad2d ReplicationPad3d"),
        ("padding._CircularPadNd", "CircularPad1d CircularPad2d CircularPad3d"),
        ("padding.ConstantPad2d", "ZeroPad2d"),
        ("pooling._AvgPoolNd", "AvgPool1d AvgPool2d AvgPool3d"),
        ("conv._ConvTransposeNd", "ConvTranspose1d ConvTranspose2d LazyConvTranspose3d"),
        ("conv._LazyConvXdMixin", "LazyConv1d LazyConvTranspose2d"),
    ],
)
def test_bases_of_modules(name, bases):
    module, _, base = name.partition(".")
    kind = getattr(getattr(torch.nn.modules, module), base)
    assert all(issubclass(getattr(torch.nn, each), kind) for each in bases.split())


def test_helpers_of_layers_in_the_modules_that_use_them():
    from flambeau.nn import functional as f
    from flambeau.nn.modules import conv, padding, pooling

    assert conv._pair(3) == pooling._pair(3) == padding._pair(3) == f._pair(3) == (3, 3)
    assert padding._quadruple(1) == (1, 1, 1, 1) and f._list_with_default([None, 2], [1, 5, 6]) == [
        5,
        2,
    ]
    x, w = torch.arange(6.0).view(1, 3, 2), torch.arange(12.0).view(6, 2)
    packed = f._in_projection_packed(x, x, x, w)
    separate = f._in_projection(x, x, x, *w.chunk(3))
    assert all(torch.equal(a, b) for a, b in zip(packed, separate, strict=True))
    assert f._mha_shape_check(x, x, x, None, None, 1)
    assert f._none_or_dtype(None) is None and f._none_or_dtype(x) is torch.float32
    assert not f.has_torch_function((x,)) and not f.has_torch_function_unary(x)


def test_schedules_ask_for_rates_of_others(recwarn):
    from flambeau.optim.lr_scheduler import StepLR, _enable_get_lr_call

    schedule = StepLR(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0), 1)
    with _enable_get_lr_call(schedule):
        schedule.get_lr()
    assert not recwarn.list
    schedule.get_lr()
    assert "get_last_lr" in str(recwarn.pop().message)


def test_inner_convolution_with_switches():
    x, weight = torch.arange(6.0).view(1, 1, 6), torch.ones(1, 1, 2)
    switches = (False, False, True)
    result = torch.ops.aten._convolution(x, weight, None, [2], [0], [1], False, [0], 1, *switches)
    assert result.tolist() == [[[1, 5, 9]]]


def test_records_of_a_checkpoint(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.arange(4.0)}, path)
    for source in (str(path), io.BytesIO(path.read_bytes())):
        reader = torch.PyTorchFileReader(source)
        assert reader.has_record("data.pkl") and "data/0" in reader.get_all_records()
        assert reader.get_record_size("data/0") == 16 == len(reader.get_record("data/0"))
        storage = reader.get_storage_from_record("data/0", 4, torch.float32)
        assert storage.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan_of_pairs(reverse):
    from flambeau._higher_order_ops.associative_scan import associative_scan

    torch.manual_seed(0)
    a, b = torch.rand(2, 7, dtype=torch.float64), torch.rand(2, 7, dtype=torch.float64)
    result = associative_scan(
        lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), (a, b), 1, reverse=reverse
    )[1]
    state, states = torch.zeros(2, dtype=torch.float64), []
    for place in reversed(range(7)) if reverse else range(7):
        state = a[:, place] * state + b[:, place]
        states.append(state)
    torch.testing.assert_close(result, torch.stack(states[::-1] if reverse else states, 1))


def test_inner_copies():
    x = torch.ones(2, 3)
    copy = torch.ops.aten._to_copy.default(x, dtype=torch.int32)
    assert copy.dtype == torch.int32 and copy.data_ptr() != x.data_ptr()
    product = torch.ops.aten._sparse_addmm(x[:, :2], torch.eye(2).to_sparse(), x[:, :2])
    assert product.tolist() == [[2, 2], [2, 2]]


def test_flex_attention_is_attention():
    torch.manual_seed(0)
    query, key, value = torch.rand(2, 4, 5, 8), torch.rand(2, 2, 7, 8), torch.rand(2, 2, 7, 6)

    def causal(batch, head, q, kv):
        return q + 2 >= kv

    mask = flex.create_block_mask(causal, None, None, 5, 7, BLOCK_SIZE=(2, 3))
    assert mask.shape == (1, 1, 5, 7) and mask.to_dense().tolist() == [[[
        [1, 1, 0], [1, 1, 0], [1, 1, 1]]]]  # fmt: skip
    result, rest = flex.flex_attention(
        query, key, value, block_mask=mask, enable_gqa=True, return_aux=flex.AuxRequest(lse=True)
    )
    dense = flex.create_mask(causal, None, None, 5, 7)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=dense, enable_gqa=True
    )
    torch.testing.assert_close(result, expected)
    assert rest.lse.shape == (2, 4, 5) and rest.max_scores is None
    bias = torch.rand(5, 7)
    moved = flex.flex_attention(
        query, query, query, score_mod=lambda score, b, h, i, j: score + bias[i, j]
    )
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, query, query, attn_mask=bias[:, :5]
    )
    torch.testing.assert_close(moved, expected)
