"""Graphs as runnable Python, and back: `parse_graph(print_graph(g))` has the very same nodes.

    s0 = symbol("s0", minimum=2)

    @program(symbols=("s0",))
    def graph(x0: tensor("f32", (s0, 128), strides=(128, 1))):
        v0 = prims.exp(x0)  # f32[s0, 128]  train.py:12
        return [output(v0, strides=(128, 1))]

The text is checked to be nothing but such definitions before it is run, without builtins. Types are
inferred again, from `graph_grammar.TYPE_RULES`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable
from typing import Any

from flambeau.ir import graph_grammar
from flambeau.ir.environment import environment
from flambeau.ir.node import Graph, GraphOutput, Node, attributes, node
from flambeau.ir.size import Size, SizeExpr, maximum, minimum, symbol
from flambeau.ir.size_program import stringify_condition
from flambeau.ir.size_text import parse_condition


def print_graph(graph: Graph) -> str:
    """Return the graph as Python text that `parse_graph` reads."""
    return "\n".join(print_lines(graph)[0]) + "\n"


def print_lines(graph: Graph) -> tuple[list[str], dict[Node, int]]:
    """Return the lines of the text, and each node's line number."""
    order = graph.nodes()
    names: dict[Node, str] = {}
    lines = [*_symbol_lines(graph, order), *_head(graph), f"def {_function_name(graph)}("]
    line_of: dict[Node, int] = {}
    for slot, leaf in enumerate(graph.inputs):
        if leaf is not None:
            names[leaf], line_of[leaf] = f"x{slot}", len(lines)
        lines.append(f"    x{slot}: {_leaf(leaf)},")
    for slot, leaf in enumerate(graph.scalars):
        names[leaf], line_of[leaf] = f"a{slot}", len(lines)
        lines.append(f"    a{slot}: {_leaf(leaf)},")
    lines.append("):")
    for current in order:
        if current not in names:
            names[current], line_of[current] = f"v{len(line_of)}", len(lines)
            lines.append(f"    {names[current]} = {_call(current, names)}  # {_comment(current)}")
    lines.append("    return [")
    lines += [f"        {_output(graph, k, names)}," for k in range(len(graph.outputs))]
    lines.append("    ]")
    return lines, line_of


def _function_name(graph: Graph) -> str:
    return graph.name if graph.name.isidentifier() else "graph"


def _symbol_lines(graph: Graph, order: Iterable[Node]) -> list[str]:
    """Definitions of all symbols, whose extents may use earlier ones."""
    symbols: dict[str, SizeExpr] = {}

    def visit(value: Size) -> None:
        if isinstance(value, int):
            return
        if value.kind == "symbol":
            visit(value.extent if value.extent is not None else 0)
            symbols.setdefault(value.name, value)
        elif value.kind == "sum":
            for monomial in value.terms:
                for atom in monomial:
                    visit(atom)
        else:
            for operand in value.operands:
                visit(operand)

    leaves = [leaf for leaf in graph.inputs if leaf is not None]
    for current in (*leaves, *order):
        constants = tuple(value for _, value in current.attributes)
        for size in graph_grammar.sizes_in((current.shape, constants)):
            visit(size)
    for output in graph.outputs:
        for size in graph_grammar.sizes_in((output.strides, output.offset)):
            visit(size)
    for guard in graph.guards:
        for side in _condition_sizes(guard):
            visit(side)
    return [f"{name} = {_symbol(value)}" for name, value in symbols.items()]


def _condition_sizes(guard: Any) -> list[Size]:
    if isinstance(guard, bool):
        return []
    if guard.conditions:
        return [size for part in guard.conditions for size in _condition_sizes(part)]
    return [guard.left, guard.right]


def _symbol(value: SizeExpr) -> str:
    extent = "" if value.extent is None else f", extent={value.extent}"
    return f'symbol("{value.name}", minimum={value.least}{extent})'


def _head(graph: Graph) -> list[str]:
    arguments = [] if graph.name == _function_name(graph) else [f"name={graph.name!r}"]
    if graph.symbols:
        arguments.append(f"symbols={graph.symbols!r}")
    if graph.guards:
        guards = tuple(stringify_condition(guard) for guard in graph.guards)
        arguments.append(f"guards={guards!r}")
    if graph.generators:
        arguments.append(f"generators={graph.generators}")
    return [f"@program({', '.join(arguments)})"]


def _leaf(leaf: Node | None) -> str:
    if leaf is None:
        return "absent()"
    if leaf.is_scalar:
        return f'scalar("{leaf.dtype}")'
    strides = literal(leaf.attribute("strides"))
    return f'tensor("{leaf.dtype}", {literal(leaf.shape)}, strides={strides})'


