"""The one node of every program Flambeau builds: immutable, hash-consed, printable.

Three grammars are written over it (`graph_grammar`, `kernel_grammar`, `plan_grammar`): a node's
`op` says which. This module must not know what any op means, nor PyTorch's API.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from flambeau.ir.dtypes import ITEM_SIZE as ITEM_SIZE
from flambeau.ir.dtypes import NAMES
from flambeau.ir.lock import fork_safe_lock
from flambeau.ir.size import Size

DTYPES = NAMES
Attributes = tuple[tuple[str, Hashable], ...]

# Operator overloading (`a + b` in an op's body) is installed by `flambeau.prims`, which knows the
# primitives; the node class itself only looks the name up here.
OPERATORS: dict[str, Callable[..., Node]] = {}

_table: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()
_references: dict[tuple[Any, ...], weakref.ref[Node]] = _table.data  # type: ignore[attr-defined]
_making = fork_safe_lock(level=3)  # two threads that meet a new structure at once must get one node


class Node:
    """One value of a program: `op` applied to `inputs` with constant `attributes`.

    Structural equality is identity: build nodes with `node(...)` only.

    Attributes:
        op: name of a primitive (tensor graph) or of a kernel/plan construct.
        inputs: operand nodes.
        attributes: sorted pairs of constant (hashable) arguments.
        dtype: element type, one of `DTYPES`.
        shape: sizes, ints or size expressions; `()` for scalars.
    """

    __slots__ = ("__weakref__", "attributes", "dtype", "inputs", "op", "shape", "source")

    op: str
    inputs: tuple[Node, ...]
    attributes: Attributes
    dtype: str
    shape: tuple[Size, ...]
    source: str | None  # user's "file:line", not part of identity

    __hash__ = object.__hash__  # equality is identity: nodes are hash-consed
    __eq__ = object.__eq__

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_input(self) -> bool:
        """Whether the node is a tensor of the graph's call."""
        return self.op == "input"

    @property
    def is_scalar(self) -> bool:
        """Whether the node is a run-time number of the graph's call."""
        return self.op == "scalar"

    def attribute(self, name: str, default: Any = None) -> Any:
        """The constant argument `name`, or `default`."""
        for key, value in self.attributes:
            if key == name:
                return value
        return default

    def __repr__(self) -> str:
        shape = ", ".join(str(s) for s in self.shape)
        return f"<{self.op} {self.dtype}[{shape}]>"

    # fmt: off
    def __add__(self, other: Any) -> Node: return OPERATORS["add"](self, other)
    def __radd__(self, other: Any) -> Node: return OPERATORS["add"](other, self)
    def __sub__(self, other: Any) -> Node: return OPERATORS["sub"](self, other)
    def __rsub__(self, other: Any) -> Node: return OPERATORS["sub"](other, self)
    def __mul__(self, other: Any) -> Node: return OPERATORS["mul"](self, other)
    def __rmul__(self, other: Any) -> Node: return OPERATORS["mul"](other, self)
    def __truediv__(self, other: Any) -> Node: return OPERATORS["div"](self, other)
    def __rtruediv__(self, other: Any) -> Node: return OPERATORS["div"](other, self)
    def __pow__(self, other: Any) -> Node: return OPERATORS["pow"](self, other)
    def __rpow__(self, other: Any) -> Node: return OPERATORS["pow"](other, self)
    def __neg__(self) -> Node: return OPERATORS["neg"](self)
    def __abs__(self) -> Node: return OPERATORS["abs"](self)
    def __and__(self, other: Any) -> Node: return OPERATORS["bitwise_and"](self, other)
    def __or__(self, other: Any) -> Node: return OPERATORS["bitwise_or"](self, other)
    def __xor__(self, other: Any) -> Node: return OPERATORS["bitwise_xor"](self, other)
    def __invert__(self) -> Node: return OPERATORS["bitwise_not"](self)
    def __lt__(self, other: Any) -> Node: return OPERATORS["lt"](self, other)
    def __le__(self, other: Any) -> Node: return OPERATORS["le"](self, other)
    def __gt__(self, other: Any) -> Node: return OPERATORS["gt"](self, other)
    def __ge__(self, other: Any) -> Node: return OPERATORS["ge"](self, other)
    # fmt: on


