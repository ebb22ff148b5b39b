"""Models and checkpoints by address: folders, `file:` addresses, an archive of a repository."""

import hashlib
import io
import zipfile

import pytest

import flambeau as torch
from flambeau import hub

HUBCONF = '''
dependencies = ["math"]
from helper import scale

def linear(size=2):
    """A layer."""
    import flambeau
    return flambeau.nn.Linear(size, scale)

_hidden = linear
'''


@pytest.fixture(autouse=True)
def folder(tmp_path):
    hub.set_dir(tmp_path / "hub")
    yield tmp_path
    hub._hub_dir = None


def repository(folder, text=HUBCONF):
    folder.mkdir(exist_ok=True)
    (folder / "hubconf.py").write_text(text)
    (folder / "helper.py").write_text("scale = 3\n")
    return folder


def test_folder(folder):
    path = str(repository(folder / "repo"))
    assert hub.load(path, "linear", size=5, source="local").weight.shape == (3, 5)
    with pytest.raises(RuntimeError, match="Cannot find callable other"):
        hub.load(path, "other", source="local")
    with pytest.raises(ValueError, match="Unknown source"):
        hub.load(path, "linear", source="nowhere")
    text = HUBCONF.replace('"math"', '"no_such_module_x"')
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_module_x"):
        hub.load(str(repository(folder / "other", text)), "linear", source="local")


def test_repository(folder, monkeypatch):
    archive = folder / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("owner-name-12ab/hubconf.py", HUBCONF)
        file.writestr("owner-name-12ab/helper.py", "scale = 3\n")
    monkeypatch.setattr(hub, "_git_archive_link", lambda *parts: archive.as_uri())
    options = {"trust_repo": True, "skip_validation": True}
    assert hub.list("owner/name:dev", **options) == ["linear"]
    assert hub.help("owner/name:dev", "linear") == "A layer."
    archive.unlink()  # it is stored now
    assert hub.load("owner/name:dev", "linear").in_features == 2
    assert "owner_name" in (folder / "hub" / "trusted_list").read_text()


def test_question_before_code_runs(folder, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda text: "n")
    with pytest.raises(Exception, match="Untrusted repository"):
        hub.load("somebody/else:main", "linear")
    assert not list((folder / "hub").glob("somebody*"))


def test_archive_that_leads_out(folder, monkeypatch):
    archive = folder / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("top/hubconf.py", "")
        file.writestr("top/../../../escaped.py", "")
    monkeypatch.setattr(hub, "_git_archive_link", lambda *parts: archive.as_uri())
    with pytest.raises(ValueError, match="leads out"):
        hub.load("owner/name:dev", "linear", trust_repo=True, skip_validation=True)
    assert not list(folder.rglob("escaped.py"))


def test_checkpoint(folder):
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(2)}, buffer)
    content = buffer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    good, bad = folder / f"model-{digest[:8]}.pth", folder / "model-00000000.pth"
    good.write_bytes(content)
    bad.write_bytes(content)
    state = hub.load_state_dict_from_url(good.as_uri(), progress=False, check_hash=True)
    assert torch.equal(state["w"], torch.ones(2))
    good.unlink()  # it is stored now
    hub.load_state_dict_from_url(good.as_uri(), progress=False, check_hash=True)
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.load_state_dict_from_url(bad.as_uri(), progress=False, check_hash=True)
    assert sorted(p.name for p in (folder / "hub" / "checkpoints").iterdir()) == [good.name]


def test_progress(folder, capsys):
    (folder / "a.bin").write_bytes(b"x" * 1000)
    hub.download_url_to_file((folder / "a.bin").as_uri(), str(folder / "b.bin"))
    assert (folder / "b.bin").read_bytes() == b"x" * 1000
    assert "100" in capsys.readouterr().err


def test_places(monkeypatch):
    hub._hub_dir = None
    monkeypatch.setenv("TORCH_HOME", "/somewhere")
    assert hub.get_dir() == "/somewhere/hub"
    monkeypatch.delenv("TORCH_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert hub.get_dir() == "/cache/torch/hub"
