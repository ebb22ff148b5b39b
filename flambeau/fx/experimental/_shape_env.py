"""`ShapeEnv`: the symbols of a trace whose sizes vary, their values in the example, and guards.

It is the compiler's `ShapeEnvironment`, which decides conditions and solves equalities, with what
Python programs see of it: sources of symbols, sizes that depend on data, texts of guards.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau import _core
from flambeau._subclasses.traced_tensor import geometry_of
from flambeau.ir import size, size_program
from flambeau.ir.failure import failure
from flambeau.ir.size import Size, SizeExpr
from flambeau.ir.size_program import Condition, ShapeEnvironment, Truth
from flambeau.runtime.symbolic import (
    Computed,
    Expression,
    Recorder,
    SymBool,
    SymFloat,
    SymInt,
    SymNode,
    is_symbolic,
    operands_of,
    text_of,
)

__all__ = ["GuardOnDataDependentSymNode", "RuntimeAssert", "ShapeEnv", "ShapeGuard"]

Value = Any  # a number of Python, or a symbolic one
LARGEST = 1 << 40  # sizes are smaller, so that sums of some need no guard
UNBACKED_EXAMPLE = 1009  # a size that depends on data: no 0, no 1, and unlike others


class GuardOnDataDependentSymNode(RuntimeError):
    """A branch depends on a number that data decide.

    Attributes:
        cond: the condition.
    """

    def __init__(self, cond: Value = None, *args: Value) -> None:
        super().__init__(*args)
        self.cond = cond


@dataclass(frozen=True)
class ShapeGuard:
    """A condition on sizes that held in the example, and on which the graph depends.

    Attributes:
        expr: the condition.
        size_oblivious: whether sizes that depend on data were taken for large ones.
    """

    expr: Value
    size_oblivious: bool = False

    def __str__(self) -> str:
        return str(self.expr)


@dataclass(frozen=True)
class RuntimeAssert:
    """A condition that `torch._check` states of numbers that depend on data.

    Attributes:
        expr: the condition.
        msg: what is raised where it does not hold.
    """

    expr: Value
    msg: str = ""
    stack: Value = field(default=None, compare=False)


class ShapeEnv:
    """The environment of symbolic sizes.

    Args:
        specialize_zero_one: whether sizes of 0 and 1 are constants.
        duck_shape: whether equal sizes of the example share a symbol.
        settings: further ones of PyTorch, which are stored.

    Attributes:
        var_to_sources: per symbol the texts of where it comes from.
        deferred_runtime_asserts: per symbol that depends on data what is said of it.

    Example:
        >>> from torch.fx.experimental.symbolic_shapes import ShapeEnv
        >>> env = ShapeEnv()
        >>> n = env.create_symintnode(env.create_symbol(6, source="n"), hint=6)
        >>> (n + 2) // 2, bool((n + 2) % 4 == 0), env.format_guards()
        (s0//2 + 1, True, ' - (s0 + 2) % 4 == 0')
    """

    def __init__(
        self, *, specialize_zero_one: bool = True, duck_shape: bool | None = None, **settings: Value
    ) -> None:
        self.settings = settings
        self.specialize_zero_one = specialize_zero_one
        self.duck_shape = duck_shape is not False
        self.environment = ShapeEnvironment()
        self.var_to_sources: dict[str, list[str]] = {}
        self.deferred_runtime_asserts: dict[str, list[RuntimeAssert]] = {}
        self.frozen = False
        self.recorder: Recorder | None = None
        self._by_value: dict[int, SizeExpr] = {}
        self._constants: list[tuple[str, int]] = []
        self._unbacked: set[str] = set()
        self._used: set[str] = set()  # symbols of data that tensors have
        self._definitions: dict[str, Computed] = {}
        self._symbols_of: dict[Computed, SizeExpr] = {}
        self._counts = {"s": 0, "u": 0, "d": 0, "f": 0}
        self._quiet = False

    # ---- symbols
    def _name(self, letter: str) -> str:
        self._counts[letter] += 1
        return f"{letter}{self._counts[letter] - 1}"

    def create_symbol(
        self,
        val: int,
        source: Value,
        dynamic_dim: Value = None,
        constraint_dim: Value = None,
        positive: bool | None = True,
        do_not_specialize_zero_one: bool = False,
        symbolic_context: Value = None,
    ) -> Size:
        """The symbol of a number; the number where that is a constant.

        Args:
            val: its value in the example.
            source: where it comes from, as a text.
            dynamic_dim: whether it varies (`DimDynamic`); by default it does.
            constraint_dim, positive, symbolic_context: of PyTorch, without effect.
            do_not_specialize_zero_one: whether 0 and 1 have symbols, too.
        """
        text, kind = _source_text(source), getattr(dynamic_dim, "name", "DUCK")
        small = val in (0, 1) and self.specialize_zero_one and not do_not_specialize_zero_one
        if kind == "STATIC" or small:
            self._constants.append((text, val))
            return val
        duck = self.duck_shape and kind != "DYNAMIC" and not do_not_specialize_zero_one
        if duck and val in self._by_value:
            symbol = self._by_value[val]
            self.var_to_sources[symbol.name].append(text)
            return symbol
        least = 2 if val >= 2 and self.specialize_zero_one and not do_not_specialize_zero_one else 0
        name = self._name("s")
        self.environment.create_symbol(val, name, minimum=min(least, val))
        created = size.symbol(name, minimum=min(least, val), extent=LARGEST)
        self.var_to_sources[name] = [text]
        if duck:
            self._by_value[val] = created
        return created

    def create_symintnode(
        self, sym: Size, *, hint: int | None = None, source: Value = None
    ) -> Value:
        """The integer of Python that a symbol is.

        Args:
            sym: of `create_symbol`, or an expression of symbols.
            hint, source: known already.
        """
        return sym if isinstance(sym, int) else SymInt(SymNode(sym, self, int))

    def create_unspecified_symint_and_symbol(
        self, value: int, source: Value, dynamic_dim: Value = None
    ) -> Value:
        """An integer that varies, of 0 and 1, too."""
        symbol = self.create_symbol(value, source, dynamic_dim, do_not_specialize_zero_one=True)
        return self.create_symintnode(symbol)

    def create_symbolic_sizes_strides_storage_offset(
        self, ex: Value, source: Value, *, symbolic_context: Value = None
    ) -> tuple[tuple[Value, ...], tuple[Value, ...], Value]:
        """Sizes, strides and the offset of a tensor.

        Strides of a tensor without gaps are products of sizes.

        Args:
            ex: the tensor.
            source: where it comes from.
            symbolic_context: `StatelessSymbolicContext`: which sizes vary.
        """
        text = _source_text(source)
        kinds = tuple(getattr(symbolic_context, "dynamic_sizes", ())) or (None,) * ex.ndim
        sizes = [
            self.create_symbol(n, f"{text}.size()[{d}]", kind)
            for d, (n, kind) in enumerate(zip(ex.shape, kinds, strict=True))
        ]
        strides = self._strides(ex, sizes, text)
        offset: Size = ex.storage_offset()
        if offset > 1:
            offset = self.create_symbol(offset, f"{text}.storage_offset()")
        wrapped = [[self.create_symintnode(x) for x in group] for group in (sizes, strides)]
        return tuple(wrapped[0]), tuple(wrapped[1]), self.create_symintnode(offset)

    def _strides(self, ex: Value, sizes: Sequence[Size], text: str) -> list[Size]:
        strides: dict[int, Size] = {}
        products: dict[int, Size] = {}
        for d in sorted(range(ex.ndim), key=lambda d: (ex.stride(d), -d)):
            step = ex.stride(d)
            if step in (0, 1):
                strides[d] = step
            elif step in products:
                strides[d] = products[step]
            else:
                strides[d] = self.create_symbol(step, f"{text}.stride()[{d}]")
            products.setdefault(step * ex.shape[d], size.mul(strides[d], sizes[d]))
        return [strides[d] for d in range(ex.ndim)]

    def _unbacked_symbol(self, least: int, extent: int | None = None, example: int = 0) -> SizeExpr:
        name = self._name("u")
        self.environment.create_symbol(example or UNBACKED_EXAMPLE + len(self._unbacked), name)
        self._unbacked.add(name)
        return size.symbol(name, minimum=least, extent=extent)

    def create_unbacked_symint(self, source: Value = None) -> SymInt:
        """An integer that data decide."""
        return SymInt(SymNode(self._unbacked_symbol(-(1 << 62)), self, int))

    def create_unbacked_size(self) -> SymInt:
        """A size that data decide: it is not negative."""
        return SymInt(SymNode(self._unbacked_symbol(0), self, int))

    def create_unbacked_symbool(self) -> SymBool:
        """A truth value that data decide."""
        symbol = self._unbacked_symbol(0, 2, 1)
        return SymBool(SymNode(size_program.eq(symbol, 1), self, bool))

    def create_unbacked_symfloat(self) -> SymFloat:
        """A float that data decide."""
        leaf = Computed(_OfData(self._name("f")), ())
        return SymFloat(SymNode(leaf, self, float))

    def symbol_of(self, computed: Computed) -> SizeExpr:
        """The symbol of a number that the algebra cannot say."""
        symbol = self._symbols_of.get(computed)
        if symbol is None:
            value = self.value(computed, True)
            extent = 2 if isinstance(value, bool) else None
            name = self._name("d")
            least = 0 if value >= 0 else -(1 << 62)
            self.environment.create_symbol(int(value), name, minimum=min(least, int(value)))
            symbol = size.symbol(name, minimum=least, extent=extent)
            self._symbols_of[computed], self._definitions[name] = symbol, computed
            if any(self.depends_on_data(x) for x in computed.operands):
                self._unbacked.add(name)
        return symbol

    # ---- values
    def resolve(self, expression: Expression) -> Expression:
        """An expression with the equalities that guards say."""
        if isinstance(expression, SizeExpr):
            return self.environment.resolve(expression)
        if isinstance(expression, Condition):
            return self.environment.resolve_condition(expression)
        return expression

    def depends_on_data(self, expression: Expression) -> bool:
        """Whether data decide a number."""
        return not self._unbacked.isdisjoint(self.free_symbols(expression)) or any(
            isinstance(x, Computed) and isinstance(x.function, _OfData)
            for x in operands_of(expression)
        )

    def free_symbols(self, expression: Expression) -> frozenset[str]:
        """Names of the symbols in an expression."""
        names: set[str] = set()
        for part in operands_of(expression):
            if isinstance(part, SizeExpr):
                names |= size.free_symbols(self.environment.resolve(part))
            elif isinstance(part, Condition):
                names |= size_program._names(part)
        return frozenset(names)

    def value(self, expression: Expression, example: bool = False) -> Value:
        """The value in the example; None where data decide it, unless an example is as good."""
        if not example and self.depends_on_data(expression):
            return None
        return self.evaluated(expression, self.environment.hints)

    def evaluated(self, expression: Expression, values: Mapping[str, int]) -> Value:
        """The value of an expression for values of the symbols."""
        if isinstance(expression, Computed):
            return expression.function(*(self.evaluated(x, values) for x in expression.operands))
        names = [n for n in self.free_symbols(expression) if n not in values]
        if names:
            computed = {n: int(self.evaluated(self._definitions[n], values)) for n in names}
            values = {**values, **computed}
        if isinstance(expression, SizeExpr):
            return size.evaluate(self.environment.resolve(expression), values)
        if isinstance(expression, Condition):
            return size_program.evaluate_condition(expression, values)
        return expression

    # ---- conditions
    @property
    def guards(self) -> list[ShapeGuard]:
        """The conditions that the graph depends on."""
        return [ShapeGuard(guard) for guard in self.environment.guards if self._is_guard(guard)]

    def _is_guard(self, guard: Condition) -> bool:
        return self._unbacked.isdisjoint(size_program._names(guard))

    def decide(self, condition: Truth) -> bool:
        """The truth of a condition, which becomes a guard where it depends on the example.

        Raises:
            GuardOnDataDependentSymNode: data decide it.
        """
        answer = self.environment.known(condition)
        if answer is not None:
            return answer
        if self.depends_on_data(condition):
            shown = text_of(self.resolve(condition))
            raise GuardOnDataDependentSymNode(
                condition,
                f"Could not guard on data-dependent expression {shown}\n"
                "hint: torch._check(condition) says that it holds; guard_or_false and "
                "guard_or_true of torch.fx.experimental.symbolic_shapes choose a branch",
            )
        if self._quiet:
            return bool(self.evaluated(self.resolve(condition), self.environment.hints))
        return self.environment.truth(condition)

    def known(self, condition: Truth) -> bool | None:
        """The truth of a condition where it needs no guard."""
        return self.environment.known(condition)

    def assume(self, condition: Truth) -> bool:
        """The truth of a condition that an operator's sizes need.

        Sizes that data decide are taken for what the example has: they are neither 0 nor 1.
        """
        if self.environment.known(condition) is None and self.depends_on_data(condition):
            return bool(self.evaluated(self.resolve(condition), self.environment.hints))
        return self.decide(condition)

    def guard_value(self, expression: Expression) -> Value:
        """The value in the example, guarded."""
        resolved = self.resolve(expression)
        if isinstance(resolved, (bool, int, float)):
            return resolved
        if isinstance(resolved, Condition):
            return self.decide(resolved)
        if self.depends_on_data(resolved):
            shown = text_of(resolved)
            problem = (
                f"Could not extract specialized integer from data-dependent expression {shown}"
            )
            raise GuardOnDataDependentSymNode(
                resolved, f"{problem}\nhint: keep it a symbol, or use a number of Python"
            )
        value = self.value(resolved)
        if isinstance(resolved, SizeExpr):
            self.decide(size_program.eq(resolved, value))
        else:
            symbol = self.symbol_of(Computed(_equals, (resolved, value)))
            self.decide(size_program.eq(symbol, 1))
        return value

    def expect_true(self, condition: Truth, message: str = "") -> bool:
        """Says that a condition holds: a guard, or a check at run time where data decide it.

        Raises:
            NotImplementedError: it gives a size of a tensor that is there already another value.
        """
        if not self.depends_on_data(condition) or self.environment.known(condition) is not None:
            return self.decide(condition)
        resolved = self.environment.resolve_condition(condition)
        assert isinstance(resolved, Condition)
        self._defer(resolved, message)
        self.environment.learn(resolved)
        self._fit_example(resolved)
        return True

    def _defer(self, condition: Condition, message: str) -> None:
        names = sorted(self._unbacked & size_program._names(condition), key=_number)
        asserts = self.deferred_runtime_asserts.setdefault(names[-1], [])
        asserts.append(RuntimeAssert(condition, message))

    def _fit_example(self, condition: Condition) -> None:
        """Gives symbols of data an example for which a condition holds."""
        hints = self.environment.hints
        for name in sorted(
            self._unbacked & size_program._names(condition) - set(self._definitions)
        ):
            if size_program.evaluate_condition(condition, hints):
                return
            others = {n: size.symbol(n) if n == name else v for n, v in hints.items()}
            narrowed = size_program.substitute_condition(condition, others)
            for value in _candidates(narrowed):
                if size_program.evaluate_condition(narrowed, {name: value}):
                    self._set_example(name, value)
                    break

    def _set_example(self, name: str, value: int) -> None:
        if name in self._used:
            problem = f"a tensor has the size {name} already, which is said to be another one now"
            hint = "call torch._check before the size is used"
            raise failure(NotImplementedError, "_check", problem, hint)
        self.environment.hints[name] = value

    def use(self, expression: Expression) -> None:
        """Notes that a tensor has this size."""
        if not isinstance(expression, int):
            self._used |= self._unbacked & self.free_symbols(expression)

    # ---- guards as texts
    def bind_symbols(self, placeholders: Sequence[Value], args: Sequence[Value]) -> dict[str, int]:
        """Values of symbols for arguments.

        Args:
            placeholders: what stood for arguments in the trace.
            args: the arguments.
        """
        values: dict[str, int] = {}
        for expression, value in _bindings(placeholders, args):
            if isinstance(expression, SizeExpr) and expression.kind == "symbol":
                values.setdefault(expression.name, value)
        return values

    def evaluate_guards_for_args(
        self, placeholders: Sequence[Value], args: Sequence[Value], *, ignore_static: bool = True
    ) -> bool:
        """Whether the graph holds for arguments.

        Args:
            placeholders: what stood for arguments in the trace.
            args: the arguments.
            ignore_static: in PyTorch, whether sizes that are constants may differ.
        """
        values = self.bind_symbols(placeholders, args)
        pairs = list(_bindings(placeholders, args))
        if any(value < 2 for e, value in pairs if isinstance(e, SizeExpr) and e.kind == "symbol"):
            return not self.specialize_zero_one
        if any(isinstance(e, SizeExpr) and self.evaluated(e, values) != v for e, v in pairs):
            return False
        if any(isinstance(e, int) and e != value for e, value in pairs):
            return False
        return all(self.evaluated(guard.expr, values) for guard in self.guards)

    def produce_guards(
        self, placeholders: Sequence[Value], sources: Sequence[Value], *args: Value, **kwargs: Value
    ) -> list[str]:
        """The guards as expressions of Python.

        Args:
            placeholders: what stood for arguments in the trace.
            sources: the texts of the arguments.
            args, kwargs: further ones of PyTorch, without effect.
        """
        names: dict[str, str] = {}
        lines: list[str] = []
        for expression, text in _described(placeholders, map(_source_text, sources)):
            if isinstance(expression, SizeExpr) and expression.kind == "symbol":
                if expression.name in names:
                    lines.append(f"{text} == {names[expression.name]}")
                else:
                    names[expression.name] = text
                    lines += [f"2 <= {text}"] * (expression.least >= 2)
            elif isinstance(expression, int):
                lines.append(f"{text} == {expression}")
        for guard in self.guards:
            lines.append(re.sub(r"\bs\d+\b", lambda m: names.get(m[0], m[0]), str(guard.expr)))
        return list(dict.fromkeys(lines))

    def produce_guards_expression(
        self, placeholders: Sequence[Value], **options: Value
    ) -> str | None:
        """The guards as one expression of `L["args"][k]`, for `evaluate_guards_expression`."""
        sources = [f"args[{k}]" for k in range(len(placeholders))]
        lines = self.produce_guards(placeholders, sources)
        return " and ".join(f"({line})" for line in lines) if lines else None

    def evaluate_guards_expression(self, code: str, args: Sequence[Value]) -> bool:
        """Whether guards of `produce_guards_expression` hold for arguments.

        Args:
            code: the guards.
            args: the arguments.
        """
        return bool(eval(code, {"args": list(args), "min": min, "max": max}))  # noqa: S307

    def format_guards(self, verbose: bool = False) -> str:
        """The guards as text, one a line."""
        return "\n".join(f" - {guard.expr}" for guard in self.guards)

    def get_nontrivial_guards(self) -> list[str]:
        """The guards as texts."""
        return [str(guard.expr) for guard in self.guards]

    def get_pruned_guards(self, symints: Sequence[Value]) -> list[ShapeGuard]:
        """The guards of these symbols.

        Args:
            symints: symbolic numbers.
        """
        names = {n for x in symints for n in self.free_symbols(x.node.expr)}
        return [g for g in self.guards if not names.isdisjoint(self.free_symbols(g.expr))]

    # ---- settings
    @property
    def var_to_val(self) -> dict[str, int]:
        """Values of symbols in the example, without those that data decide."""
        hints = self.environment.hints
        return {n: v for n, v in hints.items() if n not in self._unbacked and n[0] == "s"}

    backed_var_to_val = var_to_val

    @property
    def replacements(self) -> dict[Value, Value]:
        """Symbols that equalities say."""
        return dict(self.environment._replacements)

    def is_unbacked_symint(self, symbol: Value) -> bool:
        """Whether data decide a symbol."""
        return getattr(symbol, "name", symbol) in self._unbacked

    def simplify(self, expr: Expression) -> Expression:
        """An expression with the equalities that guards say."""
        return self.resolve(expr)

    replace = simplify

    def size_hint(self, expr: Expression, *, allow_none: bool = False) -> Value:
        """The value in the example.

        Raises:
            GuardOnDataDependentSymNode: data decide it, unless `allow_none`.
        """
        value = self.value(expr)
        if value is None and not allow_none:
            raise GuardOnDataDependentSymNode(expr, f"{text_of(expr)} depends on data")
        return value

    def evaluate_expr(self, orig_expr: Expression, hint: Value = None, **options: Value) -> Value:
        """The value in the example, guarded."""
        return self.guard_value(orig_expr)

    @contextlib.contextmanager
    def suppress_guards(self) -> Iterator[None]:
        """A `with` block in which branches note no guards."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    @contextlib.contextmanager
    def ignore_fresh_unbacked_symbols(self) -> Iterator[bool]:
        """A `with` block whose symbols of data need no node."""
        yield False

    def freeze(self) -> None:
        """Ends the collection of guards."""
        self.frozen = True

    def check_equal(self, other: ShapeEnv) -> None:
        """Raises unless another environment has the same guards and examples."""
        if self.guards != other.guards or self.var_to_val != other.var_to_val:
            raise AssertionError(f"{self.guards} != {other.guards}")


class _OfData:
    """A float that data decide."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self) -> float:
        return 1.5


def _equals(value: Value, number: Value) -> bool:
    return bool(value == number)


def _number(name: str) -> int:
    return int(name[1:])


def _source_text(source: Value) -> str:
    name = getattr(source, "name", source)
    return str(name() if inspect.isroutine(name) else name)


def _candidates(condition: Truth) -> Iterator[int]:
    """Examples that a condition of one symbol may hold for."""
    parts = [condition] if isinstance(condition, Condition) else []
    constants: set[int] = set()
    while parts:
        part = parts.pop()
        parts += part.conditions
        for side in (part.left, part.right):
            expression = side if isinstance(side, SizeExpr) else None
            constants.add(side if isinstance(side, int) else size.terms_of(side).get((), 0))
            if expression is not None:
                constants |= set(size.terms_of(expression).values())
    for constant in sorted(constants, key=abs, reverse=True):
        for near in (constant, constant + 1, constant - 1, -constant):
            if near >= 0:
                yield near
    yield from range(2, 130)


def _geometry(placeholder: Value) -> list[tuple[Expression, Callable[[Value], int], str]]:
    """Facts of an argument: expression, how to read it, its text."""
    if is_symbolic(placeholder):
        return [(placeholder.node._expression, int, "{}")]
    if not isinstance(placeholder, _core.Tensor):
        return []
    geometry = geometry_of(placeholder)
    facts: list[tuple[Expression, Callable[[Value], int], str]] = []
    for d, extent in enumerate(geometry.sizes):
        facts.append((extent, lambda x, d=d: x.shape[d], f"{{}}.size()[{d}]"))
    for d, step in enumerate(geometry.strides):
        facts.append((step, lambda x, d=d: x.stride(d), f"{{}}.stride()[{d}]"))
    return [*facts, (geometry.offset, lambda x: x.storage_offset(), "{}.storage_offset()")]


def _bindings(
    placeholders: Sequence[Value], args: Sequence[Value]
) -> Iterator[tuple[Expression, int]]:
    for placeholder, arg in zip(placeholders, args, strict=True):
        for expression, read, _ in _geometry(placeholder):
            yield expression, read(arg)


def _described(
    placeholders: Sequence[Value], texts: Iterator[str]
) -> Iterator[tuple[Expression, str]]:
    for placeholder, text in zip(placeholders, texts, strict=True):
        for expression, _, form in _geometry(placeholder):
            yield expression, form.format(text)
