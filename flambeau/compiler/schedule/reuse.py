"""In-place reuse: a kernel's result takes over the memory of an operand that it reads last.

A map or a row kernel reads all that a point needs before it stores the point's results. Where every
load of an operand is at the very element that a result is stored to, nothing is overwritten before
it is read, so both may be one memory: the native core gives them one where they are equally large
(`native/plan/arena.cpp`). Kernels of templates accumulate in their results, and other forms read
elements of a block again, so neither reuses.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.compiler.schedule.launch import Launch, Schedule
from flambeau.ir import kernel as k
from flambeau.ir.kernel import Kernel
from flambeau.ir.node import topological
from flambeau.ir.size import Size

_FORMS = ("map", "row")


def reused_memory(schedule: Schedule) -> dict[int, int]:
    """The temporaries that take over the memory of another one: their numbers to its number."""
    launches = schedule.launches
    touched: dict[int, list[int]] = {}  # by buffer, the launches in order
    for number, launch in enumerate(launches):
        for buffer in launch.buffers:
            touched.setdefault(buffer, []).append(number)
    pairs: dict[str, list[tuple[int, int]]] = {}
    owners: dict[int, int] = {}
    taken: set[int] = set()

    def alone(buffer: int, launch: int) -> bool:
        """Whether a buffer is a temporary of which no other launch of the group is a user."""
        group = launches[launch].group
        return schedule.buffers[buffer].kind == "temporary" and not any(
            x != launch and launches[x].group == group >= 0 for x in touched[buffer]
        )

    for number, launch in enumerate(launches):
        for operand, result in _candidates(launch, pairs):
            last, first = touched[operand][-1] == number, touched[result][0] == number
            free = operand not in taken and result not in owners
            if last and first and free and alone(operand, number) and alone(result, number):
                owners[result] = operand
                taken.add(operand)
    return owners


def _candidates(launch: Launch, pairs: dict[str, list[tuple[int, int]]]) -> Iterator[list[int]]:
    """Pairs of buffers, an operand and a result, by the launch's kernel."""
    kernel = launch.kernel
    if kernel is None or any(offset != 0 for offset in launch.offsets):
        return
    text = kernel.text()
    if text not in pairs:
        pairs[text] = list(overwritable(kernel))
    for pair in pairs[text]:
        yield [launch.buffers[parameter] for parameter in pair]


def overwritable(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Pairs of parameters, one that is read and one that is written, which may be one memory."""
    if kernel.form not in _FORMS:
        return
    loads: dict[int, list[tuple[int, Size | None]]] = {}  # (statement, element)
    stores: dict[int, list[tuple[int, Size | None]]] = {}
    for number, statement in enumerate(kernel.body):
        for value in topological(k.statement_values(statement)):
            if k.LOAD.matches(value):
                element = None if value.inputs else value.attribute("index")
                loads.setdefault(value.attribute("parameter"), []).append((number, element))
        for parameter, element, _ in getattr(statement, "stores", ()):
            stores.setdefault(parameter, []).append((number, element))
    for result, writes in stores.items():
        dtype, access = kernel.parameters[result]
        if len(writes) != 1 or access != "w":
            continue
        ((last, element),) = writes
        for operand, reads in loads.items():
            same = all(number <= last and read == element for number, read in reads)
            if same and kernel.parameters[operand] == (dtype, "r"):
                yield operand, result
