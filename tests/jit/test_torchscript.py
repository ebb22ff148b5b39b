"""Archives that PyTorch's own TorchScript wrote (tests/jit/archives, PyTorch 2.13)."""

from __future__ import annotations

import copy
import io
import warnings
from pathlib import Path

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.jit import torchscript, torchscript_operators
from flambeau.nn import functional as F

ARCHIVES = Path(__file__).with_name("archives")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.bn = nn.BatchNorm2d(2)
        self.layers = nn.Sequential(nn.Linear(8, 3), nn.ReLU())
        self.register_buffer("offset", torch.ones(3))
        self.scale = 2.5

    def forward(self, x, wide=True):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2).flatten(1)
        x = self.layers(x) * self.scale if wide else x[:, :3]
        for i in range(2):
            x = x + i
        return F.log_softmax(x + self.offset, dim=1)


def load(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.load(ARCHIVES / f"{name}.pt")


@pytest.mark.parametrize("name", ["net_scripted", "net_traced"])
def test_weights_and_code_of_modules(name):
    loaded, plain = load(name), Net()
    plain.load_state_dict(loaded.state_dict())
    assert dict(loaded.named_parameters()).keys() == dict(plain.named_parameters()).keys()
    assert all(p.requires_grad for p in loaded.parameters()) and loaded.original_name == "Net"
    assert plain.bn.running_mean[0] == 0.25
    x = torch.randn(2, 1, 4, 4)
    for module in (loaded.eval(), plain.eval()):
        assert not module.bn.training
    torch.testing.assert_close(loaded(x), plain(x), rtol=1e-6, atol=1e-6)
    gradients = [torch.autograd.grad(m(x)[:, 0].sum(), m.conv.weight)[0] for m in (loaded, plain)]
    torch.testing.assert_close(*gradients)
    assert torch.equal(torch.compile(loaded)(x), loaded(x))
    assert torch.equal(copy.deepcopy(loaded)(x), loaded(x))


def test_control_flow_and_training_of_scripted_modules():
    loaded, plain = load("net_scripted"), Net()
    plain.load_state_dict(loaded.state_dict())
    x = torch.randn(3, 1, 4, 4)
    torch.testing.assert_close(loaded.eval()(x, wide=False), plain.eval()(x, wide=False))
    torch.testing.assert_close(loaded.train()(x), plain.train()(x))
    torch.testing.assert_close(loaded.bn.running_mean, plain.bn.running_mean)
    assert loaded.bn.num_batches_tracked == 1 and loaded.scale == 2.5
    with pytest.raises(RuntimeError, match="expected 4D input"):
        loaded.bn(torch.ones(3))


def test_functions():
    summarize = load("functions")
    x = torch.arange(6.0).view(2, 3)
    results = summarize(x, 4, ["k", "l"], 0.5)
    assert results[0] == 90 and results[1:7] == (4, ["k0", "l1", "k2", "l3"], 2.0, 2, 0, "k-4")
    assert torch.equal(results[7], x.long()) and torch.equal(results[8], x[:, 0])
    assert summarize(x, 1, ["k"], 0.0)[0] == 0
    with pytest.raises(torch.jit.Error, match="too many"):
        summarize(x, 101, ["k"], 0.5)
    with pytest.raises(RuntimeError, match="missing value for argument 'names'"):
        summarize(x, 4)


def test_modules_are_not_written_again():
    with pytest.raises(NotImplementedError, match="copy the file"):
        torch.jit.save(load("net_traced"), io.BytesIO())


def compiled(body):
    """The function of an archive with this body."""
    records = {"code/__torch__.py": f"def f(x):\n  {body}\n".encode()}
    return torchscript._Archive(records, ()).function("__torch__.f")


@pytest.mark.parametrize(
    "body",
    [
        "return __import__('os').system('true')",
        "return open('/etc/passwd')",
        "return (x).__class__",
        "return [y for y in x]",
        "return torch.load(x)",
        "return torch.ops.aten.add(x, 1)",
        "return torch.from_file(x)",
        "return torch.hub.load(x)",
        "return (lambda: 1)()",
        "return f'{x}'",
        "import os",
        "return ops.prim.PythonOp(x)",
        "return __torch__.nothing(x)",
        "return range(2).__class__",
        "__value_0 = 1",
        "with x: pass",
    ],
)
def test_unknown_code_is_refused(body):
    with pytest.raises((NotImplementedError, RuntimeError)):
        compiled(body)(torch.ones(2))


@pytest.mark.parametrize(
    "text",
    [
        "def f(:",
        "class Net(Module):\n  x : Final[int] = f(1)",
        "class Net(Module):\n  f(1).x : int",
    ],
)
def test_damaged_code_is_refused(text):
    with pytest.raises(RuntimeError, match="not scripted code"):
        torchscript._Archive({"code/__torch__.py": text.encode()}, ())


def test_attributes_are_those_of_the_archive():
    loaded = load("net_traced")
    assert torchscript.attribute(loaded, "training") is False
    for name in ("save", "__class__", "_script_codes", "register_forward_hook"):
        with pytest.raises(RuntimeError, match="has no attribute"):
            torchscript.attribute(loaded, name)
    with pytest.raises(RuntimeError, match="has no attribute"):
        torchscript.attribute(torch.ones(1), "numpy")
    with pytest.raises(RuntimeError, match="cannot be set"):
        torchscript.set_attribute(loaded, "forward", 1)


def test_operators_of_numbers_lists_and_texts():
    find = torchscript_operators.find
    assert find("torch.add")([1], [2]) == [1, 2] and find("torch.div")(3, 2) == 1.5
    assert find("torch.remainder")(-3, 2) == 1 and find("torch.floor")(2.5) == 2
    assert find("torch.format")("{} {}", 1, "{0.__class__}") == "1 {0.__class__}"
    assert find("torch.slice")([1, 2, 3], 1) == [2, 3]
    assert find("ops.prim.dtype")(torch.ones(1)) == 6
    assert find("torch.zeros")([2], dtype=4, layout=None, device=None).dtype == torch.int64
    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(find("torch.slice")(x, 1, None, None, 2), x[:, ::2])
    assert find("torch.split")(x, 1, 0)[1].shape == (1, 3)
    torch.testing.assert_close(
        find("torch.cross_entropy_loss")(x, torch.tensor([0, 1]), None, 2, -100, 0.0),
        F.cross_entropy(x, torch.tensor([0, 1]), reduction="sum"),
    )
    for name in ("torch.from_file", "torch.set_", "torch.load", "torch.__class__", "os.system"):
        assert find(name) is None
