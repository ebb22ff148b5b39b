"""`save` and `load`: checkpoints that never run code when they are read.

A file is one safetensors container (github.com/huggingface/safetensors): a length, a JSON header,
the bytes of the tensors. Any safetensors reader can list and read what is stored. The nesting of
dicts, lists and numbers around the tensors is a second JSON document in the header's metadata:

    {"version": 1, "tensors": [record, ...], "root": value}

A value is a JSON literal (None, bool, int, finite float, str, list) or an object with a type "t".
A tensor is a number into the records, so a tensor used twice is loaded as one object; a record
names the stored bytes and the view of them, so tensors that shared memory share it again.
"""

from __future__ import annotations

import base64
import io
import json
import math
import mmap as mapping
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flambeau import _core
from flambeau.core.dtypes import name_of, object_of
from flambeau.ir.dtypes import ITEM_SIZE, ROWS
from flambeau.ir.lock import importing
from flambeau.ir.modules import module_of
from flambeau.runtime import missing as _missing
from flambeau.runtime import safe_classes
from flambeau.runtime.replacing import replacing
from flambeau.runtime.safe_classes import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)

__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save",
]  # fmt: skip

VERSION = 1
KEY = "flambeau"  # of the structure in the container's metadata
LARGEST_HEADER = 100 * 2**20  # what the safetensors library accepts
LARGEST_DEPTH = 200
NAMES = {row.name: row.file for row in ROWS if row.file}
DTYPES = {name: dtype for dtype, name in NAMES.items()}
_UNINITIALIZED = ("UninitializedParameter", "UninitializedBuffer")  # of lazy modules
_MAP_LOCATION = "None, a device, a dict of locations or a function (storage, location) -> storage"


# ------------------------------------------------------------------------------ writing


@dataclass
class _Memory:
    """One storage that is being saved, and the byte range its tensors cover."""

    storage: Any
    first: int
    last: int
    users: list[int] = field(default_factory=list)
    name: str = ""


@dataclass
class _Writer:
    """Collects tensors while the structure is encoded."""

    records: list[dict[str, Any]] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)
    memories: dict[int, _Memory] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)


def _type_error(path: str, value: Any) -> TypeError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    hint = "save tensors, numbers, strings, bytes, and dicts, lists and tuples of them"
    if hasattr(value, "state_dict"):
        hint = "save its state_dict() instead"
    elif hasattr(value, "item") and hasattr(value, "dtype"):
        hint = "convert it: value.item() for a scalar, torch.from_numpy(value) for an array"
    return TypeError(f"[save] cannot save a {kind} at {path or 'the top'}\nhint: {hint}")


