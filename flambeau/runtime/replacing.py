"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

__all__ = ["replacing"]


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` only when it is complete and on the disk."""
    target = os.path.realpath(path)
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(target).st_mode):  # a device or a pipe is written to
            with open(target, "wb") as file:
                yield file
            return
    folder = os.path.dirname(target)
    handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), _mode(target))
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _mode(path: str) -> int:
    """Permissions the file has, or that a new one would get."""
    with suppress(OSError):
        return stat.S_IMODE(os.stat(path).st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: str) -> None:
    with suppress(OSError):  # some file systems refuse; the rename itself has happened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
