"""Launches of attention: which kernel, how many chunks, how much scratch.

The `Blocking`s of `FORWARD` and `BACKWARD` are choices that change no bit; autotuning measures
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flambeau.compiler import machine, targets
from flambeau.compiler.schedule.calls import FLOPS_PER_NANOSECOND, Reads, RoutineCall
from flambeau.compiler.schedule.template_calls import Binding, operand, results, strides
from flambeau.compiler.templates import TEMPLATES
from flambeau.compiler.templates.attention import (
    KEYS,
    PROBLEM,
    ROWS,
    SEGMENT,
    TILES,
    AttentionSettings,
)
from flambeau.compiler.templates.tile import VECTORS
from flambeau.ir.geometry import Shape
from flambeau.ir.node import Node, node
from flambeau.ir.size import Size, ceildiv, floordiv, maximum, minimum, mul, prod, sub
from flambeau.prims.attention import RESULTS
from flambeau.prims.random import PLACE_ROWS

OPERANDS = {
    "attention": ("query", "key", "value"),
    "attention_backward": ("grad", "query", "key", "value", "out", "top", "sum"),
}  # then mask and states, if any
SHORT = 8  # keys: of so few, those of few queries are computed as a vector of queries
MOST_CORES = 16  # so many heads are chunks of their own on any number of cores


@dataclass(frozen=True)
class Blocking:
    """A choice of how an attention is computed; no bit depends on it.

    Attributes:
        tiles: of queries that share a packed block of keys.
        segments: whether few queries are shared out by segments of keys.
        whole: whether the gradients of a head are one chunk; None: where there are enough heads.
    """

    tiles: int = TILES
    segments: bool = True
    whole: bool | None = None


# Candidates of attention and of its gradients, by name.
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
    """One attention: its sizes, and its operands and results by the names that
    `templates/attention.py` declares.

    Args:
        values: the results that are wanted.
        reads: where values are in memory.
    """

    def __init__(self, values: list[Node], reads: Reads) -> None:
        value = self.value = values[0]
        attributes: dict[str, Any] = dict(value.attributes)
        self.keep_probability: float | None = attributes.get("kept")  # with dropout
        dropout = self.keep_probability is not None
        names = [*OPERANDS[value.op]]
        names += ["mask"] * (len(value.inputs) - dropout > len(names)) + ["states"] * dropout
        inputs = dict(zip(names, value.inputs))
        shapes: dict[str, Shape] = dict(zip(names, attributes["shapes"]))
        self.buffers = {name: operand(value, i, reads) for i, name in enumerate(names)}
        self.batch, self.heads, self.length, self.size = shapes["query"]
        self.key_heads, self.keys, self.width = (
            shapes["key"][1],
            shapes["key"][2],
            shapes["value"][3],
        )
        self.groups = floordiv(self.heads, maximum(self.key_heads, 1))
        self.settings = AttentionSettings(
            inputs["query"].dtype,
            inputs["mask"].dtype if "mask" in inputs else "",
            dropout=PLACE_ROWS if dropout else 0,
        )
        self.tile = self.settings.tile(targets.current())
        offsets = {"none": self.keys, "upper": 0, "lower": sub(self.keys, self.length)}
        self.offset: Size = offsets[attributes["causal"]]
        self.wanted = {x.attribute("result") for x in values}
        prefix = "by_" if value.op == "attention_backward" else ""
        for name, binding in results(values, RESULTS[value.op], reads).items():
            self.buffers[prefix + name] = binding

    @property
    def dropout(self) -> bool:
        """Whether weights are dropped."""
        return self.keep_probability is not None

    @property
    def rows(self) -> Size:
        """Queries that share keys."""
        return mul(self.groups, self.length)

    @property
    def statistics(self) -> int:
        """Returns the statistics to compute: top (1), sum (2), lse (4)."""
        return sum(1 << i for i, n in enumerate(RESULTS["attention"][1:]) if n in self.wanted)

    def launch(
        self,
        template: str,
        numbers: Mapping[str, Size],
        settings: AttentionSettings | None = None,
        parts: Node | None = None,
        products: int = 1,
        block_rows: Size = 0,
    ) -> RoutineCall:
        """A launch of a template's kernel.

        Args:
            template: its name.
            numbers: size arguments of its own.
            settings: if they are not the problem's.
            parts: memory of decoded segments.
            products: pairs of matrix products, for estimates.
            block_rows: queries of a chunk of the backward kernel.
        """
        settings = settings or self.settings
        interface = TEMPLATES[template].interface(settings, targets.current())
        buffers = dict(self.buffers)
        if parts is not None:
            buffers["parts"] = Binding(("temporary", parts), 0, ())
        outer = (self.batch, self.key_heads, self.groups, self.length, self.keys)
        problem = (*outer, self.size, self.width, self.offset)
        call = RoutineCall(f"{template}_{settings.dtype}")
        call.bind(
            interface,
            {
                **dict(zip(PROBLEM, problem)),
                **numbers,
                **dict.fromkeys(settings.flags, 1),
                **strides(interface, buffers),
            },
            {b.name: (buffers[b.name].memory, buffers[b.name].offset) for b in interface.buffers},
            {"block_rows": block_rows},
        )
        call.kernel = interface.kernel(template, settings)
        call.scalars = [("constant", float(self.value.attribute("scale")), True)]
        if self.keep_probability is not None:
            scalars = (1.0 / self.keep_probability, float(math.ceil(self.keep_probability * 2**53)))
            call.scalars += [("constant", number, True) for number in scalars]
        pairs = prod((self.batch, self.heads, self.length, self.keys))
        call.flops = mul(pairs, 2 * products * (self.size + self.width))
        call.work = floordiv(call.flops, FLOPS_PER_NANOSECOND)
        return call


def attention(values: list[Node], reads: Reads, choice: str = "default") -> list[RoutineCall]:
    """The launches of attention, forward: one for many queries, one for a vector of them, or two
    for few, by the sizes; `choice` names one of `FORWARD`."""
    problem, blocking = _Problem(values, reads), FORWARD[choice]
    if problem.dropout:
        return [_many(problem, blocking.tiles)]
    few: Size = 0
    if blocking.segments:
        few = mul(_at_most(problem.rows, problem.tile.rows), sub(1, _at_most(problem.keys, SHORT)))
    narrow = mul(_at_most(problem.rows, problem.tile.lanes), sub(1, few))
    calls = [
        _many(problem, blocking.tiles),
        _many(problem, 1, vectors=1),
        *_few(problem, few),
    ]
    for call, factor in zip(calls, (sub(sub(1, few), narrow), narrow, few, few)):
        call.chunks = mul(factor, call.chunks)
    return [call for call in calls if call.chunks != 0] or calls[:1]


def _at_most(size: Size, limit: int) -> Size:
    """1 where a size is at most a limit, else 0."""
    return minimum(1, floordiv(limit, maximum(size, 1)))


def _many(problem: _Problem, tiles: int, vectors: int = VECTORS) -> RoutineCall:
    settings = replace(problem.settings, tiles=tiles, vectors=vectors)
    call = problem.launch("attention", {"wanted": problem.statistics}, settings)
    blocks = ceildiv(problem.rows, tiles * settings.tile(targets.current()).columns)
    call.chunks = prod((problem.batch, problem.key_heads, blocks))
    return call


def _few(problem: _Problem, few: Size) -> tuple[RoutineCall, RoutineCall]:
    """A launch over segments of keys, and one that joins them."""
    heads = mul(problem.batch, problem.key_heads)
    segments = ceildiv(problem.keys, SEGMENT)
    extent = prod((few, heads, segments, problem.rows, problem.width + 2))
    parts = node("s.parts", (), (("of", problem.value),), problem.settings.kind, (extent,))
    call = problem.launch("attention_decode", {"unused": 0}, parts=parts)
    call.chunks = mul(heads, segments)
    unmasked = replace(problem.settings, mask="")
    join = problem.launch("attention_join", {"wanted": problem.statistics}, unmasked, parts)
    join.chunks = mul(heads, problem.rows)
    join.work = mul(extent, 1)
    join.flops = 0
    return call, join


def attention_backward(
    values: list[Node], reads: Reads, choice: str = "default"
) -> list[RoutineCall]:
    """The launches of attention's backward: one where the heads are work enough for all cores,
    else one by keys and one by queries, which compute the weights twice; `choice` names one of
    `BACKWARD`."""
    problem = _Problem(values, reads)
    heads = mul(problem.batch, problem.key_heads)
    joint = minimum(1, floordiv(heads, min(machine.current().cores, MOST_CORES)))
    forced = BACKWARD[choice].whole
    joint = joint if forced is None else int(forced)
    joint = 1 if problem.dropout else joint
    apart = mul(sub(1, joint), heads)
    chunks = (
        mul(joint, heads),
        mul(apart, ceildiv(problem.rows, ROWS)),
        mul(apart, ceildiv(problem.keys, KEYS)),
    )
    needed = (problem.wanted, problem.wanted & {"query"}, problem.wanted - {"query"})
    flags = {f"of_{name}": int(name in problem.wanted) for name in RESULTS["attention_backward"]}
    calls: list[RoutineCall] = []
    for mode, count in enumerate(chunks[:1] if problem.dropout else chunks):
        block_rows = mul(ceildiv(problem.rows, ROWS), ROWS) if mode == 0 else ROWS
        call = problem.launch(
            "attention_backward", {"mode": mode, **flags}, products=3, block_rows=block_rows
        )
        call.chunks = count if needed[mode] else 0
        calls.append(call)
    return calls
