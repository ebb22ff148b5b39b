"""How blocks of keys are transposed in registers: the values of `attention_keys.c.in`."""

from __future__ import annotations

from typing import NamedTuple

from flambeau.compiler.codegen.c.printer.c_types import HALVES
from flambeau.compiler.codegen.c.template import Value
from flambeau.compiler.targets import Target
from flambeau.compiler.templates.attention import TOGETHER


class Move(NamedTuple):
    """A register that is shuffled from two others, as vectors of a type."""

    register: int
    kind: str
    first: int
    second: int
    order: str


def part_bytes(lanes: int) -> int:
    """Bytes of a row that are transposed at a time."""
    return min(32, 4 * lanes)


def block_names(stored: str, lanes: int, target: Target) -> dict[str, Value]:
    """The names of `attention_keys.c.in`: for elements of at most 32 bits, rows of whole parts."""
    nbytes = part_bytes(lanes)
    half = stored in HALVES
    wide = nbytes // (2 if half else 4)
    groups = range(2 if half else 1)  # of keys: enough chains of FMAs, and few bytes
    moves, registers = _moves(lanes)
    loads: list[Value] = [(i, *rows) for i, rows in enumerate(_loads(lanes))]
    units = []
    for unit in (1, TOGETHER):
        alone = unit == 1
        sums = [(r, group) for r in range(unit) for group in groups]
        chains = []
        for d in range(wide):
            register, odd = (registers[d // 2], d % 2) if half else (registers[d], 0)
            queries = [(r, d * unit + r) for r in range(unit)]
            chains.append((d, [(group, register, odd) for group in groups], queries))
        inlined = "inline FB_ALWAYS" if alone else "__attribute__((noinline))"
        due = len(groups) * lanes // (2 if alone else 1)
        units.append((unit, int(alone), inlined, due, sums, chains))
    concat = target.instruction("concat", "i64", 8) if lanes == 16 else None
    parts = {name: f"*(const fb_kernel_q32*){name}" for name in "ab"}
    return {
        "concat": "" if concat is None else concat(**parts),
        "part_types": sorted({nbytes, 4 * lanes}),
        "pairs_of_rows": lanes == 16,
        "all_lanes": ", ".join(map(str, range(lanes))),
        "w": f"fb_kernel_w{4 * lanes}",
        "groups": groups,
        "parts": [(group, loads, moves) for group in groups],
        "units": units,
        "PART": nbytes,
        "WIDE": wide,
        "STEP": len(groups) * lanes,
    }


def _loads(lanes: int) -> list[tuple[int, int]]:
    """Rows of which a register takes a part: one, or two that are 4 apart."""
    count = part_bytes(lanes) // 4
    if lanes < 16:
        return [(i, i) for i in range(count)]
    return [(i + i // 4 * 4, i + i // 4 * 4 + 4) for i in range(count)]


def _moves(lanes: int) -> tuple[list[Move], list[int]]:
    """The moves that transpose the registers, and the registers that then have each 32 bits of
    all rows."""
    count, w, q = part_bytes(lanes) // 4, f"fb_kernel_w{4 * lanes}", f"fb_kernel_q{4 * lanes}"
    moves: list[Move] = []
    registers = list(range(count))

    def exchange(kind: str, first: int, second: int, orders: tuple[list[int], list[int]]) -> None:
        """Elements of two registers, interleaved."""
        a, b = registers[first], registers[second]
        for index, order in ((first, orders[0]), (second, orders[1])):
            registers[index] = count + len(moves)
            moves.append(Move(registers[index], kind, a, b, ", ".join(map(str, order))))

    def inside(first: int, size: int) -> list[int]:
        """Interleaves elements of both operands within each 128 bits."""
        total = lanes * size // 4
        parts = range(first, total, size)
        return [part + i // 2 + i % 2 * total for part in parts for i in range(size)]

    for i in range(0, count, 2):
        exchange(w, i, i + 1, (inside(0, 4), inside(2, 4)))
    for i in range(0, count, 4):
        for j in (i, i + 1):
            exchange(q, j, j + 2, (inside(0, 2), inside(1, 2)))
    for i in range(count // 8 * 4):
        even = [p + e for p in range(0, 2 * lanes, 8) for e in range(4)]
        exchange(w, i, i + 4, (even, [e + 4 for e in even]))
    order = [first + i for first in range(0, count, 4) for i in (0, 2, 1, 3)]
    return moves, [registers[index] for index in order]


__all__ = ["block_names", "part_bytes"]
