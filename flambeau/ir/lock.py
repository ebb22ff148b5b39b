"""A lock for tables that threads share, which a fork can not leave locked.

A thread that forks copies the process with every lock as it is; one that another thread held would
stay held in the child for ever. So the fork itself takes the lock, and both sides give it back.
"""

from __future__ import annotations

import os
from _thread import RLock  # `threading`, which hands it out, would cost every start 1 ms


def fork_safe_lock() -> RLock:
    """A re-entrant lock that is free in a forked child."""
    lock = RLock()
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )
    return lock
