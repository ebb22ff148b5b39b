"""The grammar of the scheduler's own nodes, as text and as a check.

    graph    := value*, operands first
    value    := input | scalar | primitive of values
              | s.copy(x)      [alone, strides]  x in memory of its own; alone: in no other's kernel
              | s.part(x)      [number, owner]   x in the memory of the s.cat it is an operand of
              | s.cat(s.part+) [dimension]       the memory that its parts are written to
              | s.base(x)      [owner]           x in the memory that a scatter overwrites
              | s.blocks(x)    [axis, op]        reductions of REDUCE_BLOCK elements of x
    routine  := primitive of (s.base? memory*), with `views`: (strides, offset) of each memory

    element  := s.ref(d*, mask?) [index, masked, target]   an element of a value that is not inlined
              | s.member()       [target]                  a reduction or scan of the same kernel
              | s.check(d)                                 an index, tested where it is used
              | k.index | k.const | k.scalar | k.pair | pointwise primitive of elements
    index    := size over axis symbols and the d* that are bound to the first operands

Values are what `prepare` makes of a graph; elements are what `lower` makes of a value at an index.
Nodes `s.packed`, `s.panels`, `s.parts`, `s.factors`, `s.like` and `s.unused` stand for memory that
launches share; they are in no graph. `verify_values` and `verify_elements` quote the neighbourhood
of what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flambeau.ir.environment import environment, same_shape
from flambeau.ir.geometry import Index, Shape
from flambeau.ir.graph_grammar import TYPE_RULES, AssumedSizes, inferred_type, quoted
from flambeau.ir.kernel import REDUCE_BLOCK, REDUCTIONS
from flambeau.ir.node import Attributes, Form, Node, attributes, topological
from flambeau.ir.size import Size, add, ceildiv, free_symbols

COPY, PART, CAT, BASE, BLOCKS = map(Form, ("s.copy", "s.part", "s.cat", "s.base", "s.blocks"))
REF, MEMBER, CHECK = map(Form, ("s.ref", "s.member", "s.check"))


class ScheduleError(ValueError):
    """A node of the scheduler breaks the grammar; the message quotes its neighbourhood."""


# ------------------------------------------------------------------------------- constructors


def copy(x: Node, alone: bool = False, strides: Shape | None = None) -> Node:
    """A copy of x in memory of its own, dense or with these strides."""
    return COPY((x,), attributes(alone=alone, strides=strides), x.dtype, x.shape)


def concatenation(owner: Node, operands: Sequence[Node]) -> Node:
    """The memory of a concatenation, to which its operands are written one by one."""
    parts = [
        PART((x,), attributes(number=i, owner=owner), x.dtype, x.shape)
        for i, x in enumerate(operands)
    ]
    return CAT(parts, owner.attributes, owner.dtype, owner.shape)


def base(owner: Node, x: Node) -> Node:
    """x in the memory that a scatter overwrites."""
    return BASE((x,), attributes(owner=owner), owner.dtype, owner.shape)


def blocks(x: Node, axis: int, op: str, dtype: str) -> Node:
    """The reductions of the blocks of x along an axis."""
    shape = (*x.shape[:axis], ceildiv(x.shape[axis], REDUCE_BLOCK), *x.shape[axis + 1 :])
    return BLOCKS((x,), attributes(axis=axis, op=op), dtype, shape)


def ref(target: Node, index: Index, inputs: tuple[Node, ...], mask: Node | None) -> Node:
    """Element `index` of a value. `inputs` (i64 elements) are bound to d0, d1, .. in the index;
    where the mask is false, nothing is read."""
    constants: Attributes = (("index", index), ("target", target))
    if mask is not None:
        constants = (("index", index), ("masked", True), ("target", target))
        inputs = (*inputs, mask)
    return REF(inputs, constants, target.dtype)


def member(target: Node) -> Node:
    """The result of a reduction or scan inside its own kernel."""
    return MEMBER((), attributes(target=target), target.dtype)


# ------------------------------------------------------------------------------- text


def numbered(nodes: Iterable[Node]) -> tuple[list[str], dict[Node, int]]:
    """A line per node, and the number of each node's line."""
    lines: list[str] = []
    numbers: dict[Node, int] = {}
    for value in nodes:
        numbers[value] = len(lines)
        operands = "".join(f" {_name(i, numbers)}" for i in value.inputs)
        constants = "".join(f" {key}={_name(item, numbers)}" for key, item in value.attributes)
        shape = ", ".join(str(extent) for extent in value.shape)
        lines.append(f"%{numbers[value]} = {value.op} {value.dtype}[{shape}]{operands}{constants}")
    return lines, numbers


def _name(item: Any, numbers: dict[Node, int]) -> str:
    if isinstance(item, Node):
        return f"%{numbers[item]}" if item in numbers else repr(item)
    return str(item)


# ------------------------------------------------------------------------------- checks


