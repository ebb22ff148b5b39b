"""Runs programs step by step: `compiler.step` shows what each instruction computed.

Programs run on the baseline tier, on one thread, with the bits that they always have. The core
calls back after every instruction of a block program (`native/plan/plan_watch.cpp`); a template or
a native routine is one step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.compiler import debug
from flambeau.compiler.baseline.program import ALONG_S, ALONG_W, Draft, Instruction, unpack
from flambeau.compiler.baseline.text import instruction_text
from flambeau.compiler.baseline.values import (
    decode,
    decode_memory,
    dtypes,
    instructions,
)
from flambeau.ir.failure import failure
from flambeau.ir.kernel import Kernel
from flambeau.ir.lock import importing
from flambeau.ir.plan import BlockProgram, Execution
from flambeau.runtime import settings

BEFORE, AFTER = -2, -1  # in place of an instruction: a launch that is one step


@dataclass(frozen=True)
class Place:
    """An instruction, or a launch that is one step.

    Attributes:
        plan: name of the plan.
        launch: number of the launch in it.
        name: of the launch.
        text: the instruction as text; the form and name of a launch that is one step.
    """

    plan: str
    launch: int
    name: str
    text: str


@dataclass(frozen=True)
class Step(Place):
    """One instruction on one block, or a launch that is one step.

    Attributes:
        chunk: which part of the launch; 0 for a launch that is one step.
        instruction: its number in the program; -1: the launch is one step.
        begin: loop indices of the block's first element: row axes, then k of a column or scan
            program, then r, as far as the values vary along them.
        end: loop indices behind its last element.
        dtype: of the values, a name in the IR.
        values: what was computed or stored, row by row; None: nothing yet, of a reduction that goes
            on. One number is for all elements of a block where they are equal. Of a launch that
            is one step: all elements of the buffers that it writes.
    """

    chunk: int
    instruction: int
    begin: tuple[int, ...]
    end: tuple[int, ...]
    dtype: str
    values: list[Any] | None


class Block(NamedTuple):
    """The values that the core hands over after an instruction."""

    rows: int
    columns: int
    first_row: int
    first_column: int
    axes: tuple[int, ...]
    width: int
    data: bytes | None


class Program:
    """A block program with the text and the dtype of each instruction.

    Attributes:
        draft: the program.
        steps: its instructions.
        texts, dtypes: of each of them.
    """

    def __init__(self, program: BlockProgram, parameters: Sequence[str]) -> None:
        self.draft: Draft = unpack(program)
        self.steps: list[Instruction] = list(instructions(self.draft))
        self.texts = [instruction_text(self.draft, step) for step in self.steps]
        self.dtypes = dtypes(self.draft, parameters)

    def bounds(self, number: int, block: Block) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Loop indices of a block's first element, and behind its last one. The prologue is not in
        the loops."""
        if number < len(self.draft.prologue):
            return (), ()
        step = self.steps[number]
        across = self.draft.form in ("column", "scan")
        begin, end = list(block.axes), [axis + 1 for axis in block.axes]
        if across and step.level & ALONG_S:
            begin.append(block.first_row)
            end.append(block.first_row + block.rows)
        elif step.level & ALONG_S and begin:
            end[-1] = begin[-1] + block.rows
        if step.level & ALONG_W:
            begin.append(block.first_column)
            end.append(block.first_column + block.columns)
        return tuple(begin), tuple(end)


class Observer:
    """Sees the launches of a thread; `watching` installs it.

    A subclass overrides `instruction` and `operands`. Either returns False to end the watch.
    """

    def __init__(self) -> None:
        self._kernels: dict[int, tuple[Execution, list[Kernel | None]]] = {}
        self._programs: dict[bytes, Program] = {}

    def compiled(self, report: debug.Report) -> None:
        """Notes the kernels of an execution: they state the dtypes of buffers."""
        if report.stage == "assemble":
            kernels = [launch.kernel for launch in report.state.schedule.launches]
            execution = report.state.execution
            self._kernels[id(execution)] = execution, kernels

    def kernel(self, plan: Any, launch: int) -> Kernel | None:
        """The kernel of a launch, if it was compiled while this watches."""
        _, kernels = self._kernels.get(id(plan.execution), (None, []))
        return kernels[launch] if launch < len(kernels) else None

    def dtype_of_buffer(self, plan: Any, buffer: int) -> str:
        """The dtype of a buffer, which the kernels that read or write it state; "": none does."""
        for number, launch in enumerate(plan.execution.launches):
            kernel = self.kernel(plan, number)
            if kernel is not None and buffer in launch.buffers:
                return kernel.parameters[list(launch.buffers).index(buffer)][0]
        return ""

    def program(self, plan: Any, launch: int) -> Program:
        """The program of a launch."""
        packed = plan.execution.launches[launch].program
        program = self._programs.get(packed.words)
        if program is None:
            kernel = self.kernel(plan, launch)
            parameters = [] if kernel is None else [dtype for dtype, _ in kernel.parameters]
            program = self._programs[packed.words] = Program(packed, parameters)
        return program

    def place(self, plan: Any, launch: int, number: int) -> tuple[str, int, str, str]:
        """The fields of the `Place` of an instruction, or (AFTER) of a launch that is one step."""
        record = plan.execution.launches[launch]
        if number >= 0:
            text = self.program(plan, launch).texts[number]
        elif record.routine is not None:
            text = f"routine {record.routine}"
        else:
            kernel = self.kernel(plan, launch)
            text = f"template {kernel.template}" if kernel and kernel.template else "kernel"
        return plan.name, launch, record.name, text

    def __call__(self, plan: Any, launch: int, chunk: int, number: int, details: Any) -> bool:
        """The function that the core calls; see `native/plan/plan_watch.cpp`."""
        if number >= 0:
            return self.instruction(plan, launch, chunk, number, Block(*details))
        return self.operands(plan, launch, number == AFTER, details)

    def instruction(self, plan: Any, launch: int, chunk: int, number: int, block: Block) -> bool:
        """After an instruction of a block program."""
        raise NotImplementedError

    def operands(self, plan: Any, launch: int, after: bool, buffers: Sequence[Any]) -> bool:
        """Before and after a launch that is one step, with its buffers: tensors, or bytes."""
        raise NotImplementedError

    def written(self, plan: Any, launch: int) -> list[bool]:
        """Whether a launch writes each of its buffers. Routines are taken to write results and
        memory that no earlier launch touches."""
        execution, kernel = plan.execution, self.kernel(plan, launch)
        if kernel is not None:
            return ["w" in access for _, access in kernel.parameters]
        buffers = [execution.buffers[number] for number in execution.launches[launch].buffers]
        return [
            each.kind == "output" or (each.kind == "temporary" and each.first == launch)
            for each in buffers
        ]

    def elements(self, plan: Any, launch: int, position: int, buffer: Any) -> tuple[str, list[Any]]:
        """The dtype and the elements of a buffer of a launch; nothing where they are unknown."""
        if isinstance(buffer, bytes):
            dtype = self.dtype_of_buffer(plan, plan.execution.launches[launch].buffers[position])
            return dtype, decode_memory(buffer, dtype) if dtype else []
        if buffer is None:
            return "", []
        return buffer.dtype.abbr.replace("b8", "bool"), _flat(buffer.tolist())


