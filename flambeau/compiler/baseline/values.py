"""Dtypes of the values in block registers, and those values as Python numbers.

The core needs widths alone, so that a program does not state dtypes. They follow from the names of
block functions, and from the dtypes of buffers for values that no function computes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau.compiler.baseline.program import Draft, Instruction
from flambeau.ir.dtypes import ITEM_SIZE

_INDICES = ("index", "add_index", "integer", "check")
_NUMBERS = ("f64", "i64", "bool")  # of run-time numbers, by kind
_FORMATS = {
    "f32": "f", "f64": "d", "f16": "f", "bf16": "f", "bool": "i", "i8": "b", "u8": "B", "i16": "h",
    "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "c64": "f", "c128": "d",
}  # fmt: skip
_MEMORY_FORMATS = _FORMATS | {"bool": "?", "f16": "e"}
_RAW = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


def instructions(draft: Draft) -> Iterator[Instruction]:
    """All instructions, in the order of their numbers."""
    yield from draft.prologue
    for statement in draft.statements:
        yield from statement.before
        yield from statement.body


def decode(data: bytes, dtype: str) -> list[Any]:
    """The elements of a block in value form; a complex number is one element."""
    return _numbers(data, dtype, _FORMATS.get(dtype, "B"))


def decode_memory(data: bytes, dtype: str) -> list[Any]:
    """The elements of memory."""
    if dtype == "bf16":
        return decode(b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2)), "f32")
    return _numbers(data, dtype, _MEMORY_FORMATS.get(dtype, "B"))


def _numbers(data: bytes, dtype: str, form: str) -> list[Any]:
    count = len(data) // struct.calcsize(form)
    numbers = list(struct.unpack_from(f"<{count}{form}", data))
    if dtype == "bool":
        return [bool(number) for number in numbers]
    if dtype in ("c64", "c128"):
        return [complex(a, b) for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
    return numbers


def operation_dtypes(step: Instruction) -> tuple[str, ...]:
    """The dtypes of an instruction's operands, where its functions name them."""
    if not step.functions or not step.functions[0]:
        return ()
    name = step.functions[0]
    if step.code == "call":
        return tuple(name.partition(" ")[2].rpartition(">")[0].split(","))
    if step.code in ("reduce", "columns", "scan"):
        return (name.rpartition(" ")[2],) * 2
    return ("i64",) if step.code in ("index", "add_index", "check") else ()


def dtypes(draft: Draft, parameters: Sequence[str] = ()) -> list[str]:
    """The dtype of each instruction's result; of a store that of what it stores.

    Args:
        draft: the program.
        parameters: dtypes of its buffers, where they are stated.
    """
    steps = list(instructions(draft))
    resolved = _Resolution(draft, parameters)
    sources = _sources(steps)
    for _ in range(2):  # a value that is expanded, retained or stored has the dtype of its source
        for number, step in enumerate(steps):
            resolved.forward(number, step, sources[number])
        for number in reversed(range(len(steps))):
            resolved.backward(number, steps[number], sources[number])
    widths = [_width(draft, step) for step in steps]
    return [
        dtype or _RAW.get(width, "u8") for dtype, width in zip(resolved.dtypes, widths, strict=True)
    ]


def _width(draft: Draft, step: Instruction) -> int:
    register = step.result if step.result >= 0 else step.operands[0]
    return draft.registers[register]


def _sources(steps: Sequence[Instruction]) -> list[tuple[int, ...]]:
    """The instructions that computed the operands of each one; -1: there is none."""
    last: dict[int, int] = {}
    sources = []
    for number, step in enumerate(steps):
        sources.append(tuple(last.get(register, -1) for register in step.operands))
        if step.result >= 0:
            last[step.result] = number
    return sources


class _Resolution:
    """Dtypes of results, as far as they follow from the others so far."""

    def __init__(self, draft: Draft, parameters: Sequence[str]) -> None:
        self.draft, self.parameters = draft, parameters
        self.dtypes: list[str] = [""] * sum(1 for _ in instructions(draft))
        self.vectors: dict[int, str] = {}

    def _set(self, number: int, dtype: str) -> None:
        if number >= 0 and dtype and not self.dtypes[number]:
            self.dtypes[number] = dtype

    def forward(self, number: int, step: Instruction, sources: Sequence[int]) -> None:
        """Sets the dtype of a result from names or operands."""
        self._set(number, self._result(step))
        if step.code in ("expand", "store", "give", "retain"):
            self._set(number, self.dtypes[sources[0]] if sources[0] >= 0 else "")
        if step.code == "retain":
            self.vectors.setdefault(step.numbers[0], self.dtypes[number])

    def backward(self, number: int, step: Instruction, sources: Sequence[int]) -> None:
        """Sets the dtypes of operands from the names of functions that read them."""
        if step.code in ("expand", "store", "give", "retain"):
            self._set(sources[0], self.dtypes[number])
            return
        for source, dtype in zip(sources, operation_dtypes(step)):
            self._set(source, dtype)

    def _result(self, step: Instruction) -> str:
        names = [*step.functions, "", ""]
        if step.code == "call":
            return names[0].rpartition(">")[2]
        if step.code in _INDICES:
            return "i64"
        if step.code == "scalar":
            return _NUMBERS[step.numbers[1]]
        if step.code in ("reduce", "columns", "scan"):
            own = names[0].split(" ")
            return "i64" if own[0] == "scanat" or own[1].startswith("arg") else own[2]
        for name in names:
            if name.startswith(("decode ", "encode ")):
                return name.partition(" ")[2]
        if step.code == "resident":
            return self.vectors.get(step.numbers[0], "")
        return self._memory(step) if step.code in ("load", "take", "store", "give") else ""

    def _memory(self, step: Instruction) -> str:
        number = step.numbers[0]
        dtype = self.parameters[number] if number < len(self.parameters) else ""
        return dtype if ITEM_SIZE.get(dtype) == _width(self.draft, step) else ""


__all__ = ["decode", "decode_memory", "dtypes", "instructions", "operation_dtypes"]
