"""Classes of PyTorch's native core under `torch`: the ones that programs make or compare.

Objects that only PyTorch's own compiler of TorchScript returns have a class here without
instances; constructing one raises PyTorch's TypeError.
"""

from __future__ import annotations

import enum
import functools
import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from flambeau.ir.lock import late

_OPAQUE = (
    "AliasDb ArgumentSpec BenchmarkExecutionStats Block CallStack Capsule Code "
    "CompleteArgumentSpec ConcreteModuleType ConcreteModuleTypeBuilder DeepCopyMemoTable "
    "ErrorReport ExecutionPlan Gradient GraphExecutorState IODescriptor Node OperatorInfo "
    "ScriptClass ScriptClassFunction ScriptMethod ScriptObject ScriptObjectProperty "
    "ScriptModuleSerializer SerializationStorageContext StaticModule TracingState Use Value"
)


_STORAGES = "QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage QUInt8Storage"


def _opaque(name: str) -> type:
    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"torch._C.{name}: No constructor defined!")

    text = "A class of PyTorch's compiler of TorchScript; nothing is an instance of it here."
    return type(name, (), {"__new__": refuse, "__doc__": text, "__module__": __name__})


def _storage(name: str) -> type:
    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"[{name}] storages of quantized numbers are not in Flambeau\n"
            "hint: torch.UntypedStorage holds bytes"
        )

    text = "Memory of quantized numbers; making one raises NotImplementedError."
    return type(name, (), {"__new__": refuse, "__doc__": text, "__module__": __name__})


globals().update({_name: _opaque(_name) for _name in _OPAQUE.split()})
globals().update({_name: _storage(_name) for _name in _STORAGES.split()})


class FatalError(Exception):
    """An error after which a process cannot go on; never raised here."""


class JITException(Exception):
    """An exception of scripted code; here it raises Python's own."""


class Graph:
    """PyTorch's graph of TorchScript.

    Raises:
        NotImplementedError: always: programs are graphs of `torch.fx`, or source text.
    """

    def __init__(self, *args: Any) -> None:
        raise NotImplementedError(
            "[Graph] TorchScript's graphs are not in Flambeau\n"
            "hint: torch.fx.Graph; a scripted function's .code is its program"
        )


class AggregationType(enum.Enum):
    """How a `LockingLogger` sums a counter up."""

    SUM = 0
    AVG = 1


SUM, AVG = AggregationType.SUM, AggregationType.AVG


class LoggerBase:
    """Counts events of scripted code."""

    def add_stat_value(self, stat_name: str, val: int) -> None:
        """Counts: here nothing."""


class NoopLogger(LoggerBase):
    """Counts nothing."""


class LockingLogger(LoggerBase):
    """Counts by name.

    Example:
        >>> logger = torch.LockingLogger()
        >>> logger.add_stat_value("calls", 2)
        >>> logger.get_counter_val("calls")
        2
    """

    def __init__(self) -> None:
        self._values: dict[str, list[int]] = {}
        self._kinds: dict[str, AggregationType] = {}

    def add_stat_value(self, stat_name: str, val: int) -> None:
        """Adds to a counter."""
        self._values.setdefault(stat_name, []).append(val)

    def set_aggregation_type(self, name: str, type: AggregationType) -> None:  # noqa: A002
        """Chooses whether a counter is a sum or an average."""
        self._kinds[name] = type

    def get_counter_val(self, name: str) -> int:
        """A counter's value; 0 where nothing was counted."""
        values = self._values.get(name, [])
        total = sum(values)
        return total // len(values) if values and self._kinds.get(name) is AVG else total


class BenchmarkConfig:
    """Settings of `ThroughputBenchmark`."""

    def __init__(self) -> None:
        self.num_calling_threads = self.num_worker_threads = 1
        self.num_warmup_iters, self.num_iters = 1, 100
        self.profiler_output_path = ""


# ------------------------------------------------------------------------------ containers


class ScriptListIterator:
    """The iterator of a `ScriptList`."""

    def __init__(self, values: Iterator[Any]) -> None:
        self._values = values

    def __iter__(self) -> ScriptListIterator:
        return self

    def __next__(self) -> Any:
        return next(self._values)


