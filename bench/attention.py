"""Attention beside PyTorch: forward, forward and backward, and decoding with a long cache.

`python -m bench attention`. Decoding reads every key and value once, so its bound is memory: the
note tells the fraction of what `roofline_peaks` reads with as many threads.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import torch

import flambeau
from bench import roofline_peaks
from bench.harness import Row, compare, publish

# Heads, size of a head, tokens.
MANY = (
    (8, 64, 128), (16, 64, 128), (16, 128, 128), (8, 64, 512), (16, 128, 512), (16, 64, 1024),
    (8, 128, 2048), (8, 64, 4096),
)  # fmt: skip
SHORT = tuple(case for case in MANY if case[2] <= 512)
# Heads, heads of the keys, size, keys.
DECODE = (
    (8, 8, 64, 4096), (8, 8, 64, 32768), (16, 16, 128, 4096), (16, 16, 128, 32768),
    (32, 8, 128, 8192),
)  # fmt: skip
KINDS = ("bool, padded", "bool", "float", "float, each head", "dropout")
DTYPES = ("float32", "bfloat16")


def operands(t: Any, heads: int, length: int, keys: int, size: int, dtype: str) -> list[Any]:
    """Query, key, value and the gradient of the result."""
    t.manual_seed(0)
    drawn = [t.randn(1, heads, rows, size) for rows in (length, keys, keys, length)]
    return [x.to(getattr(t, dtype)) for x in drawn]


def forward(t: Any, x: list[Any], causal: bool) -> Callable[[], Any]:
    """A call without gradients."""

    def call() -> Any:
        with t.no_grad():
            return t.nn.functional.scaled_dot_product_attention(*x[:3], is_causal=causal)

    return call


def training(t: Any, x: list[Any], causal: bool) -> Callable[[], Any]:
    """A call and its gradients."""
    wanted = [y.requires_grad_() for y in x[:3]]

    def call() -> Any:
        out = t.nn.functional.scaled_dot_product_attention(*wanted, is_causal=causal)
        return t.autograd.grad(out, wanted, x[3])

    return call


def rows(part: Callable[..., Any], threads: int, dtype: str = "float32") -> list[Row]:
    """Many queries."""
    found = []
    shapes = MANY if dtype == "float32" else SHORT
    for (heads, size, length), causal in product(shapes, (False, True)):
        both = [operands(t, heads, length, length, size, dtype) for t in (flambeau, torch)]
        ours, theirs = (part(t, x, causal) for t, x in zip((flambeau, torch), both, strict=True))
        name = f"{heads} heads of {size}, {length} tokens{', causal' * causal}"
        row = compare(name, ours, theirs, blocks=5, seconds=0.01, threads=threads)
        products = 7 if part is training else 2
        flops = products * 2 * heads * length * length * size / (1 + causal)
        row.note = f"{flops / row.ours / 1e9:.0f} GFLOP/s"
        found.append(row)
    return found


def masked(t: Any, kind: str, trained: bool) -> Callable[[], Any]:
    """A batch of 2, 8 heads of 64 and 512 tokens, with a mask or with dropout."""
    t.manual_seed(0)
    length = 512
    x = [t.randn(2, 8, length, 64).requires_grad_(trained) for _ in range(3)]
    grad, mask = t.randn(2, 8, length, 64), None
    if kind == "bool, padded":
        mask = (t.arange(length) < length - 100).view(1, 1, 1, length).expand(2, 1, 1, length)
    elif kind == "bool":
        mask = t.ones(length, length, dtype=t.bool).tril()
    elif kind == "float":
        hidden = t.ones(length, length, dtype=t.bool).triu(1)
        mask = t.zeros(length, length).masked_fill(hidden, -float("inf"))
    elif kind == "float, each head":
        mask = t.randn(2, 8, length, length)
    dropped = 0.1 if kind == "dropout" else 0.0

    def call() -> Any:
        out = t.nn.functional.scaled_dot_product_attention(*x, mask, dropped)
        return t.autograd.grad(out, x, grad) if trained else out

    return call


def masks(threads: int) -> list[Row]:
    """Masks and dropout, forward and with gradients."""
    found = []
    for kind, trained in product(KINDS, (False, True)):
        ours, theirs = (masked(t, kind, trained) for t in (flambeau, torch))
        name = f"{kind}{', backward' * trained}"
        found.append(compare(name, ours, theirs, blocks=5, seconds=0.01, threads=threads))
    return found


def one_query(t: Any, case: tuple[int, int, int, int], dtype: str) -> Callable[[], Any]:
    """A call without gradients."""
    heads, kept, size, keys = case
    t.manual_seed(0)
    drawn = [t.randn(1, heads, 1, size), *(t.randn(1, kept, keys, size) for _ in range(2))]
    x = [y.to(getattr(t, dtype)) for y in drawn]

    def call() -> Any:
        with t.no_grad():
            grouped = heads != kept
            return t.nn.functional.scaled_dot_product_attention(*x, enable_gqa=grouped)

    return call


def decode(threads: int, dtype: str, bandwidth: float) -> list[Row]:
    """One query."""
    found = []
    for case in DECODE:
        heads, kept, size, keys = case
        calls = [one_query(t, case, dtype) for t in (flambeau, torch)]
        name = f"{heads} heads{f', {kept} of keys' * (heads != kept)}, size {size}, {keys} keys"
        row = compare(name, *calls, blocks=7, seconds=0.05, threads=threads)
        nbytes = 2 * kept * keys * size * (4 if dtype == "float32" else 2)
        rate = nbytes / row.ours
        row.note = f"{rate / 1e9:.1f} GB/s, {rate / bandwidth:.0%} of memory's"
        found.append(row)
    return found


def main() -> None:
    """Runs all tables on one and on two threads."""
    tables: list[tuple[str, list[Row], float | None]] = []
    peaks = roofline_peaks.load()
    for threads in (1, 2):
        flambeau.set_num_threads(threads)
        torch.set_num_threads(threads)
        label = f"{threads} thread(s)"
        tables.append((f"forward, {label}", rows(forward, threads), 0.8))
        tables.append((f"forward + backward, {label}", rows(training, threads), 0.8))
        tables.append((f"masks and dropout, {label}", masks(threads), None))
        bandwidth = roofline_peaks.bandwidths(peaks, threads)["DRAM"]["read"]
        for dtype in DTYPES:
            found = decode(threads, dtype, bandwidth)
            tables.append((f"decode {dtype}, {label}", found, None))
        for part in (forward, training):
            title = f"{part.__name__} bfloat16, {label}"
            tables.append((title, rows(part, threads, "bfloat16"), None))
    publish("attention", tables)


if __name__ == "__main__":
    main()
