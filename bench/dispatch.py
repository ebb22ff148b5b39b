"""Overhead of a call: 30 common ops on tiny tensors, without grad, with grad, forward +
backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import flambeau
from bench.harness import Row, compare, publish

Case = tuple[str, Callable[[Any, Any, Any], Callable[[], Any]]]

# name, function of (module, functional namespace, operands) -> call
CASES: dict[str, Callable[[Any, Any, dict[str, Any]], Any]] = {
    "add": lambda t, f, x: x["a"] + x["b"],
    "sub": lambda t, f, x: x["a"] - x["b"],
    "mul": lambda t, f, x: x["a"] * x["b"],
    "div": lambda t, f, x: x["a"] / x["b"],
    "add number": lambda t, f, x: x["a"] + 1.5,
    "mul number": lambda t, f, x: x["a"] * 1.5,
    "pow": lambda t, f, x: x["a"] ** 2,
    "neg": lambda t, f, x: -x["a"],
    "exp": lambda t, f, x: x["a"].exp(),
    "log": lambda t, f, x: x["c"].log(),
    "sqrt": lambda t, f, x: x["c"].sqrt(),
    "tanh": lambda t, f, x: t.tanh(x["a"]),
    "sigmoid": lambda t, f, x: t.sigmoid(x["a"]),
    "relu": lambda t, f, x: f.relu(x["a"]),
    "gelu": lambda t, f, x: f.gelu(x["a"]),
    "softmax": lambda t, f, x: f.softmax(x["a"], dim=-1),
    "layer_norm": lambda t, f, x: f.layer_norm(x["a"], (4,)),
    "linear": lambda t, f, x: f.linear(x["a"], x["b"]),
    "sum": lambda t, f, x: x["a"].sum(),
    "sum dim": lambda t, f, x: x["a"].sum(1),
    "mean": lambda t, f, x: x["a"].mean(),
    "matmul": lambda t, f, x: x["a"] @ x["b"],
    "view": lambda t, f, x: x["a"].view(2, 8),
    "transpose": lambda t, f, x: x["a"].transpose(0, 1),
    "index int": lambda t, f, x: x["a"][1],
    "slice": lambda t, f, x: x["a"][1:3],
    "unsqueeze": lambda t, f, x: x["a"].unsqueeze(0),
    "cat": lambda t, f, x: t.cat((x["a"], x["b"])),
    "where": lambda t, f, x: t.where(x["m"], x["a"], x["b"]),
    "clamp": lambda t, f, x: t.clamp(x["a"], -1.0, 1.0),
}


def _operands(t: Any, grad: bool) -> dict[str, Any]:
    t.manual_seed(0)
    a, b = t.randn(4, 4), t.randn(4, 4)
    x = {"a": a, "b": b, "c": t.rand(4, 4) + 0.5, "m": a > 0}
    if grad:
        for name in "abc":
            x[name].requires_grad_(True)
    return x


def _backward(t: Any, functional: Any, case: Any, x: dict[str, Any]) -> Callable[[], Any]:
    out = case(t, functional, x)
    seed = t.ones_like(out)

    def run() -> None:
        case(t, functional, x).backward(seed)
        for name in "abc":
            x[name].grad = None

    return run


def rows(mode: str) -> list[Row]:
    """One table: mode is "no grad", "with grad" or "forward and backward"."""
    found = []
    for name, case in CASES.items():
        calls = []
        for t in (flambeau, torch):
            functional = t.nn.functional
            x = _operands(t, mode != "no grad")
            if mode == "forward and backward":
                calls.append(_backward(t, functional, case, x))
            else:
                calls.append(lambda t=t, f=functional, x=x, c=case: c(t, f, x))
        found.append(compare(name, *calls, seconds=0.01))
    return found


def main() -> None:
    """Runs the three tables on one thread."""
    flambeau.set_num_threads(1)
    torch.set_num_threads(1)
    publish(
        "dispatch",
        [
            ("Without grad", rows("no grad"), 0.25),
            ("Forward with grad", rows("with grad"), 0.25),
            ("Forward and backward", rows("forward and backward"), 0.35),
        ],
    )


if __name__ == "__main__":
    main()
