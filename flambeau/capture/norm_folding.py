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
from flambeau.prims.record import record_of

_DTYPES = ("f32", "f64")
_STEPS = ("add", "sub", "mul")


class _Channels(NamedTuple):
    """A chain of factors and summands of the channels of a product.

    Attributes:
        product: the convolution or matrix product.
        factor, summand: one number for each channel; None: 1 and 0.
        normalises: whether a batch norm is among them.
    """

    product: Node
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
        replace: (value, what stands for those before it) -> what stands for it; None: the same
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
            self.chains[current] = _Channels(current)
        elif current.op in _STEPS:
            self._extend(current)

    def _is_constant(self, current: Node) -> bool:
        if current in self._fixed or current.is_scalar:
            return True
        kind = record_of(current).kind
        if kind not in ("create", "pointwise", "shape", "annotation"):
            return False
        return all(x in self._constant for x in current.inputs)

    def _is_product(self, current: Node) -> bool:
        if current.op not in ("convolution", "matmul") or current.dtype not in _DTYPES:
            return False
        weight = current.inputs[1]
        fits = weight.dtype == current.dtype and (current.op == "convolution" or weight.ndim == 2)
        return fits and weight in self._constant and _reads_input(weight)

    def _extend(self, current: Node) -> None:
        """Notes the chain that goes on with a sum, difference or product."""
        first, second = current.inputs
        if first not in self.chains and current.op != "sub":
            first, second = second, first
        chain = self.chains.get(first)
        if chain is None or self._users[first] != 1 or second not in self._constant:
            return
        axis = 1 if chain.product.op == "convolution" else chain.product.ndim - 1
        vector = _vector(second, axis, chain.product.shape[axis])
        if vector is None or first.shape != current.shape:
            return
        self._inner.add(first)
        normalises = chain.normalises or (current.op == "mul" and _has_root(vector))
        self.chains[current] = _step(chain, current.op, vector)._replace(normalises=normalises)


def _reads_input(value: Node) -> bool:
    return any(x.is_input for x in topological([value]))


def _has_root(value: Node) -> bool:
    return any(x.op == "rsqrt" for x in topological([value]))


def _step(chain: _Channels, op: str, vector: Node) -> _Channels:
    factor, summand = chain.factor, chain.summand
    if op == "mul":
        factor = vector if factor is None else factor * vector
        return chain._replace(factor=factor, summand=None if summand is None else summand * vector)
    if op == "sub":
        return chain._replace(summand=-vector if summand is None else summand - vector)
    return chain._replace(summand=vector if summand is None else summand + vector)


def _vector(value: Node, axis: int, count: Size) -> Node | None:
    """The numbers of the channels, if a value depends on the position along this axis alone."""
    if value.ndim == 0:
        return prims.broadcast(value, (count,), ())
    if value.op == "full":
        return prims.full(value.attribute("value"), (count,), value.dtype)
    record = record_of(value)
    if value.op == "broadcast":
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
    axis, channel = (0, 1) if product.op == "convolution" else (1, product.ndim - 1)
    constants = []
    if factor is not None:
        weight = weight * prims.broadcast(factor, weight.shape, (axis,))
        constants.append(weight)
    result = _with_operands(product, (data, weight))
    if chain.summand is not None:
        constants.append(chain.summand)
        result = result + prims.broadcast(chain.summand, result.shape, (channel,))
    return result, constants
