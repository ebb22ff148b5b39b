"""What ends in a wheel: every folder with code is a package, and nothing is required beside it."""

import tomllib
from pathlib import Path

import flambeau

ROOT = Path(__file__).resolve().parent.parent


def test_every_folder_with_code_is_a_package():
    """Setuptools leaves out a folder without `__init__.py`; a checkout would not notice."""
    folders = {path.parent for path in (ROOT / "flambeau").rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_required_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []


def test_version():
    assert str(flambeau.__version__) == f"2.13.0+flambeau{flambeau.version.__version__}"
    assert flambeau.version.cuda is None
