"""From a schedule to what the native core runs: registers, buffers, launches (grammar 3).

Size expressions become instructions of one register program; its first registers are those of the
plan's metadata program (the call's symbols, then its code), which the core computed already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from flambeau.compiler.schedule import launch as scheduled
from flambeau.compiler.schedule.reuse import reused_memory
from flambeau.ir.plan import ACCESS, BlockProgram, Buffer, Execution, Launch, Number, Packing
from flambeau.ir.size import Size
from flambeau.ir.size_program import Program


def build_execution(
    schedule: scheduled.Schedule,
    symbols: tuple[str, ...],
    registers: int | None,
    addresses: Mapping[str, int],
    programs: Mapping[str, BlockProgram],
    keepalive: list[Any],
) -> Execution:
    """The execution of a schedule.

    Args:
        schedule: launches and buffers.
        symbols: names of the first registers.
        registers: number of registers of the metadata program; None: just the symbols.
        addresses: address of each kernel's function, by kernel text.
        programs: of kernels that have no address, by kernel text.
        keepalive: what must live as long as the addresses are used.
    """
    count = len(symbols) if registers is None else registers
    names = [*symbols, *(f"metadata{i}" for i in range(len(symbols), count))]
    program = Program(names)
    owners = reused_memory(schedule)
    buffers = [_buffer(b, program, owners.get(n, -1)) for n, b in enumerate(schedule.buffers)]
    launches = [_launch(launch, program, addresses, programs) for launch in schedule.launches]
    return Execution(
        program=program.packed(),
        buffers=buffers,
        launches=launches,
        written=schedule.written,
        keepalive=keepalive,
    )


def _buffer(buffer: scheduled.Buffer, program: Program, shares: int) -> Buffer:
    if buffer.kind == "temporary":
        nbytes = program.register(buffer.where)
        return Buffer("temporary", -1, nbytes, buffer.first, buffer.last, shares=shares)
    if buffer.kind == "error":
        error, message = buffer.where
        return Buffer("error", error=error, message=message)
    return Buffer(buffer.kind, buffer.where)


def _optional(expression: Size, program: Program) -> int:
    """A register, or -1 for what is statically zero."""
    return -1 if expression == 0 else program.register(expression)


def _launch(
    launch: scheduled.Launch,
    program: Program,
    addresses: Mapping[str, int],
    programs: Mapping[str, BlockProgram],
) -> Launch:
    kernel = launch.kernel
    return Launch(
        name=launch.name,
        kernel=None if kernel is None else addresses.get(kernel.text()),
        routine=launch.routine,
        buffers=launch.buffers,
        offsets=[_optional(offset, program) for offset in launch.offsets],
        sizes=[program.register(size) for size in launch.sizes],
        scalars=[Number(*scalar) for scalar in launch.scalars],
        chunks=-1 if kernel is None else program.register(launch.chunks),
        work=program.register(launch.work),
        scratch=_optional(launch.scratch, program),
        group=launch.group,
        flops=_optional(launch.flops, program),
        elements=_optional(launch.elements, program),
        traffic=_traffic(launch),
        packing=_packing(launch, program),
        program=None if kernel is None else programs.get(kernel.text()),
    )


def _traffic(launch: scheduled.Launch) -> list[int]:
    """Per buffer the bytes of a point, and the access."""
    points = launch.traffic or [0] * len(launch.buffers)
    pairs = zip(points, launch.accesses(), strict=True)
    return [number for size, access in pairs for number in (size, ACCESS[access])]


def _packing(launch: scheduled.Launch, program: Program) -> Packing | None:
    """The buffers to pack, and a hash of the kernel's text. Addresses do not identify kernels: one
    may be loaded at several, and a freed address may be reused."""
    if launch.packing is None or launch.kernel is None:
        return None
    digest = hashlib.blake2b(launch.kernel.text().encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little", signed=True)
    return Packing(*launch.packing, _optional(launch.spare, program), number)