def node(
    op: str,
    inputs: Iterable[Node] = (),
    attributes: Attributes = (),
    dtype: str = "f32",
    shape: tuple[Size, ...] = (),
    source: str | None = None,
) -> Node:
    """Returns the one node of this structure (creates it on first sight)."""
    inputs = tuple(inputs)
    key = (op, inputs, attributes, dtype, shape)
    reference = _references.get(key)  # `_table.get` without its call
    if reference is not None:
        existing = reference()
        if existing is not None:
            return existing
    new = Node()
    new.op, new.inputs, new.attributes, new.dtype, new.shape = key
    new.source = source
    with _making:
        existing = _table.get(key)
        if existing is not None:
            return existing
        _table[key] = new
    return new


class Form:
    """A construct of a grammar that is no primitive: builds its nodes, and recognises them.

    Args:
        name: the `op` of its nodes.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self,
        inputs: Iterable[Node] = (),
        attributes: Attributes = (),
        dtype: str = "f32",
        shape: tuple[Size, ...] = (),
    ) -> Node:
        """The node of this form."""
        return node(self.name, inputs, attributes, dtype, shape)

    def matches(self, value: Node) -> bool:
        """Whether a node has this form."""
        return value.op == self.name


def attributes(**values: Hashable) -> Attributes:
    """Constant arguments in canonical (sorted) order."""
    return tuple(sorted(values.items()))


class GraphOutput(NamedTuple):
    """One result of a graph.

    Attributes:
        node: the value.
        strides: element strides of the buffer it is written to; None for an alias or no buffer.
        target: tensor slot whose buffer it overwrites (in-place, `out=`), else None.
        alias: tensor slot it is a view of; then `strides` and `offset` are the view's geometry.
        offset: storage offset of an alias, in elements.
    """

    node: Node
    strides: tuple[Size, ...] | None = None
    target: int | None = None
    alias: int | None = None
    offset: Size = 0


class Graph:
    """An SSA program over tensors; nothing but its notes changes.

    Attributes:
        symbols: names of the size symbols, in the order of the native call's registers.
        inputs: nodes `input` (attributes slot, strides), one per tensor slot; None: absent.
        scalars: nodes `scalar` (attribute slot), run-time numbers, dtype f64 or i64 or bool.
        outputs: results; those from `visible` on exist only for the backward program.
        guards: conditions on the symbols under which this program is valid.
        generators: number of random-generator slots.
        notes: results of analyses, cached by their callers.
    """

    symbols: tuple[str, ...]
    inputs: tuple[Node | None, ...]
    scalars: tuple[Node, ...]
    outputs: tuple[GraphOutput, ...]
    visible: int
    guards: tuple[Any, ...]
    generators: int
    name: str
    notes: dict[str, Any]

    def __init__(
        self,
        symbols: tuple[str, ...],
        inputs: tuple[Node | None, ...],
        scalars: tuple[Node, ...],
        outputs: tuple[GraphOutput, ...],
        visible: int,
        guards: tuple[Any, ...] = (),
        generators: int = 0,
        name: str = "graph",
        notes: dict[str, Any] | None = None,
    ) -> None:
        self.symbols = symbols
        self.inputs = inputs
        self.scalars = scalars
        self.outputs = outputs
        self.visible = visible
        self.guards = guards
        self.generators = generators
        self.name = name
        self.notes = {} if notes is None else notes

    def _fields(self) -> tuple[Any, ...]:
        ends = self.symbols, self.inputs, self.scalars, self.outputs, self.visible
        return (*ends, self.guards, self.generators, self.name)

    def __eq__(self, other: object) -> bool:
        """Whether all but the notes is equal."""
        return self._fields() == other._fields() if isinstance(other, Graph) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def with_outputs(self, outputs: Iterable[GraphOutput]) -> Graph:
        """The same program with other results."""
        others = self.visible, self.guards, self.generators, self.name, self.notes
        return Graph(self.symbols, self.inputs, self.scalars, tuple(outputs), *others)

    def nodes(self) -> list[Node]:
        """Every node, operands before users; each once."""
        return topological(o.node for o in self.outputs)


def topological(roots: Iterable[Node]) -> list[Node]:
    """All nodes that `roots` depend on, operands first; without recursion."""
    done: set[Node] = set()
    order: list[Node] = []
    stack = list(roots)
    stack.reverse()
    while stack:
        current = stack[-1]
        if current in done:
            stack.pop()
            continue
        waiting = [operand for operand in current.inputs if operand not in done]
        if waiting:
            waiting.reverse()
            stack += waiting
        else:
            stack.pop()
            done.add(current)
            order.append(current)
    return order
