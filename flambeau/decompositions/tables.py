"""Decompositions of operators, made from their definitions: tables for `make_fx` and its like.

An operator that is composed of others decomposes into their calls. One that has a program
decomposes into the calls that a dialect writes for it. An inner operator of PyTorch's that is
computed by public ones decomposes into their programs; a gradient among them is the program that
their derivation gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flambeau import _core
from flambeau.autograd.transforms.programs import program_of
from flambeau.core import install
from flambeau.decompositions import inner
from flambeau.decompositions.core_dialect import Core
from flambeau.decompositions.emission import Dialect, NotWrittenError, Primitives
from flambeau.decompositions.primitive_operators import packet
from flambeau.decompositions.programs import program_of_call
from flambeau.decompositions.tags import is_core, is_core_name
from flambeau.ir.lock import late
from flambeau.language.definition import REGISTRY
from flambeau.ops import aten
from flambeau.runtime.symbolic import has_symbols

Value = Any  # an argument or a result of an operator

__all__ = [
    "PENDING", "Decomposition", "Table", "core_table", "hidden_decomposition", "overloads",
    "pending", "primitive_table",
]  # fmt: skip

Overload = aten.Overload


_SAME = ("detach", "lift_fresh")  # operators that return another tensor of the same memory

_EMPTY = ("empty", "empty_like", "new_empty")  # operators whose results nobody wrote


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

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        """The operator's results; NotImplemented: it has no decomposition for these arguments."""
        targets = aten.targets(self.overload, kwargs, native=True) if kwargs else None
        results = self._results(args, kwargs)
        if targets is None or results is NotImplemented:
            return results
        return aten.into(targets, results)

    def _results(self, args: Value, kwargs: Value) -> Value:
        function = self.overload._function
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
        if program is None or not self.dialect.fits(program):
            return NotImplemented
        try:
            return self.dialect(program).run()
        except NotWrittenError:
            return NotImplemented

    def _composed(self, op: Value, args: Value, kwargs: Value) -> Value:
        dispatch = late("flambeau.utils._python_dispatch")
        number, values, out = dispatch.bound(op, args, kwargs)
        if out is not None:
            return NotImplemented
        return dispatch._composed(program_of(op, number), values)

    def _inner(self, operator: inner.Inner, args: Value, kwargs: Value) -> Value:
        if operator.mutates:
            return NotImplemented
        modes = late("flambeau.utils._python_dispatch")._modes
        _, values, _ = operator.bind(args, kwargs)
        if self.__name__ in _EMPTY:
            return self._empty(operator, values)
        before, modes.by_programs = modes.by_programs, self.dialect
        try:
            return operator.run(*values)
        except NotWrittenError:
            return NotImplemented
        finally:
            modes.by_programs = before

    def _empty(self, operator: inner.Inner, values: Value) -> Value:
        if any(has_symbols(x) for x in values if isinstance(x, list | tuple)):
            return NotImplemented  # a size that varies is in no program
        likes = values[:1] if self.__name__ == "empty_like" else []
        if any(x.__dict__.get("geometry") is not None for x in likes):
            return NotImplemented
        dispatch = late("flambeau.utils._python_dispatch")
        with dispatch._disable_current_modes(), late("flambeau._subclasses.fake_calls").below():
            model = operator.run(*values)
        operands = [x for x in values if isinstance(x, _core.Tensor)]
        device = operands[0].device if operands else model.device
        return self.dialect.empty(tuple(model.shape), model.stride(), model.dtype, device)


class Table(dict[Overload, Decomposition]):
    """Decompositions by overload.

    Its keys are those of PyTorch's table among the overloads that have a decomposition here.
    Graphs find the other ones by `get`, as they would stay graphs of operators of this package.

    Attributes:
        dialect: what they are written in.
    """

    def __init__(self, dialect: type[Dialect], chosen: Iterable[Overload]) -> None:
        listed, core = late("flambeau.library.aten_schemas"), dialect is Core
        every = {each: Decomposition(each, dialect) for each in (*chosen, *_listed(core))}
        entries = {each: listed.entry(*_full_name(each)) for each in every}
        shown = {each for each, e in entries.items() if e is not None and e.is_decomposed(core)}
        super().__init__({each: every[each] for each in every if each in shown})
        self.dialect = dialect
        self._others = {
            each: every[each]
            for each, entry in entries.items()
            if each not in shown and (entry is None or not entry.is_out)
        }

    def get(self, key: Value, default: Value = None) -> Value:
        """The decomposition of an overload, or *default*.

        Operators with several signatures may be called by overloads that their list leaves out.
        """
        decomposition = super().get(key) or self._others.get(key)
        if decomposition is not None or not isinstance(key, Overload):
            return default if decomposition is None else decomposition
        names = _names_of(key.overloadpacket)
        if key._overloadname in names:
            return default
        listed = (getattr(key.overloadpacket, name) for name in names)
        return Decomposition(key, self.dialect) if any(x in self for x in listed) else default


