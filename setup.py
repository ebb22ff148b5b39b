"""Builds the native core for wheels and editable installs; all else is in pyproject.toml."""

import sys
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


setup(
    # The sources are named in tools/build_native.py; setuptools only needs to know the module.
    ext_modules=[Extension("flambeau._core", sources=[])] if build_native.sources() else [],
    cmdclass={"build_ext": BuildCore},
)
