"""Checks of the pipeline's stages, which run after each under FLAMBEAU_VERIFY=1.

Graphs, the scheduler's values and elements, and kernels have grammars in `flambeau/ir`. This module
checks the stages' other facts, about values, clusters, launches and registers; a message quotes the
lines around the wrong one of the stage's text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flambeau.compiler.baseline.text import verify as verify_program
from flambeau.compiler.schedule.fusion_roots import kind_of
from flambeau.ir.graph_grammar import provided_symbols, quoted, verify_graph
from flambeau.ir.kernel_grammar import verify as verify_kernel
from flambeau.ir.plan import Output, PlanSpec
from flambeau.ir.plan_grammar import verify_plan
from flambeau.ir.schedule_grammar import verify_elements, verify_values

if TYPE_CHECKING:
    from flambeau.compiler.pipeline import State

ROLES = frozenset({"input", "reduce", "scan", "opaque", "cat", "root"})
HINT = "hint: the stage before this check made a wrong decision"


class StageError(ValueError):
    """The result of a stage contradicts itself; the message quotes the neighbourhood."""


def _fail(stage: str, problem: str, text: str, line: str) -> None:
    """Raises with the lines around the first one that starts with `line`."""
    lines = text.splitlines()
    at = next((i for i, each in enumerate(lines) if each.strip().startswith(line)), 0)
    raise StageError(f"[{stage}] {problem}\n{quoted(lines, at)}\n{HINT}")


def _simplified(state: State) -> None:
    verify_graph(state.graph)


def _prepared(state: State) -> None:
    destinations = state.prepared.destinations
    verify_values(destinations)
    for number, (value, listed) in enumerate(destinations.items()):
        for destination in listed:
            if len(destination.strides) != value.ndim:
                text = state.prepared.text()
                line = text.splitlines()[number - len(destinations)]
                _fail("prepare", f"strides {destination.strides} of {value!r}", text, line)


def _analysed(state: State) -> None:
    """Every value is a fusion root or has a cost; results and routines' operands are roots."""
    analysis = state.analysis
    numbers = {value: number for number, value in enumerate(analysis.nodes)}
    for value in analysis.nodes:
        role = analysis.roles.get(value)
        problem = None
        if role is None and (value in state.prepared.destinations or value.is_input):
            problem = f"{value!r} has no role"
        elif role is not None and role not in ROLES:
            problem = f"{value!r} has the role {role}"
        elif role is None and analysis.cost.get(value, -1) < 0:
            problem = f"{value!r} has no cost"
        elif role == "opaque" and kind_of(value) != "random":
            absent = [x for x in value.inputs if x not in analysis.roles]
            problem = f"{value!r} reads {absent[0]!r} from no memory" if absent else None
        if problem is not None:
            _fail("analyse", problem, analysis.text(), f"%{numbers[value]} =")


def _clustered(state: State) -> None:
    """Every fusion root has a cluster, which runs after those it reads; elements are in order."""
    clustering = state.clustering
    sizes = frozenset(provided_symbols(state.graph))
    for value, role in state.analysis.roles.items():
        if role in ("input", "cat"):
            continue
        number = clustering.owners.get(value, -1)
        if number not in clustering.clusters or value not in clustering.clusters[number].members:
            _fail("cluster", f"{value!r} is in no cluster", clustering.text(), "cluster")
    for cluster in clustering.clusters:
        line = f"cluster {cluster.number}:"
        for number in clustering.owners_of(cluster.sources):
            if not cluster.follows(clustering.clusters[number]):
                problem = f"cluster {cluster.number} does not run after {number}, which it reads"
                _fail("cluster", problem, clustering.text(), line)
        if cluster.follows(cluster):
            problem = f"cluster {cluster.number} must run after itself"
            _fail("cluster", problem, clustering.text(), line)
        if cluster.domain is not None:
            symbols = sizes | cluster.domain.axes.keys()
            verify_elements((member.value for member in cluster.members.values()), symbols)


def _ordered(state: State) -> None:
    """Every cluster is launched once, after its predecessors."""
    earlier = 0
    text = "".join(f"cluster {c.number}\n" for c in state.clusters)
    for cluster in state.clusters:
        if cluster.before & ~earlier or cluster.numbers & earlier:
            _fail(
                "order",
                f"cluster {cluster.number} comes too early",
                text,
                f"cluster {cluster.number}",
            )
        earlier |= cluster.numbers
    if len(state.clusters) != len(list(state.clustering.clusters)):
        _fail("order", "a cluster is not launched", text, "cluster")


def _lowered(state: State) -> None:
    """Kernels are well-formed; launches name buffers that live while they run."""
    schedule = state.schedule
    earlier = () if state.later is None else state.later.launches
    verified = {id(launch.kernel) for launch in earlier}
    for number, launch in enumerate(schedule.launches):
        problem = None
        if launch.kernel is not None:
            if id(launch.kernel) not in verified:
                verify_kernel(launch.kernel)
            if len(launch.sizes) < launch.kernel.size_count:
                problem = f"{len(launch.sizes)} sizes for {launch.kernel.size_count} arguments"
            elif len(launch.buffers) != len(launch.kernel.parameters):
                problem = f"{len(launch.buffers)} buffers"
        if (launch.kernel is None) == (launch.routine is None):
            problem = "is neither a kernel nor a routine"
        for buffer in launch.buffers:
            if not 0 <= buffer < len(schedule.buffers):
                problem = f"there is no buffer {buffer}"
            elif not schedule.buffers[buffer].first <= number <= schedule.buffers[buffer].last:
                problem = f"buffer {buffer} does not live then"
        if len(launch.offsets) != len(launch.buffers):
            problem = f"{len(launch.offsets)} offsets of {len(launch.buffers)} buffers"
        if problem is not None:
            _fail("lower", f"launch {number}: {problem}", schedule.text(), f"launch {number}:")


def _printed(state: State) -> None:
    """Every launch of a kernel has the kernel of its text."""
    for number, launch in enumerate(state.schedule.launches):
        if launch.kernel is not None and launch.kernel.text() not in state.kernels:
            text = state.schedule.text()
            _fail("print", f"launch {number} has no kernel", text, f"launch {number}:")


def _compiled(state: State) -> None:
    """Every kernel has an address and a name, or a block program that the core accepts."""
    for text in state.kernels:
        if text in state.programs:
            verify_program(state.programs[text])
            continue
        if not state.addresses.get(text) or not state.symbols.get(text):
            _fail("compile", "a kernel has no address", text, "kernel")


def _assembled(state: State) -> None:
    """Registers, slots and buffers of the execution exist, as the plan that will have it says."""
    graph = state.program
    registers = len(graph.symbols) if state.registers is None else state.registers
    outputs = [Output("none")] * len(graph.outputs)
    spec = PlanSpec(
        graph.name, registers, len(graph.inputs), outputs, 0, len(graph.scalars), graph.generators
    )
    verify_plan(spec._replace(returns="nothing"), state.execution)


VERIFIERS: dict[str, Callable[[State], None]] = {
    "simplify": _simplified,
    "prepare": _prepared,
    "analyse": _analysed,
    "cluster": _clustered,
    "order": _ordered,
    "lower": _lowered,
    "tier": lambda state: None if state.later is None else _lowered(state),
    "repeat": _lowered,
    "print": _printed,
    "compile": _compiled,
    "assemble": _assembled,
    "tune": _lowered,
}
