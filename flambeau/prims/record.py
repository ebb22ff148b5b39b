"""What a primitive is: one record with everything the compiler may ask about it.

All lists (fusable, differentiable, exportable ...) are computed from these records; the
completeness test fails on a missing cell. Nothing here knows PyTorch's API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from flambeau.ir.environment import source_line
from flambeau.ir.graph_grammar import TYPE_RULES
from flambeau.ir.node import Attributes, Node, attributes, node
from flambeau.ir.size import Size
from flambeau.ir.spelling import SPELLINGS, Spelling

Kind = Literal[
    "create",  # no tensor operand: full, iota, scalar: an expression of the index
    "pointwise",  # same shape in and out; strict: operands broadcast and cast beforehand
    "shape",  # out[index] = in[map(index)]: broadcast, reshape, permute, slice, flip, pad, cat
    "reduce",  # over one group of adjacent dimensions, canonical order
    "scan",  # running reduction along one dimension
    "index",  # data-dependent reads: gather
    "scatter",  # data-dependent writes, deterministic order
    "random",  # draws from a generator stream, ordered by attribute `sequence`
    "routine",  # native: matmul, sort, ...
    "annotation",  # with_derivative: simplified away before scheduling
]

# In which operands a primitive is linear, others held fixed: where those are zero, so is the result
# (`autograd/replay.py`); of a single operand, tangents pass as values do (`transforms/forward.py`).
Linearity = Literal[
    "each",  # in every operand by itself: a product, or a map of one operand
    "first",  # in the first operand: the others are places or divisors
    "last",  # in the last operand: the others are factors
    "joint",  # in all operands together: they are arranged side by side
    "sum",  # a + b
    "difference",  # a - b
    "choice",  # in all operands but the first, a condition, together
    "write",  # in (base, *places, source), while the attribute `mode` is "add" or "set"
]

NOT_DIFFERENTIABLE = "not differentiable"  # gradient is zero or undefined everywhere (comparisons)

# (grad of output, output, *operands) -> gradient per operand (None: no gradient).
Derivative = Callable[..., Sequence[Node | None]]


class Primitive(NamedTuple):
    """Everything about one primitive.

    Attributes:
        name: the `op` of its nodes.
        kind: how the scheduler treats it.
        infer: (operands, attributes dict) -> (dtype, shape); raises TypeError/ValueError.
        derivative: rule built from primitives, or `NOT_DIFFERENTIABLE`. Called as
            `derivative(grad, out, *operands)` where `out` is the node itself (its attributes
            are at hand) and must return one entry per operand.
        spelling: pointwise: `ir.spelling.Spelling`, how printers write it; routine: routine name;
            shape/index: function (node, index: tuple[Size, ...]) -> operand reads.
        cost: rough operations per element (the fusion and recompute heuristics).
        reference: NumPy function (arrays, attributes) -> array, for tests.
        samples: zero-argument function yielding (operands as nested lists, attributes) for tests.
        linear: in which operands it is linear; None: in none.
    """

    name: str
    kind: Kind
    infer: Callable[[tuple[Node, ...], dict[str, Any]], tuple[str, tuple[Size, ...]]]
    derivative: Derivative | str
    spelling: Any = None
    cost: int = 1
    reference: Callable[..., Any] | None = None
    samples: Callable[[], Any] | None = None
    linear: Linearity | None = None


PRIMITIVES: dict[str, Primitive] = {}


class AlongAxis(Protocol):
    """A primitive of one operand and an axis: a reduction or a scan."""

    def __call__(self, x: Node, axis: int) -> Node:
        """Build the node."""


def register(primitive: Primitive) -> Primitive:
    """Adds a record to the table; a name may be taken once."""
    if primitive.name in PRIMITIVES:
        raise ValueError(f"[prims] {primitive.name} is defined twice\nhint: choose another name")
    PRIMITIVES[primitive.name] = primitive
    TYPE_RULES[primitive.name] = primitive.infer
    if isinstance(primitive.spelling, Spelling):
        SPELLINGS[primitive.name] = primitive.spelling
    return primitive


def bind(name: str, /, *operands: Node, **constants: Any) -> Node:
    """Builds the node of primitive `name`; its type comes from the record."""
    dtype, shape = PRIMITIVES[name].infer(operands, constants)
    packed: Attributes = attributes(**constants)
    return node(name, operands, packed, dtype, shape, source_line.get())


def along_axis(name: str, documentation: str) -> AlongAxis:
    """The function that builds nodes of a reduction or a scan."""

    def function(x: Node, axis: int) -> Node:
        return bind(name, x, axis=axis)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = documentation
    return function
