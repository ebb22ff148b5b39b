"""Symbolic sizes, and queries of them.

`make_fx(tracing_mode="symbolic")` and fake tensors with a `ShapeEnv` have symbols for sizes. Other
sizes are numbers, which answer the same queries. Inside of `torch.compile` sizes are symbols of
the compiler, which Python sees as numbers.
"""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import flambeau as torch
from flambeau.fx.experimental._shape_env import (
    GuardOnDataDependentSymNode,
    RuntimeAssert,
    ShapeEnv,
    ShapeGuard,
)
from flambeau.ir.size import SizeExpr
from flambeau.nested.ragged import RaggedInt
from flambeau.runtime.symbolic import SymBool, SymFloat, SymInt, apply
from flambeau.runtime.symbolic import is_symbolic as _is_symbolic

__all__ = [
    "CURRENT_NODE_KEY",
    "GuardOnDataDependentSymNode",
    "RuntimeAssert",
    "SHAPEENV_EVENT_KEY",
    "ShapeEnv",
    "ShapeGuard",
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


class PendingUnbackedSymbolNotFound(RuntimeError):
    """A size that data decide was not returned. Nothing here raises it."""


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


# ------------------------------------------------------------------------------ questions
def _kind(a: Any, symbolic: type, plain: type) -> bool:
    """Whether a value is a number of Python of this type, or a symbolic one whose value is known.

    Raises:
        AssertionError: it is neither.
    """
    if not isinstance(a, (plain, symbolic)):
        raise AssertionError(f"Expected {symbolic.__name__} or {plain.__name__}, got {type(a)}")
    return isinstance(a, plain) or (_is_symbolic(a) and isinstance(a.node.expr, plain))


def is_concrete_int(a: Any) -> bool:
    """Whether a size is a number, or is known to be one.

    Args:
        a: a size.

    Example:
        >>> from torch.fx.experimental.symbolic_shapes import is_concrete_int
        >>> is_concrete_int(torch.ones(2).shape[0])
        True
    """
    return _kind(a, SymInt, int)


def is_concrete_float(a: Any) -> bool:
    """Whether a float is a number, or is known to be one."""
    return _kind(a, SymFloat, float)


def is_concrete_bool(a: Any) -> bool:
    """Whether a condition is known."""
    return _kind(a, SymBool, bool)


def is_nested_int(s: Any) -> bool:
    """Whether a size is the ragged one of a nested tensor."""
    return isinstance(s, RaggedInt)


def has_static_value(a: Any) -> bool:
    """Whether a value is known."""
    return not isinstance(a, RaggedInt) and (
        not _is_symbolic(a) or isinstance(a.node.expr, (bool, int, float))
    )


def _known(a: Any) -> bool | None:
    """The truth of a condition where it needs no guard; None: it depends on symbols."""
    if not isinstance(a, SymBool):
        return bool(a)
    answer: bool | None = a.node.shape_env.known(a.node.expr)
    return answer


def _decided(a: Any, otherwise: bool) -> bool:
    """A condition, guarded; where data decide it, a choice."""
    if isinstance(a, SymBool) and _known(a) is None and not a.node.has_hint():
        return otherwise
    return bool(a)


def guard_size_oblivious(expr: Any) -> bool:
    """A condition on sizes, guarded; sizes that data decide are taken for large ones.

    Example:
        >>> from torch.fx.experimental.symbolic_shapes import guard_size_oblivious
        >>> guard_size_oblivious(torch.ones(2).shape[0] == 2)
        True
    """
    if not isinstance(expr, SymBool):
        return bool(expr)
    return bool(expr.node.shape_env.assume(expr.node.expr))


def guard_or_false(a: Any) -> bool:
    """A condition, guarded; False where data decide it."""
    return _decided(a, False)


def guard_or_true(a: Any) -> bool:
    """A condition, guarded; True where data decide it."""
    return _decided(a, True)


def statically_known_true(x: Any) -> bool:
    """Whether a condition holds for all sizes; there is no guard."""
    return _known(x) is True


def statically_known_false(x: Any) -> bool:
    """Whether a condition holds for no sizes; there is no guard."""
    return _known(x) is False


def guard_int(a: Any) -> int:
    """A size as a number, guarded."""
    if isinstance(a, RaggedInt) or not isinstance(a, (int, SymInt)):
        raise AssertionError(f"Expected int, got {type(a)}")
    return int(a)


def guard_float(a: Any) -> float:
    """A float as a number, guarded."""
    if not isinstance(a, (float, SymFloat)):
        raise AssertionError(f"Expected float, got {type(a)}")
    return float(a)


def guard_scalar(a: Any) -> bool | int | float:
    """A number, a float or a condition, guarded."""
    if isinstance(a, (bool, SymBool)):
        return bool(a)
    if isinstance(a, (int, SymInt)):
        return guard_int(a)
    if isinstance(a, (float, SymFloat)):
        return float(a)
    raise AssertionError(f"unrecognized scalar {a}")


def optimization_hint(a: Any, fallback: Any = None) -> Any:
    """A size to choose an implementation by: the example's.

    Args:
        a: the size.
        fallback: where data decide it.
    """
    if isinstance(a, RaggedInt):
        return fallback
    hint = a.node.hint if _is_symbolic(a) else a
    return fallback if hint is None else hint


def guarding_hint_or_throw(a: Any) -> Any:
    """A size to choose an implementation by, which is guarded: the size itself."""
    return guard_scalar(a)


def size_hint(a: Any, *, allow_none: bool = False) -> Any:
    """A size to choose an implementation by: the example's.

    Raises:
        GuardOnDataDependentSymNode: data decide it, unless `allow_none`.
    """
    return a.node.shape_env.size_hint(a.node.expr, allow_none=allow_none) if _is_symbolic(a) else a


def _parts(val: Any) -> list[Any]:
    """The symbolic numbers in a value."""
    if isinstance(val, torch.Tensor):
        return _parts([*val.shape, *val.stride(), val.storage_offset()])
    if isinstance(val, (list, tuple)):
        return [number for item in val for number in _parts(item)]
    return [val] if _is_symbolic(val) else []


def free_symbols(val: Any) -> set[Any]:
    """Names of the symbols in a value: of a number, a tensor's sizes, or those of a sequence."""
    return {n for x in _parts(val) for n in x.node.shape_env.free_symbols(x.node.expr)}


def free_unbacked_symbols(x: Any) -> set[Any]:
    """Names of the symbols in a value that data decide."""
    parts = _parts(x)
    names = free_symbols(x)
    return {n for n in names if any(part.node.shape_env.is_unbacked_symint(n) for part in parts)}


def has_free_symbols(val: Any) -> bool:
    """Whether a value has symbols."""
    return bool(free_symbols(val))


def has_free_unbacked_symbols(x: Any) -> bool:
    """Whether a value has symbols that data decide."""
    return bool(free_unbacked_symbols(x))


def has_symbolic_sizes_strides(elem: torch.Tensor) -> bool:
    """Whether a tensor's sizes have symbols, that of ragged ones included."""
    return any(isinstance(size, RaggedInt) for size in elem.shape) or has_free_symbols(elem)


def is_symbolic(val: Any) -> bool:
    """Whether a size is a symbol that is not known."""
    if isinstance(val, RaggedInt):
        return True
    return _is_symbolic(val) and not isinstance(val.node.expr, (bool, int, float))


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
    elif isinstance(new, (int, float)) or _is_symbolic(new):
        torch._check(old == new, lambda: f"{old} != {new} (old != new)")


def sym_and(x: Any, *others: Any) -> Any:
    """Whether all conditions hold; a symbol where that depends on symbols."""
    for other in others:
        x = (
            apply(operator.and_, x, other)
            if _is_symbolic(x) or _is_symbolic(other)
            else x and other
        )
    return x


def sym_or(x: Any, *others: Any) -> Any:
    """Whether one condition holds; a symbol where that depends on symbols."""
    for other in others:
        x = apply(operator.or_, x, other) if _is_symbolic(x) or _is_symbolic(other) else x or other
    return x


def sym_eq(x: Any, y: Any) -> Any:
    """Whether two sizes, or two sequences of them, are equal.

    Example:
        >>> from torch.fx.experimental.symbolic_shapes import sym_eq
        >>> sym_eq([1, 2], torch.ones(1, 2).shape)
        True
    """
    if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
        return len(x) == len(y) and sym_and(True, *map(sym_eq, x, y))
    if isinstance(x, (int, SymInt)) and isinstance(y, (int, SymInt)):
        return x == y
    raise AssertionError(f"unexpected sym_eq between {type(x)} {type(y)}")


def constrain_range(a: Any, *, min: Any, max: Any = None) -> None:  # noqa: A002
    """Says that a size is in a range.

    Args:
        a: the size.
        min: the least value.
        max: the greatest.

    Raises:
        ValueError: it is not.
    """
    if _is_symbolic(a):
        torch._check(min is None or a >= min)
        torch._check(max is None or a <= max)
    elif (min is not None and a < min) or (max is not None and a > max):
        raise ValueError(f"Invalid value {a} for range [{min}:{max}]")


def constrain_unify(a: Any, b: Any) -> None:
    """Says that two sizes are equal."""
    torch._check(a == b)


def lru_cache(maxsize: int | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`functools.lru_cache`, under the name that this module has for it."""
    return functools.lru_cache(maxsize)


def resolve_unbacked_bindings(shape_env: Any, bindings: Any) -> Any:
    """The bindings of symbols: as they are."""
    return bindings


def compute_unbacked_bindings(
    shape_env: Any, example_value: Any, old_example_value: Any = None, peek: bool = False
) -> dict[str, tuple[Any, ...]] | None:
    """Symbols that data decide in a value, and where in it they are.

    Args:
        shape_env: the environment; None: there are no symbols.
        example_value: a tensor or a number.
        old_example_value, peek: of PyTorch, without effect.
    """
    if shape_env is None:
        return None
    bindings: dict[str, tuple[Any, ...]] = {}
    numbers = [((), example_value)] if _is_symbolic(example_value) else []
    if isinstance(example_value, torch.Tensor):
        numbers = [(("size", d), n) for d, n in enumerate(example_value.shape) if _is_symbolic(n)]
    for path, number in numbers:
        expression = number.node.expr
        if isinstance(expression, SizeExpr) and expression.kind == "symbol":
            if shape_env.is_unbacked_symint(expression):
                bindings.setdefault(expression.name, path)
    return bindings or None


def rebind_unbacked(*args: Any, **kwargs: Any) -> None:
    """Gives symbols of a node their names anew: nodes that are recorded again have new ones."""


def is_symbol_binding_fx_node(node: torch.fx.Node) -> Any:
    """The name of the symbol that a node makes: an input, or a number that data decide; or None.

    Args:
        node: the node.
    """
    value = node.meta.get("val")
    if not _is_symbolic(value):
        return None
    expression = value.node._expression
    leaf = node.op == "placeholder" or "_local_scalar_dense" in str(node.target)
    single = isinstance(expression, SizeExpr) and expression.kind == "symbol"
    return expression.name if leaf and single else None
