"""Big tensors: pointwise, reduction, softmax, norm and index ops on 4096 x 1024 float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from bench.harness import Row, compare, publish

ROWS, COLUMNS = 4096, 1024
CASES: dict[str, Callable[[Any, Any, dict[str, Any]], Any]] = {
    "add": lambda t, f, x: x["a"] + x["b"],
    "mul number": lambda t, f, x: x["a"] * 1.5,
    "add broadcast row": lambda t, f, x: x["a"] + x["row"],
    "add broadcast column": lambda t, f, x: x["a"] + x["column"],
    "exp": lambda t, f, x: x["a"].exp(),
    "log": lambda t, f, x: x["c"].log(),
    "tanh": lambda t, f, x: x["a"].tanh(),
    "sigmoid": lambda t, f, x: x["a"].sigmoid(),
    "sin": lambda t, f, x: x["a"].sin(),
    "gelu": lambda t, f, x: f.gelu(x["a"]),
    "relu": lambda t, f, x: f.relu(x["a"]),
    "add in place": lambda t, f, x: x["scratch"].add_(x["b"]),
    "addcmul": lambda t, f, x: t.addcmul(x["a"], x["b"], x["c"]),
    "where": lambda t, f, x: t.where(x["m"], x["a"], x["b"]),
    "to bfloat16": lambda t, f, x: x["a"].to(t.bfloat16),
    "add bfloat16": lambda t, f, x: x["h"] + x["h"],
    "sum": lambda t, f, x: x["a"].sum(),
    "sum rows": lambda t, f, x: x["a"].sum(1),
    "sum columns": lambda t, f, x: x["a"].sum(0),
    "mean rows": lambda t, f, x: x["a"].mean(1),
    "max rows": lambda t, f, x: x["a"].amax(1),
    "argmax rows": lambda t, f, x: x["a"].argmax(1),
    "var rows": lambda t, f, x: x["a"].var(1),
    "softmax rows": lambda t, f, x: f.softmax(x["a"], dim=1),
    "log_softmax rows": lambda t, f, x: f.log_softmax(x["a"], dim=1),
    "logsumexp rows": lambda t, f, x: t.logsumexp(x["a"], 1),
    "layer_norm": lambda t, f, x: f.layer_norm(x["a"], (COLUMNS,), x["row"], x["row"]),
    "rms_norm": lambda t, f, x: f.rms_norm(x["a"], (COLUMNS,), x["row"]),
    "cumsum rows": lambda t, f, x: x["a"].cumsum(1),
    "transpose copy": lambda t, f, x: x["a"].t().contiguous(),
    "cat": lambda t, f, x: t.cat((x["a"], x["b"]), 1),
    "index_select": lambda t, f, x: x["a"].index_select(0, x["rows"]),
    "embedding": lambda t, f, x: f.embedding(x["rows"], x["a"]),
    "gather": lambda t, f, x: x["a"].gather(1, x["places"]),
    "masked_fill": lambda t, f, x: x["a"].masked_fill(x["m"], 0.0),
}


def operands(t: Any) -> dict[str, Any]:
    """The operands, equal in both frameworks."""
    t.manual_seed(0)
    a, b = t.randn(ROWS, COLUMNS), t.randn(ROWS, COLUMNS)
    return {
        "a": a, "b": b, "c": t.rand(ROWS, COLUMNS) + 0.5, "m": a > 0, "h": a.to(t.bfloat16),
        "row": t.randn(COLUMNS), "column": t.randn(ROWS, 1), "scratch": t.zeros(ROWS, COLUMNS),
        "rows": t.randint(0, ROWS, (ROWS,)), "places": t.randint(0, COLUMNS, (ROWS, COLUMNS)),
    }  # fmt: skip


def rows(threads: int) -> list[Row]:
    """The table for one number of threads."""
    import torch

    flambeau.set_num_threads(threads)
    torch.set_num_threads(threads)
    ours, theirs = operands(flambeau), operands(torch)
    found = []
    for name, case in CASES.items():
        found.append(
            compare(
                name,
                lambda c=case: c(flambeau, flambeau.nn.functional, ours),
                lambda c=case: c(torch, torch.nn.functional, theirs),
                blocks=7,
                seconds=0.04,
                threads=threads,
            )
        )
    return found


def main() -> None:
    """Runs the table on one and on two threads."""
    publish("throughput", [(f"{n} thread(s)", rows(n), 0.8) for n in (1, 2)])


if __name__ == "__main__":
    main()
