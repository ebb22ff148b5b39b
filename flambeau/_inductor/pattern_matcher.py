"""`torch._inductor.pattern_matcher`: passes over graphs of operators, as patterns and what to do
where one matches.

A `PatternMatcherPass` is a list of entries. An entry calls a function with the match
(`register_graph_pattern`), puts a function of the user in the graph (`register_lowering_pattern`),
or replaces what one example function does by what another does (`register_replacement`).
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import flambeau as torch
from flambeau._dynamo.utils import counters
from flambeau._inductor.pattern_expressions import (
    MULTIPLE,
    Arg,
    CallFunction,
    CallFunctionVarArgs,
    CallMethod,
    CallMethodVarArgs,
    CallModule,
    CallModuleVarArgs,
    ExclusiveKeywordArg,
    FailedMatch,
    Ignored,
    KeywordArg,
    ListOf,
    Match,
    MatchContext,
    MatchResult,
    MultiOutputPattern,
    Multiple,
    PatternExpr,
    RepeatedExpr,
    Target,
    extract_target,
    is_match,
)
from flambeau._inductor.pattern_graphs import (
    compute_mutation_region_ids,
    fwd_only,
    get_mutation_region_id,
    insert_module,
    is_mutation_op,
    joint_fwd_bwd,
    same_mutation_regions,
    stable_topological_sort,
)
from flambeau._inductor.pattern_rules import (
    Check,
    Rule,
    accept,
    fx_to_pattern,
    gen_pattern,
    gen_pattern_and_search_gm,
)
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau.fx import Graph, GraphModule, Node
from flambeau.fx.experimental._operator_trace import Function, Value

__all__ = [
    "Arg", "CallFunction", "CallFunctionVarArgs", "CallMethod", "CallMethodVarArgs", "CallModule",
    "CallModuleVarArgs", "ExclusiveKeywordArg", "FailedMatch", "GraphPatternEntry", "Ignored",
    "KeywordArg", "ListOf", "LoweringPatternEntry", "MULTIPLE", "Match", "MatchContext",
    "MatchResult", "MultiOutputPattern", "Multiple", "PatternEntry", "PatternExpr",
    "PatternMatcherPass", "RepeatedExpr", "ReplacementPatternEntry", "clone_graph",
    "compute_mutation_region_ids", "config_flag", "extract_target", "filter_nodes", "fwd_only",
    "fx_to_pattern", "gen_pattern", "gen_pattern_and_search_gm", "gen_register_replacement",
    "get_arg_value", "get_mutation_region_id", "init_once_fakemode", "is_match", "is_mutation_op",
    "joint_fwd_bwd", "register_graph_pattern", "register_lowering_pattern", "register_replacement",
    "same_mutation_regions", "stable_topological_sort",
]  # fmt: skip

Decorator = Callable[[Function], Function]
Key = tuple[str, Target]


class Patterns(Protocol):
    """Entries by the kind and target of the node at which a comparison begins."""

    def __getitem__(self, item: Key, /) -> list[PatternEntry]:
        """The entries of one."""


# ------------------------------------------------------------------------------- entries


@dataclass
class PatternEntry:
    """A pattern, and what happens to its matches.

    Attributes:
        pattern: the pattern.
        extra_check: whether a match counts.
    """

    pattern: PatternExpr
    extra_check: Check

    def apply(self, match: Match, graph: Graph, node: Node) -> None:
        """Changes the graph at a match.

        Args:
            match: the match.
            graph: the graph.
            node: its first result.
        """
        raise NotImplementedError

    def register(
        self,
        pass_dicts: Patterns | Sequence[Patterns],
        target: Target | None = None,
        prepend: bool = False,
    ) -> None:
        """Adds the entry.

        Args:
            pass_dicts: a pass, or several.
            target: what the pattern's first result calls; None: all that it may call.
            prepend: whether the entry is tried before those that are there.
        """
        if isinstance(pass_dicts, (list, tuple)):
            for each in pass_dicts:
                self.register(each, target, prepend)
            return
        pattern: Value = self.pattern
        for each in pattern.fns if target is None else [target]:
            entries = pass_dicts[pattern.op, each]  # type: ignore[index]
            entries.insert(0 if prepend else len(entries), self)


@dataclass
class LoweringPatternEntry(PatternEntry):
    """Puts a function into the graph, called with the match and what the pattern matched.

    Attributes:
        handler: the function; its operators are compiled with those around it.
    """

    handler: Function

    def apply(self, match: Match, graph: Graph, node: Node) -> None:
        """Replaces the matched nodes by a call of the function."""
        handler = functools.wraps(self.handler)(functools.partial(self.handler, match))
        with graph.inserting_before(node):
            replacement = graph.call_function(handler, tuple(match.args), match.kwargs)
        replacement.meta.update(node.meta)
        node.replace_all_uses_with(replacement)
        match.erase_nodes()


@dataclass
class GraphPatternEntry(PatternEntry):
    """Calls a function with the match and what the pattern matched.

    Attributes:
        handler: the function, which may change the graph; new nodes go in front of the match's.
    """

    handler: Function

    def apply(self, match: Match, graph: Graph, node: Node) -> None:
        """Calls the function."""
        with graph.inserting_before(node):
            self.handler(match, *match.args, **match.kwargs)


@dataclass
class ReplacementPatternEntry(PatternEntry):
    """Replaces matches by the graph that `extra_check` traced for them.

    Attributes:
        normalize_args: from what the pattern matched to the arguments of the graph.
    """

    normalize_args: Callable[..., list[Value]]

    @staticmethod
    def replace_with_graph(
        match: Match, graph: Graph, replacement_graph: GraphModule, args: Sequence[Value]
    ) -> None:
        """Replaces one match.

        Args:
            match: the match.
            graph: its graph.
            replacement_graph: gives one value per result of the pattern.
            args: of the replacement.
        """
        insert_module(match, replacement_graph, args)

    def apply(self, match: Match, graph: Graph, node: Node) -> None:
        """Replaces the matched nodes."""
        assert match.replacement_graph is not None
        args = self.normalize_args(*match.args, **match.kwargs)
        insert_module(match, match.replacement_graph, args)


# ------------------------------------------------------------------------------- the pass


class PatternMatcherPass:
    """Patterns that are looked for in one walk over a graph.

    Args:
        pass_name: for reports.
        subsystem: for reports.

    Attributes:
        patterns: the entries.

    Example:
        >>> from torch._inductor.pattern_matcher import (
        ...     CallFunction, KeywordArg, PatternMatcherPass, register_graph_pattern,
        ... )
        >>> squares = PatternMatcherPass("squares")
        >>> @register_graph_pattern(
        ...     CallFunction(torch.mul, KeywordArg("x"), KeywordArg("x")), pass_dict=squares
        ... )
        ... def use_square(match, x):
        ...     node = match.graph.call_function(torch.square, (x,))
        ...     match.output_node().replace_all_uses_with(node)
        ...     match.erase_nodes()
        >>> traced = torch.fx.symbolic_trace(lambda x, y: torch.mul(x, x) + torch.mul(x, y))
        >>> squares.apply(traced)
        1
        >>> [node.name for node in traced.graph.nodes]
        ['x', 'y', 'square', 'mul_1', 'add', 'output']
    """

    def __init__(self, pass_name: str | None = None, subsystem: str | None = None) -> None:
        self.patterns: defaultdict[Key, list[PatternEntry]] = defaultdict(list)
        self.pass_name, self.subsystem = pass_name, subsystem
        self.seen_patterns: dict[str, list[str | None]] = defaultdict(list)

    def __getitem__(self, item: Key) -> list[PatternEntry]:
        return self.patterns[item]

    def apply(self, gm: GraphModule | Graph) -> int:
        """Looks for the patterns, last nodes first, and applies the entries of those that match.

        A match whose nodes are on different sides of a node that writes to a tensor, or changes a
        mode, does not count. `counters["inductor"]` has the numbers of matches and of their nodes.

        Args:
            gm: a graph or its module, which is changed.

        Returns:
            how many matches were applied.
        """
        if not self.patterns:
            return 0
        graph = gm.graph if isinstance(gm, GraphModule) else gm
        compute_mutation_region_ids(graph)
        nodes = {
            node
            for op, target in list(self.patterns)
            for node in (
                graph.find_nodes(op=op)
                if op == "call_module"
                else graph.find_nodes(op=op, target=target, sort=False)
            )
        }
        return sum(self._apply_at(graph, node) for node in sorted(nodes, reverse=True))

    def _apply_at(self, graph: Graph, node: Node) -> int:
        """Applies the entries that match at one node."""
        count = 0
        if node._erased or _is_complex(node):
            return 0
        for entry in list(self.patterns.get((node.op, extract_target(node)), ())):
            if node._erased:
                break
            match = entry.pattern.match(node)
            if not isinstance(match, Match) or _crosses_a_write(graph, match):
                continue
            if entry.extra_check(match):
                number = len(match.nodes)
                entry.apply(match, graph, node)
                count += 1
                counters["inductor"]["pattern_matcher_count"] += 1
                counters["inductor"]["pattern_matcher_nodes"] += number
        return count

    def clear(self) -> None:
        """Removes all entries."""
        self.patterns.clear()


def _crosses_a_write(graph: Graph, match: Match) -> bool:
    return len({get_mutation_region_id(graph, node) for node in match.nodes}) > 1


def _is_complex(node: Node) -> bool:
    """Whether a node computes with complex numbers, which PyTorch's matcher leaves alone."""
    values = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
    return any(isinstance(x, torch.Tensor) and x.is_complex() for x in values)


