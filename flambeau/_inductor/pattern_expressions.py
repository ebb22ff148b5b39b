"""Patterns of nodes: the expressions that describe one, and their comparison with a graph.

A pattern is compared from its result backwards. One `MatchContext` notes which node each expression
matched, so an expression that a pattern contains twice has to match one node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from flambeau._inductor.pattern_graphs import fwd_only, insert_module
from flambeau.fx import Graph, GraphModule, Node
from flambeau.fx.experimental._operator_trace import Value
from flambeau.fx.node import map_arg
from flambeau.utils import _pytree as pytree

__all__ = [
    "Arg", "CallFunction", "CallFunctionVarArgs", "CallMethod", "CallMethodVarArgs", "CallModule",
    "CallModuleVarArgs", "ExclusiveKeywordArg", "FailedMatch", "Ignored", "KeywordArg", "ListOf",
    "MULTIPLE", "Match", "MatchContext", "MatchResult", "MultiOutputPattern", "Multiple",
    "PatternExpr", "RepeatedExpr", "extract_target", "is_match",
]  # fmt: skip


class Multiple:
    """The type of `MULTIPLE`: any number of users."""

    def __repr__(self) -> str:
        return "MULTIPLE"


MULTIPLE = Multiple()
"""For `_users` of a pattern: its node may have any number of users."""

Target = Callable[..., Value] | str
Targets = Target | Sequence[Target]


class FailedMatch(RuntimeError):  # noqa: N818 - PyTorch's name
    """Why a node does not match; false, where a `Match` is true.

    Args:
        format_string: the reason, with fields as of `str.format`.
        args, kwargs: values of the fields.
    """

    def __init__(self, format_string: str, *args: Value, **kwargs: Value) -> None:
        super().__init__(format_string, *args)
        self.format_string, self.kwargs = format_string, kwargs

    def __str__(self) -> str:
        return self.format_string.format(*self.args[1:], **self.kwargs)

    def __bool__(self) -> bool:
        return False


class Match:
    """A subgraph that matches a pattern.

    Args:
        ctx: the comparison.
        pattern: the pattern.
        args: values that `Arg` and `CallFunctionVarArgs` matched, in order.
        kwargs: values that `KeywordArg` matched, by name.

    Attributes:
        nodes: the nodes of the pattern's calls, operands first.
        targets: what each call of the pattern calls.
        replacement_graph: of a registered replacement, traced for the match.
    """

    def __init__(
        self,
        ctx: MatchContext,
        pattern: PatternExpr,
        args: Sequence[Value] | None = None,
        kwargs: dict[str, Value] | None = None,
    ) -> None:
        self.ctx, self.pattern = ctx, pattern
        self.args: list[Value] = list(args or ())
        self.kwargs: dict[str, Value] = dict(kwargs or {})
        self.nodes: list[Node] = []
        self.targets: dict[PatternExpr, Target] = {}
        self.replacement_graph: GraphModule | None = None

    @property
    def graph(self) -> Graph:
        """The graph that the nodes are in."""
        return self.ctx.graph

    def extend(self, other: Match) -> None:
        """Adds another part's match.

        Raises:
            FailedMatch: a name has another value there.
        """
        for name in self.kwargs.keys() & other.kwargs.keys():
            if self.kwargs[name] != other.kwargs[name]:
                raise FailedMatch("{} is two values", name)
        self.args += other.args
        self.nodes += other.nodes
        self.kwargs.update(other.kwargs)
        self.targets.update(other.targets)

    def bundle(self) -> Match:
        """Makes the positional values one, a tuple, and returns the match."""
        self.args = [tuple(self.args)] if self.args else []
        return self

    def __repr__(self) -> str:
        return f"Match(..., {self.args}, {self.kwargs})"

    def erase_nodes(self) -> None:
        """Erases the nodes that nothing uses, users first."""
        for node in reversed(self.nodes):
            if not node._erased and not node.users:
                self.graph.erase_node(node)

    def output_nodes(self) -> list[Node | None]:
        """The node of each of the pattern's results; None where it has none."""
        entries = self.ctx.pattern_to_node
        return [None if pattern is None else entries[pattern] for pattern in self.ctx.outputs]

    def output_node(self) -> Node:
        """The node of the pattern's first result."""
        return next(node for node in self.output_nodes() if node is not None)

    def replace_with_graph(self, replacement_graph: GraphModule, args: Sequence[Value]) -> None:
        """Replaces the subgraph by a module's graph.

        Args:
            replacement_graph: takes the arguments, gives one value per result of the pattern.
            args: nodes and other values.
        """
        insert_module(self, replacement_graph, args)

    def replace_by_example(
        self,
        replacement_fn: Callable[..., Value],
        args: Sequence[Value],
        trace_fn: Callable[..., GraphModule] | None = None,
        run_functional_passes: bool = True,
    ) -> None:
        """Replaces the subgraph by what a function does with the arguments.

        Args:
            replacement_fn: a function of tensors, one per argument.
            args: nodes, whose `meta["val"]` has the geometry, and other values.
            trace_fn: (function, values) -> module; by default `fwd_only`.
            run_functional_passes: whether operators without effect are removed from the module.
        """
        values = map_arg(tuple(args), lambda node: node.meta["val"])
        if trace_fn is None:
            module = fwd_only(replacement_fn, values, run_functional_passes=run_functional_passes)
        else:
            module = trace_fn(replacement_fn, values)
        self.replace_with_graph(module, args)


