"""Random programs, or the op table, on both tiers: eager and compiled results and gradients.

`python -m tests.stress.tier_programs 3000` runs so many programs, a hundred to a process, with the
options of `random_programs`; `python -m tests.stress.tier_programs table` every operator's samples,
forward in five dtypes and four layouts, and backward. All bits of the baseline are those of
compiled kernels.
"""

from __future__ import annotations

import sys
from functools import partial

import flambeau
from tests.compiler.block_harness import on_tier
from tests.ops.exercise import relaid, run, with_gradients
from tests.ops.table import TABLE, UNINITIALISED
from tests.stress import random_programs
from tests.stress.program_rules import RULES
from tests.stress.random_programs import Kind, Program, command, of_seed, shown

DTYPES = ("f32", "f64", "f16", "bf16", "i64", "bool")
LAYOUTS = ("transposed", "sliced", "expanded")


def fault(program: Program) -> str:
    """How the tiers differ; empty where they do not."""
    if not program.steps:
        return ""
    calls = [
        lambda: random_programs._with_gradients(program, program),
        lambda: random_programs._with_gradients(program, flambeau.compile(program.__call__)),
    ]
    compiled, baseline = on_tier("compiled", calls), on_tier("baseline", calls)
    names = ("eager", "compiled")
    return ", ".join(
        f"the {name} call has other bits on the baseline"
        for name, x, y in zip(names, compiled, baseline, strict=True)
        if x != y
    )


def table() -> int:
    """Prints the operators whose samples have other bits on the baseline; returns how many."""
    different = 0
    for key, entry in sorted(TABLE.items()):
        if entry.mutating or key in UNINITIALISED:
            continue
        calls = []
        for sample in entry.samples(1):
            calls += [partial(run, entry, sample, dtype) for dtype in DTYPES]
            calls += [partial(run, entry, relaid(sample, layout), "f32") for layout in LAYOUTS]
            calls += [partial(with_gradients, entry, sample, dtype) for dtype in ("f32", "f64")]
        compiled, baseline = on_tier("compiled", calls), on_tier("baseline", calls)
        places = [i for i, (x, y) in enumerate(zip(compiled, baseline, strict=True)) if x != y]
        different += bool(places)
        print(f"{key}: {len(calls)} calls" + f", other bits in {places}" * bool(places), flush=True)
    print(f"{different} operators differ")
    return different


if __name__ == "__main__":
    if sys.argv[1:] == ["table"]:
        sys.exit(min(1, table()))
    sys.exit(
        command(__doc__ or "", Kind("tests.stress.tier_programs", of_seed, fault, shown, RULES))
    )
