"""What the compiler says about its work: the ladder `FLAMBEAU_DEBUG=1..5`, one print function.

Each level shows what the levels below it show, and more (docs/debugging.md has an example of each).
Everything goes to the standard error stream, so that a program's own output stays as it is.
"""

from __future__ import annotations

import sys

from flambeau.runtime import settings

PLANS, GRAPHS, SCHEDULES, SOURCES, EVERYTHING = range(1, 6)
LADDER = {
    PLANS: "a line per compiled plan, with the time of each stage; flushes of compiled regions",
    GRAPHS: "the plan's program, simplified, as runnable Python",
    SCHEDULES: "its launches and buffers, and each kernel as a loop program",
    SOURCES: "the kernels' C, in a file whose name is shown",
    EVERYTHING: "the C itself, the program before simplification, what the native core is handed",
}


def level() -> int:
    """The present level; 0 shows nothing."""
    found: int = settings.get("DEBUG")
    return found


def show(needed: int, head: str, text: str = "") -> None:
    """Prints a line, and indented text below it, if the level is at least `needed`."""
    if level() < needed:
        return
    lines = [f"[flambeau] {head}", *("    " + line for line in text.splitlines())]
    print("\n".join(lines), file=sys.stderr, flush=True)
