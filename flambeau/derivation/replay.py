"""Replay: a Graph built again on other operands, sizes and run-time numbers.

Used wherever a traced program becomes part of another: a backward Graph in its op, the ops of a
recorded stream. Sizes are substituted, not inferred again, so a replay costs about one look-up per
node. Draws of random numbers are numbered anew, in their old order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.environment import current_environment, next_sequence, same_shape
from flambeau.ir.node import Attributes, Graph, Node, attributes, node
from flambeau.ir.size import Size, SizeExpr, free_symbols, substitute
from flambeau.prims.common import is_constant, show
from flambeau.prims.record import PRIMITIVES, Linearity, record_of

Operand = Node | None
Form = tuple[Attributes, tuple[Size, ...]]
FORMS = 16  # bindings of sizes of which a program stores its nodes' forms


def replay(
    graph: Graph,
    tensor_nodes: Sequence[Operand],
    scalar_nodes: Sequence[Node] = (),
    symbol_values: Mapping[str, Size] | None = None,
    generators: Sequence[int] | None = None,
    whole: bool = False,
) -> list[Operand]:
    """Return the nodes of the graph's outputs on new operands.

    Args:
        graph: the program.
        tensor_nodes: one node per tensor slot. None is an absent optional, or a gradient that is
            zero: what depends on it linearly vanishes, and outputs may be None.
        scalar_nodes: one node per scalar slot.
        symbol_values: sizes that stand for the graph's symbols; those that are the plain size of
            a dimension of an input are read off the operands where not given.
        generators: new generator slot per generator slot; default: the same.
        whole: the graph is the whole program. Computed sizes that its operands are found to have
            (`s0//4`) become their symbols; in a part of a program equal values would differ.

    Raises:
        ValueError: if an operand's dtype or shape, or a number's dtype, is not what the graph was
            traced on.
    """
    sizes = _Sizes(bind_symbols(graph, tensor_nodes, symbol_values))
    tensor_nodes = _fitted_operands(graph, tensor_nodes, sizes)
    sizes = sizes.by_equalities() if whole else sizes
    order = graph.notes.get("order")
    if order is None:
        order = graph.notes["order"] = graph.nodes()
    sequences = _renumber(order)
    values: dict[Node, Operand] = {}
    for current, form in zip(order, _forms(graph, order, sizes), strict=True):
        if current.is_input:
            values[current] = tensor_nodes[current.attribute("slot")]
        elif current.is_scalar:
            values[current] = _fitted_number(graph, current, scalar_nodes)
        elif record_of(current).kind == "random":
            values[current] = _draw(current, values, sizes, sequences[current], generators)
        else:
            values[current] = _rebuild(current, form, values, sizes)
    return [values[output.node] for output in graph.outputs]


def bind_symbols(
    graph: Graph, tensor_nodes: Sequence[Operand], bindings: Mapping[str, Size] | None = None
) -> dict[str, Size]:
    """Return the symbols' new values: the given ones, then sizes of the operands."""
    values = dict(bindings or {})
    for old, new in zip(graph.inputs, tensor_nodes):
        if old is None or new is None:
            continue
        for before, after in zip(old.shape, new.shape):
            if isinstance(before, SizeExpr) and before.kind == "symbol":
                values.setdefault(before.name, after)
    return values


class _Sizes:
    """Substitution of symbols, remembered.

    Attributes:
        values: by symbol.
        environment: whose equalities are applied, too; None where symbols say them all.
    """

    def __init__(self, values: dict[str, Size], environment: Any = None) -> None:
        self.values = {
            name: value
            for name, value in values.items()
            if not (isinstance(value, SizeExpr) and value.name == name)
        }
        self.environment = environment
        self.memo: dict[SizeExpr, Size] = {}

    def by_equalities(self) -> _Sizes:
        """The same with computed sizes that operands were found to have as their symbols."""
        environment = current_environment()
        computed = environment is not None and environment.computed_equalities
        return _Sizes(self.values, environment) if computed else self

    @property
    def key(self) -> tuple[Any, ...]:
        """Differs where equalities may."""
        environment = self.environment
        return () if environment is None else (environment, environment.equalities)

    def size(self, value: Size) -> Size:
        if isinstance(value, int):
            return value
        replaced = self.memo.get(value)
        if replaced is None:
            replaced = substitute(value, self.values)
            if self.environment is not None:
                replaced = self.environment.resolve(replaced)
            self.memo[value] = replaced
        return replaced

    def tuple(self, values: Sequence[Size]) -> tuple[Size, ...]:
        return tuple([v if type(v) is int else self.size(v) for v in values])

    def attribute(self, value: Any) -> Any:
        if isinstance(value, SizeExpr):
            return self.size(value)
        if type(value) is tuple:
            return tuple([self.attribute(v) for v in value])
        return value

    def attributes(self, pairs: Attributes) -> Attributes:
        return tuple([(name, self.attribute(value)) for name, value in pairs])


def _forms(graph: Graph, order: Sequence[Node], sizes: _Sizes) -> list[Form]:
    """Attributes and shape of every node under new sizes.

    Equal layers of a model replay the same programs on the same sizes, so they are stored.
    """
    names = graph.notes.get("sizes")
    if names is None:
        names = graph.notes["sizes"] = _names_in(order)
    stored: dict[tuple[Any, ...], list[Form]] = graph.notes.setdefault("forms", {})
    key = (*[sizes.values.get(name) for name in names], *sizes.key)
    forms = stored.get(key)
    if forms is None:
        forms = [(sizes.attributes(x.attributes), sizes.tuple(x.shape)) for x in order]
        if len(stored) >= FORMS:
            stored.clear()
        stored[key] = forms
    return forms


