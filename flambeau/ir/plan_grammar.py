"""The grammar of plans and executions (grammar 3), as text and as a check.

    plan        := "plan" name ":" counts  instruction*  guard*  output*  attribute*  execution?
    counts      := symbols, tensors, numbers, generators
    instruction := register "=" constant | register operator register | "not" register
    guard       := "guard" register
    output      := "output" number ":" ( "new" dtype sizes strides nbytes device?
                 | "alias" slot dtype sizes strides offset | "input" slot | "none" ) ("hidden")?
    attribute   := "mutated" slots | "detached" outputs | "returns" kind | "check" check
                 | "bound" bound | "faults" | "copies_overlaps" | "chooses"
                 | "place" device
                 | "backward" name ":" op "to" targets "from" source*
    execution   := "execution:"  instruction*  buffer*  launch*  ("written" slots)?
    buffer      := "buffer" number ":" ( ("input" | "output" | "generator") index
                 | "temporary" register "in launches" first "to" last
                   ("in the memory of buffer" number)? | "error" kind message )
    launch      := "launch" number ":" ("kernel" | "program" | routine) name  buffers  offsets
                   sizes  scalars  registers  packing?  block program?

A block program is indented below its launch; `compiler/baseline/text.py` has its grammar. A
register is `r` and its number; those of an execution follow those of its plan. `verify_plan`
checks that every register is computed before it is read, that slots and positions exist, and that
temporaries live while launches use them; it quotes the lines around what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from flambeau.ir.graph_grammar import quoted
from flambeau.ir.plan import (
    ERRORS,
    BlockProgram,
    Buffer,
    Execution,
    Instruction,
    Launch,
    Output,
    PlanSpec,
    Source,
)
from flambeau.ir.size_program import Opcode

Line = tuple[str, str | None]  # its text, and what is wrong with it
ProgramLines = Callable[[BlockProgram], Iterable[str]]  # prints block programs
SYMBOLS = {
    Opcode.ADD: "+", Opcode.SUB: "-", Opcode.MUL: "*", Opcode.FLOORDIV: "//", Opcode.MOD: "%",
    Opcode.MIN: "min", Opcode.MAX: "max", Opcode.EQ: "==", Opcode.NE: "!=", Opcode.LT: "<",
    Opcode.LE: "<=", Opcode.AND: "and", Opcode.OR: "or",
}  # fmt: skip
_RETURNS = frozenset({"single", "tuple", "list", "nothing", "named"})
_REGISTERS = ("chunks", "work", "scratch", "flops", "elements")


class PlanError(ValueError):
    """A plan breaks the grammar; the message quotes the place."""


def print_plan(
    spec: PlanSpec, execution: Execution | None = None, programs: ProgramLines | None = None
) -> str:
    """A plan, and its compiled launches, as text.

    Args:
        spec, execution: the plan.
        programs: prints block programs; None: they are left out.
    """
    return "\n".join(text for text, _ in _plan_lines(spec, execution, programs)) + "\n"


def print_execution(execution: Execution, first: int, programs: ProgramLines | None = None) -> str:
    """An execution as text; `first` is the register that its first instruction writes."""
    spec = PlanSpec("", first, 0, (), 0)
    return "\n".join(text for text, _ in _execution_lines(spec, execution, programs)) + "\n"


def verify_plan(spec: PlanSpec, execution: Execution | None = None) -> None:
    """Raises `PlanError` where a plan, or what it was compiled to, breaks the grammar."""
    lines = list(_plan_lines(spec, execution))
    for number, (_, problem) in enumerate(lines):
        if problem is not None:
            neighbourhood = quoted([text for text, _ in lines], number)
            raise PlanError(f"[plan] {problem}\n{neighbourhood}\nhint: its specification is wrong")


# ------------------------------------------------------------------------------- plans


def _plan_lines(
    spec: PlanSpec, execution: Execution | None, programs: ProgramLines | None = None
) -> Iterator[Line]:
    counts = (spec.symbols, spec.tensors, spec.numbers, spec.generators)
    yield (
        "plan {}: {} symbols, {} tensors, {} numbers, {} generators".format(spec.name, *counts),
        None if min(counts) >= 0 else "a count is negative",
    )
    registers = spec.symbols + len(spec.program)
    yield from _instructions(spec.program, spec.symbols)
    for guard in spec.guards:
        yield f"guard r{guard}", _range("register", [guard], registers)
    for number, output in enumerate(spec.outputs):
        hidden = " hidden" if number >= spec.visible else ""
        yield f"output {number}: {_output(output)}{hidden}", _wrong_output(spec, output, registers)
    yield from _attributes(spec, registers)
    if execution is not None:
        yield from _execution_lines(spec, execution, programs)


def _instructions(program: Sequence[Instruction], first: int) -> Iterator[Line]:
    for register, (code, a, b) in enumerate(program, first):
        if code not in Opcode.__members__.values():
            yield f"r{register} = {code} {a} {b}", "unknown instruction"
        elif code == Opcode.CONST:
            yield f"r{register} = {a}", None
        elif code == Opcode.NOT:
            yield f"r{register} = not r{a}", _range("register", [a], register)
        else:
            text = f"r{register} = r{a} {SYMBOLS[Opcode(code)]} r{b}"
            yield text, _range("register", [a, b], register)


def _range(kind: str, numbers: Iterable[int], limit: int, absent: bool = False) -> str | None:
    """Describes numbers outside of [0, limit); -1 is valid where one may be absent."""
    for number in numbers:
        if not (0 <= number < limit or (absent and number == -1)):
            return f"{kind} {number} is none of {limit}"
    return None


def _output(output: Output) -> str:
    geometry = f"{output.dtype} {_list(output.sizes)} {_list(output.strides)}"
    if output.kind == "new":
        device = "" if output.device is None else f" on {output.device}"
        return f"new {geometry} nbytes r{output.nbytes}{device}"
    if output.kind == "alias":
        return f"alias {output.slot} {geometry} offset r{output.offset}"
    return f"input {output.slot}" if output.kind == "input" else output.kind


def _list(registers: Iterable[int]) -> str:
    return f"[{', '.join('-' if r == -1 else f'r{r}' for r in registers)}]"


def _wrong_output(spec: PlanSpec, output: Output, registers: int) -> str | None:
    if output.kind not in ("new", "alias", "input", "none"):
        return "unknown kind of output"
    if len(output.sizes) != len(output.strides):
        return "as many strides as sizes are needed"
    used = [*output.sizes, *output.strides]
    used += {"new": [output.nbytes], "alias": [output.offset]}.get(output.kind, [])
    slots = [output.slot] if output.kind in ("alias", "input") else []
    return _range("register", used, registers) or _range("slot", slots, spec.tensors)


def _attributes(spec: PlanSpec, registers: int) -> Iterator[Line]:
    outputs = len(spec.outputs)
    if spec.mutated:
        yield f"mutated {list(spec.mutated)}", _range("slot", spec.mutated, spec.tensors)
    if spec.detached:
        yield f"detached {list(spec.detached)}", _range("output", spec.detached, outputs)
    wrong = None if spec.returns in _RETURNS else "unknown kind of results"
    if spec.returns == "single" and spec.visible < 1:
        wrong = "there is no result to return"
    yield f"returns {spec.returns}", wrong or _range("output", [spec.visible], outputs + 1)
    for check in spec.checks:
        limit = registers if check.slot >= 0 else 65
        numbers = [check.value] if check.exempt == 2 else []
        yield (
            f"check {tuple(check)}",
            _range("slot", [check.slot], spec.tensors, absent=True)
            or _range("size", [check.size], limit)
            or _range("number", numbers, spec.numbers),
        )
    for bound in spec.bounds:
        yield (
            f"bound {tuple(bound)}",
            _range("output", [bound.output], outputs)
            or _range("register", [bound.size], registers, absent=True)
            or _range("slot", [bound.slot], spec.tensors, absent=max(bound.size, bound.high) >= 0)
            or _range("number", [bound.high, bound.low], spec.numbers, absent=True),
        )
    for flag in ("faults", "copies_overlaps", "chooses"):
        if getattr(spec, flag):
            yield flag, None
    if spec.place:
        yield f"place {spec.place}", None
    if spec.computed:
        yield f"computed {spec.computed}", None if spec.computed > 0 else "a count is negative"
    if spec.backward is not None:
        yield from _backward(spec, registers)


def _backward(spec: PlanSpec, registers: int) -> Iterator[Line]:
    backward = spec.backward
    assert backward is not None
    limits = {
        "input": spec.tensors,
        "output": len(spec.outputs),
        "grad": len(spec.outputs),
        "held": len(backward.targets),
        "register": registers,
        "scalar": spec.numbers,
    }
    yield (
        f"backward {backward.name}: {backward.op} to {list(backward.targets)} of {backward.edges}",
        _range("target", backward.targets, backward.edges),
    )
    for source in backward.arguments:
        yield f"  from {source.kind} {source.position}", _wrong_source(source, limits)


def _wrong_source(source: Source, limits: dict[str, int]) -> str | None:
    if source.kind not in limits:
        return "unknown kind of source"
    return _range(source.kind, [source.position], limits[source.kind])


# ------------------------------------------------------------------------------- executions


def _execution_lines(
    spec: PlanSpec, execution: Execution, programs: ProgramLines | None = None
) -> Iterator[Line]:
    first = spec.symbols + len(spec.program)
    registers = first + len(execution.program)
    yield "execution:", None
    yield from _instructions(execution.program, first)
    for number, buffer in enumerate(execution.buffers):
        wrong = _wrong_buffer(spec, execution, buffer, registers)
        yield f"buffer {number}: {_buffer(buffer)}", wrong
    for number, launch in enumerate(execution.launches):
        wrong = _wrong_launch(spec, execution, number, registers)
        yield f"launch {number}: {_launch(launch)}", wrong
        if launch.program is not None and programs is not None:
            yield from ((f"    {line}", None) for line in programs(launch.program))
    if execution.written:
        wrong = _range("slot", execution.written, spec.tensors)
        yield f"written {list(execution.written)}", wrong


def _buffer(buffer: Buffer) -> str:
    if buffer.kind == "temporary":
        shares = "" if buffer.shares < 0 else f" in the memory of buffer {buffer.shares}"
        return f"temporary r{buffer.nbytes} in launches {buffer.first} to {buffer.last}{shares}"
    if buffer.kind == "error":
        return f"error {buffer.error} {buffer.message!r}"
    return f"{buffer.kind} {buffer.position}"


def _wrong_buffer(
    spec: PlanSpec, execution: Execution, buffer: Buffer, registers: int
) -> str | None:
    position = [buffer.position]
    rules: dict[str, Callable[[], str | None]] = {
        "input": lambda: _range("slot", position, spec.tensors + spec.computed),
        "output": lambda: _range("output", position, len(spec.outputs)),
        "generator": lambda: _range("generator", position, spec.generators, absent=True),
        "error": lambda: None if buffer.error in ERRORS else "unknown kind of exception",
        "temporary": lambda: (
            _range("register", [buffer.nbytes], registers)
            or _range("launch", [buffer.first, buffer.last], len(execution.launches))
            or ("it ends before it begins" if buffer.last < buffer.first else None)
            or _wrong_sharing(execution, buffer)
        ),
    }
    rule = rules.get(buffer.kind)
    return "unknown kind of buffer" if rule is None else rule()


def _wrong_sharing(execution: Execution, buffer: Buffer) -> str | None:
    if buffer.shares == -1:
        return None
    wrong = _range("buffer", [buffer.shares], len(execution.buffers))
    if wrong is not None:
        return wrong
    owner = execution.buffers[buffer.shares]
    fits = owner.kind == "temporary" and owner.first < buffer.first <= owner.last <= buffer.last
    return None if fits else f"it cannot take over the memory of buffer {buffer.shares}"


def _launch(launch: Launch) -> str:
    called = launch.routine
    if launch.routine is None:
        called = "kernel" if launch.program is None else "program"
    words = [f"{called} {launch.name!r} buffers {list(launch.buffers)}"]
    if any(offset >= 0 for offset in launch.offsets):
        words.append(f"offsets {_list(launch.offsets)}")
    words.append(f"sizes {_list(launch.sizes)}")
    if launch.scalars:
        numbers = [f"{s.kind} {s.value}{' as float' * s.as_float}" for s in launch.scalars]
        words.append(f"scalars [{', '.join(numbers)}]")
    for name in _REGISTERS:
        if getattr(launch, name) >= 0:
            words.append(f"{name} r{getattr(launch, name)}")
    if launch.group >= 0:
        words.append(f"group {launch.group}")
    if launch.packing is not None:
        words.append(f"packs {launch.packing.source} to {launch.packing.target}")
    return " ".join(words)


def _wrong_launch(spec: PlanSpec, execution: Execution, number: int, registers: int) -> str | None:
    launch = execution.launches[number]
    optional = [*launch.offsets, *(getattr(launch, name) for name in _REGISTERS)]
    slots = [s.value for s in launch.scalars if s.kind == "argument"]
    wrong = (
        _range("buffer", launch.buffers, len(execution.buffers))
        or _range("register", launch.sizes, registers)
        or _range("register", optional, registers, absent=True)
        or _range("number", slots, spec.numbers)
    )
    if wrong is not None:
        return wrong
    if launch.routine is None and launch.chunks < 0:
        return "a kernel needs chunks"
    if launch.offsets and len(launch.offsets) != len(launch.buffers):
        return "as many offsets as buffers are needed"
    for position in launch.buffers:
        buffer = execution.buffers[position]
        if buffer.kind == "temporary" and not buffer.first <= number <= buffer.last:
            return f"buffer {position} does not live in launch {number}"
    return None


__all__ = ["PlanError", "print_execution", "print_plan", "verify_plan"]
