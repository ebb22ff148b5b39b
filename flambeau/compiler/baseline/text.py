"""The grammar of block programs, as text: what `plan.text()` shows in place of a launch's kernel.

    program     := "program" form "tiled"? "spans"? ":" count "sizes," count "scalars"
                   size*  "per row:" size*  extents  buffer*  registers  vectors?  state*
                   ("prologue:" instruction*)?  statement*
    size        := s "=" number | s "=" n operator n | s "=" "not" n
    extents     := "rows" "[" n* "]" "inner" n "moves"? "reduce" n "chunks" number number number
    buffer      := "buffer" b ":" bytes "bytes" ("written")?
    registers   := "registers" ":" (v bytes)*           vectors := "vectors" ":" (m bytes)*
    state       := "state" t ":" name
    statement   := "statement" number "once"? ":" ("before:" instruction*)? ("body:" instruction*)?
    instruction := (v "=")? code level? operand* (":" functions)?
    level       := "[s]" | "[w]" | "[sw]"                functions := name ("|" name)*; "-": none

A name is a letter and a number: n size arguments, p row axes, s computed sizes; b buffers, x
run-time numbers, v block registers, m vectors that stay in the cache for a row, t states of
reductions. An operand is such a name, or a word and its value: `_FIELDS` lists those of each code,
in the order of `native/baseline/block_program.h`. `parse` reads what `lines` printed. The rules for
valid programs are those of `native/baseline/block_check.cpp`; `verify` calls it and quotes the
place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flambeau import _core
from flambeau.compiler.baseline.program import (
    CODES,
    NONE,
    Draft,
    Instruction,
    Statement,
    pack,
    unpack,
)
from flambeau.ir.graph_grammar import quoted
from flambeau.ir.plan import BlockProgram, Execution, PlanSpec
from flambeau.ir.plan_grammar import SYMBOLS, print_plan
from flambeau.ir.size_program import Opcode

LEVELS = ("", "[s]", "[w]", "[sw]")
_DEFAULTS: dict[str, int] = {"a": -1, "b": -1, "c": -1, "0": 0, "1": -1, "2": -1, "3": -1, "4": 0}
_SLOTS = tuple(_DEFAULTS)
_KINDS = ("float", "integer", "mask")  # of a run-time number
_OPERATIONS = {int(code): code.name.lower() for code in SYMBOLS}
_INVERSE = {symbol: code for code, symbol in SYMBOLS.items()}
_INDENT = "    "
Line = tuple[str, tuple[str, int]]  # a text, and which part of the program it is


class BlockError(ValueError):
    """A block program is malformed; the message quotes the place."""


class _Field(NamedTuple):
    """One slot of an instruction.

    Attributes:
        slot: "a", "b", "c" (operands) or "0" to "4" (numbers).
        kind: a letter of a name, "integer", "hex", "operation", "level", "scalar" or "flag".
        word: in front of its value; of a flag the word itself. "": the value alone.
    """

    slot: str
    kind: str
    word: str = ""


_ADDRESS = (_Field("1", "n", "at"), _Field("2", "n", "s*"), _Field("3", "n", "w*"))
_MASK = (_Field("b", "v", "mask"), _Field("c", "v", "else"))
_REDUCES = (_Field("a", "v"), _Field("0", "t", "in"))
_FIELDS: dict[str, tuple[_Field, ...]] = {
    "call": (_Field("a", "v"), _Field("b", "v"), _Field("c", "v"), _Field("0", "flag", "stored")),
    "constant": tuple(_Field(slot, "hex") for slot in "0123"),
    "scalar": (_Field("0", "x"), _Field("1", "scalar", "as")),
    "load": (
        _Field("0", "b"), *_ADDRESS, _Field("a", "v", "offset"), *_MASK, _Field("4", "load"),
    ),
    "take": (_Field("0", "b"), _Field("a", "v", "at"), *_MASK),
    "store": (_Field("a", "v"), _Field("0", "b", "to"), *_ADDRESS),
    "give": (_Field("a", "v"), _Field("0", "b", "to"), _Field("b", "v", "at")),
    "index": (*_ADDRESS, _Field("a", "v", "plus"), _Field("4", "n", "times")),
    "add_index": (_Field("a", "v"), _Field("b", "v", "plus"), _Field("1", "n", "times")),
    "integer": (_Field("a", "v"), _Field("0", "operation"), _Field("b", "v")),
    "check": (
        _Field("a", "v"), _Field("1", "n", "below"), _Field("0", "b", "to"),
        _Field("2", "integer", "dimension"), _Field("3", "integer", "strict"),
    ),
    "expand": (_Field("a", "v"), _Field("0", "level", "along"), _Field("4", "flag", "narrow")),
    "retain": (_Field("a", "v"), _Field("0", "m", "to")),
    "resident": (_Field("0", "m"),),
    "reduce": _REDUCES,
    "columns": _REDUCES,
    "scan": (_Field("a", "v"), _Field("b", "v"), _Field("0", "t", "in")),
}  # fmt: skip
_LOAD_FLAGS = {"direct": 1, "shared": 2}  # what x[4] of a load may hold


# ------------------------------------------------------------------------------- printing


def text(program: BlockProgram) -> str:
    """A program as text."""
    return "\n".join(line for line, _ in lines(unpack(program))) + "\n"


def program_lines(program: BlockProgram) -> list[str]:
    """The lines of a program, for the text of a plan."""
    return [line for line, _ in lines(unpack(program))]


def plan_text(spec: PlanSpec, execution: Execution | None) -> str:
    """The text of `Plan.text()`: the plan, with block programs below their launches."""
    return print_plan(spec, execution, program_lines)


def lines(draft: Draft) -> Iterator[Line]:
    """The lines of a program, each with its part: of what the core's check names."""
    head = ("program", 0)
    words = [draft.form, "tiled" * draft.tiled, "spans" * draft.spans]
    counts = f"{draft.sizes} sizes, {draft.scalars} scalars"
    yield f"program {' '.join(word for word in words if word)}: {counts}", head
    yield from _sizes(draft)
    rows = ", ".join(_size(draft, row) for row in draft.rows)
    moves = " moves" if draft.inner_moves else ""
    inner, reduce = _size(draft, draft.inner), _size(draft, draft.reduce)
    chunks = " ".join(map(str, draft.chunks))
    yield f"rows [{rows}] inner {inner}{moves} reduce {reduce} chunks {chunks}", head
    for number, (width, written) in enumerate(draft.parameters):
        yield f"buffer b{number}: {width} bytes{' written' if written else ''}", head
    yield f"registers: {_widths('v', draft.registers)}".rstrip(), head
    if draft.resident:
        yield f"vectors: {_widths('m', draft.resident)}", head
    for number, name in enumerate(draft.states):
        yield f"state t{number}: {name}", head
    yield from _statements(draft)


