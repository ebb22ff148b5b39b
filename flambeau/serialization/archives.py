"""PyTorch's own form of checkpoints: a pickle and the bytes of storages, in a zip archive.

`data.pkl` is the pickled object. Storages are persistent ids in it; storage *n* is the record
`data/n`. `byteorder` says in which order their bytes are.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_data
from flambeau.ir.failure import failure
from flambeau.ir.lock import importing
from flambeau.serialization import names, options, rebuild, zip_writer
from flambeau.serialization.pickling import Storages, pickled
from flambeau.serialization.scripted_pickles import ScriptedObject, ScriptedUnpickler
from flambeau.serialization.sources import Source, damaged, is_foreign, swapped
from flambeau.serialization.unpickler import Unpickler
from flambeau.serialization.zip_reader import Archive
from flambeau.utils.serialization import config

__all__ = ["read", "write"]

Restore = Callable[[Any, str], Any]
SCRIPTED = "constants.pkl"  # archives of scripted code have this record
_LARGEST_NAME = 256
_ORDERS = {b"little": "little", b"big": "big"}


# ------------------------------------------------------------------------------ writing
def write(
    obj: Any,
    file: Any,
    folder: str,
    module: Any,
    protocol: int,
    byteorder: bool = True,
    records: Mapping[str, bytes] | None = None,
) -> None:
    """Writes an object to a binary file.

    Args:
        folder: name of the archive's folder.
        module: `pickle`, or a module with a `Pickler` of its own.
        byteorder: whether the order of bytes is written down.
        records: further records by name: code and constants of `torch.jit`.
    """
    storages = Storages(legacy=False)
    data = pickled(obj, module, protocol, storages)
    alignment = config.save.storage_alignment
    archive = zip_writer.ArchiveWriter(file, folder, alignment)
    archive.write("data.pkl", data)
    archive.write(".format_version", b"1")
    archive.write(".storage_alignment", str(alignment).encode())
    if byteorder:
        archive.write("byteorder", sys.byteorder.encode())
    for name, text in (records or {}).items():
        archive.write(name, text)
    skip, checksum = options.skips_data(), options.get_crc32_options()
    for key, (storage, _) in storages.storages.items():
        archive.write(f"data/{key}", contents(storage), skip, checksum)
    archive.write("version", b"3\n")
    identity = zip_writer.identity(storages.storages, archive.checksums)
    archive.write(".data/serialization_id", identity)
    archive.close()


def contents(storage: Any) -> Any:
    """The bytes of a storage; zeros of one that has none."""
    if not has_data(storage):
        return bytes(storage.nbytes())
    return storage.cpu()._view().cast("B")


# ------------------------------------------------------------------------------ reading
def storage_reference(pid: Any, legacy: bool = False) -> tuple[Any, str, str, int]:
    """Storage type, key, location and number of elements of a persistent id.

    Raises:
        RuntimeError: it is none of a storage.
    """
    if not isinstance(pid, tuple) or len(pid) < 5 + legacy or _text(pid[0]) != "storage":
        raise damaged("it refers to what is no storage")
    key, location, count = _text(pid[2]), _text(pid[3]), pid[4]
    if not isinstance(key, str) or not isinstance(location, str) or len(key) > _LARGEST_NAME:
        raise damaged("a storage has no name")
    if type(count) is not int or not 0 <= count < 2**62:
        raise damaged("a storage has an impossible size")
    return pid[1], key, location, count


def _text(value: Any) -> Any:
    """Text, also where Python 2 wrote it as bytes."""
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def dtype_of(storage_type: Any) -> Any:
    """The dtype of a storage type's elements; None of bytes.

    Raises:
        RuntimeError: no storage type.
    """
    if storage_type is _core.UntypedStorage:
        return None
    dtype = getattr(storage_type, "dtype", None)
    if not isinstance(storage_type, type) or not isinstance(dtype, _core.dtype):
        raise damaged("a storage has no type")
    return dtype


def typed(storage: Any, dtype: Any) -> Any:
    """A storage as elements of a dtype; the bytes themselves of None."""
    with importing:
        from flambeau.storage import TypedStorage

    return storage if dtype is None else TypedStorage(wrap_storage=storage, dtype=dtype)


class _Session:
    """The storages of an archive, each read when the pickle first names it."""

    def __init__(
        self, archive: Archive, restore: Restore, to_meta: bool, folder: str = "data"
    ) -> None:
        self.archive, self.restore, self.to_meta = archive, restore, to_meta
        self.folder = folder
        self.storages: dict[str, Any] = {}
        self.unswapped: dict[int, Any] = {}  # bytes whose elements are not known yet
        self.foreign = is_foreign(_byteorder(archive))

    def persistent_load(self, pid: Any) -> Any:
        """The storage that a persistent id names."""
        storage_type, key, location, count = storage_reference(pid)
        dtype = dtype_of(storage_type)
        if key not in self.storages:
            nbytes = count * (1 if dtype is None else dtype.itemsize)
            self.storages[key] = self._read(key, nbytes, location, dtype)
        return typed(self.storages[key], dtype)

    def _read(self, key: str, nbytes: int, location: str, dtype: Any) -> Any:
        if self.to_meta or location == "meta":
            return self.restore(_core.UntypedStorage(nbytes, device="meta"), location)
        storage = self.archive.storage(f"{self.folder}/{key}", nbytes)
        if self.foreign and dtype is None:
            self.unswapped[storage._cdata] = storage
        elif self.foreign:
            swapped(storage, dtype)
        return self.restore(storage, location)

    def rebuild_v3(self, *args: Any) -> Any:
        """`_rebuild_tensor_v3`, which is the first to know the dtype of a storage."""
        tensor = rebuild._rebuild_tensor_v3(*args)
        storage = None if not has_data(tensor) else self.unswapped.pop(args[0]._cdata, None)
        if storage is not None:
            swapped(storage, tensor.dtype)
        return tensor


def _byteorder(archive: Archive) -> str:
    if "byteorder" in archive:
        order = _ORDERS.get(archive.read("byteorder", limit=16))
        if order is None:
            raise ValueError("[load] Unknown endianness type of the file\nhint: save it again")
        return order
    default = options.get_default_load_endianness()
    if default is options.LoadEndianness.NATIVE:
        return sys.byteorder
    return "big" if default is options.LoadEndianness.BIG else "little"


def read(
    source: Source,
    restore: Restore,
    weights_only: bool,
    module: Any,
    load_args: dict[str, Any],
    to_meta: bool = False,
) -> Any:
    """The object of an archive.

    Args:
        source: its bytes.
        restore: (storage, location) to the storage to use.
        weights_only: whether only tensors and plain values may be built.
        module: `pickle`, or a module with an `Unpickler` of its own, of a trusted file.
        load_args: of that `Unpickler`.
        to_meta: whether no bytes are needed.
    """
    archive = Archive(source)
    session = _Session(archive, restore, to_meta)
    data = archive.read("data.pkl")
    if weights_only:
        encoding = load_args.get("encoding", "utf-8")
        machine = Unpickler(
            data, session.persistent_load, session.rebuild_v3, encoding, size=source.size
        )
        result = machine.load()
    else:
        result = trusted(data, session.persistent_load, session.rebuild_v3, module, load_args)
    source.finish(archive.end)
    return result


def is_scripted(source: Source) -> bool:
    """Whether an archive holds scripted code."""
    return SCRIPTED in Archive(source)


def read_scripted(source: Source, restore: Restore) -> tuple[Any, dict[str, bytes]]:
    """The object and the other records of an archive that `torch.jit.save` wrote.

    Raises:
        RuntimeError: an archive without code.
    """
    archive = Archive(source)
    if SCRIPTED not in archive:
        problem = "PytorchStreamReader failed locating file constants.pkl: file not found"
        raise failure(RuntimeError, "jit.load", problem, "torch.load reads what torch.save wrote")
    content, constants = (
        _scripted_pickle(archive, restore, folder, source.size) for folder in ("data", "constants")
    )
    if isinstance(content, ScriptedObject):  # PyTorch's own: its code numbers the constants
        content.__dict__["constants"] = constants
    prefix = f"{archive.folder}/"
    names_of_text = [name.removeprefix(prefix) for name in archive.records]
    chosen = [
        name
        for name in names_of_text
        if name.startswith(("code/", "extra/")) and not name.endswith(".debug_pkl")
    ]
    records = {name: archive.read(name) for name in chosen}
    source.finish(archive.end)
    return content, records


def _scripted_pickle(archive: Archive, restore: Restore, folder: str, size: int) -> Any:
    session = _Session(archive, restore, to_meta=False, folder=folder)
    data = archive.read(f"{folder}.pkl")
    return ScriptedUnpickler(data, session.persistent_load, session.rebuild_v3, size=size).load()


def trusted(
    file: Any, persistent_load: Any, rebuild_v3: Any, module: Any, load_args: dict[str, Any]
) -> Any:
    """Unpickles what the caller trusts: code that the pickle names is run.

    Args:
        file: bytes, or a file object that is read up to the pickle's end.
    """
    import io

    base: Any = (module or pickle).Unpickler

    class Trusted(base):  # type: ignore[misc]
        """Finds our classes under PyTorch's names."""

        def find_class(self, module: str, name: str) -> Any:
            """The class or function of a name."""
            if not names.is_ours(module):
                return super().find_class(module, name)
            value = names.resolve(module, name)
            return rebuild_v3 if value is rebuild._rebuild_tensor_v3 and rebuild_v3 else value

        def persistent_load(self, pid: Any) -> Any:
            """The storage of a persistent id."""
            return persistent_load(pid)

    file = io.BytesIO(file) if isinstance(file, bytes) else file
    return Trusted(file, **load_args).load()
