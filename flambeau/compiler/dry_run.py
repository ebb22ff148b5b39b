"""Finds the kernels that calls need, without compiling or launching any.

The calls run in a forked child whose plans launch nothing and whose fresh memory is zero. A call
that ends its child, or does not come to an end, is left out: another child goes on after it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from flambeau.compiler import codegen

if TYPE_CHECKING:
    from flambeau.ir.kernel import Kernel

PATIENCE = 30.0  # seconds of processor time for one call: a busy machine leaves out no more
_BLOCKED = 20  # times as many seconds for a call that waits for something

Describe = Callable[[list["Kernel"]], Iterable[str]]


def dry_run(
    calls: Sequence[Callable[[], object]], describe: Describe
) -> Iterator[tuple[int, list[str]]]:
    """The kernels of each call.

    Args:
        calls: their exceptions count for nothing.
        describe: what the child reports about the kernels of a call.

    Returns:
        Position of a call, and its descriptions, in order.
    """
    start = 0
    while start < len(calls):
        reading, writing = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                _child(calls, start, describe, writing)
            finally:
                os._exit(0)
        os.close(writing)
        last = start
        try:
            with open(reading) as stream:
                for line in stream:
                    last, kernels = json.loads(line)
                    if kernels is not None:
                        yield last, kernels
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        start = last + 1


def _child(
    calls: Sequence[Callable[[], object]], start: int, describe: Describe, pipe: int
) -> None:
    """Writes a line before and after each call: [position, null], [position, descriptions]."""
    faulthandler.disable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with open(pipe, "w") as stream, open(os.devnull, "w") as quiet:
        os.dup2(quiet.fileno(), 2)
        for position in range(start, len(calls)):
            stream.write(json.dumps([position, None]) + "\n")
            stream.flush()
            signal.setitimer(signal.ITIMER_PROF, PATIENCE)
            signal.setitimer(signal.ITIMER_REAL, _BLOCKED * PATIENCE)
            with codegen.collect() as kernels, suppress(Exception):
                calls[position]()
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            stream.write(json.dumps([position, list(describe(kernels))]) + "\n")
