"""The cost models' choices beside recorded measurements (`python -m bench autotune`).

No time is measured here: the record has the machine, and the time of every candidate of each call.
The models are asked what they choose on that machine; that choice was measured, and must not be far
behind the best one. Who changes a model records again.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from flambeau.compiler import machine, targets
from flambeau.compiler.schedule import convolution_blocking, product_cut
from flambeau.compiler.schedule.candidates import CANDIDATES
from flambeau.compiler.templates.tile import Tile
from flambeau.ir.size import evaluate, symbol

RECORD = json.loads((Path(__file__).parent / "records" / "autotune.json").read_text())
MACHINE = machine.Machine(**RECORD["machine"])
BEHIND = 1.15  # times the best candidate, at most, in every row
BEHIND_ON_AVERAGE = 1.05
# Which size arguments of a product tell how it is cut: `templates.product.tiles`.
CUT = slice(1, 9)


def chosen(row: dict) -> float:
    """The recorded time of what the model chooses."""
    candidates = row["candidates"]
    if row["op"] != "matmul":
        return candidates["default"]["us"]
    problem = product_cut.Problem(**row["problem"])
    made = product_cut.cut(problem, product_cut.model(problem, MACHINE))
    cut = [
        made.height, made.width, made.swapped, made.row_tiles, made.column_tiles,
        made.tile_columns, made.packs_a, made.packs_b,
    ]  # fmt: skip
    times = [x["us"] for x in candidates.values() if x["sizes"][CUT] == cut]
    assert times, f"{row['call']}: not measured as the model cuts it now; record again"
    return min(times)


def behind(row: dict) -> float:
    return chosen(row) / min(x["us"] for x in row["candidates"].values())


@pytest.mark.parametrize("row", RECORD["rows"], ids=lambda row: f"{row['call']}: {row['op']}")
def test_choices_are_close_to_the_best_measured_ones(row: dict) -> None:
    assert set(row["candidates"]) <= set(CANDIDATES[row["op"]])
    assert behind(row) <= BEHIND


def test_choices_on_average() -> None:
    ratios = [behind(row) for row in RECORD["rows"]]
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) <= BEHIND_ON_AVERAGE


def test_the_record_is_of_the_present_models() -> None:
    """Convolutions' models look at the machine alone."""
    slab_row = 4 * Tile.of("f32", targets.TARGETS[RECORD["target"]]).columns
    for name, gradient in (("places", False), ("weight", True)):
        assert asdict(convolution_blocking.model(slab_row, MACHINE, gradient)) == RECORD[
            "convolution"][name]  # fmt: skip


def test_models_of_other_machines() -> None:
    """Larger caches make larger tiles, more cores make more tiles; symbolic sizes are cut alike."""

    def problem(rows, columns):
        return product_cut.Problem(rows, columns, 700, 1, 4, 14, 32, True)

    small = machine.Machine(2, 32 << 10, 256 << 10, 4 << 20)
    large = machine.Machine(64, 48 << 10, 2 << 20, 64 << 20)
    blockings = [product_cut.model(problem(300, 300), place) for place in (small, large)]
    assert blockings[0].panels < blockings[1].panels
    cuts = [product_cut.cut(problem(300, 300), blocking) for blocking in blockings]
    tiles = [made.row_tiles * made.column_tiles for made in cuts]
    assert tiles[0] < 32 <= tiles[1]
    symbolic = product_cut.cut(problem(symbol("m"), symbol("n")), blockings[1])
    for m, n in ((900, 900), (1, 5000), (3000, 7), (61, 33), (29, 1)):
        numbers = product_cut.cut(problem(m, n), blockings[1])
        for name, size in vars(symbolic).items():
            assert evaluate(size, {"m": m, "n": n}) == getattr(numbers, name), (name, m, n)


def test_the_machine_is_described() -> None:
    here = machine.current()
    assert here.cores >= 1 and 0 < here.first <= here.second <= here.third
    assert machine.processor()