def _statements(draft: Draft) -> Iterator[Line]:
    first = 0

    def section(name: str, steps: Sequence[Instruction], indent: str) -> Iterator[Line]:
        nonlocal first
        if steps:
            yield f"{indent}{name}:", ("section", first)
        for number, step in enumerate(steps, first):
            yield f"{indent}{_INDENT}{instruction_text(draft, step)}", ("instruction", number)
        first += len(steps)

    yield from section("prologue", draft.prologue, "")
    for number, statement in enumerate(draft.statements):
        once = " once" if statement.once else ""
        yield f"statement {number}{once}:", ("statement", number)
        yield from section("before", statement.before, _INDENT)
        yield from section("body", statement.body, _INDENT)


def _sizes(draft: Draft) -> Iterator[Line]:
    for number, (code, a, b) in enumerate(draft.code):
        if number == draft.fixed:
            yield "per row:", ("program", 0)
        operands = _size(draft, a), _size(draft, b)
        if code == Opcode.CONST and b == 0:
            value = str(a)
        elif code == Opcode.NOT and b == 0:
            value = f"not {operands[0]}"
        elif code in SYMBOLS:
            value = f"{operands[0]} {SYMBOLS[Opcode(code)]} {operands[1]}"
        else:
            value = f"code {code} {a} {b}"
        yield f"s{number} = {value}", ("size", number)


def _size(draft: Draft, register: int) -> str:
    """The name of a size register; "-" for none."""
    if register == -1:
        return "-"
    for letter, count in (("n", draft.sizes), ("p", len(draft.rows))):
        if 0 <= register < count:
            return f"{letter}{register}"
        register -= count
    return f"s{register}"


def _widths(letter: str, widths: Sequence[int]) -> str:
    return ", ".join(f"{letter}{number} {width}" for number, width in enumerate(widths))


def instruction_text(draft: Draft, step: Instruction) -> str:
    """One instruction as text."""
    values = _values_of(step)
    defaults = _defaults(step.code)
    words, trailing = [], 0  # names without a word that are absent are printed if others follow
    for field in _FIELDS[step.code]:
        value = values.pop(field.slot)
        if field.kind == "v" and not field.word and value == -1:
            trailing += 1
            continue
        word = _printed(draft, field, value)
        if word:
            words += ["-"] * (trailing if not field.word else 0) + [word]
            trailing = 0 if not field.word else trailing
    words += [f"{slot}={v}" for slot, v in values.items() if v != defaults[slot]]
    result = f"v{step.result} = " if step.result != -1 else ""
    level = LEVELS[step.level] if 0 <= step.level < len(LEVELS) else f"[{step.level}]"
    names = " | ".join(name or "-" for name in step.functions)
    return " ".join([f"{result}{step.code}{level}", *words]) + (f" : {names}" if names else "")


