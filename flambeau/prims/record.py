"""The record of a primitive: every fact that the compiler reads, in typed fields.

All lists (fusable, differentiable, exportable ...) are computed from these records; the
completeness test fails on a missing cell. Nothing here knows PyTorch's API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from flambeau.ir.environment import source_line
from flambeau.ir.geometry import Index, Shape
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
    "check",  # an index as it is, or an error; tested where the index is used
    "annotation",  # with_derivative: simplified away before scheduling
    "none",  # no primitive: a leaf of the graph, or a node of the scheduler
]

# In which operands a primitive is linear, others held fixed: where those are zero, so is the result
# (`derivation/replay.py`). With one operand, tangents pass as values do (`derivation/forward.py`).
Linearity = Literal[
    "each",  # in every operand by itself: a product, or a map of one operand
    "first",  # in the first operand: the others are indices or divisors
    "last",  # in the last operand: the others are factors
    "joint",  # in all operands together: they are arranged side by side
    "sum",  # a + b
    "difference",  # a - b
    "choice",  # in all operands but the first, a condition, together
    "write",  # in (base, *indices, source), while the attribute `mode` is "add" or "set"
]

NOT_DIFFERENTIABLE = "not differentiable"  # gradient is zero or undefined everywhere (comparisons)

# (grad of output, output, *operands) -> gradient per operand (None: no gradient).
Derivative = Callable[..., Sequence[Node | None]]


class Read(NamedTuple):
    """One candidate source of a result element.

    Attributes:
        operand: number of the operand.
        place: element of the operand.
        bounded: operand dimensions whose index may be out of range; the element is this one only if
            all of them are inside, otherwise the next candidate decides.
    """

    operand: int
    place: Index
    bounded: tuple[int, ...] = ()


# (node, index of an element of its result) -> where that element is read.
IndexMap = Callable[[Node, Index], list[Read]]
# A node with simplified operands -> a node of the same bits, or None where no rule applies.
Simplification = Callable[[Node], Node | None]
# (shape, strides, another shape of as many elements) -> its strides in the same memory, or None.
Restride = Callable[[Shape, Shape, Shape], Shape | None]
# (node, strides of its operand, offset, how strides carry over to a reshaped operand) -> strides
# and offset that see the node's value in the operand's memory; None: not all of it is seen so.
View = Callable[[Node, Shape, Size, Restride], tuple[Shape, Size] | None]
# (node, strides of its value) -> strides that see its operand in the value's memory, or None.
Unview = Callable[[Node, Shape], Shape | None]


class Elements(Protocol):
    """The scheduler's lowering of single elements (`compiler/schedule/lower.py`)."""

    def at(self, value: Node, index: Index, mask: Node | None = None) -> Node:
        """The value at an index; `mask` (bool) says where memory may be read."""

    def data(self, value: Node, extent: Size) -> Size:
        """The symbol of an i64 value in [0, extent)."""

    def index_value(self, expression: Size, dtype: str = "i64") -> Node:
        """An index expression as a value."""

    def constant(self, number: complex, dtype: str) -> Node:
        """A number as a value."""


# (scheduler, node, index, where memory may be read) -> the value of the node's element there.
Lower = Callable[[Elements, Node, Index, Node | None], Node]


class Batched:
    """A node of the program over samples, with its operands as they are in the batch.

    Attributes:
        node: over one sample.
        operands: its operands; batched ones have the batch in front.
        flags: which of them are batched.
        extent: size of the batch.
    """

    __slots__ = ("extent", "flags", "node", "operands")

    def __init__(
        self, current: Node, operands: Sequence[Node], flags: Sequence[bool], extent: Size
    ) -> None:
        self.node = current
        self.operands = operands
        self.flags = flags
        self.extent = extent

    def attribute(self, name: str) -> Any:
        """A constant of the node."""
        return self.node.attribute(name)

    def all(self) -> list[Node]:
        """The operands, each with the batch in front."""
        return [
            x if flag else expand(x, self.extent)
            for x, flag in zip(self.operands, self.flags, strict=True)
        ]

    def same(self, *operands: Node, **changed: Any) -> Node:
        """The node's primitive on these operands, with some constants changed."""
        return bind(self.node.op, *operands, **(dict(self.node.attributes) | changed))


def expand(x: Node, extent: Size) -> Node:
    """Repeat a value for every sample."""
    from flambeau.prims.shape import broadcast

    return broadcast(x, (extent, *x.shape), range(1, x.ndim + 1))


BatchRule = Callable[[Batched], Node]


def leading(b: Batched) -> Node:
    """The rule of a primitive that counts dimensions from the end: any batch may be in front."""
    return b.same(*b.all())


def next_axis(b: Batched) -> Node:
    """The rule of a primitive along one `axis`."""
    return b.same(*b.all(), axis=b.attribute("axis") + 1)


def next_dimension(b: Batched) -> Node:
    """The rule of a primitive along one `dimension`."""
    return b.same(*b.all(), dimension=b.attribute("dimension") + 1)


# How a routine addresses the memory of a tensor: dense and row-major only, by rows without gaps, or
# by any strides.
Addressing = Literal["dense", "rows", "strided"]


class Arguments(NamedTuple):
    """The arguments of a launch of a routine, beside its operands and its result.

    Attributes:
        function: name of the routine with its dtype.
        sizes: `n` of the table in `native/routines/routines.cpp`.
        work: estimated nanoseconds.
        scalars: constants, as doubles.
        result_first: whether the result comes before the operands.
    """

    function: str
    sizes: Sequence[Size]
    work: Size
    scalars: Sequence[float] = ()
    result_first: bool = False


