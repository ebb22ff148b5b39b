"""Block programs: kernels as flat lists of instructions over blocks (docs/design.md § 5b).

`Instruction` is one step. `pack` writes a program as the 32-bit words that the core reads and
checks (`native/baseline/block_program.cpp`): a list is its length, then its items. A 64-bit number
is two words, the low one first. `unpack` is its inverse; `text.py` prints what it returns.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flambeau.compiler.codegen.c.printer.c_types import HALVES
from flambeau.ir.kernel import COLUMN_BLOCK, MAP_CHUNK, TILE_BLOCK
from flambeau.ir.plan import BlockProgram
from flambeau.ir.plan import Instruction as SizeInstruction

VERSION = 2
FORMS = ("map", "row", "column", "scan")
CODES = (
    "call", "constant", "scalar", "load", "take", "store", "give", "index", "add_index", "integer",
    "check", "expand", "retain", "resident", "reduce", "columns", "scan",
)  # fmt: skip
NUMBERS = {name: number for number, name in enumerate(CODES)}
ENCODED = ("bool", *HALVES)  # dtypes whose values in blocks are not what memory holds
NONE, ALONG_S, ALONG_W, BOTH = 0, 1, 2, 3  # what a value varies along


class Numbers(NamedTuple):
    """The numbers of an instruction, which `native/baseline/block_program.h` explains by code.

    A size expression is its number in `Draft.expressions`; -1 is 0.
    """

    first: int = 0
    base: int = -1
    along_s: int = -1
    along_w: int = -1
    flag: int = 0


@dataclass
class Instruction:
    """One step of a block program.

    Attributes:
        code: one of `CODES`.
        level: what the result varies along; of a store, what is stored.
        result: its register; -1: none.
        operands: up to three registers.
        numbers: see there. Of a constant the bytes of one element, as four words.
        functions: up to three names of block functions.
    """

    code: str
    level: int
    result: int = -1
    operands: tuple[int, ...] = ()
    numbers: Sequence[int] = Numbers()
    functions: tuple[str, ...] = ()


@dataclass
class Statement:
    """Instructions run once per block of rows (`before`) and once per block in it (`body`)."""

    before: list[Instruction] = field(default_factory=list)
    body: list[Instruction] = field(default_factory=list)
    once: bool = False  # there is no body


@dataclass
class Draft:
    """A program, before it is packed.

    Attributes:
        form, tiled: of the kernel.
        spans: whether a block may have several rows.
        sizes: number of size arguments.
        scalars: number of run-time numbers.
        code: instructions of size registers, whose inputs are size arguments and row axes.
        fixed: how many of them depend on size arguments alone.
        rows, inner, reduce: registers of extents.
        inner_moves: whether the inner extent depends on row axes.
        chunks: elements of a chunk of a map without rows, columns of a block, edge of a tile.
        parameters: per buffer bytes of an element, and whether it is written.
        registers: bytes of an element of each block register.
        resident: likewise of vectors that stay in the cache for a row.
        states: names of reductions' states.
        prologue: instructions that depend on numbers alone.
        statements: in order.
    """

    form: str
    tiled: bool
    spans: bool
    sizes: int
    scalars: int
    code: list[SizeInstruction] = field(default_factory=list)
    fixed: int = 0
    rows: list[int] = field(default_factory=list)
    inner: int = 0
    reduce: int = 0
    inner_moves: bool = False
    chunks: Sequence[int] = (MAP_CHUNK, COLUMN_BLOCK, TILE_BLOCK)
    parameters: list[tuple[int, bool]] = field(default_factory=list)
    registers: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    prologue: list[Instruction] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)


def pack(draft: Draft) -> BlockProgram:
    """The program as the core reads it."""
    functions: dict[str, int] = {}
    words: list[int] = [VERSION, FORMS.index(draft.form), draft.tiled, draft.spans, draft.sizes]
    words += [draft.scalars, draft.fixed, draft.inner, draft.inner_moves, draft.reduce]
    words += draft.chunks
    words += [len(draft.rows), *draft.rows, len(draft.parameters)]
    for width, written in draft.parameters:
        words += [width, written]
    words.append(len(draft.code))
    for operation, a, b in draft.code:
        words += [operation, _signed(a), a >> 32, b]
    words += [len(draft.registers), *draft.registers, len(draft.resident), *draft.resident]
    words.append(len(draft.states))
    words += [functions.setdefault(name, len(functions)) for name in draft.states]
    _pack_statements(draft, functions, words)
    return BlockProgram(tuple(functions), array("i", words).tobytes())


def _pack_statements(draft: Draft, functions: dict[str, int], words: list[int]) -> None:
    instructions = list(draft.prologue)
    bounds: list[int] = []
    for statement in draft.statements:
        before = len(instructions)
        body = before + len(statement.before)
        bounds += [statement.once, before, body, body + len(statement.body)]
        instructions += statement.before + statement.body
    words.append(len(instructions))
    for step in instructions:
        numbers = [functions.setdefault(n, len(functions)) if n else -1 for n in step.functions]
        words += [NUMBERS[step.code], step.level, step.result, *_padded(step.operands, 3)]
        words += [*_padded(step.numbers, 5), *_padded(numbers, 3)]
    words += [len(draft.prologue), len(draft.statements), *bounds]


# ------------------------------------------------------------------------------- reading


class _Words:
    """The words of a program, and the names that they refer to, one after the other."""

    def __init__(self, program: BlockProgram) -> None:
        words = array("i")
        words.frombytes(program.words)
        self.left = iter(words)
        self.names = program.functions

    def next(self) -> int:
        """The next word.

        Raises:
            ValueError: there is none.
        """
        word = next(self.left, None)
        if word is None:
            raise ValueError("[block program] it ends too early\nhint: pack it again")
        return word

    def several(self, count: int) -> list[int]:
        """So many words."""
        return [self.next() for _ in range(count)]

    def name(self, number: int) -> str:
        """The name of a function; "" for -1."""
        return "" if number < 0 else self.names[number]


def unpack(program: BlockProgram) -> Draft:
    """The program as instructions; those of `pack`, with all operands and numbers.

    Raises:
        ValueError: the words end too early, or a code is unknown.
        IndexError: a function, or a form, is unknown.
    """
    words = _Words(program)
    _, form, tiled, spans, sizes, scalars, fixed, inner, moves, reduce = words.several(10)
    draft = Draft(FORMS[form], bool(tiled), bool(spans), sizes, scalars)
    draft.fixed, draft.inner, draft.inner_moves, draft.reduce = fixed, inner, bool(moves), reduce
    draft.chunks = words.several(3)
    draft.rows = words.several(words.next())
    draft.parameters = [(words.next(), bool(words.next())) for _ in range(words.next())]
    for _ in range(words.next()):
        operation, low, high, b = words.several(4)
        draft.code.append((operation, (high << 32) | (low & 0xFFFFFFFF), b))
    draft.registers = words.several(words.next())
    draft.resident = words.several(words.next())
    draft.states = [words.name(number) for number in words.several(words.next())]
    _unpack_statements(draft, words)
    return draft


def _unpack_statements(draft: Draft, words: _Words) -> None:
    instructions = []
    for _ in range(words.next()):
        code, level, result, *others = words.several(14)
        names = [words.name(number) for number in others[8:]]
        while names and not names[-1]:
            names.pop()
        step = Instruction(CODES[code], level, result, tuple(others[:3]))
        step.numbers, step.functions = tuple(others[3:8]), tuple(names)
        instructions.append(step)
    prologue, count = words.several(2)
    draft.prologue = instructions[:prologue]
    for _ in range(count):
        once, before, body, end = words.several(4)
        statement = Statement(instructions[before:body], instructions[body:end], bool(once))
        draft.statements.append(statement)


def _padded(numbers: Sequence[int], length: int) -> list[int]:
    return [*numbers, *[-1] * (length - len(numbers))]


def _signed(number: int) -> int:
    """The low 32 bits as a signed number."""
    return ((number + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


__all__ = [
    "ALONG_S", "ALONG_W", "BOTH", "CODES", "ENCODED", "FORMS", "NONE", "Draft", "Instruction",
    "Numbers", "Statement", "pack", "unpack",
]  # fmt: skip
