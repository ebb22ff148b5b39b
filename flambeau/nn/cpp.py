"""`torch.nn.cpp`: modules written in C++ as Python's; there are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import flambeau as torch

__all__ = ["ModuleWrapper", "OrderedDictWrapper"]


class OrderedDictWrapper:
    """An attribute of an object that is a dict, read anew at each use.

    Args:
        cpp_module: the object.
        attr: the attribute's name.
    """

    def __init__(self, cpp_module: Any, attr: str) -> None:
        self.cpp_module, self.attr = cpp_module, attr

    @property
    def cpp_dict(self) -> Any:
        """The dict."""
        return getattr(self.cpp_module, self.attr)

    def items(self) -> Any:
        """Names and values."""
        return self.cpp_dict.items()

    def keys(self) -> Any:
        """The names."""
        return self.cpp_dict.keys()

    def values(self) -> Any:
        """The values."""
        return self.cpp_dict.values()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.cpp_dict)

    def __len__(self) -> int:
        return len(self.cpp_dict)

    def __contains__(self, key: object) -> bool:
        return key in self.cpp_dict

    def __getitem__(self, key: Any) -> Any:
        return self.cpp_dict[key]


class ModuleWrapper(torch.nn.Module):
    """A module in front of an object that has `forward` and PyTorch's names of its parts.

    Args:
        cpp_module: the object.
    """

    def __init__(self, cpp_module: Any) -> None:
        super().__init__()
        self.__dict__["cpp_module"] = cpp_module
        for name in dir(cpp_module):
            if not name.startswith("_") and name not in vars(torch.nn.Module):
                self.__dict__[name] = getattr(cpp_module, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The object's `forward`."""
        return self.cpp_module.forward(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.cpp_module)
