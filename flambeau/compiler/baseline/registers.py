"""The registers of a block program: those of sizes get their numbers, blocks share memory."""

from __future__ import annotations

from flambeau.compiler.baseline.program import Draft, Instruction, Numbers

# Which of an instruction's numbers are size expressions.
_SIZED = {
    "load": ("base", "along_s", "along_w"),
    "store": ("base", "along_s", "along_w"),
    "index": ("base", "along_s", "along_w", "flag"),
    "add_index": ("base",),
    "check": ("base",),
}


def renumber(step: Instruction, registers: dict[int, int]) -> None:
    """Replaces numbers of size expressions by those of registers."""
    names = _SIZED.get(step.code)
    if names is not None:
        numbers = Numbers(*step.numbers)
        step.numbers = numbers._replace(
            **{name: registers.get(getattr(numbers, name), -1) for name in names}
        )


def steps_of(draft: Draft) -> list[Instruction]:
    """All instructions, in order."""
    return [*draft.prologue, *(x for s in draft.statements for x in (*s.before, *s.body))]


def mark_narrow(draft: Draft) -> None:
    """Marks what is expanded for primitives only: they take a narrow value as it is."""
    steps = steps_of(draft)
    others = {r for step in steps if step.code != "call" for r in step.operands}
    for step in steps:
        if step.code == "expand" and step.result not in others:
            step.numbers = Numbers(*step.numbers)._replace(flag=1)


def assign_registers(draft: Draft) -> None:
    """Shares block registers: one of a body is free after its last use there."""
    widths = draft.registers
    inside = {step.result for s in draft.statements for step in s.body if _is_local(step)}
    numbers: dict[int, int] = {}
    assigned: list[int] = []

    def new(width: int) -> int:
        assigned.append(width)
        return len(assigned) - 1

    for register, width in enumerate(widths):
        if register not in inside:
            numbers[register] = new(width)
    free: dict[int, list[int]] = {}
    for statement in draft.statements:
        last = {r: i for i, step in enumerate(statement.body) for r in step.operands}
        for step in reversed(statement.body):  # the result may be the operand's memory
            if step.code == "expand":
                (operand,) = step.operands
                last[operand] = max(last[operand], last.get(step.result, 0))
        for i, step in enumerate(statement.body):
            ended = {r for r in step.operands if r in inside and last[r] == i}
            if step.code == "call":  # it reads an element before it writes it
                _release(ended, numbers, assigned, free)
            if step.result in inside:
                width = widths[step.result]
                pool = free.setdefault(width, [])
                numbers[step.result] = pool.pop() if pool else new(width)
            if step.code != "call":
                _release(ended, numbers, assigned, free)
            if step.result in inside and step.result not in last:
                _release({step.result}, numbers, assigned, free)
    for steps in (draft.prologue, *(x for s in draft.statements for x in (s.before, s.body))):
        for step in steps:
            step.result = numbers.get(step.result, -1)
            step.operands = tuple(numbers.get(r, -1) for r in step.operands)
    draft.registers = assigned


def _is_local(step: Instruction) -> bool:
    """Whether a register is used in its own block only."""
    return step.result >= 0 and step.code not in ("reduce", "columns")


def _release(
    registers: set[int], numbers: dict[int, int], widths: list[int], free: dict[int, list[int]]
) -> None:
    for register in sorted(registers):
        number = numbers[register]
        free.setdefault(widths[number], []).append(number)


__all__ = ["assign_registers", "mark_narrow", "renumber", "steps_of"]