def literal(value: Any) -> str:
    """Return an attribute's value as an expression."""
    if isinstance(value, tuple):
        inner = ", ".join(map(literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, complex):
        return f"complex({value.real!r}, {value.imag!r})"
    return str(value) if isinstance(value, SizeExpr) else repr(value)


def _call(current: Node, names: dict[Node, str]) -> str:
    arguments = [names[x] for x in current.inputs]
    arguments += [f"{key}={literal(value)}" for key, value in current.attributes]
    call = f"prims.{current.op}({', '.join(arguments)})"
    try:
        inferred = graph_grammar.inferred_type(current)
    except Exception:  # a wrong node must print too: the verifier quotes it
        inferred = None
    if inferred == (current.dtype, current.shape):
        return call
    return f"typed({call}, {current.dtype!r}, {literal(current.shape)})"


def _comment(current: Node) -> str:
    shape = ", ".join(map(str, current.shape))
    return f"{current.dtype}[{shape}]" + (f"  {current.source}" if current.source else "")


def _output(graph: Graph, k: int, names: dict[Node, str]) -> str:
    output = graph.outputs[k]
    arguments = [names[output.node]]
    for key in ("strides", "target", "alias"):
        if getattr(output, key) is not None:
            arguments.append(f"{key}={literal(getattr(output, key))}")
    if not (isinstance(output.offset, int) and output.offset == 0):
        arguments.append(f"offset={literal(output.offset)}")
    return f"{'output' if k < graph.visible else 'saved'}({', '.join(arguments)})"


# --------------------------------------------------------------------------------------------------
# Reading


def parse_graph(text: str) -> Graph:
    """Return the graph that a text of `print_graph` describes.

    Raises:
        ValueError: if the text is anything else than symbols and one program.
    """
    tree = ast.parse(text)
    _check(tree)
    namespace = _namespace()
    namespace["__builtins__"] = {}
    with environment(graph_grammar.AssumedSizes()):
        exec(compile(tree, "<graph>", "exec", dont_inherit=True), namespace)
    graphs = [value for value in namespace.values() if isinstance(value, Graph)]
    if len(graphs) != 1:
        raise ValueError(f"[parse_graph] {len(graphs)} programs\nhint: the text must hold one")
    return graphs[0]


_ALLOWED = (
    ast.Module,
    ast.FunctionDef,
    ast.arguments,
    ast.arg,
    ast.Assign,
    ast.Return,
    ast.List,
    ast.Tuple,
    ast.Call,
    ast.keyword,
    ast.Attribute,
    ast.Name,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
)


def _check(tree: ast.Module) -> None:
    for part in ast.walk(tree):
        wrong = not isinstance(part, _ALLOWED)
        if isinstance(part, ast.Attribute):
            # Only `prims.name`: nothing else has attributes here.
            plain = isinstance(part.value, ast.Name) and part.value.id == "prims"
            wrong = not plain or part.attr.startswith("_")
        if isinstance(part, ast.Name):
            wrong = part.id.startswith("__")
        if wrong:
            line = getattr(part, "lineno", "?")
            raise ValueError(
                f"[parse_graph] {type(part).__name__} in line {line} is no part of a graph\n"
                "hint: parse only what print_graph printed"
            )


class _Primitives:
    """`prims.name(...)` in a text: the exact node, not the simplifying constructor."""

    def __getattr__(self, name: str) -> Callable[..., Node]:
        def build(*operands: Node, **constants: Any) -> Node:
            dtype: str = "f32"
            shape: tuple[Size, ...] = ()
            if name in graph_grammar.TYPE_RULES:
                dtype, shape = graph_grammar.TYPE_RULES[name](operands, constants)
            return node(name, operands, attributes(**constants), dtype, shape)

        return build


class _Leaf:
    """An annotation of a program's parameter."""

    def __init__(self, kind: str, dtype: str = "", shape: Any = (), strides: Any = ()) -> None:
        self.kind, self.dtype, self.shape, self.strides = kind, dtype, shape, strides

    def node(self, slot: int) -> Node | None:
        if self.kind == "absent":
            return None
        if self.kind == "scalar":
            return node("scalar", (), attributes(slot=slot), self.dtype, ())
        packed = attributes(slot=slot, strides=self.strides)
        return node("input", (), packed, self.dtype, self.shape)


def _typed(value: Node, dtype: str, shape: tuple[Size, ...]) -> Node:
    return node(value.op, value.inputs, value.attributes, dtype, shape)


def _program(
    name: str | None = None,
    symbols: tuple[str, ...] = (),
    guards: tuple[str, ...] = (),
    generators: int = 0,
    namespace: dict[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Graph]:
    def build(function: Callable[..., Any]) -> Graph:
        leaves = list(function.__annotations__.values())
        tensors = [leaf for leaf in leaves if leaf.kind != "scalar"]
        inputs = tuple(leaf.node(slot) for slot, leaf in enumerate(tensors))
        numbers = tuple(x.node(k) for k, x in enumerate(leaves[len(tensors) :]))
        results = function(*inputs, *numbers)
        sizes = {n: v for n, v in (namespace or {}).items() if isinstance(v, SizeExpr)}
        return Graph(
            symbols=symbols,
            inputs=inputs,
            scalars=numbers,
            outputs=tuple(output for output, _ in results),
            visible=sum(seen for _, seen in results),
            guards=tuple(parse_condition(guard, sizes) for guard in guards),
            generators=generators,
            name=name or function.__name__,
        )

    return build


def _result(visible: bool) -> Callable[..., tuple[GraphOutput, bool]]:
    def build(value: Node, **geometry: Any) -> tuple[GraphOutput, bool]:
        return GraphOutput(value, **geometry), visible

    return build


def _namespace() -> dict[str, Any]:
    namespace: dict[str, Any] = {
        "prims": _Primitives(),
        "symbol": symbol,
        "min": minimum,
        "max": maximum,
        "nan": math.nan,
        "inf": math.inf,
        "complex": complex,
        "typed": _typed,
        "absent": lambda: _Leaf("absent"),
        "scalar": lambda dtype: _Leaf("scalar", dtype),
        "tensor": lambda dtype, shape, strides: _Leaf("tensor", dtype, shape, strides),
        "output": _result(True),
        "saved": _result(False),
    }
    namespace["program"] = lambda **options: _program(**options, namespace=namespace)
    return namespace
