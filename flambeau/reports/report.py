"""`flambeau.compiler.report`: one function's way through the compiler, as a page.

The page needs no script and no other file. Its numbers are those of `explain` (bytes) and of
profiles (times); its texts are those of `stages`. Everything that comes from the program is
escaped. `report.html` is the frame; this module fills it.
"""

from __future__ import annotations

import html
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import NamedTuple

from flambeau import _core
from flambeau.capture import regions, stages, stream
from flambeau.capture.flushes import Flush, listening
from flambeau.capture.recording import record
from flambeau.capture.stages import Stage
from flambeau.compiler import cache, codegen, debug, machine, targets, tiers
from flambeau.compiler.schedule.launch import Launch as ScheduledLaunch
from flambeau.ir.lock import late
from flambeau.reports import roofline, traffic
from flambeau.reports.explanation import Explanation, explain
from flambeau.runtime import LaunchTime, profile

_Function = Callable[..., object]
RUNS = 9  # that are timed
WARM = 3  # before them: weights are packed at the second run
BASELINE = " (baseline)"  # behind a launch's name in profiles
_FRAME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "report.html")
_PROBE = 1 << 23  # floats that are copied to measure the memory


@dataclass
class _Program:
    """One compiled program of the region.

    Attributes:
        stages: their texts and times.
        separations: why values are in different kernels.
        schedules: launches of the code that ran first, and of the compiled code.
        report: its Plan, and what it is of.
    """

    stages: list[Stage] = field(default_factory=list)
    separations: list[str] = field(default_factory=list)
    schedules: list[list[ScheduledLaunch]] = field(default_factory=list)
    report: stream.StreamReport | None = None


class _Collected(stages.Collected):
    """Sorts what the compiler does by program."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[_Program] = []

    def add(self, name: str, milliseconds: float, text: str) -> None:
        """Notes a stage of the present program."""
        while len(self.listed) < self.programs:
            self.listed.append(_Program())
        if self.listed:
            self.listed[-1].stages.append((name, milliseconds, text))

    def note(self, report: debug.Report) -> None:
        """Notes a stage that the pipeline ends."""
        self.add(report.stage, report.milliseconds, report.text())
        if not self.listed:
            return
        program = self.listed[-1]
        if report.stage == "cluster":
            program.separations = [line for line, _ in report.state.clustering.separations()]
        if report.stage == "assemble":
            both = report.state.schedule, report.state.later
            program.schedules = [each.launches for each in both if each is not None]


class Row(NamedTuple):
    """One launch in the report.

    Attributes:
        traffic: its name and bytes.
        kernel: number of its C text; None for a native routine.
        form: of the kernel, or the routine's name.
        microseconds: median over the runs; None: it did not run.
        tier: "compiled", "baseline", "routine", or "" if it did not run.
    """

    traffic: traffic.LaunchTraffic
    kernel: int | None
    form: str
    microseconds: float | None
    tier: str


def report(function: _Function, *args: object, path: str | None = None, **kwargs: object) -> str:
    """Writes a page about how a function is compiled and how it runs.

    The function is called about a dozen times. Known streams are forgotten first, as by
    `torch.compiler.reset`; everything on the baseline is compiled before times are taken.

    Args:
        function: a plain or compiled callable on tensors.
        *args, **kwargs: its arguments.
        path: the file; None: `report_<name of the function>.html` in the working directory.

    Returns:
        the file's path. It needs no other file, and no script: stages with their texts, kernels
        with their C, times and bytes, why values are in different kernels, flushes, guards.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> path = torch.compiler.report(
        ...     torch.sin, torch.ones(8), path=os.path.join(folder, "sin.html")
        ... )
        >>> os.path.basename(path)
        'sin.html'
    """
    name = str(getattr(function, "__qualname__", type(function).__name__))
    if path is None:
        safe = "".join(c if c.isalnum() else "_" for c in name)
        path = os.path.abspath(f"report_{safe}.html")
    collected, flushes = _collect(function, args, kwargs)
    tiers.wait()
    runs = list(_timed(function, args, kwargs))
    explanation = explain(function, *args, **kwargs)
    cache.write(os.path.abspath(path), _page(name, collected, flushes, runs, explanation).encode())
    return path


def _collect(
    function: _Function, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[list[_Program], list[Flush]]:
    """Compiles the function; the programs and flushes of its region."""
    collected, flushes = _Collected(), list[Flush]()
    regions.reset()
    with (
        stream.watching() as reports,
        stages.compiling_into(collected),
        debug.watch(collected.note),
        listening(flushes.append),
    ):
        record(function, args, kwargs)
    for program, each in zip(collected.listed, reports):
        program.report = each
    return collected.listed, flushes


def _timed(
    function: _Function, args: tuple[object, ...], kwargs: dict[str, object]
) -> Iterator[list[LaunchTime]]:
    """The launches of each timed run."""
    for number in range(WARM + RUNS):
        with profile() as times:
            record(function, args, kwargs)
        if number >= WARM:
            yield times


# ------------------------------------------------------------------------------- numbers


def _rows(programs: Sequence[_Program], runs: Sequence[list[LaunchTime]]) -> list[list[Row]]:
    """The launches of each program, in order; kernels are numbered by their text."""
    moved = [traffic.of_report(p.report).launches if p.report else [] for p in programs]
    names = [launch.name for launches in moved for launch in launches]
    times = _matched(names, runs)
    numbers: dict[str, int] = {}
    rows: list[list[Row]] = []
    for program, launches in zip(programs, moved, strict=True):
        scheduled = _schedule(program)
        rows.append([])
        for launch, step in zip(launches, scheduled):
            taken, baseline = times.pop(0)
            kernel = step.kernel
            number = None
            if kernel is not None:
                number = numbers.setdefault(kernel.text(), len(numbers))
            form = step.routine or (kernel.template or kernel.form if kernel else "")
            tier = "routine" if kernel is None else "baseline" if baseline else "compiled"
            rows[-1].append(Row(launch, number, form, taken, "" if taken is None else tier))
    return rows


def _schedule(program: _Program) -> list[ScheduledLaunch]:
    """The launches that the program's present code has."""
    if not program.schedules or program.report is None:
        return []
    return program.schedules[0 if tiers.tier(program.report.plan) == "baseline" else -1]


