"""Grammar 1, the tensor graph: what a well-formed Graph is, and the verifier that says so.

A graph's nodes are `input` and `scalar` leaves and primitives. The primitives' type rules are
entered into `TYPE_RULES` by whoever defines primitives, so that this module need not know them. The
verifier derives every type again and quotes the neighbourhood of what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau.ir.environment import environment, same_shape
from flambeau.ir.lock import importing
from flambeau.ir.node import DTYPES, Graph, Node
from flambeau.ir.size import Size, SizeExpr, free_symbols

TypeRule = Callable[[tuple[Node, ...], dict[str, Any]], tuple[str, tuple[Size, ...]]]

TYPE_RULES: dict[str, TypeRule] = {}
SCALAR_DTYPES = frozenset({"f64", "i64", "bool", "c128"})
QUOTED_LINES = 10


class GraphError(ValueError):
    """A Graph that breaks the grammar; the message quotes the place."""


class AssumedSizes:
    """A shape environment that assumes what a graph says about its sizes: equal, not less."""

    def truth(self, condition: Any) -> bool:
        """Take undecidable equalities for true and undecidable orders for false."""
        return bool(condition.operator == "==")

    def hint(self, size: Size) -> int:
        """Return any value."""
        return 64


def inferred_type(node: Node) -> tuple[str, tuple[Size, ...]]:
    """Derive a node's type from its operands, assuming undecidable sizes to be right."""
    with environment(AssumedSizes()):
        return TYPE_RULES[node.op](node.inputs, dict(node.attributes))


def sizes_in(value: Any) -> Iterator[SizeExpr]:
    """Yield the size expressions inside an attribute or shape."""
    if isinstance(value, SizeExpr):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from sizes_in(item)


def symbols_of(node: Node) -> set[str]:
    """Names of the symbols in a node's shape and attributes."""
    names: set[str] = set()
    for expression in sizes_in((node.shape, tuple(value for _, value in node.attributes))):
        names |= free_symbols(expression)
    return names


def verify_graph(graph: Graph) -> None:
    """Raise GraphError unless the graph is well-formed.

    Checked: leaves are those of the graph; every node's type follows from its operands; sizes are
    written in symbols the call provides; outputs have the geometry of their nodes; no two draws
    share a number.
    """
    provided = provided_symbols(graph)
    draws: dict[tuple[Any, Any], Node] = {}
    for position, leaf in enumerate((*graph.inputs, *graph.scalars)):
        slot = position if position < len(graph.inputs) else position - len(graph.inputs)
        if leaf is not None and leaf.attribute("slot") != slot:
            _fail(graph, leaf, f"leaf {slot} has slot {leaf.attribute('slot')}")
    for node in graph.nodes():
        wrong = _wrong_with_node(graph, node, provided)
        number = (node.attribute("generator"), node.attribute("sequence"))
        if wrong is None and number[1] is not None:
            if draws.setdefault(number, node) is not node:
                wrong = f"draw {number[1]} of generator {number[0]} happens twice"
        if wrong is not None:
            _fail(graph, node, wrong)
    for k, output in enumerate(graph.outputs):
        wrong = _wrong_with_output(graph, k)
        if wrong is not None:
            _fail(graph, output.node, wrong)


def provided_symbols(graph: Graph) -> set[str]:
    """The call's symbols, and those that are sizes or strides of its tensors."""
    names = set(graph.symbols)
    for leaf in graph.inputs:
        if leaf is not None:
            names |= symbols_of(leaf)
    return names


def _wrong_with_node(graph: Graph, node: Node, provided: set[str]) -> str | None:
    if node.dtype not in DTYPES:
        return f"unknown dtype {node.dtype!r}"
    unknown = symbols_of(node) - provided
    if unknown:
        return f"symbols {', '.join(sorted(unknown))} are not the graph's"
    if node.is_input or node.is_scalar:
        leaves = graph.inputs if node.is_input else graph.scalars
        if node not in leaves:
            return f"{node.op} is not one of the graph's"
        if node.is_scalar and (node.dtype not in SCALAR_DTYPES or node.shape):
            return "a run-time scalar is f64, i64, bool or c128, without dimensions"
        return None
    if node.op == "absent":  # an output that this class of calls does not have
        return None
    if node.op not in TYPE_RULES:
        return f"unknown primitive {node.op!r}"
    try:
        dtype, shape = inferred_type(node)
    except (KeyError, IndexError, TypeError, ValueError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}"
    if dtype != node.dtype:
        return f"is {node.dtype}, its operands give {dtype}"
    with environment(AssumedSizes()):
        if not same_shape(shape, node.shape):
            return f"is {node!r}, its operands give {shape}"
    return None


def _wrong_with_output(graph: Graph, k: int) -> str | None:
    output = graph.outputs[k]
    if output.strides is not None and len(output.strides) != output.node.ndim:
        return f"output {k} has strides {output.strides} for {output.node!r}"
    for role, slot in (("target", output.target), ("alias", output.alias)):
        if slot is None:
            continue
        if not 0 <= slot < len(graph.inputs) or graph.inputs[slot] is None:
            return f"output {k} has {role} {slot}, which is no tensor of the call"
    if output.target is not None:
        destination = graph.inputs[output.target]
        assert destination is not None
        if destination.dtype != output.node.dtype:
            return f"output {k} writes {output.node!r} to {destination!r}"
    return None


def quoted(lines: Sequence[str], at: int) -> str:
    """A line that is wrong, marked, and up to `QUOTED_LINES` on each side of it."""
    first = max(0, at - QUOTED_LINES)
    return "\n".join(
        f"{'>' if number == at else ' '} {text}"
        for number, text in enumerate(lines[first : at + QUOTED_LINES + 1], first)
    )


def _fail(graph: Graph, node: Node, problem: str) -> None:
    """Raise with the lines around the node's own."""
    with importing:
        from flambeau.ir.printer import print_lines

    lines, line_of = print_lines(graph)
    raise GraphError(
        f"[{graph.name}] {node.op}: {problem}\n{quoted(lines, line_of.get(node, 0))}\n"
        "hint: the stage before this check built a wrong node"
    )
