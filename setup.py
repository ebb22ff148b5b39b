"""Builds what is compiled of the package and names its wheel; all else is in pyproject.toml."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # a build front end does not put it there

from tools import build_native, wheel_tag  # noqa: E402


class BuildCompiled(build_ext):
    """Hands all compilers to ``tools/build_package.py`` instead of to setuptools."""

    def build_extension(self, ext: Extension) -> None:
        """Compile and link the core where setuptools expects it."""
        build_native.build(Path(self.get_ext_fullpath(ext.name)))

    def run(self) -> None:
        """Build the core, the block functions, kernels and plans that the package installs.

        An editable installation takes those of its checkout, which ``./go`` builds.
        """
        if self.inplace:
            super().run()
            return
        folder = Path(self.build_lib).resolve()
        package = folder / "flambeau"
        plans = package / "_plans" / "plans"
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "FLAMBEAU_CACHE_DIR": cache, "FLAMBEAU_DEBUG": "0"}
            environment["PYTHONPATH"] = os.pathsep.join((str(folder), str(ROOT)))
            for path, *words in (
                (ROOT, "-m", "tools.build_package", "--directory", package),
                (folder, "-m", "tools.ship_plans", "--targets", "2", "--file", plans),
            ):  # the second runs the package that was built
                command = [sys.executable, *map(str, words)]
                subprocess.run(command, cwd=path, env=environment, check=True)
        # Compiled pieces of variants: only a compiler of the same version takes them up again.
        shutil.rmtree(package / "_kernels" / "blobs", ignore_errors=True)


class NamedWheel(bdist_wheel):
    """Names a wheel after the oldest Linux that can load what it holds."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI, platform."""
        python, abi, platform = super().get_tag()
        if platform.startswith("linux") and not self.plat_name_supplied:
            platform = wheel_tag.platform_tag(Path(self.bdist_dir))
        return python, abi, platform


setup(
    # The sources are named in tools/build_native.py; setuptools only needs to know the module.
    ext_modules=[Extension("flambeau._core", sources=[])] if build_native.sources() else [],
    cmdclass={"build_ext": BuildCompiled, "bdist_wheel": NamedWheel},
)