def _names_in(order: Sequence[Node]) -> tuple[str, ...]:
    """The symbols that shapes and attributes mention."""
    names: dict[str, None] = {}
    stack: list[Any] = [part for x in order for part in (x.shape, x.attributes)]
    while stack:
        value = stack.pop()
        if isinstance(value, SizeExpr):
            names.update(dict.fromkeys(free_symbols(value)))
        elif type(value) is tuple:
            stack.extend(value)
    return tuple(names)


def _fitted_operands(graph: Graph, tensor_nodes: Sequence[Operand], sizes: _Sizes) -> list[Operand]:
    """The operands, with sizes of 1 where the program was traced on such."""
    fitted = list(tensor_nodes)
    for slot, (old, new) in enumerate(zip(graph.inputs, tensor_nodes, strict=True)):
        if old is None or new is None:
            continue
        expected = sizes.tuple(old.shape)
        if new.dtype == old.dtype and new.shape == expected:
            continue
        if new.dtype != old.dtype or not same_shape(new.shape, expected):
            raise ValueError(
                f"[{graph.name}] tensor {slot} is {new.dtype}{show(new.shape)}, the program was "
                f"traced on {old.dtype}{show(expected)}\nhint: trace it again for these operands"
            )
        fitted[slot] = _with_ones(new, expected)
    return fitted


def _fitted_number(graph: Graph, leaf: Node, scalar_nodes: Sequence[Node]) -> Node:
    """The number in a scalar's place; all that was derived from the scalar relies on its dtype.

    The core represents truth values as integers.
    """
    slot = leaf.attribute("slot")
    number: Node = scalar_nodes[slot]
    if (number.dtype, leaf.dtype) == ("i64", "bool"):
        return prims.cast(number, "bool")
    if number.dtype != leaf.dtype:
        raise ValueError(
            f"[{graph.name}] number {slot} is {number.dtype}, the program was traced on "
            f"{leaf.dtype}\nhint: trace it again for this number"
        )
    return number


def _with_ones(operand: Node, expected: Sequence[Size]) -> Node:
    """The operand, whose sizes that only a guard says are 1 become it: they may be stretched."""
    for dimension, (size, extent) in enumerate(zip(operand.shape, expected, strict=True)):
        if isinstance(size, SizeExpr) and isinstance(extent, int) and extent == 1:
            operand = prims.slice(operand, dimension, 0, 1)
    return operand


def _renumber(order: Sequence[Node]) -> dict[Node, int]:
    draws = [x for x in order if record_of(x).kind == "random"]
    draws.sort(key=lambda x: int(x.attribute("sequence")))
    return {x: next_sequence() for x in draws}


def _rebuild(current: Node, form: Form, values: Mapping[Node, Operand], sizes: _Sizes) -> Operand:
    operands = tuple([values[x] for x in current.inputs])
    constants, shape = form
    if None in operands:
        result = _remainder(current, operands)
        if not isinstance(result, bool):
            return result
        if result:
            return None
        operands = tuple(_present(v, x, sizes) for v, x in zip(operands, current.inputs))
    elif operands == current.inputs and (constants, shape) == (current.attributes, current.shape):
        return current
    present: Any = operands
    return node(current.op, present, constants, current.dtype, shape, current.source)


def _draw(
    current: Node,
    values: Mapping[Node, Operand],
    sizes: _Sizes,
    sequence: int,
    generators: Sequence[int] | None,
) -> Node:
    slot = current.attribute("generator")
    changed = dict(current.attributes) | {
        "sequence": sequence,
        "generator": slot if generators is None else generators[slot],
        "shape": sizes.tuple(current.shape),
    }
    if "draws" in changed:
        changed["draws"] = sizes.tuple(current.attribute("draws"))
    operands = tuple(_present(values[x], x, sizes) for x in current.inputs)
    return node("random", operands, attributes(**changed), current.dtype, changed["shape"])


def _present(value: Operand, old: Node, sizes: _Sizes) -> Node:
    """The operand, as zeros if it is absent."""
    return prims.full(0, sizes.tuple(old.shape), old.dtype) if value is None else value


# ------------------------------------------------------------------------------------ absent values
# The result of a node with absent (zero) operands, by the linearity of its primitive: True: it is
# absent too; a node: its replacement; False: it is computed with zeros.

Remainder = Callable[[Node, tuple[Operand, ...]], "Node | bool"]


def _remainder(current: Node, operands: tuple[Operand, ...]) -> Node | bool:
    record = PRIMITIVES.get(current.op)
    if record is None or record.linear is None:
        return False
    return _REMAINDERS[record.linear](current, operands)


def _of_sum(current: Node, operands: tuple[Operand, ...]) -> Node | bool:
    first, second = operands
    if first is None:
        return True if second is None else second
    return first


def _of_difference(current: Node, operands: tuple[Operand, ...]) -> Node | bool:
    first, second = operands
    if first is None:
        return True if second is None else prims.neg(second)
    return first


def _of_write(current: Node, operands: tuple[Operand, ...]) -> Node | bool:
    base, source = operands[0], operands[-1]
    mode = current.attribute("mode", "add")
    if mode not in ("add", "set"):
        return False
    if _is_zero(base):
        return _is_zero(source)
    return base if mode == "add" and base is not None else False


def _is_zero(operand: Operand) -> bool:
    return operand is None or is_constant(operand, 0)


_REMAINDERS: dict[Linearity, Remainder] = {
    "each": lambda current, operands: True,
    "first": lambda current, operands: operands[0] is None,
    "last": lambda current, operands: operands[-1] is None,
    "joint": lambda current, operands: all(map(_is_zero, operands)),
    "choice": lambda current, operands: all(map(_is_zero, operands[1:])),
    "sum": _of_sum,
    "difference": _of_difference,
    "write": _of_write,
}
