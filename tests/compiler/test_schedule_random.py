"""Random programs: whatever the scheduler fuses, the bits are those of the plain meaning."""

import random

import numpy as np
import pytest

from flambeau import prims
from flambeau.ir.node import Graph, GraphOutput
from flambeau.ir.size import symbol
from tests.compiler.kernel_interpreter import check_graph

SIZES = {"s0": 3, "s1": 4, "s2": 6}
SYMBOLS = {value: symbol(name, minimum=2) for name, value in SIZES.items()}


class Program:
    """Grows a pool of nodes by random primitives."""

    def __init__(self, seed, symbolic):
        self.random = random.Random(seed)
        self.symbolic = symbolic
        shapes = [(3, 4), (3, 4), (4,), (6, 4), (3, 1)]
        self.inputs = [
            prims.input_node(i, "f32", self.shape(s), prims.contiguous_strides(self.shape(s)))
            for i, s in enumerate(shapes)
        ]
        self.arrays = [
            np.random.default_rng(seed + i).uniform(-2, 2, s) for i, s in enumerate(shapes)
        ]
        self.pool = list(self.inputs)

    def shape(self, shape):
        return tuple(SYMBOLS.get(e, e) if self.symbolic else e for e in shape)

    def pick(self):
        recent = self.pool[-6:] if self.random.random() < 0.6 else self.pool
        return self.random.choice(recent)

    def step(self):
        x = self.pick()
        made = getattr(self, self.random.choice(STEPS))(x)
        if made is not None and made.ndim <= 3:
            self.pool.append(made)

    def unary(self, x):
        name = self.random.choice(["exp", "sin", "neg", "tanh", "abs", "sigmoid"])
        return getattr(prims, name)(x)

    def binary(self, x):
        y = self.pick()
        try:
            return self.random.choice([lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b])(
                x, y
            )
        except (ValueError, NotImplementedError):
            return None

    def reduce(self, x):
        if not x.ndim:
            return None
        name = self.random.choice(["sum", "max", "sum"])
        dims = [self.random.randrange(x.ndim)]
        return prims.reduce_dims(name, x, dims, keepdim=self.random.random() < 0.5)

    def softmax(self, x):
        if not x.ndim:
            return None
        d = [self.random.randrange(x.ndim)]
        e = prims.exp(x - prims.reduce_dims("max", x, d, keepdim=True))
        return e / prims.reduce_dims("sum", e, d, keepdim=True)

    def permute(self, x):
        order = list(range(x.ndim))
        self.random.shuffle(order)
        return prims.permute(x, order)

    def flatten(self, x):
        size = 1
        for e in x.shape:
            size = size * e
        return prims.reshape(x, (size,))

    def unsqueeze(self, x):
        d = self.random.randrange(x.ndim + 1)
        return prims.reshape(x, (*x.shape[:d], 1, *x.shape[d:]))

    def slice(self, x):
        d = self.random.randrange(x.ndim) if x.ndim else None
        if d is None or not (isinstance(x.shape[d], int) and x.shape[d] > 2):
            return None
        return prims.slice(x, d, 1, x.shape[d] - 1, 1)

    def pad(self, x):
        low = [self.random.choice([0, 1, 2]) for _ in x.shape]
        high = [self.random.choice([0, 1]) for _ in x.shape]
        return prims.pad(x, low, high, 0.5)

    def flip(self, x):
        return prims.flip(x, (0,)) if x.ndim else None

    def cat(self, x):
        if not x.ndim:
            return None
        parts = [x, prims.exp(x), x * 2][: self.random.choice([2, 3])]
        return prims.cat(parts, self.random.randrange(x.ndim))

    def scan(self, x):
        return prims.cumsum(x, self.random.randrange(x.ndim)) if x.ndim else None

    def take(self, x):
        if not x.ndim:
            return None
        d = self.random.randrange(x.ndim)
        if x.shape[d] == 1:
            return None
        return prims.take(x, prims.full(1, (2,), "i64"), d)

    def matmul(self, x):
        if x.ndim < 2:
            return None
        order = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
        small = x * 0.1
        if self.random.random() < 0.5:
            return prims.matmul(prims.permute(small, order), x)
        return prims.matmul(small, prims.permute(x, order))

    def sort(self, x):
        if not x.ndim:
            return None
        values, indices = prims.sort(x, self.random.randrange(x.ndim))
        return self.random.choice([values, prims.cast(indices, "f32")])

    def best(self, x):
        if not x.ndim:
            return None
        d = self.random.randrange(x.ndim)
        return prims.cast(prims.argmax(x, d), "f32")

    def gather(self, x):
        if not x.ndim:
            return None
        d = self.random.randrange(x.ndim)
        places = prims.argmin(x, d)
        kept = (*x.shape[:d], 1, *x.shape[d + 1 :])
        return prims.gather(prims.sin(x), prims.reshape(places, kept), d)

    def scatter(self, x):
        if not x.ndim:
            return None
        d = self.random.randrange(x.ndim)
        _, places = prims.sort(x, d)
        mode = self.random.choice(["set", "add", "max"])
        return prims.scatter(prims.tanh(x), places, x * 2, d, mode)

    def where(self, x):
        return prims.where(x > 0.5, x, prims.neg(x))

    def round(self, x):
        return prims.cast(prims.cast(x, "f16"), "f32")

    def graph(self, steps, in_place=False):
        for _ in range(steps):
            self.step()
        candidates = [x for x in self.pool if x.op != "input"] or self.pool
        count = min(len(candidates), self.random.randint(1, 4))
        chosen = [candidates[-1], *self.random.sample(candidates, count)]
        free = {i: x for i, x in enumerate(self.inputs) if in_place}
        outputs = []
        for x in chosen:
            slot = next((i for i, y in free.items() if y.shape == x.shape), None)
            free.pop(slot, None)
            outputs.append(GraphOutput(x, prims.contiguous_strides(x.shape), target=slot))
        outputs = tuple(outputs)
        return Graph(tuple(SIZES), tuple(self.inputs), (), outputs, len(outputs))


STEPS = ["unary", "binary", "binary", "reduce", "softmax", "permute", "flatten", "unsqueeze"]
STEPS += ["slice", "pad", "flip", "cat", "scan", "take", "where", "round"]
STEPS += ["matmul", "sort", "best", "gather", "scatter"]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed, symbolic):
    program = Program(seed, symbolic)
    check_graph(program.graph(4 + seed % 13), program.arrays, sizes=SIZES)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_in_place(seed):
    program = Program(seed, bool(seed % 2))
    check_graph(program.graph(3 + seed % 7, in_place=True), program.arrays, sizes=SIZES)