def _encode(writer: _Writer, value: Any, path: str, depth: int = 0) -> Any:
    """A value as JSON; tensors are added to the writer's records."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"t": "float", "v": repr(value)}
    if isinstance(value, _core.Tensor):
        return _encode_tensor(writer, value, path, depth)
    if kind is complex:
        return {"t": "complex", "v": [repr(value.real), repr(value.imag)]}
    if kind in (bytes, bytearray):
        return {"t": kind.__name__, "v": base64.b64encode(value).decode()}
    if kind is _core.dtype:
        return {"t": "dtype", "v": name_of(value)}
    if kind is _core.device:
        return {"t": "device", "v": str(value)}
    return _encode_container(writer, value, path, depth)


def _encode_tensor(writer: _Writer, value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind.__name__ in _UNINITIALIZED:
        parts = value.__reduce_ex__(2)[1]
        return {"t": kind.__name__, "v": _encode(writer, parts, path, depth)}
    if value.is_nested:
        parts = value.__reduce_ex__(2)[1]
        encoded = {"t": "nested", "v": [str(value.layout), _encode(writer, parts, path, depth)]}
    elif module_of(kind) == "flambeau.masked.tensor":  # not loaded unless there are such tensors
        parts = value.__reduce_ex__(2)[1]
        encoded = {"t": "masked", "v": _encode(writer, parts, path, depth)}
    elif value.layout is not _core.strided:
        encoded = {"t": "sparse", "v": _encode_sparse(writer, value, path, depth)}
    else:
        return {"t": "tensor", "v": _add_tensor(writer, value, path, depth)}
    return encoded | _attributes(writer, value, path, depth)


def _attributes(writer: _Writer, tensor: Any, path: str, depth: int) -> dict[str, Any]:
    """What users set on a tensor (`weight.tag = 1`), as an entry "state" if there is any."""
    own = _own_names(tensor)
    state = {name: v for name, v in tensor.__dict__.items() if name not in own}
    return {"state": _encode(writer, state, path, depth + 1)} if state else {}


def _own_names(tensor: Any) -> set[str]:
    """Attributes that a tensor made of others consists of."""
    own = {"_claimed_device"}
    if module_of(type(tensor)).startswith("flambeau."):
        own |= {"_kept", "_ragged_idx"}
        for cls in type(tensor).__mro__:
            own |= cls.__dict__.get("__annotations__", {}).keys()
    return own


def _encode_sparse(writer: _Writer, tensor: Any, path: str, depth: int) -> list[Any]:
    """The arguments that make a sparse tensor again: its parts are tensors of the container."""
    _, (layout, index, values, size, unique, requires_grad) = tensor.__reduce_ex__(2)
    names = ("indices",) if len(index) == 1 else ("compressed_indices", "plain_indices")
    parts = [
        _encode(writer, part, f"{path}.{name}" if path else name, depth + 1)
        for name, part in zip((*names, "values"), (*index, values), strict=True)
    ]
    return [layout, parts, list(size), unique, requires_grad]


def _encode_container(writer: _Writer, value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind not in (list, tuple, set, frozenset, dict, OrderedDict, _core.Size):
        raise _type_error(path, value)
    if depth >= LARGEST_DEPTH or id(value) in writer.open:
        raise ValueError(
            f"[save] {path[:60]}... contains itself or is nested deeper than {LARGEST_DEPTH}\n"
            "hint: flatten the structure"
        )
    writer.open.add(id(value))
    try:
        if isinstance(value, dict):
            return _encode_dict(writer, value, path, depth)
        items = [_encode(writer, v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    finally:
        writer.open.discard(id(value))
    return items if kind is list else {"t": kind.__name__, "v": items}


def _encode_dict(writer: _Writer, value: Any, path: str, depth: int) -> Any:
    pairs = []
    for key, item in value.items():
        if isinstance(key, _core.Tensor):
            raise _type_error(f"a key of {path or 'the top'}", key)
        at = f"{path}.{key}" if isinstance(key, str) and path else str(key)
        at = at if isinstance(key, str) else f"{path}[{key!r}]"
        pairs.append([_encode(writer, key, at, depth + 1), _encode(writer, item, at, depth + 1)])
    encoded = {"t": type(value).__name__, "v": pairs}
    metadata = getattr(value, "_metadata", None)  # versions of modules, set by state_dict()
    if metadata is not None:
        encoded["metadata"] = _encode(writer, metadata, f"{path}._metadata", depth + 1)
    return encoded


def _class_name(tensor: Any, path: str) -> str:
    with importing:
        from flambeau.nn.parameter import Buffer, Parameter

    classes: dict[type, str] = {_core.Tensor: "Tensor", Parameter: "Parameter", Buffer: "Buffer"}
    kind = type(tensor)
    if kind in classes:
        return classes[kind]
    special = kind.__reduce_ex__ is not _core.Tensor.__reduce_ex__
    if special or "_claimed_device" in tensor.__dict__ or module_of(kind).startswith("flambeau."):
        raise _type_error(path, tensor)
    return "Parameter" if issubclass(kind, Parameter) else safe_classes.name_of(kind)


def _add_tensor(writer: _Writer, tensor: Any, path: str, depth: int) -> int:
    """Number of the tensor's record."""
    if id(tensor) in writer.seen:
        return writer.seen[id(tensor)]
    number = len(writer.records)
    record: dict[str, Any] = {
        "class": _class_name(tensor, path),
        "dtype": name_of(tensor.dtype),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "grad": bool(tensor.requires_grad),
    }
    writer.seen[id(tensor)] = number
    writer.tensors.append(tensor)
    writer.paths.append(path or "tensor")
    writer.records.append(record)
    record |= _attributes(writer, tensor, path, depth)
    if tensor.is_meta:
        record["meta"] = True
        return number
    plain = tensor.detach().resolve_conj().resolve_neg()
    storage = plain.untyped_storage()
    first, last = _byte_range(plain)
    memory = writer.memories.setdefault(storage._cdata, _Memory(storage, first, last))
    memory.users.append(number)
    if first < last:
        empty = memory.first == memory.last
        memory.first = first if empty else min(memory.first, first)
        memory.last = last if empty else max(memory.last, last)
    return number


