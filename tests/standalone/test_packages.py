"""Packages of compiled models: bits of eager mode, sizes that vary, constants, files, errors."""

from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._inductor import aot_compile, aoti_compile_and_package, aoti_load_package
from flambeau._inductor.package import AOTICompiledModel, load_package, package_aoti
from flambeau.export import export
from flambeau.nn import functional
from tests.standalone.programs import B, Model, cases, copied, loaded, packaged, same, values

WRITING = ("buffers", "cache")


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", cases())
def test_packages_give_the_bits_of_eager_mode(name, threads):
    case = cases()[name]
    model = case.model if name in WRITING else case.model.eval()
    compiled, plain = loaded(copy.deepcopy(model), case.args, case.shapes), copy.deepcopy(model)
    for args in (case.args, *case.others, case.args):
        with torch.no_grad():
            expected = plain(*copied(args))
        torch.set_num_threads(1)
        first = compiled(*copied(args))
        assert same(expected, first)
        if name in WRITING:  # a call updates buffers
            continue
        torch.set_num_threads(3)
        assert same(first, compiled(*copied(args)))


def test_long_runs_on_several_threads(threads):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64), nn.Softmax(-1))
    x = torch.randn(128, 256)
    compiled = loaded(model, (x,), ({0: torch.export.Dim("n", max=512)},))
    results = []
    for count in (1, 2, 5, 2):
        torch.set_num_threads(count)
        results.append(compiled(x))
    with torch.no_grad():
        assert all(torch.equal(model(x), result) for result in results)


def test_inputs_of_other_strides():
    model = Model(lambda _, x: x * 2 + x.sum(0))
    compiled = loaded(model, (values(4, 6),))
    for x in (values(6, 4).T, values(4, 12)[:, ::2], values(1, 6).expand(4, 6), values(8, 6)[4:]):
        assert torch.equal(compiled(x), model(x))
    turned = values(2, 3, 4, 5).to(memory_format=torch.channels_last)
    conv = nn.Conv2d(3, 4, 2)
    result = loaded(conv, (turned,))(turned)
    assert torch.equal(result, conv(turned)) and result.stride() == conv(turned).stride()


def test_inputs_that_are_written():
    def forward(_, x, y):
        x.add_(y)
        return x * 2

    compiled = loaded(Model(forward), (values(4), values(4)))
    x, plain = values(4), values(4)
    assert torch.equal(compiled(x, values(4)), forward(None, plain, values(4)))
    assert torch.equal(x, plain)
    wide = values(8)
    compiled(wide[::2], values(4))  # a copy is written, then copied back
    assert torch.equal(wide[::2], values(8)[::2] + values(4))
    assert torch.equal(wide[1::2], values(8)[1::2])


def test_structures_of_arguments_and_results():
    class Scaled(nn.Module):
        def forward(self, pair, *, scale, flag=True):
            return {"sum": pair[0] + pair[1], "scaled": [pair[0] * scale, flag]}

    args, kwargs = ((values(2), values(2)),), {"scale": torch.tensor(2.0), "flag": True}
    compiled = loaded(Scaled(), args, kwargs=kwargs)
    result = compiled(*args, **kwargs)
    assert same(Scaled()(*args, **kwargs), result) and list(result) == ["sum", "scaled"]
    with pytest.raises(ValueError, match="keyword mismatch"):
        compiled(*args, scale=kwargs["scale"])
    with pytest.raises(ValueError, match="structure"):
        compiled((values(2), values(2), values(2)), **kwargs)
    with pytest.raises(RuntimeError, match="an argument is False, in the program True"):
        compiled(*args, scale=kwargs["scale"], flag=False)
    with pytest.raises(RuntimeError, match="is no tensor"):
        compiled((values(2), 3.0), **kwargs)