def verify_values(roots: Iterable[Node]) -> None:
    """Checks values that are to be clustered.

    Raises:
        ScheduleError: naming what is wrong, with the lines around it.
    """
    nodes = topological(roots)
    with environment(AssumedSizes()):
        for value in nodes:
            problem = _problem_with_value(value)
            if problem is not None:
                _fail(nodes, value, problem)


def verify_elements(roots: Iterable[Node], symbols: frozenset[str]) -> None:
    """Checks elements whose indices are written in these symbols and the graph's sizes.

    Raises:
        ScheduleError: naming what is wrong, with the lines around it.
    """
    nodes = topological(roots)
    for value in nodes:
        problem = _problem_with_element(value, symbols)
        if problem is not None:
            _fail(nodes, value, problem)


def _fail(nodes: Sequence[Node], value: Node, problem: str) -> None:
    lines, numbers = numbered(nodes)
    raise ScheduleError(
        f"[schedule] {value.op}: {problem}\n{quoted(lines, numbers[value])}\n"
        "hint: the stage before this check built a wrong node"
    )


def _problem_with_value(value: Node) -> str | None:
    rule = _VALUES.get(value.op)
    if rule is not None:
        return rule(value)
    if value.is_input or value.is_scalar:
        return None
    if value.op not in TYPE_RULES:
        return "is no value"
    views = value.attribute("views")
    if views is not None:
        return _problem_with_routine(value, views)
    dtype, shape = inferred_type(value)
    if dtype != value.dtype or not same_shape(shape, value.shape):
        return f"its operands give {dtype} {shape}"
    return None


def _problem_with_routine(value: Node, views: Sequence[tuple[Shape, Size]]) -> str | None:
    bases = sum(BASE.matches(operand) for operand in value.inputs)
    if bases + len(views) != len(value.inputs):
        return f"{len(views)} views of {len(value.inputs)} operands"
    if bases and not BASE.matches(value.inputs[0]):
        return "the base is not the first operand"
    return None


def _unary(value: Node) -> str | None:
    if len(value.inputs) != 1:
        return f"{len(value.inputs)} operands"
    operand = value.inputs[0]
    same = operand.dtype == value.dtype and same_shape(operand.shape, value.shape)
    return None if same else f"its operand is {operand!r}"


def _copy(value: Node) -> str | None:
    strides = value.attribute("strides")
    if strides is not None and len(strides) != value.ndim:
        return f"strides {strides}"
    return _unary(value)


def _part(value: Node) -> str | None:
    owner, number = value.attribute("owner"), value.attribute("number")
    if not 0 <= number < len(owner.inputs):
        return f"{owner!r} has no operand {number}"
    return _unary(value)


def _cat(value: Node) -> str | None:
    dimension = value.attribute("dimension")
    extent: Size = 0
    for number, operand in enumerate(value.inputs):
        if not PART.matches(operand) or operand.attribute("number") != number:
            return f"operand {number} is {operand!r}"
        if operand.dtype != value.dtype:
            return f"part {number} is {operand.dtype}"
        extent = add(extent, operand.shape[dimension])
    shape = (*value.shape[:dimension], extent, *value.shape[dimension + 1 :])
    return None if same_shape(shape, value.shape) else f"its parts give {shape}"


def _blocks(value: Node) -> str | None:
    if len(value.inputs) != 1:
        return f"{len(value.inputs)} operands"
    axis, op = value.attribute("axis"), value.attribute("op")
    if op not in REDUCTIONS or not 0 <= axis < value.ndim:
        return f"reduction {op} along {axis}"
    shape = blocks(value.inputs[0], axis, op, value.dtype).shape
    return None if same_shape(shape, value.shape) else f"its operand gives {shape}"


_VALUES: dict[str, Callable[[Node], str | None]] = {
    COPY.name: _copy,
    PART.name: _part,
    CAT.name: _cat,
    BASE.name: _unary,
    BLOCKS.name: _blocks,
}


def _problem_with_element(value: Node, symbols: frozenset[str]) -> str | None:
    if value.shape:
        return f"an element of shape {value.shape}"
    if REF.matches(value):
        return _ref(value, symbols)
    if MEMBER.matches(value):
        return None if not value.inputs else "takes no operands"
    if CHECK.matches(value):
        return None if value.dtype == "i64" else "an index is i64"
    if value.op in _VALUES:
        return "is no element"
    return None


def _ref(value: Node, symbols: frozenset[str]) -> str | None:
    target, index = value.attribute("target"), value.attribute("index")
    data = value.inputs
    if value.attribute("masked"):
        data, mask = value.inputs[:-1], value.inputs[-1]
        if mask.dtype != "bool":
            return f"its mask is {mask.dtype}"
    if any(operand.dtype != "i64" for operand in data):
        return "data-dependent indices are i64"
    if value.dtype != target.dtype or len(index) != target.ndim:
        return f"index {index} of {target!r}"
    bound = {f"d{number}" for number in range(len(data))}
    unbound = {name for part in index for name in free_symbols(part)} - symbols - bound
    return f"{sorted(unbound)} are not bound" if unbound else None
