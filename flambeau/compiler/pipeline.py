"""The pipeline: from a Graph to what the native core runs, as a list of named stages.

Each stage takes the state the one before left, adds its part, and can print it. `compile_graph`
runs them; who wants to see them (`stages`, `debug.watch`, FLAMBEAU_DEBUG) gets the time and the
text of each.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flambeau.compiler import debug, targets
from flambeau.compiler.execution import Execution, build_execution
from flambeau.compiler.schedule import Schedule, schedule
from flambeau.compiler.schedule.candidates import Choose
from flambeau.compiler.simplify import simplify
from flambeau.ir.kernel import Kernel
from flambeau.ir.lock import importing
from flambeau.ir.node import Graph
from flambeau.runtime import collection, settings


@dataclass
class State:
    """What the stages pass on.

    Attributes:
        graph: the program, simplified from the first stage on.
        registers: registers of the plan's metadata program (None: the symbols only).
        choose: names the candidate of each heavy call (None: the cost models').
        schedule: launches and buffers.
        kernels: distinct kernels, by text.
        addresses: of compiled kernels, by text.
        symbols: their names in C, by text.
        keepalive: what the addresses need.
        execution: the result.
        begun: a build that kernels are added to while others are still planned.
    """

    graph: Graph
    registers: int | None = None
    choose: Choose | None = None
    schedule: Schedule = field(default_factory=Schedule)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)
    keepalive: list[Any] = field(default_factory=list)
    execution: Execution = field(default_factory=dict)
    begun: Any = None


def _simplify(state: State) -> None:
    state.graph = simplify(state.graph)


def _schedule(state: State) -> None:
    state.schedule = schedule(state.graph, emit=functools.partial(_compile_early, state))
    _collect_kernels(state)


def _compile_early(state: State, kernel: Kernel) -> None:
    """Hands a kernel to the compiler while others are planned."""
    if state.begun is not None:
        with contextlib.suppress(NotImplementedError):  # raised when it turns out to be needed
            state.begun.add(kernel)


def _collect_kernels(state: State) -> None:
    for launch in state.schedule.launches:
        if launch.kernel is not None:
            state.kernels.setdefault(launch.kernel.text(), launch.kernel)


def _verify(state: State) -> None:
    if not settings.get("VERIFY"):
        return
    from flambeau.ir.graph_grammar import verify_graph

    with importing:
        from flambeau.ir.kernel_grammar import verify

    verify_graph(state.graph)
    for kernel in state.kernels.values():
        verify(kernel)


def _build(state: State) -> None:
    if not state.kernels:
        return
    build = targets.builder(_device(state))
    begun = () if state.begun is None else (state.begun,)
    handles = build(list(state.kernels.values()), *begun)
    state.begun = None
    for text, handle in zip(state.kernels, handles, strict=True):
        state.addresses[text] = handle.address
        state.symbols[text] = handle.name
    state.keepalive.extend(handle.keepalive for handle in handles)


def _device(state: State) -> str:
    return str(state.graph.notes.get("device", "cpu"))


def _tune(state: State) -> None:
    """Another schedule of the same program, heavy calls as `choose` says. Most of its kernels are
    those that were just compiled, side by side."""
    state.schedule = schedule(state.graph, state.choose)
    state.kernels = {}
    _collect_kernels(state)
    _verify(state)
    _build(state)


def _execution(state: State) -> None:
    state.execution = build_execution(
        state.schedule, state.graph.symbols, state.registers, state.addresses, state.keepalive
    )


# ------------------------------------------------------------------------------- texts


def _graph_text(state: State) -> str:
    with importing:
        from flambeau.ir.printer import print_graph

    return print_graph(state.graph)


def _verify_text(state: State) -> str:
    done = "verified" if settings.get("VERIFY") else "not verified (FLAMBEAU_VERIFY=1 does)"
    return f"1 program, {len(state.kernels)} kernels: {done}\n"


def _printed(state: State) -> list[tuple[str, str]]:
    """(symbol, C text) of each kernel."""
    from flambeau.compiler import codegen

    target = targets.current()
    return [
        (state.symbols[text], codegen.print_kernel(kernel, target))
        for text, kernel in state.kernels.items()
    ]


def _kernel_text(state: State) -> str:
    from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL

    return "\n".join(text.replace(SYMBOL, symbol) for symbol, text in _printed(state))


def _execution_text(state: State) -> str:
    lines = [f"{len(state.execution['program'])} size instructions"]
    lines += [f"buffer {i}: {b}" for i, b in enumerate(state.execution["buffers"])]
    for number, launch in enumerate(state.execution["launches"]):
        what = launch["routine"] or "kernel"
        lines.append(f"launch {number}: {what} buffers {launch['buffers']} sizes {launch['sizes']}")
    return "\n".join(lines) + "\n"


Stage = tuple[str, Callable[[State], None], Callable[[State], str]]
STAGES: list[Stage] = [
    ("simplify", _simplify, _graph_text),
    ("schedule", _schedule, lambda state: state.schedule.text()),
    ("verify", _verify, _verify_text),
    ("build", _build, _kernel_text),
    ("execution", _execution, _execution_text),
]
_TUNE: Stage = ("tune", _tune, lambda state: state.schedule.text())
_TUNED_STAGES = [*STAGES[:-1], _TUNE, STAGES[-1]]


# ------------------------------------------------------------------------------- running


def compile_graph(
    graph: Graph, registers: int | None = None, choose: Choose | None = None
) -> Execution:
    """Compiles a graph to an execution dictionary (docs/design.md § 5).

    Args:
        graph: the program.
        registers: number of registers of the plan's metadata program, which come first in the
            execution's numbering; None when there are only the graph's symbols.
        choose: see `schedule.candidates`.
    """
    return _compile(graph, registers, choose).execution


def compile_portable(
    graph: Graph, registers: int | None = None, choose: Choose | None = None
) -> tuple[Execution, Execution, list[tuple[str, ...]]]:
    """Compiles a graph, for this process and for others.

    Returns:
        The execution; the same with kernels by number instead of address; the kernels' keys in
        the cache's levels.
    """
    state = _compile(graph, registers, choose)
    numbers = {text: number for number, text in enumerate(state.kernels)}
    launches = [
        dict(made, kernel=None if launch.kernel is None else numbers[launch.kernel.text()])
        for made, launch in zip(state.execution["launches"], state.schedule.launches, strict=True)
    ]
    portable = state.execution | {"launches": launches, "keepalive": []}
    return state.execution, portable, _keys(list(state.kernels.values()))


def _keys(kernels: list[Kernel]) -> list[tuple[str, ...]]:
    """What another process can find each kernel by."""
    if not kernels:
        return []
    from flambeau.compiler import codegen, toolchain

    identities = [codegen._prefilled_identity()]
    try:
        identities.append(toolchain.find().identity)
    except RuntimeError:  # they came with the package
        pass
    target = targets.current()
    return [
        tuple(codegen.key_of(kernel, target, i) for i in identities if i is not None)
        for kernel in kernels
    ]


def stages(graph: Graph, upto: str = "execution") -> list[tuple[str, float, str]]:
    """Runs the stages up to one, with (name, milliseconds, text of what it made) for each."""
    return [(r.stage, r.milliseconds, r.text()) for r in _run(State(graph), upto)]


def _compile(graph: Graph, registers: int | None, choose: Choose | None) -> State:
    """All stages, shown to whom it concerns."""
    state = State(graph, registers, choose)
    begun = state.begun = targets.begin(_device(state))
    try:
        if not debug.watchers and not debug.level():
            with collection.paused():
                for _, run, _ in _stages_of(state):
                    run(state)
            return state
        if debug.level() >= debug.EVERYTHING:
            debug.show(debug.EVERYTHING, f"{graph.name}: traced", _graph_text(state))
        _show(state, list(_run(state, "execution")))
        return state
    finally:
        if begun is not None:
            begun.close()


def _stages_of(state: State) -> list[Stage]:
    return STAGES if state.choose is None else _TUNED_STAGES


def _run(state: State, upto: str) -> Iterator[debug.Report]:
    for name, run, text in _stages_of(state):
        begin = time.perf_counter()
        run(state)
        elapsed = (time.perf_counter() - begin) * 1e3
        made = functools.partial(text, state)
        report = debug.Report(state.graph.name, name, elapsed, made)
        for watcher in list(debug.watchers):
            watcher(report)
        yield report
        if name == upto:
            break


def _show(state: State, reports: list[debug.Report]) -> None:
    """What FLAMBEAU_DEBUG asks for, about one compiled program."""
    if not debug.level():
        return
    name, launches = state.graph.name, state.schedule.launches
    routines = sum(launch.routine is not None for launch in launches)
    times = ", ".join(f"{r.stage} {r.milliseconds:.2f}" for r in reports)
    total = sum(r.milliseconds for r in reports)
    what = f"{len(launches) - routines} kernels, {routines} routines"
    debug.show(debug.PLANS, f"{name}: {what}, {total:.2f} ms ({times})")
    if debug.level() >= debug.GRAPHS:
        debug.show(debug.GRAPHS, f"{name}: program", _graph_text(state))
    if debug.level() >= debug.SCHEDULES:
        debug.show(debug.SCHEDULES, f"{name}: schedule", state.schedule.text())
    if debug.level() >= debug.SOURCES and state.kernels:
        debug.show(debug.SOURCES, f"{name}: C of its kernels in {_keep(state)}")
    if debug.level() >= debug.EVERYTHING:
        debug.show(debug.EVERYTHING, f"{name}: C of its kernels", _kernel_text(state))
        debug.show(debug.EVERYTHING, f"{name}: execution", _execution_text(state))


def _keep(state: State) -> str:
    """Writes the kernels as a unit that compiles to the cache's folder of sources."""
    from flambeau.compiler.cache import blake2b, directory

    with importing:
        from flambeau.compiler.codegen.c.printer.c_unit import render

    source = render(_printed(state))
    path = directory() / "sources" / f"{blake2b(source.encode(), digest_size=8).hexdigest()}.c"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return str(path)
