"""Flambeau's own form of checkpoints: tensors and the structure around them, without any pickle.

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
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_data
from flambeau.ir.dtypes import ITEM_SIZE, ROWS
from flambeau.ir.failure import failure
from flambeau.ir.lock import importing
from flambeau.ir.modules import module_of
from flambeau.language.dtypes import name_of, object_of
from flambeau.runtime import safe_classes
from flambeau.serialization.sources import Source, check_sizes, damaged, row_major, view

__all__ = ["read", "write"]

VERSION = 1
KEY = "flambeau"  # of the structure in the container's metadata
LARGEST_HEADER = 100 * 2**20  # what the safetensors library accepts
LARGEST_DEPTH = 200
NAMES = {row.name: row.file for row in ROWS if row.file}
DTYPES = {name: dtype for dtype, name in NAMES.items()}
_UNINITIALIZED = ("UninitializedParameter", "UninitializedBuffer")  # of lazy modules


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
    """Returns the attributes that users set on a tensor (`weight.tag = 1`), as an entry "state"."""
    own = own_names(tensor)
    state = {name: v for name, v in tensor.__dict__.items() if name not in own}
    return {"state": _encode(writer, state, path, depth + 1)} if state else {}


def own_names(tensor: Any) -> set[str]:
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
        problem = f"{path[:60]}... contains itself or is nested deeper than {LARGEST_DEPTH}"
        raise failure(ValueError, "save", problem, "flatten the structure")
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
    if not has_data(tensor):
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
        entire = len(memory.users) == 1 and tensor.is_contiguous() and record["dtype"] in NAMES
        name = writer.paths[first_user] if entire else f"storage.{first_user}"
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
        if entire:
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
        problem = f"the structure takes {len(encoded)} bytes; at most {LARGEST_HEADER} fit"
        raise failure(ValueError, "save", problem, "store long lists of numbers as tensors")
    return len(encoded).to_bytes(8, "little") + encoded


def _write(file: Any, header: bytes, entries: Sequence[_Entry]) -> None:
    file.write(header)
    for entry in entries:
        for start in range(0, len(entry.data), 2**26):
            file.write(entry.data[start : start + 2**26])


def write(obj: Any, file: Any) -> None:
    """Writes an object to a binary file.

    Raises:
        TypeError: a value of a type that the form has not, named by its path inside `obj`.
        ValueError: a structure that contains itself.
    """
    writer = _Writer()
    root = _encode(writer, obj, "")
    _check_alignment(writer)
    entries = _entries(writer)
    _write(file, _header(writer, root, entries), entries)


# ------------------------------------------------------------------------------ reading


@dataclass(frozen=True)
class _Stored:
    """One tensor of a container, its bytes checked to be inside."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _stored(name: str, entry: Any, limit: int) -> _Stored:
    if not isinstance(entry, dict) or entry.get("dtype") not in DTYPES:
        raise damaged(f"{name!r} has an unknown dtype")
    shape = check_sizes(entry.get("shape"), name)
    offsets = check_sizes(entry.get("data_offsets"), name)
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= limit:
        raise damaged(f"{name!r} lies outside of the file")
    dtype = DTYPES[entry["dtype"]]
    if math.prod(shape) * ITEM_SIZE[dtype] != offsets[1] - offsets[0]:
        raise damaged(f"{name!r} has {offsets[1] - offsets[0]} bytes for shape {list(shape)}")
    return _Stored(dtype, shape, *offsets)


def is_container(start: bytes, size: int) -> bool:
    """Whether the first bytes of a file of that size are those of a safetensors file."""
    length = int.from_bytes(start[:8], "little")
    return start[8:9] == b"{" and length <= min(size - 8, LARGEST_HEADER)


def _read_header(source: Source) -> tuple[dict[str, _Stored], Any, int]:
    """Stored tensors, the structure (None for a plain safetensors file), where the data begins."""
    if source.size < 8:
        raise damaged(f"it has only {source.size} bytes")
    start = source.read(0, 8)
    length = int.from_bytes(start, "little")
    if length > min(source.size - 8, LARGEST_HEADER):
        raise damaged(f"a header of {length} bytes does not fit")
    header = json.loads(source.read(8, 8 + length).decode())
    if not isinstance(header, dict):
        raise damaged("the header is no object")
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
            raise damaged(f"bytes {position} to {entry.begin} belong to no or several tensors")
        position = entry.end


