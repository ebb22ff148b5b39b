"""Memory traffic: the bytes that programs read and write, computed from sizes without a run.

Three figures of one program. Its launches move what their buffers hold, at most what their loops
touch: the same bytes that profiles show (`native/plan/plan_run.cpp`). The least that any compiler
can move is each input once and each result once. Eager mode moves the least of every operator
alone. Bytes count where kernels read and write memory: whether a cache serves them is not known
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flambeau.ir.node import ITEM_SIZE, Graph, Node, topological
from flambeau.ir.plan import ACCESS, Buffer, Execution, Launch, PlanSpec
from flambeau.ir.size import estimate, prod
from flambeau.ir.size_program import run
from flambeau.prims.record import record_of

if TYPE_CHECKING:
    from flambeau._core import ExternalTensor, OpRecord, TensorArgument
    from flambeau.capture.stream import StreamReport

# Kinds of primitives of whose operands only so many elements are read as they return, and those of
# which that is true of the first operand.
_EACH, _FIRST = ("pointwise", "shape"), ("index",)


class LaunchTraffic(NamedTuple):
    """Bytes that one launch moves.

    Attributes:
        name: of the launch.
        read: bytes that it reads.
        written: bytes that it writes.
        flops: floating-point operations that it computes, as far as they are counted.
        packs: whether it packs an operand: it is skipped while the operand stays as it is.
    """

    name: str
    read: int
    written: int
    flops: int = 0
    packs: bool = False

    @property
    def moved(self) -> int:
        """Bytes that it reads and writes."""
        return self.read + self.written


class ProgramTraffic(NamedTuple):
    """Bytes that a program moves.

    Attributes:
        launches: by launch, in order.
        least: bytes that any program with these results moves at least.
        eager: bytes that its operators move at least if each runs alone.
    """

    launches: list[LaunchTraffic]
    least: int
    eager: int

    @property
    def bytes(self) -> int:
        """Bytes that the launches move together, without those that pack an operand: the result is
        cached while the operand stays as it is."""
        return sum(launch.moved for launch in self.launches if not launch.packs)


def of_report(report: StreamReport) -> ProgramTraffic:
    """Bytes that a compiled stream moves; none where a size is divided by 0."""
    try:
        return _of_report(report)
    except ZeroDivisionError:
        return ProgramTraffic([], 0, 0)


def _of_report(report: StreamReport) -> ProgramTraffic:
    plan, graph = report.plan, report.graph
    tensors = [external.tensor for external in report.externals]
    launches: list[LaunchTraffic] = []
    if plan.execution is not None:
        launches = traffic_of(plan.spec, plan.execution, tensors, report.numbers)
    least = least_bytes(graph, dict(zip(graph.symbols, report.numbers, strict=True)))
    moved = ProgramTraffic(launches, least, eager_bytes(report.externals, report.records))
    # A program may write a part of a result whose other elements are there already.
    return moved._replace(least=min(least, moved.bytes)) if launches else moved


# ------------------------------------------------------------------------------- launches


def traffic_of(
    spec: PlanSpec,
    execution: Execution,
    tensors: Sequence[TensorArgument],
    numbers: Sequence[int],
) -> list[LaunchTraffic]:
    """Bytes that each launch of a program moves.

    Args:
        spec, execution: of the program's Plan.
        tensors: its operands.
        numbers: values of its symbols.
    """
    registers = run(spec.program, numbers)
    outputs = [_output_bytes(spec, number, registers) for number in range(len(spec.outputs))]
    registers = run(execution.program, registers)
    held = {
        number: _bytes_of(buffer, tensors, outputs, registers)
        for number, buffer in enumerate(execution.buffers)
    }
    return [_of_launch(launch, held, registers) for launch in execution.launches]


def _of_launch(launch: Launch, held: Mapping[int, int], registers: Sequence[int]) -> LaunchTraffic:
    packs = launch.packing is not None
    if launch.routine is None and launch.chunks >= 0 and registers[launch.chunks] <= 0:
        return LaunchTraffic(launch.name, 0, 0, 0, packs)
    points = registers[launch.elements] if launch.elements >= 0 else None
    read = written = 0
    for position, buffer in enumerate(launch.buffers):
        size, access = held[buffer], ACCESS["r"]
        if launch.traffic:
            per_point, access = launch.traffic[2 * position : 2 * position + 2]
            size = size if points is None else min(size, points * per_point)
        read += size if access & ACCESS["r"] else 0
        written += size if access & ACCESS["w"] else 0
    flops = registers[launch.flops] if launch.flops >= 0 else 0
    return LaunchTraffic(launch.name, read, written, flops, packs)


def _bytes_of(
    buffer: Buffer,
    tensors: Sequence[TensorArgument],
    outputs: Sequence[int],
    registers: Sequence[int],
) -> int:
    """Bytes of a buffer's elements; those that repeat (an expanded dimension) count once."""
    if buffer.kind == "input":
        return distinct_bytes(tensors[buffer.position])
    if buffer.kind == "output":
        return outputs[buffer.position]
    return registers[buffer.nbytes] if buffer.kind == "temporary" else 0