def _matched(
    names: Sequence[str], runs: Sequence[list[LaunchTime]]
) -> list[tuple[float | None, bool]]:
    """The median time of each launch in microseconds, and whether it ran on the baseline.

    A launch that has nothing to do, or whose result is cached, is in no profile.
    """
    times: list[list[float]] = [[] for _ in names]
    baseline = [False] * len(names)
    for run in runs:
        position = 0
        for event in run:
            name = event.name.removesuffix(BASELINE)
            if name in names[position:]:
                position = names.index(name, position)
                times[position].append(event.nanoseconds / 1e3)
                baseline[position] = event.name != name
                position += 1
    medians = [statistics.median(taken) if taken else None for taken in times]
    return list(zip(medians, baseline, strict=True))


def bandwidth() -> float:
    """Bytes per second that a copy of 32 MB moves here, the best of a few."""
    torch = late("flambeau")
    source = torch.ones(_PROBE)
    best = 0.0
    for _ in range(5):
        with profile() as times:
            source.clone()
        nanoseconds = sum(each.nanoseconds for each in times)
        best = max(best, 2 * source.nbytes / nanoseconds * 1e9 if nanoseconds else 0.0)
    return best


# ------------------------------------------------------------------------------- the page


def _page(
    name: str,
    programs: Sequence[_Program],
    flushes: Sequence[Flush],
    runs: Sequence[list[LaunchTime]],
    explanation: Explanation,
) -> str:
    rows = _rows(programs, runs)
    total = sum(row.microseconds or 0.0 for each in rows for row in each)
    speed = bandwidth()
    with open(_FRAME, encoding="utf-8") as file:
        frame = Template(file.read())
    threads = f"{_core.get_num_threads()} threads, target {targets.current().name}"
    times = f"{speed / 1e9:.1f} GB/s; times are medians of {len(runs)} runs"
    parts = [
        _program_part(number, program, own, total)
        for number, (program, own) in enumerate(zip(programs, rows, strict=True))
    ]
    return frame.substitute(
        title=_escaped(name),
        machine=_escaped(f"{machine.processor()}, {threads}; a copy of memory runs at {times}"),
        summary=_escaped(_summary(explanation, total)),
        overview=roofline.figure([row for each in rows for row in each], speed),
        programs="\n".join(parts),
        flushes=_list([f"{x.line}: {x.reason} after {x.records} operators" for x in flushes]),
        guards=_guards(explanation),
    )


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)


