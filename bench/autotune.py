"""The choices of the cost models beside those of measurements: candidates of tunable calls, timed.

`python -m bench autotune`. Every row is one tunable call, with the shortest time of each candidate
that `compile(mode="max-autotune")` has for it, interleaved; of long calls only some candidates are
measured. The record is what `tests/compiler/test_cost_model.py` holds the cost models to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import flambeau as torch
import flambeau.nn.functional as F
from bench.harness import geometric_mean
from flambeau.compiler import machine, targets
from flambeau.compiler.schedule import convolution_blocking, product_cut
from flambeau.compiler.templates.tile import VECTORS, Tile
from flambeau.driver import autotune
from flambeau.runtime import settings

RECORDS = Path(__file__).parents[1] / "tests" / "compiler" / "records"
SECONDS, PASSES = 0.4, 4  # per call, and how often
# Calls of a few milliseconds: of longer ones too few rounds fit to tell candidates apart.
PRODUCTS = (
    (64, 64, 64), (128, 128, 128), (256, 256, 256), (384, 384, 384), (512, 512, 512),
    (1, 1024, 1024), (4, 1024, 1024), (16, 1024, 1024), (1024, 1024, 8), (1024, 8, 1024),
    (64, 4096, 64), (4096, 64, 64), (64, 64, 4096), (64, 768, 768),
)  # fmt: skip
SOME = (PRODUCTS[2], PRODUCTS[7], PRODUCTS[13])  # of the other dtypes
CONVOLUTIONS = (
    (1, 64, 256, 56, 1), (1, 256, 64, 56, 1), (1, 128, 128, 28, 3), (1, 32, 32, 28, 5),
)  # fmt: skip
ATTENTIONS = ((8, 128, 64), (2, 384, 64))


def product_problem(m: int, k: int, n: int, dtype: str) -> product_cut.Problem:
    """A product as its scheduler sees it."""
    target, item = targets.current(), 8 if dtype == "float64" else 4
    columns = VECTORS * target.lanes(item)
    height, in_place = target.heights[0], dtype != "bfloat16"
    return product_cut.Problem(m, n, k, 1, item, height, columns, True, in_place)


def calls() -> Iterator[tuple[dict[str, Any], Callable[[], object]]]:
    """(what is known of a row, what runs it)."""
    torch.manual_seed(0)
    for dtype in ("float32", "float64", "bfloat16"):
        for m, k, n in PRODUCTS if dtype == "float32" else SOME:
            a, b = (torch.randn(*s).to(getattr(torch, dtype)) for s in ((m, k), (k, n)))
            about = {"call": f"{dtype} {m} x {k} x {n}", "op": "matmul"}
            about |= {"problem": asdict(product_problem(m, k, n, dtype))}
            yield about, lambda a=a, b=b: torch.mm(a, b)
    for batch, inner, outer, image, kernel in CONVOLUTIONS:
        x, w = torch.randn(batch, inner, image, image), torch.randn(outer, inner, kernel, kernel)
        x, w = x.requires_grad_(inner > 3), w.requires_grad_()
        about = {"call": f"{batch} images {image}, {inner} to {outer}, kernel {kernel}"}
        yield about, lambda x=x, w=w: F.conv2d(x, w, padding=w.shape[-1] // 2)
    for heads, length, size in ATTENTIONS:
        q, k, v = (torch.randn(1, heads, length, size).requires_grad_() for _ in range(3))
        about = {"call": f"attention, {heads} heads, {length} x {size}"}
        yield about, lambda a=(q, k, v): F.scaled_dot_product_attention(*a)


def rows(seconds: float) -> Iterator[dict[str, Any]]:
    """All rows on one thread, and on two where nobody else uses the machine."""
    autotune.BUDGET = seconds
    before = torch.get_num_threads()
    idle = os.getloadavg()[0] < machine.current().cores - 1
    for threads in (1, 2) if idle else (1,):
        torch.set_num_threads(threads)
        for about, call in calls():
            found: list[autotune.Report] = []
            torch.compiler.reset()
            with autotune.watch(found.append), settings.override(VERIFY=True):  # no kept plans
                out = torch.compile(call, mode="max-autotune")()
                if out.requires_grad:
                    out.backward(torch.ones_like(out))
            for report in found:
                yield about | {"op": report.call.split()[0], "threads": threads} | figures(report)
    torch.set_num_threads(before)


def figures(report: autotune.Report) -> dict[str, Any]:
    """Microseconds and size arguments of each candidate."""
    return {
        "candidates": {
            name: {"us": round(time * 1e6, 2), "sizes": report.sizes[name][-1]}
            for name, time in report.seconds.items()
        },
    }


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    times = {name: entry["us"] for name, entry in row["candidates"].items()}
    best = min(times, key=times.__getitem__)
    name = f"{row['call']}: {row['op']}"
    behind = f"{times['default'] / times[best]:6.2f}"
    return f"| {name:60} | {row['threads']} | {times['default']:10.1f} | {behind} | {best:20} |"


def main() -> None:
    """Measures, prints a table, writes the record."""
    print("| call | threads | default, us | default / best | best |")
    print("| --- | --- | --- | --- | --- |")
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for _ in range(PASSES):  # apart in time: whoever disturbs one pass may leave the next alone
        for row in rows(SECONDS):
            kept = found.setdefault((row["call"], row["op"], row["threads"]), row)
            for name, entry in row["candidates"].items():
                best = kept["candidates"].setdefault(name, entry)
                best["us"] = min(best["us"], entry["us"])
    print("\n".join(map(line, found.values())))
    behind = [
        row["candidates"]["default"]["us"] / min(x["us"] for x in row["candidates"].values())
        for row in found.values()
    ]
    print(f"geometric mean of default / best: {geometric_mean(behind):.3f}, most {max(behind):.2f}")
    slab_row = 4 * Tile.of("f32", targets.current()).columns
    models = {
        gradient: asdict(convolution_blocking.model(slab_row, machine.current(), gradient))
        for gradient in (False, True)
    }
    record = {
        "processor": machine.processor(),
        "target": targets.current().name,
        "machine": machine.current()._asdict(),
        "convolution": {"places": models[False], "weight": models[True]},
        "rows": list(found.values()),
    }
    text = json.dumps(record, indent=None).replace('{"call"', '\n{"call"')
    (RECORDS / "autotune.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
