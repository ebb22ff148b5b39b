"""Storages in memory that processes share: anonymous files, or files with a path.

The strategy "file_descriptor" opens a descriptor for every storage and sends it to other processes.
"file_system" gives files paths instead: no limit of descriptors applies, but a process that is
killed leaves its files behind until the main process ends.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from flambeau import _core

__all__ = [
    "STRATEGIES",
    "anonymous_file",
    "get_strategy",
    "leave_files_at_exit",
    "set_strategy",
    "share",
]

_FOLDER = "/dev/shm"
STRATEGIES = frozenset({"file_descriptor", "file_system"})
_strategy = "file_descriptor"
_paths: set[str] = set()  # that this process made
_leaving: Any = None  # the call of `_leave_files` at the end


def get_strategy() -> str:
    """The strategy in use."""
    return _strategy


def set_strategy(strategy: str) -> None:
    """Sets the strategy for storages that are shared from now on."""
    global _strategy
    _strategy = strategy


def anonymous_file() -> int:
    """The descriptor of a new file without a path."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("flambeau", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def share(storage: Any) -> Any:
    """Moves a storage to shared memory, in place; every tensor over it moves along.

    Raises:
        OSError: there are no more descriptors, or no memory.
    """
    hollow = storage.nbytes() == 0 or _core.device_memory(storage.device) == "none"
    if hollow or storage.is_shared():
        return storage
    path = ""
    if _strategy == "file_system":
        path = f"{_FOLDER}/torch_{os.getpid()}_{os.urandom(8).hex()}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        leave_files_at_exit()
        _paths.add(path)
    else:
        handle = anonymous_file()
    try:
        _core._move_to_shared(storage, handle, path)
    except BaseException:
        os.close(handle)
        raise
    return storage


def leave_files_at_exit() -> None:
    """Registers that this process leaves its files when it ends; once, as long as it holds."""
    global _leaving
    if _leaving is None or not _leaving.still_active():
        from multiprocessing import util

        _paths.clear()  # of the process that this one was forked from
        # After queues have sent what they hold. A process that begins forgets such calls, and
        # makes those that were registered for that.
        _leaving = util.Finalize(None, _leave_files, exitpriority=-100)
        util.register_after_fork(_leaving, lambda _: leave_files_at_exit())


def _leave_files() -> None:
    """Closes all files; the main process removes those that it created and no process opened."""
    from multiprocessing import parent_process

    _core._leave_shared_files()
    for path in _paths if parent_process() is None else ():
        with suppress(OSError):
            os.unlink(path)
