"""The pipeline: from a Graph to an execution, as a list of named stages.

    simplify   the graph with few of its equal layers, as a smaller one with the same bits; passes
               of users before fusion
    prepare    destinations of results, memory views of routines' operands, blocks of long sums
    analyse    values that kernels start and end at, and the cost of recomputing the others
    cluster    values that share a kernel, and why others do not; in tuned programs small
               independent kernels become one
    order      clusters in the order of their launches
    lower      a loop program per cluster, launches, buffers; passes of users after fusion
    tier       launches that need no compiler, where kernels are not compiled yet
    repeat     the launches of the layers that were left out
    print      the C text of each distinct kernel
    compile    machine code, from the cache or the compiler
    assemble   the dictionary that the native core runs

Where a program waits for its kernels `lower` hands each over as soon as it is built, so that the
compiler works while the others are lowered; `print` adds those that were not handed over, and
`compile` waits for all. A kernel that would overwrite memory which is still to be read sends the
program back to `prepare`, which then adds copies. Under FLAMBEAU_VERIFY=1 each stage is verified
after it has run.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flambeau.compiler import debug, passes, targets, tiers
from flambeau.compiler.equal_layers import NotEqualError, Shortened, shortened
from flambeau.compiler.execution import build_execution
from flambeau.compiler.repeated_launches import Extension
from flambeau.compiler.schedule import (
    Analysis,
    Cluster,
    Clustering,
    InPlaceConflict,
    Prepared,
    Schedule,
    analyse,
    fuse_independent,
    in_order,
    lower,
    order_in_place,
    order_text,
    prepare,
)
from flambeau.compiler.schedule.candidates import Choose
from flambeau.compiler.simplify import simplify
from flambeau.ir.failure import failure
from flambeau.ir.kernel import Kernel
from flambeau.ir.lock import importing, late
from flambeau.ir.node import Graph
from flambeau.ir.plan import BlockProgram, Execution
from flambeau.runtime import collection, logs, settings


@dataclass
class State:
    """The results of the stages so far.

    Attributes:
        graph: the program that is planned, simplified from the first stage on.
        program: the program; `graph` has few of its equal layers.
        registers: registers of the plan's metadata program (None: the symbols only).
        choose: names the candidate of each tunable call (None: the cost models').
        build: a build of kernels that runs while others are lowered.
        indirect: slots of inputs that are written by a copy that comes last.
        searched: whether equal layers are left out.
        short: how the planned program is a part of the whole; None: it is the whole.
        prepared: the graph that is clustered, with destinations.
        analysis: its values' roles and costs.
        clustering: which of them share a kernel.
        clusters: the same in the order of launches.
        schedule: launches and buffers.
        later: the schedule that takes its place when its kernels are compiled; None: the same.
        kernels: distinct kernels, by text.
        addresses: of compiled kernels, by text.
        symbols: their names in C, by text.
        programs: of kernels on the baseline tier, by text.
        keepalive: what the addresses need.
        execution: the result.
    """

    graph: Graph
    registers: int | None = None
    choose: Choose | None = None
    build: Any = None
    indirect: set[int] = field(default_factory=set)
    searched: bool = True
    short: Shortened | None = None
    prepared: Prepared = field(init=False)
    analysis: Analysis = field(init=False)
    clustering: Clustering = field(init=False)
    clusters: list[Cluster] = field(default_factory=list)
    schedule: Schedule = field(default_factory=Schedule)
    later: Schedule | None = None
    kernels: dict[str, Kernel] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)
    programs: dict[str, BlockProgram] = field(default_factory=dict)
    keepalive: list[Any] = field(default_factory=list)
    execution: Execution = Execution((), (), ())

    def __post_init__(self) -> None:
        self.program = self.graph


def _simplify(state: State) -> None:
    state.graph = simplify(state.program)
    if state.searched and state.choose is None and not passes.registered():
        state.short = shortened(state.graph)
        if state.short is not None:
            state.graph = state.short.graph
            return
    changed = passes.before_fusion(state.graph)
    if changed is not state.graph:
        state.graph = simplify(changed)


def _prepare(state: State) -> None:
    state.prepared = prepare(state.graph, state.indirect)


def _analyse(state: State) -> None:
    state.analysis = analyse(state.prepared)


def _cluster(state: State) -> None:
    state.clustering = Clustering(state.analysis)
    state.clustering.run()
    order_in_place(state.clustering, state.prepared)
    if state.choose is not None:
        fuse_independent(state.clustering, state.choose.values, targets.current())


def _order(state: State) -> None:
    state.clusters = in_order(state.clustering.clusters, state.prepared.destinations)


def _lower(state: State) -> None:
    emit = functools.partial(_add_to_build, state)
    schedule = lower(state.graph, state.prepared, state.clusters, emit=emit)
    state.schedule = passes.after_fusion(schedule)


def _add_to_build(state: State, kernel: Kernel) -> None:
    """Hands a kernel to the printer and the compiler, where they run beside the planning."""
    if state.build is not None:
        with contextlib.suppress(NotImplementedError):  # raised when it turns out to be needed
            state.build.add(kernel)


def _tier(state: State) -> None:
    """Chooses the launches that run until the others' kernels are compiled."""
    state.later = None
    if _policy(state) == "wait" or _ready(list(_kernels_of(state.schedule).values())):
        return
    with importing:
        from flambeau.compiler.baseline.split import split

    state.later, state.schedule = state.schedule, split(state.schedule)


def _repeat(state: State) -> None:
    """Extends the schedules to the layers that were left out; if they do not repeat themselves,
    the program is planned as a whole."""
    if state.short is None:
        return
    try:
        _extend(state, state.short)
    except NotEqualError:
        state.short, state.searched = None, False
        raise _PlanWholeError from None


def _extend(state: State, short: Shortened) -> None:
    """The schedules of all layers in place of those of few."""
    model = state.schedule if state.later is None else state.later
    extension = Extension(short, state.prepared, state.clusters, model)
    if state.later is None:
        state.schedule = extension.schedule
    else:
        state.schedule, state.later = extension.of(state.schedule), extension.schedule


class _PlanWholeError(Exception):
    """The program is to be planned with all of its layers."""


def _policy(state: State) -> str:
    """When kernels of this program are compiled (`tiers.policy`)."""
    if _device(state) != "cpu":
        return "wait"
    return "never" if _forced() else tiers.policy(state.choose is not None)


def _forced() -> bool:
    """Whether a test requires the baseline, whatever a cache has."""
    return bool(settings.get("TIER") != "compiled")


def _ready(kernels: list[Kernel]) -> bool:
    """Whether kernels may run as machine code that exists."""
    with importing:
        from flambeau.compiler import codegen

    return not _forced() and codegen.present(kernels) is not None


def _kernels_of(schedule: Schedule) -> dict[str, Kernel]:
    """The distinct kernels of a schedule, by text."""
    return {x.kernel.text(): x.kernel for x in schedule.launches if x.kernel is not None}


def _print(state: State) -> None:
    state.kernels = _kernels_of(state.schedule)
    for kernel in state.kernels.values():
        _add_to_build(state, kernel)


def _compile(state: State) -> None:
    compiled = []
    for text, kernel in state.kernels.items():
        program = None if state.later is None else _program(state, kernel)
        if program is None:
            compiled.append(kernel)
        else:
            state.programs[text] = program
    if compiled:
        _compile_kernels(state, compiled)


def _program(state: State, kernel: Kernel) -> BlockProgram | None:
    """The block program of a kernel; None: it is compiled, or has to be.

    Raises:
        NotImplementedError: there is neither machine code nor a program, and no compiler to ask.
    """
    with importing:
        from flambeau.compiler import baseline, codegen

    if _ready([kernel]) or not baseline.chosen(kernel):
        return None
    asks = tiers.policy(state.choose is not None) != "never"
    if kernel.form == "template":
        if asks or codegen.present([kernel]) is not None:
            return None
        problem = f"no {kernel.template!r} came with the package: {dict(kernel.settings)}"
        raise failure(NotImplementedError, "compile", problem, "set FLAMBEAU_COMPILER=background")
    try:
        return baseline.program_of(kernel)
    except NotImplementedError:
        if asks:
            return None
        raise


def _compile_kernels(state: State, kernels: list[Kernel]) -> None:
    build = targets.builder(_device(state))
    begun = () if state.build is None else (state.build,)
    handles = build(kernels, *begun)
    state.build = None
    for kernel, handle in zip(kernels, handles, strict=True):
        state.addresses[kernel.text()] = handle.address
        state.symbols[kernel.text()] = handle.name
    state.keepalive.extend(handle.keepalive for handle in handles)


def _assemble(state: State) -> None:
    execution = _executed(state, state.schedule, state.addresses, state.programs, state.keepalive)
    if state.later is not None and _policy(state) == "background":
        execution = execution._replace(pending=_pending(state, state.later))
    state.execution = execution


def _executed(
    state: State,
    schedule: Schedule,
    addresses: Mapping[str, int],
    programs: Mapping[str, BlockProgram],
    keepalive: list[Any],
) -> Execution:
    names, registers = state.graph.symbols, state.registers
    return build_execution(schedule, names, registers, addresses, programs, keepalive)


def _pending(state: State, later: Schedule) -> tiers.Pending:
    """The kernels, and the function that assembles the code, that replace the baseline's."""
    kernels = _kernels_of(later)

    def assemble() -> Execution | None:
        with importing:
            from flambeau.compiler import codegen

        handles = codegen.present(list(kernels.values()))
        if handles is None:
            return None
        addresses = dict(zip(kernels, [handle.address for handle in handles]))
        return _executed(state, later, addresses, {}, [handle.keepalive for handle in handles])

    return tiers.Pending(list(kernels.values()), assemble)


def _device(state: State) -> str:
    return str(state.graph.notes.get("device", "cpu"))


def _tune(state: State) -> None:
    """Launches again, tunable calls as `choose` says. Most of their kernels are those that were
    just compiled, side by side."""
    schedule = lower(state.graph, state.prepared, state.clusters, state.choose)
    state.schedule = passes.after_fusion(schedule)
    _print(state)
    _compile(state)


# ------------------------------------------------------------------------------- texts


def _graph_text(state: State) -> str:
    with importing:
        from flambeau.ir.printer import print_graph

    return print_graph(state.graph)


def _schedule_text(state: State) -> str:
    return state.schedule.text()


def _printed(state: State) -> list[tuple[str, str]]:
    """(key of the kernel's text, C text) of each kernel."""
    with importing:
        from flambeau.compiler import codegen

    target = targets.current()
    return [(text, codegen.print_kernel(k, target)) for text, k in state.kernels.items()]


def _c_text(state: State) -> str:
    """The kernels' C."""
    return "\n".join(_c_texts(state))


def _c_texts(state: State) -> list[str]:
    """The C of each kernel; its function has its name in the cache as soon as it is compiled."""
    with importing:
        from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL

    names = state.symbols
    return [c.replace(SYMBOL, names.get(text, SYMBOL)) for text, c in _printed(state)]


def _compiled_text(state: State) -> str:
    return "".join(
        f"{state.symbols.get(text, 'program')} {k.form}\n" for text, k in state.kernels.items()
    )


def _execution_text(state: State) -> str:
    with importing:
        from flambeau.compiler.baseline.text import program_lines
        from flambeau.ir.plan_grammar import print_execution

    first = len(state.graph.symbols) if state.registers is None else state.registers
    return print_execution(state.execution, first, program_lines)


# ------------------------------------------------------------------------------- stages


class Stage(NamedTuple):
    """A step of the pipeline.

    Attributes:
        name: as `stages` lists it.
        run: adds its result to the state.
        text: the result, as text.
    """

    name: str
    run: Callable[[State], None]
    text: Callable[[State], str]

    def verify(self, state: State) -> None:
        """Raises an error that quotes the neighbourhood of whatever breaks a grammar."""
        with importing:
            from flambeau.compiler.verify import VERIFIERS

        VERIFIERS[self.name](state)


STAGES = (
    Stage("simplify", _simplify, _graph_text),
    Stage("prepare", _prepare, lambda state: state.prepared.text()),
    Stage("analyse", _analyse, lambda state: state.analysis.text()),
    Stage("cluster", _cluster, lambda state: state.clustering.text()),
    Stage("order", _order, lambda state: order_text(state.clusters)),
    Stage("lower", _lower, _schedule_text),
    Stage("tier", _tier, _schedule_text),
    Stage("repeat", _repeat, _schedule_text),
    Stage("print", _print, _c_text),
    Stage("compile", _compile, _compiled_text),
    Stage("assemble", _assemble, _execution_text),
)
_TUNED_STAGES = (*STAGES[:-1], Stage("tune", _tune, _schedule_text), STAGES[-1])
_LIBRARY_STAGES = tuple(x for x in STAGES if x.name not in ("tier", "compile", "assemble"))
_PREPARE, _LOWER = (
    next(number for number, stage in enumerate(STAGES) if stage.name == name)
    for name in ("prepare", "lower")
)


def _run(state: State, stages: Sequence[Stage]) -> Iterator[tuple[Stage, float]]:
    """Runs stages; yields each, and its milliseconds, as it ends. One that is sent back to
    `prepare` has no result, and stages may run again."""
    verify = settings.get("VERIFY")
    number = 0
    while number < len(stages):
        stage = stages[number]
        begin = time.perf_counter()
        try:
            stage.run(state)
        except _PlanWholeError:
            number = 0
            continue
        except InPlaceConflict as conflict:
            if state.indirect.issuperset(conflict.slots):
                raise
            state.indirect.update(conflict.slots)
            number = next(i for i, earlier in enumerate(stages) if earlier.name == "prepare")
            continue
        elapsed = (time.perf_counter() - begin) * 1e3
        if verify:
            stage.verify(state)
        yield stage, elapsed
        number += 1


# ------------------------------------------------------------------------------- running


def schedule(graph: Graph) -> Schedule:
    """The launches and buffers of a simplified graph; nothing is compiled."""
    state = State(graph)
    for _ in _run(state, STAGES[_PREPARE : _LOWER + 1]):
        pass
    return state.schedule


def compile_graph(
    graph: Graph, registers: int | None = None, choose: Choose | None = None
) -> Execution:
    """Compiles a graph to an execution (docs/design.md § 5).

    Args:
        graph: the program.
        registers: number of registers of the plan's metadata program, which come first in the
            execution's numbering; None when there are only the graph's symbols.
        choose: see `schedule.candidates`.
    """
    return _compiled(graph, registers, choose).execution


class Portable(NamedTuple):
    """A program for other processes.

    Attributes:
        execution: kernels by number instead of address.
        kernels: their digests (`codegen.content_of`).
        baseline: what runs until these kernels are compiled, its own by number, too; or None.
        contents: the kernels of `execution` as bytes, if there is a baseline.
    """

    execution: Execution
    kernels: list[str]
    baseline: Execution | None = None
    contents: tuple[bytes, ...] = ()


def compile_portable(
    graph: Graph, registers: int | None = None, choose: Choose | None = None
) -> tuple[Execution, Callable[[], Portable]]:
    """Compiles a graph for this process; also what makes of it the same for others."""
    state = _compiled(graph, registers, choose)
    del state.prepared, state.analysis, state.clustering
    state.clusters.clear()
    state.schedule.memories, state.short = [], None
    if state.later is not None:
        state.later.memories = []
    return state.execution, functools.partial(_portable, state)


def _portable(state: State) -> Portable:
    """A compiled program, for other processes."""
    kernels = {text: kernel for text, kernel in state.kernels.items() if text in state.addresses}
    later = {} if state.later is None else _kernels_of(state.later)
    kernels.update(later)
    numbers = {text: number for number, text in enumerate(kernels)}
    contents = _contents(list(kernels.values()))
    if state.later is None:
        return Portable(_executed(state, state.schedule, numbers, {}, []), contents)
    with importing:
        from flambeau.ir import kernel_bytes

    own = {text: number for text, number in numbers.items() if text in state.addresses}
    return Portable(
        _executed(state, state.later, numbers, {}, []),
        contents,
        _executed(state, state.schedule, own, state.programs, []),
        tuple([kernel_bytes.dumps(kernel) for kernel in later.values()]),
    )


def _contents(kernels: list[Kernel]) -> list[str]:
    """The digest of each kernel, for other processes."""
    if not kernels:
        return []
    with importing:
        from flambeau.compiler import codegen

    return [codegen.content_of(kernel) for kernel in kernels]


def for_library(graph: Graph, registers: int) -> tuple[Execution, list[Kernel]]:
    """Plans a graph for a library of its own.

    Args:
        graph: the program.
        registers: number of registers of the metadata program.

    Returns:
        The execution, kernels by number, and these.
    """
    state = State(graph, registers)
    with collection.paused():
        for _ in _run(state, _LIBRARY_STAGES):
            pass
    numbers = {text: number for number, text in enumerate(state.kernels)}
    return _executed(state, state.schedule, numbers, {}, []), list(state.kernels.values())


def stages(graph: Graph, upto: str = "assemble") -> list[tuple[str, float, str]]:
    """Runs the stages up to one, with (name, milliseconds, text of the result) for each."""
    last = [stage.name for stage in STAGES].index(upto)
    return [(r.stage, r.milliseconds, r.text()) for r in _reports(State(graph), STAGES[: last + 1])]


def _compiled(graph: Graph, registers: int | None, choose: Choose | None) -> State:
    """The state after all stages, which `debug` shows."""
    state = State(graph, registers, choose)
    listed = STAGES if choose is None else _TUNED_STAGES
    waits = _policy(state) == "wait"
    build = state.build = targets.begin(_device(state)) if waits else None
    try:
        if not debug.watchers and not debug.level() and not logs.active():
            with collection.paused():
                for _ in _run(state, listed):
                    pass
            return state
        if debug.level() >= debug.EVERYTHING:
            debug.show(debug.EVERYTHING, f"{graph.name}: traced", _graph_text(state))
        reports = list(_reports(state, listed))
        _show(state, reports)
        _log(state, graph, reports)
        return state
    finally:
        if build is not None:
            build.close()


def _reports(state: State, listed: Sequence[Stage]) -> Iterator[debug.Report]:
    for stage, milliseconds in _run(state, listed):
        text = functools.partial(stage.text, state)
        report = debug.Report(state.graph.name, stage.name, milliseconds, text, state)
        for watcher in list(debug.watchers):
            watcher(report)
        yield report


def _show(state: State, reports: list[debug.Report]) -> None:
    """Shows the parts of one compiled program that FLAMBEAU_DEBUG selects."""
    if not debug.level():
        return
    name = state.graph.name
    debug.show(debug.PLANS, _summary(state, reports))
    if debug.level() >= debug.GRAPHS:
        debug.show(debug.GRAPHS, f"{name}: program", _graph_text(state))
    if debug.level() >= debug.SCHEDULES:
        debug.show(debug.SCHEDULES, f"{name}: schedule", state.schedule.text())
    if debug.level() >= debug.SOURCES and state.kernels:
        debug.show(debug.SOURCES, f"{name}: C of its kernels in {_keep(state)}")
    if debug.level() >= debug.EVERYTHING:
        debug.show(debug.EVERYTHING, f"{name}: C of its kernels", _c_text(state))
        debug.show(debug.EVERYTHING, f"{name}: execution", _execution_text(state))


def _summary(state: State, reports: list[debug.Report]) -> str:
    """One line about a compiled program."""
    launches = state.schedule.launches
    routines = sum(launch.routine is not None for launch in launches)
    times = ", ".join(f"{r.stage} {r.milliseconds:.2f}" for r in reports)
    total = sum(r.milliseconds for r in reports)
    what = f"{len(launches) - routines} kernels, {routines} routines"
    return f"{state.graph.name}: {what}, {total:.2f} ms ({times})"


def _log(state: State, traced: Graph, reports: list[debug.Report]) -> None:
    """Logs what `TORCH_LOGS` selects of one compiled program."""
    if not logs.active():
        return
    logs.note("inductor", _summary(state, reports))
    functions = functools.partial(_c_texts, state), functools.partial(_keep, state)
    late("flambeau.reports.program_logs").show(state, traced, *functions)


def _keep(state: State) -> str:
    """Writes the kernels as a unit that compiles to the cache's folder of sources."""
    with importing:
        from flambeau.compiler.cache import blake2b, directory
        from flambeau.compiler.codegen.c.printer.c_unit import render

    kernels = [
        (state.symbols.get(text, f"kernel{number}"), c)
        for number, (text, c) in enumerate(_printed(state))
    ]
    source = render(kernels, targets.current())
    path = directory() / "sources" / f"{blake2b(source.encode(), digest_size=8).hexdigest()}.c"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return str(path)
