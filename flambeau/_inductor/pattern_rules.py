"""Replacement by example: patterns of traced functions, and traces for the sizes of each match."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import flambeau as torch
from flambeau._inductor.pattern_expressions import (
    CallFunction,
    ExclusiveKeywordArg,
    Ignored,
    KeywordArg,
    Match,
    MultiOutputPattern,
    PatternExpr,
)
from flambeau.fx import Graph, GraphModule, Interpreter, Node
from flambeau.fx.experimental._operator_trace import Function, Value
from flambeau.utils import _pytree as pytree

__all__ = ["Rule", "fx_to_pattern", "gen_pattern", "gen_pattern_and_search_gm"]

Check = Callable[[Match], Value]


def accept(match: Match) -> bool:
    """The check of matches by default: all count."""
    return True


@dataclass
class Rule:
    """A replacement by example.

    Attributes:
        search, replace: the functions.
        trace: of a function and arguments.
        names: parameters of the functions.
        examples: arguments but for those in `numbers`.
        numbers: values of parameters that are numbers.
        exclusive: parameters that are different values.
        extra_check: of the user.
        decompositions: of the traces; None: those by default.
    """

    search: Function
    replace: Function
    trace: Callable[..., GraphModule]
    names: list[str]
    examples: list[Value]
    numbers: dict[str, float | int]
    exclusive: tuple[str, ...]
    extra_check: Check
    decompositions: Callable[[], Value] | None

    def _examples(self) -> list[Value]:
        """The arguments of the first trace."""
        examples = iter(self.examples)
        return [self.numbers[n] if n in self.numbers else next(examples) for n in self.names]

    def _traced(self, function: Function, args: Sequence[Value]) -> GraphModule:
        options = {} if self.decompositions is None else {"get_decomp_fn": self.decompositions}
        own = pytree.tree_map(_alias, list(args))  # a tensor that occurs twice is two arguments
        return self.trace(_with_parameters(function, self.names), own, **options)

    def pattern_of_examples(self) -> tuple[PatternExpr, GraphModule]:
        """The pattern in which numbers, sizes and dtypes match any, and its graph."""
        args = self._examples()
        module = self._traced(self.search, args)
        return fx_to_pattern(
            module,
            (int, float, list, torch.device, torch.dtype),
            _flat_names(self.names, args),
            self.numbers,
            self.exclusive,
        ), module

    def check(self, match: Match) -> bool:
        """Whether the subgraph is what the function does on tensors of its sizes; traces the
        replacement for it."""
        args = self._arguments_of(match)
        if args is None:
            return False
        try:
            searched = self._traced(self.search, args)
        except RuntimeError:  # the function does not take these sizes
            return False
        numbers = {n: v for n, v in zip(self.names, args, strict=True) if n in self.numbers}
        pattern = fx_to_pattern(
            searched, (), _flat_names(self.names, args), numbers, self.exclusive
        )
        exact = pattern.match(match.output_node())
        if not isinstance(exact, Match) or not self.extra_check(exact):
            return False
        match.replacement_graph = self._traced(self.replace, args)
        return True

    def _arguments_of(self, match: Match) -> list[Value] | None:
        """Fake tensors, and numbers, of a match's arguments; None: a node has no value."""
        args: list[Value] = []
        for name, example in zip(self.names, self._examples(), strict=True):
            values = _gathered(match.kwargs, name, example)
            if values is None:
                raise RuntimeError(
                    f"[register_replacement] parameter {name!r} is not in the pattern "
                    f"(there are {sorted(match.kwargs)})\n"
                    "hint: an argument that the function does not use cannot be replaced"
                )
            wants = pytree.tree_map(lambda x: getattr(x, "requires_grad", False), example)
            value = pytree.tree_map(_value_of, values)
            if any(isinstance(x, Node) for x in pytree.tree_leaves(value)):
                return None
            args.append(pytree.tree_map(_as_example, value, wants))
        return args

    def arguments(self, **kwargs: Value) -> list[Value]:
        """The values that the pattern matched, in the order of the replacement's parameters."""
        args = [
            _gathered(kwargs, name, example)
            for name, example in zip(self.names, self._examples(), strict=True)
        ]
        tangents = (f"tangents_{number}" for number in itertools.count(1))
        for name in itertools.takewhile(kwargs.__contains__, tangents):
            args.append(kwargs[name])
        return pytree.tree_leaves(args)


def _gathered(kwargs: Mapping[str, Value], name: str, example: Value) -> Value:
    """The values of a parameter: one, or those of an example that is a container."""
    leaves, spec = pytree.tree_flatten(example)
    if not isinstance(example, (list, tuple, dict)):
        return kwargs.get(name)
    values = [kwargs.get(f"{name}_{number}") for number in range(len(leaves))]
    return None if None in values else pytree.tree_unflatten(values, spec)


def _flat_names(names: Sequence[str], args: Sequence[Value]) -> list[str]:
    """Names of the placeholders of a trace: one per leaf of an argument."""
    flat: list[str] = []
    for name, value in zip(names, args, strict=True):
        if isinstance(value, (list, tuple, dict)):
            flat += [f"{name}_{number}" for number in range(len(pytree.tree_leaves(value)))]
        else:
            flat.append(name)
    return flat


def _value_of(value: Value) -> Value:
    return value.meta.get("val", value) if isinstance(value, Node) else value


def _alias(value: Value) -> Value:
    """A tensor of its own with another's memory."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def _as_example(value: Value, requires_grad: bool) -> Value:
    """A tensor of a graph's value, which requires a gradient as the example does."""
    alias = _alias(value)
    return alias.requires_grad_(requires_grad) if isinstance(alias, torch.Tensor) else alias


