"""The symbols of an exported program: `Dim` objects, what the program needs of them, and messages.

A trace notes conditions on sizes as guards. Afterwards each is compared with what the program's
author said: a condition on a named size is an error that says how to change the `Dim`, one on
other sizes narrows their range or is checked at each call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from flambeau._dynamo.exc import UserError
from flambeau.export.dynamic_shapes import Dim, _DimHint, int_oo, readable
from flambeau.fx.experimental._shape_env import LARGEST, ShapeEnv
from flambeau.fx.experimental.symbolic_shapes import ConstraintViolationError
from flambeau.ir import size, size_core
from flambeau.ir.size import Size, SizeExpr
from flambeau.ir.size_program import Condition

__all__ = ["DimEnvironment", "ValueRanges"]

Value = Any  # what is said of a size


class ValueRanges(NamedTuple):
    """The values that a size may have.

    Attributes:
        lower, upper: both included.
    """

    lower: int | float
    upper: int | float

    def __repr__(self) -> str:
        return f"VR[{self.lower!r}, {self.upper!r}]"


class _Entry(NamedTuple):
    """A size of an input that was said to vary.

    Attributes:
        source: the text of where it is.
        said: the `Dim`, or the hint.
        expression: its symbol, or what it is of one; a number where it is constant.
    """

    source: str
    said: Value
    expression: Size

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.said.__name__ if isinstance(self.said, Dim) else self.source


class DimEnvironment(ShapeEnv):
    """Symbols for the sizes that are said to vary; others are numbers."""

    def __init__(self) -> None:
        super().__init__(duck_shape=False)
        self.said: dict[str, Value] = {}
        self.entries: list[_Entry] = []
        self._roots: dict[str, Size] = {}
        self._ranges: dict[str, ValueRanges] = {}

    def begin(self, trace: Value) -> None:
        """Called with the run whose symbols these are, before it starts."""

    # ---- symbols
    def create_symbol(self, val: int, source: Value, *args: Value, **options: Value) -> Size:
        """The symbol of a size that varies; another size as it is.

        Args:
            val: its value in the example.
            source: where it comes from.
            args, options: of `ShapeEnv`, without effect.
        """
        text = str(source)
        said = self.said.get(text)
        if said is None or (isinstance(said, _DimHint) and said.kind == "STATIC"):
            return val
        if isinstance(said, int):
            if said != val:
                raise ConstraintViolationError(
                    f"Static shape constraint of {said} does not match input size of {val}, for "
                    f"{text}"
                )
            return val
        if isinstance(said, _DimHint):
            expression = self._hinted(val, said)
        else:
            expression = self._of(said, val, text)
        self.entries.append(_Entry(text, said, expression))
        return expression

    def _hinted(self, val: int, hint: _DimHint) -> Size:
        least = 2 if hint.min is None else hint.min
        _check_range(val, least if val >= 2 else 0, int_oo if hint.max is None else hint.max)
        return self._symbol(val, least, int_oo if hint.max is None else hint.max)

    def create_number(self, val: int, source: str, said: Value) -> Value:
        """An integer among the inputs as a number, or as a symbol where it varies."""
        if isinstance(said, _DimHint) and said.kind != "STATIC":
            symbol = self._symbol(val, said.min or 0, said.max or int_oo, small=True)
            self.entries.append(_Entry(source, said, symbol))
        else:
            self.said[source] = said
            symbol = self.create_symbol(val, source)
        return self.create_symintnode(symbol)

    def _of(self, dim: Dim, val: int, text: str) -> Size:
        root = dim.root
        if (val - dim.offset) % dim.factor:
            shape = "shape" + text.rpartition(".size()")[2]
            raise UserError(
                f"Expected {shape} = {val} of input Tensor to be of the form {dim!r}, where "
                f"{root.__name__} is an integer\nhint: an example with such a size"
            )
        _check_range(val, dim.min, dim.max)
        value = (val - dim.offset) // dim.factor
        symbol = self._roots.get(root.__name__)
        if symbol is None:
            symbol = self._roots[root.__name__] = self._symbol(value, root.min, root.max)
        elif self._example(symbol) != value:
            raise ConstraintViolationError(
                f"{root.__name__} = {self._example(symbol)} in one input and {value} in another\n"
                "hint: examples of equal sizes, or another Dim"
            )
        return size.add(size.mul(symbol, dim.factor), dim.offset)

    def _example(self, symbol: Size) -> int:
        return symbol if isinstance(symbol, int) else self.environment.hints[symbol.name]

    def _symbol(self, val: int, least: int, most: int | float, small: bool = False) -> Size:
        if val in (0, 1) and not small:
            return val
        name = self._name("s")
        minimum = least if small else max(least, 2)
        self.environment.create_symbol(val, name, minimum=minimum)
        extent = LARGEST if most == int_oo else int(most) + 1
        self._ranges[name] = ValueRanges(least, most)
        return size.symbol(name, minimum=minimum, extent=extent)

    # ---- after the trace
    def conditions(self) -> list[Condition]:
        """The guards that no equality settles."""
        guards = [self.environment.resolve_condition(x.expr) for x in self.guards]
        return [guard for guard in guards if isinstance(guard, Condition)]

    def check(self) -> None:
        """Compares what the trace needed with what was said, and narrows ranges.

        Raises:
            UserError: a size that was said to vary is constant, related to another one, or in a
                smaller range.
        """
        report = _Report(self)
        report.add_constants()
        report.add_relations()
        report.add_guards()
        report.finish()

    def range_constraints(self) -> dict[Size, ValueRanges]:
        """The range of each size of inputs, and of each symbol in these."""
        ranges: dict[Size, ValueRanges] = {}
        for entry in self.entries:
            expression = self.resolve(entry.expression)
            if isinstance(expression, int) or not isinstance(expression, SizeExpr):
                continue
            for name in sorted(size.free_symbols(expression)):
                if name in self._ranges and expression.kind != "symbol":
                    ranges[size.symbol(name)] = self._ranges[name]
            if expression.kind == "symbol":
                ranges[size.symbol(expression.name)] = self._ranges[expression.name]
            elif isinstance(entry.said, Dim):
                ranges[_plain(expression)] = ValueRanges(entry.said.min, entry.said.max)
        for name in sorted(self._unbacked - set(self._definitions), key=lambda n: int(n[1:])):
            ranges[size.symbol(name)] = self._asserted(name)
        return ranges

    def _asserted(self, name: str) -> ValueRanges:
        """The range of a number of data, by what `torch._check` says."""
        lower: int | float = -int_oo
        upper: int | float = int_oo
        for check in self.deferred_runtime_asserts.get(name, ()):
            limits = _limits(name, check.expr)
            if limits is not None:
                lower, upper = max(lower, limits.lower), min(upper, limits.upper)
        return ValueRanges(lower, upper)


def _plain(expression: SizeExpr) -> Size:
    """An expression whose symbols say nothing of their ranges, so that texts are equal keys."""
    names = size.free_symbols(expression)
    return size.substitute(expression, {name: size.symbol(name) for name in names})


def _check_range(val: int, least: int, most: int | float) -> None:
    if not (least if val not in (0, 1) else min(least, val)) <= val <= most:
        raise ConstraintViolationError(
            f"{val} not in range [{least}, {most!r}]\nhint: an example in the range of the Dim"
        )


class _Report:
    """Conditions of a trace that contradict its author.

    Args:
        env: the environment.
    """

    def __init__(self, env: DimEnvironment) -> None:
        self.env = env
        self.names: list[str] = []
        self.problems: list[str] = []
        self.fixes: list[str] = []
        self.entries = [e for e in env.entries if not _is_auto(e)]
        self.sources = dict(_sources(env.entries))
        self.named = {
            e.expression.name: e for e in reversed(env.entries)
            if isinstance(e.expression, SizeExpr) and e.expression.kind == "symbol"
            and isinstance(e.said, Dim)
        }  # fmt: skip

    def _add(self, name: str, problem: str, *fixes: str) -> None:
        if name not in self.names:
            self.names.append(name)
        if problem not in self.problems:
            self.problems.append(problem)
        self.fixes += [fix for fix in fixes if fix not in self.fixes]

    def add_constants(self) -> None:
        """Sizes that the program takes for constants."""
        for entry in self.entries:
            value = self.env.resolve(entry.expression)
            if not isinstance(value, int):
                continue
            said = entry.said
            name, fixes = entry.name, []
            if isinstance(said, Dim):
                value, name = (value - said.offset) // said.factor, said.root.__name__
                fixes = [f"{name} = {value}"]
            self._add(
                name,
                f"You marked {name} as dynamic but your code specialized it to be a constant "
                f"({value}). If you're using mark_dynamic, either remove it or use "
                "maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either "
                "Dim.STATIC or Dim.AUTO.",
                *fixes,
            )

    def add_relations(self) -> None:
        """Named sizes that are functions of others."""
        for name, entry in self.named.items():
            value = self.env.resolve(entry.expression)
            if isinstance(value, int) or value is entry.expression:
                continue
            others = [self.named[n] for n in size.free_symbols(value) if n in self.named]
            if not others:
                continue
            other = others[0]
            if value is other.expression:
                first, second = sorted((entry, other), key=self.env.entries.index)
                self._add(
                    second.name,
                    f"The values of {second.name} = {second.source} and {first.name} = "
                    f"{first.source} must always be equal.",
                    f"{second.name} = {first.name}",
                )
            else:
                texts = {n: e.name for n, e in self.named.items()}
                formula = f"{entry.name} = {_renamed(str(value), texts)}"
                self._add(
                    entry.name,
                    f"The values of {entry.name} = {entry.source} must always be related to the "
                    f"values of {other.name} = {other.source} by {formula}.",
                    formula,
                )
            del name

    def add_guards(self) -> None:
        """Conditions on sizes: an error for named ones, a smaller range for others."""
        for guard in self.env.conditions():
            names = sorted(self.env.free_symbols(guard))
            if len(names) == 1:
                self._add_single(names[0], guard)
                continue
            entry = next((self.named[n] for n in names if n in self.named), None)
            if entry is not None:
                self._add_general(entry, guard)

    def _add_single(self, name: str, guard: Condition) -> None:
        entry = self.named.get(name)
        limits = _limits(name, guard)
        before = self.env._ranges.get(name)
        if limits is None or before is None:
            if entry is not None:
                self._add_general(entry, guard)
            return
        after = ValueRanges(max(limits.lower, before.lower), min(limits.upper, before.upper))
        if after == before:
            return
        if entry is None:
            self.env._ranges[name] = after
            return
        upper = "IntInfinity()" if after.upper == int_oo else after.upper
        self._add(
            entry.name,
            f"Not all values of {entry.name} = {entry.source} in the specified range satisfy the "
            f"generated guard {after.lower} <= {entry.source} and {entry.source} <= {upper}",
            f"{entry.name} = {readable(entry.name, after.lower, after.upper)}",
        )

    def _add_general(self, entry: _Entry, guard: Condition) -> None:
        fixes: list[str] = []
        divisor = _divisor(guard)
        if divisor is not None:
            name, factor = entry.name, divisor[0]
            least, most = self.env._ranges[entry.expression.name]
            upper = "oo" if most == int_oo else most // factor
            limits = f"min={max(-(-least // factor), 1)}, max={upper}"
            fixes = [f"_{name} = Dim('_{name}', {limits})", f"{name} = {factor}*_{name}"]
        self._add(
            entry.name,
            f"Not all values of {entry.name} = {entry.source} in the specified range satisfy the "
            f"generated guard {shown(guard, self.sources)}.",
            *fixes,
        )

    def finish(self) -> None:
        """Raises if there are problems."""
        if not self.problems:
            return
        lines = [
            f"Constraints violated ({', '.join(self.names)})! For more information, run with "
            'TORCH_LOGS="+dynamic".',
            *[f"  - {problem}" for problem in self.problems],
        ]
        if self.fixes:
            lines += ["Suggested fixes:", *[f"  {fix}" for fix in self.fixes]]
        raise UserError("\n".join(lines))


def _is_auto(entry: _Entry) -> bool:
    return isinstance(entry.said, _DimHint) and entry.said.kind == "AUTO"


def _sources(entries: Iterable[_Entry]) -> Iterator[tuple[str, str]]:
    """The texts of symbols, the first source of each last."""
    for entry in reversed(list(entries)):
        expression = entry.expression
        if isinstance(expression, SizeExpr) and expression.kind == "symbol":
            yield expression.name, entry.source


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b[sud]\d+\b", lambda match: names.get(match[0], match[0]), text)


def _limits(name: str, guard: Condition) -> ValueRanges | None:
    """The range that a comparison of one symbol says; None: it says something else."""
    if guard.operator not in ("<", "<=") or guard.conditions:
        return None
    difference = size.sub(guard.right, guard.left)  # >= 0, or > 0
    affine = size.affine_in(difference, [name])
    if affine is None or not isinstance(affine[1], int):
        return None
    factor, constant = affine[0].get(name), affine[1] - (guard.operator == "<")
    if not isinstance(factor, int) or factor == 0:
        return None
    if factor > 0:
        return ValueRanges(-(constant // factor), int_oo)
    return ValueRanges(-int_oo, constant // -factor)


def _divisor(guard: Condition) -> tuple[int, str] | None:
    """The number by which a size has to be divisible, and the text of the size."""
    if guard.operator != "==" or guard.conditions:
        return None
    for one, other in ((guard.left, guard.right), (guard.right, guard.left)):
        terms = size_core.terms_of(other)
        for (atom, *more), factor in ((k, v) for k, v in terms.items() if k):
            quotient = isinstance(atom, SizeExpr) and atom.kind == "floordiv" and not more
            if quotient and atom.operands == (one, factor) and len(terms) == 1:
                return factor, str(one)
            remainder = isinstance(atom, SizeExpr) and atom.kind == "mod" and not more
            if remainder and one == 0 and len(terms) == 1 and isinstance(atom.operands[1], int):
                return atom.operands[1], str(atom.operands[0])
    return None


def shown(guard: Condition, names: dict[str, str]) -> str:
    """The text of a condition.

    Args:
        guard: the condition.
        names: texts of symbols.
    """
    divisor = _divisor(guard)
    if divisor is not None:
        return _renamed(f"({divisor[1]} % {divisor[0]}) == 0", names)
    return _renamed(str(guard), names)