# ------------------------------------------------------------------------------- registration


def _registering(
    kind: type[GraphPatternEntry | LoweringPatternEntry],
    pattern: PatternExpr,
    extra_check: Check,
    pass_dict: Patterns | Sequence[Patterns],
    prepend: bool,
) -> Decorator:
    def register(handler: Function) -> Function:
        kind(pattern, extra_check, handler).register(pass_dict, prepend=prepend)
        return handler

    return register


def register_graph_pattern(
    pattern: PatternExpr,
    extra_check: Check = accept,
    *,
    pass_dict: Patterns | Sequence[Patterns],
    prepend: bool = False,
) -> Decorator:
    """A decorator that registers a function of a match, which changes the graph.

    Args:
        pattern: the pattern.
        extra_check: whether a match counts.
        pass_dict: a pass, or several.
        prepend: whether the pattern is tried before those that are there.
    """
    return _registering(GraphPatternEntry, pattern, extra_check, pass_dict, prepend)


def register_lowering_pattern(
    pattern: PatternExpr,
    extra_check: Check = accept,
    *,
    pass_dict: Patterns | Sequence[Patterns],
    prepend: bool = False,
) -> Decorator:
    """A decorator that registers a function that computes what the pattern matched.

    The function is called when the graph runs, with the match, then tensors and numbers; what it
    does with them is compiled with the operators around it.

    Args:
        pattern: the pattern.
        extra_check: whether a match counts.
        pass_dict: a pass, or several.
        prepend: whether the pattern is tried before those that are there.
    """
    return _registering(LoweringPatternEntry, pattern, extra_check, pass_dict, prepend)


