"""`torch.serialization`: `save` and `load`, and what may be in files that are loaded.

Five forms of checkpoints are read; their first bytes distinguish them: PyTorch's zip archives
(`archives.py`), its older files (`legacy.py`, `tar_files.py`), Flambeau's own form and any
safetensors file (`container.py`), and GGUF (`gguf.py`). `save` writes zip archives, the newer of
the older files, and Flambeau's own form.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from typing import Any

from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.runtime import missing as _missing
from flambeau.runtime.replacing import replacing
from flambeau.runtime.safe_classes import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from flambeau.serialization import (
    archives,
    container,
    gguf,
    legacy,
    sharded,
    tar_files,
    zip_reader,
)
from flambeau.serialization.gguf import load_gguf
from flambeau.serialization.inspection import get_unsafe_globals_in_checkpoint
from flambeau.serialization.locations import (
    default_restore_location,
    leads_to_meta,
    location_tag,
    register_package,
    restorer,
    validate_cuda_device,
    validate_hpu_device,
)
from flambeau.serialization.older_names import (
    SourceChangeWarning,
    StorageType,
    check_module_version_greater_or_equal,
    mkdtemp,
    normalize_storage_type,
    storage_to_tensor_type,
)
from flambeau.serialization.options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from flambeau.serialization.rebuild import _get_layout  # noqa: F401 - pickles name it
from flambeau.serialization.sources import Source, damaged, opened
from flambeau.utils.serialization import config

__all__ = [
    "LoadEndianness", "SourceChangeWarning", "StorageType", "add_safe_globals",
    "check_module_version_greater_or_equal", "clear_safe_globals", "config",
    "default_restore_location", "get_crc32_options", "get_default_load_endianness",
    "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load",
    "load_gguf", "location_tag", "mkdtemp", "normalize_storage_type", "register_package",
    "safe_globals", "save", "set_crc32_options", "set_default_load_endianness",
    "set_default_mmap_options", "skip_data", "storage_to_tensor_type", "validate_cuda_device",
    "validate_hpu_device",
]  # fmt: skip

FILE_LIKE = Any  # aliases of types, for annotations: a path or a binary file object,
MAP_LOCATION = Any  # a function of a storage and its place, a device, its name, a dict, None
STORAGE = Any
DEFAULT_PROTOCOL = 2
MAGIC_NUMBER = legacy.MAGIC
PROTOCOL_VERSION = legacy.VERSION
_FORMS = ("zip", "legacy", "safetensors")


# ------------------------------------------------------------------------------ writing
def save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    form: str | None = None,
) -> None:
    """Writes an object to a file that PyTorch reads, too.

    Tensors are saved with their dtypes, strides, shared storages and Python attributes. Any object
    that can be pickled can be saved; `load` reads tensors, containers and
    numbers back by default, and other classes where they are declared safe. A file at a path
    appears complete or not at all: it is written beside the target, synced, and renamed.

    Args:
        obj: what to save.
        f: a path or a binary file object.
        pickle_module: whose `Pickler` is used.
        pickle_protocol: of the pickle.
        _use_new_zipfile_serialization: False: the form "legacy".
        _disable_byteorder_record: leave out in which order bytes are.
        form: "zip", PyTorch's archives; "legacy", its older files; or "safetensors", Flambeau's
            own form, which holds no pickle, only plain values, and which any safetensors reader
            can list. None: "safetensors" for paths with that suffix, else "zip".

    Raises:
        TypeError: an object that cannot be pickled, or that the form does not have.
        RuntimeError: tensors of several dtypes share a storage (but for "safetensors").

    Example:
        >>> import io
        >>> file = io.BytesIO()  # or a path
        >>> torch.save({"weight": torch.ones(2), "step": 3}, file)
        >>> _ = file.seek(0)
        >>> torch.load(file)["step"]
        3
    """
    if not hasattr(f, "write") and not isinstance(f, (str, os.PathLike)):
        problem = "expected 'f' to be string, path, or a file-like object with a 'write' "
        problem += f"attribute, got {type(f).__name__}"
        raise failure(AttributeError, "save", problem, "open(path, 'wb')")
    form = _form(f, form, _use_new_zipfile_serialization)
    if hasattr(f, "write"):
        _write(obj, f, "archive", form, pickle_module, pickle_protocol, _disable_byteorder_record)
        return
    path = os.fspath(f)
    folder = os.path.splitext(os.path.basename(path))[0]
    with replacing(path) as file:
        _write(
            obj, file, folder or "archive", form, pickle_module, pickle_protocol,
            _disable_byteorder_record,
        )  # fmt: skip


def _form(f: Any, form: str | None, use_zip: bool) -> str:
    if form is None:
        if not hasattr(f, "write") and str(os.fspath(f)).endswith(".safetensors"):
            return "safetensors"
        return "zip" if use_zip else "legacy"
    if form not in _FORMS:
        raise ValueError(f"[save] there is no form {form!r}\nhint: one of {', '.join(_FORMS)}")
    return form


def _write(
    obj: Any, file: Any, folder: str, form: str, module: Any, protocol: int, no_order: bool
) -> None:
    if form == "safetensors":
        container.write(obj, file)
    elif form == "legacy":
        legacy.write(obj, file, module, protocol)
    else:
        archives.write(obj, file, folder, module, protocol, not no_order)


# ------------------------------------------------------------------------------ reading
def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads what `save` of Flambeau or PyTorch wrote; also safetensors and GGUF files.

    By default nothing in a file can run code, so that files from anywhere can be loaded.

    Args:
        f: a path or a binary file object. The index of a sharded safetensors checkpoint
            (`*.index.json`) loads all its files.
        map_location: where storages are restored: None (where they were), a device or its name, a
            dict of locations, or a function (storage, location) -> storage or None.
        pickle_module: whose `Unpickler` reads what the caller trusts; only without `weights_only`.
        weights_only: True (the default, unless a pickle_module is given): only tensors, plain
            values and containers, and what `serialization.add_safe_globals` was given. False:
            everything that the file names is imported and called; for files one trusts only.
        mmap: map the file instead of reading it; needs a path. The file is never written to.
        pickle_load_args: of the `Unpickler`; `encoding` for files that Python 2 wrote.

    Raises:
        UnpicklingError: the file names what is not allowed, or is damaged.
        RuntimeError: the file is damaged; a device is absent; arguments that do not fit.
        ValueError: a file object is to be mapped.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> torch.save(torch.arange(3), file)
        >>> _ = file.seek(0)
        >>> torch.load(file, map_location="meta")
        tensor(..., device='meta', size=(3,), dtype=torch.int64)
    """
    if weights_only is None:
        weights_only = pickle_module is None
    elif weights_only and pickle_module is not None:
        raise RuntimeError(
            "[load] Can not safely load weights when explicit pickle_module is specified\n"
            "hint: weights_only=False, for files from a trusted source only"
        )
    if sys.byteorder != "little":
        raise NotImplementedError("[load] big-endian machines are not supported\nhint: convert")
    restore = restorer(map_location)
    mmap = config.load.mmap and not hasattr(f, "read") if mmap is None else mmap
    with opened(f, bool(mmap)) as source:
        start = source.read(0, min(source.size, 512))
        if container.is_container(start, source.size):
            return container.read(source, restore, not weights_only)
        if start[:4] == zip_reader.MAGIC and archives.is_scripted(source):
            return _load_scripted(source, restore, weights_only)
        if start[:4] == zip_reader.MAGIC:
            to_meta = leads_to_meta(map_location)
            return archives.read(
                source, restore, weights_only, pickle_module, pickle_load_args, to_meta
            )
        if start[:4] == gguf.MAGIC:
            return gguf.tensors(source, restore)
        if start[:1] == b"{" and not hasattr(f, "read"):
            return sharded.read(f, source, restore, bool(mmap))
        return _load_older(source, start, restore, weights_only, pickle_module, pickle_load_args)


