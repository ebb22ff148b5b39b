"""Logs of recorded regions: where they run in parts, and their programs (`TORCH_LOGS`)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flambeau.capture import breaks
from flambeau.ir.lock import importing
from flambeau.ir.node import Graph
from flambeau.ir.size import estimate
from flambeau.reports import recompiles
from flambeau.runtime import logs

if TYPE_CHECKING:
    from flambeau._core import CompiledFunction, Plan, RecordedStream
    from flambeau.capture.flushes import Flush

MAX_FAILURES = 8  # kMaxFailures of native/frame/frame.cpp
LOOP = 3  # runs at one line in one call: it is in a loop

_shown: set[tuple[str, str]] = set()  # lines and reasons, once each


class _Counts(threading.local):
    """Per thread: how often the present region ran at each line."""

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()


_counts = _Counts()


def forget() -> None:
    """Forgets which lines were shown: they are shown again."""
    _shown.clear()
    recompiles.forget()


def flush(event: Flush, problem: tuple[str, str] | None) -> None:
    """Logs that a region runs before its end.

    Args:
        event: the flush.
        problem: of a graph break, and what to do instead; None: it is none.
    """
    if event.reason == breaks.END:
        _counts.lines.clear()
        return
    if event.reason not in breaks.INTERNAL:
        _break(event, problem)
    _counts.lines[event.line] += 1
    if _counts.lines[event.line] == LOOP and _first("loop", event.line):
        text = f"{event.reason} runs the region in parts again and again, as in a loop"
        logs.emit("perf_hints", f"{event.line}: {text}\n  Hint: read the value after the loop")


def _break(event: Flush, problem: tuple[str, str] | None) -> None:
    if not _first(event.reason, event.line):
        return
    count = f"after {event.records} operators"
    if problem is None:
        text = f"{event.line}: {event.reason} {count} divides the region\n"
        text += "  It is no graph break: Python reads the number and goes on recording."
    else:
        text = f"Graph break in user code at {event.line} {count}\n"
        text += f"  Reason: it {problem[0]}\n  Hint: {problem[1]}"
    logs.emit("graph_breaks", text)


def _first(kind: str, line: str) -> bool:
    """Whether this is shown for the first time."""
    if (line, kind) in _shown:
        return False
    _shown.add((line, kind))
    return True


def program(recorded: RecordedStream, backward: int, plan: Plan, numbers: Sequence[int]) -> None:
    """Logs what a stream is, when it has been compiled.

    Args:
        recorded: the stream.
        backward: number of its first backward record.
        plan: its Plan.
        numbers: the values of its symbols.
    """
    if recompiles.watched():
        recompiles.note(recorded, plan.graph, numbers, _counts.lines)
    for name in ("graph", "trace_call"):
        if logs.on(name):
            with importing:
                from flambeau.capture.stages import record_text

            logs.emit(name, record_text(recorded, backward))
    if logs.on("graph_sizes"):
        logs.emit("graph_sizes", "\n".join(_geometry(plan.graph(), numbers)))
    if logs.level_of("dynamic") <= logs.INFO:
        graph: Graph = plan.graph()
        guards = [f"guard: {guard}" for guard in graph.guards]
        logs.note("dynamic", "\n".join([*_geometry(graph, numbers), *guards]))
    if logs.on("inductor_metrics"):
        _traffic(recorded, backward, plan, numbers)


def _traffic(recorded: RecordedStream, backward: int, plan: Plan, numbers: Sequence[int]) -> None:
    """Logs the bytes that a program moves, which needs its launches: it is compiled here."""
    with importing:
        from flambeau.capture.stream import StreamReport
        from flambeau.reports.traffic import of_report

    plan.prepare()
    records = recorded.records[:backward]
    moved = of_report(StreamReport(recorded.externals, records, list(numbers), plan))
    text = f"{moved.bytes} bytes moved, {moved.least} at least, {moved.eager} by operators alone"
    logs.emit("inductor_metrics", text)


def _geometry(graph: Graph, numbers: Sequence[int]) -> list[str]:
    """A line for each input and result: its sizes, and their values."""
    values = dict(zip(graph.symbols, numbers, strict=True))
    named = [(f"input {slot}", x) for slot, x in enumerate(graph.inputs) if x is not None]
    named += [(f"result {k}", output.node) for k, output in enumerate(graph.outputs)]
    lines = []
    for name, x in named:
        sizes = ", ".join(map(str, x.shape))
        present = [estimate(size, values, 0) for size in x.shape]
        lines.append(f"{name}: {x.dtype}[{sizes}] = {present}")
    return lines


# ------------------------------------------------------------------------------- frames


def explained(compiled: CompiledFunction, text: str, guards: Sequence[str]) -> None:
    """Logs the guards of a call, and which guards of earlier explanations it did not meet.

    Args:
        compiled: the function, which has the explanation already.
        text: of the guards.
        guards: one line each.
    """
    _guards(text)
    former = [lines for lines in compiled._explanations if lines != guards]
    failed = [[f"- {line}" for line in lines if line not in guards] for lines in former]
    if failed:
        head = f"{_title(compiled)} runs its Python again, guards failed:"
        every = [line for lines in failed for line in lines]
        logs.emit("recompiles", "\n    ".join([head, *failed[0]]))
        logs.emit("recompiles_verbose", "\n    ".join([head, *every]))


def unexplained(compiled: CompiledFunction, text: str, reason: str) -> None:
    """Logs why a call has no explanation, and that its function is given up after some of them.

    Args:
        compiled: the function.
        text: for people.
        reason: what prevents an explanation.
    """
    _guards(text)
    compiled._unexplained = getattr(compiled, "_unexplained", 0) + 1
    if compiled._unexplained == MAX_FAILURES:
        limit = f"{_title(compiled)} hit the limit of {MAX_FAILURES} calls without an explanation"
        logs.emit("recompiles", f"{limit}: each call runs its Python\n    last reason: {reason}")


def _guards(text: str) -> None:
    for name in ("guards", "verbose_guards"):
        logs.emit(name, text)


def _title(compiled: CompiledFunction) -> str:
    function = compiled._function
    return str(getattr(function, "__qualname__", function))