def test_arguments_that_do_not_fit():
    compiled = loaded(nn.Linear(3, 4), (values(2, 3),), ({0: B},))
    for wrong, text in (
        (values(2, 4), r"size 1 of input is 4, expected 3"),
        (values(65, 3), r"Guard failed: input.size\(\)\[0\] <= 64"),
        (values(0, 3), r"Guard failed: 0 < input.size\(\)\[0\]"),
        (values(2, 3, 3), "3 dimensions"),
        (values(2, 3).double(), "dtype"),
    ):
        with pytest.raises(RuntimeError, match=text):
            compiled(wrong)


def test_indices_of_the_data():
    compiled = loaded(nn.Embedding(5, 3), (torch.tensor([1, 2]),))
    with pytest.raises(IndexError, match="7"):
        compiled(torch.tensor([1, 7]))
    assert compiled(torch.tensor([4, 0])).shape == (2, 3)


def test_constants_are_updated():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8, bias=False))
    x = values(4, 64)
    compiled = loaded(model, (x,))
    assert compiled.get_constant_fqns() == ["0.weight", "0.bias", "2.weight"]
    for step in range(3):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5 + step)
            compiled.load_constants(model.state_dict(), check_full_update=True)
            assert torch.equal(compiled(x), model(x))
    own = {name: x.detach().clone() for name, x in model.named_parameters()}
    compiled.load_constants(own, check_full_update=True, user_managed=True)
    own["0.bias"].zero_()
    compiled.load_constants({"0.bias": own["0.bias"]}, check_full_update=False, user_managed=True)
    model[0].bias.data.zero_()
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))


def test_wrong_constants():
    compiled = loaded(nn.Linear(3, 4), (values(2, 3),))
    with pytest.raises(RuntimeError, match=r"no value for \['bias'\]"):
        compiled.load_constants({"weight": values(4, 3)}, check_full_update=True)
    with pytest.raises(RuntimeError, match="no constant 'scale'"):
        compiled.load_constants({"scale": values(4, 3)}, check_full_update=False)
    with pytest.raises(RuntimeError, match=r"sizes \(3, 4\)"):
        compiled.load_constants({"weight": values(3, 4)}, check_full_update=False)
    with pytest.raises(NotImplementedError, match="not copied"):
        copy.deepcopy(compiled)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda _, x: torch.rand(3) + x, "random"),
        (lambda _, x: x.topk(2).values, "topk"),
        (lambda _, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), "cond"),
        (lambda _, x: torch.fft.fft(x).real, "fft"),
    ],
)
def test_programs_that_need_the_native_core(function, text):
    with pytest.raises(NotImplementedError, match=text):
        packaged(Model(function), (values(3),))


def test_a_refused_program_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = export(Model(lambda _, x: torch.rand(3) + x), (values(3),))
    with pytest.raises(NotImplementedError):
        aoti_compile_and_package(program)
    assert not list(tmp_path.iterdir())


def test_files(tmp_path):
    model, x = nn.Linear(3, 4), values(2, 3)
    program = export(model, (x,))
    path = aoti_compile_and_package(program)
    assert path.endswith(".pt2") and torch.equal(aoti_load_package(path)(x), model(x))
    os.unlink(path)
    path = tmp_path / "model.pt2"
    options = {"aot_inductor.metadata": {"author": "me"}}
    assert aoti_compile_and_package(program, package_path=path, inductor_configs=options) == path
    assert [x.name for x in tmp_path.iterdir()] == ["model.pt2"]
    compiled = load_package(path, run_single_threaded=True)
    assert isinstance(compiled, AOTICompiledModel) and compiled.loader is compiled
    metadata = compiled.get_metadata()
    assert metadata["author"] == "me" and metadata["AOTI_DEVICE_KEY"] == "cpu"
    compiled_path = aot_compile(model, (x,))
    assert torch.equal(aoti_load_package(compiled_path)(x), model(x))
    os.unlink(compiled_path)
    with pytest.raises(AssertionError, match=r"\.pt2"):
        aoti_compile_and_package(program, package_path=str(tmp_path / "model.zip"))
    with pytest.raises(AssertionError, match="no exported program"):
        aoti_compile_and_package(model)
    with pytest.raises(NotImplementedError, match="aoti_compile_and_package writes"):
        package_aoti(path, [])
    with pytest.raises(RuntimeError, match="no model 'other'"):
        load_package(path, "other")


