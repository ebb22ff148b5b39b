"""`flambeau.compiler.stages`: a function's way through the compiler, stage by stage, as text.

The function runs once inside a recorded region, like a compiled function; what the region's flushes
compile is watched. With several flushes there are several programs, and every stage but the first
program's names which one it belongs to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flambeau import _core
from flambeau.capture import joint, regions, stream
from flambeau.compiler import debug
from flambeau.ir.printer import print_graph

Stage = tuple[str, float, str]


@dataclass
class _Collected:
    """The stages found so far, and how many programs they belong to."""

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
        `flambeau/compiler/pipeline.py`: "simplify", "schedule", "verify", "build", "execution".

    Example:
        >>> found = torch.compiler.stages(lambda x: (x * 2).relu(), torch.ones(3))
        >>> [name for name, milliseconds, text in found]
        ['record', 'trace', 'simplify', 'schedule', 'verify', 'build', 'execution']
    """
    collected = _Collected()
    regions.reset()
    with _compiling_into(collected), debug.watch(
        lambda report: collected.add(report.stage, report.milliseconds, report.text())
    ):  # fmt: skip
        regions.record(function, args, kwargs)
    return collected.stages


@contextmanager
def _compiling_into(collected: _Collected) -> Iterator[None]:
    """Inside, streams are compiled as ever (also with a backward, ahead of time), but watched."""
    begin = time.perf_counter()
    reports: list[stream.StreamReport] = []

    def watched(compile_it: Callable[..., Any], parts: Sequence[Any], backward: int) -> Any:
        """Compiles one stream; `backward` is the number of its first backward record."""
        nonlocal begin
        now = time.perf_counter()
        plan = compile_it()
        if plan is not None:
            _, records, live, _ = parts
            collected.programs += 1
            collected.add("record", (now - begin) * 1e3, record_text(records, live, backward))
            text = print_graph(reports[-1].graph if plan.graph is None else plan.graph)
            collected.add("trace", (time.perf_counter() - now) * 1e3, text)
        begin = time.perf_counter()
        return plan

    def compile_stream(*parts: Any) -> Any:
        return watched(lambda: stream.compile_stream(*parts), parts, len(parts[1]))

    def compile_joint(parts: Any, forward_records: int, *rest: Any) -> Any:
        return watched(
            lambda: joint.compile_joint(parts, forward_records, *rest), parts, forward_records
        )

    _core.set_stream_compiler(compile_stream)
    _core.set_joint_compiler(compile_joint)
    try:
        with stream.watching() as reports:
            yield
    finally:
        _core.set_stream_compiler(stream.compile_stream)
        _core.set_joint_compiler(joint.compile_joint)


def record_text(records: Sequence[Any], live: Sequence[stream.Live], backward: int) -> str:
    """A recorded stream: one line per op call, values numbered as the recorder numbers them."""
    lines = []
    for number, (plan, operands, results, integers, *_) in enumerate(records):
        if number == backward:
            lines.append("# backward, ahead of time")
        made = ", ".join(f"t{number}" for number in results if number >= 0)
        given = [f"t{number}" for number in operands if number >= 0]
        given += [str(value) for value in integers]
        lines.append(f"{made or '_'} = {plan.graph.name}({', '.join(given)})")
    kept = [f"t{number}" + (f" over input {slot}" if slot >= 0 else "") for number, slot in live]
    return "\n".join([*lines, f"kept: {', '.join(kept) or 'nothing'}"]) + "\n"
