"""Archives of scripted code: round trips without the class, and hostile files."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import zipfile
from typing import NamedTuple

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.jit import archive
from flambeau.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Pair(NamedTuple):
    value: torch.Tensor
    count: int = 1


def helper(x, factor: float = 2.0):
    return F.gelu(x) * factor


class Net(nn.Module):
    scale: torch.jit.Final[float]

    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.5
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
        self.recurrent = nn.LSTM(4, 3, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.heads = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 2)})
        self.names = ["a", "b"]
        self.register_buffer("offset", torch.ones(1))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.layers(x).flatten(1)
        steps = self.encoder(x.unflatten(1, (2, 4)))
        out, _ = self.recurrent(steps)
        pair = Pair(helper(out[:, -1], factor=self.scale), len(self.names))
        results = {}
        for name, head in self.heads.items():
            results[name] = head(pair.value) + self.offset * pair.count
        return results

    @torch.jit.export
    def names_of_heads(self) -> list[str]:
        return [name for name in self.names]

    @torch.jit.unused
    def training_only(self, x):
        return (y for y in x)


def stored(scripted, **arguments) -> io.BytesIO:
    file = io.BytesIO()
    torch.jit.save(scripted, file, **arguments)
    file.seek(0)
    return file


def test_modules_come_back_with_equal_bits():
    scripted = torch.jit.script(Net().eval())
    extra = {"notes.txt": ""}
    loaded = torch.jit.load(stored(scripted, _extra_files={"notes.txt": "hi"}), _extra_files=extra)
    x = torch.randn(3, 1, 4, 4)
    expected, actual = scripted(x), loaded(x)
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    assert list(loaded.state_dict()) == list(scripted.state_dict())
    assert loaded.names_of_heads() == ["a", "b"] and loaded.scale == 0.5
    assert extra["notes.txt"] == b"hi"
    assert not loaded.training and loaded.original_name == "Net"
    with pytest.raises(RuntimeError, match="unused"):
        loaded.training_only(x)
    again = torch.jit.load(stored(loaded))
    assert all(torch.equal(expected[name], value) for name, value in again(x).items())


def test_another_process_needs_no_source(tmp_path):
    path = str(tmp_path / "net.pt")
    scripted = torch.jit.script(Net().eval())
    torch.jit.save(scripted, path)
    torch.save((torch.ones(1, 1, 4, 4), scripted(torch.ones(1, 1, 4, 4))), tmp_path / "values.pt")
    program = (
        "import flambeau as torch, sys, warnings; warnings.simplefilter('ignore')\n"
        "x, expected = torch.load(sys.argv[2])\n"
        "actual = torch.jit.load(sys.argv[1])(x)\n"
        "assert all(torch.equal(actual[k], expected[k]) for k in expected)\n"
        "assert 'test_archive' not in sys.modules\n"
    )
    command = [sys.executable, "-c", program, path, str(tmp_path / "values.pt")]
    root = os.path.dirname(os.path.dirname(torch.__file__))
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": root}, cwd=tmp_path)


def test_traces_and_functions():
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.SiLU())
    constant = torch.arange(4.0)
    traced = torch.jit.trace(lambda x: module[0](x) if False else x * constant, torch.ones(4))
    loaded = torch.jit.load(stored(traced))
    assert torch.equal(loaded(torch.ones(2, 4)), traced(torch.ones(2, 4)))
    traced = torch.jit.trace(module, torch.ones(1, 3))
    loaded = torch.jit.load(stored(traced))
    x = torch.randn(5, 3)
    assert torch.equal(loaded(x), module(x))
    loaded = torch.jit.load(stored(torch.jit.script(helper)))
    assert torch.equal(loaded(x, factor=3.0), helper(x, 3.0))
    with pytest.raises(RuntimeError, match="Unknown keyword argument"):
        loaded(x, other=3.0)


def test_training_goes_on_after_loading():
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    loaded = torch.jit.load(stored(torch.jit.script(module)))
    optimizer = torch.optim.SGD(loaded.parameters(), lr=0.1)
    before = loaded(torch.ones(2, 3)).sum().item()
    loaded(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    assert loaded(torch.ones(2, 3)).sum().item() < before


def test_python_calls_cannot_be_saved():
    @torch.jit.ignore
    def python(x):
        return x

    def calls(x):
        return python(x)

    with pytest.raises(RuntimeError, match="Could not export Python function call 'python'"):
        stored(torch.jit.script(calls))
    with pytest.raises(ValueError, match="not scripted"):
        stored(nn.Linear(1, 1))


def test_copies_and_pickles():
    import copy
    import pickle

    scripted = torch.jit.script(Net().eval())
    x = torch.randn(1, 1, 4, 4)
    for twin in (copy.deepcopy(scripted), pickle.loads(pickle.dumps(scripted))):
        assert torch.equal(twin(x)["a"], scripted(x)["a"])
        assert twin.offset is not scripted.offset


def test_missing_files(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        torch.jit.load(str(tmp_path / "absent.pt"))
    with pytest.raises(ValueError, match="is a directory"):
        torch.jit.load(str(tmp_path))
    torch.save({"a": 1}, tmp_path / "plain.pt")
    with pytest.raises(RuntimeError, match="constants.pkl"):
        torch.jit.load(str(tmp_path / "plain.pt"))


def rewritten(file: io.BytesIO, changes: dict[str, str]) -> io.BytesIO:
    """The archive with other code: stored records, no padding."""
    result = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            for before, after in changes.items():
                data = data.replace(before.encode(), after.encode()) if "/code/" in name else data
            new.writestr(name, data)
    result.seek(0)
    return result


def simple(x):
    return x.relu()


@pytest.mark.parametrize(
    "body",
    [
        "__import__('os').system('true')",
        "open('/etc/passwd').read()",
        "x.__class__.__mro__",
        "x.numpy().tofile('/tmp/hostile')",
        "torch.load('file')",
        "torch.hub.load('a', 'b')",
        "torch.utils.data.os.system('true')",
        "torch.save(x, '/tmp/hostile')",
        "getattr(x, 'num' + 'py')",
        "getattr(x, '__class__')",
        "[getattr][0](x, '__class__')",
        "(lambda y: y)(x)",
        "(y for y in [x])",
        "x.untyped_storage()",
        "x.data_ptr()",
        "torch.Tensor.numpy(x)",
        "torch.jit.load('x')",
        "torch.__builtins__",
        "math.__loader__",
        "__builtins__",
        "__torch__.__class__",
        "exec('1')",
        "type(x)",
        "x.map_(x, print)",
        "x.apply_(print)",
        "x.register_hook(print)",
        "torch.autograd.grad",
        "eval('x')",
        "globals()",
        "print.__self__",
        "'{0.__class__}'.format(x).__class__",
        "torch.from_file('/etc/passwd')",
        "torch.library.define",
    ],
)
def test_hostile_code_is_refused(body):
    file = rewritten(stored(torch.jit.script(simple)), {"x.relu()": body})
    with pytest.raises(RuntimeError, match="not scripted code"):
        torch.jit.load(file)


def test_hostile_attributes_are_refused():
    file = stored(torch.jit.script(Net()))
    content, records = torch.serialization.read_scripted(file, None)
    for name in ("save", "register_forward_hook", "__class__", "numpy", "_script_codes"):
        changed = {**content, "modules": [dict(record) for record in content["modules"]]}
        changed["modules"][0]["attributes"] = {name: 1}
        with pytest.raises(RuntimeError, match="not scripted code"):
            archive._Reader(changed, records)
    changed = {**content, "modules": [dict(record) for record in content["modules"]]}
    for layer in ("torch.utils.data.DataLoader", "torch.nn.modules.os.system", "os.system"):
        changed["modules"][0]["library"] = layer
        with pytest.raises(RuntimeError, match="not scripted code"):
            archive._Reader(changed, records).root()


def test_mutated_archives_raise():
    data = stored(torch.jit.script(Net())).getvalue()
    rng = random.Random(0)
    for _ in range(150):
        mutated = bytearray(data)
        for _ in range(rng.choice((1, 4, 20))):
            mutated[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del mutated[rng.randrange(len(data)) :]
        try:
            torch.jit.load(io.BytesIO(bytes(mutated)))
        except (RuntimeError, ValueError, EOFError, OSError) as error:
            assert str(error)
        except Exception as error:  # noqa: BLE001 - the pickle's own error
            assert type(error).__name__ == "UnpicklingError", repr(error)


def test_compilation_units():
    unit = torch.jit.CompilationUnit(
        "def twice(x: Tensor) -> Tensor:\n  return x + x\n"
        "def four_times(x, n: int = 1):\n  return twice(twice(x)) * n\n"
    )
    assert unit.four_times(torch.ones(1), 2).item() == 8
    assert unit.find_function("absent") is None
    assert [function.name for function in unit.get_functions()] == ["twice", "four_times"]
    with pytest.raises(AttributeError):
        unit.absent  # noqa: B018


def test_operator_names():
    assert torch.jit.export_opnames(torch.jit.script(helper)) == ["aten::gelu"]


def test_torch_load_of_archives(tmp_path) -> None:
    path = tmp_path / "model.pt"
    model = torch.nn.Linear(2, 2)
    torch.jit.save(torch.jit.script(model), path)
    with pytest.raises(RuntimeError, match="Cannot use ``weights_only=True`` with TorchScript"):
        torch.load(path)
    with pytest.warns(UserWarning, match="dispatching to 'torch.jit.load'"):
        loaded = torch.load(path, weights_only=False)
    assert torch.equal(loaded(torch.ones(1, 2)), model(torch.ones(1, 2)))
