"""Builds the native core and fills the kernel cache; all else is in pyproject.toml."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent))  # a build front end does not put it there

from tools import build_native  # noqa: E402


class BuildCore(build_ext):
    """Hands the one extension to ``tools/build_native.py`` instead of to setuptools."""

    def build_extension(self, ext: Extension) -> None:
        """Compile and link the core where setuptools expects it."""
        build_native.build(Path(self.get_ext_fullpath(ext.name)))

    def run(self) -> None:
        """Build the core, then the block functions and kernels that the package installs.

        An editable installation takes those of its checkout, which ``./go`` fills.
        """
        super().run()
        if not self.inplace:
            folder = Path(self.build_lib).resolve()
            build_block_functions(folder)
            fill_kernels(folder)


def build_block_functions(folder: Path) -> None:
    """Build ``flambeau/_baseline`` of the package in *folder*, as ``./go`` does in the checkout."""
    command = [sys.executable, "-m", "tools.build_baseline", "--directory"]
    path = os.pathsep.join([str(folder), str(Path(__file__).resolve().parent)])
    environment = {**os.environ, "PYTHONPATH": path}
    libraries = folder / "flambeau" / "_baseline"
    subprocess.run([*command, str(libraries)], cwd=folder, env=environment, check=True)


def fill_kernels(folder: Path) -> None:
    """Fill ``flambeau/_kernels`` of the package in *folder*, as ``./go`` does in the checkout."""
    kernels = folder / "flambeau" / "_kernels"
    command = [sys.executable, "-m", "flambeau.driver.prefill", "--directory", str(kernels)]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(folder), "FLAMBEAU_CACHE_DIR": cache}
        subprocess.run(command, cwd=folder, env=environment, check=True)


setup(
    # The sources are named in tools/build_native.py; setuptools only needs to know the module.
    ext_modules=[Extension("flambeau._core", sources=[])] if build_native.sources() else [],
    cmdclass={"build_ext": BuildCore},
)
