"""`torch.utils.file_baton`: a lock of several processes that is a file."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

__all__ = ["FileBaton"]


class FileBaton:
    """A lock that is held while its file exists.

    Args:
        lock_file_path: the file.
        wait_seconds: between two looks.
        warn_after_seconds: warn once when waiting took longer; None: never.

    Example:
        >>> import tempfile
        >>> baton = torch.utils.file_baton.FileBaton(tempfile.mktemp())
        >>> baton.try_acquire(), baton.try_acquire()
        (True, False)
        >>> baton.release()
    """

    def __init__(
        self, lock_file_path: Any, wait_seconds: float = 0.1, warn_after_seconds: Any = None
    ) -> None:
        self.lock_file_path, self.wait_seconds = lock_file_path, wait_seconds
        self.warn_after_seconds, self.fd = warn_after_seconds, None

    def try_acquire(self) -> bool:
        """Creates the file; False where it exists."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)  # type: ignore[assignment]
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Returns when the file is gone."""
        began, warned = time.monotonic(), False
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            limit = self.warn_after_seconds
            if limit is not None and not warned and time.monotonic() - began > limit:
                warnings.warn(f"Waited on lock file {self.lock_file_path}", stacklevel=2)
                warned = True

    def release(self) -> None:
        """Removes the file."""
        if self.fd is not None:
            os.close(self.fd)
        os.remove(self.lock_file_path)
