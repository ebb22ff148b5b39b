"""`torch.utils._debug_mode`: lines of operators, in PyTorch's form; factories show no device."""

import re

import pytest

import flambeau as torch
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau.utils._debug_mode import DebugMode, get_active_debug_mode

X = torch.ones(2, 4)
VALUES = torch.arange(7.0) / 3


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.others = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())

    def forward(self, x):
        return self.others(self.first(x).sin())


def text(mode):
    return "\n" + mode.debug_string() + "\n"


def test_operators_of_forward_and_backward():
    x = torch.ones(2, requires_grad=True)
    with DebugMode(record_ids=True) as mode:
        (x.sin() * 2).sum().backward()
    assert (
        text(mode)
        == """
    aten::sin(t$0: f32[2])  ->  t$1: f32[2]
    aten::mul.Tensor(t$1: f32[2], 2)  ->  t$2: f32[2]
    aten::sum(t$2: f32[2])  ->  t$3: f32[]
    aten::ones_like(t$3: f32[])  ->  t$4: f32[]
    aten::expand(t$4: f32[], [2])  ->  t$5: f32[2]
    aten::mul.Tensor(t$5: f32[2], 2)  ->  t$6: f32[2]
    aten::cos(t$0: f32[2])  ->  t$7: f32[2]
    aten::mul.Tensor(t$6: f32[2], t$7: f32[2])  ->  t$8: f32[2]
    aten::detach(t$8: f32[2])  ->  t$9: f32[2]
"""
    )


def test_modules_and_functions():
    with torch.no_grad(), DebugMode(record_nn_module=True, record_torchfunction=True) as mode:
        Model()(X)
    lines = [line for line in mode.debug_string().splitlines() if "Mod" in line or "linear" in line]
    assert "\n".join(lines) == (
        "    [nn.Mod] Model\n"
        "      [nn.Mod] Model.first\n"
        "      torch.nn.functional.linear(t: f32[2, 4], t: f32[4, 4], t: f32[4])"
        "  ->  t: f32[2, 4]\n"
        "      [nn.Mod] Model.others\n"
        "        [nn.Mod] Model.others.0\n"
        "        torch.nn.functional.linear(t: f32[2, 4], t: f32[2, 4], t: f32[2])"
        "  ->  t: f32[2, 2]\n"
        "        [nn.Mod] Model.others.1"
    )
    assert "\n          aten::addmm(t: f32[4], " in mode.debug_string()
    assert mode.call_depth == 0


def test_ranges_and_remarks():
    outside = torch.profiler.record_function("outside")
    outside.__enter__()
    with DebugMode() as mode:
        with torch.profiler.record_function("inside"):
            X + 1
        DebugMode._annotate("here")
        torch.cat([X, X], 1)
        outside.__exit__(None, None, None)
    assert (
        text(mode)
        == """
  [record function] inside
      aten::add.Tensor(t: f32[2, 4], 1)  ->  t: f32[2, 4]
  [annotate] here
    aten::cat(['t: f32[2, 4]', 't: f32[2, 4]'], 1)  ->  t: f32[2, 8]
"""
    )
    assert mode.call_depth == 0
    DebugMode._annotate("without a mode")


def test_options():
    with DebugMode(record_output=False, record_tensor_attributes=["requires_grad"]) as mode:
        X.double() * 2
    assert mode.debug_string().splitlines()[1] == (
        "    aten::mul.Tensor(t: f64[2, 4]{requires_grad=False}, 2)"
    )
    with DebugMode(store_original_args=True) as mode:
        X * 2
    assert mode.logs[0].args[0] is X
    with DebugMode() as mode, FakeTensorMode():
        torch.empty(2) + 1
    assert not mode.logs
    with DebugMode(record_realtensor=False) as mode:
        X + 1
    assert not mode.logs
    with DebugMode(record_faketensor=True) as mode, FakeTensorMode():
        torch.empty(2) + 1
    assert mode.debug_string().endswith("aten::add.Tensor(ft: f32[2], 1)  ->  ft: f32[2]")
    mode.reset()
    assert mode.debug_string() == "" and mode.logs == []
    with pytest.raises(NotImplementedError, match="run_compile_with_interpreter"):
        DebugMode(run_compile_with_interpreter=True)


