"""Finds the operation that made a NaN of operands without one, by running it step by step.

`find_nan` is for a call; `autograd.detect_anomaly` uses it for the node whose gradient has a NaN.
Every instruction of a block program is checked at once, element by element; reductions and scans
over all elements that a result depends on; templates and routines by their buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.compiler.baseline.program import ALONG_S, ALONG_W
from flambeau.compiler.baseline.values import decode
from flambeau.compiler.stepping import AFTER, Block, Observer, Place, Program, watching

_REDUCTIONS = ("reduce", "columns", "scan")


@dataclass(frozen=True)
class NanOrigin(Place):
    """Where a NaN came from operands that had none.

    Attributes:
        primitive: name of the primitive; of the reduction, scan, template or routine.
        element: loop indices of the element, as in `Step.begin`; of a template or routine the
            position in the buffer that it writes.
        operands: the operands' values there; of reductions, templates and routines none.
    """

    primitive: str
    element: tuple[int, ...]
    operands: tuple[Any, ...]

    def __str__(self) -> str:
        values = f" of {', '.join(f'{x:g}' for x in self.operands)}" if self.operands else ""
        where = ", ".join(map(str, self.element))
        return f"{self.primitive!r}{values} at element ({where}) of the kernel {self.name!r}"


def _nan(value: Any) -> bool:
    return bool(value != value)


class _Search(Observer):
    """Checks every step; ends the watch at the first NaN.

    Attributes:
        origin: the NaN that was found, or None.
    """

    def __init__(self) -> None:
        super().__init__()
        self.origin: NanOrigin | None = None
        self.launch: tuple[int, int] = (-1, -1)
        self.registers: dict[int, tuple[list[Any], int]] = {}  # values, and columns
        self.flags: dict[int, dict[int, bool]] = {}  # of reductions: NaN among operands
        self.clean = False  # no operand of a launch that is one step has a NaN

    def instruction(self, plan: Any, launch: int, chunk: int, number: int, block: Block) -> bool:
        """After an instruction: compares its result with its operands."""
        if self.launch != (id(plan), launch):
            self.launch, self.registers, self.flags = (id(plan), launch), {}, {}
        program = self.program(plan, launch)
        step = program.steps[number]
        operands = [self.registers.get(r, ([], 1)) for r in step.operands if r >= 0]
        values = None if block.data is None else decode(block.data, program.dtypes[number])
        at = -1
        if step.code in _REDUCTIONS:
            at = self._reduced(number, step.code, operands[0], values, block)
        elif step.code == "call" and values is not None and any(map(_nan, values)):
            at = _first(values, operands)
        if step.result >= 0 and values is not None:
            self.registers[step.result] = values, block.columns
        if at < 0:
            return True
        self.origin = self._origin(plan, launch, number, block, at, operands)
        return False

    def _reduced(
        self, number: int, code: str, operand: tuple[list[Any], int], values: Any, block: Block
    ) -> int:
        """The number of the first result that is NaN though no operand is; -1: there is none."""
        flags = self.flags.setdefault(number, {})
        if (block.first_column if code == "reduce" else block.first_row) == 0:
            flags.clear()
        elements, columns = operand
        if code != "scan":
            for at, element in enumerate(elements):
                if _nan(element):
                    flags[at // columns if code == "reduce" else at % columns] = True
            return _first_unflagged(values, flags)
        for at, (element, value) in enumerate(zip(elements, values, strict=True)):
            flags[at % columns] = flags.get(at % columns, False) or _nan(element)
            if _nan(value) and not flags[at % columns]:
                return at
        return -1

    def _origin(
        self, plan: Any, launch: int, number: int, block: Block, at: int, operands: Sequence[Any]
    ) -> NanOrigin:
        program = self.program(plan, launch)
        step = program.steps[number]
        name = step.functions[0]
        words = name.split(" ")
        element = _element(program, number, block, at)
        values: tuple[Any, ...] = ()
        primitive = words[0]
        if step.code in _REDUCTIONS:
            primitive = words[1] if step.code != "scan" else f"cum{words[1]}"
        else:
            values = tuple(x[at] if len(x) > 1 else x[0] for x, _ in operands)
        return NanOrigin(*self.place(plan, launch, number), primitive, element, values)

    def operands(self, plan: Any, launch: int, after: bool, buffers: Sequence[Any]) -> bool:
        """Before and after a template or a routine: compares what it reads and writes."""
        written = self.written(plan, launch)
        if not after:
            read = [position for position, each in enumerate(written) if not each]
            self.clean = not any(
                _nan(x) for p in read for x in self.elements(plan, launch, p, buffers[p])[1]
            )
            return True
        for position, each in enumerate(written):
            if not each or not self.clean:
                continue
            _, elements = self.elements(plan, launch, position, buffers[position])
            at = next((i for i, x in enumerate(elements) if _nan(x)), -1)
            if at >= 0:
                place = self.place(plan, launch, AFTER)
                self.origin = NanOrigin(*place, place[-1].split(" ")[-1], (at,), ())
                return False
        return True


def _first(values: Sequence[Any], operands: Sequence[tuple[list[Any], int]]) -> int:
    """The number of the first element that is NaN though no operand is there; -1: none is."""
    for at, value in enumerate(values):
        if _nan(value) and not any(_nan(x[at if len(x) > 1 else 0]) for x, _ in operands if x):
            return at
    return -1


def _first_unflagged(values: Any, flags: dict[int, bool]) -> int:
    if values is None:
        return -1
    return next((i for i, value in enumerate(values) if _nan(value) and i not in flags), -1)


def _element(program: Program, number: int, block: Block, at: int) -> tuple[int, ...]:
    """The loop indices of an element of a block."""
    begin, _ = program.bounds(number, block)
    row, column = divmod(at, block.columns)
    indices, level = list(begin), program.steps[number].level
    if level & ALONG_W:
        indices[-1] += column
    if level & ALONG_S and row:  # the axis before r, or the last one
        indices[-2 if level & ALONG_W else -1] += row
    return tuple(indices)


def find_nan(function: Callable[..., Any], *arguments: Any, **named: Any) -> NanOrigin | None:
    """Runs a function step by step and finds the first NaN that came from operands without one.

    Args:
        function: a callable on tensors, compiled or not; it may call `backward`.
        *arguments, **named: its arguments.

    Returns:
        the operation and the element, or None: no operation of the function made a NaN, which its
        arguments may hold nevertheless.

    Example:
        >>> origin = torch.compiler.find_nan(lambda x: (x - 1).sqrt() * 2, torch.tensor([4.0, 0.0]))
        >>> origin.primitive, origin.element, origin.operands
        ('sqrt', (1,), (-1.0,))
    """
    search = _Search()
    with watching(search):
        function(*arguments, **named)
    return search.origin
