"""The dispatcher of tensors made of other tensors: which function computes an operator's result.

Each kind (sparse, nested, masked) declares `Rules`: functions by the operator's name, families by
the facts on its definition, and a function that refuses the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from flambeau.autograd.composite import Composite
from flambeau.core.install import DEFINITIONS
from flambeau.core.tensors import is_tensor
from flambeau.language.definition import REGISTRY, OpDefinition
from flambeau.language.schema import Argument

Rule = Callable[..., Any]  # takes what the operator takes
# Takes the operator, its name, and positional and named arguments.
FamilyRule = Callable[[Rule, str, Sequence[Any], dict[str, Any]], Any]


class Operator(NamedTuple):
    """An operator that is called with a composite tensor.

    Attributes:
        function: the native operator.
        name: of the operator, with the "_" of an in-place form.
        definition: None of a derivative.
    """

    function: Rule
    name: str
    definition: OpDefinition | None

    @property
    def in_place(self) -> bool:
        """Whether the first operand is written."""
        return self.name.endswith("_") and not self.name.endswith("__")

    @property
    def base(self) -> str:
        """The name without the "_" of an in-place form."""
        return self.name[:-1] if self.in_place else self.name

    @property
    def is_pointwise(self) -> bool:
        """See `Options.pointwise`."""
        return self.definition is not None and self.definition.options.is_pointwise

    @property
    def homes(self) -> tuple[str, ...]:
        """Where it is public: "torch", "method", "nn.functional" ..."""
        return self.definition.options.where if self.definition else ()

    @property
    def operands(self) -> int:
        """The number of tensors that its first signature takes."""
        return sum(argument.is_tensor for argument in self._arguments)

    def takes(self, name: str) -> bool:
        """Whether its first signature has an argument of this name."""
        return any(argument.name == name for argument in self._arguments)

    @property
    def _arguments(self) -> Sequence[Argument]:
        return self.definition.overloads[0].schema.arguments if self.definition else ()


def named(*names: str) -> Callable[[Operator], bool]:
    """The family of operators with these names (each may be several, separated by spaces)."""
    members = frozenset(" ".join(names).split())
    return lambda operator: operator.name in members


def larger(of_two: FamilyRule, of_one: FamilyRule) -> FamilyRule:
    """`max` and `min`: `max(x, y)` compares tensors, `max(x)` and `max(x, 1)` reduce."""

    def rule(op: Rule, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        second = args[1] if len(args) > 1 else kwargs.get("other")
        return (of_two if is_tensor(second) else of_one)(op, name, args, kwargs)

    return rule


def operands(kind: type[Composite], values: Iterable[Any]) -> list[Any]:
    """The tensors of a kind among arguments, also those in lists."""
    tensors: list[Any] = []
    for value in values:
        if isinstance(value, kind):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors += operands(kind, value)
    return tensors


class Rules:
    """The rules of one kind of tensors.

    Args:
        kind: their class.
        functions: by operator's name.
        families: (whether an operator belongs to it, its function), tried in order.
        refuse: called with the operator's name and a tensor where there is no rule.
        derives_in_place: whether an in-place form without a rule overwrites its target with the
            result of the operator.
    """

    def __init__(
        self,
        kind: type[Composite],
        functions: Mapping[str, Rule],
        families: Sequence[tuple[Callable[[Operator], bool], FamilyRule]],
        refuse: Callable[[str, Any], NoReturn],
        derives_in_place: bool = False,
    ) -> None:
        self.kind = kind
        self.functions = functions
        self.families = families
        self.refuse = refuse
        self.derives_in_place = derives_in_place
        self.rule = functools.cache(self._rule)

    def _rule(self, op: Rule) -> Rule | None:
        """The function for an operator, or None."""
        operator = described(op)
        if operator.name in self.functions:
            return self.functions[operator.name]
        for contains, function in self.families:
            if contains(operator):
                return functools.partial(_of_family, function, op, operator.name)
        if self.derives_in_place and operator.in_place and operator.base in REGISTRY:
            rule = self.rule(REGISTRY[operator.base].native)
            return rule and functools.partial(self._overwritten, rule)
        return None

    def _overwritten(self, rule: Rule, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.kind._overwrite(target, rule(target, *args, **kwargs))

    def call(self, op: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operator of which an operand is of this kind.

        Raises:
            NotImplementedError: tensors of this kind do not have the operator.
        """
        rule = self.rule(op)
        if rule is None:
            self.refuse(op.__name__, operands(self.kind, (*args, *kwargs.values()))[0])
        return self.apply(rule, op.__name__, args, kwargs)

    def apply(self, rule: Rule, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a rule, written to `out=`.

        Raises:
            RuntimeError: `out=` is of another kind than the result.
        """
        if "self" in kwargs:
            kwargs["input"] = kwargs.pop("self")
        out = kwargs.pop("out", None)
        result = rule(*args, **kwargs)
        if out is None:
            return result
        if isinstance(out, self.kind) != isinstance(result, self.kind):
            raise RuntimeError(
                f"[{name}] out= does not fit the result: one is a {self.kind._called[0]}, the "
                "other is not\nhint: leave out= away"
            )
        if not isinstance(out, self.kind) and tuple(out.shape) != tuple(result.shape):
            out.resize_(tuple(result.shape))
        return self.kind._overwrite(out, result)


def _of_family(function: FamilyRule, op: Rule, name: str, /, *args: Any, **kwargs: Any) -> Any:
    if not args and "input" in kwargs and "condition" not in kwargs:  # `where` has it second
        args = (kwargs.pop("input"),)
    return function(op, name, args, kwargs)


@functools.cache
def _by_name() -> dict[str, OpDefinition]:
    return {definition.name: definition for definition in reversed(REGISTRY.values())}


def described(op: Rule) -> Operator:
    """An operator with its definition; an in-place form has that of the operator."""
    name: str = op.__name__
    names = (name, name.removesuffix("_"))
    definition = DEFINITIONS.get(id(op)) or next(filter(None, map(_by_name().get, names)), None)
    return Operator(op, name, definition)
