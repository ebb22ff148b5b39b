"""Where storages were saved, and where they are restored: `map_location` and registered packages.

A file records the device of each storage. `default_restore_location` tries one package after
another, in order of priority, to restore it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_own_memory
from flambeau.ir.failure import failure

__all__ = [
    "default_restore_location", "location_tag", "register_package", "validate_cuda_device",
    "validate_hpu_device",
]  # fmt: skip

_HINT = "None, a device, a dict of locations or a function (storage, location) -> storage"
Tagger = Callable[[Any], str | None]
Deserializer = Callable[[Any, str], Any]
_packages: list[tuple[int, Tagger, Deserializer]] = []


def register_package(priority: int, tagger: Tagger, deserializer: Deserializer) -> None:
    """Registers how storages of a kind of device are named in files, and restored.

    Args:
        priority: packages of lower numbers are tried first; those for the CPU have 10, for absent
            accelerators 20 and more, for meta 22.
        tagger: the location of a storage, or None.
        deserializer: the storage at a location, or None.

    Example:
        >>> def tag(storage):
        ...     return None
        >>> def restore(storage, location):
        ...     return storage if location == "elsewhere" else None
        >>> torch.serialization.register_package(5, tag, restore)
    """
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda package: package[0])


def location_tag(storage: Any) -> str:
    """The location that a file gives a storage.

    Raises:
        RuntimeError: no package knows it.

    Example:
        >>> torch.serialization.location_tag(torch.ones(1).untyped_storage())
        'cpu'
    """
    for _, tagger, _ in _packages:
        location = tagger(storage)
        if location:
            return location
    problem = f"don't know how to determine data location of {type(storage).__name__}"
    raise failure(RuntimeError, "save", problem, "torch.serialization.register_package")


def default_restore_location(storage: Any, location: str) -> Any:
    """A storage that was read, at the location that the file names.

    Args:
        storage: on the CPU.
        location: "cpu", "meta", or what a registered package restores.

    Raises:
        RuntimeError: no package knows it, or the device is absent.

    Example:
        >>> storage = torch.UntypedStorage(4)
        >>> torch.serialization.default_restore_location(storage, "meta").device
        device(type='meta')
    """
    for _, _, deserializer in _packages:
        restored = deserializer(storage, location)
        if restored is not None:
            return restored
    raise RuntimeError(
        f"[load] don't know how to restore data location of {type(storage).__name__} (tagged with "
        f"{str(location)[:80]})\nhint: map_location='cpu', or torch.serialization.register_package"
    )


def _kind(storage: Any) -> str:
    return str(storage.device.type)


def _restore_cpu(storage: Any, location: str) -> Any:
    return storage if location == "cpu" else None


def _restore_meta(storage: Any, location: str) -> Any:
    if location != "meta":
        return None
    if _kind(storage) == "meta":
        return storage
    return _core.UntypedStorage(storage.nbytes(), device="meta")


def _tagger(kind: str) -> Tagger:
    return lambda storage: kind if _kind(storage) == kind else None


def _tag_device(storage: Any) -> str | None:
    device = storage.device
    return str(device) if has_own_memory(device) else None


def _restore_device(storage: Any, location: str) -> Any:
    try:
        device = _core.device(location)
    except RuntimeError:  # no device: another package may know the location
        return None
    if not has_own_memory(device):
        return None
    return _core.UntypedStorage(storage.nbytes(), device=device).fill_bytes(storage)


def _absent(kind: str, module: str) -> Deserializer:
    def restore(storage: Any, location: str) -> Any:
        del storage
        if not str(location).startswith(kind):
            return None
        raise RuntimeError(
            f"[load] Attempting to deserialize object on a {kind.upper()} device but "
            f"{module}.is_available() is False\nhint: If you are running on a CPU-only machine, "
            "please use torch.load with map_location=torch.device('cpu') to map your storages to "
            "the CPU."
        )

    return restore


register_package(10, _tagger("cpu"), _restore_cpu)
register_package(20, lambda storage: None, _absent("cuda", "torch.cuda"))
register_package(21, lambda storage: None, _absent("mps", "torch.backends.mps"))
register_package(22, _tagger("meta"), _restore_meta)
register_package(23, _tag_device, _restore_device)
register_package(24, lambda storage: None, _absent("hpu", "torch.hpu"))
register_package(25, lambda storage: None, _absent("xpu", "torch.xpu"))


def _refuse_device(location: Any, kind: str) -> int:
    _absent(kind, f"torch.{kind}")(None, kind)
    return 0


def validate_cuda_device(location: Any) -> int:
    """The index of a CUDA device, which is absent.

    Raises:
        RuntimeError: always.
    """
    return _refuse_device(location, "cuda")


def validate_hpu_device(location: Any) -> int:
    """The index of a Gaudi device, which is absent.

    Raises:
        RuntimeError: always.
    """
    return _refuse_device(location, "hpu")


def restorer(map_location: Any) -> Deserializer:
    """Returns the function that restores each storage: (storage, location) to the restored storage.

    Raises:
        TypeError: no `map_location`.
    """
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda storage, location: default_restore_location(
            storage, str(map_location.get(location, location))
        )
    if isinstance(map_location, (str, bytes)):
        target = map_location.decode("ascii") if isinstance(map_location, bytes) else map_location
        return lambda storage, location: default_restore_location(storage, target)
    if isinstance(map_location, _core.device):
        name = str(map_location)
        name = map_location.type if map_location.type in ("cpu", "meta") else name
        return lambda storage, location: default_restore_location(storage, name)
    if not callable(map_location):
        raise TypeError(f"[load] map_location is {type(map_location).__name__}\nhint: {_HINT}")

    def restore(storage: Any, location: str) -> Any:
        result = map_location(storage, location)
        return default_restore_location(storage, location) if result is None else result

    return restore


def leads_to_meta(map_location: Any) -> bool:
    """Whether every storage is mapped to meta, so that none need be read."""
    if isinstance(map_location, _core.device):
        return map_location.type == "meta"
    return bool(map_location == "meta") if isinstance(map_location, str) else False
