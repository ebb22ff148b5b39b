"""`flambeau.compiler.stages`: a function's way through the compiler, stage by stage, as text.

The function runs once inside a recorded region, like a compiled function; what the region's flushes
compile is watched. With several flushes there are several programs, and every stage but the first
program's names which one it belongs to.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flambeau import _core
from flambeau._core import RecordedBackward, RecordedStream
from flambeau.capture import joint, recording, regions, stream
from flambeau.compiler import debug
from flambeau.ir.printer import print_graph

Stage = tuple[str, float, str]


@dataclass
class Collected:
    """The stages so far, and how many programs they belong to."""

    stages: list[Stage] = field(default_factory=list)
    programs: int = 0

    def add(self, name: str, milliseconds: float, text: str) -> None:
        """Appends a stage of the present program."""
        place = f" (program {self.programs})" if self.programs > 1 else ""
        self.stages.append((name + place, milliseconds, text))


def stages(function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Stage]:
    """Compiles a function for these arguments and shows every stage.

    The function is called once. Known streams are forgotten first, as by `torch.compiler.reset`, so
    that all stages run; kernels still come from the cache where they are in it.

    Args:
        function: a callable on tensors; it may call `backward` and optimizers' `step`.
        *args, **kwargs: its arguments.

    Returns:
        (name, milliseconds, text) of each stage: "record" (the op calls; the time is that of the
        calls themselves), "trace" (the graph as runnable Python), then those of
        `flambeau/compiler/pipeline.py`, from "simplify" to "assemble".

    Example:
        >>> stages = torch.compiler.stages(lambda x: (x * 2).relu(), torch.ones(3))
        >>> [name for name, milliseconds, text in stages][2:8]
        ['simplify', 'prepare', 'analyse', 'cluster', 'order', 'lower']
    """
    collected = Collected()
    regions.reset()
    with compiling_into(collected), debug.watch(
        lambda report: collected.add(report.stage, report.milliseconds, report.text())
    ):  # fmt: skip
        recording.record(function, args, kwargs)
    return collected.stages


@contextmanager
def compiling_into(collected: Collected) -> Iterator[None]:
    """Inside, streams are compiled as ever (also with a backward, ahead of time), but watched."""
    begin = time.perf_counter()

    def watched(compile_it: Callable[[], Any], recorded: RecordedStream, backward: int) -> Any:
        """Compiles one stream; `backward` is the number of its first backward record."""
        nonlocal begin
        now = time.perf_counter()
        plan = compile_it()
        if plan is not None:
            collected.programs += 1
            collected.add("record", (now - begin) * 1e3, record_text(recorded, backward))
            text = print_graph(plan.graph())
            collected.add("trace", (time.perf_counter() - now) * 1e3, text)
        begin = time.perf_counter()
        return plan

    def compile_stream(recorded: RecordedStream) -> Any:
        records = len(recorded.records)
        return watched(lambda: stream.compile_stream(recorded), recorded, records)

    def compile_joint(recorded: RecordedStream, backward: RecordedBackward) -> Any:
        compile_it = functools.partial(joint.compile_joint, recorded, backward)
        return watched(compile_it, recorded, backward.records)

    _core.set_stream_compiler(compile_stream)
    _core.set_joint_compiler(compile_joint)
    try:
        yield
    finally:
        _core.set_stream_compiler(stream.compile_stream)
        _core.set_joint_compiler(joint.compile_joint)


def record_text(recorded: RecordedStream, backward: int) -> str:
    """A recorded stream: one line per op call, values numbered as the recorder numbers them."""
    lines = []
    for number, record in enumerate(recorded.records):
        if number == backward:
            lines.append("# backward, ahead of time")
        results = ", ".join(f"t{value}" for value in record.results if value >= 0)
        operands = [f"t{value}" for value in record.operands if value >= 0]
        operands += map(str, record.integers)
        lines.append(f"{results or '_'} = {record.plan.name}({', '.join(operands)})")
    live = [
        f"t{value}" + (f" over input {slot}" if slot >= 0 else "") for value, slot in recorded.live
    ]
    return "\n".join([*lines, f"kept: {', '.join(live) or 'nothing'}"]) + "\n"