def read_scripted(f: Any, map_location: Any) -> tuple[Any, dict[str, bytes]]:
    """The content and records of an archive of `torch.jit`."""
    with opened(f, False) as source:
        if source.read(0, min(source.size, 4)) != zip_reader.MAGIC:
            problem = "PytorchStreamReader failed reading zip archive: not a ZIP archive"
            raise failure(RuntimeError, "jit.load", problem, "the file is damaged, save it again")
        return archives.read_scripted(source, restorer(map_location))


def _load_scripted(source: Source, restore: Any, weights_only: bool) -> Any:
    """The module of an archive of `torch.jit`, which its user took for a checkpoint."""
    if weights_only:
        raise RuntimeError(
            "[load] Cannot use ``weights_only=True`` with TorchScript archives passed to "
            "``torch.load``\nhint: torch.jit.load, or weights_only=False, for a trusted file"
        )
    warnings.warn(
        "'torch.load' received a zip file that looks like a TorchScript archive dispatching to "
        "'torch.jit.load' (call 'torch.jit.load' directly to silence this warning)",
        stacklevel=3,
    )
    content, records = archives.read_scripted(source, restore)
    return late("flambeau.jit.archive").restored(content, records)


def _load_older(
    source: Source, start: bytes, restore: Any, weights_only: bool, module: Any, args: Any
) -> Any:
    """Reads files from before zip archives."""
    if not start:
        raise failure(EOFError, "load", "Ran out of input: the file is empty", "save it again")
    if source.mapped is not None:
        problem = "mmap can only be used with files saved with "
        problem += "`torch.save(_use_new_zipfile_serialization=True)`"
        raise failure(RuntimeError, "load", problem, "save it again, or drop mmap")
    if tar_files.is_tar(start):
        return tar_files.read(source, restore, weights_only, module, args)
    if start[:1] not in (b"\x80", b"L", b"I", b"("):
        raise damaged("its first bytes belong to no known form")
    return legacy.read(source, restore, weights_only, module, args)


# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = _missing.getter(__name__)