MatchResult = Match | FailedMatch


def is_match(m: MatchResult) -> bool:
    """Whether a comparison succeeded."""
    return bool(m)


def extract_target(node: Node) -> Target:
    """The function that a node calls; of `call_module` the class of the module."""
    if node.op != "call_module":
        target: Target = node.target
        return target
    module: object = node.graph.owning_module
    for part in str(node.target).split("."):
        module = getattr(module, part)
    return type(module)


class MatchContext:
    """One comparison of a pattern with a graph.

    Args:
        outputs: the pattern's results, whose nodes may have any users.
        pattern_to_node: nodes that are fixed already; None: of a pattern that did not match.
        graph: the graph.

    Attributes:
        exclusive_node_set: nodes that an `ExclusiveKeywordArg` matched.
    """

    def __init__(
        self,
        outputs: Sequence[PatternExpr | None],
        pattern_to_node: dict[PatternExpr, Node | None] | None = None,
        *,
        graph: Graph,
    ) -> None:
        self.outputs = list(outputs)
        self.pattern_to_node = dict(pattern_to_node or {})
        self.graph = graph
        self.exclusive_node_set: list[Value] = []

    def match(self, pattern: PatternExpr, node: Value) -> MatchResult:
        """Compares one expression with a node or constant."""
        if pattern in self.pattern_to_node:
            if self.pattern_to_node[pattern] == node:
                return Match(self, pattern)
            return FailedMatch("{} is two nodes", pattern)
        result = pattern._match(node, self)
        self.pattern_to_node[pattern] = node if result else None
        return result

    def filter_multi_user_patterns(self) -> dict[PatternExpr, Node | None]:
        """The nodes of expressions whose nodes may have further users."""
        entries = self.pattern_to_node.items()
        return {p: node for p, node in entries if node is not None and p.has_multiple_users()}


