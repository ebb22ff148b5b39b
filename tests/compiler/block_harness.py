"""Runs block programs by themselves, and calls on both tiers."""

from __future__ import annotations

from array import array

import flambeau
from flambeau import _core
from flambeau.ir.plan import Buffer, Execution, Launch, Number, PlanSpec
from flambeau.ir.size_program import Opcode
from flambeau.language.schema import ArgumentSpec
from flambeau.runtime import settings


def bits(value):
    """Dtypes, shapes and bytes of tensors, and the texts of what is no tensor."""
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    if not isinstance(value, flambeau.Tensor):
        return repr(value)
    dense = value.detach().resolve_conj().resolve_neg().contiguous()
    data = dense.reshape(-1).view(flambeau.uint8).numpy().tobytes()
    return str(value.dtype), tuple(value.shape), data


def on_tier(tier, calls):
    """The bits of the calls' results, or the texts of their errors, with new plans of a tier."""
    results = []
    with settings.override(TIER=tier, COMPILER="wait"):
        _core.plan_cache_clear()
        for call in calls:
            flambeau.manual_seed(0)
            try:
                results.append(bits(call()))
            except Exception as error:
                results.append(f"{type(error).__name__}: {error}")
    _core.plan_cache_clear()
    return results


class Launcher:
    """A program over tensors of one dimension that are read and written.

    Args:
        program: the BlockProgram.
        sizes: its size arguments.
        chunks: how many there are.
        numbers: run-time numbers.
    """

    def __init__(self, program, sizes, chunks, numbers=()):
        self.program, self.sizes, self.chunks = program, sizes, chunks
        self.numbers = [Number("constant", x, isinstance(x, float)) for x in numbers]

    def op(self, tensors):
        """A native op that takes so many tensors and runs the program."""
        first = 3 * tensors  # size, stride and offset of each
        values = [*self.sizes, self.chunks]
        launch = Launch(
            "program", None, None, list(range(tensors)),
            sizes=[first + i for i in range(len(self.sizes))], scalars=self.numbers,
            chunks=first + len(self.sizes), program=self.program,
        )  # fmt: skip
        execution = Execution(
            [(Opcode.CONST, value, 0) for value in values],
            [Buffer("input", slot) for slot in range(tensors)],
            [launch],
        )
        slots = list(range(tensors))
        spec = PlanSpec("run", first, tensors, [], 0, mutated=slots, returns="nothing")

        def build(call):
            return _core.Plan(spec, compile=lambda: execution)

        arguments = tuple(ArgumentSpec(f"x{slot}", "Tensor") for slot in slots)
        return _core.Op("run", [(arguments, build, ())])

    def __call__(self, *tensors):
        """Runs it.

        Raises:
            ValueError: the program is malformed.
        """
        self.op(len(tensors))(*tensors)


def words_of(program):
    """The words of a program."""
    words = array("i")
    words.frombytes(program.words)
    return words
