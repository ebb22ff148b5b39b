"""Runs kernels and schedules with NumPy: what a printed kernel must compute, without a compiler.

Rows are looped over in Python; r and k are array axes. Memory is one flat array per buffer.
"""

import itertools

import numpy as np

from flambeau.compiler import targets
from flambeau.compiler.templates import TEMPLATES
from flambeau.ir import kernel as k
from flambeau.ir.node import ITEM_SIZE, topological
from flambeau.ir.size import SizeExpr, evaluate
from flambeau.prims.record import PRIMITIVES
from flambeau.prims.reduce import canonical
from tests.prims.graph_interpreter import NUMPY, concrete, store

IDENTITY = {"sum": 0, "prod": 1, "argmax": 0, "argmin": 0, "any": False, "all": True,
            "xor": 0}  # fmt: skip


def run_kernel(kernel, buffers, sizes, scalars):
    """Runs all rows of a kernel on flat arrays."""
    base = {f"n{i}": s for i, s in enumerate(sizes)}
    results = None
    if kernel.form == "template":
        results = run_product(kernel, buffers, sizes)
        extents, base["inner"] = results.shape[:-1], results.shape[-1]
    else:
        extents = [evaluate(e, base) for e in kernel.rows]
    for row in itertools.product(*map(range, extents)):
        symbols = base | {f"p{i}": p for i, p in enumerate(row)}
        current = _Row(kernel, buffers, symbols, scalars)
        if results is not None:
            current.results["k.kept", "result"] = results[row]
        current.run()


def run_product(kernel, buffers, sizes):
    """The results of template "product", before its epilogue."""
    if kernel.template == "product_pack":
        return np.empty((0, 0))
    assert kernel.template == "product"
    names = [x.name for x in TEMPLATES["product"].of(kernel, targets.current()).sizes]
    names = [name for name in names if name != "batch"]
    given, rest = dict(zip(names, sizes)), sizes[len(names) :]
    batch = kernel.setting("batch")
    extents = rest[0 : 3 * batch : 3]
    depth, m, n = given["depth"], given["height"], given["width"]
    left, right = (1, 0) if given["swapped"] else (0, 1)

    def operand(number, shape, strides):
        strides = [*rest[number + 1 : 3 * batch : 3], *strides]
        return strided(buffers[number], 0, (*extents, *shape), strides)

    a = operand(left, (m, depth), (given["a_row"], given["a_k"]))
    b = operand(right, (depth, n), (given["b_k"], given["b_column"]))
    found = np.swapaxes(np.swapaxes(b, -1, -2) @ np.swapaxes(a, -1, -2), -1, -2)
    if not given["swapped"]:
        found = a @ b
    return np.swapaxes(found, -1, -2) if given["swapped"] else found


