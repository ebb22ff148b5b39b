"""Settings of `torch.save` and `torch.load`: byte order, mapping, checksums, skipped data.

They are stored in `torch.utils.serialization.config`, as PyTorch's are.
"""

from __future__ import annotations

import contextlib
import mmap as mapping
import threading
from collections.abc import Iterator
from enum import Enum
from typing import Any

from flambeau.utils.serialization import config

__all__ = [
    "LoadEndianness",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]


class LoadEndianness(Enum):
    """Order of bytes of files that do not say theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


def get_default_load_endianness() -> LoadEndianness | None:
    """The order of bytes of files that do not say theirs; None: little.

    Example:
        >>> torch.serialization.get_default_load_endianness() is None
        True
    """
    endianness: LoadEndianness | None = config.load.endianness
    return endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Sets the order of bytes of files that do not say theirs.

    Raises:
        TypeError: no `LoadEndianness`.
    """
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError(
            f"[set_default_load_endianness] Invalid argument type {type(endianness).__name__}\n"
            "hint: torch.serialization.LoadEndianness.LITTLE"
        )
    config.load.endianness = endianness


def get_crc32_options() -> bool:
    """Whether `save` computes the checksums of records.

    Example:
        >>> torch.serialization.get_crc32_options()
        True
    """
    return bool(config.save.compute_crc32)


def set_crc32_options(compute_crc32: bool) -> None:
    """Sets whether `save` computes the checksums of records; without them other programs may warn.

    Args:
        compute_crc32: whether they are computed.
    """
    config.save.compute_crc32 = bool(compute_crc32)


def get_default_mmap_options() -> int:
    """How `load(mmap=True)` maps a file: `mmap.MAP_PRIVATE` or `mmap.MAP_SHARED`.

    Example:
        >>> import mmap
        >>> torch.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
        True
    """
    return int(config.load.mmap_flags)


class set_default_mmap_options:  # noqa: N801 - PyTorch's name, also used as a `with` block
    """Sets how `load(mmap=True)` maps a file; in a `with` block, for its time.

    Args:
        flags: `mmap.MAP_PRIVATE` (writes stay in memory) or `mmap.MAP_SHARED` (read only here).

    Raises:
        ValueError: other flags.
    """

    def __init__(self, flags: int) -> None:
        if flags not in (mapping.MAP_PRIVATE, mapping.MAP_SHARED):
            raise ValueError(
                f"[set_default_mmap_options] Invalid argument flags {flags}\n"
                "hint: mmap.MAP_PRIVATE or mmap.MAP_SHARED"
            )
        self._before = get_default_mmap_options()
        config.load.mmap_flags = flags

    def __enter__(self) -> None:
        """The setting was made by the constructor."""

    def __exit__(self, *exception: object) -> None:
        config.load.mmap_flags = self._before


_local = threading.local()


def skips_data() -> bool:
    """Whether this thread is in a `skip_data` block."""
    return bool(getattr(_local, "skips", False))


@contextlib.contextmanager
def skip_data(materialize_fake_tensors: bool = False) -> Iterator[None]:
    """A block in which `save` leaves room for the elements of tensors instead of writing them.

    `load` in such a block allocates storages and does not fill them.

    Args:
        materialize_fake_tensors: accepted for PyTorch's sake.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> with torch.serialization.skip_data():
        ...     torch.save(torch.ones(2), file)
        >>> _ = file.seek(0)
        >>> torch.load(file)
        tensor([0., 0.])
    """
    before: Any = skips_data()
    _local.skips = True
    try:
        yield
    finally:
        _local.skips = before
