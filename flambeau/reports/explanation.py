"""`explain`: one call of a region with its flushes, plans, kernels and bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from flambeau import _core
from flambeau.capture import stream
from flambeau.capture.breaks import END
from flambeau.capture.flushes import Flush, listening
from flambeau.capture.recording import Function, record
from flambeau.ir.lock import importing
from flambeau.reports.traffic import LaunchTraffic, of_report
from flambeau.runtime import settings

_SHOWN_LAUNCHES = 12


@dataclass
class Explanation:
    """The result of `explain`.

    Attributes:
        flushes: in order; the last one is the region's end.
        plans: number of Plans compiled during the call.
        baseline: how many of them run on the baseline: some of their kernels are not compiled.
        kernels: launches of those Plans.
        different_kernels: how many kernels they are: equal layers share theirs.
        graphs: their graphs.
        bytes_moved: bytes that those launches read and write; those that pack operands do not
            count, because their results are cached.
        bytes_least: bytes that the programs move at least: inputs are read and results are written
            once.
        bytes_eager: bytes that the recorded operators move at least if each runs alone, as in eager
            mode: each reads its operands and writes its results once.
        bytes_held: bytes of the memory of intermediate values, of the program that needs most.
        bytes_alive: bytes of its intermediate values that are alive at once, at most.
        launches: the name of each of those launches, the bytes that it reads, and those that it
            writes, in order.
        guards: conditions, as lines of Python, under which a later call runs without its Python.
        recorded: why every call is recorded instead; None where there are guards.
    """

    flushes: list[Flush] = field(default_factory=list)
    plans: int = 0
    baseline: int = 0
    kernels: int = 0
    different_kernels: int = 0
    bytes_moved: int = 0
    bytes_least: int = 0
    bytes_eager: int = 0
    bytes_held: int = 0
    bytes_alive: int = 0
    launches: list[LaunchTraffic] = field(default_factory=list)
    graphs: list[Any] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    recorded: str | None = None

    @property
    def graph_break_count(self) -> int:
        """Flushes before the end of the region."""
        return sum(f.reason != END for f in self.flushes)

    def _launch_lines(self) -> list[str]:
        """The launches that move most, equal ones once."""
        counts = Counter(self.launches)
        largest = sorted(counts, key=lambda each: -each.moved * counts[each])[:_SHOWN_LAUNCHES]
        lines = [
            f"  {f'{count} x ' if count > 1 else ''}{each.name}: {each.read} bytes read, "
            f"{each.written} written"
            for each, count in counts.items()
            if each in largest
        ]
        left = len(counts) - len(lines)
        return [*lines, f"  {left} others move less"] if left else lines

    def __str__(self) -> str:
        waiting = f" ({self.baseline} on the baseline)" if self.baseline else ""
        lines = [
            f"{self.plans} plans{waiting}, {self.kernels} kernels, {self.bytes_moved} bytes moved, "
            f"{self.graph_break_count} flushes before the end",
            f"  {self.bytes_least} bytes are the least possible; operators alone move "
            f"{self.bytes_eager}",
            f"  {self.bytes_held} bytes of memory hold intermediate values; at most "
            f"{self.bytes_alive} are alive at once",
        ]
        lines += self._launch_lines()
        lines += [
            f"  {f.line}: {f.reason} after {f.records} ops ({'known' if f.known else 'new'})"
            for f in self.flushes
        ]
        lines += [f"  every call is recorded: {self.recorded}"] if self.recorded else []
        lines += [f"  guard: {line}" for line in self.guards]
        return "\n".join(lines)


def explain(function: Function, *args: Any, **kwargs: Any) -> Explanation:
    """Runs a compiled region once and reports its flushes, plans, kernels and bytes.

    Args:
        function: a plain or compiled callable.
        *args, **kwargs: its arguments.

    Example:
        >>> report = torch.compiler.explain(lambda x: x.sin() + x.sum().item(), torch.ones(3))
        >>> report.graph_break_count
        1
    """
    explanation = Explanation()
    _core.stream_clear()
    with stream.watching() as reports, listening(explanation.flushes.append):
        record(function, args, kwargs)
    different: set[int] = set()
    for report in reports:
        different |= report.different
        explanation.plans += 1
        explanation.baseline += report.baseline
        explanation.kernels += report.launches
        explanation.graphs.append(report.graph)
        _add_traffic(explanation, report)
        memory = explanation.bytes_held, explanation.bytes_alive
        explanation.bytes_held, explanation.bytes_alive = max(memory, report.plan.memory)
    explanation.different_kernels = len(different)
    _add_guards(explanation, function, args, kwargs)
    return explanation


def _add_traffic(explanation: Explanation, report: stream.StreamReport) -> None:
    """Adds the bytes that a program moves."""
    moved = of_report(report)
    explanation.launches += moved.launches
    explanation.bytes_moved += moved.bytes
    explanation.bytes_least += moved.least
    explanation.bytes_eager += moved.eager


def _add_guards(explanation: Explanation, function: Any, args: Any, kwargs: Any) -> None:
    """Runs the call dry, as after calls of a compiled function that gave the same stream."""
    if not _core.frames_explained or not settings.get("FRAMES") or _core.is_recording():
        explanation.recorded = "the dry run of frames is off"
        return
    with importing:
        from flambeau.capture.frame.learn import learn

    trial = _core.CompiledFunction(function, function, None)
    explanation.recorded = learn(trial, 0, args, kwargs)
    explanation.guards = [line for lines in trial._explanations for line in lines]
