"""Runs block programs of which one word is changed; `test_changed_programs.py` starts it with the
core built under the sanitizers.

    python -m tests.sanitize.changed_programs [random graphs, first seed, every nth change]

A program is refused, or stays inside the registers, states and vectors that it declares: there an
access outside ends the process. Where a program is in its buffers is as free as in a kernel, so
that each buffer lies in the middle of memory that nothing else uses.
"""

from __future__ import annotations

import mmap
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy

import flambeau
from flambeau.compiler.baseline.lower import block_program
from flambeau.compiler.baseline.program import CODES
from flambeau.compiler.pipeline import schedule
from flambeau.compiler.simplify import simplify
from flambeau.ir.plan import BlockProgram
from flambeau.ir.size import evaluate
from tests.compiler.block_harness import Launcher, words_of
from tests.compiler.kernel_reference import NUMPY
from tests.compiler.test_schedule_random import Program

SMALL = (0, -1, 1, 2, 3, 4, 8, 16, 600)
LARGE = (70_000, 2**31 - 1, -(2**31))  # these are only read: they may lead anywhere in a buffer
SIZES = {"s0": 3, "s1": 700, "s2": 66}
ROOM = 1 << 42  # bytes of address space around a buffer
NO_RESERVE = 0x4000  # of Linux: pages count when they are written
REFUSED = (ValueError, NotImplementedError)


class Case(NamedTuple):
    """A program, and what its launch gives it."""

    program: BlockProgram
    sizes: list[int]
    chunks: int
    dtypes: list[str]


def cases(graphs: Sequence[int]) -> Iterator[Case]:
    """The programs of random graphs."""
    for seed in graphs:
        graph = Program(seed, True).graph(4 + seed % 13)
        for launch in schedule(simplify(graph)).launches:
            kernel = launch.kernel
            if kernel is None or kernel.form == "template" or kernel.scalars:
                continue
            sizes = [evaluate(size, SIZES) for size in launch.sizes]
            dtypes = [dtype for dtype, _ in kernel.parameters]
            yield Case(block_program(kernel), sizes, evaluate(launch.chunks, SIZES), dtypes)


def changes(program: BlockProgram) -> Iterator[tuple[BlockProgram, int, bool]]:
    """Programs that differ in one word, its position, and whether they may be run."""
    words = words_of(program)
    high = set(high_words(words))
    wide = {position - 1 for position in high}
    small = {position for position in wide if words[position + 1] == 0}
    for position, word in enumerate(words):
        for value in (*SMALL, *LARGE):
            if value == word:
                continue
            changed = array("i", words)
            changed[position] = value
            runs = value in SMALL and position not in high
            runs = runs and (position not in wide or (value >= 0 and position in small))
            yield program._replace(words=changed.tobytes()), position, runs


def high_words(words: Sequence[int]) -> Iterator[int]:
    """Positions of the upper halves of 64-bit numbers, and of what makes them products."""
    at = 13
    at += 1 + words[at]  # rows
    at += 1 + 2 * words[at]  # parameters
    for start in range(at + 1, at + 1 + 4 * words[at], 4):
        yield from (start, start + 2)
    at += 1 + 4 * words[at]  # size instructions
    for _ in range(3):  # registers, kept vectors, states
        at += 1 + words[at]
    for start in range(at + 1, at + 1 + 14 * words[at], 14):
        if CODES[words[start]] == "constant":
            yield start + 7


class Buffers:
    """Tensors with nothing beside them."""

    def __init__(self) -> None:
        self.memory: list[mmap.mmap] = []
        self.arrays: list[Any] = []

    def tensor(self, number: int, dtype: str) -> Any:
        """The tensor of a parameter, which holds zeros at first."""
        while len(self.memory) <= number:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
            self.memory.append(mmap.mmap(-1, ROOM, flags=flags))
        kind = {"c64": "float64"}.get(dtype, NUMPY[dtype])
        window = numpy.frombuffer(self.memory[number], kind, 1 << 16, ROOM // 2)
        return flambeau.from_numpy(window)


def main(words: list[str]) -> None:
    """Changes word after word of program after program."""
    given = [int(word) for word in words]
    graphs, first, nth = (*given, *(10, 0, 1)[len(given) :])
    buffers = Buffers()
    refused = ran = number = 0
    for case in cases(range(first, first + graphs)):
        tensors = [buffers.tensor(i, dtype) for i, dtype in enumerate(case.dtypes)]
        for program, position, runs in changes(case.program):
            number += 1
            if number % nth:
                continue
            print(number, position, end="\r", flush=True)
            try:
                Launcher(program, case.sizes, case.chunks if runs else 0)(*tensors)
            except REFUSED:
                refused += 1
            else:
                ran += 1
    print(f"\nchanges refused {refused} accepted {ran}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
