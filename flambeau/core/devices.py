"""Facts about devices, from the native table (`native/device/device_runtime.h`).

Code that depends on where a tensor's elements are queries these capabilities and does not compare
names of devices: a device is added in one native file and one target module.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau import _core


class DeviceProperties(NamedTuple):
    """A device as the native table describes it.

    Attributes:
        name: the `type` of its `torch.device`.
        description: of the hardware, for people.
        memory: "host" where the process reads tensors' elements, "own" where only the device does,
            "none" where tensors have a shape alone.
        compiles: whether plans are compiled for it.
        launches: whether compiled plans run.
        devices: how many there are; 0 where an index means nothing.
    """

    name: str
    description: str
    memory: str
    compiles: bool
    launches: bool
    devices: int


class DeviceStatistics(NamedTuple):
    """Memory of a device.

    Attributes:
        allocated: bytes in use.
        peak: bytes in use at most since the start.
        allocations: how many there were.
    """

    allocated: int
    peak: int
    allocations: int


def properties(device: Any) -> DeviceProperties:
    """The properties of a device, given as a `torch.device` or its name.

    Raises:
        NotImplementedError: this build has no such device.
    """
    return DeviceProperties(*_core.device_properties(device))


def device_statistics(device: Any) -> DeviceStatistics:
    """The contents of a device's memory."""
    return DeviceStatistics(*_core.device_statistics(device))


def on_host(device: Any) -> bool:
    """Whether a device is the CPU."""
    return bool(_core.device_memory(device) == "host")


def has_memory(device: Any) -> bool:
    """Whether tensors of a device have elements that this build can reach."""
    return _core.device_memory(device) in ("host", "own")


def has_own_memory(device: Any) -> bool:
    """Whether a device's tensors have elements that the process cannot read."""
    return bool(_core.device_memory(device) == "own")


def has_data(x: Any) -> bool:
    """Whether a tensor or storage has elements. A fake tensor has those of the device it claims."""
    return bool(_core.device_memory(x.device) != "none")


def same_place(a: Any, b: Any) -> bool:
    """Whether two devices are one: an index only counts where there are several."""
    return bool(a.type == b.type and (a.index == b.index or not has_own_memory(a)))


def load_device(library: Any, symbol: str) -> str:
    """Adds the device whose table, a `DeviceRuntime`, a loaded library exports.

    Args:
        library: a `ctypes.CDLL`, which must stay loaded.
        symbol: the name of a function that returns the table's address.

    Returns:
        The device's name. Its kernels are built by the module `flambeau.compiler.target_<name>`.

    Raises:
        ValueError: the table is of another version, or its name is taken.
    """
    import ctypes

    function = getattr(library, symbol)
    function.restype = ctypes.c_void_p
    name: str = _core.register_device(function())
    return name