class _Row:
    def __init__(self, kernel, buffers, symbols, scalars):
        self.kernel, self.buffers, self.symbols, self.scalars = kernel, buffers, symbols, scalars
        self.inner = symbols.get("inner", None)
        if self.inner is None:
            self.inner = evaluate(kernel.inner, symbols)
        self.depth = evaluate(kernel.reduce, symbols)
        self.results = {}

    def run(self):
        for statement in self.kernel.body:
            if isinstance(statement, k.RowStores):
                self.finish(statement, {}, (), 0)
            elif isinstance(statement, k.Pass):
                axes = {"r": np.arange(self.inner)}
                self.finish(statement, axes, (self.inner,), 0)
            else:
                axes = {"k": np.arange(self.depth)[:, None], "r": np.arange(self.inner)[None, :]}
                self.finish(statement, axes, (self.depth, self.inner), 0)

    def finish(self, statement, axes, shape, axis):
        values = {}
        symbols = self.symbols | axes
        order = topological(k.statement_values(statement))
        for value in order:
            if value.op == "k.carry":
                values[value] = self.scan(statement, value, values, symbols, shape)
            else:
                values[value] = self.value(value, values, symbols)
        defined = {}
        for name, operation, value in getattr(statement, "reductions", ()):
            full = np.broadcast_to(values[value], shape)
            defined["k.reduced", name] = reduce(operation, full, value.dtype)
        for name, value in getattr(statement, "keeps", ()):
            defined["k.kept", name] = values[value]
        for parameter, position, value in statement.stores:
            index = np.broadcast_to(evaluate_array(position, symbols), shape)
            self.buffers[parameter][index] = np.broadcast_to(values[value], shape)
        self.results |= defined

    def scan(self, statement, value, values, symbols, shape):
        [(operation, operand)] = [
            (op, v) for name, op, v in statement.scans if name == value.attribute("name")
        ]
        for needed in topological([operand]):
            if needed not in values:
                values[needed] = self.value(needed, values, symbols)
        name = "linear_scan" if operation == "linear" else "cum" + operation
        given = [values[operand]] if operation != "linear" else [values[i] for i in operand.inputs]
        full = [np.broadcast_to(v, shape) for v in given]
        return store(PRIMITIVES[name].reference(full, {"axis": 0}), value.dtype)

    def value(self, value, values, symbols):
        op = value.op
        if op == "k.const":
            return store(k.decode_constant(value.attribute("value"), value.dtype), value.dtype)
        if op == "k.scalar":
            return store(self.scalars[value.attribute("slot")], value.dtype)
        if op in ("k.reduced", "k.kept"):
            return self.results[op, value.attribute("name")]
        if op == "check_index":
            index, size = values[value.inputs[0]], evaluate(value.attribute("size"), symbols)
            least = 0 if value.attribute("strict") else -size
            wrong = (index < least) | (index >= size)
            if np.any(wrong):
                record = self.buffers[value.attribute("parameter")]
                record[:] = 1, index[wrong].flat[0], size, value.attribute("dimension")
            return np.where(wrong, 0, index + (index < 0) * size)
        if op == "k.pair":
            return values[value.inputs[0]]
        if op == "k.index":
            data = {f"d{i}": values[v] for i, v in enumerate(value.inputs)}
            return np.asarray(evaluate_array(value.attribute("expression"), symbols | data))
        if op == "k.load":
            return self.load(value, values, symbols)
        operands = [values[i] for i in value.inputs]
        if op != "bitcast":
            operands = [x.astype("float32") if x.dtype == np.float16 else x for x in operands]
        with np.errstate(all="ignore"):
            found = PRIMITIVES[op].reference(operands, dict(value.attributes))
        return store(found, value.dtype)

    def load(self, value, values, symbols):
        inputs = value.inputs
        mask = None
        if value.attribute("masked"):
            *inputs, mask = inputs
        data = {f"d{i}": values[v] for i, v in enumerate(inputs)}
        index = np.asarray(evaluate_array(value.attribute("index"), symbols | data))
        buffer = self.buffers[value.attribute("parameter")]
        if np.size(symbols.get("r", 0)) == 0:  # no lane is there to read
            return np.zeros(0, buffer.dtype)
        if mask is None:
            assert np.all(index >= 0), "negative index"
            return buffer[index]
        index, inside = np.broadcast_arrays(index, values[mask])
        found = np.zeros(index.shape, buffer.dtype)
        assert np.all(index[inside] >= 0), "negative index"
        found[inside] = buffer[index[inside]]
        return found


def evaluate_array(expression, symbols):
    """A size expression where loop symbols are arrays."""
    if isinstance(expression, SizeExpr) and expression.kind == "sum":
        total = 0
        for monomial, factor in expression.terms.items():
            term = factor
            for atom in monomial:
                term = term * evaluate_array(atom, symbols)
            total = total + term
        return total
    if isinstance(expression, SizeExpr) and expression.operands:
        operands = [evaluate_array(o, symbols) for o in expression.operands]
        functions = {
            "floordiv": np.floor_divide,
            "mod": np.remainder,
            "min": np.minimum,
            "max": np.maximum,
        }
        return functions[expression.kind](*operands)
    return evaluate(expression, symbols)