def register_replacement(
    search_fn: Function,
    replace_fn: Function,
    example_inputs: Iterable[Value],
    trace_fn: Callable[..., GraphModule],
    pass_dicts: Patterns | Sequence[Patterns],
    extra_check: Check = accept,
    scalar_workaround: Mapping[str, float | int] | None = None,
    exclusive_arg_names: Sequence[str] = (),
    search_fn_pattern: PatternExpr | None = None,
    skip_duplicates: bool = False,
    pattern_name: str | None = None,
    get_decomp_fn: Callable[[], Value] | None = None,
) -> PatternExpr | bool:
    """Registers that what one function does is replaced by what another does.

    Both are traced: the first on the examples, for the pattern, whose numbers and sizes match any;
    then both on tensors of each match's sizes, where numbers have to be equal.

    Args:
        search_fn: the function to look for.
        replace_fn: the function to put there, of the same parameters.
        example_inputs: arguments; those that require a gradient do in the traces, too.
        trace_fn: `fwd_only`, or `joint_fwd_bwd` for graphs of forward and backward.
        pass_dicts: a pass, or several.
        extra_check: whether a match counts; its tensors' sizes are in `meta["val"]`.
        scalar_workaround: numbers that stand for parameters of the functions which are numbers;
            each must occur once in the search graph.
        exclusive_arg_names: parameters that must be different values.
        search_fn_pattern: the pattern, instead of the first trace.
        skip_duplicates: whether a pattern that the pass has already is left out; else it raises.
        pattern_name: for reports.
        get_decomp_fn: gives the decompositions of the traces.

    Returns:
        the pattern; False: it is left out.

    Example:
        >>> from torch._inductor.pattern_matcher import (
        ...     PatternMatcherPass, fwd_only, register_replacement,
        ... )
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> patterns, x = PatternMatcherPass(), torch.ones(2, 2)
        >>> register_replacement(
        ...     lambda x, y: (x * y).relu(), lambda x, y: torch.maximum(x * y, x - x), [x, x],
        ...     fwd_only, patterns,
        ... )
        CallFunction(aten.relu.default, CallFunction(aten.mul.Tensor, KeywordArg('x'), ...))
        >>> module = make_fx(lambda x: (x * x).relu() + 1)(torch.ones(3, 5))
        >>> patterns.apply(module)
        1
    """
    names = [*inspect.signature(search_fn).parameters]
    rule = Rule(
        search_fn, replace_fn, trace_fn, names, list(example_inputs),
        dict(scalar_workaround or {}), tuple(exclusive_arg_names), extra_check, get_decomp_fn,
    )  # fmt: skip
    searched: GraphModule | None = None
    if search_fn_pattern is None:
        pattern, searched = rule.pattern_of_examples()
    else:
        pattern = search_fn_pattern
    if _is_duplicate(pattern, searched, pass_dicts, skip_duplicates):
        return False
    entry = ReplacementPatternEntry(pattern, rule.check, rule.arguments)
    entry.register(pass_dicts)
    return pattern