def _byte_range(tensor: Any) -> tuple[int, int]:
    """Bytes of its storage a tensor reaches."""
    if tensor.numel() == 0:
        return 0, 0
    size = tensor.element_size()
    first = tensor.storage_offset()
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return first * size, (first + reach + 1) * size


@dataclass
class _Entry:
    """One tensor of the container."""

    name: str
    dtype: str
    shape: list[int]
    data: memoryview


def _entries(writer: _Writer) -> list[_Entry]:
    """The container's tensors, largest elements first so that all are aligned."""
    entries, taken = [], set()
    for memory in writer.memories.values():
        first_user = memory.users[0]
        tensor, record = writer.tensors[first_user], writer.records[first_user]
        whole = len(memory.users) == 1 and tensor.is_contiguous() and record["dtype"] in NAMES
        name = writer.paths[first_user] if whole else f"storage.{first_user}"
        while name in taken or name == "__metadata__":
            name += "_"
        taken.add(name)
        data = memory.storage._view().cast("B")[memory.first : memory.last]
        for number in memory.users:
            record = writer.records[number]
            offset = writer.tensors[number].storage_offset() * ITEM_SIZE[record["dtype"]]
            begin = max(offset - memory.first, 0)
            record["in"] = name
            record["offset"] = begin // ITEM_SIZE[record["dtype"]]
        if whole:
            entries.append(_Entry(name, NAMES[record["dtype"]], record["shape"], data))
        else:
            entries.append(_Entry(name, "U8", [len(data)], data))
    entries.sort(key=lambda e: -ITEM_SIZE[DTYPES[e.dtype]])
    return entries


def _check_alignment(writer: _Writer) -> None:
    """Views of several dtypes over one storage must start at whole elements of each."""
    for memory in writer.memories.values():
        largest = max(ITEM_SIZE[writer.records[n]["dtype"]] for n in memory.users)
        memory.first -= memory.first % largest


def _header(writer: _Writer, root: Any, entries: Sequence[_Entry]) -> bytes:
    structure = {"version": VERSION, "tensors": writer.records, "root": root}
    text = json.dumps(structure, allow_nan=False, separators=(",", ":"))
    header: dict[str, Any] = {"__metadata__": {"format": "pt", KEY: text}}
    position = 0
    for entry in entries:
        end = position + len(entry.data)
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": entry.shape,
            "data_offsets": [position, end],
        }
        position = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-(len(encoded) + 8) % 64)
    if len(encoded) > LARGEST_HEADER:
        raise ValueError(
            f"[save] the structure takes {len(encoded)} bytes; at most {LARGEST_HEADER} fit\n"
            "hint: store long lists of numbers as tensors"
        )
    return len(encoded).to_bytes(8, "little") + encoded


