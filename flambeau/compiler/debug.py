"""Reports of the compiler's work: the ladder `FLAMBEAU_DEBUG=1..5`, and watchers of stages.

Each level shows what the levels below it show, and more (docs/debugging.md has an example of each).
Everything goes to the standard error stream, so that a program's own output stays as it is. Single
kinds of output are artifacts of `runtime/logs.py`. Loads nothing of the compiler, so that asking
who watches costs nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from flambeau.runtime import logs, settings

# Names of the programs of regions: their streams, and the backward of such a stream. All others
# are operators of eager mode.
FORWARD, BACKWARD = "stream", "CompiledFunctionBackward"
PLANS, GRAPHS, SCHEDULES, SOURCES, EVERYTHING = range(1, 6)
LADDER = {
    PLANS: "a line per compiled plan, with the time of each stage; flushes and guards of "
    "compiled regions; what autotuning measured",
    GRAPHS: "the plan's program, simplified, as runnable Python",
    SCHEDULES: "its launches and buffers, and each kernel as a loop program",
    SOURCES: "the kernels' C, in a file whose name is shown",
    EVERYTHING: "the C itself, the program before simplification, what the native core is handed",
}


def level() -> int:
    """The present level; 0 shows nothing."""
    number: int = settings.get("DEBUG")
    return number


def show(needed: int, head: str, text: str = "") -> None:
    """Prints a line, and indented text below it, if the level is at least `needed`."""
    if level() < needed:
        return
    lines = [f"[flambeau] {head}", *("    " + line for line in text.splitlines())]
    said = "\n".join(lines) + "\n"
    if (stream := sys.__stderr__) is not None and stream is sys.stderr:
        os.write(stream.fileno(), said.encode())  # a thread with its lock would bar the end
    else:
        print(said, end="", file=sys.stderr, flush=True)


class Report(NamedTuple):
    """One stage of one program.

    Attributes:
        program: its name.
        stage: name of the stage.
        milliseconds: that it took.
        text: makes the text of what it made.
        state: what all stages so far made (`pipeline.State`).
    """

    program: str
    stage: str
    milliseconds: float
    text: Callable[[], str]
    state: Any


Watcher = Callable[[Report], None]
watchers: list[Watcher] = []


@contextlib.contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Inside, `watcher` hears of every stage of every program that is compiled, as it ends."""
    watchers.append(watcher)
    try:
        yield
    finally:
        watchers.remove(watcher)


def observed() -> bool:
    """Whether every stage of every program is observed: then no stage may be skipped."""
    return bool(watchers) or level() >= GRAPHS or logs.stages()