def _flat(nested: Any) -> list[Any]:
    if not isinstance(nested, list):
        return [nested]
    return [element for item in nested for element in _flat(item)]


@contextlib.contextmanager
def watching(observer: Observer) -> Iterator[None]:
    """Inside, programs of this thread run on the baseline tier and `observer` sees their launches.

    Plans that are in memory are forgotten before and after.
    """
    with settings.override(TIER="baseline"), debug.watch(observer.compiled):
        _core.plan_cache_clear()
        _core.set_launch_watcher(observer)
        try:
            yield
        finally:
            _core.set_launch_watcher(None)
            _core.plan_cache_clear()


class _Recorder(Observer):
    """Lists steps."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def instruction(self, plan: Any, launch: int, chunk: int, number: int, block: Block) -> bool:
        program = self.program(plan, launch)
        begin, end = program.bounds(number, block)
        dtype = program.dtypes[number]
        values = None if block.data is None else decode(block.data, dtype)
        place = self.place(plan, launch, number)
        self.steps.append(Step(*place, chunk, number, begin, end, dtype, values))
        return True

    def operands(self, plan: Any, launch: int, after: bool, buffers: Sequence[Any]) -> bool:
        if not after:
            return True
        values: list[Any] = []
        dtype = ""
        for position, written in enumerate(self.written(plan, launch)):
            if written:
                dtype, elements = self.elements(plan, launch, position, buffers[position])
                values += elements
        place = self.place(plan, launch, AFTER)
        self.steps.append(Step(*place, 0, AFTER, (0,), (len(values),), dtype, values))
        return True


def step(function: Any, *arguments: Any, **named: Any) -> Iterator[Step]:
    """Runs a function on the baseline tier and lists every instruction with what it computed.

    All values are held until the iterator is gone: call it with small tensors.

    Args:
        function: a callable on tensors, compiled or not; or a plan that takes tensors alone.
        *arguments, **named: its arguments.

    Returns:
        an iterator over the steps, in the order in which they ran.

    Raises:
        NotImplementedError: a plan that takes more than tensors.

    Example:
        >>> steps = torch.compiler.step(torch.exp, torch.zeros(3))
        >>> [(s.launch, s.begin, s.end, s.values) for s in steps if "exp f32" in s.text]
        [(0, (0,), (3,), [1.0, 1.0, 1.0])]
    """
    recorder = _Recorder()
    call = _callable_of(function) if type(function) is _core.Plan else function
    with watching(recorder):
        call(*arguments, **named)
    return iter(recorder.steps)


def _callable_of(plan: Any) -> Callable[..., Any]:
    """A function that runs a plan's graph."""
    spec = plan.spec
    if spec.numbers or spec.generators or spec.place:
        problem = f"the plan {plan.name} takes more than tensors of the host"
        raise failure(NotImplementedError, "step", problem, "step through the call that it is of")

    def call(*tensors: Any) -> Any:
        with importing:
            from flambeau.compiler.pipeline import compile_graph
        from flambeau.language.schema import ArgumentSpec

        registers = spec.symbols + len(spec.program)
        if len(tensors) != spec.tensors or spec.symbols != sum(2 * t.dim() + 1 for t in tensors):
            problem = f"the plan {plan.name} takes {spec.tensors} tensors, or numbers beside them"
            raise failure(NotImplementedError, "step", problem, "step through its call")
        execution = compile_graph(plan.graph(), registers)
        own = spec._replace(backward=None)
        arguments = tuple(ArgumentSpec(f"x{i}", "Tensor") for i in range(spec.tensors))

        def build(_: Any) -> Any:
            return _core.Plan(own, compile=lambda: execution)

        return _core.Op(plan.name, [(arguments, build, ())])(*tensors)

    return call
