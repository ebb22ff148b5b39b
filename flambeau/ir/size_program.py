"""Conditions on sizes, the register program the native core evaluates, and shape environments.

* A `Condition` is an interned comparison of two sizes, or `and`/`or` of conditions. The functions
  `eq`, `ne`, `lt`, `le`, `and_`, `or_`, `not_` return a plain `bool` where the answer is the same
  for all values of the symbols.
* A `Program` lowers sizes and conditions to register instructions, sharing equal parts. Register
  `k` is input `k`, and each instruction appends one register. `run` is the reference interpreter.
* A `ShapeEnvironment` holds what one trace knows of its symbols: example values (hints) and the
  guards that the trace relied on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from math import gcd
from typing import Literal, TypeAlias

from flambeau.ir import size as _size
from flambeau.ir.lock import Table
from flambeau.ir.size import Size, SizeExpr, Style
from flambeau.ir.size_core import from_terms, sorted_terms, terms_of

__all__ = [
    "Condition",
    "Instruction",
    "Opcode",
    "Program",
    "ShapeEnvironment",
    "Truth",
    "and_",
    "eq",
    "evaluate_condition",
    "ge",
    "gt",
    "le",
    "lower",
    "lt",
    "ne",
    "not_",
    "or_",
    "run",
    "stringify_condition",
    "substitute_condition",
]

Relation: TypeAlias = Literal["==", "!=", "<", "<=", "and", "or"]


class SizeOverflow(RuntimeError, OverflowError):
    """A size beyond 64 bits: a RuntimeError to users, as in PyTorch."""


class Condition:
    """An immutable, interned condition; build it with `eq`, `lt`, `and_` and the like.

    A comparison has sizes as operands, `and` and `or` have conditions. There is no `not`: `not_`
    turns a condition into its opposite.
    """

    __slots__ = ("__weakref__", "conditions", "left", "operator", "right")

    operator: Relation
    left: Size
    right: Size
    conditions: tuple[Condition, ...]

    def __bool__(self) -> bool:
        """Refuse: the truth depends on the symbols."""
        raise TypeError(
            f"[size] the truth value of a symbolic condition is undefined: {self!r}\n"
            "hint: ask ShapeEnvironment.truth, which records a guard"
        )

    def __repr__(self) -> str:
        """Return the condition in Python's notation."""
        return stringify_condition(self)

    def __copy__(self) -> Condition:
        """Return the condition itself, for it is immutable and interned."""
        return self

    def __deepcopy__(self, memo: object) -> Condition:
        """Return the condition itself, for it is immutable and interned."""
        return self

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle as the call that interns the condition again."""
        return _intern, (self.operator, self.left, self.right, self.conditions)


Truth: TypeAlias = bool | Condition

_Identity: TypeAlias = tuple[Relation, Size, Size, tuple[Condition, ...]]
_CONDITIONS: Table[_Identity, Condition] = Table()


def _intern(
    operator: Relation, left: Size, right: Size, conditions: tuple[Condition, ...] = ()
) -> Condition:
    identity = (operator, left, right, conditions)
    existing = _CONDITIONS.get(identity)
    if existing is not None:
        return existing
    node = Condition.__new__(Condition)
    node.operator, node.left, node.right, node.conditions = identity
    return _CONDITIONS.enter(identity, node)


# --------------------------------------------------------------------------------------------------
# Building conditions


def eq(a: Size, b: Size) -> Truth:
    """Return the condition `a == b`, or its value where that is known."""
    if isinstance(a, SizeExpr) and a.kind == "symbol" and a.extent is None and isinstance(b, int):
        return a.least <= b and _intern("==", a, b)  # a register: the most frequent case
    truth = _size.known_equal(a, b)
    return truth if truth is not None else _equality("==", _size.sub(a, b))


def ne(a: Size, b: Size) -> Truth:
    """Return the condition `a != b`, or its value where that is known."""
    equal = _size.known_equal(a, b)
    return not equal if equal is not None else _equality("!=", _size.sub(a, b))


def le(a: Size, b: Size) -> Truth:
    """Return the condition `a <= b`, or its value where that is known."""
    return _at_least_zero(_size.sub(b, a))


def lt(a: Size, b: Size) -> Truth:
    """Return the condition `a < b`, or its value where that is known."""
    return _at_least_zero(_size.sub(b, a) - 1)


def ge(a: Size, b: Size) -> Truth:
    """Return the condition `a >= b`, or its value where that is known."""
    return le(b, a)


def gt(a: Size, b: Size) -> Truth:
    """Return the condition `a > b`, or its value where that is known."""
    return lt(b, a)


def _equality(operator: Literal["==", "!="], difference: Size) -> Condition:
    """Make one condition of all multiples of a difference: positive terms left, others right."""
    terms = terms_of(difference)
    common = gcd(*terms.values())
    symbolic = [term for term in sorted_terms(_as_expression(difference)) if term[0]]
    if symbolic[0][1] < 0:
        common = -common
    scaled = {monomial: factor // common for monomial, factor in terms.items()}
    left = from_terms({m: c for m, c in scaled.items() if c > 0 and m})
    right = from_terms({m: -c for m, c in scaled.items() if c < 0 or not m})
    return _intern(operator, left, right)


def _as_expression(a: Size) -> SizeExpr:
    if isinstance(a, int):
        raise AssertionError("[size] a constant comparison was not folded")
    return a


def _at_least_zero(difference: Size) -> Truth:
    """Return the condition `difference >= 0` as a comparison of positive terms."""
    low, high = _size.bounds(difference)
    if low is not None and low >= 0:
        return True
    if high is not None and high < 0:
        return False
    terms = dict(_as_expression(difference).terms)
    constant = terms.pop((), 0)
    common = gcd(*terms.values())
    scaled = {monomial: factor // common for monomial, factor in terms.items()}
    constant //= common  # sum >= -constant tightens to the next multiple
    right = from_terms({monomial: factor for monomial, factor in scaled.items() if factor > 0})
    left = from_terms({monomial: -factor for monomial, factor in scaled.items() if factor < 0})
    if constant == -1:
        return _intern("<", left, right)
    if constant < 0:
        return _intern("<=", left - constant, right)
    return _intern("<=", left, right + constant)


def and_(*conditions: Truth) -> Truth:
    """Return the conjunction: True if empty."""
    return _combine("and", conditions)


def or_(*conditions: Truth) -> Truth:
    """Return the disjunction: False if empty."""
    return _combine("or", conditions)


def _combine(operator: Literal["and", "or"], conditions: Iterable[Truth]) -> Truth:
    neutral = operator == "and"
    parts: dict[Condition, None] = {}
    for condition in conditions:
        if isinstance(condition, bool):
            if condition is not neutral:
                return not neutral
        elif condition.operator == operator:
            parts |= dict.fromkeys(condition.conditions)
        else:
            parts[condition] = None
    if any(not_(part) in parts for part in parts):
        return not neutral
    if len(parts) <= 1:
        return next(iter(parts), neutral)
    return _intern(operator, 0, 0, tuple(sorted(parts, key=stringify_condition)))


def not_(condition: Truth) -> Truth:
    """Return the opposite condition."""
    if isinstance(condition, bool):
        return not condition
    if condition.operator == "==":
        return _intern("!=", condition.left, condition.right)
    if condition.operator == "!=":
        return _intern("==", condition.left, condition.right)
    if condition.operator in ("<", "<="):
        opposite = le if condition.operator == "<" else lt
        return opposite(condition.right, condition.left)
    parts = [not_(part) for part in condition.conditions]
    return or_(*parts) if condition.operator == "and" else and_(*parts)


def _comparison(operator: Relation, left: Size, right: Size) -> Truth:
    return {"==": eq, "!=": ne, "<": lt, "<=": le}[operator](left, right)


# --------------------------------------------------------------------------------------------------
# Using conditions


def evaluate_condition(condition: Truth, values: Mapping[str, int]) -> bool:
    """Return the value of a condition."""
    if isinstance(condition, bool):
        return condition
    if condition.operator == "and":
        return all(evaluate_condition(part, values) for part in condition.conditions)
    if condition.operator == "or":
        return any(evaluate_condition(part, values) for part in condition.conditions)
    left = _size.evaluate(condition.left, values)
    right = _size.evaluate(condition.right, values)
    results = {"==": left == right, "!=": left != right, "<": left < right, "<=": left <= right}
    return results[condition.operator]


def _rewrite(condition: Truth, values: Mapping[SizeExpr, Size]) -> Truth:
    if isinstance(condition, bool):
        return condition
    if condition.conditions:
        parts = [_rewrite(part, values) for part in condition.conditions]
        return and_(*parts) if condition.operator == "and" else or_(*parts)
    left, right = _resolve(condition.left, values), _resolve(condition.right, values)
    return _comparison(condition.operator, left, right)


def _resolve(a: Size, values: Mapping[SizeExpr, Size]) -> Size:
    # Replacing s1 by s0 may make s0 % 4 appear, which may have a value of its own.
    for _ in range(8):
        replaced = _size.replace_atoms(a, values)
        if replaced == a:
            break
        a = replaced
    return a


def substitute_condition(condition: Truth, values: Mapping[str, Size]) -> Truth:
    """Return a condition with symbols replaced by name."""
    if isinstance(condition, bool):
        return condition
    if condition.conditions:
        parts = [substitute_condition(part, values) for part in condition.conditions]
        return and_(*parts) if condition.operator == "and" else or_(*parts)
    left = _size.substitute(condition.left, values)
    right = _size.substitute(condition.right, values)
    return _comparison(condition.operator, left, right)


def stringify_condition(condition: Truth, style: Style = "python") -> str:
    """Return a condition as an expression in Python or C."""
    if isinstance(condition, bool):
        return str(condition) if style == "python" else str(int(condition))
    if condition.conditions:
        word = condition.operator if style == "python" else {"and": "&&", "or": "||"}
        joint = word if isinstance(word, str) else word[condition.operator]
        parts = [stringify_condition(part, style) for part in condition.conditions]
        return f" {joint} ".join(f"({part})" for part in parts)
    left, right = (_size.stringify(x, style) for x in (condition.left, condition.right))
    return f"{left} {condition.operator} {right}"


# --------------------------------------------------------------------------------------------------
# Register programs


class Opcode(IntEnum):
    """The instructions of size programs; the native core has the same numbers."""

    CONST = 0
    ADD = 1
    SUB = 2
    MUL = 3
    FLOORDIV = 4
    MOD = 5
    MIN = 6
    MAX = 7
    EQ = 8
    NE = 9
    LT = 10
    LE = 11
    AND = 12
    OR = 13
    NOT = 14


Instruction: TypeAlias = tuple[int, int, int]
_OPCODES = {
    "floordiv": Opcode.FLOORDIV,
    "mod": Opcode.MOD,
    "min": Opcode.MIN,
    "max": Opcode.MAX,
    "==": Opcode.EQ,
    "!=": Opcode.NE,
    "<": Opcode.LT,
    "<=": Opcode.LE,
    "and": Opcode.AND,
    "or": Opcode.OR,
}


class Program:
    """Instructions that compute sizes and conditions from inputs; equal parts are shared.

    Args:
        inputs: the names of the symbols in registers 0, 1, ...
    """

    def __init__(self, inputs: Sequence[str]) -> None:
        self.inputs = tuple(inputs)
        self.instructions: list[Instruction] = []
        self._inputs = {name: index for index, name in enumerate(self.inputs)}
        self._emitted: dict[Instruction, int] = {}
        self._registers: dict[Size | Condition, int] = {}

    def __len__(self) -> int:
        """Return the number of registers."""
        return len(self.inputs) + len(self.instructions)

    def packed(self) -> list[tuple[int, int, int]]:
        """The instructions as plain integers."""
        return [(int(code), int(a), int(b)) for code, a, b in self.instructions]

    def register(self, value: Size | Condition) -> int:
        """Return the register that holds a size or a condition (0 or 1), adding instructions.

        Raises:
            KeyError: if a symbol is not an input.
            OverflowError: if a constant does not fit 64 bits.
        """
        register = self._registers.get(value)
        if register is None:
            register = self._registers[value] = self._lower(value)
        return register

    def _emit(self, opcode: int, a: int, b: int = 0) -> int:
        if opcode in (Opcode.ADD, Opcode.MUL) and a > b:
            a, b = b, a
        instruction = (int(opcode), a, b)
        register = self._emitted.get(instruction)
        if register is None:
            register = self._emitted[instruction] = len(self)
            self.instructions.append(instruction)
        return register

    def _constant(self, value: int) -> int:
        if not -(1 << 63) <= value < 1 << 63:
            raise SizeOverflow(
                "[size] Storage size calculation overflowed: constant does not fit 64 bits: "
                f"{value}\nhint: no memory is that large"
            )
        return self._emit(Opcode.CONST, value)

    def _lower(self, value: Size | Condition) -> int:
        if isinstance(value, int):
            return self._constant(int(value))
        if isinstance(value, Condition):
            operands: Iterator[int] = map(self.register, value.conditions)
            if not value.conditions:
                operands = map(self.register, (value.left, value.right))
            return self._chain(_OPCODES[value.operator], operands)
        if value.kind == "symbol":
            if value.name not in self._inputs:
                raise KeyError(f"[size] {value.name} is not an input: {', '.join(self.inputs)}")
            return self._inputs[value.name]
        if value.kind == "sum":
            return self._lower_sum(value)
        return self._chain(_OPCODES[value.kind], map(self.register, value.operands))

    def _chain(self, opcode: Opcode, operands: Iterator[int]) -> int:
        result = next(operands)
        for operand in operands:
            result = self._emit(opcode, result, operand)
        return result

    def _lower_sum(self, value: SizeExpr) -> int:
        # Positive terms first: then sums of sizes need no negation and rarely a negative register.
        result: int | None = None
        for monomial, factor in sorted(sorted_terms(value), key=lambda term: term[1] < 0):
            operands = [self.register(atom) for atom in monomial]
            negate = factor < 0 and result is not None
            count = -factor if negate else factor
            if count != 1 or not operands:
                operands.append(self._constant(count))
            term = self._chain(Opcode.MUL, iter(operands))
            if result is None:
                result = term
            else:
                result = self._emit(Opcode.SUB if negate else Opcode.ADD, result, term)
        return self._constant(0) if result is None else result


def lower(
    outputs: Sequence[Size | Condition], inputs: Sequence[str]
) -> tuple[list[Instruction], list[int]]:
    """Return `(instructions, registers of the outputs)` of a program over the inputs."""
    program = Program(inputs)
    registers = [program.register(output) for output in outputs]
    return program.instructions, registers


def run(instructions: Iterable[Instruction], inputs: Sequence[int]) -> list[int]:
    """Return all registers after running a program: the reference for the native interpreter.

    Every instruction runs, whatever the conditions say.

    Raises:
        ZeroDivisionError: where a divisor is zero; the native interpreter reports failure there,
            and also where a value leaves 64 bits.
    """
    registers = list(inputs)
    for opcode, a, b in instructions:
        if opcode == Opcode.CONST:
            registers.append(a)
        elif opcode == Opcode.NOT:
            registers.append(int(not registers[a]))
        else:
            registers.append(_step(opcode, registers[a], registers[b]))
    return registers


def _step(opcode: int, x: int, y: int) -> int:
    if opcode == Opcode.FLOORDIV:
        return x // y
    if opcode == Opcode.MOD:
        return x % y
    arithmetic = (x + y, x - y, x * y)
    if opcode <= Opcode.MUL:
        return arithmetic[opcode - Opcode.ADD]
    results = (min(x, y), max(x, y), x == y, x != y, x < y, x <= y, x and y, x or y)
    return int(results[opcode - Opcode.MIN])


# --------------------------------------------------------------------------------------------------
# Shape environments


class ShapeEnvironment:
    """The symbols of one trace: hints, guards and the equalities that were required.

    A trace runs on example sizes. Where its course depends on a size, `truth` answers as the
    example does and records the condition: the result may be used again wherever `guards` hold.
    """

    def __init__(self) -> None:
        self.hints: dict[str, int] = {}
        self.guards: list[Condition] = []
        self._replacements: dict[SizeExpr, Size] = {}
        self._solved: set[Condition] = set()  # the guards that are replacements, too

    @property
    def inputs(self) -> list[str]:
        """Return the names of all symbols in the order of their creation."""
        return list(self.hints)

    @property
    def equalities(self) -> int:
        """How many sizes are replaced by others."""
        return len(self._replacements)

    @property
    def computed_equalities(self) -> int:
        """How many of these are computed: `s0//4`, say."""
        return sum(atom.kind != "symbol" for atom in self._replacements)

    def create_symbol(
        self, hint: int, name: str, *, specialise: bool = False, minimum: int = 0
    ) -> Size:
        """Return a symbol for a size whose value in the example is `hint`.

        Args:
            hint: the example's value.
            name: the symbol's name, new in this environment.
            specialise: sizes 0 and 1 become constants (with a guard), and all others are known to
                be at least 2. For callers whose key already distinguishes 0, 1 and other sizes.
            minimum: what the caller knows about the size without specialising.

        Raises:
            ValueError: if the name is taken or the hint is below the minimum.
        """
        if name in self.hints:
            raise ValueError(f"[size] symbol {name} exists already")
        if hint < minimum:
            raise ValueError(f"[size] hint of {name} is below its minimum: {hint} < {minimum}")
        self.hints[name] = hint
        if not specialise:
            return _size.symbol(name, minimum=minimum)
        if hint not in (0, 1):
            return _size.symbol(name, minimum=max(2, minimum))
        self._record(_equality("==", _size.sub(_size.symbol(name), hint)))
        return hint

    def hint(self, a: Size) -> int:
        """Return the value of a size in the example."""
        return _size.evaluate(a, self.hints)

    def resolve(self, a: Size) -> Size:
        """Return a size with the equalities found so far applied."""
        return _resolve(a, self._replacements)

    def resolve_condition(self, condition: Truth) -> Truth:
        """Return a condition with the equalities found so far applied."""
        return _rewrite(condition, self._replacements)

    def known(self, condition: Truth) -> bool | None:
        """Return the truth of a condition if it follows without a new guard, else None."""
        condition = self.resolve_condition(condition)
        if isinstance(condition, bool):
            return condition
        if condition.conditions:
            parts = [self.known(part) for part in condition.conditions]
            decisive = condition.operator == "or"
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        if self._follows(condition):
            return True
        opposite = not_(condition)
        if isinstance(opposite, Condition) and self._follows(opposite):
            return False
        return None

    def truth(self, condition: Truth) -> bool:
        """Return the truth of a condition, recording a guard where it depends on the example."""
        answer = self.known(condition)
        if answer is not None:
            return answer
        resolved = self.resolve_condition(condition)
        value = evaluate_condition(resolved, self.hints)
        holding = resolved if value else not_(resolved)
        if isinstance(holding, Condition):
            if holding.operator != "and":  # not known, as was found above
                self._record(holding)
                return value
            for part in holding.conditions:
                if self.known(part) is None:
                    self._record(part)
        return value

    def learn(self, condition: Truth) -> None:
        """Record a guard that holds and cannot follow from others: it speaks of a new symbol."""
        resolved = self.resolve_condition(condition)
        if isinstance(resolved, Condition):
            self._record(resolved)

    def specialise(self, a: Size) -> int:
        """Return the value of a size in the example, guarding that it stays the same."""
        value = self.hint(a)
        self.truth(eq(a, value))
        return value

    def _follows(self, condition: Condition) -> bool:
        # A guard about other symbols says nothing that bounds alone had not said, and a solved
        # equality nothing that is not in the replacements, which are applied already.
        names = _names(condition)
        return any(
            _implies(guard, condition)
            for guard in self.guards
            if guard not in self._solved and not names.isdisjoint(_names(guard))
        )

    def _record(self, condition: Condition) -> None:
        """Add a guard, drop those it makes superfluous, and learn from an equality."""
        names = _names(condition)
        self.guards = [
            guard
            for guard in self.guards
            if names.isdisjoint(_names(guard)) or not _implies(condition, guard)
        ]
        replacement = self._solve(condition) if condition.operator == "==" else None
        if replacement is not None:
            atom, value = replacement
            step = {atom: value}
            self._replacements = {
                key: _size.replace_atoms(old, step) for key, old in self._replacements.items()
            }
            self._replacements[atom] = value
            named = _size.free_symbols(atom)

            def rewrite(guard: Condition) -> Truth:
                return guard if named.isdisjoint(_names(guard)) else _rewrite(guard, step)

            rewritten = [rewrite(guard) for guard in self.guards]
            self.guards = list(dict.fromkeys(x for x in rewritten if isinstance(x, Condition)))
            solved = [rewrite(guard) for guard in self._solved]
            self._solved = {condition, *(x for x in solved if isinstance(x, Condition))}
        if condition not in self.guards:
            self.guards.append(condition)

    def _solve(self, condition: Condition) -> tuple[SizeExpr, Size] | None:
        """Solve an equality for one atom that occurs once and has a factor of 1 or -1."""
        difference = _size.sub(condition.left, condition.right)
        order = {name: index for index, name in enumerate(self.hints)}
        best: tuple[tuple[bool, int, int], SizeExpr, Size] | None = None
        for monomial, factor in terms_of(difference).items():
            if len(monomial) != 1 or abs(factor) != 1:
                continue
            [atom] = monomial
            others = _size.sub(atom, factor * _as_expression(difference))
            if _occurs(atom, others) or _knows_less(others, atom):
                continue
            # Prefer symbols; of those the one that knows least, and of equals the latest.
            rank = (atom.kind == "symbol", -atom.least, order.get(atom.name, -1))
            if best is None or rank > best[0]:
                best = rank, atom, others
        return None if best is None else best[1:]


def _names(condition: Condition) -> frozenset[str]:
    """The names of the symbols in a condition."""
    if condition.conditions:
        return frozenset().union(*map(_names, condition.conditions))
    return _size.free_symbols(condition.left) | _size.free_symbols(condition.right)


def _occurs(atom: SizeExpr, a: Size) -> bool:
    if isinstance(a, int):
        return False
    if a is atom:
        return True
    if a.kind == "sum":
        return any(_occurs(atom, inner) for monomial in a.terms for inner in monomial)
    return any(_occurs(atom, operand) for operand in a.operands)


def _knows_less(value: Size, atom: SizeExpr) -> bool:
    """Tell whether replacing an atom would weaken its lower bound, on which divisions rely."""
    low, needed = _size.lower_bound(value), _size.lower_bound(atom)
    return needed is not None and (low is None or low < needed)


def _slack(condition: Condition) -> Size | None:
    """Return `e` for an order condition that means `e >= 0`, else None."""
    if condition.operator == "<=":
        return _size.sub(condition.right, condition.left)
    if condition.operator == "<":
        return _size.sub(condition.right, condition.left) - 1
    return None


def _implies(premise: Condition, claim: Condition) -> bool:
    """Tell whether one condition plainly implies another; False means only that it is not plain."""
    if premise is claim:
        return True
    if claim.operator == "or":
        return any(_implies(premise, part) for part in claim.conditions)
    available, needed = _slack(premise), _slack(claim)
    if premise.operator == "==":
        available = _size.sub(premise.right, premise.left)
    if available is None:
        return False
    directions = (available, -available) if premise.operator == "==" else (available,)
    if needed is not None:
        return any(_never_negative(_size.sub(needed, e)) for e in directions)
    if claim.operator == "!=":
        gap = _size.sub(claim.left, claim.right)
        return any(
            _never_negative(_size.sub(side, e) - 1) for side in (gap, -gap) for e in directions
        )
    return False


def _never_negative(a: Size) -> bool:
    low, _ = _size.bounds(a)
    return low is not None and low >= 0
