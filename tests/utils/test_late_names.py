"""Small names of optimizers, autograd, back ends and utilities, and that they do what they say."""

from __future__ import annotations

import importlib
import threading
import time

import pytest

import flambeau as torch
from flambeau import backends


def test_multi_tensor_optimizers_have_foreach_set():
    import flambeau.optim._multi_tensor as several

    p = torch.ones(2, requires_grad=True)
    optimizer = several.Adam([p], lr=0.1)
    assert optimizer.param_groups[0]["foreach"] is True and isinstance(optimizer, torch.optim.Adam)
    for name in several.__all__:
        getattr(several, name)([p])


def test_sparse_adam_as_a_function():
    from flambeau.optim._functional import sparse_adam

    table, plain = torch.zeros(4, 2), torch.zeros(4, 2)
    grad = torch.sparse_coo_tensor([[1, 3]], torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (4, 2))
    first, second = torch.zeros(4, 2), torch.zeros(4, 2)
    options = {"eps": 1e-8, "beta1": 0.9, "beta2": 0.999, "lr": 0.1, "maximize": False}
    sparse_adam([table], [grad], [first], [second], [1], **options)
    plain.grad = grad
    plain.requires_grad_()
    torch.optim.SparseAdam([plain], lr=0.1).step()
    assert torch.equal(table, plain.detach()) and first[1, 0] != 0


def test_swapped_parameters_of_an_optimizer():
    p = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.Adam([p], lr=0.5)
    p.grad = torch.ones(2)
    optimizer.step()
    before, state = p.detach().clone(), optimizer.state_dict()
    copied = {"state": {0: {k: v.clone() for k, v in state["state"][0].items()}},
              "param_groups": state["param_groups"]}  # fmt: skip
    other = torch.zeros(2, requires_grad=True)
    other.grad = torch.ones(2)
    with torch.optim.swap_in_optimizer_params_and_state(optimizer, {"p": other}, copied):
        optimizer.step()
    assert torch.equal(p.detach(), before) and (other < 0).all()
    assert optimizer.param_groups[0]["params"][0] is p and p in optimizer.state
    with pytest.raises(ValueError, match="1 parameters"):
        with torch.optim.swap_in_optimizer_params_and_state(optimizer, {}, copied):
            pass


def test_names_of_autograd():
    from flambeau.autograd import anomaly_mode, gradcheck, variable
    from flambeau.autograd.grad_mode import enforce_grad_layout_policy

    assert anomaly_mode.detect_anomaly is torch.autograd.detect_anomaly
    with enforce_grad_layout_policy(False):
        pass

    class Any(metaclass=variable.VariableMeta):
        pass

    assert isinstance(torch.ones(1), Any) and not isinstance(1, Any)
    with pytest.raises(RuntimeError, match="only has an effect under"):
        with torch.autograd.graph.region_activation_memory_budget(0.5):
            pass
    with pytest.raises(ValueError, match="budget"):
        with torch.autograd.graph.region_activation_memory_budget(2.0):
            pass
    torch.autograd.graph.set_override_stale_capture_stream(True)
    module = __import__("sys").modules["flambeau.autograd.gradcheck"]
    x = torch.tensor([2.0, 3.0], dtype=torch.float64)
    (jacobian,) = module.get_numerical_jacobian_wrt_specific_input(
        lambda x: x * x, 0, (x,), (x * x,), 1e-6
    )
    torch.testing.assert_close(jacobian, torch.diag(2 * x).to(jacobian.dtype))
    assert callable(gradcheck)
    y = torch.tensor([5.0], dtype=torch.float64, requires_grad=True)
    with pytest.warns(FutureWarning, match="private"):
        by_x, by_y = module.get_numerical_jacobian(lambda pair: pair[0] * pair[1], (x, y), (x, y))
    torch.testing.assert_close(by_x, torch.diag(y.detach().expand(2)))
    torch.testing.assert_close(by_y, x[None])
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="grad_out"):
        module.get_numerical_jacobian(lambda pair: pair[0], (x,), x, 1e-3, 2.0)


def test_switches_of_back_ends():
    assert backends.kleidiai.is_available() is False and backends.xnnpack.enabled is False
    before = backends.mha.get_fastpath_enabled()
    backends.mha.set_fastpath_enabled(not before)
    assert backends.mha.get_fastpath_enabled() is not before
    backends.mha.set_fastpath_enabled(before)
    with backends.mkl.verbose(backends.mkl.VERBOSE_ON):
        pass
    with backends.mkldnn.verbose(backends.mkldnn.VERBOSE_ON_CREATION):
        assert backends.mkldnn.is_acl_available() is False
    assert backends.nnpack.set_flags(False) == (True,)
    with backends.nnpack.flags(True):
        pass
    assert backends.nnpack.set_flags(True) == (False,)
    with backends.flags(fp32_precision="tf32"):
        assert backends.fp32_precision == "tf32"
    assert backends.fp32_precision == "none"
    with backends.python_native.operations_disabled("x"):
        assert backends.python_native.get_dsl_operations("triton") == []
    q = torch.ones(1, 1, 2, 2)
    params = backends.cuda.SDPAParams(q, q, q, None, 0.0, False, False)
    assert backends.cuda.can_use_flash_attention(params) is False
    with pytest.raises(AssertionError, match="CUDA"):
        backends.cuda.cufft_plan_cache.size  # noqa: B018
    with pytest.raises(RuntimeError, match="device index"):
        backends.cuda.cufft_plan_cache[0]
    with pytest.raises(RuntimeError, match="MPS"):
        backends.mps.get_name()
    for call in (torch.accelerator.memory.memory_stats, torch.accelerator.graphs.Graph):
        with pytest.raises(RuntimeError, match="accelerator"):
            call()


def test_file_baton(tmp_path):
    from flambeau.utils.file_baton import FileBaton

    baton = FileBaton(tmp_path / "lock", wait_seconds=0.01)
    assert baton.try_acquire() and not FileBaton(tmp_path / "lock").try_acquire()
    waited = []
    waiter = threading.Thread(target=lambda: (FileBaton(tmp_path / "lock", 0.01).wait(),
                                              waited.append(True)))  # fmt: skip
    waiter.start()
    time.sleep(0.03)
    assert not waited
    baton.release()
    waiter.join(10)
    assert waited


def test_older_layers_and_reductions():
    import flambeau.nn._reduction as reductions
    from flambeau.nn.modules import linear_cross_entropy_options, loss
    from flambeau.utils import mkldnn

    assert [reductions.get_enum(r) for r in ("none", "mean", "sum")] == [0, 1, 2]
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert reductions.legacy_get_string(False, True) == "sum"
    with pytest.raises(ValueError, match="not a valid"):
        reductions.get_enum("x")
    assert loss.LinearCrossEntropyLoss is torch.nn.LinearCrossEntropyLoss
    assert linear_cross_entropy_options.LinearCrossEntropyOptions
    for name in mkldnn.__all__:
        with pytest.raises(NotImplementedError, match="_mkldnn"):
            getattr(mkldnn, name)(torch.nn.Linear(2, 2))
    assert torch.utils.dlpack.DLDeviceType.kDLCPU == 1

    class Plain:
        weight = 3

        def forward(self, x):
            return x + self.weight

    cpp = importlib.import_module("flambeau.nn.cpp")
    wrapped = cpp.ModuleWrapper(Plain())
    assert wrapped(1) == 4 and wrapped.weight == 3
    holder = Plain()
    holder.parts = {"a": 1}
    assert dict(cpp.OrderedDictWrapper(holder, "parts").items()) == {"a": 1}
