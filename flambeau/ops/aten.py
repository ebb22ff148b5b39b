"""`ops.aten`: operators under the names of PyTorch's inner library, for programs that call them.

An operator whose only home is here says `where="ops.aten"`. All others are found by the name they
have in `torch`, `nn.functional` or as a method.
"""

from __future__ import annotations

from typing import Any

from flambeau.core import install
from flambeau.core.definition import REGISTRY

HOMES = ("ops.aten", "torch", "nn.functional", "linalg", "fft", "special")


class Packet:
    """All overloads of an operator; each overload's name gives the operator itself.

    Example:
        >>> torch.ops.aten.neg.default(torch.ones(2))
        tensor([-1., -1.])
    """

    def __init__(self, name: str, function: Any) -> None:
        self.__name__ = name
        self.__doc__ = function.__doc__
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the operator."""
        return self._function(*args, **kwargs)

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("_"):
            raise AttributeError(f"aten.{self.__name__} has no overload {overload!r}")
        return self._function

    def __repr__(self) -> str:
        return f"<flambeau.ops.aten.{self.__name__}>"


def __getattr__(name: str) -> Packet:
    """The operator of this name.

    Raises:
        AttributeError: there is none.
    """
    for home in HOMES:
        found = install.namespace(home).get(name)
        if found is not None:
            return Packet(name, found)
    if name in REGISTRY and "method" in REGISTRY[name].options.where:
        return Packet(name, REGISTRY[name].native)
    raise AttributeError(f"module 'flambeau.ops.aten' has no attribute {name!r}")
