"""`torch._inductor.package`: packages of compiled models (`flambeau/standalone`)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import NoReturn

from flambeau.export import ExportedProgram
from flambeau.ir.failure import failure
from flambeau.standalone import package as _package
from flambeau.standalone.loaded import AOTICompiledModel, load

__all__ = ["AOTICompiledModel", "load_package", "package_aoti"]


def compiled(program: object, path: object, configs: Mapping[str, object]) -> object:
    """Writes a package; returns its path.

    Args:
        program: an `ExportedProgram`.
        path: a path, a binary file object, or None.
        configs: options, of which "aot_inductor.metadata" is used.
    """
    if not isinstance(program, ExportedProgram):
        raise AssertionError(
            f"[aoti_compile_and_package] it is no exported program: {type(program).__name__}\n"
            "hint: torch.export.export(model, args)"
        )
    if isinstance(path, (str, os.PathLike)) and not os.fspath(path).endswith(".pt2"):
        raise AssertionError(f"Expect package path to end with .pt2, got {path}")
    metadata = configs.get("aot_inductor.metadata") or {}
    assert isinstance(metadata, Mapping)
    if path is not None:
        _package.write(program, path, metadata)
        return path
    handle, new = tempfile.mkstemp(prefix="flambeau-", suffix=".pt2")
    os.close(handle)
    try:
        _package.write(program, new, metadata)
    except BaseException:
        os.unlink(new)
        raise
    return new


def load_package(
    path: object,
    model_name: str = "model",
    run_single_threaded: bool = False,
    num_runners: int = 1,
    device_index: int = -1,
) -> AOTICompiledModel:
    """Loads a package.

    Args:
        path: the file, or a binary file object.
        model_name: of the model in it.
        run_single_threaded: whether one thread runs it.
        num_runners: without effect: calls from several threads run one after the other.
        device_index: without effect: models run on the CPU.

    Raises:
        RuntimeError: the file is damaged, no package, or for another processor.
        NotImplementedError: PyTorch wrote it.
    """
    return load(path, model_name, run_single_threaded)


def package_aoti(archive_file: object, aoti_files: object) -> NoReturn:
    """Raises: a package is written by `aoti_compile_and_package` at once.

    Args:
        archive_file: the package.
        aoti_files: files of compiled models.

    Raises:
        NotImplementedError: always.
    """
    problem = "compiled models have no files of their own"
    hint = "aoti_compile_and_package writes the package"
    raise failure(NotImplementedError, "package_aoti", problem, hint)