class _Reader:
    """Builds the saved object again."""

    def __init__(
        self,
        source: Source,
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
        shape, stride = (
            check_sizes(record["shape"], "shape"),
            check_sizes(record["stride"], "stride"),
        )
        dtype = object_of(record["dtype"])
        if len(shape) != len(stride):
            raise damaged("a tensor's sizes and strides differ in number")
        storage = None if record.get("meta") is True else self.storage(record["in"])
        if storage is None or not has_data(storage):
            result = _core.tensor_empty_strided(shape, stride, dtype, "meta")
        else:
            [offset] = check_sizes([record["offset"]], "offset")
            result = view(storage, dtype, offset, shape, stride)
        return _of_class(result, record["class"], record["grad"] is True, self.trusted)

    def attributes(self, tensor: Any, encoded: dict[str, Any], depth: int = 0) -> Any:
        """The tensor, with the attributes that users had set."""
        if "state" in encoded:
            state = self.value(encoded["state"], depth + 1)
            if type(state) is not dict or any(type(name) is not str for name in state):
                raise damaged("a tensor's attributes have no names")
            if state.keys() & own_names(tensor):
                raise damaged("an attribute stands for a part of its tensor")
            tensor.__dict__.update(state)
        return tensor

    def value(self, encoded: Any, depth: int = 0) -> Any:
        """The value of its JSON form."""
        if depth > LARGEST_DEPTH + 1:
            raise damaged("it is nested too deeply")
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
                raise damaged("a tensor is missing")
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
        sizes = check_sizes(size, "a sparse tensor")
        return rebuild(layout, tuple(index), values, sizes, unique is True, requires_grad is True)

    def _dict(self, encoded: dict[str, Any], result: dict[Any, Any], depth: int) -> Any:
        for key, item in encoded["v"]:
            result[self.value(key, depth + 1)] = self.value(item, depth + 1)
        if "metadata" in encoded and isinstance(result, OrderedDict):
            result._metadata = self.value(encoded["metadata"], depth + 1)  # type: ignore[attr-defined]
        return result


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
        raise damaged(f"{name!r} is no tensor class")
    return tensor.requires_grad_() if requires_grad else tensor


def _uninitialized(kind: str, options: Any) -> Any:
    """A parameter or buffer of a lazy module, which has no shape."""
    with importing:
        from flambeau.nn import parameter

    types = (bool, _core.device, _core.dtype, bool)[: 3 + (kind == "UninitializedBuffer")]
    if not isinstance(options, tuple) or tuple(type(o) for o in options) != types:
        raise damaged(f"wrong options of an {kind}")
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
    raise damaged(f"{kind!r} is no known type")


def read(source: Source, restore: Callable[[Any, str], Any], trusted: bool) -> Any:
    """The object of a container; a dict of tensors, of a plain safetensors file.

    Args:
        source: its bytes.
        restore: (storage, location) to the storage to use.
        trusted: whether tensors of all classes of imported modules may be made.
    """
    try:
        return _rebuild(source, lambda storage: restore(storage, "cpu"), trusted)
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise damaged(f"{type(error).__name__} at {error}") from error
    except RecursionError as error:
        raise damaged("it is nested too deeply") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise damaged(f"the header cannot be read, {error}") from error


def _rebuild(source: Source, place: Callable[[Any], Any], trusted: bool) -> Any:
    stored, structure, begin = _read_header(source)
    reader = _Reader(source, stored, begin, place, trusted)
    if structure is None:  # a plain safetensors file
        result: Any = {name: _plain(reader, name) for name in stored}
    else:
        if structure["version"] != VERSION:
            problem = f"the file has version {structure['version']}, this reader knows {VERSION}"
            raise failure(RuntimeError, "load", problem, "load it with the release that wrote it")
        reader.tensors = [reader.tensor(record) for record in structure["tensors"]]
        for tensor, record in zip(reader.tensors, structure["tensors"], strict=True):
            reader.attributes(tensor, record)
        result = reader.value(structure["root"])
    source.finish(begin + max((entry.end for entry in stored.values()), default=0))
    return result


def _plain(reader: _Reader, name: str) -> Any:
    entry = reader.stored[name]
    record = {
        "in": name,
        "class": "Tensor",
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "stride": list(row_major(entry.shape)),
        "offset": 0,
        "grad": False,
    }
    return reader.tensor(record)
