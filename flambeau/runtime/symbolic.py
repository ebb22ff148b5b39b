"""`SymInt`, `SymFloat`, `SymBool`: numbers that depend on sizes which vary.

An integer is a size of the compiler's algebra (`ir/size`), a truth value one of its conditions.
Numbers outside of the algebra (a quotient that is no integer, a root, bits) are expressions of
their own, and symbols represent them in sizes. A number that Python needs as such (an index, a
branch) is taken from the example, and the environment notes a guard.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, Protocol

from flambeau import _core
from flambeau.ir import size, size_program
from flambeau.ir.lock import late
from flambeau.ir.size import Size, SizeExpr
from flambeau.ir.size_program import Condition, Truth

__all__ = ["Computed", "SymBool", "SymFloat", "SymInt", "SymNode", "apply", "lowered", "raised"]

Value = Any  # a number of Python or a symbolic one


class Computed(NamedTuple):
    """A number that the algebra of sizes cannot say.

    Attributes:
        function: computes it.
        operands: sizes, conditions, numbers, or others of this kind.
    """

    function: Callable[..., Value]
    operands: tuple[Value, ...]

    def __str__(self) -> str:
        name = _SIGNS.get(self.function)
        texts = [text_of(x) for x in self.operands]
        if name is not None and len(texts) == 2:
            return f"({texts[0]} {name} {texts[1]})"
        return f"{_name(self.function)}({', '.join(texts)})"


Expression = int | float | SizeExpr | Condition | Computed


class Recorder(Protocol):
    """The recorder of a graph."""

    def proxy(self, number: Value) -> Value:
        """The node of a symbolic number."""


class Environment(Protocol):
    """The symbols of a trace: `fx.experimental.symbolic_shapes.ShapeEnv`.

    Attributes:
        recorder: records arithmetic as it runs.
    """

    recorder: Recorder | None

    def value(self, expression: Expression) -> Value:
        """The value in the example; None: it depends on data."""

    def decide(self, condition: Truth) -> bool:
        """The truth of a condition, which becomes a guard where it depends on the example."""

    def guard_value(self, expression: Expression) -> Value:
        """The value in the example, guarded."""

    def symbol_of(self, computed: Computed) -> SizeExpr:
        """The symbol that represents an integer or a truth value in sizes."""

    def resolve(self, expression: Expression) -> Expression:
        """An expression with the equalities that guards say."""


class SymNode:
    """The expression behind a symbolic number, and its environment.

    Attributes:
        shape_env: the environment of its symbols.
        pytype: int, float or bool.
        origin: the function and the operands that gave the number, for graphs; None: a leaf.
    """

    def __init__(
        self,
        expression: Expression,
        shape_env: Environment,
        pytype: type,
        origin: tuple[Callable[..., Value], tuple[Value, ...]] | None = None,
    ) -> None:
        self._expression, self.shape_env, self.pytype = expression, shape_env, pytype
        self.origin = origin

    @property
    def expr(self) -> Expression:
        """The expression, with what is known of its symbols by now."""
        return self.shape_env.resolve(self._expression)

    @property
    def hint(self) -> Value:
        """The value in the example; None: it depends on data."""
        return self.shape_env.value(self._expression)

    def has_hint(self) -> bool:
        """Whether the example has a value."""
        return self.hint is not None

    def require_hint(self) -> Value:
        """The value in the example."""
        return self.hint

    def maybe_as_int(self) -> int | None:
        """The number, where it is known."""
        expression = self.expr
        return expression if isinstance(expression, int) else None

    def is_int(self) -> bool:
        """Whether the number is an integer."""
        return self.pytype is int

    def is_float(self) -> bool:
        """Whether the number is a float."""
        return self.pytype is float

    def is_bool(self) -> bool:
        """Whether the number is a truth value."""
        return self.pytype is bool

    def is_symbolic(self) -> bool:
        """Whether the number depends on symbols: always."""
        return True

    def is_nested_int(self) -> bool:
        """Whether the number is the ragged size of a nested tensor: never."""
        return False

    def guard_int(self, file: str, line: int) -> int:
        """The number in the example, guarded."""
        return int(self.shape_env.guard_value(self._expression))

    def guard_bool(self, file: str, line: int) -> bool:
        """The truth value in the example, guarded."""
        return bool(self.shape_env.guard_value(self._expression))

    def guard_float(self, file: str, line: int) -> float:
        """The float in the example, guarded."""
        return float(self.shape_env.guard_value(self._expression))

    def __str__(self) -> str:
        return text_of(self.expr)

    __repr__ = __str__


class _Symbolic:
    """Common parts of the three kinds."""

    def __init__(self, node: SymNode) -> None:
        self.node = node

    def __repr__(self) -> str:
        return str(self.node)

    def __copy__(self) -> Value:
        return self

    def __deepcopy__(self, memo: dict[int, Value]) -> Value:
        return self

    def __hash__(self) -> int:
        expression = self.node.expr
        if isinstance(expression, (int, float)):
            return hash(expression)
        raise TypeError(
            f"unhashable type: symbolic {type(self).__name__} {self}\nhint: int(size), which guards"
        )

    def _value(self) -> Value:
        return self.node.shape_env.guard_value(self.node._expression)


def _binary(function: Callable[..., Value], swapped: bool = False) -> Value:
    def method(self: Value, other: Value) -> Value:
        if isinstance(other, _core.Tensor):
            return (
                NotImplemented
                if function not in _OF_TENSORS
                else _with_tensor(function, self, other, swapped)
            )
        numbers = is_symbolic(self) and (is_symbolic(other) or isinstance(other, (int, float)))
        if not numbers:
            return NotImplemented
        return apply(function, other, self) if swapped else apply(function, self, other)

    return method


def _with_tensor(function: Value, number: Value, tensor: Value, swapped: bool) -> Value:
    """Arithmetic with a tensor, in which the number is a scalar."""
    torch = late("flambeau")
    name = _OF_TENSORS[function]
    if swapped or name in ("add", "mul"):
        return getattr(torch, name)(tensor, number)
    if name == "sub":
        return torch.rsub(tensor, number)
    if name == "div":
        return torch.mul(torch.reciprocal(tensor), number)
    return torch.pow(number, tensor) if name == "pow" else NotImplemented


def _both(function: Callable[..., Value]) -> tuple[Value, Value]:
    """The method of an operator, and the one of its second operand."""
    return _binary(function), _binary(function, True)


def _unary(function: Callable[..., Value]) -> Value:
    def method(self: Value) -> Value:
        return apply(function, self)

    return method


class _Number(_Symbolic):
    """Integers and floats."""

    __add__, __radd__ = _both(operator.add)
    __sub__, __rsub__ = _both(operator.sub)
    __mul__, __rmul__ = _both(operator.mul)
    __truediv__, __rtruediv__ = _both(operator.truediv)
    __floordiv__, __rfloordiv__ = _both(operator.floordiv)
    __mod__, __rmod__ = _both(operator.mod)
    __pow__, __rpow__ = _both(operator.pow)
    __lt__, __le__ = _binary(operator.lt), _binary(operator.le)
    __gt__, __ge__ = _binary(operator.gt), _binary(operator.ge)
    __neg__, __pos__, __abs__ = _unary(operator.neg), _unary(operator.pos), _unary(operator.abs)
    __floor__, __ceil__, __trunc__ = _unary(math.floor), _unary(math.ceil), _unary(math.trunc)

    def __eq__(self, other: object) -> Value:
        return _binary(operator.eq)(self, other)

    def __ne__(self, other: object) -> Value:
        return _binary(operator.ne)(self, other)

    __hash__ = _Symbolic.__hash__

    def __divmod__(self, other: Value) -> Value:
        return self // other, self % other

    def __rdivmod__(self, other: Value) -> Value:
        return other // self, other % self

    def __round__(self, ndigits: int | None = None) -> Value:
        return apply(round, self) if ndigits is None else apply(round, self, ndigits)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __int__(self) -> int:
        return int(self._value())

    def __float__(self) -> float:
        return float(self._value())


class SymInt(_Number):
    """An integer that depends on sizes which vary; made by tracing with symbolic sizes.

    Arithmetic gives further ones. A branch, `int(size)`, `range(size)` take the example's value,
    and the environment (`node.shape_env`) notes a guard.

    Args:
        node: what is behind it.

    Example:
        >>> from flambeau.fx.experimental.symbolic_shapes import ShapeEnv
        >>> env = ShapeEnv()
        >>> n = env.create_symintnode(env.create_symbol(6, source="n"), hint=6)
        >>> n * 2 + 1, bool(n > 4), [str(guard) for guard in env.guards]
        (2*s0 + 1, True, ['5 <= s0'])
    """

    __and__, __rand__ = _both(operator.and_)
    __or__, __ror__ = _both(operator.or_)
    __xor__, __rxor__ = _both(operator.xor)
    __lshift__, __rlshift__ = _both(operator.lshift)
    __rshift__, __rrshift__ = _both(operator.rshift)

    def __index__(self) -> int:
        return int(self._value())

    def as_integer_ratio(self) -> tuple[SymInt, int]:
        """The number as a fraction."""
        return self, 1

    def bit_length(self) -> int:
        """How many bits the number needs, guarded."""
        return int(self).bit_length()


class SymFloat(_Number):
    """A float that depends on sizes which vary.

    Args:
        node: what is behind it.

    Example:
        >>> from flambeau.fx.experimental.symbolic_shapes import ShapeEnv
        >>> env = ShapeEnv()
        >>> n = env.create_symintnode(env.create_symbol(6, source="n"), hint=6)
        >>> n / 4, float(n / 4)
        ((s0 / 4), 1.5)
    """

    def is_integer(self) -> Value:
        """Whether the float is a whole number."""
        return apply(float.is_integer, self)

    def as_integer_ratio(self) -> tuple[int, int]:
        """The number as a fraction, guarded."""
        return float(self).as_integer_ratio()


class SymBool(_Symbolic):
    """A truth value that depends on sizes which vary.

    Args:
        node: what is behind it.

    Example:
        >>> from flambeau.fx.experimental.symbolic_shapes import ShapeEnv
        >>> env = ShapeEnv()
        >>> n = env.create_symintnode(env.create_symbol(6, source="n"), hint=6)
        >>> (n > 4) & (n < 9)
        (5 <= s0) and (s0 <= 8)
    """

    __and__, __rand__ = _both(operator.and_)
    __or__, __ror__ = _both(operator.or_)

    def __eq__(self, other: object) -> Value:
        return _binary(operator.eq)(self, other)

    def __ne__(self, other: object) -> Value:
        return _binary(operator.ne)(self, other)

    __hash__ = _Symbolic.__hash__

    def __bool__(self) -> bool:
        return self.node.shape_env.decide(self.node.expr)  # type: ignore[arg-type]

    def __int__(self) -> int:
        return int(bool(self))

    def __index__(self) -> int:
        return int(bool(self))


_KINDS = {int: SymInt, float: SymFloat, bool: SymBool}
TYPES = frozenset(_KINDS.values())
_core.register_scalar_type(SymInt)


# ------------------------------------------------------------------------------ arithmetic
def apply(function: Callable[..., Value], *operands: Value) -> Value:
    """A function of numbers, at least one of which is symbolic.

    Args:
        function: of `operator`, `math`, or `torch.sym_max` and its like.
        operands: its arguments.
    """
    env = next((x.node.shape_env for x in operands if is_symbolic(x)), None)
    if env is None:
        raise TypeError(
            f"[{_name(function)}] takes symbolic numbers, got {type(operands[0]).__name__}\n"
            "hint: the ragged size of a nested tensor has no arithmetic but products"
        )
    values = [x.node.expr if is_symbolic(x) else x for x in operands]
    if not any(isinstance(x, (SizeExpr, Condition, Computed)) for x in values):
        return function(*values)
    if function is operator.mul:  # a size times one is the size
        for one, other in (operands, operands[::-1]):
            if type(one) is int and one == 1:
                return other
    result, kind = _expression(function, values, env)
    if isinstance(result, (bool, int, float)):
        return result
    number = _KINDS[kind](SymNode(result, env, kind, (function, operands)))
    if env.recorder is not None:
        env.recorder.proxy(number)
    return number


def _expression(
    function: Callable[..., Value], values: list[Value], env: Environment
) -> tuple[Value, type]:
    """The expression of a result, and its type."""
    if all(isinstance(x, (int, SizeExpr)) for x in values):
        rule = _INTEGER_RULES.get(function)
        result = None if rule is None else rule(*values)
        if result is not None:
            return result, bool if isinstance(result, (bool, Condition)) else int
    if all(isinstance(x, (bool, Condition)) for x in values) and function in _TRUTH_RULES:
        return _TRUTH_RULES[function](*values), bool
    computed = Computed(function, tuple(values))
    kind = _result_type(function, values, env)
    if kind is float:
        return computed, float
    symbol = env.symbol_of(computed)
    return (symbol, int) if kind is int else (size_program.eq(symbol, 1), bool)


def _result_type(function: Callable[..., Value], values: list[Value], env: Environment) -> type:
    examples = [env.value(x) for x in values]
    if any(x is None for x in examples):
        examples = [2 if x is None else x for x in examples]
    return type(function(*examples))


def _power(a: Size, b: Size) -> Size | None:
    return size.prod([a] * b) if isinstance(b, int) and 0 <= b <= 8 else None


def _absolute(a: Size) -> Size:
    return a if size_program.ge(a, 0) is True else size.maximum(a, size.sub(0, a))


def _shifted_left(a: Size, b: Size) -> Size | None:
    return size.mul(a, 1 << b) if isinstance(b, int) and 0 <= b < 63 else None


def _shifted_right(a: Size, b: Size) -> Size | None:
    return size.floordiv(a, 1 << b) if isinstance(b, int) and 0 <= b < 63 else None


def _divided(rule: Callable[[Size, Size], Size]) -> Callable[[Size, Size], Size | None]:
    def divide(a: Size, b: Size) -> Size | None:
        if b == 0:
            raise ZeroDivisionError("[SymInt] division by zero\nhint: compare the size with 0")
        return rule(a, b) if isinstance(b, int) or size_program.gt(b, 0) is True else None

    return divide


def _same(a: Size) -> Size:
    return a


_INTEGER_RULES: dict[Value, Callable[..., Value]] = {
    operator.add: size.add, operator.sub: size.sub, operator.mul: size.mul,
    operator.floordiv: _divided(size.floordiv), operator.mod: _divided(size.mod),
    operator.pow: _power, operator.neg: lambda a: size.sub(0, a), operator.pos: _same,
    operator.abs: _absolute, operator.lshift: _shifted_left, operator.rshift: _shifted_right,
    operator.eq: size_program.eq, operator.ne: size_program.ne, operator.lt: size_program.lt,
    operator.le: size_program.le, operator.gt: size_program.gt, operator.ge: size_program.ge,
    math.floor: _same, math.ceil: _same, math.trunc: _same, round: _same,
}  # fmt: skip


def _equal_truths(a: Truth, b: Truth) -> Truth:
    both = size_program.and_(a, b)
    return size_program.or_(both, size_program.and_(size_program.not_(a), size_program.not_(b)))


_TRUTH_RULES: dict[Value, Callable[..., Truth]] = {
    operator.and_: size_program.and_, operator.or_: size_program.or_,
    operator.not_: size_program.not_, operator.eq: _equal_truths,
    operator.ne: lambda a, b: size_program.not_(_equal_truths(a, b)),
}  # fmt: skip
_SIGNS: dict[Value, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.eq: "==",
    operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lshift: "<<",
    operator.rshift: ">>",
}  # fmt: skip
_OF_TENSORS = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div",
    operator.floordiv: "floor_divide", operator.mod: "remainder", operator.pow: "pow",
}  # fmt: skip


def rule_for(function: Callable[..., Value], integers: Value = None, truths: Value = None) -> None:
    """States what the algebra says of a function: of integers, of truth values."""
    if integers is not None:
        _INTEGER_RULES[function] = integers
    if truths is not None:
        _TRUTH_RULES[function] = truths


def _name(function: Value) -> str:
    return str(getattr(function, "__name__", function))


def text_of(expression: Expression) -> str:
    """An expression in Python's notation."""
    if isinstance(expression, SizeExpr):
        return size.stringify(expression)
    return str(expression)


