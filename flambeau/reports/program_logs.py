"""The texts of one compiled program of a region, one for each artifact of `TORCH_LOGS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flambeau.compiler.debug import BACKWARD, FORWARD
from flambeau.compiler.schedule import order_text
from flambeau.compiler.schedule.hints import hints
from flambeau.ir.node import Graph
from flambeau.ir.printer import print_graph
from flambeau.runtime import logs

if TYPE_CHECKING:
    from flambeau.compiler.pipeline import State


def title(graph: Graph) -> str:
    """The kind of a program: "inference graph", "forward graph", "backward graph"."""
    if graph.name == BACKWARD:
        return "backward graph"
    return "forward graph" if len(graph.outputs) > graph.visible else "inference graph"


def show(
    state: State, traced: Graph, c_texts: Callable[[], list[str]], stored: Callable[[], str]
) -> None:
    """Logs the artifacts of a program that has just been compiled.

    Args:
        state: the results of all stages.
        traced: the program before they ran.
        c_texts: gives the C of each of its kernels.
        stored: writes it to a file, and gives the name.
    """
    if traced.name not in (FORWARD, BACKWARD):
        return
    head = title(traced)
    texts: dict[str, Callable[[], str]] = {
        "pre_grad_graphs": lambda: print_graph(traced),
        "aot_graphs": lambda: print_graph(traced),
        "post_grad_graphs": lambda: print_graph(state.graph),
        "ir_pre_fusion": lambda: state.prepared.text(),
        "ir_post_fusion": lambda: order_text(state.clusters),
        "fusion": lambda: state.clustering.text(),
        "schedule": lambda: state.schedule.text(),
        "output_code": lambda: "\n".join([stored(), *c_texts()]),
    }
    if traced.name == FORWARD:
        texts["graph_code"] = lambda: print_graph(traced)
    for name, make in texts.items():
        if logs.on(name):
            logs.emit(name, f"{head}\n{make()}")
    if logs.on("kernel_code"):
        for text in c_texts():
            logs.emit("kernel_code", text)
    if logs.on("perf_hints"):
        for hint in hints(state.clustering):
            logs.emit("perf_hints", f"{head}: {hint}")
