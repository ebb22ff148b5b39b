"""`torch.jit.trace`: recorded operators, sizes that stay symbolic, warnings and checks."""

from __future__ import annotations

import warnings

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_sizes_stay_symbolic():
    def flat(x, y):
        rows, columns = x.shape
        z = x.view(rows, -1) * x.shape[1] + torch.zeros(rows, columns)
        z[0] = 1
        w = z.clone()
        w.add_(y)
        unused = w * 2  # noqa: F841
        return x.reshape(rows * columns // 2, 2), (z, z.split(1)[0]), w[..., None], x.numel()

    traced = torch.jit.trace(flat, (torch.ones(2, 4), torch.ones(1)))
    x, y = torch.randn(6, 8), torch.randn(1)
    expected, actual = flat(x, y), traced(x, y)
    assert torch.equal(expected[0], actual[0])
    assert torch.equal(expected[1][0], actual[1][0]) and torch.equal(expected[1][1], actual[1][1])
    assert torch.equal(expected[2], actual[2]) and expected[3] == actual[3]
    assert "* 2" not in traced.code


def test_modules():
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
    ).eval()
    traced = torch.jit.trace(module, torch.randn(1, 1, 4, 4))
    x = torch.randn(5, 1, 4, 4)
    assert torch.equal(traced(x), module(x))
    assert list(traced.state_dict()) == list(module.state_dict())
    assert isinstance(traced, torch.jit.ScriptModule)
    assert traced.original_name == "Sequential"
    with torch.no_grad():
        module[4].bias.add_(1)
    assert torch.equal(traced(x), module(x))


def test_recurrent_and_attention_modules():
    lstm = nn.LSTM(3, 4, batch_first=True)
    traced = torch.jit.trace(lstm, torch.randn(2, 5, 3))
    x = torch.randn(3, 7, 3)
    assert torch.equal(traced(x)[0], lstm(x)[0])
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    traced = torch.jit.trace(layer, torch.randn(1, 4, 8))
    assert torch.equal(traced(torch.ones(1, 4, 8)), layer(torch.ones(1, 4, 8)))


def test_branches_are_those_of_the_run():
    def absolute(x):
        return x if x.sum() > 0 else -x

    with pytest.warns(torch.jit.TracerWarning, match="Python boolean") as caught:
        traced = torch.jit.trace(absolute, torch.ones(2))
    assert caught[0].filename == __file__
    assert torch.equal(traced(-torch.ones(2)), -torch.ones(2))


def test_scripted_functions_keep_their_control_flow():
    @torch.jit.script_if_tracing
    def absolute(x):
        return x if bool(x.sum() > 0) else -x

    traced = torch.jit.trace(lambda x: absolute(x) * 2, torch.ones(2))
    assert torch.equal(traced(-torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(absolute(-torch.ones(2)), torch.ones(2))


def test_scripted_submodules_are_called():
    class Choose(nn.Module):
        def forward(self, x):
            return x if bool(x.sum() > 0) else -x

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.choose = torch.jit.script(Choose())

        def forward(self, x):
            return self.choose(x) + 1

    traced = torch.jit.trace(Outer(), torch.ones(2))
    assert torch.equal(traced(-torch.ones(2)), torch.full((2,), 2.0))


def test_containers():
    def function(pair, table):
        return pair[0] + table["a"], {"sum": pair[1]}

    inputs = ((torch.ones(1), torch.ones(2)), {"a": torch.ones(1)})
    with pytest.raises(RuntimeError, match="strict=False"):
        torch.jit.trace(function, inputs)
    traced = torch.jit.trace(function, inputs, strict=False)
    result = traced((torch.zeros(1), torch.zeros(2)), {"a": torch.full((1,), 5.0)})
    assert result[0].item() == 5.0 and torch.equal(result[1]["sum"], torch.zeros(2))


def test_constants_and_what_cannot_be_one():
    constant = torch.arange(3.0)
    traced = torch.jit.trace(lambda x: x + constant, torch.ones(3))
    assert torch.equal(traced(torch.zeros(3)), constant)
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Cannot insert a Tensor that requires grad"):
        torch.jit.trace(lambda x: x * weight, torch.ones(3))
    with pytest.raises(RuntimeError, match="Only tensors"):
        torch.jit.trace(lambda x: "text", torch.ones(3))


def test_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        torch.jit.trace(lambda x: F.dropout(x, 0.5), torch.ones(30))
    calls = []

    def changing(x):
        calls.append(1)
        return x * 2 if len(calls) % 2 else x + 2

    with pytest.raises(torch.jit.TracingCheckError, match="Graphs differed"):
        torch.jit.trace(changing, torch.ones(2))


def test_example_inputs_are_left_alone():
    x = torch.ones(2)
    traced = torch.jit.trace(lambda x: x.add_(1), x)
    assert torch.equal(x, torch.ones(2))
    assert torch.equal(traced(x), torch.full((2,), 2.0)) and torch.equal(x, torch.full((2,), 2.0))


def test_several_methods():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return self.linear(x)

        def backwards(self, x, y):
            return self.linear.weight.t() @ x + y

    module = Two()
    traced = torch.jit.trace_module(
        module, {"forward": torch.ones(1, 2), "backwards": (torch.ones(2), torch.ones(2))}
    )
    x = torch.randn(2)
    assert torch.equal(traced.backwards(x, x), module.backwards(x, x))
    assert torch.jit.trace(traced, torch.ones(1, 2)) is traced


def test_gradients():
    module = nn.Linear(3, 1)
    traced = torch.jit.trace(module, torch.ones(1, 3))
    traced(torch.ones(2, 3)).sum().backward()
    assert torch.equal(module.weight.grad, torch.full((1, 3), 2.0))


def test_named_inputs_and_state():
    assert not torch.jit.is_tracing()
    seen = []

    def function(x, y):
        seen.append(torch.jit.is_tracing())
        return x - y

    traced = torch.jit.trace(
        function, example_kwarg_inputs={"x": torch.ones(1), "y": torch.zeros(1)}, check_trace=False
    )
    assert seen == [True]
    assert traced(x=torch.zeros(1), y=torch.ones(1)).item() == -1
