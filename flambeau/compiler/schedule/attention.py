"""Launches of attention: which kernel, how many chunks, how much scratch.

What may be chosen without a change of bits, by autotuning too, are the `Blocking`s of `FORWARD` and
`BACKWARD`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flambeau.compiler import machine, targets
from flambeau.compiler.codegen.c.kernels.c_attention import KEYS, SEGMENT, TILES, compute_kind
from flambeau.compiler.codegen.c.kernels.c_attention_dropout import BITS
from flambeau.compiler.codegen.c.kernels.c_micro import Micro
from flambeau.compiler.codegen.c.kernels.c_template_attention_backward import DRAWN, ROWS
from flambeau.compiler.codegen.c.kernels.c_template_attention_decode import high
from flambeau.compiler.schedule.calls import FLOPS_PER_NANOSECOND, Reads, RoutineCall
from flambeau.compiler.templates.attention import JOIN, PROBLEM, AttentionSettings
from flambeau.ir.geometry import Shape
from flambeau.ir.kernel import Kernel, Setting
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import Size, ceildiv, floordiv, maximum, minimum, mul, prod, sub
from flambeau.prims.attention import RESULTS
from flambeau.prims.random import PLACE_ROWS

MOST_CORES = 16  # as many heads are worked on one by one however many cores there are


@dataclass(frozen=True)
class Blocking:
    """What may be chosen of an attention.

    Attributes:
        tiles: of queries that share a packed block of keys.
        segments: whether few queries are shared out by segments of keys.
        whole: whether the gradients of a head are one chunk; None: where there are enough heads.
    """

    tiles: int = TILES
    segments: bool = True
    whole: bool | None = None


# What is measured of attention and of its gradients, by name.
FORWARD = {
    "default": Blocking(),
    "half the queries": Blocking(tiles=TILES // 2),
    "twice the queries": Blocking(tiles=2 * TILES),
    "keys in one go": Blocking(segments=False),
}
BACKWARD = {
    "default": Blocking(),
    "by heads": Blocking(whole=True),
    "by keys and by queries": Blocking(whole=False),
}


class _Problem:
    """The sizes of one attention.

    Args:
        value: a result.
        first: number of the query among the operands.
    """

    def __init__(self, value: Node, first: int) -> None:
        shapes: tuple[Shape, ...] = value.attribute("shapes")
        query, key, values = shapes[first : first + 3]
        self.batch, self.heads, self.length, self.size = query
        self.kept, self.keys, self.width = key[1], key[2], values[3]
        self.groups = floordiv(self.heads, maximum(self.kept, 1))
        self.dtype = value.inputs[first].dtype
        self.kind = compute_kind(self.dtype)
        given: dict[str, Any] = dict(value.attributes)
        self.share: float | None = given.get("kept")  # with dropout
        self.operands = len(value.inputs) - self.dropout
        masked = self.operands in (4, 8)
        self.mask = value.inputs[self.operands - 1].dtype if masked else ""
        self.micro = Micro.of(self.kind, targets.current())
        offsets = {"none": self.keys, "upper": 0, "lower": sub(self.keys, self.length)}
        self.offset: Size = offsets[value.attribute("causal")]

    @property
    def dropout(self) -> bool:
        """Whether weights are dropped."""
        return self.share is not None

    @property
    def sizes(self) -> list[Size]:
        """The first size arguments of every kernel of attention."""
        outer = [self.batch, self.kept, self.groups, self.length, self.keys]
        return [*outer, self.size, self.width, self.offset]

    def finish(
        self,
        call: RoutineCall,
        template: str,
        parameters: list[tuple[str, str]],
        value: Node,
        products: int = 1,
        tiles: int = TILES,
    ) -> None:
        """Adds the kernel of a template, and estimates: so many pairs of products."""
        settings: tuple[tuple[str, Setting], ...] = (("dtype", self.dtype), ("mask", self.mask))
        settings = settings if tiles == TILES else (*settings, ("tiles", tiles))
        call.scalars = [("constant", float(value.attribute("scale")), True)]
        if self.share is not None:
            settings = (*settings, ("dropout", PLACE_ROWS))
            numbers = (1.0 / self.share, float(math.ceil(self.share * 2**53)))
            call.scalars += [("constant", number, True) for number in numbers]
        call.kernel = Kernel(
            "template",
            tuple(parameters),
            len(call.sizes),
            ("f64",) * len(call.scalars),
            (),
            1,
            (),
            template=template,
            settings=tuple(sorted(settings)),
        )
        pairs = prod((self.batch, self.heads, self.length, self.keys))
        call.flops = mul(pairs, 2 * products * (self.size + self.width))
        call.work = floordiv(call.flops, FLOPS_PER_NANOSECOND)


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


def _results(call: RoutineCall, values: list[Node], reads: Reads) -> tuple[Shape, int]:
    """Adds all results: strides of the first, and which of the others are wanted: 1, 2, 4."""
    _, out = _result(call, values, "out", reads)
    wanted = [_result(call, values, name, reads)[0] for name in RESULTS["attention"][1:]]
    return out, sum(bit << i for i, bit in enumerate(wanted))


def attention(values: list[Node], reads: Reads, choice: str = "default") -> list[RoutineCall]:
    """The launches of attention, forward: one for many queries, or two for few, by the sizes;
    `choice` names one of `FORWARD`."""
    problem, blocking = _Problem(values[0], 0), FORWARD[choice]
    rows = mul(problem.groups, problem.length)
    if problem.dropout:
        return [_many(values, problem, reads, blocking.tiles)]
    few: Size = 0
    if blocking.segments:
        few = minimum(1, floordiv(problem.micro.rows, maximum(rows, 1)))
    calls = [_many(values, problem, reads, blocking.tiles), *_few(values, problem, few, reads)]
    for call, wanted in zip(calls, (sub(1, few), few, few)):
        call.chunks = mul(wanted, call.chunks)
    return [call for call in calls if call.chunks != 0] or calls[:1]


def _places(call: RoutineCall, value: Node, problem: _Problem, reads: Reads) -> list[Shape]:
    """Adds the places of the draws behind all other parameters."""
    return [_operand(call, value, i, reads) for i in range(problem.operands, len(value.inputs))]


def _many(values: list[Node], problem: _Problem, reads: Reads, tiles: int) -> RoutineCall:
    value = values[0]
    call = RoutineCall(f"attention_{problem.dtype}")
    strides = [_operand(call, value, i, reads) for i in range(problem.operands)]
    out, wanted = _results(call, values, reads)
    call.sizes = [*problem.sizes, wanted]
    for shape in (*strides[:3], out, *strides[3:], *_places(call, value, problem, reads)):
        call.sizes.extend(shape)
    parameters = [(x.dtype, "r") for x in value.inputs[: problem.operands]]
    parameters += [(problem.dtype, "w"), *[(problem.kind, "w")] * 3]
    parameters += [("i32", "r")] * problem.dropout
    problem.finish(call, "attention", parameters, value, tiles=tiles)
    rows = mul(problem.groups, problem.length)
    blocks = ceildiv(rows, tiles * problem.micro.columns)
    call.chunks = prod((problem.batch, problem.kept, blocks))
    call.scratch = _scratch(problem, tiles)
    return call


def _few(
    values: list[Node], problem: _Problem, few: Size, reads: Reads
) -> tuple[RoutineCall, RoutineCall]:
    """A launch over segments of keys, and one that joins them."""
    value = values[0]
    heads = mul(problem.batch, problem.kept)
    rows = mul(problem.groups, problem.length)
    segments = ceildiv(problem.keys, SEGMENT)
    extent = prod((few, heads, segments, rows, problem.width + 2))
    parts = node("s.parts", (), (("of", value),), problem.kind, (extent,))

    call = RoutineCall(f"attention_decode_{problem.dtype}")
    strides = [_operand(call, value, i, reads) for i in range(len(value.inputs))]
    call.add(("temporary", parts))
    call.sizes = [*problem.sizes, 0]
    for shape in strides:
        call.sizes.extend(shape)
    parameters = [*((x.dtype, "r") for x in value.inputs), (problem.kind, "w")]
    problem.finish(call, "attention_decode", parameters, value)
    call.chunks = mul(heads, segments)
    call.scratch = _decode_scratch(problem)

    return call, _join(values, problem, parts, reads)


def _join(values: list[Node], problem: _Problem, parts: Node, reads: Reads) -> RoutineCall:
    """A launch that joins segments of keys."""
    value = values[0]
    call = RoutineCall(f"attention_join_{problem.dtype}")
    results = RoutineCall("")
    out, wanted = _results(results, values, reads)
    places = zip(results.memory, results.offsets)
    settings = AttentionSettings(problem.dtype, problem.mask)
    interface = JOIN.interface(settings, targets.current())
    call.bind(
        interface,
        {**dict(zip(PROBLEM, problem.sizes)), "wanted": wanted, "out": out},
        {"parts": (("temporary", parts), 0), **dict(zip(RESULTS["attention"], places))},
    )
    call.scalars = [("constant", float(value.attribute("scale")), True)]
    call.kernel = interface.kernel(JOIN.name, settings)
    rows = mul(problem.groups, problem.length)
    call.chunks = prod((problem.batch, problem.kept, rows))
    call.work = mul(parts.shape[0], 1)
    return call


def _decode_scratch(problem: _Problem) -> Size:
    """Bytes of the layout in `c_template_attention_decode`."""
    rows, columns = problem.micro.rows, problem.micro.columns
    whole = high(rows)
    pitch = mul(ceildiv(problem.width, columns) + 1, columns)
    elements = mul(problem.size, whole + columns) + columns * KEYS + whole * SEGMENT
    elements = elements + rows * KEYS + KEYS
    return mul(elements + mul(pitch, whole + rows), ITEM_SIZE[problem.kind])


def attention_backward(
    values: list[Node], reads: Reads, choice: str = "default"
) -> list[RoutineCall]:
    """The launches of attention's backward: one where the heads are work enough for all cores,
    else one by keys and one by queries, which compute the weights twice; `choice` names one of
    `BACKWARD`."""
    value = values[0]
    problem = _Problem(value, 1)
    heads = mul(problem.batch, problem.kept)
    whole = minimum(1, floordiv(heads, min(machine.current().cores, MOST_CORES)))
    forced = BACKWARD[choice].whole
    whole = whole if forced is None else int(forced)
    whole = 1 if problem.dropout else whole
    rows = mul(problem.groups, problem.length)
    apart = mul(sub(1, whole), heads)
    chunks = (
        mul(whole, heads),
        mul(apart, ceildiv(rows, ROWS)),
        mul(apart, ceildiv(problem.keys, KEYS)),
    )
    wanted = {v.attribute("result") for v in values}
    calls: list[RoutineCall] = []
    for mode, count in enumerate(chunks[:1] if problem.dropout else chunks):
        call = _backward(values, problem, mode, reads)
        needed = (wanted, wanted & {"query"}, wanted - {"query"})[mode]
        call.chunks = count if needed else 0
        call.scratch = _backward_scratch(problem, rows if mode == 0 else ROWS)
        if problem.dropout:
            call.scratch = _dropout_scratch(problem)
        calls.append(call)
    return calls


def _backward(values: list[Node], problem: _Problem, mode: int, reads: Reads) -> RoutineCall:
    value = values[0]
    call = RoutineCall(f"attention_backward_{problem.dtype}")
    strides = [_operand(call, value, i, reads) for i in range(problem.operands)]
    found = [_result(call, values, name, reads) for name in RESULTS["attention_backward"]]
    call.sizes = [*problem.sizes, mode, *(int(wanted) for wanted, _ in found)]
    drawn = _places(call, value, problem, reads)
    for shape in (*strides[:5], *(places for _, places in found), *strides[7:], *drawn):
        call.sizes.extend(shape)
    parameters = [(x.dtype, "r") for x in value.inputs[: problem.operands]]
    parameters += [(problem.dtype, "w")] * 3 + [("i32", "r")] * problem.dropout
    problem.finish(call, "attention_backward", parameters, value, products=3)
    return call


def _backward_scratch(problem: _Problem, rows: Size) -> Size:
    """Bytes of the layout in `c_template_attention_backward`."""
    high, columns = problem.micro.rows, problem.micro.columns
    size, width = problem.size, problem.width
    elements = (size + width + size + size + width + size + width) * KEYS
    elements = elements + (size + width) * high + 3 * high * KEYS
    elements = elements + (3 * KEYS + 2 * high) * columns + 2 * ROWS * KEYS
    elements = elements + (2 * (size + width) + 3 + 2 * high) * ROWS
    elements = elements + mul(ceildiv(rows, ROWS) * ROWS, size)
    return mul(elements, ITEM_SIZE[problem.kind])


def _dropout_scratch(problem: _Problem) -> Size:
    """The same with dropout: bits of some queries, and gradients of all keys of a head."""
    sums = (problem.size + problem.width + 2 * problem.micro.rows) * KEYS
    elements = mul(ceildiv(problem.keys, KEYS), sums) + mul(ceildiv(problem.keys, BITS), DRAWN)
    return _backward_scratch(problem, DRAWN) + mul(elements, ITEM_SIZE[problem.kind])


def _scratch(problem: _Problem, tiles: int) -> Size:
    """Bytes of the layout in `c_template_attention`."""
    rows, columns = problem.micro.rows, problem.micro.columns
    size, width = problem.size, problem.width
    elements = (size + width + 2 * rows) * KEYS + (size + width) * rows
    elements = elements + (2 * KEYS + 2 * rows) * columns + width * columns
    elements = elements + (size + 2 * width + 8) * (tiles * columns)
    if problem.dropout:
        elements = elements + mul(ceildiv(problem.keys, BITS), tiles * columns)
    return mul(elements, ITEM_SIZE[problem.kind])


__all__ = ["attention", "attention_backward"]
