"""Batch norms in evaluation as part of the weights before them.

A batch norm with running statistics is a factor and a summand of each channel. So is a bias. After
a convolution, or a product with a matrix, they are channels' factors of its weight, and one summand
(Jacob et al., Quantization and Training of Neural Networks, 2018, section 3.2):

    (conv(x, w) + b - mean) * s + t  =  conv(x, w * s) + ((b - mean) * s + t)

The result is rounded at other points than that of the operators one by one. Therefore only frozen
programs fold, and only chains with the reciprocal square root of a batch norm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

from flambeau import prims
from flambeau.ir.node import Graph, Node, node, topological
from flambeau.ir.size import Size
from flambeau.prims.record import PRIMITIVES, record_of

_DTYPES = ("f32", "f64")
# Products: axes of the channels, of the weight and of the result.
_AXES = {"convolution": (0, 1), "matmul": (1, -1)}


class _Channels(NamedTuple):
    """A chain of factors and summands of the channels of a product.

    Attributes:
        product: the convolution or matrix product.
        axes: of its channels, in the weight and in the result.
        factor, summand: one number for each channel; None: 1 and 0.
        normalises: whether a batch norm is among them.
    """

    product: Node
    axes: tuple[int, int]
    factor: Node | None = None
    summand: Node | None = None
    normalises: bool = False


def fold_norms(graph: Graph, fixed: Collection[Node]) -> tuple[Graph, list[Node]]:
    """Folds batch norms.

    Args:
        graph: the program. Called in the environment of its trace.
        fixed: inputs that are constants.

    Returns:
        the program with new weights, and the values of constants that it reads for them.
    """
    search = _Search(graph, fixed)
    tops = set(search.tops())
    computed: list[Node] = []

    def replace(current: Node, values: dict[Node, Node]) -> Node | None:
        if current not in tops:
            return None
        chain = search.chains[current]
        result, constants = _folded(chain, values[chain.product.inputs[0]])
        computed.extend(constants)
        return result

    return (rebuilt(graph, replace) if tops else graph), computed


def rebuilt(graph: Graph, replace: Callable[[Node, dict[Node, Node]], Node | None]) -> Graph:
    """The program in which other values stand for some.

    Args:
        graph: the program.
        replace: (value, replacements of those before it) -> its replacement; None: the same
            primitive on new operands.
    """
    values: dict[Node, Node] = {}
    for current in graph.nodes():
        other = replace(current, values)
        if other is None:
            operands = tuple(values[x] for x in current.inputs)
            same = operands == current.inputs
            other = current if same else _with_operands(current, operands)
        values[current] = other
    return graph.with_outputs([o._replace(node=values[o.node]) for o in graph.outputs])


def _with_operands(current: Node, operands: tuple[Node, ...]) -> Node:
    return node(current.op, operands, current.attributes, current.dtype, current.shape)


class _Search:
    """Chains of a program.

    Attributes:
        chains: values to the chain that computes them.
    """

    def __init__(self, graph: Graph, fixed: Collection[Node]) -> None:
        nodes = graph.nodes()
        self._constant: set[Node] = set()
        self._users = Counter(x for current in nodes for x in set(current.inputs))
        self._users.update(o.node for o in graph.outputs)
        self._fixed = fixed
        self.chains: dict[Node, _Channels] = {}
        self._inner: set[Node] = set()
        for current in nodes:
            self._note(current)

    def tops(self) -> list[Node]:
        """The ends of chains with a batch norm, in order."""
        return [
            value
            for value, chain in self.chains.items()
            if chain.normalises and value not in self._inner
        ]

    def _note(self, current: Node) -> None:
        if self._is_constant(current):
            self._constant.add(current)
        elif self._is_product(current):
            self.chains[current] = _Channels(current, _AXES[current.op])
        elif (step := _STEPS.get(current.op)) is not None:
            self._extend(current, step)

    def _is_constant(self, current: Node) -> bool:
        if current in self._fixed or current.is_scalar:
            return True
        kind = record_of(current).kind
        if kind not in ("create", "pointwise", "shape", "annotation"):
            return False
        return all(x in self._constant for x in current.inputs)

    def _is_product(self, current: Node) -> bool:
        if _AXES.get(current.op) is None or current.dtype not in _DTYPES:
            return False
        weight = current.inputs[1]
        routine = record_of(current).routine
        several = routine is not None and routine.matrices and weight.ndim > 2
        fits = weight.dtype == current.dtype and not several
        return fits and weight in self._constant and _reads_input(weight)

    def _extend(self, current: Node, step: _Step) -> None:
        """Notes the chain that goes on with a sum, difference or product."""
        first, second = current.inputs
        if first not in self.chains and step is not _less:
            first, second = second, first
        chain = self.chains.get(first)
        if chain is None or self._users[first] != 1 or second not in self._constant:
            return
        axis = chain.axes[1] % chain.product.ndim
        vector = _vector(second, axis, chain.product.shape[axis])
        if vector is None or first.shape != current.shape:
            return
        self._inner.add(first)
        normalises = chain.normalises or (step is _times and _has_root(vector))
        self.chains[current] = step(chain, vector)._replace(normalises=normalises)


def _reads_input(value: Node) -> bool:
    return any(x.is_input for x in topological([value]))


def _has_root(value: Node) -> bool:
    root = PRIMITIVES["rsqrt"]
    return any(record_of(x) is root for x in topological([value]))


def _times(chain: _Channels, vector: Node) -> _Channels:
    factor, summand = chain.factor, chain.summand
    return chain._replace(
        factor=vector if factor is None else factor * vector,
        summand=None if summand is None else summand * vector,
    )


def _less(chain: _Channels, vector: Node) -> _Channels:
    return chain._replace(summand=-vector if chain.summand is None else chain.summand - vector)


def _plus(chain: _Channels, vector: Node) -> _Channels:
    return chain._replace(summand=vector if chain.summand is None else chain.summand + vector)


_Step = Callable[[_Channels, Node], _Channels]
_STEPS: dict[str, _Step] = {"add": _plus, "sub": _less, "mul": _times}


def _vector(value: Node, axis: int, count: Size) -> Node | None:
    """The numbers of the channels, if a value depends on the position along this axis alone."""
    if value.ndim == 0:
        return prims.broadcast(value, (count,), ())
    record = record_of(value)
    if record.constant:
        return prims.full(value.attribute("value"), (count,), value.dtype)
    if record.repeats == "dimensions":
        return _spread(value, axis, count)
    if record.kind == "pointwise":
        vectors = [_vector(x, axis, count) for x in value.inputs]
        operands = tuple(x for x in vectors if x is not None)
        if len(operands) < len(vectors):
            return None
        return node(value.op, operands, value.attributes, value.dtype, (count,))
    return None


def _spread(value: Node, axis: int, count: Size) -> Node | None:
    """`_vector` of a value that is repeated along other axes."""
    [source] = value.inputs
    for dimension, extent in zip(value.attribute("dimensions"), source.shape, strict=True):
        if extent != 1 and dimension != axis:
            return None
    if all(extent == 1 for extent in source.shape):
        return prims.broadcast(prims.reshape(source, ()), (count,), ())
    return prims.reshape(source, (count,))


def _folded(chain: _Channels, data: Node) -> tuple[Node, list[Node]]:
    """The product of data with the chain in its weight and in one summand; the new constants."""
    product, factor, weight = chain.product, chain.factor, chain.product.inputs[1]
    axis, channel = chain.axes[0], chain.axes[1] % product.ndim
    constants = []
    if factor is not None:
        weight = weight * prims.broadcast(factor, weight.shape, (axis,))
        constants.append(weight)
    result = _with_operands(product, (data, weight))
    if chain.summand is not None:
        constants.append(chain.summand)
        result = result + prims.broadcast(chain.summand, result.shape, (channel,))
    return result, constants