def _with_parameters(function: Function, names: Sequence[str]) -> Function:
    """A plain function of these positional parameters, also for methods and partial ones."""
    if inspect.isfunction(function):
        return function
    scope: dict[str, Value] = {"_body": function}
    listed = ", ".join(names)
    exec(f"def named({listed}):\n    return _body({listed})", scope)  # noqa: S102
    named: Function = scope["named"]
    return named


# ------------------------------------------------------------------------------- patterns of graphs


class _Converter(Interpreter):
    """Runs a graph on patterns: the result is the graph's own."""

    def __init__(
        self,
        module: GraphModule,
        ignored: tuple[type, ...],
        names: Sequence[str],
        numbers: Mapping[float | int, str],
        exclusive: Sequence[str],
    ) -> None:
        super().__init__(module)
        self._ignored, self._names = ignored, iter(names)
        self._numbers, self._exclusive = numbers, exclusive
        self._parameters: dict[str, PatternExpr] = {}

    def run_node(self, n: Node) -> Value:
        """The pattern of a node."""
        value = super().run_node(n)
        if n.op == "output":
            nodes = pytree.tree_leaves(list(n.args))
            for pattern, node in zip(
                pytree.tree_leaves(value, is_leaf=_is_leaf), nodes, strict=True
            ):
                if hasattr(pattern, "users") and isinstance(node, Node):
                    pattern.users = len(node.users)
        elif hasattr(value, "users"):
            value.users = len(n.users)
        return value

    def placeholder(self, target: str, args: Value, kwargs: Value) -> PatternExpr:
        """The pattern of a parameter."""
        name = next(self._names, target)
        kind = ExclusiveKeywordArg if name in self._exclusive else KeywordArg
        return self._parameters.setdefault(name, kind(name))

    def get_attr(self, target: str, args: Value, kwargs: Value) -> PatternExpr:
        """Constants of the traced function cannot be compared."""
        return Ignored()

    def call_function(self, target: Value, args: Value, kwargs: Value) -> PatternExpr:
        """The pattern of a call."""
        return CallFunction(
            target,
            *[self._argument(x) for x in args],
            **{name: self._argument(x) for name, x in kwargs.items()},
        )

    def _argument(self, value: Value) -> Value:
        if isinstance(value, PatternExpr):
            return value
        if type(value) in (int, float) and value in self._numbers:
            return self._parameters.setdefault(
                self._numbers[value], KeywordArg(self._numbers[value])
            )
        if isinstance(value, self._ignored) and not isinstance(value, (list, bool)):
            return Ignored()
        if isinstance(value, (list, tuple)):
            items = [self._argument(x) for x in value]
            if list in self._ignored and items and all(isinstance(x, Ignored) for x in items):
                return Ignored()
            return items
        return value


def _is_leaf(value: Value) -> bool:
    return isinstance(value, PatternExpr) or value is None


def fx_to_pattern(
    gm: GraphModule | Graph,
    ignore_types: Sequence[type] = (),
    argnames: Sequence[str] = (),
    scalar_workaround: Mapping[str, float | int] | None = None,
    exclusive_arg_names: Sequence[str] = (),
) -> PatternExpr:
    """The pattern of a graph.

    Args:
        gm: the graph, or its module.
        ignore_types: types of constants that match any value.
        argnames: names of the parameters, by default the placeholders'.
        scalar_workaround: numbers that stand for parameters.
        exclusive_arg_names: parameters that are different values.
    """
    module = gm if isinstance(gm, GraphModule) else GraphModule(torch.nn.Module(), gm)
    numbers = {value: name for name, value in (scalar_workaround or {}).items()}
    if len(numbers) != len(scalar_workaround or {}):
        raise AssertionError("scalar_workaround has a number twice")
    converter = _Converter(module, tuple(ignore_types), argnames, numbers, exclusive_arg_names)
    inputs = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    pattern = converter.run(*inputs, enable_io_processing=False)
    if isinstance(pattern, PatternExpr):
        return pattern
    outputs = pytree.tree_leaves(pattern, is_leaf=_is_leaf)
    return outputs[0] if len(outputs) == 1 else MultiOutputPattern(outputs)


def gen_pattern_and_search_gm(
    search_fn: Function,
    example_inputs: Sequence[Value],
    trace_fn: Callable[..., GraphModule],
    scalar_workaround: Mapping[str, float | int] | None = None,
    exclusive_arg_names: Sequence[str] = (),
    get_decomp_fn: Callable[[], Value] | None = None,
) -> tuple[PatternExpr, GraphModule]:
    """The pattern of what a function does, and the graph that it is made of.

    Args:
        search_fn, example_inputs, trace_fn, scalar_workaround, exclusive_arg_names,
            get_decomp_fn: see `register_replacement`.
    """
    names = [*inspect.signature(search_fn).parameters]
    rule = Rule(
        search_fn, search_fn, trace_fn, names, list(example_inputs),
        dict(scalar_workaround or {}), tuple(exclusive_arg_names), accept, get_decomp_fn,
    )  # fmt: skip
    return rule.pattern_of_examples()


def gen_pattern(
    search_fn: Function,
    example_inputs: Sequence[Value],
    trace_fn: Callable[..., GraphModule],
    scalar_workaround: Mapping[str, float | int] | None = None,
    exclusive_arg_names: Sequence[str] = (),
) -> PatternExpr:
    """The pattern of what a function does.

    Args:
        search_fn, example_inputs, trace_fn, scalar_workaround, exclusive_arg_names: see
            `register_replacement`.
    """
    return gen_pattern_and_search_gm(
        search_fn, example_inputs, trace_fn, scalar_workaround, exclusive_arg_names
    )[0]