def _summary(explanation: Explanation, microseconds: float) -> str:
    moved, least, eager = (
        f"{size:,}"
        for size in (explanation.bytes_moved, explanation.bytes_least, explanation.bytes_eager)
    )
    return (
        f"{explanation.plans} programs with {explanation.kernels} launches take "
        f"{microseconds:,.1f} µs and move {moved} bytes. The least possible is {least} bytes; "
        f"operators alone, as in eager mode, move {eager}."
    )


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li><code>{_escaped(line)}</code></li>" for line in lines) + "</ul>"


def _guards(explanation: Explanation) -> str:
    if explanation.recorded:
        return f"<p>None: {_escaped(explanation.recorded)}.</p>"
    return "<p>A later call runs without its Python where these hold:</p>" + _list(
        explanation.guards
    )


def _program_part(number: int, program: _Program, rows: Sequence[Row], total: float) -> str:
    parts = [f"<h2>Program {number + 1}</h2>", _table(rows, total)]
    if program.separations:
        parts += ["<h3>Why these are several kernels</h3>", _list(program.separations)]
    parts += ["<h3>Kernels</h3>", *_kernels(program, rows)]
    parts.append("<h3>Stages</h3>")
    for name, milliseconds, text in program.stages:
        parts.append(_details(name, f"{milliseconds:.2f} ms", text))
    return "\n".join(parts)


def _details(title: str, note: str, text: str) -> str:
    return (
        f'<details><summary>{_escaped(title)}<span class="faint">{_escaped(note)}</span></summary>'
        f"<pre>{_escaped(text)}</pre></details>"
    )


_HEADS = ("launch", "kernel", "tier", "µs", "share of the time", "bytes read", "bytes written",
          "GB/s", "Gflop/s")  # fmt: skip


def _table(rows: Sequence[Row], total: float) -> str:
    heads = "".join(
        f'<th class="text">{head}</th>' if position < 3 else f"<th>{head}</th>"
        for position, head in enumerate(_HEADS)
    )
    body = "".join(_line(row, total) for row in rows)
    return f'<div class="scroll"><table><tr>{heads}</tr>{body}</table></div>'


def _line(row: Row, total: float) -> str:
    moved, taken = row.traffic, row.microseconds
    share = 100 * (taken or 0.0) / total if total else 0.0
    kernel = "" if row.kernel is None else f"K{row.kernel} "
    cells = [
        f'<td class="text">{_escaped(moved.name)}</td>',
        f'<td class="text">{_escaped(kernel + row.form)}</td>',
        f'<td class="text">{row.tier or "cached" if moved.packs else row.tier}</td>',
        f"<td>{'' if taken is None else f'{taken:,.1f}'}</td>",
        f'<td class="share"><div class="bar" style="width:{share:.1f}%"></div></td>',
        f"<td>{moved.read:,}</td>",
        f"<td>{moved.written:,}</td>",
        f"<td>{_rate(moved.moved, taken)}</td>",
        f"<td>{_rate(moved.flops, taken)}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _rate(count: int, microseconds: float | None) -> str:
    return f"{count / microseconds / 1e3:,.1f}" if count and microseconds else ""


def _kernels(program: _Program, rows: Sequence[Row]) -> Iterator[str]:
    """The C text of each kernel, and how often it is launched."""
    counts: dict[int, int] = {}
    for row, launch in zip(rows, _schedule(program)):
        if row.kernel is None or launch.kernel is None:
            continue
        first = row.kernel not in counts
        counts[row.kernel] = counts.get(row.kernel, 0) + 1
        if first:
            uses = sum(each.kernel == row.kernel for each in rows)
            note = f"{launch.kernel.form}, {uses} {'launch' if uses == 1 else 'launches'}"
            text = codegen.print_kernel(launch.kernel, targets.current())
            yield _details(f"K{row.kernel}", note, text)
