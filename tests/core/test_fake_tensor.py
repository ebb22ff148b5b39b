"""Fake tensors: geometry without data, pretended devices, what only data could answer."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau as torch
from flambeau import _core, nn
from flambeau._subclasses import fake_calls
from flambeau._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeCopyMode,
    FakeTensor,
    FakeTensorDeviceMismatchError,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    is_fake,
    maybe_get_fake_mode,
    unset_fake_temporarily,
)
from flambeau.overrides import TorchFunctionMode
from flambeau.utils._python_dispatch import TorchDispatchMode


def allocated():
    return _core.memory_stats()["allocated_bytes.all.current"]


def test_a_huge_model_takes_no_memory():
    before, peak = allocated(), _core.memory_stats()["allocated_bytes.all.peak"]
    with FakeTensorMode():
        net = nn.Sequential(nn.Linear(1 << 20, 1 << 20), nn.ReLU(), nn.Linear(1 << 20, 10))
        loss = net(torch.randn(64, 1 << 20)).sum()
        loss.backward()
        torch.optim.Adam(net.parameters()).step()
    assert net[0].weight.grad.shape == (1 << 20, 1 << 20)
    assert net[0].weight.nbytes == 1 << 42
    assert allocated() - before < 1 << 20
    assert _core.memory_stats()["allocated_bytes.all.peak"] - peak < 1 << 20


def test_from_tensor():
    mode = FakeTensorMode()
    x = torch.zeros(4, 6)
    fake, column = mode.from_tensor(x), mode.from_tensor(x[:, 1])
    assert mode.from_tensor(x) is fake
    assert column.stride() == (6,)
    assert column.storage_offset() == 1
    assert column.untyped_storage()._cdata == fake.untyped_storage()._cdata
    assert is_fake(fake)
    assert maybe_get_fake_mode(fake) is mode
    assert mode.is_our_fake(fake)
    assert not FakeTensorMode().is_our_fake(fake)
    weight = mode.from_tensor(nn.Parameter(torch.ones(2)))
    assert isinstance(weight, nn.Parameter)
    assert repr(weight) == "Parameter(FakeTensor(..., size=(2,), requires_grad=True))"
    with pytest.raises(UnsupportedFakeTensorException):
        mode.from_tensor(x.to_sparse())


def test_devices():
    with FakeTensorMode() as mode:
        x = torch.ones(2, 3, device="cuda")
        assert repr(x) == "FakeTensor(..., device='cuda:0', size=(2, 3))"
        assert x.is_cuda
        assert x.get_device() == 0
        assert not (x.is_cpu or x.is_meta)
        with pytest.raises(FakeTensorDeviceMismatchError, match="cuda:0 and cpu"):
            x + torch.ones(3)
        assert str((x * torch.ones(())).device) == "cuda:0"
        assert str(x.cpu().device) == "cpu"
        assert str(x.to("cuda:1", torch.float64).device) == "cuda:1"
        assert x.to("cuda:0") is x
        assert x.to("cuda", copy=True) is not x
        assert str(x[torch.tensor([0])].device) == "cuda:0"
        assert str(torch.zeros(2, 3).copy_(x).device) == "cpu"
        assert str(torch.zeros_like(x, device="cpu").device) == "cpu"
        layer = nn.Linear(3, 4).to("cuda")
        layer(x).sum().backward()
        assert str(layer.weight.grad.device) == "cuda:0"
        assert layer.half().weight.grad.dtype is torch.float16
    other = FakeTensor(mode, torch.empty(2, device="meta"), "cpu")
    assert other.fake_mode is mode
    with pytest.raises(AssertionError, match="must be 'meta'"):
        FakeTensor(mode, torch.empty(2), "cpu")


def test_real_operands():
    strict, loose = FakeTensorMode(), FakeTensorMode(allow_non_fake_inputs=True)
    x, real = strict.from_tensor(torch.ones(2)), torch.ones(2)
    with pytest.raises(AssertionError, match=r"Found in aten.add.Tensor\(FakeTensor"):
        x + real
    with pytest.raises(AssertionError, match="Please convert"), strict:
        real + 1
    assert is_fake(loose.from_tensor(real) + real)
    with pytest.raises(AssertionError, match="Mixing fake modes"):
        x + loose.from_tensor(real)


def test_what_only_data_could_answer():
    with FakeTensorMode():
        x = torch.ones(3)
        for ask in (bool, int, float, format, torch.Tensor.item):
            with pytest.raises(DataDependentOutputException, match="_local_scalar_dense"):
                ask(x.sum())
        with pytest.raises(DataDependentOutputException) as caught:
            torch.equal(x, x)
        assert caught.value.func is torch.ops.aten.equal.default
        with pytest.raises(DynamicOutputShapeException) as caught:
            _ = x[x > 0]
        assert caught.value.func is torch.ops.aten.nonzero.default
        with pytest.raises(DynamicOutputShapeException, match="aten.unique_dim.default"):
            torch.unique(torch.ones(3, 3), dim=0)
        with pytest.raises(RuntimeError, match="not supported for tensor subclasses"):
            x.numpy()
        with pytest.raises(DataDependentOutputException):
            _ = 1.0 in x


def test_what_only_data_could_answer_is_marked():
    """Not by the message: another error that has the same words stays what it is."""
    meta = torch.ones(3, device="meta")
    for ask in (meta.sum().item, meta.tolist, meta.nonzero, meta.unique):
        with pytest.raises(RuntimeError) as caught:
            ask()
        assert caught.value.asked_by

    def misleading(x):
        raise RuntimeError("[nonzero] its result depends on data")

    mode = FakeTensorMode()
    with pytest.raises(RuntimeError) as caught:
        fake_calls.run(mode, misleading, (mode.from_tensor(torch.ones(3)),), {})
    assert type(caught.value) is RuntimeError


def test_numbers_that_are_known():
    with FakeTensorMode():
        count = torch.tensor(3)
        assert (count + 1).item() == 4
        assert list(range(count)) == [0, 1, 2]
        view = count.view(1)
        count.add_(1)
        assert view.item() == 4
        count.add_(torch.ones((), dtype=torch.int64))
        for x in (count, view):
            with pytest.raises(DataDependentOutputException):
                x.item()


def test_the_tape_and_in_place_operators():
    with FakeTensorMode():
        x = torch.ones(4, 4, requires_grad=True)
        y = x * 2
        y[1].add_(1)
        y.t_()
        assert y.shape == (4, 4)
        (grad,) = torch.autograd.grad(nn.functional.dropout(y).sum(), x)
        assert is_fake(grad)
        assert grad.shape == (4, 4)
        out = torch.empty(0)
        assert torch.add(x.detach(), 1, out=out) is out
        assert out.shape == (4, 4)
        out += 1
        assert out._version == 2
        x.sum().backward()
        assert x.grad is x.grad
        assert torch.func.jacrev(lambda v: v * v)(torch.ones(3)).shape == (3, 3)
        assert torch.vmap(torch.sum)(torch.ones(3, 4)).shape == (3,)


def test_modules():
    layer, mode = nn.Linear(3, 4), FakeTensorMode()
    fakes = {name: mode.from_tensor(x) for name, x in layer.state_dict().items()}
    found = torch.func.functional_call(layer, fakes, (mode.from_tensor(torch.ones(2, 3)),))
    assert repr(found) == "FakeTensor(..., size=(2, 4))"
    with FakeCopyMode(mode):
        twin = copy.deepcopy(layer)
    assert is_fake(twin.weight)
    assert isinstance(twin.weight, nn.Parameter)
    third = copy.deepcopy(twin)
    assert is_fake(third.bias)
    assert third.bias is not twin.bias
    with pytest.raises(AssertionError, match="Please convert"), mode:
        copy.deepcopy(layer)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(found)


def test_other_modes():
    class Names(TorchDispatchMode):
        seen: list[str] = []  # noqa: RUF012

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Calls(TorchFunctionMode):
        seen: list[str] = []  # noqa: RUF012

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Calls() as calls, FakeTensorMode(), Names() as names:
        x = torch.empty(2) + 1
        with unset_fake_temporarily():
            assert not is_fake(torch.ones(2))
    assert is_fake(x)
    assert "aten.add.Tensor" in names.seen
    assert {"empty", "add"} <= set(calls.seen)
    assert not is_fake(torch.ones(2) + 1)


def test_custom_operators():
    @torch.library.custom_op("fake_tests::head", mutates_args=())
    def head(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[:n].clone()

    @head.register_fake
    def _(x, n):
        return torch.empty(n, *x.shape[1:], device=x.device)

    head.register_autograd(lambda ctx, grad: (grad, None))
    with FakeTensorMode():
        assert repr(head(torch.ones(3, device="cuda"), 2)).startswith("FakeTensor(..., device='cu")
        assert head(torch.ones(3, requires_grad=True), 2).requires_grad

    @torch.library.custom_op("fake_tests::places", mutates_args=())
    def places(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero()

    @places.register_fake
    def _(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size(), 1)

    with pytest.raises(DynamicOutputShapeException):
        places(FakeTensorMode().from_tensor(torch.ones(3)))


@pytest.mark.parametrize("name", ["relu", "exp", "sigmoid", "tanh", "sqrt"])
def test_results_that_are_saved_for_backward(name):
    with FakeTensorMode():
        x = torch.randn(3, 4, requires_grad=True)
        result = getattr(torch, name)(x)
        assert result._version == 0
        result.sum().backward()
        assert x.grad.shape == (3, 4)


def test_views_of_leaves() -> None:
    """A view of a fake that requires a gradient is a view of it, of conjugates as well."""
    with FakeTensorMode() as mode:
        leaf = mode.from_tensor(torch.ones(2, 2, dtype=torch.complex64)).requires_grad_()
        for view in (leaf[0], leaf.t(), leaf.conj(), leaf.conj().t()):
            assert view._is_view() and view.requires_grad
            (view * view).abs().sum().backward()
            assert leaf.grad.shape == (2, 2)
        assert leaf.conj().is_conj() and not (leaf.conj() + 1).is_conj()
