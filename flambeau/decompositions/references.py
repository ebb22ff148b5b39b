"""References: public operators that run as calls of primitives, for `torch._refs`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from flambeau import _core
from flambeau.core import install
from flambeau.decompositions.emission import Primitives
from flambeau.decompositions.programs import program_of_call
from flambeau.ir.lock import late
from flambeau.language.definition import REGISTRY
from flambeau.utils._pytree import tree_leaves

Value = Any  # an argument or a result of an operator

__all__ = ["Reference", "names_among", "reference"]


class Reference:
    """A public operator as primitives.

    Operands that need a gradient run the operator itself, whose derivative has one home.

    Args:
        name: of the operator.
        function: the public operator.
    """

    def __init__(self, name: str, function: Value) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = function.__doc__
        self._function = function

    def __repr__(self) -> str:
        return f"<reference of {self.__name__}>"

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        """The operator's results."""
        function = self._function
        if not isinstance(function, _core.Op) or _needs_gradient((args, kwargs)):
            return function(*args, **kwargs)
        program = program_of_call(function, args, kwargs)
        if program is None or not Primitives.fits(program):
            return function(*args, **kwargs)
        return Primitives(program).run()


def _needs_gradient(values: Value) -> bool:
    if not _core.is_grad_enabled():
        return False
    return any(isinstance(x, _core.Tensor) and x.requires_grad for x in tree_leaves(values))


@functools.cache
def _operator(name: str, homes: tuple[str, ...]) -> Value:
    """The public operator of a name, or None."""
    for home in homes:
        function = install.namespace(home).get(name)
        if function is not None:
            return function
    if "method" not in homes:
        return None
    definition = REGISTRY.get(name)
    if definition is not None and "method" in definition.options.where:
        return definition.native
    return install.INPLACE.get(name)


def names_among(names: Sequence[str], *homes: str) -> list[str]:
    """Those of PyTorch's references whose operator has a definition here.

    Args:
        names: of `torch._refs`, or of a module of it.
        homes: where the operators are public.
    """
    return [name for name in names if _operator(name, homes) is not None]


@functools.cache
def _reference(name: str, homes: tuple[str, ...]) -> Reference:
    return Reference(name, _operator(name, homes))


def reference(module: str, name: str, names: Sequence[str], *homes: str) -> Value:
    """Returns the reference of a name, or the submodule.

    Args:
        module: its name.
        name: of the attribute.
        names: of its operators.
        homes: where these are public.

    Raises:
        AttributeError: the module has nothing of this name.
    """
    if name in names:
        return _reference(name, homes)
    if module.endswith("._refs") and name in ("nn", "linalg", "fft", "special"):
        return late(f"{module}.{name}")
    shown = module.replace("flambeau", "torch", 1)
    raise AttributeError(f"module {shown!r} has no attribute {name!r}")