def gen_register_replacement(
    unique_name: str,
    search_fn: Function,
    replace_fn: Function,
    example_inputs: Iterable[Value],
    trace_fn: Callable[..., GraphModule],
    pass_dicts: Patterns | Sequence[Patterns],
    extra_check: Check = accept,
    scalar_workaround: Mapping[str, float | int] | None = None,
    exclusive_arg_names: Sequence[str] = (),
    skip_duplicates: bool = False,
    get_decomp_fn: Callable[[], Value] | None = None,
) -> None:
    """`register_replacement`; PyTorch reads the pattern from a file of this name.

    Args:
        unique_name: of the file; without effect.
        search_fn, replace_fn, example_inputs, trace_fn, pass_dicts, extra_check,
            scalar_workaround, exclusive_arg_names, skip_duplicates, get_decomp_fn: see
            `register_replacement`.
    """
    register_replacement(
        search_fn, replace_fn, example_inputs, trace_fn, pass_dicts, extra_check,
        scalar_workaround, exclusive_arg_names, None, skip_duplicates,
        get_decomp_fn=get_decomp_fn,
    )  # fmt: skip


def _is_duplicate(
    pattern: PatternExpr,
    searched: GraphModule | None,
    pass_dicts: Patterns | Sequence[Patterns],
    skip: bool,
) -> bool:
    """Notes a pattern; returns whether the pass has it already.

    Raises:
        RuntimeError: it has, and duplicates are not to be skipped.
    """
    passes = pass_dicts if isinstance(pass_dicts, (list, tuple)) else [pass_dicts]
    text, code = repr(pattern), None if searched is None else searched.code
    for each in passes:
        if not isinstance(each, PatternMatcherPass):
            continue
        if code in each.seen_patterns[text]:
            if skip:
                return True
            raise RuntimeError(
                f"[register_replacement] the pass has this pattern already: {text}\n"
                "hint: skip_duplicates=True leaves it out"
            )
        each.seen_patterns[text].append(code)
    return False


# ------------------------------------------------------------------------------- helpers


def init_once_fakemode(fn: Function) -> Function:
    """A decorator of functions that register patterns: they run once, on tensors without data.

    Args:
        fn: the function; `counters` stay as they are while it runs.
    """

    @functools.cache
    @functools.wraps(fn)
    def lazy_init(*args: Value) -> Value:
        before = counters["inductor"].copy()
        with FakeTensorMode():
            result = fn(*args)
        counters["inductor"] = before
        return result

    return lazy_init


def config_flag(name: str) -> Check:
    """A check of matches: whether a setting of `torch._inductor.config` is true.

    Args:
        name: of the setting.
    """
    return lambda match: getattr(torch._inductor.config, name)


def clone_graph(input_graph: GraphModule) -> GraphModule:
    """A copy of a module whose graph is a copy, with the nodes' names.

    Args:
        input_graph: the module.
    """
    graph = Graph()
    copies: dict[Node, Node] = {}
    output = graph.graph_copy(input_graph.graph, copies)
    graph.output(output)
    return GraphModule(input_graph, graph)


def get_arg_value(node: Node, arg_number: int, kwarg_name: str | None = None) -> Value:
    """An argument of a node, by position or name; None: it has none.

    Args:
        node: the node.
        arg_number: the position.
        kwarg_name: the name.
    """
    if len(node.args) > arg_number:
        return node.args[arg_number]
    return None if kwarg_name is None else node.kwargs.get(kwarg_name)


def filter_nodes(nodes: Iterable[Node], fn: Value) -> list[Node]:
    """The nodes that call an operator, or one of its overloads.

    Args:
        nodes: nodes of a graph.
        fn: an operator or overload.
    """
    overloads = getattr(fn, "overloads", None)
    targets = [fn] if overloads is None else [fn, *(getattr(fn, name) for name in overloads())]
    return [node for node in nodes if node.target in targets]