class Routine(NamedTuple):
    """The native routine, or the template, that computes a primitive.

    Primitives of one routine with equal operands and constants, but for `result`, are one launch.

    Attributes:
        name: of the routine.
        operands: (node) -> how it addresses its operands.
        result: (node) -> how it addresses its results.
        epilogue: (node) -> extents of the loops in which an epilogue may follow its results; None:
            none may.
        several: whether one launch may write a result to several buffers.
        last_axis: whether it works along the last dimension, regardless of its `axis`.
        matrices: whether its operands are matrices, whose batches it addresses by strides.
        square: whether its first operand is a batch of square matrices.
        narrow: whether it reads bfloat16 operands as they are, where a target multiplies pairs.
        tuned: whether there are candidates to choose from (`compile(mode="max-autotune")`).
        arguments: (node) -> those of a launch, which the scheduler binds; None: it has a handler of
            its own (`compiler/schedule/routines.py`).
    """

    name: str
    operands: Callable[[Node], Addressing] = lambda value: "dense"
    result: Callable[[Node], Addressing] = lambda value: "dense"
    epilogue: Callable[[Node], Shape] | None = None
    several: bool = False
    last_axis: bool = False
    matrices: bool = False
    square: bool = True
    narrow: bool = False
    tuned: bool = False
    arguments: Callable[[Node], Arguments] | None = None


def any_strides(value: Node) -> Addressing:
    """A routine that takes strides."""
    return "strided"


class Primitive(NamedTuple):
    """Everything about one primitive.

    Attributes:
        name: the `op` of its nodes.
        kind: how the scheduler treats it.
        infer: (operands, attributes dict) -> (dtype, shape); raises TypeError/ValueError.
        derivative: rule built from primitives, or `NOT_DIFFERENTIABLE`. Called as
            `derivative(grad, out, *operands)` where `out` is the node itself (its attributes
            are at hand) and must return one entry per operand.
        spelling: pointwise: how printers write it.
        routine: what computes it, of kinds scatter, random and routine.
        reads: shape: its index map. Its elements are read by it, unless `lower` is there.
        lower: the kernel value of an element, if neither the name nor an index map defines it.
        view: shape: the layout of its result in its operand's memory; None: it is no view.
        simplify: replaces a node by a simpler one of the same bits.
        of_nothing: reductions: the result where no element is reduced.
        unview: shape, annotation: the layout of its operand in its result's memory.
        same_elements: whether its elements are those of its first operand, as numbers.
        constant: whether all its elements are its attribute `value`.
        concatenates: shape: whether its result is its operands, side by side.
        positions: the dimension of its first operand in which its elements are positions.
        interval: the scalars low and high between which, high excluded, its elements are.
        raises: whether its routine may raise an error that depends on data.
        repeats: shape: how it reads one element of its operand for many of its result.
        moves: shape: whether its result is in other memory than its operand.
        batch: the primitive over a batch of samples; None: as its kind does it, if that has a rule
            (`derivation/batching.py`).
        cost: rough operations per element (the fusion and recompute heuristics).
        reference: NumPy function (arrays, attributes) -> array, for tests.
        samples: zero-argument function yielding (operands as nested lists, attributes) for tests.
        linear: in which operands it is linear; None: in none.
    """

    name: str
    kind: Kind
    infer: Callable[[tuple[Node, ...], dict[str, Any]], tuple[str, tuple[Size, ...]]]
    derivative: Derivative | str
    spelling: Spelling | None = None
    cost: int = 1
    reference: Callable[..., Any] | None = None
    samples: Callable[[], Any] | None = None
    linear: Linearity | None = None
    routine: Routine | None = None
    reads: IndexMap | None = None
    lower: Lower | None = None
    view: View | None = None
    simplify: Simplification | None = None
    of_nothing: bool | int | None = None
    unview: Unview | None = None
    same_elements: bool = False
    constant: bool = False
    concatenates: bool = False
    positions: Callable[[Node], int | None] | None = None
    interval: Callable[[Node], tuple[Node, Node] | None] | None = None
    raises: bool = False
    repeats: Literal["dimensions", "windows"] | None = None
    moves: bool = False
    batch: BatchRule | None = None

    @property
    def converts(self) -> bool:
        """Whether its result is its operand in another dtype."""
        return self.spelling is not None and self.spelling.converts


PRIMITIVES: dict[str, Primitive] = {}


def _infer_nothing(operands: tuple[Node, ...], constants: dict[str, Any]) -> tuple[str, Shape]:
    raise TypeError("[prims] a leaf is no primitive\nhint: use input_node or scalar_node")


_NO_PRIMITIVE = Primitive("", "none", _infer_nothing, NOT_DIFFERENTIABLE, cost=0)


def record_of(value: Node) -> Primitive:
    """Returns the record of a node's primitive; empty for leaves and scheduler nodes."""
    return PRIMITIVES.get(value.op, _NO_PRIMITIVE)


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
    if primitive.spelling is not None:
        SPELLINGS[primitive.name] = primitive.spelling
    return primitive


def bind(name: str, /, *operands: Node, **constants: Any) -> Node:
    """Builds the node of primitive `name`; its type comes from the record."""
    dtype, shape = PRIMITIVES[name].infer(operands, constants)
    packed: Attributes = attributes(**constants)
    return node(name, operands, packed, dtype, shape, source_line.get())


def axis_of(value: Node) -> int:
    """The axis along which a primitive works."""
    axis: int = value.attribute("axis")
    return axis


def along_axis(name: str, documentation: str) -> AlongAxis:
    """The function that builds nodes of a reduction or a scan."""

    def function(x: Node, axis: int) -> Node:
        return bind(name, x, axis=axis)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = documentation
    return function
