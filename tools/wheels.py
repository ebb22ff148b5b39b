"""Builds a wheel for each CPython that is at hand with its headers, 3.11 to 3.14, into `dist/`.

    python -m tools.wheels [VERSION ...]

Looks for `python3.N` on PATH and among the versions of pyenv. Each has a virtual environment under
`build/`; block functions and templates' variants are the same for all, and are compiled once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.build_native import BUILD, ROOT

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
USABLE = """
import os, sys, sysconfig, venv, ensurepip
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(sys.implementation.name != "cpython" or not os.path.exists(header))
"""


def interpreter(version: str) -> str | None:
    """A CPython of a version that extension modules can be built for."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    name = f"python{version}"
    managed = sorted(map(str, root.glob(f"versions/{version}.*/bin/{name}")), reverse=True)
    for candidate in (shutil.which(name), *managed):
        if (
            candidate
            and not subprocess.run([candidate, "-c", USABLE], capture_output=True).returncode
        ):
            return candidate
    return None


def build(python: str, version: str) -> None:
    """Builds the wheel of a version.

    Raises:
        subprocess.CalledProcessError: a step failed, whose output is above.
    """
    environment = BUILD / f"wheel-{version}"
    if not (environment / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", environment], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "setuptools>=77"], cwd=ROOT, check=True)
    for leftover in [*BUILD.glob("lib*"), *BUILD.glob("bdist*")]:
        shutil.rmtree(leftover)  # setuptools would pack files that are gone from the checkout
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", "dist"]
    subprocess.run([*pip, "wheel", *options, "."], cwd=ROOT, check=True)


def main(versions: list[str]) -> int:
    """Builds the wheels of the versions that are here; returns an exit status."""
    built = 0
    for version in versions or VERSIONS:
        python = interpreter(version)
        if python is None:
            print(f"[wheels] CPython {version}: not found, or without headers")
            continue
        print(f"[wheels] CPython {version}: {python}", flush=True)
        build(python, version)
        built += 1
    for path in sorted((ROOT / "dist").glob("flambeau-*.whl")):
        print(f"[wheels] {path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")
    return 0 if built else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