def test_lines_of_the_user():
    x = X.clone().requires_grad_()
    with DebugMode(record_stack_trace=True) as mode:
        y = x * 2
        y.sum().backward()
    shown = mode.debug_string()
    place = r"    # File: .*test_debug_mode\.py:\d+ in test_lines_of_the_user, code: "
    comments = [line for line in shown.splitlines() if "#" in line]
    assert re.match(place + r"y = x \* 2$", comments[0])
    assert re.match(place + r"y\.sum\(\)\.backward\(\)$", comments[1])
    product = next(each for each in mode.logs[3:] if "mul" in repr(each))
    assert "y = x * 2" in product.fwd_stack_trace and "backward" in product.stack_trace
    assert "#" not in mode.debug_string(show_stack_trace=False)


def test_the_active_mode_and_errors():
    assert get_active_debug_mode() is None
    with DebugMode() as mode:
        assert get_active_debug_mode() is mode
        with pytest.raises(RuntimeError):
            torch.dot(torch.ones(2), torch.ones(3))
    assert mode.debug_string().endswith("aten::dot(t: f32[2], t: f32[3])")
    assert get_active_debug_mode() is None


def test_hooks_and_outputs():
    y = X.clone()
    with DebugMode() as mode, DebugMode.record_outputs():
        y.mul_(2)
        y.add_(1)
    assert [each.record["output"][0, 0].item() for each in mode.logs] == [2, 3]
    norm = lambda func, types, args, kwargs, result: {"sum": result.sum().item()}  # noqa: E731
    with DebugMode() as mode, DebugMode.dispatch_hooks(log_hook=norm):
        y.add_(1)
    assert mode.debug_string().endswith("  ->  t: f32[2, 4]  # {'sum': 32.0}")
    wrong = DebugMode.dispatch_hooks(record_hook=lambda *call: 3)
    with pytest.raises(AssertionError, match="hook must return None or dict, got int"):
        with DebugMode(), wrong:
            y.add_(1)


@pytest.mark.parametrize("kind", ("norm", "hash_tensor", ["norm", "hash_tensor"], torch.sum))
def test_hashes_find_where_two_runs_differ(kind):
    runs = []
    for by in (2, 2, 3):
        with DebugMode() as mode, DebugMode.log_tensor_hashes(kind, hash_inputs=True):
            ((VALUES + 1) * by).sin_()
        runs.append(mode.logs)
    if isinstance(kind, str):
        assert DebugMode.check_hash_mismatches(*runs[:2], compare_inputs=True) == []
        different = DebugMode.check_hash_mismatches(runs[0], runs[2], compare_inputs=True)
        calls = [(each["call"], each["is_input_hash"]) for each in different]
        assert calls == [("aten::mul.Tensor", False), ("aten::sin_", False), ("aten::sin_", True)]
        assert different[2]["pytree_path"] == "[0][0]" and 0 < different[0]["rel_diff"] <= 1
    assert set(runs[0][0].log) == {"hash", "input_hash"}
    with pytest.raises(ValueError, match="lengths don't match: 3 vs 2"):
        DebugMode.check_hash_mismatches(runs[0], runs[1][:2])
    with pytest.raises(ValueError, match="names differ at index 0: aten::add"):
        DebugMode.check_hash_mismatches(runs[0][:1], runs[1][1:2])


def test_unknown_hashes():
    with pytest.raises(AssertionError, match="'norm' or 'hash_tensor', got 'md5'"):
        DebugMode.log_tensor_hashes("md5")
    with pytest.raises(NotImplementedError, match="callable, str, or list"):
        DebugMode.log_tensor_hashes(3)


def test_compiled_functions_run_by_operators_with_the_same_bits():
    f = torch.compile(lambda x: (x.sin() * 2).softmax(-1))
    x = torch.randn(3, 5)
    compiled = f(x)
    with DebugMode() as mode:
        result = f(x)
    assert torch.equal(result, compiled)
    assert [each.name for each in mode.logs] == ["aten::sin", "aten::mul.Tensor", "aten::_softmax"]