def test_a_fresh_process_runs_a_package(tmp_path):
    path = str(tmp_path / "model.pt2")
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), values(5, 3)
    aoti_compile_and_package(
        export(model, (values(2, 3),), dynamic_shapes=({0: B},)), package_path=path
    )
    script = (
        "import sys, flambeau as torch\n"
        "from flambeau._inductor import aoti_load_package\n"
        "x = (torch.arange(15.) * 0.37 - 1).sin().reshape(5, 3)\n"
        "print([y.hex() for y in aoti_load_package(sys.argv[1])(x).flatten().tolist()])\n"
    )
    environment = {**os.environ, "FLAMBEAU_COMPILER": "never", "PATH": ""}
    result = subprocess.run(
        [sys.executable, "-c", script, path],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == str([y.hex() for y in model(x).flatten().tolist()])


def test_damaged_packages():
    content = packaged(nn.Linear(3, 4), (values(2, 3),)).getvalue()
    for damaged in (b"", b"PK", content[:1000], content[: len(content) // 2], content[:-30]):
        with pytest.raises(RuntimeError):
            aoti_load_package(io.BytesIO(damaged))
    for change in (
        {"inputs": []},
        {"outputs": [["tensor", 5]]},
        {"in_spec": "x"},
        {"metadata": 3},
        {"fixed": None},
    ):
        with pytest.raises(RuntimeError):
            aoti_load_package(_rewritten(content, change))
    with pytest.raises(RuntimeError, match="too short"):
        aoti_load_package(_rewritten(content, {}, {"constants.bin": b"123"}))
    with pytest.raises(RuntimeError, match="cannot be loaded"):
        aoti_load_package(_rewritten(content, {}, {"model.so": b"\x7fELF"}))
    file = io.BytesIO()
    torch.export.save(export(nn.Linear(3, 4), (values(2, 3),)), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="no package"):
        aoti_load_package(file)


def _rewritten(content, change, records=None):
    """The package with another description, or other records."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            name = info.filename.rsplit("/", 1)[1]
            if name == "model.json":
                data = json.dumps({**json.loads(data), **change}).encode()
            new.writestr(info.filename, (records or {}).get(name, data))
    file.seek(0)
    return file


def test_packages_of_pytorch_are_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/archive_format", "pt2")
        archive.writestr("x/data/aotinductor/model/abc.wrapper.so", b"\x7fELF")
    file.seek(0)
    with pytest.raises(NotImplementedError, match="PyTorch's"):
        aoti_load_package(file)


def test_several_threads_call_one_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    compiled = loaded(model, (values(4, 32),), ({0: B},))
    inputs = [values(n, 32) + n for n in range(1, 9)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
    wrong = []

    def run(k):
        for _ in range(50):
            if not torch.equal(compiled(inputs[k]), expected[k]):
                wrong.append(k)

    workers = [threading.Thread(target=run, args=(k,)) for k in range(len(inputs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_child_process_runs_the_model_of_its_parent(threads):
    torch.set_num_threads(2)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64))
    x = torch.randn(128, 256)
    compiled = loaded(model, (x,))
    expected = compiled(x)
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(compiled(x), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(compiled(x), expected)


def test_packages_name_their_constants_as_pytorch(tmp_path):
    class Held(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0]), persistent=False)

        def forward(self, x):
            return functional.relu(self.linear(x)) * self.mask + torch.tensor([1.0, 2.0, 3.0])

    compiled = loaded(Held(), (values(2, 3),))
    assert compiled.get_constant_fqns()[:3] == ["linear.weight", "linear.bias", "mask"]
    assert len(compiled.get_constant_fqns()) == 4
    assert not list(Path(tmp_path).iterdir())
