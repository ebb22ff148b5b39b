"""The operator database in primitives: `python -m tests.parity.decomposed_database`.

Each sample of PyTorch's database is recorded with everything decomposed to `torch.ops.prims`, and
the graph's results are compared with PyTorch's. The command prints how many samples agree and which
primitives the graphs hold; results are JSON lines, as those of `operator_database`.
"""

from __future__ import annotations

import argparse
import collections
import re
from pathlib import Path
from typing import Any

import torch

import flambeau
from flambeau._decomp import decomposition_table
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.utils import _pytree as pytree
from tests.parity import entry_checks
from tests.parity.entry_checks import Record, attempt, compare_calls, entry_name, samples_of
from tests.parity.operator_database import ROOT, database, read, run
from tests.parity.translation import entry_function

RESULTS = ROOT / "build" / "decomposed_database.jsonl"
UNRECORDED = ("value of data", "vmap", "Dynamic", "data-dependent")


class Decomposed:
    """A function that runs as a graph of primitives.

    Args:
        function: of tensors and other values.

    Attributes:
        operators: how often graphs hold each operator.
        unrecorded: calls that read data, which run as they are.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.operators: collections.Counter[str] = collections.Counter()
        self.unrecorded = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The graph's result."""
        flat, spec = pytree.tree_flatten((args, kwargs))
        tensors = [x for x in flat if isinstance(x, flambeau.Tensor)]

        def call(*operands: Any) -> Any:
            values = iter(operands)
            full = [next(values) if isinstance(x, flambeau.Tensor) else x for x in flat]
            again, named = pytree.tree_unflatten(full, spec)
            return self.function(*again, **named)

        if not tensors:
            self.unrecorded += 1
            return call()
        writes = getattr(self.function, "__name__", "").endswith("_")
        copies = [x.detach().clone() if writes else x.detach() for x in tensors]
        state, seed = flambeau.get_rng_state(), flambeau.initial_seed()
        try:
            with flambeau.no_grad():
                module = make_fx(call, decomposition_table)(*copies)
        except RuntimeError as error:
            if not any(word in str(error) for word in UNRECORDED):
                raise
            self.unrecorded += 1
            return call(*tensors)
        finally:
            if flambeau.initial_seed() != seed:  # the function itself sets one
                flambeau.manual_seed(flambeau.initial_seed())
            else:
                flambeau.set_rng_state(state)
        nodes = [node for node in module.graph.nodes if node.op == "call_function"]
        self.operators.update(str(n.target) for n in nodes if hasattr(n.target, "namespace"))
        with flambeau.no_grad():
            return module(*tensors)


def primitives(entry: Any, dtype: torch.dtype, limit: int) -> list[Record]:
    """Values of every sample, by graphs; and as records of their own the operators in graphs."""
    name, kind = entry_name(entry), str(dtype).removeprefix("torch.")
    record = Record(name, kind, "primitives")
    ours, missing = attempt(lambda: entry_function(entry))
    samples = samples_of(entry, dtype, limit)
    if missing is not None:
        entry_checks.compare_missing(entry, samples, record, missing)
        return [record]
    decomposed = Decomposed(ours)
    compare_calls(entry, samples, record, entry.op, decomposed)
    unrecorded = Record(name, kind, "unrecorded", samples=decomposed.unrecorded)
    used = [
        Record(name, kind, operator, samples=count)
        for operator, count in decomposed.operators.items()
    ]
    return [record, unrecorded, *used]


def summary(results: dict[Any, list[dict[str, Any]]]) -> str:
    """How many samples agree, and the operators that graphs hold."""
    totals: collections.Counter[str] = collections.Counter()
    operators: collections.Counter[str] = collections.Counter()
    failures = []
    for records in results.values():
        for record in records:
            if record["check"] == "primitives":
                totals["samples"] += record["samples"]
                totals["failed"] += record["failed"] - record["excused"]
                if record["failed"] > record["excused"]:
                    failures.append(f"{record['entry']} {record['dtype']}: {record['reason']}")
            elif record["check"] == "unrecorded":
                totals["unrecorded"] += record["samples"]
            else:
                operators[record["check"]] += record["samples"]
    prims = [name for name in operators if name.startswith("prims.")]
    others = sorted(set(operators) - set(prims))
    return "\n".join([
        *failures,
        f"{totals['samples']} samples, {totals['failed']} differ, "
        f"{totals['unrecorded']} read data and were not recorded",
        f"{len(prims)} primitives, other operators: {' '.join(others) or 'none'}",
    ])  # fmt: skip


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", help="regular expression for the names")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "int64"])
    parser.add_argument("--samples", type=int, default=8, help="at most so many, 0: all")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    entries = database()
    names = [entry_name(entry) for entry in entries]
    tasks = [
        (index, dtype, "primitives")
        for index, entry in enumerate(entries)
        for dtype in options.dtypes
        if re.search(options.entries or "", names[index])
        and getattr(torch, dtype) in entry.supported_dtypes("cpu")
    ]
    run(tasks, names, options.samples, options.processes, options.results)
    results = read(options.results)
    print(summary({(names[i], d, c): results[names[i], d, c] for i, d, c in tasks}))


if __name__ == "__main__":
    main()
