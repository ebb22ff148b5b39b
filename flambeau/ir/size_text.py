"""Sizes and conditions read back from their Python texts.

Only texts of Graphs are read, by tests and tools, so that importing the package does not load the
parser of Python's syntax.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from flambeau.ir.size import Size, add, floordiv, maximum, minimum, mod, mul, sub, symbol
from flambeau.ir.size_program import Truth, and_, eq, ge, gt, le, lt, ne, not_, or_


def parse_size(text: str, symbols: Mapping[str, Size] | None = None) -> Size:
    """Read a size back from its Python text.

    Args:
        text: integers, names, `+ - * // %`, `min(...)`, `max(...)` and parentheses.
        symbols: what names stand for; other names become `symbol(name)`.

    Raises:
        ValueError: if the text is anything else.
    """
    return _size_of(_tree(text, "an expression"), symbols or {})


def _tree(text: str, title: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"[size] not {title}: {text!r}") from error


_BINARY: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}


def _size_of(tree: ast.expr, symbols: Mapping[str, Size]) -> Size:
    """Return the size a Python syntax tree describes; `parse_size` has the rules."""
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return symbols[name] if name in symbols else symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_size_of(operand, symbols)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_size_of(left, symbols), _size_of(right, symbols))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=operands, keywords=[]):
            sizes = [_size_of(operand, symbols) for operand in operands]
            return minimum(*sizes) if name == "min" else maximum(*sizes)
    raise ValueError(f"[size] not part of a size: {ast.unparse(tree)!r}")


def parse_condition(text: str, symbols: Mapping[str, Size] | None = None) -> Truth:
    """Read a condition back from its Python text; see `parse_size` for sizes in it.

    Raises:
        ValueError: if the text is anything else.
    """
    return _condition_of(_tree(text, "a condition"), symbols or {})


def _condition_of(tree: ast.expr, symbols: Mapping[str, Size]) -> Truth:
    comparisons = {ast.Eq: eq, ast.NotEq: ne, ast.Lt: lt, ast.LtE: le, ast.Gt: gt, ast.GtE: ge}
    match tree:
        case ast.Constant(value=bool(value)):
            return value
        case ast.BoolOp(op=op, values=values):
            parts = [_condition_of(value, symbols) for value in values]
            return and_(*parts) if isinstance(op, ast.And) else or_(*parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not_(_condition_of(operand, symbols))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in comparisons:
            sizes = _size_of(left, symbols), _size_of(right, symbols)
            return comparisons[type(op)](*sizes)
    raise ValueError(f"[size] not part of a condition: {ast.unparse(tree)!r}")
