"""`torch.utils.serialization.config`: settings of `torch.save` and `torch.load`."""

from __future__ import annotations

import mmap as mapping
from typing import Any

__all__: list[str] = []


class load:  # noqa: N801 - PyTorch's name
    """Settings of `torch.load`.

    Attributes:
        mmap: whether files are mapped where the argument `mmap` is not given.
        endianness: order of bytes of files that do not say theirs.
        mmap_flags: `mmap.MAP_PRIVATE` or `mmap.MAP_SHARED`.
        calculate_storage_offsets: accepted for PyTorch's sake.
    """

    mmap: bool = False
    endianness: Any = None
    mmap_flags: int = mapping.MAP_PRIVATE
    calculate_storage_offsets: bool = False


class save:  # noqa: N801 - PyTorch's name
    """Settings of `torch.save`.

    Attributes:
        compute_crc32: whether records get checksums.
        use_pinned_memory_for_d2h: accepted for PyTorch's sake.
        storage_alignment: of the bytes of storages, in the file.
    """

    compute_crc32: bool = True
    use_pinned_memory_for_d2h: bool = False
    storage_alignment: int = 64
