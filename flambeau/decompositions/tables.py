"""Decompositions of operators, made from their definitions: tables for `make_fx` and its like.

An operator that is composed of others decomposes into their calls. One that has a program
decomposes into the calls that a dialect writes for it. An inner operator of PyTorch's that is
computed by public ones decomposes into their programs; a gradient among them is the program that
their derivation gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau import _core
from flambeau.autograd.transforms.programs import program_of
from flambeau.core import install
from flambeau.decompositions import inner
from flambeau.decompositions.core_dialect import Core
from flambeau.decompositions.emission import Dialect, Primitives
from flambeau.decompositions.programs import program_of_call
from flambeau.decompositions.tags import is_core, is_core_name
from flambeau.ir.lock import late
from flambeau.ir.node import topological
from flambeau.language.definition import REGISTRY
from flambeau.ops import aten

__all__ = ["Decomposition", "core_table", "hidden_decomposition", "overloads", "primitive_table"]

Overload = aten.Overload


_SAME = ("detach", "lift_fresh")  # operators that return another tensor of the same memory


class _NotWrittenError(Exception):
    """A program that an inner operator needs has no form in the dialect."""


class Decomposition:
    """The decomposition of one overload: called with its arguments, it calls other operators.

    Args:
        overload: of `torch.ops.aten`.
        dialect: what programs are written in.
    """

    def __init__(self, overload: Overload, dialect: type[Dialect]) -> None:
        self.overload, self.dialect = overload, dialect
        self.__name__ = overload.overloadpacket.__name__

    def __repr__(self) -> str:
        return f"<decomposition of {self.overload} to {self.dialect.__name__.lower()}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The operator's results; NotImplemented: it has no decomposition for these arguments."""
        function = self.overload.overloadpacket._function
        if self.__name__ in _SAME:
            return self.dialect.same(*args, **kwargs)
        if isinstance(function, inner.Inner):
            public = REGISTRY[self.__name__].native if function.shared else None
            if not isinstance(public, _core.Op):
                return self._inner(function, args, kwargs)
            function = public
        if not isinstance(function, _core.Op):
            return function(*args, **kwargs)
        composed = self._composed(function, args, kwargs)
        if composed is not NotImplemented:
            return composed
        program = program_of_call(function, args, kwargs)
        if program is None:
            return NotImplemented
        nodes = topological([r.node for r in program.results if r is not None])
        if any(not self.dialect.writes(current) for current in nodes):
            return NotImplemented
        return self.dialect(program).run()

    def _composed(self, op: Any, args: Any, kwargs: Any) -> Any:
        dispatch = late("flambeau.utils._python_dispatch")
        number, values, out = op.bind(args, kwargs)
        if out is not None:
            return NotImplemented
        return dispatch._composed(program_of(op, number), values)

    def _inner(self, operator: inner.Inner, args: Any, kwargs: Any) -> Any:
        if operator.mutates:
            return NotImplemented
        modes = late("flambeau.utils._python_dispatch")._modes
        _, values, _ = operator.bind(args, kwargs)
        before, modes.by_programs = modes.by_programs, self.dialect
        try:
            return operator.run(*values)
        except _NotWrittenError:
            return NotImplemented
        finally:
            modes.by_programs = before


def hidden_decomposition(overload: Overload) -> Callable[..., Any] | None:
    """The decomposition of an operator that only a decomposition called.

    Its name in the inner library is another operator's, so it must not stay in a graph.

    Args:
        overload: what is called.
    """
    dialect = late("flambeau.utils._python_dispatch")._modes.by_programs
    if dialect is None or overload.namespace != "aten":
        return None
    packet = overload.overloadpacket
    if aten._packets.get(packet.__name__) is packet:
        return None
    decomposition = Decomposition(overload, dialect)

    def run(*args: Any, **kwargs: Any) -> Any:
        result = decomposition(*args, **kwargs)
        if result is NotImplemented:
            raise _NotWrittenError
        return result

    return run


# ------------------------------------------------------------------------------ tables
def _names() -> Iterator[str]:
    """Names of operators of the inner library."""
    for definition in REGISTRY.values():
        if not all(overload.options.host for overload in definition.overloads):
            yield aten.inner_name(definition)
            yield from definition.options.aliases
    yield from install.INPLACE
    yield from inner.TABLE


def overloads() -> Iterator[Overload]:
    """Overloads of `torch.ops.aten` that have a definition."""
    for name in dict.fromkeys(_names()):
        try:
            packet = aten.__getattr__(name)
        except AttributeError:
            continue
        for overload in packet.overloads():
            yield getattr(packet, overload)


def _writes(overload: Overload) -> bool:
    name = overload.overloadpacket.__name__
    return name.endswith("_") and not name.endswith("__")


def primitive_table() -> dict[Overload, Decomposition]:
    """Decompositions of all operators, to primitives."""
    return {each: Decomposition(each, Primitives) for each in overloads()}


def _outside_core(overload: Overload) -> bool:
    """Whether core ATen has neither an overload nor, of one that writes, the operator behind it."""
    if is_core(overload):
        return False
    if not _writes(overload):
        return True
    name = overload.overloadpacket.__name__[:-1]
    return not is_core_name(f"{name}.{overload._overloadname}")


def core_table() -> dict[Overload, Decomposition]:
    """Decompositions of operators outside core ATen, to core ATen.

    An operator in place is written by the operator's own decomposition and `copy_`.
    """
    return {each: Decomposition(each, Core) for each in overloads() if _outside_core(each)}