def reduce(operation, values, dtype):
    """The canonical reduction along the first axis."""
    if values.shape[0] == 0:
        if operation in ("max", "min"):
            sign = -1 if operation == "max" else 1
            floating = values.dtype.kind == "f"
            lowest = sign * np.inf if floating else np.iinfo(values.dtype).max * sign
            return np.full(values.shape[1:], lowest, values.dtype)
        return np.full(values.shape[1:], IDENTITY[operation])
    if operation in ("sum", "prod"):
        combine = np.add if operation == "sum" else np.multiply
        with np.errstate(all="ignore"):
            return canonical(values, 0, combine, IDENTITY[operation])
    return store(
        PRIMITIVES[operation].reference([values], {"axis": 0}),
        "i64" if operation.startswith("arg") else dtype,
    )


# --------------------------------------------------------------------------------- schedules


class Memory:
    """Flat arrays of a schedule's buffers, made on first use with the dtype they are used with."""

    def __init__(self, schedule, storages, sizes):
        self.schedule, self.sizes = schedule, sizes
        self.arrays = {}
        self.storages = storages  # (kind, number) -> flat array

    def array(self, number, dtype):
        buffer = self.schedule.buffers[number]
        if buffer.kind in ("input", "output"):
            return self.storages[buffer.kind, buffer.where]
        if dtype == "error":
            return self.arrays.setdefault(number, np.zeros(4, "int64"))
        if number not in self.arrays:
            count = evaluate(buffer.where, self.sizes) // ITEM_SIZE[dtype]
            made = np.empty(count, NUMPY[dtype])
            made.view("uint8")[:] = 0xA5
            self.arrays[number] = made
        return self.arrays[number]


