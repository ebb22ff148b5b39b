"""Plans and executions as plain records, which the native core reads by name (grammar 3).

A `PlanSpec` says what a class of calls takes and gives; an `Execution` how a compiled Graph runs.
All numbers are registers, slots and positions; the core checks the range of each one when it makes
a Plan. `plan_grammar` prints and verifies them. `packed` and `unpacked` are their form on disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau.ir.lock import importing

Instruction = tuple[int, int, int]
ACCESS = {"r": 1, "w": 2, "rw": 3}  # of a launch to a buffer, in `Launch.traffic`
ERRORS: tuple[str, ...] = ("index", "runtime", "value", "linalg")  # numbering = native `ErrorKind`


class Output(NamedTuple):
    """A result of a plan.

    Attributes:
        kind: "new", "alias" (a view of an operand), "input" (an operand itself) or "none".
        slot: tensor slot of the operand.
        dtype: of a new result or view: a name in the IR, or a dtype object.
        sizes, strides: registers.
        offset: of a view: register of its storage offset.
        nbytes: of a new result: register.
        device: of a new result, if it is not that of the first tensor.
    """

    kind: str
    slot: int = -1
    dtype: Any = "f32"
    sizes: Sequence[int] = ()
    strides: Sequence[int] = ()
    offset: int = -1
    nbytes: int = -1
    device: Any = None


class Source(NamedTuple):
    """Where an argument of a backward comes from.

    Attributes:
        kind: "input" (tensor slot), "output" (number), "grad" (of an output), "held" (what the edge
            of a target holds), "register" or "scalar" (number slot).
        position: see `kind`.
    """

    kind: str
    position: int


class BackwardSpec(NamedTuple):
    """The gradients of a plan.

    Attributes:
        name: of the tape's node.
        op: name of the op that computes them.
        signature: what it takes: number of tensors, names of integers, number of numbers.
        targets: tensor slots, or edges out of a region, that its results go to.
        edges: how many of these there are.
        arguments: in the order of the signature.
        once: whether they are not differentiable again.
        tuned: whether candidates are measured when it is compiled.
        fingerprint: of its Graph, of a stored plan.
    """

    name: str
    op: str
    signature: tuple[int, tuple[str, ...], int]
    targets: Sequence[int]
    edges: int
    arguments: Sequence[Source]
    once: bool = False
    tuned: bool = False
    fingerprint: str | None = None


class ConstantsSpec(NamedTuple):
    """The constant part of a frozen plan (`capture/freezing.py`).

    Attributes:
        slots: tensor slots of the constants; the first ones are what the part reads.
        numbers: number slots that it reads.
        tensors: how many of the slots it reads.
        fingerprint: of its Graph, of a stored plan.
    """

    slots: Sequence[int]
    numbers: Sequence[int]
    tensors: int
    fingerprint: str | None = None


class Check(NamedTuple):
    """A check of indices, or of a divisor, that a call's arguments answer (`driver/faults.py`).

    Attributes:
        slot: tensor slot of the indices; -1: a number must not be 0.
        size: register of the indexed size; of a number: how many of its bits are compared.
        strict: whether negative indices are wrong.
        exempt: 0: no value; 1: `value` is right in any case; 2: the number in slot `value` is.
        value: see `exempt`; of a number: its slot.
    """

    slot: int
    size: int
    strict: bool
    exempt: int
    value: int


class Bound(NamedTuple):
    """The bound of an integer output's elements.

    Attributes:
        output: its number.
        size: register above all of them, none of which is negative; -1: see `slot`.
        slot: tensor slot of whose elements it consists; -1: see `high`.
        high: slot of the number above all of them.
        low: slot of the number that is the least of them; -1: none is negative.
    """

    output: int
    size: int
    slot: int
    high: int = -1
    low: int = -1


class PlanSpec(NamedTuple):
    """One class of calls (docs/design.md § 6).

    Attributes:
        name: in profiles and errors.
        symbols: number of a call's symbols: the first registers.
        tensors, numbers, generators: slots of a call.
        outputs: results, those that only the backward reads last.
        visible: number of the others.
        program: instructions of the further registers.
        guards: registers that must not be 0.
        detached: outputs that never need a gradient.
        mutated: tensor slots that are written in place.
        returns: "single", "tuple", "list", "nothing" or "named".
        backward: the gradients.
        checks: what the data of arguments must fit.
        faults: whether more can be wrong with them.
        bounds: of integer outputs.
        copies_overlaps: whether `out=` copies operands that share its memory.
        chooses: whether its one result has elements of the first tensor alone.
        place: the device it runs on; "" for the host with operands that are there.
        computed: tensor slots of its launches behind those of a call, see `capture/freezing.py`.
        constants: how these are computed, of a frozen plan.
    """

    name: str
    symbols: int
    tensors: int
    outputs: Sequence[Output]
    visible: int
    numbers: int = 0
    generators: int = 0
    program: Sequence[Instruction] = ()
    guards: Sequence[int] = ()
    detached: Sequence[int] = ()
    mutated: Sequence[int] = ()
    returns: str = "single"
    backward: BackwardSpec | None = None
    checks: Sequence[Check] = ()
    faults: bool = False
    bounds: Sequence[Bound] = ()
    copies_overlaps: bool = False
    chooses: bool = False
    place: str = ""
    computed: int = 0
    constants: ConstantsSpec | None = None


class Buffer(NamedTuple):
    """Memory of an execution.

    Attributes:
        kind: "input", "output", "temporary", "generator" or "error".
        position: tensor slot, number of an output, or slot of a generator (-1: the default one).
        nbytes: of a temporary: register.
        first, last: of a temporary: launches that touch it.
        error: of an error record: kind of the exception.
        message: of an error record, with {value}, {size} and {dimension}.
        shares: of a temporary: the one whose memory it takes over if it is as large
            (`compiler/schedule/reuse.py`); -1: none.
    """

    kind: str
    position: int = -1
    nbytes: int = -1
    first: int = 0
    last: int = 0
    error: str = "index"
    message: str = ""
    shares: int = -1


class Number(NamedTuple):
    """A run-time number of a launch.

    Attributes:
        kind: "argument" (`value` is its slot) or "constant".
        value: see `kind`.
        as_float: whether the kernel takes a double.
    """

    kind: str
    value: Any
    as_float: bool


class Packing(NamedTuple):
    """The packing of an input by a launch (docs/design.md § 5).

    Attributes:
        source, target: positions in the launch's buffers.
        spare: register of bytes that are written for the cache only; -1: none.
        kernel: a number for the kernel's text.
    """

    source: int
    target: int
    spare: int
    kernel: int


class BlockProgram(NamedTuple):
    """A kernel for the block interpreter (docs/design.md § 5b).

    Attributes:
        functions: names of the block functions that it calls.
        words: everything else, see `compiler/baseline/program.py`.
    """

    functions: tuple[str, ...]
    words: bytes


class Launch(NamedTuple):
    """A kernel, or a native routine; -1 means no register.

    Attributes:
        name: in profiles and errors.
        kernel: its address, or in a stored plan its number.
        routine: its name, where there is neither kernel nor program.
        buffers: positions in the execution's buffers.
        offsets: registers of bytes to skip, per buffer; empty: none.
        sizes: registers of size arguments.
        scalars: numbers.
        chunks: register of the number of chunks.
        work: register of estimated nanoseconds.
        scratch: register of bytes per worker.
        group: launches of one group in a row are independent.
        flops, elements: registers, for profiles.
        traffic: for profiles: per buffer, bytes per point at most (all of it where there are no
            `elements`), and an `ACCESS`; or empty.
        packing: see `Packing`.
        program: on the baseline tier, in place of a kernel.
    """

    name: str
    kernel: int | None
    routine: str | None
    buffers: Sequence[int]
    offsets: Sequence[int] = ()
    sizes: Sequence[int] = ()
    scalars: Sequence[Number] = ()
    chunks: int = -1
    work: int = -1
    scratch: int = -1
    group: int = -1
    flops: int = -1
    elements: int = -1
    traffic: Sequence[int] = ()
    packing: Packing | None = None
    program: BlockProgram | None = None


class Execution(NamedTuple):
    """The result of compiling a Graph (docs/design.md § 5).

    Attributes:
        program: instructions of the registers after those of the plan.
        buffers: memory.
        launches: in order.
        written: tensor slots that launches write to.
        keepalive: objects that live as long as the kernels' addresses are used.
        pending: what makes better code for the plan (`compiler/tiers.py: Pending`); None: nothing.
    """

    program: Sequence[Instruction]
    buffers: Sequence[Buffer]
    launches: Sequence[Launch]
    written: Sequence[int] = ()
    keepalive: Sequence[Any] = ()
    pending: Any = None


# ------------------------------------------------------------------------------- on disk


_NUMBERS = ("buffers", "offsets", "sizes", "traffic")  # of a launch: registers and their like


def packed(record: Any) -> Any:
    """A record as plain tuples and bytes, which `marshal` writes; instructions as three columns."""
    narrow: dict[str, Any] = {}
    if isinstance(record, (PlanSpec, Execution)):
        narrow["program"] = [_narrow(column) for column in zip(*record.program)]
    elif isinstance(record, Launch):
        narrow.update((name, _narrow(getattr(record, name))) for name in _NUMBERS)
    record = record._replace(**narrow) if narrow else record
    if isinstance(record, (tuple, list)):
        return tuple([packed(field) for field in record])
    return record


def changed(base: Sequence[Any], change: object) -> Any:
    """The packed record that differs from another by a dict, of changes by position; or itself."""
    if not isinstance(change, dict):
        return change
    return tuple([changed(x, change[i]) if i in change else x for i, x in enumerate(base)])


def _narrow(numbers: Sequence[int]) -> Sequence[int]:
    """Integers as bytes of the least width, after the letter that `memoryview.cast` takes."""
    with importing:
        from array import array

    for width in "bhi" if len(numbers) > 1 else "":
        with contextlib.suppress(OverflowError, TypeError):
            return width.encode() + array(width, numbers).tobytes()
    return tuple(numbers)


def _numbers(narrow: Sequence[int]) -> Sequence[int]:
    """The integers of `_narrow`."""
    if not isinstance(narrow, bytes):
        return narrow
    width: Any = chr(narrow[0])
    return memoryview(narrow)[1:].cast(width).tolist()


def _program(columns: Sequence[Sequence[int]]) -> list[Instruction]:
    """The instructions of packed columns."""
    return list(zip(*map(_numbers, columns)))


def unpacked_spec(fields: Sequence[Any]) -> PlanSpec:
    """The `PlanSpec` that was packed."""
    spec = PlanSpec(*fields)
    backward = spec.backward
    if backward is not None:
        backward = BackwardSpec(*backward)
        backward = backward._replace(arguments=[Source(*x) for x in backward.arguments])
    return spec._replace(
        program=_program(spec.program),
        outputs=[Output(*x) for x in spec.outputs],
        backward=backward,
        constants=None if spec.constants is None else ConstantsSpec(*spec.constants),
        checks=[Check(*x) for x in spec.checks],
        bounds=[Bound(*x) for x in spec.bounds],
    )


def unpacked_execution(fields: Sequence[Any], program_at: Any = None) -> Execution:
    """The `Execution` that was packed; `program_at` gives the block program of a number."""
    execution = Execution(*fields)
    return execution._replace(
        program=_program(execution.program),
        buffers=[Buffer(*x) for x in execution.buffers],
        launches=[_unpacked_launch(x, program_at) for x in execution.launches],
    )


def _unpacked_launch(fields: Sequence[Any], program_at: Any) -> Launch:
    launch = Launch(*fields)
    packing = None if launch.packing is None else Packing(*launch.packing)
    program: Any = launch.program
    program = program_at(program) if isinstance(program, int) else program
    program = None if program is None else BlockProgram(*program)
    scalars = [Number(*x) for x in launch.scalars]
    numbers: dict[str, Any] = {name: _numbers(getattr(launch, name)) for name in _NUMBERS}
    return launch._replace(scalars=scalars, packing=packing, program=program, **numbers)
