"""`torch.jit.mobile`: PyTorch's modules for phones, which are not read here."""

from __future__ import annotations

from typing import Any, NoReturn

from flambeau import _core

__all__ = ["LiteScriptModule", "validate_map_location"]


class LiteScriptModule:
    """A module of PyTorch's interpreter for phones.

    Raises:
        NotImplementedError: always.
    """

    def __init__(self, cpp_module: Any = None) -> None:
        _load_for_lite_interpreter(cpp_module)


def _load_for_lite_interpreter(f: Any, map_location: Any = None) -> NoReturn:
    raise NotImplementedError(
        "[jit.mobile] programs for PyTorch's interpreter on phones are not read\n"
        "hint: torch.jit.load reads the archive that they were made from"
    )


def validate_map_location(map_location: Any = None) -> Any:
    """A device from its name.

    Raises:
        ValueError: neither None, a name, nor a device.
        RuntimeError: no name of a device.

    Example:
        >>> from flambeau.jit.mobile import validate_map_location
        >>> validate_map_location("cpu")
        device(type='cpu')
    """
    if isinstance(map_location, str):
        return _core.device(map_location)
    if map_location is not None and not isinstance(map_location, _core.device):
        raise ValueError(
            "map_location should be either None, string or torch.device, but got type: "
            f"{type(map_location)}\nhint: 'cpu'"
        )
    return map_location