def _values_of(step: Instruction) -> dict[str, int]:
    operands = [*step.operands, -1, -1, -1][:3]
    numbers = [*step.numbers, -1, -1, -1, -1, -1][:5]
    return dict(zip(_SLOTS, [*operands, *numbers], strict=True))


def _defaults(code: str) -> dict[str, int]:
    """The values of an instruction's slots that need no word."""
    return _DEFAULTS | ({"4": -1} if code in ("constant", "index") else {})


def _printed(draft: Draft, field: _Field, value: int) -> str:
    kind = field.kind
    if kind == "flag":
        return field.word if value == 1 else "" if value == 0 else f"{field.slot}={value}"
    if kind == "load":
        flags = " ".join(word for word, bit in _LOAD_FLAGS.items() if value & bit)
        return flags if value & ~3 == 0 else f"{field.slot}={value}"
    if kind in ("n", "v") and value == -1:
        return ""
    word = _value_text(draft, kind, value)
    glued = field.word.endswith("*") or not field.word
    return f"{field.word}{word}" if glued else f"{field.word} {word}"


def _value_text(draft: Draft, kind: str, value: int) -> str:
    if kind == "n":
        return _size(draft, value)
    if kind == "hex":
        return f"{value & 0xFFFFFFFF:08x}"
    if kind == "operation":
        return _OPERATIONS.get(value, str(value))
    if kind == "level":
        return (LEVELS[value].strip("[]") or "none") if 0 <= value < 4 else str(value)
    if kind == "scalar":
        return _KINDS[value] if 0 <= value < 3 else str(value)
    return str(value) if kind == "integer" else f"{kind}{value}"


# ------------------------------------------------------------------------------- reading


def parse(source: str) -> BlockProgram:
    """The program of a text that `text` printed.

    Raises:
        ValueError: a line is none of a program.
    """
    return pack(_Parser().read(source.splitlines()))


_HEAD = re.compile(r"program (\w+)( tiled)?( spans)?: (\d+) sizes, (\d+) scalars")
_EXTENTS = re.compile(r"rows \[(.*)\] inner (\S+)( moves)? reduce (\S+) chunks (.*)")
_BUFFER = re.compile(r"buffer b\d+: (-?\d+) bytes( written)?")
_STATE = re.compile(r"state t\d+: (.+)")
_SIZE = re.compile(r"s(\d+) = (.+)")
_INSTRUCTION = re.compile(r"(?:v(-?\d+) = )?([a-z_]+)(\[[^\]]*\])?(?: (.*?))?(?: ?: (.*))?")


def _wrong(line: str) -> ValueError:
    return ValueError(
        f"[block program] no line of a program: {line!r}\nhint: parse only what `text` printed"
    )


