"""Custom operators in recorded regions: one node each, which the region's program calls as a whole.

The node's sizes are those that `register_fake` returns for the call, so a program is valid for them
alone. A native routine computes the node and calls back here: the operator's kernel gets tensors
of its own (which it may retain), and its results are copied to the program's buffers. Arguments
that are written become results, so that the program itself has no writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.compiler.schedule.calls import Reads, RoutineCall
from flambeau.compiler.schedule.routines import HANDLERS
from flambeau.ir.environment import same_size
from flambeau.ir.lock import importing
from flambeau.ir.node import ITEM_SIZE, GraphOutput, Node, node
from flambeau.language.dtypes import DTYPE_OBJECTS, name_of
from flambeau.language.schema import ArgumentSpec
from flambeau.library.autograd import Form
from flambeau.library.fake import RecordingContext, UnknownSizeError, entered
from flambeau.library.operators import OpOverload, flat_tensors, invoke
from flambeau.prims.record import NOT_DIFFERENTIABLE, PRIMITIVES, Primitive, Routine, bind, register

Tensor = Any
Geometry = tuple[str, tuple[int, ...], tuple[int, ...]]  # dtype, sizes, strides
WORK = 100_000  # nanoseconds that a call is taken to last


class Found(NamedTuple):
    """The result of a recorded call."""

    value: Any


class Call:
    """Everything about one class of calls but the contents of its tensors.

    Attributes:
        op: the operator.
        form: its arguments without their tensors; takes the form of the results.
        written: numbers of the tensors that it writes.
        operands: geometries of the tensors.
        results: geometries of what it writes, then of the results.
        number: by which plans and launches name it.
    """

    def __init__(self, op: OpOverload, form: Form, written: tuple[int, ...]) -> None:
        self.op = op
        self.form = form
        self.written = written
        self.operands: list[Geometry] = []
        self.results: list[Geometry] = []
        self.number = -1

    def __repr__(self) -> str:
        # The address prevents that a plan with it is stored for other processes.
        return f"<{self.op} at {id(self):#x}>"


_calls: list[Call] = []
_numbers: dict[Any, int] = {}


def record(op: OpOverload, values: Sequence[Any]) -> Found | None:
    """Records a call; None where it cannot be: its results' sizes are known only from data."""
    form = Form(values)
    key = _key(op, form.values)
    if key is None:
        return None
    tensors = flat_tensors(values)
    geometries = tuple(_geometry(t) for t in tensors)
    number = _numbers.get((key, geometries))
    if number is None:
        call = Call(op, form, _written(op, values))
        call.operands = list(geometries)
        try:
            call.results = _told(call)
        except UnknownSizeError:
            return None
        number = _numbers[key, geometries] = call.number = len(_calls)
        _calls.append(call)
    call = _calls[number]
    with _core.no_grad():
        results = _native()(tensors, number)
        for slot, value in zip(call.written, results, strict=False):
            tensors[slot].copy_(value)
    return Found(call.form.wrapped(results[len(call.written) :]))


def _geometry(t: Tensor) -> Geometry:
    return name_of(t.dtype), tuple(t.shape), tuple(t.stride())


def _key(op: OpOverload, values: Any) -> Any:
    """Returns a key of the call's other arguments; None if they cannot be compared."""
    key = (id(op), id(op.fake), _hashable(values))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return type(value), repr(value) if isinstance(value, float) else value


def _written(op: OpOverload, values: Sequence[Any]) -> tuple[int, ...]:
    slots: list[int] = []
    count = 0
    for argument, value in zip(op._schema.arguments, values, strict=True):
        tensors = flat_tensors([value])
        if argument.is_write:
            slots += range(count, count + len(tensors))
        count += len(tensors)
    return tuple(slots)


def _told(call: Call) -> list[Geometry]:
    """Geometries of the results, inferred while nothing is recorded."""
    suspended = _core.record_suspend()
    try:
        operands = [
            _core.tensor_empty_strided(sizes, strides, DTYPE_OBJECTS[dtype], "meta")
            for dtype, sizes, strides in call.operands
        ]
        with entered(RecordingContext(call.op)), _core.no_grad():
            assert call.op.fake is not None
            output = invoke(call.op.fake, call.op._schema, call.form.filled(operands))
    finally:
        _core.record_resume(suspended)
    told = [_geometry(x) for x in call.form.take_results(output)]
    return [call.operands[slot] for slot in call.written] + told


# ------------------------------------------------------------------------------------ programs


def _native() -> Any:
    """The native op of all custom operators in recorded regions."""
    global _op
    if _op is None:
        with importing:
            from flambeau.driver.planner import Source

        _core.set_python_routine(_run)
        arguments = (
            ArgumentSpec("tensors", "Tensor[]"),
            ArgumentSpec("call", "int"),
        )
        _op = _core.Op("custom_op", [(arguments, Source(_specify, lambda: None).build, ())])
    return _op


_op: Any = None


