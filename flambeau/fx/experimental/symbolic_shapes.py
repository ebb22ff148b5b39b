"""Queries of symbolic sizes, for sizes that are numbers.

A recorded program's sizes are symbols of the compiler here, which Python never sees: Python code
sees numbers. So a condition on sizes is always known, nothing is guarded, and a value has no free
symbols. Functions that need symbols in Python raise NotImplementedError.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import flambeau as torch
from flambeau.nested.ragged import SymInt

__all__ = [
    "CURRENT_NODE_KEY",
    "SHAPEENV_EVENT_KEY",
    "ShapeEnv",
    "StatefulSymbolicContext",
    "StatelessSymbolicContext",
    "SubclassSymbolicContext",
    "SymIntSymbolicContext",
    "SymbolicContext",
    "check_consistent",
    "free_symbols",
    "guard_float",
    "guard_int",
    "guard_or_false",
    "guard_or_true",
    "guard_scalar",
    "guard_size_oblivious",
    "guarding_hint_or_throw",
    "has_free_symbols",
    "has_free_unbacked_symbols",
    "has_static_value",
    "has_symbolic_sizes_strides",
    "is_accessor_node",
    "is_concrete_bool",
    "is_concrete_float",
    "is_concrete_int",
    "is_nested_int",
    "optimization_hint",
    "statically_known_false",
    "statically_known_true",
    "sym_and",
    "sym_eq",
    "sym_or",
]

SHAPEENV_EVENT_KEY = "shapeenv_event"
CURRENT_NODE_KEY = "current_node"

_Number = TypeVar("_Number", int, float, bool)


class GuardOnDataDependentSymNode(RuntimeError):
    """A condition depends on data. PyTorch raises it while tracing; nothing here does."""

    def __init__(self, cond: Any = None, *args: Any) -> None:
        super().__init__(*args)
        self.cond = cond


class PendingUnbackedSymbolNotFound(RuntimeError):
    """A size that depends on data was not returned. Nothing here raises it."""


class ConstraintViolationError(RuntimeError):
    """A program needs a size that was said to vary to be one number."""


class DimDynamic(enum.Enum):
    """Whether a size varies: `torch.compile` decides by itself here."""

    DYNAMIC = 0
    DUCK = 1
    STATIC = 2
    SIZE_LIKE_UNBACKED = 3
    INFER_STRIDE = 4
    OBLIVIOUS_SIZE = 5


@dataclass(frozen=True)
class Constraint:
    """A requirement on a size.

    Attributes:
        warn_only: whether a violation only warns.
    """

    warn_only: bool


@dataclass(frozen=True)
class StrictMinMaxConstraint(Constraint):
    """A size is in a range and varies.

    Attributes:
        vr: the range.
    """

    vr: Any = None

    def render(self, source: Any) -> str:
        """A line about it."""
        return f"{getattr(self.vr, 'lower', '?')} <= {source} <= {getattr(self.vr, 'upper', '?')}"


@dataclass(frozen=True)
class RelaxedUnspecConstraint(Constraint):
    """A size varies."""

    def render(self, source: Any) -> str:
        """A line about it."""
        return f"RelaxedUnspecConstraint({source})"


@dataclass(frozen=True)
class SymbolicContext:
    """How the sizes of an input are treated."""


@dataclass(frozen=True)
class SymIntSymbolicContext(SymbolicContext):
    """How a number is treated.

    Attributes:
        constraint: the condition that it must satisfy.
    """

    constraint: Any = None


@dataclass(frozen=True)
class StatelessSymbolicContext(SymbolicContext):
    """How the sizes of a tensor are treated.

    Attributes:
        dynamic_sizes: for each dimension whether it varies.
        dynamic_strides: likewise of strides.
        constraint_sizes: what each has to be.
        constraint_strides: likewise of strides.
        view_base_context: of the tensor it is a view of.
    """

    dynamic_sizes: Sequence[DimDynamic] = ()
    dynamic_strides: Sequence[DimDynamic] = ()
    constraint_sizes: Sequence[Any] = ()
    constraint_strides: Sequence[Any] = ()
    view_base_context: SymbolicContext | None = None


@dataclass(frozen=True)
class StatefulSymbolicContext(StatelessSymbolicContext):
    """The same for a tensor of a known source.

    Attributes:
        tensor_source: where it comes from.
    """

    tensor_source: Any = None


@dataclass(frozen=True)
class SubclassSymbolicContext(StatefulSymbolicContext):
    """The same for a tensor of several inner ones.

    Attributes:
        inner_contexts: of the inner tensors.
    """

    inner_contexts: dict[str, SymbolicContext] = field(default_factory=dict)


@dataclass(frozen=True)
class DivideByKey:
    """A step of a path to a size: a quotient.

    Attributes:
        divisor: by what.
    """

    divisor: int

    def __str__(self) -> str:
        return f".__floordiv__({self.divisor})"

    def get(self, o: int) -> int:
        """The quotient."""
        return o // self.divisor


@dataclass(frozen=True)
class ConvertIntKey:
    """A step of a path to a size: a condition as a number."""

    def __str__(self) -> str:
        return ".cast_symbool_to_symint_guardless()"

    def get(self, b: bool) -> int:
        """1 or 0."""
        return int(b)


def _refuse(op: str) -> NoReturn:
    raise NotImplementedError(
        f"[{op}] sizes are numbers here, there is no symbol to work with\n"
        "hint: torch.compile(function, dynamic=True) compiles for sizes that vary"
    )


class ShapeEnv:
    """The environment of symbolic sizes: empty, since Python sees numbers.

    Args:
        settings: PyTorch's, which are stored.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.guards: list[Any] = []
        self.var_to_val: dict[Any, Any] = {}
        self.var_to_range: dict[Any, Any] = {}
        self.deferred_runtime_asserts: dict[Any, Any] = {}
        self.replacements: dict[Any, Any] = {}
        self.frozen = False

    def create_symbol(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: there are no symbols."""
        _refuse("ShapeEnv.create_symbol")

    def create_unbacked_symint(self) -> NoReturn:
        """Refused: there are no symbols."""
        _refuse("ShapeEnv.create_unbacked_symint")

    def produce_guards(self, *args: Any, **kwargs: Any) -> list[str]:
        """The guards: none."""
        return []

    def format_guards(self, verbose: bool = False) -> str:
        """The guards as text: none."""
        return ""

    def freeze(self) -> None:
        """Ends the collection of guards."""
        self.frozen = True


# ------------------------------------------------------------------------------ questions
def is_concrete_int(a: Any) -> bool:
    """Whether a size is a number: always, except ragged sizes of nested tensors.

    Args:
        a: a size.
    """
    if not isinstance(a, (int, SymInt)):
        raise AssertionError(f"Expected SymInt or int, got {type(a)}")
    return isinstance(a, int)


def is_concrete_float(a: Any) -> bool:
    """Whether a float is a number: always."""
    if not isinstance(a, float):
        raise AssertionError(f"Expected SymFloat or float, got {type(a)}")
    return True


def is_concrete_bool(a: Any) -> bool:
    """Whether a condition is known: always."""
    if not isinstance(a, bool):
        raise AssertionError(f"Expected SymBool or bool, got {type(a)}")
    return True


def is_nested_int(s: Any) -> bool:
    """Whether a size is the ragged one of a nested tensor."""
    return isinstance(s, SymInt)


def has_static_value(a: Any) -> bool:
    """Whether a value is known."""
    return not isinstance(a, SymInt)


def guard_size_oblivious(expr: Any) -> bool:
    """A condition on sizes.

    Example:
        >>> from torch.fx.experimental.symbolic_shapes import guard_size_oblivious
        >>> guard_size_oblivious(torch.ones(2).shape[0] == 2)
        True
    """
    return bool(expr)


def guard_or_false(a: Any) -> bool:
    """A condition; PyTorch gives False where it is not known."""
    return bool(a)


def guard_or_true(a: Any) -> bool:
    """A condition; PyTorch gives True where it is not known."""
    return bool(a)


def statically_known_true(x: Any) -> bool:
    """Whether a condition surely holds."""
    return bool(x)


def statically_known_false(x: Any) -> bool:
    """Whether a condition surely does not hold."""
    return not x


def guard_int(a: Any) -> int:
    """A size as a number."""
    if isinstance(a, SymInt):
        _refuse("guard_int")
    if not isinstance(a, int):
        raise AssertionError(f"Expected int, got {type(a)}")
    return a


def guard_float(a: Any) -> float:
    """A float as a number."""
    if not isinstance(a, float):
        raise AssertionError(f"Expected float, got {type(a)}")
    return a


def guard_scalar(a: Any) -> bool | int | float:
    """A number, a float or a condition."""
    if isinstance(a, (bool, int, float)):
        return a
    raise AssertionError(f"unrecognized scalar {a}")


def optimization_hint(a: Any, fallback: Any = None) -> Any:
    """A size to choose an implementation by: the size itself."""
    return fallback if isinstance(a, SymInt) else a


def guarding_hint_or_throw(a: Any) -> Any:
    """A size to choose an implementation by, which is guarded: the size itself."""
    return guard_scalar(a)


def size_hint(a: Any, *, allow_none: bool = False) -> Any:
    """A size to choose an implementation by."""
    return a


def free_symbols(val: Any) -> set[Any]:
    """The symbols in a value: none."""
    return set()


def free_unbacked_symbols(x: Any) -> set[Any]:
    """The symbols in a value that depend on data: none."""
    return set()


def has_free_symbols(val: Any) -> bool:
    """Whether a value has symbols: never."""
    return False


def has_free_unbacked_symbols(x: Any) -> bool:
    """Whether a value has symbols that depend on data: never."""
    return False


def has_symbolic_sizes_strides(elem: torch.Tensor) -> bool:
    """Whether a tensor's sizes have symbols: only a ragged one's."""
    return any(isinstance(size, SymInt) for size in elem.shape)


def is_symbolic(val: Any) -> bool:
    """Whether a size is a symbol."""
    return isinstance(val, SymInt)


def is_accessor_node(node: torch.fx.Node) -> bool:
    """Whether a node reads a size, stride or offset of a tensor.

    Args:
        node: the node.
    """
    names = ("size", "stride", "storage_offset", "item")
    if node.op == "call_method":
        return node.target in names and isinstance(node.args[0], torch.fx.Node)
    return getattr(node.target, "__name__", "").startswith("sym_")


def check_consistent(new: Any, old: Any) -> None:
    """Raises unless two values have the same kind and sizes.

    Args:
        new: a tensor or number.
        old: another one.
    """
    if isinstance(new, torch.Tensor):
        torch._check(isinstance(old, torch.Tensor))
        torch._check(new.dim() == old.dim(), lambda: f"{old.shape} != {new.shape} (old != new)")
        for before, after in zip(old.shape, new.shape, strict=True):
            torch._check(before == after, lambda: f"{old.shape} != {new.shape} (old != new)")
    elif isinstance(new, (int, float)):
        torch._check(old == new, lambda: f"{old} != {new} (old != new)")


def _all(values: Iterable[Any]) -> bool:
    return all(bool(value) for value in values)


def sym_and(x: Any, *others: Any) -> bool:
    """Whether all conditions hold."""
    return _all((x, *others))


def sym_or(x: Any, *others: Any) -> bool:
    """Whether one condition holds."""
    return any(bool(value) for value in (x, *others))


def sym_eq(x: Any, y: Any) -> bool:
    """Whether two sizes, or two sequences of them, are equal.

    Example:
        >>> from torch.fx.experimental.symbolic_shapes import sym_eq
        >>> sym_eq([1, 2], torch.ones(1, 2).shape)
        True
    """
    if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
        return len(x) == len(y) and _all(map(sym_eq, x, y))
    if isinstance(x, int) and isinstance(y, int):
        return x == y
    raise AssertionError(f"unexpected sym_eq between {type(x)} {type(y)}")


def constrain_range(a: Any, *, min: Any, max: Any = None) -> None:  # noqa: A002
    """Checks that a size is in a range.

    Args:
        a: the size.
        min: the least value.
        max: the greatest.

    Raises:
        ValueError: it does not.
    """
    if (min is not None and a < min) or (max is not None and a > max):
        raise ValueError(f"Invalid value {a} for range [{min}:{max}]")


def constrain_unify(a: Any, b: Any) -> None:
    """Checks that two sizes are equal."""
    torch._check(a == b)


def lru_cache(maxsize: int | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`functools.lru_cache`, under the name that this module has for it."""
    return functools.lru_cache(maxsize)


def resolve_unbacked_bindings(shape_env: Any, bindings: Any) -> Any:
    """The bindings of symbols: as they are."""
    return bindings


def compute_unbacked_bindings(*args: Any, **kwargs: Any) -> None:
    """The symbols that a node makes: none."""


def rebind_unbacked(*args: Any, **kwargs: Any) -> None:
    """Gives symbols of a node their names anew: there are none."""


def is_symbol_binding_fx_node(node: torch.fx.Node) -> None:
    """The symbol that a node makes: none."""