class ScriptList:
    """A list that scripted code and Python share.

    Args:
        values: its elements.

    Example:
        >>> shared = torch.ScriptList([1, 2])
        >>> shared.append(3)
        >>> shared
        [1, 2, 3]
    """

    def __init__(self, values: Sequence[Any] = ()) -> None:
        self._values = list(values)

    def __iter__(self) -> ScriptListIterator:
        return ScriptListIterator(iter(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, value: Any) -> bool:
        return value in self._values

    def __getitem__(self, index: Any) -> Any:
        picked = self._values[index]
        return ScriptList(picked) if isinstance(index, slice) else picked

    def __setitem__(self, index: Any, value: Any) -> None:
        self._values[index] = value

    def __delitem__(self, index: Any) -> None:
        del self._values[index]

    def __bool__(self) -> bool:
        return bool(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def append(self, value: Any) -> None:
        """Adds an element."""
        self._values.append(value)

    def extend(self, values: Any) -> None:
        """Adds several elements."""
        self._values.extend(values)

    def insert(self, index: int, value: Any) -> None:
        """Adds an element before another."""
        self._values.insert(index, value)

    def pop(self, index: int = -1) -> Any:
        """Removes an element and returns it."""
        return self._values.pop(index)

    def remove(self, value: Any) -> None:
        """Removes the first element of a value."""
        self._values.remove(value)

    def clear(self) -> None:
        """Removes all elements."""
        self._values.clear()

    def count(self, value: Any) -> int:
        """How many elements have a value."""
        return self._values.count(value)


class ScriptDictKeyIterator(ScriptListIterator):
    """The iterator of a `ScriptDict`'s keys."""


class ScriptDictIterator(ScriptListIterator):
    """The iterator of a `ScriptDict`'s keys and values."""


class ScriptDict:
    """A dict that scripted code and Python share.

    Args:
        values: its keys and values.
    """

    def __init__(self, values: dict[Any, Any]) -> None:
        self._values = dict(values)

    def __iter__(self) -> ScriptDictKeyIterator:
        return ScriptDictKeyIterator(iter(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Any) -> bool:
        return key in self._values

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._values[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._values[key]

    def __bool__(self) -> bool:
        return bool(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def keys(self) -> ScriptDictKeyIterator:
        """The keys."""
        return ScriptDictKeyIterator(iter(self._values))

    def items(self) -> ScriptDictIterator:
        """Keys and values."""
        return ScriptDictIterator(iter(self._values.items()))


class _ModuleView:
    """A scripted module's parts of one kind by name."""

    _part = ""

    def __init__(self, module: Any) -> None:
        self._parts: dict[str, Any] = getattr(module, self._part)

    def contains(self, name: str) -> bool:
        """Whether there is a part of this name."""
        return name in self._parts

    def items(self) -> list[tuple[str, Any]]:
        """Names and parts."""
        return list(self._parts.items())

    def getattr(self, name: str) -> Any:
        """A part."""
        return self._parts[name]

    def setattr(self, name: str, value: Any) -> None:
        """Sets a part."""
        self._parts[name] = value


class ModuleDict(_ModuleView):
    """The modules in a scripted module."""

    _part = "_modules"


class ParameterDict(_ModuleView):
    """The parameters of a scripted module."""

    _part = "_parameters"


class BufferDict(_ModuleView):
    """The buffers of a scripted module."""

    _part = "_buffers"


# ------------------------------------------------------------------------------ dispatch keys

_BACKENDS = (
    "CPU CUDA HIP XLA MPS IPU XPU HPU VE Lazy Meta MTIA MAIA PrivateUse1 PrivateUse2 PrivateUse3"
).split()
_KEYS = [
    "Undefined", *_BACKENDS, "Dense", "Quantized", "Sparse", "SparseCsr", "NestedTensor",
    *(f"{kind}{device}" for kind in ("Quantized", "Sparse", "SparseCsr", "NestedTensor")
      for device in ("CPU", "CUDA", "Meta")),
    "BackendSelect", "Python", "PythonTLSSnapshot", "Fake", "FuncTorchDynamicLayerBackMode",
    "Functionalize", "Conjugate", "Negative", "ZeroTensor", "ADInplaceOrView", "AutogradOther",
    "AutogradFunctionality", "AutogradNestedTensor", *(f"Autograd{name}" for name in _BACKENDS),
    *(f"Autocast{name}" for name in ("CPU", "CUDA", "XPU", "IPU", "HPU", "MPS", "PrivateUse1")),
    "Tracer", "FuncTorchBatched", "FuncTorchVmapMode", "Batched", "VmapMode",
    "FuncTorchGradWrapper", "FuncTorchDynamicLayerFrontMode", "PreDispatch", "PythonDispatcher",
    "Autograd", "CompositeImplicitAutograd", "CompositeImplicitAutogradNestedTensor",
    "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional",
]  # fmt: skip
DispatchKey = enum.IntEnum(  # type: ignore[misc]
    "DispatchKey", [(name, number) for number, name in enumerate(dict.fromkeys(_KEYS))]
)
DispatchKey.__doc__ = "PyTorch's levels of dispatch by name, for kernels that programs register."
DispatchKey.__str__ = lambda self: f"DispatchKey.{self.name}"  # type: ignore[method-assign]


class DispatchKeySet:
    """A set of dispatch keys.

    Args:
        key: its only one.

    Example:
        >>> torch.DispatchKeySet(torch.DispatchKey.CPU).has(torch.DispatchKey.Meta)
        False
    """

    def __init__(self, key: Any) -> None:
        self._keys = frozenset(key if isinstance(key, (set, frozenset)) else [key])

    def has(self, key: Any) -> bool:
        """Whether a key is in it."""
        return key in self._keys

    def add(self, key: Any) -> DispatchKeySet:
        """The set with a key."""
        return DispatchKeySet(self._keys | {key})

    def remove(self, key: Any) -> DispatchKeySet:
        """The set without a key."""
        return DispatchKeySet(self._keys - {key})

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys | other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys & other._keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys - other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def raw_repr(self) -> int:
        """The keys as bits of a number."""
        return sum(1 << int(key) for key in self._keys)

    @staticmethod
    def from_raw_repr(bits: int) -> DispatchKeySet:
        """The set of `raw_repr`'s number."""
        return DispatchKeySet({key for key in DispatchKey if bits >> int(key) & 1})

    def highestPriorityTypeId(self) -> Any:  # noqa: N802 - PyTorch's name
        """The key that a call would take first."""
        return max(self._keys, default=DispatchKey.Undefined)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(key.name for key in sorted(self._keys))})"


# ------------------------------------------------------------------------------ archives


class DeserializationStorageContext:
    """Storages that several modules of one archive share."""

    def __init__(self) -> None:
        self._storages: dict[str, Any] = {}


class PyTorchFileReader:
    """The records of an archive that `torch.save` or `torch.jit.save` wrote.

    Args:
        name_or_buffer: a path, or a file object.

    Raises:
        RuntimeError: the file cannot be opened or is no archive.
    """

    def __init__(self, name_or_buffer: Any) -> None:
        try:
            self._file = zipfile.ZipFile(name_or_buffer)
        except (OSError, zipfile.BadZipFile) as error:
            raise RuntimeError(
                f"PytorchStreamReader failed reading zip archive: {error}\n"
                "hint: torch.load reads older files"
            ) from None
        names = self._file.namelist()
        self._root = names[0].partition("/")[0] if names else ""

    def archive_name(self) -> str:
        """The directory of all records."""
        return self._root

    def get_all_records(self) -> list[str]:
        """The records' names."""
        prefix = self._root + "/"
        return [name.removeprefix(prefix) for name in self._file.namelist()]

    def has_record(self, name: str) -> bool:
        """Whether there is a record."""
        return f"{self._root}/{name}" in self._file.NameToInfo

    def get_record(self, name: str) -> bytes:
        """A record's bytes.

        Raises:
            RuntimeError: there is none of this name.
        """
        if not self.has_record(name):
            raise RuntimeError(
                f"PytorchStreamReader failed locating file {name}: file not found\n"
                "hint: get_all_records() lists them"
            )
        return self._file.read(f"{self._root}/{name}")

    def get_record_size(self, name: str) -> int:
        """Number of bytes of a record."""
        return len(self.get_record(name))

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Any:
        """A tensor of one dimension of the first elements of a record."""
        data = bytearray(self.get_record(name)[: numel * dtype.itemsize])
        return late("flambeau").frombuffer(data, dtype=dtype, count=numel)

    def version(self) -> int:
        """The archive's version."""
        for name in ("version", ".data/version"):
            if self.has_record(name):
                return int(self.get_record(name))
        return 0

    def serialization_id(self) -> str:
        """An identity of the archive's content; empty in older archives."""
        name = ".data/serialization_id"
        return self.get_record(name).decode() if self.has_record(name) else ""


class PyTorchFileWriter:
    """Writes an archive of records, each aligned to 64 bytes and not compressed.

    Args:
        file_name: a path, or a file object.
        compute_crc32: without effect: sums are always written.
    """

    _ALIGNMENT = 64

    def __init__(self, file_name: Any, compute_crc32: bool = True, *settings: Any) -> None:
        path = isinstance(file_name, (str, os.PathLike))
        stem = os.path.splitext(os.path.basename(file_name))[0] if path else "archive"
        self._root = stem
        self._file = zipfile.ZipFile(file_name, "w", zipfile.ZIP_STORED)  # noqa: SIM115
        self._names: list[str] = []
        self._version = 3

    def archive_name(self) -> str:
        """The directory of all records."""
        return self._root

    def set_min_version(self, version: int) -> None:
        """Raises the archive's version."""
        self._version = max(self._version, version)

    def write_record(self, name: str, data: Any, size: int | None = None) -> None:
        """Writes a record.

        Args:
            name: of the record.
            data: bytes, or a storage.
            size: bytes of it to write.
        """
        content = bytes(data) if not hasattr(data, "tolist") else bytes(data.tolist())
        info = zipfile.ZipInfo(f"{self._root}/{name}")
        start = self._file.fp.tell() + 30 + len(info.filename.encode()) + 4  # type: ignore[union-attr]
        padding = -start % self._ALIGNMENT
        info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
        self._file.writestr(info, content[:size])
        self._names.append(name)

    def get_all_written_records(self) -> list[str]:
        """The records' names."""
        return list(self._names)

    def write_end_of_file(self) -> None:
        """Writes the version and the directory, and closes the file."""
        if "version" not in self._names:
            self.write_record("version", f"{self._version}\n".encode())
        self._file.close()


# ------------------------------------------------------------------------------ functions


def get_file_path(*path_components: str) -> str:
    """A path below the directory that holds this package.

    Example:
        >>> torch.get_file_path("flambeau").endswith("flambeau")
        True
    """
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.path.join(package, *path_components)


def compiled_with_cxx11_abi() -> bool:
    """Whether the native core uses C++11's strings: True."""
    return True


def init_num_threads() -> None:
    """Returns: threads are started when they are first needed."""


def is_vulkan_available() -> bool:
    """False."""
    return False


def parse_schema(schema: str) -> Any:
    """The schema of an operator from its text.

    Example:
        >>> torch.parse_schema("f(int a) -> int").name
        'f'
    """
    return late("flambeau.library.schemas").parse(schema)


def _refuse(name: str) -> Any:
    @functools.wraps(_refuse)
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"[{name}] TorchScript's graphs and their text are not in Flambeau\n"
            "hint: torch.jit.script and torch.jit.load give functions and modules"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raises NotImplementedError."
    return function


parse_ir = _refuse("parse_ir")
parse_type_comment = _refuse("parse_type_comment")
merge_type_from_type_comment = _refuse("merge_type_from_type_comment")


def import_ir_module(cu: Any, file: Any, map_location: Any = None, *options: Any) -> Any:
    """`torch.jit.load` of a path."""
    return late("flambeau.jit").load(file, map_location)


def import_ir_module_from_buffer(
    cu: Any, buffer: Any, map_location: Any = None, *options: Any
) -> Any:
    """`torch.jit.load` of bytes."""
    return late("flambeau.jit").load(
        io.BytesIO(buffer) if isinstance(buffer, bytes) else buffer, map_location
    )


def sym_constrain_range(size: Any, *, min: Any = None, max: Any = None) -> None:  # noqa: A002
    """Checks that a number is in a range.

    Raises:
        RuntimeError: it is not.
    """
    low, high = (-(2**63) if min is None else min), (2**63 - 1 if max is None else max)
    if not low <= size <= high:
        raise RuntimeError(f"Invalid value range for {size} between [{low}, {high}].")


def sym_constrain_range_for_size(size: Any, *, min: Any = None, max: Any = None) -> None:  # noqa: A002
    """Checks that a size is in a range.

    Raises:
        RuntimeError: it is not.
    """
    sym_constrain_range(size, min=0 if min is None else min, max=max)


def sym_fresh_size(expr: Any) -> Any:
    """The size itself: sizes are numbers here."""
    return expr