def _write(file: Any, header: bytes, entries: Sequence[_Entry]) -> None:
    file.write(header)
    for entry in entries:
        for start in range(0, len(entry.data), 2**26):
            file.write(entry.data[start : start + 2**26])


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Writes tensors and the structure around them to a file.

    Dicts (also OrderedDict), lists, tuples, sets, numbers, strings, bytes, None, `torch.Size`,
    dtypes, devices, tensors (also of subclasses), parameters and buffers. Tensors keep the
    attributes that were set on them; views of one storage stay views of one storage. The file
    appears complete or not at all: it is written beside the target, synced, and renamed.

    Args:
        obj: what to save.
        f: a path or a binary file object.
        pickle_module, pickle_protocol, _use_new_zipfile_serialization: accepted for PyTorch's
            sake and without effect; nothing is pickled.

    Raises:
        TypeError: a value of another type, named by its path inside `obj`.
        ValueError: a structure that contains itself.

    Example:
        >>> import io
        >>> file = io.BytesIO()  # or a path
        >>> torch.save({"weight": torch.ones(2), "step": 3}, file)
        >>> _ = file.seek(0)
        >>> torch.load(file)["step"]
        3
    """
    del pickle_module, pickle_protocol, _use_new_zipfile_serialization
    writer = _Writer()
    root = _encode(writer, obj, "")
    _check_alignment(writer)
    entries = _entries(writer)
    header = _header(writer, root, entries)
    if hasattr(f, "write"):
        _write(f, header, entries)
        return
    with replacing(os.fspath(f)) as file:
        _write(file, header, entries)


# ------------------------------------------------------------------------------ reading


def _damaged(what: str) -> RuntimeError:
    return RuntimeError(f"[load] the file is damaged or no checkpoint: {what}\nhint: save it again")


@dataclass(frozen=True)
class _Stored:
    """One tensor of a container, its bytes checked to be inside."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _sizes(values: Any, what: str) -> tuple[int, ...]:
    if not isinstance(values, list) or len(values) > 64:
        raise _damaged(f"{what} is no list of sizes")
    if any(type(v) is not int or not 0 <= v < 2**62 for v in values):
        raise _damaged(f"{what} has an impossible size")
    return tuple(values)


def _stored(name: str, entry: Any, limit: int) -> _Stored:
    if not isinstance(entry, dict) or entry.get("dtype") not in DTYPES:
        raise _damaged(f"{name!r} has an unknown dtype")
    shape = _sizes(entry.get("shape"), name)
    offsets = _sizes(entry.get("data_offsets"), name)
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= limit:
        raise _damaged(f"{name!r} lies outside of the file")
    dtype = DTYPES[entry["dtype"]]
    if math.prod(shape) * ITEM_SIZE[dtype] != offsets[1] - offsets[0]:
        raise _damaged(f"{name!r} has {offsets[1] - offsets[0]} bytes for shape {list(shape)}")
    return _Stored(dtype, shape, *offsets)


class _Source:
    """Where a container's bytes come from: a mapping, or a file that is read piece by piece."""

    def __init__(self, file: Any, size: int, start: int, mapped: Any = None) -> None:
        self.file, self.size, self.start, self.mapped = file, size, start, mapped

    def read(self, begin: int, end: int) -> bytes:
        """Bytes of the container."""
        if self.mapped is not None:
            return bytes(self.mapped[begin:end])
        self.file.seek(self.start + begin)
        data = self.file.read(end - begin)
        if len(data) != end - begin:
            raise _damaged("it ends too early")
        return bytes(data)

    def storage(self, begin: int, end: int) -> Any:
        """A storage with these bytes: a part of the mapping, or a copy."""
        if begin == end:
            return _core.UntypedStorage(0)
        if self.mapped is not None:
            return _core.storage_from_buffer(memoryview(self.mapped)[begin:end], alone=True)
        storage = _core.UntypedStorage(end - begin)
        view, position = storage._view().cast("B"), 0
        self.file.seek(self.start + begin)
        while position < len(view):
            chunk = self._into(view[position : position + 2**26])
            if not chunk:
                raise _damaged("it ends too early")
            position += chunk
        return storage

    def _into(self, view: memoryview) -> int:
        if hasattr(self.file, "readinto"):
            return int(self.file.readinto(view) or 0)
        data = self.file.read(len(view))
        view[: len(data)] = data
        return len(data)


