"""The pipeline: from a Graph to what the native core runs, as a list of named stages.

Each stage takes the state the one before left, adds its part, and can print it. `compile_graph`
runs them; `stages` runs them and tells how long each took and what it made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau.compiler.execution import Execution, build_execution
from flambeau.compiler.schedule import Schedule, schedule
from flambeau.compiler.simplify import simplify
from flambeau.ir.kernel import Kernel
from flambeau.ir.node import Graph
from flambeau.runtime import settings


@dataclass
class State:
    """What the stages pass on.

    Attributes:
        graph: the program, simplified from the first stage on.
        registers: registers of the plan's metadata program (None: the symbols only).
        schedule: launches and buffers.
        kernels: distinct kernels, by text.
        addresses: of compiled kernels, by text.
        keepalive: what the addresses need.
        execution: the result.
    """

    graph: Graph
    registers: int | None = None
    schedule: Schedule = field(default_factory=Schedule)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    keepalive: list[Any] = field(default_factory=list)
    execution: Execution = field(default_factory=dict)


def _simplify(state: State) -> None:
    state.graph = simplify(state.graph)


def _schedule(state: State) -> None:
    state.schedule = schedule(state.graph)
    for launch in state.schedule.launches:
        if launch.kernel is not None:
            state.kernels.setdefault(launch.kernel.text(), launch.kernel)


def _verify(state: State) -> None:
    if not settings.get("VERIFY"):
        return
    from flambeau.ir.kernel_grammar import verify

    for kernel in state.kernels.values():
        verify(kernel)


def _build(state: State) -> None:
    if not state.kernels:
        return
    from flambeau.compiler import codegen

    handles = codegen.build(list(state.kernels.values()))
    for text, handle in zip(state.kernels, handles, strict=True):
        state.addresses[text] = handle.address
    state.keepalive.extend(handle.keepalive for handle in handles)


def _execution(state: State) -> None:
    state.execution = build_execution(
        state.schedule, state.graph.symbols, state.registers, state.addresses, state.keepalive
    )


def _graph_text(state: State) -> str:
    numbers: dict[Any, int] = {}
    lines = []
    for value in state.graph.nodes():
        numbers[value] = len(numbers)
        operands = ", ".join(f"%{numbers[i]}" for i in value.inputs)
        constants = " ".join(f"{name}={item}" for name, item in value.attributes)
        shape = ", ".join(map(str, value.shape))
        lines.append(
            f"%{numbers[value]}: {value.dtype}[{shape}] = {value.op}({operands}) {constants}"
        )
    return "\n".join(lines) + "\n"


Stage = tuple[str, Callable[[State], None], Callable[[State], str]]
STAGES: list[Stage] = [
    ("simplify", _simplify, _graph_text),
    ("schedule", _schedule, lambda state: state.schedule.text()),
    ("verify", _verify, lambda state: f"{len(state.kernels)} kernels\n"),
    ("build", _build, lambda state: "\n".join(state.kernels)),
    ("execution", _execution, lambda state: repr(state.execution)),
]


def compile_graph(graph: Graph, registers: int | None = None) -> Execution:
    """Compiles a graph to an execution dictionary (docs/design.md § 5).

    Args:
        graph: the program.
        registers: number of registers of the plan's metadata program, which come first in the
            execution's numbering; None when there are only the graph's symbols.
    """
    state = State(graph, registers)
    for _, run, _ in STAGES:
        run(state)
    return state.execution


def stages(graph: Graph, upto: str = "execution") -> list[tuple[str, float, str]]:
    """Runs the stages up to one, with (name, milliseconds, text of what it made) for each."""
    state = State(graph)
    found = []
    for name, run, text in STAGES:
        begin = time.perf_counter()
        run(state)
        elapsed = (time.perf_counter() - begin) * 1e3
        found.append((name, elapsed, text(state)))
        if name == upto:
            break
    return found