class PatternExpr(ABC):
    """A pattern, or a part of one."""

    @abstractmethod
    def _match(self, node: Value, ctx: MatchContext) -> MatchResult:
        """Compares itself with a node or constant."""

    def match(self, node: Node) -> MatchResult:
        """Compares a whole pattern with the subgraph that ends at a node.

        Args:
            node: the pattern's result.
        """
        try:
            return MatchContext([self], graph=node.graph).match(self, node)
        except FailedMatch as failed:
            return failed

    def has_multiple_users(self) -> bool:
        """Whether its node may have any number of users."""
        return False

    def find_anchor_nodes(self, ctx: MatchContext, searched: set[Node]) -> Iterator[Node]:
        """Nodes that might match, in view of what has matched.

        Args:
            ctx: the comparison.
            searched: nodes that were tried, to which it adds.
        """
        node = ctx.pattern_to_node.get(self)
        if node is not None:
            yield node

    def pattern_eq(self, other: Value) -> bool:
        """Whether another pattern matches the same."""
        return isinstance(other, type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Arg(PatternExpr):
    """Any value; the handler gets it as a positional argument."""

    def _match(self, node: Value, ctx: MatchContext) -> MatchResult:
        return Match(ctx, self, args=[node])


class Ignored(PatternExpr):
    """Any value; the handler does not get it."""

    def _match(self, node: Value, ctx: MatchContext) -> MatchResult:
        return Match(ctx, self)

    def __repr__(self) -> str:
        return "*"


class KeywordArg(PatternExpr):
    """Any value, the same wherever the name occurs; the handler gets it by name.

    Args:
        name: the handler's parameter.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def _match(self, node: Value, ctx: MatchContext) -> MatchResult:
        return Match(ctx, self, kwargs={self.name: node})

    def pattern_eq(self, other: Value) -> bool:
        """Whether another pattern is of this name."""
        return super().pattern_eq(other) and self.name == other.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ExclusiveKeywordArg(KeywordArg):
    """A `KeywordArg` whose value no other `ExclusiveKeywordArg` of the match has."""

    def _match(self, node: Value, ctx: MatchContext) -> MatchResult:
        if any(node is other for other in ctx.exclusive_node_set):
            return FailedMatch("{} is the value of another name", self.name)
        ctx.exclusive_node_set.append(node)
        return Match(ctx, self, kwargs={self.name: node})


def _overloads(target: Target) -> list[Target]:
    """A target as it is in graphs: an operator's overloads where all are meant."""
    if callable(getattr(type(target), "overloads", None)):
        return [target, *(getattr(target, name) for name in target.overloads())]  # type: ignore[union-attr]
    return [target]


class _TargetExpr(PatternExpr):
    """A call.

    Args:
        fns: what may be called; an operator without an overload means all of its overloads.
        users: how many users the node has, or `MULTIPLE`; results of a pattern may have any.
    """

    op: str

    def __init__(self, fns: Targets, users: Multiple | int = 1) -> None:
        listed: Sequence[Target] = [fns] if callable(fns) or isinstance(fns, str) else list(fns)
        self.fns = [overload for target in listed for overload in _overloads(target)]
        self.fns_set = set(self.fns)
        self.users = users

    def fns_repr(self) -> str:
        """Names of the functions."""
        names = [
            fn if isinstance(fn, str) else str(fn) if hasattr(fn, "namespace") else fn.__name__
            for fn in self.fns
        ]
        return names[0] if len(names) == 1 else f"[{', '.join(names)}]"

    def __repr__(self) -> str:
        users = "" if self.users == 1 else f", {self.users}"
        return f"{type(self).__name__}({self.fns_repr()}{users})"

    def has_multiple_users(self) -> bool:
        """Whether its node may have any number of users, or has several."""
        return isinstance(self.users, Multiple) or self.users > 1

    def _match_fns(self, node: Value) -> bool:
        return (
            isinstance(node, Node) and node.op == self.op and extract_target(node) in self.fns_set
        )

    def _match_users(self, node: Node, ctx: MatchContext) -> bool:
        if self in ctx.outputs or isinstance(self.users, Multiple):
            return True
        return len(node.users) == self.users

    def pattern_eq(self, other: Value) -> bool:
        """Whether another pattern is of the same functions and users."""
        same = super().pattern_eq(other) and self.fns_set == other.fns_set
        return same and (
            self.users == other.users or self.has_multiple_users() and other.has_multiple_users()
        )


class _TargetArgsExpr(_TargetExpr):
    """A call with arguments, which are patterns or constants.

    Args:
        fns: what may be called.
        args, kwargs: the arguments; those by name that the node has beside them may be anything.
        _users: how many users the node has.
    """

    def __init__(
        self, fns: Targets, *args: Value, _users: Multiple | int = 1, **kwargs: Value
    ) -> None:
        super().__init__(fns, _users)
        self.args, self.kwargs = tuple(args), dict(kwargs)
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        self.operands = [leaf for leaf in leaves if isinstance(leaf, PatternExpr)]

    def __repr__(self) -> str:
        named = [f"{name}={value}" for name, value in self.kwargs.items()]
        users = [] if self.users == 1 else [f"_users={self.users}"]
        parts = [self.fns_repr(), *map(repr, self.args), *named, *users]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _match(self, node: Value, ctx: MatchContext) -> MatchResult:
        if not self._match_fns(node):
            return FailedMatch("{!r} does not call {}", node, self)
        if not self._match_users(node, ctx):
            return FailedMatch("{!r} has {} users: {}", node, len(node.users), self)
        arguments = self._arguments(node)
        if arguments is None:
            return FailedMatch("{!r} has other arguments than {}", node, self)
        match = Match(ctx, self)
        failed = _extended(match, (self.args, self.kwargs), arguments, ctx)
        if failed is not None:
            return failed
        match.nodes.append(node)
        match.targets[self] = node.target
        return match

    def _arguments(self, node: Node) -> tuple[tuple[Value, ...], dict[str, Value]] | None:
        """The node's arguments in the form of the pattern's; None: it has others."""
        args, kwargs = tuple(node.args), dict(node.kwargs)
        if len(kwargs) < len(self.kwargs):
            normal = node.normalized_arguments(
                node.graph.owning_module, normalize_to_only_use_kwargs=True
            )
            if normal is None:
                return None
            named = dict(normal.kwargs)
            positional = list(named)[: len(self.args)]
            args = tuple([named.pop(name) for name in positional])
            kwargs = named
        kwargs = {name: value for name, value in kwargs.items() if name in self.kwargs}
        if len(args) != len(self.args) or len(kwargs) != len(self.kwargs):
            return None
        return args, {name: kwargs[name] for name in self.kwargs}

    def find_anchor_nodes(self, ctx: MatchContext, searched: set[Node]) -> Iterator[Node]:
        """Its node, or users of nodes that its arguments matched."""
        if self in ctx.pattern_to_node:
            yield from super().find_anchor_nodes(ctx, searched)
            return
        for pattern in self.operands:
            for operand in pattern.find_anchor_nodes(ctx, searched):
                for node in list(operand.users) if isinstance(operand, Node) else ():
                    if node not in searched and self._match_fns(node):
                        yield node
                        searched.add(node)

    def pattern_eq(self, other: Value) -> bool:
        """Whether another pattern's calls and arguments are the same."""
        if not super().pattern_eq(other):
            return False
        return _equal((self.args, self.kwargs), (other.args, other.kwargs))


def _items(value: Value) -> list[Value] | None:
    """The items of a container, of which lists and tuples are one kind; None: it is none."""
    if isinstance(value, (list, tuple)):
        return list(value)
    return [value[name] for name in sorted(value)] if isinstance(value, dict) else None


def _alike(a: Value, b: Value) -> bool:
    """Whether two containers have the same length, or names."""
    if isinstance(a, dict) or isinstance(b, dict):
        return isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys()
    return len(a) == len(b)


def _extended(match: Match, pattern: Value, value: Value, ctx: MatchContext) -> FailedMatch | None:
    """Compares an argument with its pattern, which may be a container, and extends the match.

    Returns:
        why they differ, or None.
    """
    if isinstance(pattern, PatternExpr):
        part = ctx.match(pattern, value)
        if not isinstance(part, Match):
            return part
        match.extend(part)
        return None
    patterns, values = _items(pattern), _items(value)
    if patterns is None or values is None:
        same = patterns is values is None and not isinstance(value, Node) and value == pattern
        return None if same else FailedMatch("{!r} in place of {!r}", value, pattern)
    if not _alike(pattern, value):
        return FailedMatch("{!r} in place of {!r}", value, pattern)
    for inner, item in zip(patterns, values, strict=True):
        failed = _extended(match, inner, item, ctx)
        if failed is not None:
            return failed
    return None


def _equal(a: Value, b: Value) -> bool:
    """Whether two patterns, or containers of them, match the same."""
    if isinstance(a, PatternExpr):
        return a.pattern_eq(b)
    mine, theirs = _items(a), _items(b)
    if mine is None or theirs is None:
        return mine is theirs is None and bool(a == b)
    return _alike(a, b) and all(_equal(x, y) for x, y in zip(mine, theirs, strict=True))


class CallFunction(_TargetArgsExpr):
    """A `call_function` node with arguments.

    Example:
        >>> from torch._inductor.pattern_matcher import CallFunction, KeywordArg
        >>> pattern = CallFunction(torch.relu, CallFunction(torch.add, KeywordArg("x"), 1))
        >>> graph = torch.fx.symbolic_trace(lambda x: torch.relu(torch.add(x, 1))).graph
        >>> match = pattern.match(list(graph.nodes)[2])
        >>> match.kwargs, match.nodes
        ({'x': x}, [add, relu])
    """

    op = "call_function"


class CallMethod(_TargetArgsExpr):
    """A `call_method` node with arguments, the object first."""

    op = "call_method"


class CallModule(_TargetArgsExpr):
    """A `call_module` node of a class of modules, with arguments."""

    op = "call_module"


class _TargetExprVarArgs(_TargetExpr):
    """A call with any arguments; the handler gets them all."""

    def _match(self, node: Value, ctx: MatchContext) -> MatchResult:
        if not self._match_fns(node):
            return FailedMatch("{!r} does not call {}", node, self)
        if not self._match_users(node, ctx):
            return FailedMatch("{!r} has {} users: {}", node, len(node.users), self)
        match = Match(ctx, self, list(node.args), dict(node.kwargs))
        match.nodes.append(node)
        match.targets[self] = node.target
        return match


class CallFunctionVarArgs(_TargetExprVarArgs):
    """A `call_function` node with any arguments, which the handler gets."""

    op = "call_function"


class CallMethodVarArgs(_TargetExprVarArgs):
    """A `call_method` node with any arguments, which the handler gets."""

    op = "call_method"


class CallModuleVarArgs(_TargetExprVarArgs):
    """A `call_module` node with any arguments, which the handler gets."""

    op = "call_module"


class ListOf(PatternExpr):
    """A list of any length whose items match one pattern; the handler gets a tuple of each one's
    positional values.

    Args:
        pattern: of the items.
        partial: whether only some have to match.
    """

    def __init__(self, pattern: PatternExpr, partial: bool = False) -> None:
        self.pattern, self.partial = pattern, partial

    def __repr__(self) -> str:
        return f"ListOf({self.pattern})"

    def _match(self, node: Value, ctx: MatchContext) -> MatchResult:
        if not isinstance(node, (list, tuple)) or not node:
            return FailedMatch("{!r} is no list of items", node)
        match, matched = Match(ctx, self), False
        nodes = dict(ctx.pattern_to_node)
        for item in node:
            inner = MatchContext(ctx.outputs, nodes, graph=ctx.graph)
            part = inner.match(self.pattern, item)
            nodes = inner.filter_multi_user_patterns()
            if isinstance(part, Match):
                matched = True
                match.extend(part.bundle())
            elif not self.partial:
                return FailedMatch("an item does not match: {}", part)
        return match.bundle() if matched else FailedMatch("no item matches")

    def pattern_eq(self, other: Value) -> bool:
        """Whether another pattern's items match the same."""
        return (
            super().pattern_eq(other)
            and self.pattern.pattern_eq(other.pattern)
            and self.partial == other.partial
        )


class MultiOutputPattern(PatternExpr):
    """Several results; the comparison begins at the first and looks for the others among users of
    what has matched.

    Args:
        outputs: a pattern per result; None: it has no node.
    """

    def __init__(self, outputs: Sequence[PatternExpr | None]) -> None:
        self.outputs = list(outputs)
        self.op = _first(self.outputs).op

    @property
    def fns(self) -> list[Target]:
        """The functions of the first result."""
        return _first(self.outputs).fns

    def __repr__(self) -> str:
        return f"MultiOutputPattern({self.outputs})"

    def _match(self, node: Value, ctx: MatchContext) -> MatchResult:
        match = ctx.match(_first(self.outputs), node)
        for pattern in self.outputs[1:]:
            if not isinstance(match, Match) or pattern is None:
                continue
            part = self._match_from_anchors(pattern, ctx)
            if not isinstance(part, Match):
                return part
            match.extend(part)
        return match

    def _match_from_anchors(self, pattern: PatternExpr, ctx: MatchContext) -> MatchResult:
        before = dict(ctx.pattern_to_node)
        result: MatchResult = FailedMatch("no node to begin {} at", pattern)
        for node in pattern.find_anchor_nodes(ctx, set()):
            result = ctx.match(pattern, node)
            if result:
                return result
            ctx.pattern_to_node = dict(before)
        return result

    def match(self, node: Node) -> MatchResult:
        """Compares the pattern with the subgraph whose first result is a node."""
        try:
            return MatchContext(self.outputs, graph=node.graph).match(self, node)
        except FailedMatch as failed:
            return failed

    def pattern_eq(self, other: Value) -> bool:
        """Whether another pattern's results are the same."""
        if not super().pattern_eq(other) or len(self.outputs) != len(other.outputs):
            return False
        pairs = zip(self.outputs, other.outputs, strict=True)
        return all(a.pattern_eq(b) if a is not None else b is None for a, b in pairs)


def _first(outputs: Sequence[PatternExpr | None]) -> _TargetExpr:
    """The result at which a comparison begins: a call."""
    first = outputs[0]
    if not isinstance(first, _TargetExpr):
        raise AssertionError(f"the first output of a pattern is no call: {first!r}")
    return first


class RepeatedExpr(PatternExpr):
    """A pattern that several users of a common node match, all of which become one match.

    Args:
        inner_pattern: the pattern; what its parts with `MULTIPLE` users matched is common.
    """

    def __init__(self, inner_pattern: _TargetExpr) -> None:
        self.inner_pattern = inner_pattern
        self.op = inner_pattern.op

    @property
    def fns(self) -> list[Target]:
        """The functions of the pattern."""
        return self.inner_pattern.fns

    def _match(self, node: Value, ctx: MatchContext) -> MatchResult:
        match = ctx.match(self.inner_pattern, node)
        if not isinstance(match, Match):
            return match
        ctx.pattern_to_node.pop(self.inner_pattern)
        for anchor in self.inner_pattern.find_anchor_nodes(ctx, {node}):
            inner = MatchContext([self], graph=node.graph)
            part = inner.match(self.inner_pattern, anchor)
            if not isinstance(part, Match):
                return part
            match.extend(part)
        return match

    def pattern_eq(self, other: Value) -> bool:
        """Whether another pattern repeats the same."""
        return super().pattern_eq(other) and self.inner_pattern.pattern_eq(other.inner_pattern)
