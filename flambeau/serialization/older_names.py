"""Names of `torch.serialization` that few programs use: storage types, versions of modules."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from flambeau.ir.lock import importing

__all__ = [
    "SourceChangeWarning", "StorageType", "check_module_version_greater_or_equal", "mkdtemp",
    "normalize_storage_type", "storage_to_tensor_type",
]  # fmt: skip


class SourceChangeWarning(Warning):
    """The source of a saved class has changed; PyTorch's older files stored it."""


class StorageType:
    """Represents, in a pickle, a storage type that has only a name.

    Args:
        name: "FloatStorage" and its like.

    Raises:
        NotImplementedError: no dtype has this storage type here.
    """

    def __init__(self, name: str) -> None:
        with importing:
            from flambeau.storage import STORAGE_TYPES

        if name not in STORAGE_TYPES:
            raise NotImplementedError(
                f"[StorageType] there is no {name}\nhint: one of {', '.join(STORAGE_TYPES)}"
            )
        self._dtype = STORAGE_TYPES[name].dtype

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self._dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def normalize_storage_type(storage_type: Any) -> Any:
    """The storage type of `torch` that has the name of another one.

    Example:
        >>> torch.serialization.normalize_storage_type(torch.FloatStorage) is torch.FloatStorage
        True
    """
    with importing:
        from flambeau.storage import STORAGE_TYPES

    return STORAGE_TYPES[storage_type.__name__]


def storage_to_tensor_type(storage: Any) -> Any:
    """The tensor type whose elements a storage has.

    Example:
        >>> torch.serialization.storage_to_tensor_type(torch.FloatStorage(2))
        <class 'torch.FloatTensor'>
    """
    with importing:
        from flambeau.core.legacy import TENSOR_TYPES

    name = storage.pickle_storage_type()
    return TENSOR_TYPES[name.replace("Storage", "Tensor")]


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True
) -> bool:
    """Whether the version of a module is at least the required one.

    Args:
        module: with a `__version__`.
        req_version_tuple: numbers or texts, the most significant first.
        error_if_malformed: raise where the version cannot be read; True is returned otherwise.

    Raises:
        RuntimeError: the version cannot be read.

    Example:
        >>> import types
        >>> module = types.SimpleNamespace(__version__="1.10.2")
        >>> torch.serialization.check_module_version_greater_or_equal(module, (1, 9))
        True
    """
    try:
        parts = module.__version__.split(".")
        version = tuple(type(r)(part) for r, part in zip(req_version_tuple, parts, strict=False))
        return version >= req_version_tuple
    except (AttributeError, TypeError, ValueError) as error:
        if error_if_malformed:
            raise RuntimeError(
                f"[check_module_version_greater_or_equal] version of {module!r} is malformed\n"
                "hint: error_if_malformed=False"
            ) from error
        return True


@contextlib.contextmanager
def mkdtemp() -> Iterator[str]:
    """A temporary folder for the time of a `with` block."""
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        shutil.rmtree(path)
