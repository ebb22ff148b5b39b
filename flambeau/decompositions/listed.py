"""Inner operators whose signatures are those of the table: a definition is a name and a function.

`listed("cauchy")` defines the operator from PyTorch's schema of that name, which is read when the
operator is first called. One that PyTorch composes of others is called directly, so a dispatch
mode sees what it calls; every other is a call that modes see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau import _core
from flambeau.decompositions.inner import Inner
from flambeau.ir.lock import late
from flambeau.language.schema import KINDS, REQUIRED, Argument, Schema

if TYPE_CHECKING:
    from flambeau.library.schemas import FunctionSchema

__all__ = ["Listed", "Overloads", "Public", "listed", "operators", "public_calls"]

Value = Any  # an argument or a result of an operator

_MODULES = (
    "names values layers attention sequences nested gradients linear sparse steps quantized"
).split()
_table: dict[str, Listed | Overloads | Public] = {}
_LAZY = frozenset("schema schemas arguments overloads tensors mutates many composed".split())
_TYPES = {
    "ScalarType": "dtype", "Device": "device", "Generator": "generator", "Layout": "layout",
    "MemoryFormat": "memory_format",
}  # fmt: skip


class Listed(Inner):
    """One overload of an inner operator.

    Attributes:
        overload: its name.
        composed: whether dispatch modes see what it calls instead.
    """

    def __init__(self, name: str, overload: str, run: Callable[..., Value]) -> None:
        self.__name__, self.overload, self.run, self.op = name, overload, run, self
        self.__doc__ = run.__doc__
        self.random = self.shared = self.hosted = False

    def __getattr__(self, key: str) -> Value:
        if key not in _LAZY:
            raise AttributeError(key)
        table = late("flambeau.library.aten_schemas")
        entry = table.entry(self.__name__, self.overload)
        results = entry.short.rpartition(">")[2]
        asks = results != "()" and "Tensor" not in results
        self.composed = entry.composed or entry.scripted or asks
        self.schemas = (entry.text.removeprefix("aten::"),)
        self.schema = _own(self.__name__, table.read(entry))
        self.arguments = tuple(a.native() for a in self.schema.arguments)
        self.overloads = ((self.arguments, self.run, ()),)
        self.tensors = [i for i, a in enumerate(self.arguments) if a.kind.startswith("Tensor")]
        self.mutates = any(a.mutated for a in self.arguments)
        self.many = self.schema.returns_kind != "single"
        return self.__dict__[key]

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        """Calls the operator; `out=` and its like take the results."""
        if self.composed:
            return self.run(*self.bind(args, kwargs)[1])
        return super().__call__(*args, **kwargs)


def _own(name: str, schema: FunctionSchema) -> Schema:
    """A schema of PyTorch's as one of this package's operators."""
    arguments = [
        Argument(
            a.name,
            _kind(a.type),
            a.default_value if a.has_default_value() else REQUIRED,
            a.kwarg_only,
            False,
            a.is_write and not a.type.endswith("[]"),
        )
        for a in schema.arguments
    ]
    returns = tuple([each.name for each in schema.returns])
    several = "nothing" if not returns else "single" if len(returns) == 1 else "tuple"
    if len(returns) == 1 and schema.returns[0].type == "Tensor[]":
        several = "list"
    return Schema(name, tuple(arguments), returns, several)


def _kind(text: str) -> str:
    base = text.rstrip("?[]0123456789")
    end = text[len(base) :].translate({ord(c): None for c in "0123456789"})
    kind = _TYPES.get(base, base) + end
    return kind if kind in KINDS else "object"


class Overloads:
    """Several overloads of an inner operator under its name.

    Attributes:
        by_name: the overloads.
    """

    shared, hosted, schemas = True, False, ()
    run = None

    def __init__(self, name: str) -> None:
        self.__name__, self.__doc__ = name, None
        self.by_name: dict[str, Listed] = {}

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        """Calls the first overload that the arguments fit."""
        return self.chosen(args, kwargs)(*args, **kwargs)

    def chosen(self, args: Sequence[Value], kwargs: dict[str, Value]) -> Listed:
        """The first overload that the arguments fit; the last one if none does."""
        for operator in self.by_name.values():
            if _fits(operator, args, kwargs):
                return operator
        return next(reversed(self.by_name.values()))

    def bind(
        self, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[int, list[Value], None]:
        """As of a native op, of the overload that the arguments fit."""
        return self.chosen(args, kwargs).bind(args, kwargs)


def _fits(operator: Listed, args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    try:
        _, values, _ = operator.bind(args, kwargs)
    except TypeError:
        return False
    pairs = zip(operator.arguments, values, strict=True)
    return all(value is None or _is_of(argument.kind, value) for argument, value in pairs)


def _is_of(kind: str, value: Value) -> bool:
    if isinstance(value, (list, tuple)):
        return kind.rstrip("?").endswith("[]") or kind == "object"
    if kind in ("Tensor", "Tensor?"):
        return isinstance(value, _core.Tensor)
    return kind == "object" or not (kind.startswith("Tensor") or isinstance(value, _core.Tensor))


def operators() -> dict[str, Listed | Overloads | Public]:
    """Operators by name."""
    for module in _MODULES:
        late(f"flambeau.decompositions.listed_{module}")
    return _table


def listed(*names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Defines overloads of inner operators from their names in PyTorch: "size", "size.int".

    Args:
        names: of overloads that one function computes from the arguments in order.
    """

    def define(run: Callable[..., Value]) -> Callable[..., Value]:
        for full in names:
            name, _, overload = full.partition(".")
            operator = Listed(name, overload or "default", run)
            several = _table.get(name)
            if isinstance(several, Listed):
                first, several = several, Overloads(name)
                several.by_name[first.overload] = first
                _table[name] = several
            if isinstance(several, Overloads):
                several.by_name[operator.overload] = operator
            else:
                _table[name] = operator
        return run

    return define


def public_calls(names: str, home: Callable[[str], Callable[..., Value]]) -> None:
    """Defines operators that are public functions or methods of the same name.

    Args:
        names: of operators, with all their overloads.
        home: returns the function or method from the operator.
    """
    for name in names.split():
        _table[name] = Public(name, home)


class Public:
    """An inner operator under whose name a public function or method exists.

    Attributes:
        function: that.
    """

    shared, hosted, schemas = True, False, ()
    run = None

    def __init__(self, name: str, home: Callable[[str], Callable[..., Value]]) -> None:
        self.__name__, self.__doc__, self._home = name, None, home

    @property
    def function(self) -> Callable[..., Value]:
        """The public function."""
        return self._home(self.__name__)

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        """Calls the public function."""
        return self.function(*args, **kwargs)

    def bind(
        self, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[int, list[Value], None]:
        """As of a native op.

        Raises:
            NotImplementedError: always, because what it calls is recorded.
        """
        raise late("flambeau.library.aten_schemas").absent(self.__name__)
