"""The demo model's step time while its kernels are compiled in the background, beside `wait`.

    python -m bench.swap [SECONDS]

Two processes with empty caches train one after the other, compiled. A table shows the median and
the longest step of each stretch of time since the start of the process. Bars, for the setting
background: no step after the first takes longer than twice the median, and after 20 s the step
time is that of `wait`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SECONDS = 45.0
STRETCHES = (2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
LONGEST_BAR = 2.0  # of the longest step after the first over the median
COMPILED_BAR = 20.0  # seconds until the steps are compiled
WORKER_ENDS = 2.0  # seconds after the program, at most: until then it may write to the cache
NOISE = 1.25  # a median within this factor of that of `wait` is the compiled one
CHILD = """
import time
begin = time.perf_counter()
import json, sys
import flambeau
from flambeau import _core
from bench.demo_model import training_step
step = training_step(flambeau, "compiled")
steps = []
while not steps or steps[-1][0] + steps[-1][1] < float(sys.argv[1]):
    start = time.perf_counter()
    step()
    steps.append((start - begin, time.perf_counter() - start, len(_core.baseline_plans())))
print(json.dumps(steps))
"""


class Step(NamedTuple):
    """A step of training.

    Attributes:
        begin: seconds since the start of the process.
        seconds: that it took.
        waiting: plans on the baseline after it.
    """

    begin: float
    seconds: float
    waiting: int


def steps_of(setting: str, seconds: float) -> list[Step]:
    """Trains for some seconds in a process whose cache is empty."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"FLAMBEAU_COMPILER": setting, "FLAMBEAU_CACHE_DIR": cache}
        words = [sys.executable, "-c", CHILD, str(seconds)]
        done = subprocess.run(
            words, env=environment, cwd=Path(__file__).parent.parent, check=True,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(WORKER_ENDS)
    return [Step(*step) for step in json.loads(done.stdout.splitlines()[-1])]


def table(steps: list[Step]) -> list[str]:
    """A line for each stretch of time that has steps."""
    lines, begin = (
        [f"  {'until':>6} {'steps':>6} {'median':>10} {'longest':>10} {'on baseline':>12}"],
        0.0,
    )
    for end in STRETCHES:
        some = [step for step in steps[1:] if begin <= step.begin < end]
        begin = end
        if some:
            times = [step.seconds * 1e3 for step in some]
            lines.append(
                f"  {end:4.0f} s {len(some):6} {statistics.median(times):7.0f} ms"
                f" {max(times):7.0f} ms {some[-1].waiting:12}"
            )
    return lines


def last_swap(steps: list[Step]) -> float:
    """When the last plan got compiled code, in seconds since the start. Plans that ran too little
    to be compiled, such as those of the first step alone, stay on the baseline."""
    last = max((i for i, step in enumerate(steps) if step.waiting > steps[-1].waiting), default=0)
    return steps[min(last + 1, len(steps) - 1)].begin


def main() -> None:
    """Both settings, and the bars."""
    seconds = float(sys.argv[1]) if sys.argv[1:] else SECONDS
    runs = {setting: steps_of(setting, seconds) for setting in ("wait", "background")}
    for setting, steps in runs.items():
        print(f"{setting}: first step {steps[0].seconds:.2f} s, begun after {steps[0].begin:.2f} s")
        print("\n".join(table(steps)))
    steps = runs["background"]
    median = statistics.median(step.seconds for step in steps[1:])
    longest = max(steps[1:], key=lambda step: step.seconds)
    ratio = longest.seconds / median
    print(
        f"longest step after the first: {longest.seconds * 1e3:.0f} ms at {longest.begin:.1f} s, "
        f"{ratio:.2f} of the median (bar: {LONGEST_BAR})"
    )
    waited = statistics.median(step.seconds for step in runs["wait"][1:])
    late = [step.seconds for step in steps if step.begin > COMPILED_BAR]
    print(f"last swap: at {last_swap(steps):.1f} s")
    if late:
        share = statistics.median(late) / waited
        print(f"median after {COMPILED_BAR:.0f} s: {share:.2f} of that of wait (bar: {NOISE})")


if __name__ == "__main__":
    main()
