"""One query of `flex_attention` over many keys, compiled, beside PyTorch's compiled one.

`python -m bench flex_decoding`. Keys and values are read once, in segments that threads share out.
The last table compares two threads with one; its rows are below 1 if the second thread helps.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import product
from typing import Any

import torch

import flambeau
from bench.harness import Row, compare, publish

HEADS = ((8, 8), (32, 8))  # of queries, of keys
SIZE = 64
KEYS = (8192, 16384, 32768)
FORMS = ("plain", "score_mod", "block_mask")
HIDDEN = 100  # keys that the mask hides


def program(t: Any, heads: tuple[int, int], keys: int, form: str) -> Callable[[], Any]:
    """A compiled call without gradients."""
    t.manual_seed(0)
    module = importlib.import_module(f"{t.__name__}.nn.attention.flex_attention")
    query = t.randn(1, heads[0], 1, SIZE)
    key, value = (t.randn(1, heads[1], keys, SIZE) for _ in range(2))
    options: dict[str, Any] = {"enable_gqa": heads[0] != heads[1]}
    if form == "score_mod":
        options["score_mod"] = lambda score, b, h, q, kv: score - (keys - 1 - kv) * 0.001
    elif form == "block_mask":
        options["block_mask"] = module.create_block_mask(
            lambda b, h, q, kv: kv < keys - HIDDEN, None, None, 1, keys
        )
    compiled = t.compile(lambda q, k, v: module.flex_attention(q, k, v, **options))

    def call() -> Any:
        with t.no_grad():
            return compiled(query, key, value)

    return call


def main() -> None:
    """Measures on one and on two threads, prints the tables and writes them beside the others."""
    by_threads: dict[int, list[Row]] = {1: [], 2: []}
    scaling = []
    for heads, form, keys in product(HEADS, FORMS, KEYS):
        grouped = f", {heads[1]} of keys" * (heads[0] != heads[1])
        name = f"{heads[0]} heads{grouped}, {form}, {keys} keys"
        for t in (flambeau, torch):  # which compiles a function for a few closures only
            t._dynamo.reset()
        ours, theirs = (program(t, heads, keys, form) for t in (flambeau, torch))
        for threads, rows in by_threads.items():
            flambeau.set_num_threads(threads)
            torch.set_num_threads(threads)
            rows.append(compare(name, ours, theirs, blocks=7, seconds=0.05, threads=threads))
        one, two = (rows[-1].ours for rows in by_threads.values())
        scaling.append(Row(name, two, one, two / one, 2))
    tables: list[tuple[str, list[Row], float | None]] = [
        (f"one query, compiled, {threads} thread(s)", rows, None)
        for threads, rows in by_threads.items()
    ]
    peers = [("flambeau", "PyTorch")] * len(tables)
    tables.append(("one query, two threads against one", scaling, 1.0))
    publish("flex_decoding", tables, peers=[*peers, ("two threads", "one thread")])


if __name__ == "__main__":
    main()