def _specify(arguments: tuple[Any, ...]) -> Any:
    """The program of a call: one node per result."""
    with importing:
        from flambeau.driver.errors import first_device
        from flambeau.driver.specify import _graph, _specify
    from flambeau.driver.trace import Trace, traced

    number = arguments[1]
    call = _calls[number]
    name = call.op._schema.name

    def run(trace: Trace) -> Any:
        for value, (_, sizes, strides) in zip(trace.inputs, call.operands, strict=True):
            for a, b in zip((*value.shape, *value.attribute("strides")), (*sizes, *strides)):
                same_size(a, b)
        outputs = []
        for result, (_, _, strides) in enumerate(call.results):
            outputs.append(GraphOutput(bind("custom_op", *trace.inputs, call=call, result=result),
                                       strides))  # fmt: skip
        return _graph(name, trace, outputs)

    trace, graph = traced(arguments, False, run)
    with trace:
        return _specify(
            graph, trace, "list", arguments, first_device(arguments), differentiable=False
        )


def _infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> tuple[str, tuple[int, ...]]:
    dtype, sizes, _ = constants["call"].results[constants["result"]]
    return dtype, sizes


def _launch(values: list[Node], reads: Reads) -> RoutineCall:
    value = values[0]
    call: Call = value.attribute("call")
    launch = RoutineCall("python")
    size: list[Any] = []
    for position, operand in enumerate(value.inputs):
        place = reads(operand)
        _, offset = value.attribute("views")[position]
        width = ITEM_SIZE[operand.dtype]
        launch.add(place.memory, (offset + place.offset) * width)
        size.append(_count(call.operands[position][1]) * width)
    for result, (dtype, sizes, _) in enumerate(call.results):
        result_node = next((v for v in values if v.attribute("result") == result), None)
        width = ITEM_SIZE[dtype]
        if result_node is None:
            launch.add(("temporary", _unread(value, result, dtype, sizes)))
        else:
            place = reads(result_node)
            launch.add(place.memory, place.offset * width)
        size.append(_count(sizes) * width)
    launch.sizes = [call.number, len(size), *size]
    launch.work = WORK
    return launch


def _count(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _unread(value: Node, result: int, dtype: str, sizes: tuple[int, ...]) -> Node:
    """Represents an unread result: memory that is written all the same."""
    return node("s.unused", (), (("of", value), ("result", result)), dtype, sizes)


if "custom_op" not in PRIMITIVES:
    register(
        Primitive(
            "custom_op",
            "routine",
            _infer,
            NOT_DIFFERENTIABLE,
            cost=WORK,
            routine=Routine("custom_op"),
            raises=True,
        )
    )
    HANDLERS["custom_op"] = _launch


# ------------------------------------------------------------------------------------ running


def _run(number: int, buffers: Sequence[memoryview]) -> None:
    """Runs the kernel for the native routine, on copies of the program's buffers."""
    call = _calls[number]
    suspended = _core.record_suspend()
    mode = _core.set_function_mode(None)
    try:
        with _core.no_grad():
            operands = [
                _copied(buffer, geometry)
                for buffer, geometry in zip(buffers, call.operands, strict=False)
            ]
            output = call.op.compute_now(call.form.filled(operands))
            results = [operands[slot] for slot in call.written]
            results += flat_tensors(output if isinstance(output, (tuple, list)) else [output])
            _deliver(call, results, buffers[len(operands) :])
    finally:
        _core.set_function_mode(mode)
        _core.record_resume(suspended)


def _memory(buffer: memoryview, dtype: str, sizes: tuple[int, ...]) -> Tensor:
    """A tensor over a buffer, row by row."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    view = _core.tensor_empty_strided((0,), (1,), DTYPE_OBJECTS[dtype], "cpu")
    storage = _core.storage_from_buffer(buffer)
    _core.tensor_set(view, storage, sizes, tuple(reversed(strides)), 0)
    return view


def _copied(buffer: memoryview, geometry: Geometry) -> Tensor:
    dtype, sizes, strides = geometry
    fresh = _core.tensor_empty_strided(sizes, strides, DTYPE_OBJECTS[dtype], "cpu")
    if fresh.numel():
        if 0 in strides and fresh.numel() > 1:  # elements repeat: each is written once
            return _memory(buffer, dtype, sizes).clone()
        fresh.copy_(_memory(buffer, dtype, sizes))
    return fresh


def _deliver(call: Call, results: Sequence[Tensor], buffers: Sequence[memoryview]) -> None:
    """Copies the results to the program's buffers.

    Raises:
        RuntimeError: they are not what `register_fake` returned.
    """
    if len(results) != len(call.results):
        raise RuntimeError(
            f"[{call.op}] register_fake told {len(call.results)} results, the kernel returned "
            f"{len(results)}\nhint: both return the same"
        )
    for value, buffer, (dtype, sizes, _) in zip(results, buffers, call.results, strict=True):
        if name_of(value.dtype) != dtype or tuple(value.shape) != sizes:
            raise RuntimeError(
                f"[{call.op}] register_fake told a result of {dtype}{list(sizes)}, the kernel "
                f"returned {name_of(value.dtype)}{list(value.shape)}\nhint: both return the same"
            )
        if value.numel():
            _memory(buffer, dtype, sizes).copy_(value)
