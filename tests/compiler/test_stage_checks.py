"""Under FLAMBEAU_VERIFY=1 the check of a stage finds what the stage did wrong, and quotes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flambeau import prims
from flambeau.compiler import pipeline
from flambeau.compiler.pipeline import STAGES, State
from flambeau.compiler.verify import VERIFIERS, StageError
from flambeau.ir import kernel as k
from flambeau.ir import schedule_grammar as grammar
from flambeau.ir.graph_grammar import GraphError
from flambeau.ir.kernel_grammar import KernelError
from flambeau.ir.node import Graph, Node, node
from flambeau.ir.plan_grammar import PlanError
from flambeau.ir.schedule_grammar import ScheduleError
from flambeau.ir.size import symbol
from tests.prims.composites import make_graph, softmax

ROWS, COLUMNS = symbol("s0", minimum=2), symbol("s1", minimum=2)


def graph() -> Graph:
    def function(x: Node) -> tuple[Node, Node]:
        product = prims.matmul(x, prims.permute(x, (1, 0)))
        return softmax(product), prims.cumsum(x, 0)

    return make_graph(function, ["f32"], [(ROWS, COLUMNS)], ("s0", "s1"))


def simplified(state: State) -> None:
    output = state.graph.outputs[0]
    wrong = node("add", (output.node,), (), "f32", output.node.shape)
    state.graph = state.graph.with_outputs([output._replace(node=wrong)])


def prepared(state: State) -> None:
    destinations = state.prepared.destinations
    value = next(iter(destinations))
    wrong = grammar.BLOCKS((value,), (("axis", 0), ("op", "sum")), "f32", value.shape)
    destinations[wrong] = destinations.pop(value)


def strides(state: State) -> None:
    destinations = state.prepared.destinations
    value, [first] = next(iter(destinations.items()))
    destinations[value] = [replace(first, strides=(1,))]


def analysed(state: State) -> None:
    state.analysis.roles.pop(next(iter(state.prepared.destinations)))


def clustered(state: State) -> None:
    clusters = state.clustering.clusters
    last = [c for c in clusters if c.before][-1]
    clusters.put(replace(last, before=0))


def elements(state: State) -> None:
    clusters = state.clustering.clusters
    [scan] = [c for c in clusters if c.domain is not None and c.domain.kind == "scan"]
    [(value, member)] = scan.members.items()
    wrong = grammar.ref(value.inputs[0], (symbol("y"), 0), (), None)
    clusters.put(replace(scan, members={value: member._replace(value=wrong)}))


def ordered(state: State) -> None:
    state.clusters.reverse()


def lowered(state: State) -> None:
    state.schedule.launches[0].buffers[0] = 99


def kernel(state: State) -> None:
    launch = next(x for x in state.schedule.launches if x.kernel and x.kernel.form == "row")
    assert launch.kernel is not None
    [first, *others] = launch.kernel.body
    assert isinstance(first, k.Pass)
    wrong = replace(first, stores=((0, symbol("z"), k.const(0, "f32")),))
    launch.kernel = replace(launch.kernel, body=(wrong, *others))


def printed(state: State) -> None:
    state.kernels.popitem()


def compiled(state: State) -> None:
    state.addresses.popitem()


def assembled(state: State) -> None:
    state.execution.launches[0].sizes[0] = 10_000


@pytest.mark.parametrize(
    ("stage", "breaks", "error"),
    [
        ("simplify", simplified, GraphError),
        ("prepare", prepared, ScheduleError),
        ("prepare", strides, StageError),
        ("analyse", analysed, StageError),
        ("cluster", clustered, StageError),
        ("cluster", elements, ScheduleError),
        ("order", ordered, StageError),
        ("lower", lowered, StageError),
        ("lower", kernel, KernelError),
        ("print", printed, StageError),
        ("compile", compiled, StageError),
        ("assemble", assembled, PlanError),
    ],
)
def test_checks_find_faults(
    stage: str, breaks: Callable[[State], None], error: type[Exception], monkeypatch: Any
) -> None:
    """The message names the stage or grammar, and marks a line among its neighbours."""

    def run(state: State) -> None:
        original.run(state)
        breaks(state)

    [original] = [each for each in STAGES if each.name == stage]
    broken = original._replace(run=run)
    stages = tuple(broken if each is original else each for each in STAGES)
    monkeypatch.setattr(pipeline, "STAGES", stages)
    with pytest.raises(error) as raised:
        pipeline.compile_graph(graph())
    assert any(line.startswith("> ") for line in str(raised.value).splitlines())


def test_every_stage_has_a_check() -> None:
    assert VERIFIERS.keys() == {"tune", *(stage.name for stage in STAGES)}