def run_schedule(schedule, graph, storages, scalars, sizes):
    """Runs all launches; `storages` maps ("input", slot) and ("output", number) to flat arrays."""
    memory = Memory(schedule, storages, sizes)
    for number, launch in enumerate(schedule.launches):
        for buffer in (schedule.buffers[b] for b in launch.buffers):
            if buffer.kind == "temporary":
                assert buffer.first <= number <= buffer.last
        arguments = [evaluate(s, sizes) for s in launch.sizes]
        numbers = [
            scalars[where] if kind == "argument" else where for kind, where, _ in launch.scalars
        ]
        if launch.kernel is not None:
            kernel = launch.kernel
            buffers = [
                memory.array(b, dtype)[evaluate(offset, sizes) // ITEM_SIZE.get(dtype, 1) :]
                for b, (dtype, _), offset in zip(launch.buffers, kernel.parameters, launch.offsets)
            ]
            assert evaluate(launch.chunks, sizes) >= 0
            run_kernel(kernel, buffers, arguments, numbers)
        else:
            offsets = [evaluate(o, sizes) for o in launch.offsets]
            run_routine(launch.routine, launch, memory, offsets, arguments, numbers)


def strided(array, offset, shape, strides):
    return np.lib.stride_tricks.as_strided(
        array[offset:], shape, [s * array.itemsize for s in strides]
    )


def run_routine(name, launch, memory, offsets, sizes, scalars):
    """Routines by the table in native/routines/routines.cpp."""
    kind, _, dtype = name.rpartition("_")

    def buffer(number, dtype):
        array = memory.array(launch.buffers[number], dtype)
        return array[offsets[number] // ITEM_SIZE[dtype] :]

    if kind == "matmul":
        b, m, n, depth, *strides = sizes
        left = strided(buffer(0, dtype), 0, (b, m, depth), strides[:3])
        right = strided(buffer(1, dtype), 0, (b, depth, n), strides[3:6])
        strided(buffer(2, dtype), 0, (b, m, n), strides[6:])[:] = left @ right
    elif kind in ("sort", "argsort"):
        rows, length, descending = sizes
        x = buffer(0, dtype)[: rows * length].reshape(rows, length)
        constants = {"axis": 1, "descending": bool(descending)}
        order = PRIMITIVES["sort_indices"].reference([x], constants)
        buffer(len(launch.buffers) - 1, "i64")[: rows * length] = order.reshape(-1)
        if kind == "sort":
            ordered = np.take_along_axis(x, order, 1)
            buffer(1, dtype)[: rows * length] = ordered.reshape(-1)
    elif kind == "bag_sum":
        bags, width, count, has_shares = sizes
        table = buffer(1, dtype)
        operands = [table[: table.size // width * width].reshape(-1, width)]
        operands += [buffer(2, "i64")[:count], buffer(3, "i64")[:bags], buffer(4, "i64")[:bags]]
        operands += [buffer(5, dtype)[:count]] * has_shares
        found = PRIMITIVES["bag_sum"].reference(operands, {})
        buffer(0, dtype)[: bags * width] = found.reshape(-1)
    elif name == "check_index":
        count, size, _ = sizes
        index = buffer(0, "i64")[:count]
        buffer(1, "i64")[:count] = index + (index < 0) * size
    elif kind.startswith("scatter_"):
        ndim, axis, *rest = sizes
        shape, out, index, source = (rest[i * ndim : (i + 1) * ndim] for i in range(4))
        places = strided(buffer(1, "i64"), 0, shape, index)
        values = strided(buffer(2, dtype), 0, shape, source)
        for position in np.ndindex(*shape):
            target = [*position]
            target[axis] = places[position]
            flat = int(np.dot(target, out))
            write(buffer(0, dtype), flat, values[position], kind[8:])
    elif kind.startswith("put_") or kind == "take_add":
        count, outer, inner, d, *extents = sizes
        mode = kind.split("_")[1]
        out = buffer(0, dtype)[: outer * int(np.prod(extents)) * inner]
        out = out.reshape(outer, int(np.prod(extents)), inner)
        source = buffer(1, dtype)[: outer * count * inner].reshape(outer, count, inner)
        for o, i in np.ndindex(outer, count):
            flat = 0
            for axis in range(d):
                flat = flat * extents[axis] + buffer(2 + axis, "i64")[i]
            for e in range(inner):
                write(out[o, flat], e, source[o, i, e], mode)
    else:
        raise NotImplementedError(name)


def write(array, index, value, mode):
    functions = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    array[index] = value if mode == "set" else functions[mode](array[index], value)


def check_graph(graph, tensors, scalars=(), sizes=(), verify=True):
    """Schedules a graph, runs it, compares every bit with the graph interpreter; returns the
    schedule."""
    from flambeau.compiler.pipeline import schedule
    from flambeau.compiler.simplify import simplify
    from flambeau.ir.kernel_grammar import verify as verify_kernel
    from tests.prims.graph_interpreter import bind_sizes, run_graph

    sizes = bind_sizes(graph, tensors, sizes)
    expected = run_graph(graph, tensors, scalars, sizes)
    made = schedule(simplify(graph))
    storages = {}
    for slot, (node, tensor) in enumerate(zip(graph.inputs, tensors)):
        if node is not None:
            strides = [evaluate(s, sizes) for s in node.attribute("strides")]
            storages["input", slot] = scatter_storage(store(tensor, node.dtype), strides)
    for number, output in enumerate(graph.outputs):
        if output.strides is not None and output.target is None and output.alias is None:
            shape = concrete(output.node.shape, sizes)
            last = sum((e - 1) * s for e, s in zip(shape, concrete(output.strides, sizes)))
            empty = 0 in shape
            count = 0 if empty else last + 1
            storages["output", number] = np.zeros(count, NUMPY[output.node.dtype])
    for launch in made.launches:
        if launch.kernel is not None:
            verify_kernel(launch.kernel)
    run_schedule(made, graph, storages, scalars, sizes)
    for number, (output, wanted) in enumerate(zip(graph.outputs, expected)):
        if output.alias is not None:
            continue
        if output.target is not None:
            storage = storages["input", output.target]
            strides = concrete(graph.inputs[output.target].attribute("strides"), sizes)
        else:
            storage, strides = storages["output", number], concrete(output.strides, sizes)
        if wanted.size:
            found = strided(storage, 0, wanted.shape, strides)
            np.testing.assert_array_equal(found, wanted, err_msg=made.text(), strict=True)
    return made


def scatter_storage(tensor, strides):
    """A flat array that holds `tensor` with these strides."""
    if tensor.size == 0:
        return np.zeros(0, tensor.dtype)
    count = sum((e - 1) * s for e, s in zip(tensor.shape, strides)) + 1
    storage = np.zeros(count, tensor.dtype)
    strided(storage, 0, tensor.shape, strides)[...] = tensor
    return storage
