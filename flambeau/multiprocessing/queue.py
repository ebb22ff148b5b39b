"""`torch.multiprocessing.queue`: queues that send tensors through shared memory."""

from __future__ import annotations

import io
import multiprocessing.queues
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import flambeau.multiprocessing  # noqa: F401 - registers how tensors are sent

__all__ = ["ConnectionWrapper", "Queue", "SimpleQueue"]


class ConnectionWrapper:
    """A connection whose `send` and `recv` pass tensors through shared memory."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    def send(self, obj: Any) -> None:
        """Sends an object."""
        buffer = io.BytesIO()
        ForkingPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(obj)
        self.conn.send_bytes(buffer.getvalue())

    def recv(self) -> Any:
        """Receives an object."""
        return pickle.loads(self.conn.recv_bytes())

    def __getattr__(self, name: str) -> Any:
        if "conn" in self.__dict__:
            return getattr(self.conn, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute 'conn'")


class Queue(multiprocessing.queues.Queue):  # type: ignore[type-arg]
    """A queue, see `multiprocessing.Queue`."""


class SimpleQueue(multiprocessing.queues.SimpleQueue):  # type: ignore[type-arg]
    """A queue without a thread, see `multiprocessing.SimpleQueue`."""
