"""Whose files the cache may load: it holds native code, so only this user's own.

The cache's directory is made with mode 0700. A directory or file that another user owns, or that
its group or everybody may write, is not loaded from: whoever can put a library there could run code
as this user. Such a directory is replaced for this process by a private temporary one.
"""

from __future__ import annotations

import os
import stat

_PRIVATE = 0o700
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_checked: dict[str, str] = {}  # configured directory -> directory in use


def trusted(state: os.stat_result) -> bool:
    """Whether a file or directory is this user's and nobody else may write it."""
    if not hasattr(os, "geteuid"):
        return True  # a system without POSIX owners
    return state.st_uid == os.geteuid() and not state.st_mode & _OTHERS_MAY_WRITE


def directory(configured: str) -> str:
    """The directory to use for a configured one: itself, or a private one where it is not safe."""
    used = _checked.get(configured)
    if used is None:
        used = _checked[configured] = _check(configured)
    return used


def read(path: str, own: bool) -> bytes:
    """The content of a file.

    Args:
        path: of the file.
        own: refuse a file that is not `trusted`.

    Raises:
        OSError: it cannot be read, or is refused.
    """
    with open(path, "rb") as file:
        if own and not trusted(os.fstat(file.fileno())):
            raise PermissionError(f"[cache] {path} is not this user's alone")
        return file.read()


def _check(configured: str) -> str:
    try:
        _make(configured)
        state = os.stat(configured)
    except OSError:
        return configured  # nothing can be stored there, and nothing is there to be loaded
    if trusted(state):
        return configured
    return _replacement(configured, state)


def _make(folder: str) -> None:
    if os.path.isdir(folder):
        return
    os.makedirs(os.path.dirname(folder) or ".", exist_ok=True)
    try:
        os.mkdir(folder, _PRIVATE)
    except FileExistsError:
        pass  # another process was faster; whose it is, is checked next


def _replacement(configured: str, state: os.stat_result) -> str:
    """Warns, and makes a directory that lives as long as this process."""
    import atexit
    import shutil
    import tempfile
    import warnings

    reason = "others may write it"
    if state.st_uid != os.geteuid():
        reason = f"user {state.st_uid} owns it"
    warnings.warn(
        f"[cache] {configured} is not used: {reason}, and it holds native code\n"
        "hint: remove it, or set FLAMBEAU_CACHE_DIR to a directory of your own (mode 0700)",
        stacklevel=2,
    )
    temporary, process = tempfile.mkdtemp(prefix="flambeau-cache-"), os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not in a forked child
            shutil.rmtree(temporary, ignore_errors=True)

    atexit.register(remove)
    return temporary
