"""Runs part of the op table; `test_kernels.py` starts it with kernels built under the sanitizers.

    python -m tests.sanitize.programs [every nth operator, from which]

Every sampled signature is called on float32 and int64, forward and backward, alone and compiled.
A sanitizer ends the process where a kernel reads or writes outside of its memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import flambeau
from tests.ops.exercise import fused, run, with_gradients
from tests.ops.table import TABLE, Entry
from tests.ops.warm import warm

SAMPLES = 2


def calls_of(entry: Entry) -> list[Callable[[], Any]]:
    """What is done with one operator."""
    calls: list[Callable[[], Any]] = []
    for sample in entry.samples(SAMPLES):
        calls.append(lambda s=sample: run(entry, s, "i64"))
        calls.append(lambda s=sample: run(entry, s, "f32"))
        if not entry.mutating:
            calls.append(lambda s=sample: with_gradients(entry, s, "f32", fused(entry)))
            calls.append(
                lambda s=sample: with_gradients(entry, s, "f32", flambeau.compile(fused(entry)))
            )
    return calls


def main(step: int, first: int) -> int:
    """Collects and compiles the kernels together, then makes the calls."""
    entries = list(TABLE.values())[first::step]
    groups = [[call for entry in entries for call in calls_of(entry)]]
    compiled = warm(groups)
    made = 0
    for call in groups[0]:
        with suppress(Exception):  # what an operator refuses is another test's matter
            call()
            made += 1
    print("calls", made, "kernels", compiled)
    return 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]] or [1, 0]
    sys.exit(main(numbers[0], numbers[1] if len(numbers) > 1 else 0))
