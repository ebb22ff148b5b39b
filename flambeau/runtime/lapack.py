"""Finds the LAPACK library that linear algebra uses for matrices beyond a small size.

The wheel `scipy-openblas64` holds it. Native routines call `load` when they first need it; where
the wheel is not installed they compute with their own code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from flambeau import _core

_FILES = ("libscipy_openblas64_.so", "libscipy_openblas64_.dylib")


def library() -> Path | None:
    """The shared library of the wheel; its Python module is not imported."""
    spec = find_spec("scipy_openblas64")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for name in _FILES:
            path = Path(folder, "lib", name)
            if path.exists():
                return path
    return None


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Variables that OpenBLAS reads while it loads; afterwards they are as before."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def load() -> bool:
    """Loads the library; False where it is not installed or cannot be used.

    On processors with AVX-512 its kernels are selected explicitly: it does not detect newer
    processors and would run at half the speed. It starts no threads: one computes a matrix.
    """
    path = library()
    if path is None:
        return _core.load_lapack(None)
    settings = {"OPENBLAS_NUM_THREADS": "1"}
    kernels = _core.lapack_core()
    if kernels and "OPENBLAS_CORETYPE" not in os.environ:
        settings["OPENBLAS_CORETYPE"] = kernels
    with _environment(settings):
        return _core.load_lapack(str(path))
