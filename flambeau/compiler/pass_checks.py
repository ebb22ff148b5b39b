"""Checks of what passes of users return: a pass may change what a program computes, and not what it
reads, gives and stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from flambeau.compiler.passes import PassError
from flambeau.compiler.schedule import Launch, Schedule
from flambeau.ir import kernel as k
from flambeau.ir.graph_grammar import verify_graph
from flambeau.ir.kernel import Kernel
from flambeau.ir.kernel_grammar import verify as verify_kernel
from flambeau.ir.node import Graph, topological

_HINT = "flambeau.compiler.passes.rewrite changes values and nothing else"


def _wrong(name: str, problem: str) -> PassError:
    return PassError(f"[passes] {name!r} returned {problem}\nhint: {_HINT}")


def require_graph(name: str, before: Graph, after: object) -> None:
    """Raises unless a pass returned a graph of the same inputs and results.

    Args:
        name: of the pass.
        before: its argument.
        after: its result.

    Raises:
        PassError: it did not.
    """
    if not isinstance(after, Graph):
        raise _wrong(name, f"a {type(after).__name__}, no Graph")
    if _signature(before) != _signature(after):
        raise _wrong(name, "a graph of other inputs or results")
    try:
        verify_graph(after)
    except ValueError as error:
        raise _wrong(name, f"a graph that is not well-formed:\n{error}") from error


def _signature(graph: Graph) -> tuple[object, ...]:
    outputs = [
        (o.node.dtype, o.node.shape, o.strides, o.target, o.alias, o.offset) for o in graph.outputs
    ]
    ends = graph.symbols, graph.inputs, graph.scalars, graph.visible, graph.guards
    return (*ends, graph.generators, outputs)


def with_kernels(name: str, schedule: Schedule, kernels: object) -> Schedule:
    """A schedule with other kernels, one per launch of a kernel.

    Args:
        name: of the pass.
        schedule: the launches.
        kernels: the result of the pass.

    Raises:
        PassError: they are no kernels, or kernels of other memory.
    """
    count = sum(launch.kernel is not None for launch in schedule.launches)
    if not isinstance(kernels, Sequence) or len(kernels) != count:
        raise _wrong(name, f"no list of {count} kernels")
    following = iter(kernels)
    launches = [
        launch if launch.kernel is None else _with_kernel(name, launch, next(following))
        for launch in schedule.launches
    ]
    return replace(schedule, launches=launches)


def _with_kernel(name: str, launch: Launch, new: object) -> Launch:
    old = launch.kernel
    assert old is not None
    if not isinstance(new, Kernel):
        raise _wrong(name, f"a {type(new).__name__} among the kernels")
    if new is old or new.text() == old.text():
        return launch
    if _interface(new) != _interface(old):
        raise _wrong(name, f"a kernel of other loops or parameters than that of {launch.name}")
    try:
        verify_kernel(new)
    except ValueError as error:
        raise _wrong(name, f"a kernel that is not well-formed:\n{error}") from error
    if _stores(new) != _stores(old) or not _loads(new) <= _loads(old):
        raise _wrong(name, f"a kernel that loads or stores other elements than {launch.name}")
    if new.form == "template":
        return replace(launch, kernel=new)
    return replace(launch, kernel=new, scratch=k.scratch_bytes(new, launch.sizes))


def _interface(kernel: Kernel) -> tuple[object, ...]:
    loops = kernel.form, kernel.rows, kernel.inner, kernel.reduce, kernel.tiled
    arguments = kernel.parameters, kernel.size_count, kernel.scalars
    return (*loops, *arguments, kernel.template, kernel.settings)


def _stores(kernel: Kernel) -> Counter[tuple[int, object]]:
    return Counter([
        (parameter, position)
        for statement in kernel.body
        for parameter, position, _ in statement.stores
    ])  # fmt: skip


def _loads(kernel: Kernel) -> set[tuple[object, ...]]:
    return {
        (value.attribute("parameter"), value.attribute("index"), value.inputs)
        for value in topological(kernel.roots())
        if k.LOAD.matches(value)
    }