@contextmanager
def _opened(f: Any, mmap: bool) -> Iterator[_Source]:
    if hasattr(f, "read"):
        if mmap:
            raise ValueError(
                "[load] f must be a path when mmap=True, got a file object\nhint: pass a path"
            )
        if not (hasattr(f, "seek") and hasattr(f, "tell")):
            f = io.BytesIO(f.read())
        start = f.tell()
        size = f.seek(0, os.SEEK_END) - start
        yield _Source(f, size, start)
        return
    with open(os.fspath(f), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if mmap and size:
            # Private: writes to the tensors stay in memory, the file is never changed.
            mapped = mapping.mmap(file.fileno(), size, access=mapping.ACCESS_COPY)
            yield _Source(file, size, 0, mapped)
        else:
            yield _Source(file, size, 0)


def _check_magic(start: bytes) -> None:
    """Raises for files of PyTorch; called when the bytes are no plausible header length."""
    pickled = start[:1] == b"\x80" and start[1] in range(2, 6)
    if start[:2] != b"PK" and not pickled:
        return
    kind = "zip" if start[:2] == b"PK" else "pickle"
    raise RuntimeError(
        f"[load] this is a {kind} file as PyTorch writes it; it holds pickled code, which is never "
        "run\nhint: convert it where PyTorch is installed: "
        "safetensors.torch.save_file(torch.load(path), 'weights.safetensors'), then load that"
    )


def _read_header(source: _Source) -> tuple[dict[str, _Stored], Any, int]:
    """Stored tensors, the structure (None for a plain safetensors file), where the data begins."""
    if source.size < 8:
        raise _damaged(f"it has only {source.size} bytes")
    start = source.read(0, 8)
    length = int.from_bytes(start, "little")
    if length > min(source.size - 8, LARGEST_HEADER):
        _check_magic(start)
        raise _damaged(f"a header of {length} bytes does not fit")
    header = json.loads(source.read(8, 8 + length).decode())
    if not isinstance(header, dict):
        raise _damaged("the header is no object")
    metadata = header.pop("__metadata__", None)
    begin = 8 + length
    stored = {name: _stored(name, e, source.size - begin) for name, e in header.items()}
    _check_cover(stored)
    text = metadata.get(KEY) if isinstance(metadata, dict) else None
    return stored, None if text is None else json.loads(text), begin


def _check_cover(stored: dict[str, _Stored]) -> None:
    """The tensors stand one after the other: none hides in another, nothing between them."""
    position = 0
    for entry in sorted(stored.values(), key=lambda e: (e.begin, e.end)):
        if entry.begin != position:
            raise _damaged(f"bytes {position} to {entry.begin} belong to no or several tensors")
        position = entry.end


class _Reader:
    """Builds the saved object again."""

    def __init__(
        self,
        source: _Source,
        stored: dict[str, _Stored],
        begin: int,
        place: Callable[[Any], Any],
        trusted: bool,
    ) -> None:
        self.source, self.stored, self.begin, self.place = source, stored, begin, place
        self.trusted = trusted  # its classes
        self.storages: dict[str, Any] = {}
        self.tensors: list[Any] = []

    def storage(self, name: str) -> Any:
        """The storage of one stored tensor; read once."""
        if name not in self.storages:
            entry = self.stored[name]
            begin, end = self.begin + entry.begin, self.begin + entry.end
            self.storages[name] = self.place(self.source.storage(begin, end))
        return self.storages[name]

    def tensor(self, record: Any) -> Any:
        """The tensor a record describes."""
        shape, stride = _sizes(record["shape"], "shape"), _sizes(record["stride"], "stride")
        dtype = object_of(record["dtype"])
        if len(shape) != len(stride):
            raise _damaged("a tensor's sizes and strides differ in number")
        storage = None if record.get("meta") is True else self.storage(record["in"])
        if storage is None or storage.device.type == "meta":
            result = _core.tensor_empty_strided(shape, stride, dtype, "meta")
        else:
            [offset] = _sizes([record["offset"]], "offset")
            result = _view(storage, dtype, offset, shape, stride)
        return _of_class(result, record["class"], record["grad"] is True, self.trusted)

    def attributes(self, tensor: Any, encoded: dict[str, Any], depth: int = 0) -> Any:
        """The tensor, with the attributes that users had set."""
        if "state" in encoded:
            state = self.value(encoded["state"], depth + 1)
            if type(state) is not dict or any(type(name) is not str for name in state):
                raise _damaged("a tensor's attributes have no names")
            if state.keys() & _own_names(tensor):
                raise _damaged("an attribute stands for a part of its tensor")
            tensor.__dict__.update(state)
        return tensor

    def value(self, encoded: Any, depth: int = 0) -> Any:
        """The value of its JSON form."""
        if depth > LARGEST_DEPTH + 1:
            raise _damaged("it is nested too deeply")
        if isinstance(encoded, list):
            return [self.value(v, depth + 1) for v in encoded]
        if not isinstance(encoded, dict):
            return encoded
        kind, inner = encoded["t"], encoded["v"]
        if kind in ("tuple", "set", "frozenset", "Size"):
            build = {"tuple": tuple, "set": set, "frozenset": frozenset, "Size": _core.Size}[kind]
            return build([self.value(v, depth + 1) for v in inner])
        if kind in ("dict", "OrderedDict"):
            return self._dict(encoded, OrderedDict() if kind == "OrderedDict" else {}, depth)
        if kind == "tensor":
            if type(inner) is not int or not 0 <= inner < len(self.tensors):
                raise _damaged("a tensor is missing")
            return self.tensors[inner]
        if kind in ("sparse", "nested", "masked"):
            return self.attributes(self._composed(kind, inner, depth), encoded, depth)
        if kind in _UNINITIALIZED:
            return _uninitialized(kind, self.value(inner, depth + 1))
        return _atom(kind, inner)

    def _composed(self, kind: str, inner: Any, depth: int) -> Any:
        """A tensor made of other tensors."""
        if kind == "sparse":
            return self._sparse(inner, depth)
        with importing:
            from flambeau.masked import tensor as masked
            from flambeau.nested import tensor as nested

        if kind == "masked":
            return masked.rebuild(*self.value(inner, depth + 1))
        return nested.rebuild_any(inner[0], self.value(inner[1], depth + 1))

    def _sparse(self, inner: Any, depth: int) -> Any:
        """A sparse tensor, its parts checked: indices of a file are not to be trusted."""
        with importing:
            from flambeau.sparse.tensor import rebuild

        layout, parts, size, unique, requires_grad = inner
        *index, values = (self.value(part, depth + 1) for part in parts)
        sizes = _sizes(size, "a sparse tensor")
        return rebuild(layout, tuple(index), values, sizes, unique is True, requires_grad is True)

    def _dict(self, encoded: dict[str, Any], result: dict[Any, Any], depth: int) -> Any:
        for key, item in encoded["v"]:
            result[self.value(key, depth + 1)] = self.value(item, depth + 1)
        if "metadata" in encoded and isinstance(result, OrderedDict):
            result._metadata = self.value(encoded["metadata"], depth + 1)  # type: ignore[attr-defined]
        return result


def _view(
    storage: Any, dtype: Any, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> Any:
    """A tensor over a part of a storage, bounds checked."""
    size = dtype.itemsize
    if 0 not in shape:
        last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
        if (last + 1) * size > storage.nbytes():
            raise _damaged("a tensor reaches beyond its bytes")
    elif offset * size > storage.nbytes():
        raise _damaged("a tensor begins beyond its bytes")
    return _core.tensor_from_storage(storage, dtype, shape, stride, offset)


def _of_class(tensor: Any, name: str, requires_grad: bool, trusted: bool) -> Any:
    with importing:
        from flambeau.nn.parameter import Buffer, Parameter

    if name == "Parameter":
        return Parameter(tensor, requires_grad)
    if name == "Buffer":
        tensor = Buffer(tensor)
    elif ":" in name:
        tensor = tensor.as_subclass(safe_classes.find(name, trusted, _core.Tensor))
    elif name != "Tensor":
        raise _damaged(f"{name!r} is no tensor class")
    return tensor.requires_grad_() if requires_grad else tensor


def _uninitialized(kind: str, options: Any) -> Any:
    """A parameter or buffer of a lazy module, which has no shape."""
    with importing:
        from flambeau.nn import parameter

    known = (bool, _core.device, _core.dtype, bool)[: 3 + (kind == "UninitializedBuffer")]
    if not isinstance(options, tuple) or tuple(type(o) for o in options) != known:
        raise _damaged(f"wrong options of an {kind}")
    return getattr(parameter, kind)(*options)


def _atom(kind: Any, inner: Any) -> Any:
    if kind == "float":
        return float(inner)
    if kind == "complex":
        return complex(float(inner[0]), float(inner[1]))
    if kind == "bytes":
        return base64.b64decode(inner, validate=True)
    if kind == "bytearray":
        return bytearray(base64.b64decode(inner, validate=True))
    if kind == "dtype":
        return object_of(inner)
    if kind == "device":
        return _core.device(inner)
    raise _damaged(f"{kind!r} is no known type")


def _placement(map_location: Any) -> Callable[[Any], Any]:
    """What happens to every storage after it was read."""
    if map_location is None:
        return lambda storage: storage
    if callable(map_location) and not isinstance(map_location, _core.device):

        def chosen(storage: Any) -> Any:
            result = map_location(storage, "cpu")
            return storage if result is None else result

        return chosen
    target = map_location.get("cpu", "cpu") if isinstance(map_location, dict) else map_location
    if not isinstance(target, (str, _core.device)):
        raise TypeError(
            f"[load] map_location is {type(map_location).__name__}\nhint: {_MAP_LOCATION}"
        )
    device = _core.device(target)
    if device.type == "cpu":
        return lambda storage: storage
    return lambda storage: _core.UntypedStorage(storage.nbytes(), device=device)


def _rebuild(source: _Source, place: Callable[[Any], Any], trusted: bool) -> Any:
    stored, structure, begin = _read_header(source)
    reader = _Reader(source, stored, begin, place, trusted)
    if structure is None:  # a plain safetensors file
        result: Any = {name: _plain(reader, name) for name in stored}
    else:
        if structure["version"] != VERSION:
            raise RuntimeError(
                f"[load] the file has version {structure['version']}, this reader knows {VERSION}\n"
                "hint: load it with the release that wrote it"
            )
        reader.tensors = [reader.tensor(record) for record in structure["tensors"]]
        for tensor, record in zip(reader.tensors, structure["tensors"], strict=True):
            reader.attributes(tensor, record)
        result = reader.value(structure["root"])
    if source.mapped is None:  # a file object may hold more after this
        end = max((entry.end for entry in stored.values()), default=0)
        source.file.seek(source.start + begin + end)
    return result


def _plain(reader: _Reader, name: str) -> Any:
    entry = reader.stored[name]
    record = {
        "in": name,
        "class": "Tensor",
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "stride": _row_major(entry.shape),
        "offset": 0,
        "grad": False,
    }
    return reader.tensor(record)


def _row_major(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads what `save` wrote, or any safetensors file (as a dict of tensors).

    Nothing in the file can run code, so it is safe on files from anywhere.

    Args:
        f: a path or a binary file object.
        map_location: None, a device, a dict of locations, or a function
            (storage, location) -> storage.
        pickle_module, pickle_load_args: must not be given; nothing is unpickled.
        weights_only: False: tensors of any subclass whose module is imported; else only of those
            that `serialization.add_safe_globals` was given. Loading is safe either way.
        mmap: map the file instead of reading it; needs a path. The file is never written to.

    Raises:
        RuntimeError: the file is damaged, or was written by PyTorch itself.
        ValueError: arguments that do not fit.
        UnpicklingError: a tensor of a class that is not allowed.
    """
    if pickle_module is not None or pickle_load_args:
        raise ValueError(
            "[load] nothing is unpickled: pickle_module and its arguments have no use\n"
            "hint: drop them"
        )
    if sys.byteorder != "little":
        raise NotImplementedError("[load] big-endian machines are not supported\nhint: convert")
    place = _placement(map_location)
    with _opened(f, bool(mmap)) as source:
        try:
            return _rebuild(source, place, weights_only is False)
        except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            raise _damaged(f"{type(error).__name__} at {error}") from error
        except RecursionError as error:
            raise _damaged("it is nested too deeply") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise _damaged(f"the header cannot be read, {error}") from error


# A name of PyTorch that is not here yet is told from a misspelt one.
globals()["__getattr__"] = _missing.getter(__name__)
