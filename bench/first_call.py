"""First call of an op whose kernels are in the cache, each op in fresh processes.

A first call reads the finished plan that an earlier process kept, and loads its kernels. "In a
running program" is the first call of this op after another op was called once (the usual case);
"first of all" is the very first op of a process, which also finds out what machine, compiler and
package this is. "No plan kept" is the first call on this machine: it traces the op, derives its
backward if it needs one, schedules, and finds the kernels in the cache.
"""

from __future__ import annotations

import statistics

from bench.footprint import run
from bench.harness import duration

BUDGET = 1e-3
ROUNDS = 5
# What a process runs first that must not read plans; the modules that trace are loaded then.
NOTHING_KEPT = """
from flambeau.compiler import stored
stored.usable = lambda: False
(a - 1.0).cos().amin(0)
"""
TENSORS = """
a, b = t.empty(16, 16), t.empty(16, 16)
c, w = t.empty(16), t.empty(16, 16)
i = t.empty(16, dtype=t.int64)
"""
CASES = {
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    "div": "a / b",
    "add number": "a + 1.5",
    "pow": "a ** 2",
    "neg": "-a",
    "exp": "a.exp()",
    "log": "a.log()",
    "sqrt": "a.sqrt()",
    "tanh": "a.tanh()",
    "sigmoid": "a.sigmoid()",
    "relu": "a.relu()",
    "gelu": "t.nn.functional.gelu(a)",
    "softmax": "a.softmax(-1)",
    "layer_norm": "t.nn.functional.layer_norm(a, (16,))",
    "sum": "a.sum()",
    "sum dim": "a.sum(1)",
    "mean": "a.mean()",
    "amax": "a.amax(-1)",
    "argmax": "a.argmax(-1)",
    "matmul": "a @ b",
    "linear": "t.nn.functional.linear(a, w, c)",
    "view": "a.view(8, 32)",
    "transpose": "a.transpose(0, 1)",
    "cat": "t.cat([a, b])",
    "where": "t.where(a > 0, a, b)",
    "add in place": "a.add_(b)",
    "eq": "a == b",
    "to int64": "a.to(t.int64)",
    "zeros": "t.zeros(16, 16)",
    "cumsum": "a.cumsum(0)",
}
SAMPLE = ("add", "softmax", "sum", "matmul", "cat")
CHILD = """
import sys, time
import flambeau as t
t.nn.functional
{tensors}
if {running}:
    a.abs().sum(0)
def call():
    return {call}
{before}
began = time.perf_counter()
call()
print(time.perf_counter() - began)
"""


def once(call: str, running: bool, before: str = "") -> float:
    """Seconds of the first call, in a process of its own."""
    code = CHILD.format(tensors=TENSORS, running=running, call=call, before=before)
    return float(run(code))


def first_call(call: str, running: bool = True, before: str = "", rounds: int = ROUNDS) -> float:
    """The fastest of a few processes; one before them fills the cache."""
    once(call, running, before)
    return min(once(call, running, before) for _ in range(rounds))


def main() -> None:
    """Prints one line per op and the median."""
    print("first call, kernels in the cache (a fresh process each)")
    found = {name: first_call(call) for name, call in CASES.items()}
    for name, seconds in found.items():
        print(f"  {name:14}{duration(seconds):>10}")
    median = statistics.median(found.values())
    verdict = "ok" if median <= BUDGET else "over"
    print(f"median in a running program: {duration(median)} (budget {duration(BUDGET)}: {verdict})")
    sample = [first_call(CASES[name], before=NOTHING_KEPT) for name in SAMPLE]
    print(f"median where no plan was kept: {duration(statistics.median(sample))}")
    sample = [first_call(CASES[name], running=False) for name in SAMPLE]
    print(f"median as first op of all: {duration(statistics.median(sample))}")


if __name__ == "__main__":
    main()
