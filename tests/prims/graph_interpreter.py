"""Runs a Graph with NumPy: the meaning of primitives, independent of the compiler.

Every node is computed by its record's reference and stored in its dtype (bfloat16 as float32
values rounded to bfloat16), half types are widened to float32 before each reference.
"""

from flambeau.ir.node import topological
from flambeau.ir.size import SizeExpr, evaluate
from flambeau.prims.record import PRIMITIVES

NUMPY = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "float32",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}


def to_bfloat16(x):
    import numpy

    bits = numpy.ascontiguousarray(x, "float32").view("uint32")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    result = rounded.astype("uint32").view("float32")
    return numpy.where(numpy.isnan(x), numpy.float32("nan"), result).reshape(numpy.shape(x))


def store(x, dtype):
    """`x` as an array of the IR's dtype."""
    import numpy

    with numpy.errstate(all="ignore"):
        x = numpy.asarray(x)
        return to_bfloat16(x) if dtype == "bf16" else x.astype(NUMPY[dtype])


def concrete(value, sizes):
    """An attribute with all sizes evaluated."""
    if isinstance(value, SizeExpr):
        return evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(concrete(v, sizes) for v in value)
    return value


def run_nodes(roots, given, sizes=()):
    """Compute nodes: `given` holds arrays of input (and other known) nodes."""
    import numpy

    sizes = dict(sizes)
    values = dict(given)
    for node in topological(roots):
        if node in values:
            continue
        operands = [
            values[i].astype("float32") if values[i].dtype == numpy.float16 else values[i]
            for i in node.inputs
        ]
        constants = {key: concrete(value, sizes) for key, value in node.attributes}
        if node.op in ("bitcast",):
            operands = [values[i] for i in node.inputs]
        result = store(PRIMITIVES[node.op].reference(operands, constants), node.dtype)
        expected = concrete(node.shape, sizes)
        assert result.shape == expected, f"{node}: {result.shape} is not {expected}"
        values[node] = result
    return [values[root] for root in roots]


def bind_sizes(graph, tensors, sizes=()):
    """The values of the graph's symbols, read off the shapes of the given arrays."""
    sizes = dict(sizes)
    for node, tensor in zip(graph.inputs, tensors):
        if node is None:
            continue
        for extent, actual in zip(node.shape, tensor.shape):
            if isinstance(extent, SizeExpr) and extent.kind == "symbol":
                assert sizes.setdefault(extent.name, actual) == actual
    return sizes


def run_graph(graph, tensors, scalars=(), sizes=()):
    """All outputs of a graph on arrays, one per tensor slot, and run-time numbers."""
    sizes = bind_sizes(graph, tensors, sizes)
    given = {n: store(t, n.dtype) for n, t in zip(graph.inputs, tensors) if n is not None}
    given |= {n: store(s, n.dtype) for n, s in zip(graph.scalars, scalars)}
    return run_nodes([o.node for o in graph.outputs], given, sizes)