def distinct_bytes(tensor: TensorArgument) -> int:
    """Bytes that a tensor's elements take; those that repeat count once."""
    total = ITEM_SIZE[tensor.dtype]
    for size, stride in zip(tensor.sizes, tensor.strides, strict=True):
        total *= size if stride != 0 or size == 0 else 1
    return total


def _output_bytes(spec: PlanSpec, number: int, registers: Sequence[int]) -> int:
    """Bytes of a new result; 0 for views and operands."""
    output = spec.outputs[number]
    return registers[output.nbytes] if output.kind == "new" and output.nbytes >= 0 else 0


# ------------------------------------------------------------------------------- the least


def least_bytes(graph: Graph, values: Mapping[str, int]) -> int:
    """Bytes that a program moves at least: what it reads of each input, and each result.

    Args:
        graph: the program.
        values: of its symbols.
    """
    results = [output.node for output in graph.outputs if output.alias is None]
    sizes = {value: estimate(prod(value.shape), values, 0) for value in topological(results)}
    needed = _needed(sizes, results)
    moved = [_stored(x, values, needed[x]) for x in sizes if x.is_input and x not in results]
    return sum(moved) + sum(sizes[x] * ITEM_SIZE.get(x.dtype, 0) for x in results)


def _needed(sizes: Mapping[Node, int], results: Sequence[Node]) -> dict[Node, int]:
    """How many elements of each value the results depend on, at most.

    Args:
        sizes: elements of each value, operands before users.
        results: of the program.
    """
    needed = dict.fromkeys(sizes, 0)
    needed.update((x, sizes[x]) for x in results)
    for value in reversed(list(sizes)):
        elements = needed[value] = min(needed[value], sizes[value])
        kind = record_of(value).kind if not value.is_input else "input"
        # Further operands of an annotation are for its derivative.
        for position, operand in enumerate(
            value.inputs[:1] if kind == "annotation" else value.inputs
        ):
            few = kind in _EACH or (kind in _FIRST and position == 0) or kind == "annotation"
            needed[operand] += (elements if few else sizes[operand]) if elements else 0
    return needed


def _stored(x: Node, values: Mapping[str, int], elements: int) -> int:
    """Bytes of so many elements of an input, of which those that repeat are stored once."""
    strides = x.attribute("strides")
    axes = [size for size, stride in zip(x.shape, strides, strict=True) if stride != 0]
    return min(elements, estimate(prod(axes), values, 0)) * ITEM_SIZE[x.dtype]


# ------------------------------------------------------------------------------- operators


class _Geometry(NamedTuple):
    """Sizes, strides and offset of a tensor, in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def eager_bytes(externals: Sequence[ExternalTensor], records: Sequence[OpRecord]) -> int:
    """Bytes that recorded operators move at least if each of them runs alone, as in eager mode.

    Args:
        externals: the tensors from outside that they read.
        records: the operators' calls.
    """
    tensors = {external.value: _Geometry(*external.tensor[1:4]) for external in externals}
    total = 0
    for record in records:
        operands = [tensors[value] for value in record.operands if value >= 0]
        numbers = [n for x in operands for n in (*x.sizes, *x.strides, x.offset)]
        numbers += record.integers
        graph: Graph = record.plan.graph()
        total += least_bytes(graph, dict(zip(graph.symbols, numbers, strict=True)))
        for value, result in zip(record.results, _results(record.plan.spec, numbers)):
            if value < 0:
                continue
            own = tensors[record.operands[result]] if isinstance(result, int) else result
            tensors[value] = own
    return total


def _results(spec: PlanSpec, numbers: Sequence[int]) -> list[_Geometry | int]:
    """The geometry of a call's results; of an operand, which has its own, the slot."""
    registers = run(spec.program, numbers)

    def values(places: Sequence[int]) -> tuple[int, ...]:
        return tuple([registers[place] for place in places])

    return [
        _Geometry(values(x.sizes), values(x.strides), registers[x.offset] if x.offset >= 0 else 0)
        if x.kind in ("new", "alias")
        else x.slot
        for x in spec.outputs
    ]