def _listed(core: bool) -> Iterator[Overload]:
    """Overloads that PyTorch's table has and that are computed here, but core ATen itself."""
    listed = late("flambeau.library.aten_schemas")
    for name in listed.names():
        entries = [e for e in listed.entries(name).values() if e.is_decomposed(core)]
        packet = aten.__getattr__(name) if entries else None
        if packet is not None and not aten.is_absent(packet):
            every = [getattr(packet, entry.overload) for entry in entries]
            yield from (each for each in every if not core or _outside_core(each))


def _full_name(overload: Overload) -> tuple[str, str]:
    return overload.overloadpacket.__name__, overload._overloadname


def _names_of(operator: aten.Packet) -> list[str]:
    """Overloads of an operator but those that only TorchScript's interpreter has."""
    entries = late("flambeau.library.aten_schemas").entries(operator.__name__)
    names = [name for name, entry in entries.items() if not entry.scripted]
    return list(dict.fromkeys([*operator._signatures(), *names]))


def hidden_decomposition(overload: Overload, table: Value) -> Decomposition | None:
    """The decomposition of an operator that the inner library does not have by its name.

    A graph could not call it. Core ATen comes first, unless a table or a decomposition that runs
    has a dialect.

    Args:
        overload: what is called.
        table: of the graph.
    """
    operator = overload.overloadpacket
    if overload.namespace != "aten" or not isinstance(operator._function, _core.Op):
        return None
    if aten.is_named(operator):
        return None
    running = late("flambeau.utils._python_dispatch")._modes.by_programs
    dialect: Value = running or getattr(table, "dialect", None)
    alone = running is not None or dialect is Primitives
    return _Hidden(overload, (dialect,) if alone else (Core, Primitives))


# Views whose elements are conjugates or negatives: the caller of the operator marks its result.
PENDING = {"_conj_alias": "conj", "_neg_alias": "neg_view"}


def pending(overload: Overload, table: Value) -> Overload:
    """The operator that returns a marked view, for graphs.

    Args:
        overload: the one whose caller marks its result.
        table: of the graph.
    """
    name = PENDING[overload.overloadpacket.__name__]
    if getattr(table, "dialect", None) is Primitives:
        return packet(name).default
    return aten.__getattr__(f"_{name}").default


class _Hidden(Decomposition):
    """A decomposition without which a graph is wrong."""

    def __init__(self, overload: Overload, dialects: tuple[type[Dialect], ...]) -> None:
        super().__init__(overload, dialects[0])
        self.dialects = dialects

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        """The operator's results, by the first dialect that can write them."""
        for dialect in self.dialects:
            self.dialect = dialect
            result = super().__call__(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if late("flambeau.utils._python_dispatch")._modes.by_programs is not None:
            raise NotWrittenError
        return NotImplemented


# ------------------------------------------------------------------------------ tables
def _names() -> Iterator[str]:
    """Names of operators of the inner library."""
    for definition in REGISTRY.values():
        if not all(overload.options.host for overload in definition.overloads):
            yield aten.inner_name(definition)
            yield from definition.options.aliases
    yield from install.INPLACE
    yield from inner.TABLE
    yield from late("flambeau.decompositions.listed").operators()


def overloads() -> Iterator[Overload]:
    """Overloads of `torch.ops.aten` that have a definition."""
    for name in dict.fromkeys(_names()):
        try:
            packet = aten.__getattr__(name)
        except AttributeError:
            continue
        for overload in _names_of(packet):
            yield getattr(packet, overload)


def _writes(overload: Overload) -> bool:
    name = overload.overloadpacket.__name__
    return name.endswith("_") and not name.endswith("__")


def primitive_table() -> Table:
    """Decompositions of all operators, to primitives."""
    return Table(Primitives, overloads())


def _outside_core(overload: Overload) -> bool:
    """Whether core ATen has neither an overload nor, of one that writes, the operator behind it."""
    if is_core(overload):
        return False
    if not _writes(overload):
        return True
    name = overload.overloadpacket.__name__[:-1]
    return not is_core_name(f"{name}.{overload._overloadname}")


def core_table() -> Table:
    """Decompositions of operators outside core ATen, to core ATen.

    An operator in place is written by the operator's own decomposition and `copy_`.
    """
    return Table(Core, filter(_outside_core, overloads()))