def operands_of(expression: Expression) -> Iterator[Expression]:
    """An expression, and what it is computed from."""
    yield expression
    if isinstance(expression, Computed):
        for operand in expression.operands:
            yield from operands_of(operand)


# ------------------------------------------------------------------------------ arguments
class _Integer(int):
    """A symbolic integer on its way through the native core, which sees the example's value."""

    symbolic: SymInt


class _Float(float):
    """Likewise a float."""

    symbolic: SymFloat


def is_symbolic(value: object) -> bool:
    """Whether a value is a symbolic number; the ragged size of a nested tensor is none."""
    return type(value) in TYPES


def has_symbols(values: Value) -> bool:
    """Whether there are symbolic numbers among arguments."""
    for value in values:
        if type(value) in TYPES:
            return True
        if isinstance(value, (list, tuple)) and has_symbols(value):
            return True
    return False


def lowered(value: Value) -> Value:
    """Arguments in which symbolic numbers are those of the example, which remember them."""
    if type(value) is SymInt:
        integer = _Integer(_example(value))
        integer.symbolic = value
        return integer
    if isinstance(value, SymFloat):
        number = _Float(_example(value))
        number.symbolic = value
        return number
    if isinstance(value, SymBool):
        return bool(value)
    if isinstance(value, (list, tuple)) and has_symbols(value):
        return (
            [lowered(x) for x in value] if isinstance(value, list) else tuple(map(lowered, value))
        )
    if isinstance(value, slice):
        return slice(lowered(value.start), lowered(value.stop), lowered(value.step))
    if isinstance(value, dict):
        return {name: lowered(x) for name, x in value.items()}
    return value


def _example(value: _Symbolic) -> Value:
    return value.node.shape_env.value(value.node._expression, True)  # type: ignore[call-arg]


def raised(value: Value) -> Value:
    """The reverse of `lowered`."""
    if type(value) is _Integer or type(value) is _Float:
        return value.symbolic
    if isinstance(value, (list, tuple)) and any(type(x) in (_Integer, _Float) for x in value):
        return [raised(x) for x in value] if isinstance(value, list) else tuple(map(raised, value))
    return value


def refuse(name: str) -> NoReturn:
    """Raises where a number is needed that depends on data."""
    raise NotImplementedError(
        f"[{name}] the number depends on data\nhint: torch._check says what is known of it"
    )
