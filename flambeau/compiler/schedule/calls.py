"""A launch of a native routine or of a template's kernel, as handlers of primitives describe it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau.compiler.schedule.build import Place, Scalar
from flambeau.compiler.templates.interface import Interface, check_names
from flambeau.ir.kernel import Kernel
from flambeau.ir.node import Node
from flambeau.ir.size import Size

Reads = Callable[[Node], Place]
FLOPS_PER_NANOSECOND = 64


@dataclass
class RoutineCall:
    """Arguments of one launch of a native routine, or of a kernel of form "template".

    Attributes:
        name: of the routine; of a kernel, for people.
        memory: buffers; ("generator", slot) and ("error", (kind, message)) beside the usual ones.
        offsets: bytes to skip per buffer.
        sizes: size expressions.
        scalars: see `Scalar`.
        work: estimated nanoseconds.
        kernel: the template's kernel; None: a routine.
        chunks: number of chunks of a kernel.
        scratch: bytes per worker of a kernel.
        flops: floating-point operations, for profiles.
        packing: numbers of two buffers: the launch writes only the second, and its contents depend
            on the kernel, its sizes and the bytes of the first alone. If the first is an input
            that is used again unchanged, the core caches the second.
        spare: bytes of the second of them, if it is written for the cache only: its readers also
            run without it, on a null pointer. 0: it is always written.
    """

    name: str
    memory: list[tuple[str, Any]] = field(default_factory=list)
    offsets: list[Size] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    scalars: list[Scalar] = field(default_factory=list)
    work: Size = 0
    kernel: Kernel | None = None
    chunks: Size = 0
    scratch: Size = 0
    flops: Size = 0
    packing: tuple[int, int] | None = None
    spare: Size = 0

    def add(self, memory: tuple[str, Any], offset: Size = 0) -> None:
        """Appends a buffer."""
        self.memory.append(memory)
        self.offsets.append(offset)

    def bind(
        self,
        interface: Interface,
        sizes: Mapping[str, Size | Sequence[Size]],
        buffers: Mapping[str, tuple[tuple[str, Any], Size]],
        extents: Mapping[str, Size] | None = None,
    ) -> None:
        """Appends a template's arguments, and sets its scratch.

        Args:
            interface: of the kernel.
            sizes: its size arguments, by name.
            buffers: memory and offset of its buffers, by name.
            extents: what scratch depends on beside the size arguments, by name.
        """
        check_names("buffer", [buffer.name for buffer in interface.buffers], buffers)
        for buffer in interface.buffers:
            self.add(*buffers[buffer.name])
        self.sizes += interface.arguments(sizes)
        self.scratch = interface.scratch_bytes({**sizes, **(extents or {})})
