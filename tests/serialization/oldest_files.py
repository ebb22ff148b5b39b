"""Writes files of PyTorch's oldest form, which nothing writes any more: tar archives."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
from typing import Any


class Reference:
    """A tensor that a pickle refers to by its key."""

    def __init__(self, key: int) -> None:
        self.key = key


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.key if isinstance(obj, Reference) else None


def _number(value: int) -> bytes:
    return pickle.dumps(value, 2)


def _entry(key: int, place: Any, name: str) -> bytes:
    """The pickle of (key, place, class of torch)."""
    parts = [pickle.dumps(value, 2)[2:-1] for value in (key, place)]
    return b"\x80\x02" + b"".join(parts) + f"ctorch\n{name}\n".encode() + b"\x87."


def _storages() -> bytes:
    floats = _entry(11, "cpu", "FloatStorage") + struct.pack("<q6f", 6, *range(6))
    integers = _entry(12, "cpu", "LongStorage") + struct.pack("<q3q", 3, 7, 8, 9)
    views = pickle.dumps([(13, 11, 2, 3)], 2)  # three elements of the first one
    return _number(2) + floats + integers + views


def _tensors() -> bytes:
    rows = [
        (1, 11, "FloatTensor", (2, 3), (1, 2), 0),
        (2, 13, "FloatTensor", (3,), (1,), 0),
        (3, 12, "LongTensor", (2,), (1,), 1),
        (4, 11, "FloatTensor", (), (), 5),
    ]
    data = _number(len(rows))
    for key, storage, name, size, stride, offset in rows:
        data += _entry(key, storage, name) + struct.pack("<ii", len(size), 0)
        numbers = (*size, *stride, offset)
        data += struct.pack(f"<{len(numbers)}q", *numbers)
    return data


def write(target: Any, tar_form: int = tarfile.PAX_FORMAT) -> None:
    """Writes a file, a path's or an open one, with four tensors, three of which share memory."""
    body = io.BytesIO()
    value = {"a": Reference(1), "b": [Reference(2), Reference(1)], "c": Reference(3)}
    _Pickler(body, 2).dump(value | {"d": Reference(4), "n": 5})
    parts = {"storages": _storages(), "tensors": _tensors(), "pickle": body.getvalue()}
    place = {"fileobj": target} if isinstance(target, io.IOBase) else {"name": target}
    with tarfile.open(**place, mode="w:", format=tar_form) as archive:
        for name, data in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
