"""What ends in a wheel: every folder with code is a package; what is required beside it."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import flambeau

ROOT = Path(__file__).resolve().parent.parent


def test_every_folder_with_code_is_a_package():
    """Setuptools leaves out a folder without `__init__.py`; a checkout would not notice."""
    folders = {path.parent for path in (ROOT / "flambeau").rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_one_required_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [word.partition(">=")[0] for word in project["dependencies"]] == ["scipy-openblas64"]


def test_version():
    assert str(flambeau.__version__) == f"2.13.0+flambeau{flambeau.version.__version__}"
    assert flambeau.version.cuda is None


KEYS = """
import functools
from flambeau.driver import prefill
calls = [functools.partial(prefill._call, *call) for call in prefill.calls()[:60]]
print(*sorted(key for key, _ in prefill.collect(calls, prefill.new_kernels())))
"""


def test_which_kernels_are_installed_depends_on_the_sources_alone():
    """Neither on the order of hashes nor on the time that is left."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", KEYS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (process.communicate()[0].split() for process in processes)
    assert len(first) > 100
    assert first == second


def test_the_distribution_named_torch(tmp_path):
    """Installed beside Flambeau, it makes `import torch` give Flambeau, and nothing else."""
    build = [sys.executable, "-m", "tools.alias_wheel", str(tmp_path)]
    name = subprocess.check_output(build, cwd=ROOT, text=True).strip()
    site = tmp_path / "site"
    with zipfile.ZipFile(tmp_path / name) as archive:
        assert archive.testzip() is None
        archive.extractall(site)
    program = """
import importlib.metadata as metadata, sys
import torch, torch.nn as nn, flambeau
assert torch is flambeau is sys.modules["torch"] and nn is flambeau.nn
assert metadata.version("torch") == str(torch.__version__)
[needed] = metadata.requires("torch")
assert needed == f"flambeau=={flambeau.version.__version__}"
assert metadata.packages_distributions()["torch"] == ["torch"]
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    module = [sys.executable, "-m", "torch.utils.collect_nothing"]
    failed = subprocess.run(module, env=environment, capture_output=True, text=True)
    assert "No module named torch.utils.collect_nothing" in failed.stderr
