"""Archives of modules and objects: written here, read in a fresh process."""

import io
import subprocess
import sys

import pytest

import flambeau as torch
from flambeau.package import (
    EmptyMatchError,
    GlobGroup,
    PackageExporter,
    PackageImporter,
    PackagingError,
    is_from_package,
    sys_importer,
)

MODEL = """
import math
from shapes_of_test import helper
import flambeau as torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return helper.twice(self.layer(x)) * math.pi
"""


@pytest.fixture
def sources(tmp_path, monkeypatch):
    folder = tmp_path / "src"
    (folder / "shapes_of_test").mkdir(parents=True)
    (folder / "shapes_of_test" / "__init__.py").write_text("")
    (folder / "shapes_of_test" / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    (folder / "shapes_of_test" / "model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.startswith("shapes_of_test")]:
        del sys.modules[name]


def written(path, rules):
    from shapes_of_test.model import Model

    model = Model()
    with PackageExporter(path) as exporter:
        rules(exporter)
        exporter.save_pickle("model", "model.pkl", {"m": model, "shared": [model.layer.weight] * 2})
        exporter.save_text("model", "notes.txt", "hello")
        exporter.save_binary("model", "raw.bin", b"\0\1")
    return model, exporter


def test_fresh_process(sources, tmp_path):
    path = tmp_path / "archive.pt"
    model, exporter = written(path, lambda e: e.intern("shapes_of_test.**"))
    assert "shapes_of_test.helper" in exporter.interned_modules()
    assert exporter.get_rdeps("shapes_of_test.helper") == ["shapes_of_test.model"]
    x = torch.tensor([[1.0, 2.0]])
    code = (
        "import sys, flambeau as torch\n"
        f"importer = torch.package.PackageImporter({str(path)!r})\n"
        "loaded = importer.load_pickle('model', 'model.pkl')\n"
        "assert 'shapes_of_test' not in sys.modules\n"
        "assert loaded['shared'][0] is loaded['shared'][1]\n"
        "print(loaded['m'](torch.tensor([[1.0, 2.0]])).tolist())\n"
        "print(importer.load_text('model', 'notes.txt'))\n"
        "print(importer.load_binary('model', 'raw.bin'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="."
    )
    assert done.stdout.splitlines() == [str(model(x).tolist()), "hello", r"b'\x00\x01'"]


def test_modules_stay_apart(sources, tmp_path):
    path = tmp_path / "archive.pt"
    model, _ = written(path, lambda e: e.intern("shapes_of_test.**"))
    first, second = (PackageImporter(path).load_pickle("model", "model.pkl")["m"] for _ in "ab")
    assert type(first) is not type(second) and type(first) is not type(model)
    assert is_from_package(first) and not is_from_package(model)
    importer = PackageImporter(path)
    loaded = importer.load_pickle("model", "model.pkl")["m"]
    buffer = io.BytesIO()  # once more, from the archive
    with PackageExporter(buffer, importer=[importer, sys_importer]) as exporter:
        exporter.intern("shapes_of_test.**")
        exporter.save_pickle("model", "model.pkl", loaded)
    buffer.seek(0)
    again = PackageImporter(buffer).load_pickle("model", "model.pkl")
    x = torch.ones(1, 2)
    assert torch.equal(again(x), model(x))


def test_modules_without_a_rule(sources, tmp_path):
    with pytest.raises(PackagingError, match="(?s)did not match.*shapes_of_test.model"):
        written(tmp_path / "a.pt", lambda e: None)
    with pytest.raises(PackagingError, match="denied"):
        written(tmp_path / "b.pt", lambda e: e.deny("shapes_of_test.**"))
    with pytest.raises(EmptyMatchError):
        written(
            tmp_path / "c.pt",
            lambda e: (e.intern("shapes_of_test.**"), e.mock("other.*", allow_empty=False)),
        )


def test_mocked_and_external(sources, tmp_path):
    path, seen = tmp_path / "archive.pt", []

    def rules(exporter):
        exporter.register_mock_hook(lambda e, name: seen.append(name))
        exporter.mock("shapes_of_test.helper")
        exporter.intern("shapes_of_test.**")

    written(path, rules)
    loaded = PackageImporter(path).load_pickle("model", "model.pkl")["m"]
    with pytest.raises(NotImplementedError, match="mocked"):
        loaded(torch.ones(1, 2))
    assert seen == ["shapes_of_test.helper"]
    external = tmp_path / "external.pt"
    _, exporter = written(external, lambda e: e.extern("shapes_of_test.**"))
    assert "shapes_of_test.model" in exporter.externed_modules()
    with pytest.raises(ImportError, match="disallowed"):
        PackageImporter(external, lambda name: not name.startswith("shapes_of_test"))
    assert PackageImporter(external).load_pickle("model", "model.pkl")["m"](torch.ones(1, 2)).shape


def test_sources_from_text():
    buffer = io.BytesIO()
    with PackageExporter(buffer) as exporter:
        exporter.save_source_string("pkg", "", is_package=True)
        exporter.save_source_string("pkg.a", "from . import b\nvalue = b.value + 1\n")
        exporter.save_source_string("pkg.b", "value = 41\n")
    importer = PackageImporter(buffer)
    assert importer.import_module("pkg.a").value == 42
    tree = str(importer.file_structure(include="**/*.py"))
    assert "a.py" in tree and "extern_modules" not in tree
    with pytest.raises(ModuleNotFoundError):
        importer.import_module("no_such")


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("torch.**", "torch", True),
        ("torch.**", "torch.nn.init", True),
        ("torch.*", "torch.nn.init", False),
        ("t*.nn", "torch.nn", True),
        ("**.init", "torch.nn.init", True),
    ],
)
def test_patterns(pattern, name, matches):
    assert GlobGroup(pattern).matches(name) is matches
