"""Launches of attention: which kernel, how many chunks, how much scratch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from flambeau.compiler import targets
from flambeau.compiler.codegen.c_attention import KEYS, TILES, compute_kind
from flambeau.compiler.codegen.c_micro import Micro
from flambeau.compiler.codegen.c_template_attention_backward import ROWS
from flambeau.compiler.schedule.build import Place
from flambeau.compiler.schedule.views import Shape
from flambeau.ir.kernel import Kernel
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import Size, ceildiv, floordiv, maximum, minimum, mul, prod, sub
from flambeau.prims.attention import RESULTS

if TYPE_CHECKING:
    from flambeau.compiler.schedule.routines import RoutineCall

Reads = Callable[[Node], Place]
FLOPS_PER_NANOSECOND = 64
MOST_CORES = 16  # as many heads are worked on one by one however many cores there are


class _Problem:
    """The sizes of one attention.

    Args:
        value: a result.
        first: number of the query among the operands.
    """

    def __init__(self, value: Node, first: int) -> None:
        shapes: tuple[Shape, ...] = value.attribute("shapes")
        query, key, given = shapes[first : first + 3]
        self.batch, self.heads, self.length, self.size = query
        self.kept, self.keys, self.width = key[1], key[2], given[3]
        self.groups = floordiv(self.heads, maximum(self.kept, 1))
        self.dtype = value.inputs[first].dtype
        self.kind = compute_kind(self.dtype)
        self.mask = value.inputs[-1].dtype if len(value.inputs) in (4, 7) else ""
        self.micro = Micro.of(self.kind, targets.current())
        offsets = {"none": self.keys, "upper": 0, "lower": sub(self.keys, self.length)}
        self.offset: Size = offsets[value.attribute("causal")]

    @property
    def sizes(self) -> list[Size]:
        """The first size arguments of every kernel of attention."""
        outer = [self.batch, self.kept, self.groups, self.length, self.keys]
        return [*outer, self.size, self.width, self.offset]

    def work(self, products: int) -> Size:
        """Estimated nanoseconds of so many products of every query and key."""
        pairs = prod((self.batch, self.heads, self.length, self.keys))
        return floordiv(mul(pairs, products * (self.size + self.width)), FLOPS_PER_NANOSECOND)

    def kernel(self, template: str, parameters: list[tuple[str, str]], sizes: int) -> Kernel:
        """A kernel for these dtypes."""
        return Kernel(
            "template",
            tuple(parameters),
            sizes,
            ("f64",),
            (),
            1,
            (),
            template=template,
            settings=(("dtype", self.dtype), ("mask", self.mask)),
        )


def _operand(call: RoutineCall, value: Node, number: int, reads: Reads) -> Shape:
    operand = value.inputs[number]
    place = reads(operand)
    strides: Shape
    strides, offset = value.attribute("views")[number]
    call.add(place.memory, mul(offset + place.offset, ITEM_SIZE[operand.dtype]))
    return strides


def _result(call: RoutineCall, values: list[Node], name: str, reads: Reads) -> tuple[bool, Shape]:
    """Adds a result, or memory nobody writes where nobody wants it."""
    for value in values:
        if value.attribute("result") == name:
            place = reads(value)
            call.add(place.memory, mul(place.offset, ITEM_SIZE[value.dtype]))
            return True, place.strides
    unused = node("s.unused", (), (("of", values[0]), ("result", name)), "f32", (1,))
    call.add(("temporary", unused))
    return False, (0, 0, 0, 0)


def attention(values: list[Node], reads: Reads) -> list[RoutineCall]:
    """The launches of attention, forward."""
    from flambeau.compiler.schedule.routines import RoutineCall

    value = values[0]
    problem = _Problem(value, 0)
    call = RoutineCall(f"attention_{problem.dtype}")
    strides = [_operand(call, value, i, reads) for i in range(len(value.inputs))]
    _, out = _result(call, values, "out", reads)
    wanted, _ = _result(call, values, "lse", reads)
    call.sizes = [*problem.sizes, int(wanted)]
    for shape in (*strides[:3], out, *strides[3:]):
        call.sizes.extend(shape)
    parameters = [(x.dtype, "r") for x in value.inputs]
    parameters += [(problem.dtype, "w"), (problem.kind, "w")]
    call.kernel = problem.kernel("attention", parameters, len(call.sizes))
    call.scalars = [("constant", float(value.attribute("scale")), True)]
    rows = mul(problem.groups, problem.length)
    blocks = ceildiv(rows, TILES * problem.micro.columns)
    call.chunks = prod((problem.batch, problem.kept, blocks))
    call.work = problem.work(1)
    call.scratch = _scratch(problem)
    return [call]


def attention_backward(values: list[Node], reads: Reads) -> list[RoutineCall]:
    """The launches of attention's backward: one where the heads are work enough for all cores,
    else one by keys and one by queries, which compute the weights twice."""
    value = values[0]
    problem = _Problem(value, 1)
    heads = mul(problem.batch, problem.kept)
    whole = minimum(1, floordiv(heads, min(os.cpu_count() or 1, MOST_CORES)))
    rows = mul(problem.groups, problem.length)
    apart = mul(sub(1, whole), heads)
    chunks = (
        mul(whole, heads),
        mul(apart, ceildiv(rows, ROWS)),
        mul(apart, ceildiv(problem.keys, KEYS)),
    )
    wanted = {v.attribute("result") for v in values}
    calls = []
    for mode, count in enumerate(chunks):
        call = _backward(values, problem, mode, reads)
        needed = (wanted, wanted & {"query"}, wanted - {"query"})[mode]
        call.chunks = count if needed else 0
        call.scratch = _backward_scratch(problem, rows if mode == 0 else ROWS)
        calls.append(call)
    return calls


def _backward(values: list[Node], problem: _Problem, mode: int, reads: Reads) -> RoutineCall:
    from flambeau.compiler.schedule.routines import RoutineCall

    value = values[0]
    call = RoutineCall(f"attention_backward_{problem.dtype}")
    strides = [_operand(call, value, i, reads) for i in range(len(value.inputs))]
    found = [_result(call, values, name, reads) for name in RESULTS["attention_backward"]]
    call.sizes = [*problem.sizes, mode, *(int(wanted) for wanted, _ in found)]
    for shape in (*strides[:5], *(places for _, places in found), *strides[6:]):
        call.sizes.extend(shape)
    parameters = [(x.dtype, "r") for x in value.inputs] + [(problem.dtype, "w")] * 3
    call.kernel = problem.kernel("attention_backward", parameters, len(call.sizes))
    call.scalars = [("constant", float(value.attribute("scale")), True)]
    call.work = problem.work(3)
    return call


def _backward_scratch(problem: _Problem, rows: Size) -> Size:
    """Bytes of the layout in `c_template_attention_backward`."""
    high, columns = problem.micro.rows, problem.micro.columns
    size, width = problem.size, problem.width
    elements = (size + width + size + size + width + size + width) * KEYS
    elements = elements + (size + width) * high + 3 * high * KEYS
    elements = elements + (3 * KEYS + 2 * high) * columns + 2 * ROWS * KEYS
    elements = elements + (2 * (size + width) + 2 + 2 * high) * ROWS
    elements = elements + mul(ceildiv(rows, ROWS) * ROWS, size)
    return mul(elements, ITEM_SIZE[problem.kind])


def _scratch(problem: _Problem) -> Size:
    """Bytes of the layout in `c_template_attention`."""
    rows, columns = problem.micro.rows, problem.micro.columns
    size, width = problem.size, problem.width
    elements = (size + width + 2 * rows) * KEYS + (size + width) * rows
    elements = elements + (2 * KEYS + 2 * rows) * columns + width * columns
    elements = elements + (size + 2 * width + 8) * (TILES * columns)
    return mul(elements, ITEM_SIZE[problem.kind])


__all__ = ["attention", "attention_backward"]
