"""Messages between a loader and its workers: a socket for the form, shared memory for the bytes.

A message is pickled, but the memory of tensors and arrays is not: it is written to an anonymous
file (memfd), whose descriptor travels over the Unix socket and which the receiver maps. Nothing
has a name in the file system, so nothing is left behind by a process that is killed.
"""

from __future__ import annotations

import array
import io
import mmap
import os
import pickle
import select
import socket
import struct
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_data
from flambeau.runtime.shared import anonymous_file

__all__ = ["Channel", "Closed", "channel_pair"]

_HEAD = struct.Struct("<QQqQ")  # out-of-band buffers, length and place of the form, file size
_PLACE = struct.Struct("<QQ")  # start and length of one buffer in the file
_SMALL = 1024  # longer forms go to the file: a socket never fills while a peer is not reading
_ALIGNMENT = 64
_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Closed(Exception):
    """The other side is gone."""


class _Segment:
    """The parts of a message that are written to an anonymous file."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, memoryview]] = []
        self.places: dict[int, tuple[int, int]] = {}
        self.held: list[Any] = []
        self.size = 0

    def add(self, data: memoryview) -> int:
        """Place of these bytes in the file."""
        start = self.size
        self.parts.append((start, data))
        self.size = -(-(start + data.nbytes) // _ALIGNMENT) * _ALIGNMENT
        return start

    def storage(self, storage: Any) -> tuple[int, int]:
        """Place of a storage; one that was met before is not written twice."""
        if storage._cdata not in self.places:
            self.held.append(storage)
            self.places[storage._cdata] = (self.add(storage._view()), storage.nbytes())
        return self.places[storage._cdata]

    def write(self) -> int:
        """Descriptor of a file with all parts."""
        handle = anonymous_file()
        try:
            os.ftruncate(handle, self.size)
            for start, data in self.parts:
                view = data.cast("B")
                done = 0
                while done < len(view):
                    done += os.pwrite(handle, view[done : done + 2**30], start + done)
        except BaseException:
            os.close(handle)
            raise
        return handle


class _Pickler(ForkingPickler):
    """Pickles the form of a message; memory goes to the segment."""

    def __init__(self, file: io.BytesIO, segment: _Segment, buffers: list[Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL, True, buffers.append)
        self.segment = segment

    def persistent_id(self, obj: Any) -> Any:
        """Storages by their place in the file."""
        if type(obj) is _core.UntypedStorage and obj.nbytes():
            return self.segment.storage(obj)
        return None

    def reducer_override(self, obj: Any) -> Any:
        """A view of a larger storage is sent as a copy of its own elements."""
        if isinstance(obj, _core.Tensor) and has_data(obj):
            if obj.untyped_storage().nbytes() > obj.numel() * obj.element_size():
                small = obj.detach().clone()
                self.segment.held.append(small)
                if type(obj) is not _core.Tensor:
                    small = small.as_subclass(type(obj))
                if obj.requires_grad and obj.is_leaf:
                    small.requires_grad_()
                return small.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Gives tensors their memory in the mapped file."""

    def __init__(self, form: bytes, mapped: Any, buffers: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(form), buffers=buffers)
        self.mapped = mapped

    def persistent_load(self, place: tuple[int, int]) -> Any:
        """The storage at a place of the file."""
        start, length = place
        view = memoryview(self.mapped)[start : start + length]
        return _core.storage_from_buffer(view, shared=True)


class Channel:
    """One end of a two-way connection. Not for several threads."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def fileno(self) -> int:
        """For `select`."""
        return self.end.fileno()

    def writable(self) -> bool:
        """Whether a small message can be sent without waiting."""
        return bool(select.select([], [self.end], [], 0)[1])

    def send(self, message: Any) -> None:
        """Sends any picklable object.

        Raises:
            Closed: the other side is gone.
        """
        file, segment, buffers = io.BytesIO(), _Segment(), []  # type: ignore[var-annotated]
        _Pickler(file, segment, buffers).dump(message)
        views = [buffer.raw() for buffer in buffers]
        table = b"".join(_PLACE.pack(segment.add(view), view.nbytes) for view in views)
        form = table + file.getvalue()
        place = -1
        if len(form) > _SMALL:
            place = segment.add(memoryview(form))
        head = _HEAD.pack(len(views), len(form), place, segment.size)
        handle = segment.write() if segment.size else None
        try:
            self._send(head, form if place < 0 else b"", handle)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error
        finally:
            if handle is not None:
                os.close(handle)

    def _send(self, head: bytes, body: bytes, handle: int | None) -> None:
        rights = []
        if handle is not None:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))]
        sent = self.end.sendmsg([head, body], rights)
        remaining = (head + body)[sent:]
        if remaining:
            self.end.sendall(remaining)

    def receive(self) -> Any:
        """The next message; its tensors lie in shared memory.

        Raises:
            Closed: the other side is gone.
        """
        handles: list[int] = []
        try:
            head = self._exactly(_HEAD.size, handles)
            count, length, place, size = _HEAD.unpack(head)
            form = self._exactly(length, handles) if place < 0 else b""
            mapped = mmap.mmap(handles[0], size) if size else b""
        except ConnectionResetError as error:
            raise Closed from error
        finally:
            for handle in handles:
                os.close(handle)
        if place >= 0:
            form = bytes(memoryview(mapped)[place : place + length])
        table = count * _PLACE.size
        buffers = [
            memoryview(mapped)[start : start + size]
            for start, size in _PLACE.iter_unpack(form[:table])
        ]
        return _Unpickler(form[table:], mapped, buffers).load()

    def _exactly(self, length: int, handles: list[int]) -> bytes:
        data = bytearray()
        while len(data) < length:
            rights = array.array("i")
            space = socket.CMSG_SPACE(rights.itemsize)
            piece, extra, _, _ = self.end.recvmsg(length - len(data), space, _FLAGS)
            for level, kind, content in extra:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
                    handles.extend(rights)
            if not piece:
                raise Closed
            data += piece
        return bytes(data)

    def close(self) -> None:
        """Ends the connection; the other side sees `Closed`."""
        self.end.close()


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends, to be wrapped by `Channel` in their processes."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
