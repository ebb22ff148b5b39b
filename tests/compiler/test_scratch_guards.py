"""Templates' kernels stay inside their buffers and their scratch arrays.

Every template runs at sizes around the edges of its tiles. Behind each scratch array and around
each buffer is a guard zone with a pattern, which must be there afterwards. All runs are done twice,
with different patterns in guard zones and fresh memory: results must not depend on them. Under
AddressSanitizer (`./go sanitize`) kernels are compiled with it, and guard zones are poisoned, so
that reads are found, too.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass

import numpy as np
import pytest

from flambeau import prims
from flambeau.compiler import targets, templates, toolchain
from flambeau.compiler.codegen.c.printer.c_printer import print_kernel
from flambeau.compiler.codegen.c.printer.c_unit import render
from flambeau.compiler.pipeline import schedule
from flambeau.ir.node import ITEM_SIZE, Graph, GraphOutput
from flambeau.ir.size import evaluate, free_symbols, prod
from flambeau.prims.random import PLACE_ROWS, PLACE_WORDS, sample_place
from flambeau.prims.record import bind
from flambeau.runtime import settings

GAP = 64  # elements between two scratch arrays
ZONE = 4096  # bytes around a buffer
PATTERNS = (0xA5, 0xFF)  # small numbers; not a number
UNIT = 12  # cases whose kernels are compiled together
OTHER_TARGETS_SHARE = 8  # of the cases, for targets that this machine does not prefer
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")


class Memory:
    """Zeroed or patterned bytes between two guard zones."""

    def __init__(self, nbytes, pattern, content=None):
        self.nbytes, self.pattern = nbytes, pattern
        self.raw = np.full(nbytes + 2 * ZONE + 128, pattern, np.uint8)
        self.start = ZONE + -(self.raw.ctypes.data + ZONE) % 64
        if content is not None:
            self.content[:] = np.frombuffer(content, np.uint8)
        self.zones = [(0, self.start), (self.start + nbytes, len(self.raw))]

    @property
    def address(self):
        return self.raw.ctypes.data + self.start

    @property
    def content(self):
        return self.raw[self.start : self.start + self.nbytes]

    def guard(self, first, last):
        """A guard zone among the bytes."""
        self.zones.append((self.start + first, self.start + last))

    def poison(self, how):
        if SANITIZED:
            function = getattr(ctypes.CDLL(None), f"__asan_{how}_memory_region")
            for first, last in self.zones:
                function(
                    ctypes.c_void_p(self.raw.ctypes.data + first), ctypes.c_size_t(last - first)
                )

    def check(self, name):
        for first, last in self.zones:
            changed = np.flatnonzero(self.raw[first:last] != self.pattern)
            assert not changed.size, f"{name}: byte {first - self.start + changed[0]} is written"


@functools.cache
def compiled(cases, target):
    """The C functions of all kernels of some cases, by text: reading what a unit includes takes the
    compiler longer than a kernel."""
    launches = [launch for case in cases for launch in schedule(case.graph()).launches]
    kernels = [x.kernel for x in launches if x.kernel is not None and evaluate(x.chunks, {})]
    texts = dict.fromkeys(print_kernel(kernel, target) for kernel in kernels)
    named = [(f"kernel{number}", text) for number, text in enumerate(texts)]
    compiler = toolchain.find()
    if SANITIZED:
        compiler = compiler._replace(command=(*compiler.command, "-fsanitize=address"))
    path = f"{_folder()}/{abs(hash((cases, target.name)))}.so"
    compiler.compile(render(named, target), target, path)
    library = ctypes.CDLL(path)
    return {text: getattr(library, name) for name, text in named}


@functools.cache
def _folder():
    import tempfile

    return tempfile.mkdtemp(prefix="flambeau_guards")


@pytest.fixture(autouse=True)
def gaps(monkeypatch):
    """Scratch arrays of all templates are apart."""

    def apart(template):
        def interface(settings, target):
            return template.interface(settings, target)._replace(gap=GAP)

        return template._replace(interface=interface)

    for name, template in list(templates.TEMPLATES.items()):
        monkeypatch.setitem(templates.TEMPLATES, name, apart(template))


def guard_scratch(memory, launch, target):
    """Adds the gaps between scratch arrays."""
    template = templates.TEMPLATES.get(launch.kernel.template)
    if template is None:
        return
    interface = template.of(launch.kernel, target)
    sizes = iter([evaluate(size, {}) for size in launch.sizes])
    values = {}
    for argument in interface.sizes:
        numbers = [next(sizes) for _ in range(argument.width)]
        values[argument.name] = numbers[0]
    for array, end in zip(interface.scratch, interface.ends()):
        last = evaluate(end, values) if free_symbols(end) <= values.keys() else memory.nbytes
        memory.guard(last - GAP * ITEM_SIZE[array.dtype], last)


def run_launch(launch, buffers, pattern, functions):
    if evaluate(launch.chunks, {}) == 0:
        return
    target = targets.current()
    function = functions[print_kernel(launch.kernel, target)]
    offsets = [evaluate(offset, {}) for offset in launch.offsets]
    operands = {number: buffers[number] for number in launch.buffers if number in buffers}
    pointers = [
        operands[number].address + offset if number in operands else None
        for number, offset in zip(launch.buffers, offsets)
    ]
    used = operands.values()
    sizes = [evaluate(size, {}) for size in launch.sizes]
    scalars = [float(value) for _, value, _ in launch.scalars]
    for chunk in range(evaluate(launch.chunks, {})):
        scratch = Memory(evaluate(launch.scratch, {}), pattern)
        guard_scratch(scratch, launch, target)
        for memory in (*used, scratch):
            memory.poison("poison")
        function(
            (ctypes.c_void_p * len(pointers))(*pointers),
            (ctypes.c_longlong * len(sizes))(*sizes),
            (ctypes.c_double * len(scalars))(*scalars),
            ctypes.c_longlong(chunk),
            ctypes.c_longlong(chunk + 1),
            ctypes.c_void_p(scratch.address),
        )
        for memory in (*used, scratch):
            memory.poison("unpoison")
        scratch.check(f"scratch of {launch.name}, chunk {chunk}")
        for number, memory in operands.items():
            memory.check(f"buffer {number} of {launch.name}, chunk {chunk}")


def run(graph, inputs, pattern, functions):
    """The results of a graph as bytes."""
    made = schedule(graph)
    outputs = [ITEM_SIZE[o.node.dtype] * evaluate(prod(o.node.shape), {}) for o in graph.outputs]
    buffers = {}
    for number, buffer in enumerate(made.buffers):
        if buffer.kind == "input":
            buffers[number] = Memory(len(inputs[buffer.where]), pattern, inputs[buffer.where])
        else:
            nbytes = outputs[buffer.where] if buffer.kind == "output" else buffer.where
            buffers[number] = Memory(evaluate(nbytes, {}), pattern)
    for launch in made.launches:
        assert launch.kernel is not None, launch.routine
        if evaluate(launch.spare, {}):
            # Written only to be stored: the first run goes without it, the second one reads it.
            del buffers[launch.buffers[launch.packing[1]]]
            if pattern == PATTERNS[0]:
                continue
            nbytes = evaluate(launch.spare, {})
            buffers[launch.buffers[launch.packing[1]]] = Memory(nbytes, pattern)
        run_launch(launch, buffers, pattern, functions)
    results = {b.where: buffers[i] for i, b in enumerate(made.buffers) if b.kind == "output"}
    return [results[i].content.tobytes() for i in range(len(outputs))]


def random_bytes(dtype, shape, seed):
    numbers = np.random.default_rng([seed, *shape]).standard_normal(shape)
    if dtype == "bool":
        return (numbers > -1).tobytes()
    if dtype[0] in "iu":
        return (numbers * 50).astype(np.int64).astype(f"{dtype[0]}{ITEM_SIZE[dtype]}").tobytes()
    if dtype[0] == "c":
        return numbers.astype({"c64": "c8", "c128": "c16"}[dtype]).tobytes()
    if dtype == "bf16":
        return (numbers.astype("f4").view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return numbers.astype({"f16": "f2", "f32": "f4", "f64": "f8"}[dtype]).tobytes()


# ------------------------------------------------------------------------------- attention


@dataclass(frozen=True)
class Attention:
    """One attention, forward or backward, and what it is computed with."""

    dtype: str
    shape: tuple[int, ...]  # batch, heads, heads of keys, queries, keys, size, width
    causal: str = "none"
    mask: str = ""
    dropout: bool = False
    backward: bool = False

    def operands(self):
        batch, heads, kept, length, keys, size, width = self.shape
        statistics = (batch, heads, length)
        names = {
            "grad": (self.dtype, (*statistics, width)),
            "query": (self.dtype, (*statistics, size)),
            "key": (self.dtype, (batch, kept, keys, size)),
            "value": (self.dtype, (batch, kept, keys, width)),
            "out": (self.dtype, (*statistics, width)),
            "top": ("f64" if self.dtype == "f64" else "f32", statistics),
            "sum": ("f64" if self.dtype == "f64" else "f32", statistics),
        }
        if not self.backward:
            names = {name: names[name] for name in ("query", "key", "value")}
        if self.mask:
            names["mask"] = (self.mask, (*statistics, keys))
        if self.dropout:
            names["places"] = ("i32", (batch, heads, -(-length // PLACE_ROWS), PLACE_WORDS))
        return names

    def content(self, name, dtype, shape, seed):
        if name == "places":
            count = shape[0] * shape[1] * shape[2]
            return b"".join(sample_place(i, 37 * i % 600).tobytes() for i in range(count))
        if name == "sum":
            return np.full(shape, 7.0, {"f32": "f4", "f64": "f8"}[dtype]).tobytes()
        return random_bytes(dtype, shape, seed)

    def graph(self):
        operands = [
            prims.input_node(i, dtype, shape, prims.contiguous_strides(shape))
            for i, (dtype, shape) in enumerate(self.operands().values())
        ]
        op = "attention_backward" if self.backward else "attention"
        names = ("query", "key", "value") if self.backward else ("out", "top", "sum", "lse")
        constants = {"scale": 0.3, "causal": self.causal} | ({"kept": 0.7} if self.dropout else {})
        results = [bind(op, *operands, **constants, result=name) for name in names]
        outputs = tuple(GraphOutput(r, prims.contiguous_strides(r.shape)) for r in results)
        return Graph((), tuple(operands), (), outputs, len(outputs))

    def inputs(self):
        operands = self.operands().items()
        return [self.content(n, d, shape, i) for i, (n, (d, shape)) in enumerate(operands)]


def attention_cases():
    tile = (1, 2, 1, 33, 129, 17, 15), (1, 1, 1, 32, 128, 16, 31), (2, 1, 1, 65, 13, 33, 64)
    few = (1, 1, 1, 1, 1025, 16, 16), (1, 2, 1, 3, 129, 17, 33), (1, 1, 1, 5, 31, 64, 15)
    edge = (1, 1, 1, 31, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1), (1, 1, 1, 129, 1100, 8, 300)
    for shape in (*tile, *few, *edge):
        yield Attention("f32", shape)
        yield Attention("f32", shape, "upper", "bool")
    for dtype in ("bf16", "f64"):
        for shape in (tile[0], few[0], few[1]):
            yield Attention(dtype, shape, "lower", dtype)
    for shape in (*tile, few[1], edge[0]):
        yield Attention("f32", shape, backward=True)
        yield Attention("f32", shape, "upper", "bool", backward=True)
    yield Attention("bf16", tile[0], "lower", "bf16", backward=True)
    for shape in (tile[0], tile[2], edge[0]):
        for backward in (False, True):
            yield Attention("f32", shape, "upper", dropout=True, backward=backward)
    yield Attention("f32", (1, 1, 1, 600, 140, 8, 8), dropout=True, backward=True)


# ------------------------------------------------------------------------------- convolutions


@dataclass(frozen=True)
class Convolution:
    """One convolution, or one of its gradients."""

    op: str  # of a primitive
    dtype: str
    x: tuple[int, ...]
    outer: int
    taps: tuple[int, ...]
    stride: int = 1
    low: int = 1
    groups: int = 1
    method: str = "plain"
    last: bool = False  # whether the channels of images are contiguous

    def shapes(self):
        spatial = zip(self.x[2:], self.taps)
        places = [(n + 2 * self.low - k) // self.stride + 1 for n, k in spatial]
        y = (self.x[0], self.outer, *places)
        weight = (self.outer, self.x[1] // self.groups, *self.taps)
        pairs = {"": (self.x, weight, y), "_input": (y, weight, self.x)}
        return pairs.get(self.op.removeprefix("convolution"), (y, self.x, weight))

    def graph(self):
        *shapes, result = self.shapes()
        operands = []
        for i, shape in enumerate(shapes):
            strides = prims.contiguous_strides(shape)
            if self.last and shape != (self.outer, self.x[1] // self.groups, *self.taps):
                inner = prims.contiguous_strides((shape[0], *shape[2:], shape[1]))
                strides = (inner[0], 1, *inner[1:-1])
            operands.append(prims.input_node(i, self.dtype, shape, strides))
        count = len(self.taps)
        geometry = {
            name: (value,) * count
            for name, value in (("stride", self.stride), ("low", self.low), ("dilation", 1))
        }
        choices = {"groups": self.groups, "method": self.method, "size": result[2:]}
        value = bind(self.op, *operands, **geometry, **choices)
        output = GraphOutput(value, prims.contiguous_strides(value.shape))
        return Graph((), tuple(operands), (), (output,), 1)

    def inputs(self):
        return [random_bytes(self.dtype, shape, i) for i, shape in enumerate(self.shapes()[:2])]


def convolution_cases():
    for op in ("convolution", "convolution_input", "convolution_weight"):
        for dtype in ("f32", "f64"):
            yield Convolution(op, dtype, (2, 3, 13, 17), 15, (5, 5), low=2)
            yield Convolution(op, dtype, (2, 5, 9, 19), 5, (3, 3), groups=5)
        yield Convolution(op, "f32", (1, 17, 9, 10), 33, (3, 3), method="winograd")
        yield Convolution(op, "f32", (2, 17, 9, 10), 33, (3, 3), method="winograd")
        yield Convolution(op, "f32", (1, 6, 11, 12), 8, (3, 3), stride=2, groups=2)
        yield Convolution(op, "f32", (1, 19, 7, 33), 31, (1, 1), low=0)
        yield Convolution(op, "f32", (2, 16, 8, 9), 18, (3, 3), last=True)
        yield Convolution(op, "f32", (2, 7, 10, 6), 7, (3, 3), stride=2, groups=7)
        yield Convolution(op, "f32", (1, 4, 11, 9), 4, (5, 5), low=2, groups=4)
        yield Convolution(op, "f32", (1, 3, 70, 65), 4, (3, 3))
        yield Convolution(op, "f32", (2, 3, 40), 5, (3,))
        yield Convolution(op, "f32", (1, 2, 4, 5, 6), 3, (3, 3, 3))


# ------------------------------------------------------------------------------- products


@dataclass(frozen=True)
class Product:
    """One batch of matrix products, and what becomes of it."""

    dtypes: tuple[str, str, str]  # left, right, result
    shape: tuple[int, ...]  # batch, M, K, N
    transposed: str = ""  # of "a", "b" and "r": whose columns are contiguous
    epilogue: bool = False

    def operands(self):
        *batch, m, k, n = self.shape
        shapes = (*batch, m, k), (*batch, k, n)
        return [(d, s, name in self.transposed) for d, s, name in zip(self.dtypes, shapes, "ab")]

    def strides(self, shape, transposed):
        if not transposed:
            return prims.contiguous_strides(shape)
        *strides, row, column = prims.contiguous_strides((*shape[:-2], shape[-1], shape[-2]))
        return (*strides, column, row)

    def graph(self):
        operands = [
            prims.input_node(i, dtype, shape, self.strides(shape, transposed))
            for i, (dtype, shape, transposed) in enumerate(self.operands())
        ]
        value = prims.matmul(*operands, dtype=self.dtypes[2])
        value = prims.neg(value) if self.epilogue else value
        output = GraphOutput(value, self.strides(value.shape, "r" in self.transposed))
        return Graph((), tuple(operands), (), (output,), 1)

    def inputs(self):
        return [random_bytes(d, shape, i) for i, (d, shape, _) in enumerate(self.operands())]


def product_cases():
    """Around the edges of panels, slabs, chunks and segments; few rows, operands packed ahead,
    transposed ones, few columns, batches; then every way to chain sums."""
    edges = (1, 1, 1), (3, 129, 65), (13, 127, 31), (15, 130, 33), (29, 2050, 70), (4, 2049, 33)
    ahead = (150, 136, 270)
    for shape in (*edges, (40, 50, 3), (2, 15, 131, 34), (2, 3, 5, 9, 7), (7, 0, 5), ahead):
        for transposed in ("", "b", "ar", "abr"):
            yield Product(("f32",) * 3, shape, transposed)
        yield Product(("f32",) * 3, shape, epilogue=True)
    for dtype in ("f64", "f16", "bf16", "c64", "c128", "i8", "u8", "i16", "i32", "i64"):
        for shape in (edges[3], ahead) if dtype[0] in "fb" else edges[3:4]:
            yield Product((dtype,) * 3, shape, "b" if shape is ahead else "r")
    several = ("f16", "f32"), ("bf16", "bf16"), ("bf16", "f32"), ("i8", "i32"), ("i8", "i8")
    for dtype, result in several:
        for shape in (edges[1], edges[3], edges[5], ahead, (40, 50, 3)):
            for transposed in ("", "b", "r"):
                yield Product((dtype, dtype, result), shape, transposed)
    for dtypes in (("u8", "i8", "i32"), ("u8", "u8", "u8"), ("c64",) * 3):
        for shape, transposed in ((edges[3], "r"), (edges[1], "b"), (ahead, "")):
            yield Product(dtypes, shape, transposed)


# Family of templates -> cases. Every template has some.
CASES = {
    "attention": list(attention_cases()),
    "convolution": list(convolution_cases()),
    "product": list(product_cases()),
}


def check(case, compiled_with):
    graph, inputs = case.graph(), case.inputs()
    functions = compiled(compiled_with, targets.current())
    first, second = (run(graph, inputs, pattern, functions) for pattern in PATTERNS)
    assert first == second


@pytest.mark.parametrize("case", [c for cases in CASES.values() for c in cases], ids=str)
def test_guard_zones(case):
    [cases] = [cases for cases in CASES.values() if case in cases]
    first = cases.index(case) // UNIT * UNIT
    check(case, tuple(cases[first : first + UNIT]))


OTHERS = [
    name
    for name, target in targets.TARGETS.items()
    if name != targets.current().name
    and (not target.machines or os.uname().machine in target.machines)
    and all(map(targets.has, target.features))
]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("family", CASES)
def test_other_targets(family, name):
    """Some cases, with the tiles of other targets that this machine runs."""
    with settings.override(TARGET=name):
        cases = tuple(CASES[family][::OTHER_TARGETS_SHARE])
        for case in cases:
            check(case, cases)


def test_every_template_has_cases():
    launches = [x for cases in CASES.values() for c in cases for x in schedule(c.graph()).launches]
    names = {x.kernel.template for x in launches if x.kernel and evaluate(x.chunks, {})}
    assert names == templates.TEMPLATES.keys()