class _Parser:
    """Reads the lines of one program."""

    def __init__(self) -> None:
        self.draft = Draft("map", False, False, 0, 0)
        self.rows = 0
        self.section = self.draft.prologue

    def read(self, source: Sequence[str]) -> Draft:
        """The program of these lines."""
        # How many row axes there are is needed to read the names of sizes.
        extents = next((m for line in source if (m := _EXTENTS.fullmatch(line.strip()))), None)
        self.rows = len([row for row in extents[1].split(", ") if row]) if extents else 0
        moved = None
        for line in (each.strip() for each in source):
            if line == "per row:":
                moved = len(self.draft.code)
            elif line:
                self._line(line)
        self.draft.fixed = len(self.draft.code) if moved is None else moved
        return self.draft

    def _line(self, line: str) -> None:
        draft = self.draft
        if match := _HEAD.fullmatch(line):
            draft.form, draft.tiled, draft.spans = match[1], bool(match[2]), bool(match[3])
            draft.sizes, draft.scalars = int(match[4]), int(match[5])
        elif match := _EXTENTS.fullmatch(line):
            draft.rows = [self._size(row) for row in match[1].split(", ") if row]
            draft.inner, draft.reduce = self._size(match[2]), self._size(match[4])
            draft.inner_moves = bool(match[3])
            draft.chunks = [int(number) for number in match[5].split()]
        elif match := _BUFFER.fullmatch(line):
            draft.parameters.append((int(match[1]), bool(match[2])))
        elif match := _STATE.fullmatch(line):
            draft.states.append(match[1])
        elif line.startswith(("registers:", "vectors:")):
            name, _, widths = line.partition(":")
            listed = draft.registers if name == "registers" else draft.resident
            listed += [int(each.split()[1]) for each in widths.split(",") if each.strip()]
        elif line.endswith(":") and line.startswith(("statement", "prologue", "before", "body")):
            self._begin(line)
        elif match := _SIZE.fullmatch(line):
            draft.code.append(self._size_instruction(line, match[2].split()))
        else:
            self.section.append(self._instruction(line))

    def _begin(self, line: str) -> None:
        if line.startswith("statement"):
            self.draft.statements.append(Statement(once=line.endswith(" once:")))
        elif line != "prologue:":
            statement = self.draft.statements[-1]
            self.section = statement.before if line == "before:" else statement.body

    def _size(self, name: str) -> int:
        if name == "-":
            return -1
        before = {"n": 0, "p": self.draft.sizes, "s": self.draft.sizes + self.rows}
        if name[0] not in before:
            raise _wrong(name)
        return before[name[0]] + int(name[1:])

    def _size_instruction(self, line: str, words: Sequence[str]) -> tuple[int, int, int]:
        if len(words) == 1:
            return int(Opcode.CONST), int(words[0]), 0
        if len(words) == 2:
            return int(Opcode.NOT), self._size(words[1]), 0
        if len(words) == 3 and words[1] in _INVERSE:
            return int(_INVERSE[words[1]]), self._size(words[0]), self._size(words[2])
        if words[0] != "code":
            raise _wrong(line)
        return int(words[1]), int(words[2]), int(words[3])

    def _instruction(self, line: str) -> Instruction:
        match = _INSTRUCTION.fullmatch(line)
        if match is None or match[2] not in CODES:
            raise _wrong(line)
        result, code, level, operands, functions = match.groups()
        values = _defaults(code)
        words = (operands or "").split()
        names = [f for f in _FIELDS[code] if not f.word and f.kind != "load"]
        try:
            while words:
                self._operand(code, words, names, values)
        except (IndexError, KeyError, ValueError):
            raise _wrong(line) from None
        number = NONE if level is None else self._level(level)
        step = Instruction(code, number, -1 if result is None else int(result))
        step.operands = tuple(values[slot] for slot in "abc")
        step.numbers = tuple(values[slot] for slot in "01234")
        if functions:
            step.functions = tuple("" if f == "-" else f for f in functions.split(" | "))
        return step

    def _level(self, level: str) -> int:
        return LEVELS.index(level) if level in LEVELS else int(level[1:-1])

    def _operand(
        self, code: str, words: list[str], names: list[_Field], values: dict[str, int]
    ) -> None:
        """Reads one operand; `names` are the fields without a word that are still to come."""
        word = words.pop(0)
        slot, equals, value = word.partition("=")
        if equals:
            values[slot] = int(value)
            return
        if code == "load" and word in _LOAD_FLAGS:
            values["4"] |= _LOAD_FLAGS[word]
            return
        for field in _FIELDS[code]:
            if field.word == word:
                values[field.slot] = 1 if field.kind == "flag" else self._value(field, words.pop(0))
                return
            if field.word.endswith("*") and word.startswith(field.word):
                values[field.slot] = self._value(field, word[len(field.word) :])
                return
        field = names.pop(0)
        values[field.slot] = self._value(field, word)

    def _value(self, field: _Field, word: str) -> int:
        kind = field.kind
        listed = {"scalar": _KINDS, "level": ("none", "s", "w", "sw")}.get(kind, ())
        if word in listed:
            return listed.index(word)
        if kind == "operation" and word in _OPERATIONS.values():
            return next(code for code, name in _OPERATIONS.items() if name == word)
        if kind == "n":
            return self._size(word)
        if kind == "hex":
            return (int(word, 16) ^ 0x80000000) - 0x80000000
        if word == "-":
            return -1
        return int(word.removeprefix(kind) if len(kind) == 1 else word)


# ------------------------------------------------------------------------------- checking


def verify(program: BlockProgram) -> None:
    """Raises `BlockError` where a program is malformed, with the lines around the place."""
    fault = _core.block_program_fault(program)
    if fault is None:
        return
    error, part, number = fault
    message = str(error).splitlines()[0]
    try:
        listed = list(lines(unpack(program)))
    except (ValueError, IndexError):
        raise BlockError(f"{message}\nhint: its words are damaged") from None
    at = next((i for i, (_, key) in enumerate(listed) if key == (part, number)), 0)
    around = quoted([line for line, _ in listed], at)
    raise BlockError(f"{message}\n{around}\nhint: baseline/lower.py made a wrong instruction")


__all__ = [
    "BlockError",
    "instruction_text",
    "lines",
    "parse",
    "plan_text",
    "program_lines",
    "text",
    "verify",
]
