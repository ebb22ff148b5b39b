"""The choices of a convolution that change no bit of its result, and the defaults.

`model` is the choice that the default makes, from the machine's caches and cores; `CANDIDATES`
names what `compile(mode="max-autotune")` measures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flambeau.compiler import machine
from flambeau.compiler.machine import Machine
from flambeau.compiler.templates.product import CHUNK

FEWEST = 4  # tiles worth having, however few cores there are
TILES_PER_CORE = 2


@dataclass(frozen=True)
class Blocking:
    """The choices.

    Attributes:
        slabs: of a tile, at most.
        rows: of a tile, at most.
        factor_rows: of a tile of Winograd's algorithm, at most: its sums and the image's factors
            fill the second cache.
        tiles: worth having, for threads to share.
        band: rows of a channel at a time, where groups have one channel.
    """

    slabs: int
    rows: int
    factor_rows: int
    tiles: int
    band: int


# Of a gradient of the weight. The parts of its sums, whose number is part of the semantics, follow
# from this one whatever is chosen.
SUMMED = Blocking(slabs=8, rows=504, factor_rows=224, tiles=FEWEST, band=32)


def model(slab_row: int, place: Machine, gradient_of_weight: bool) -> Blocking:
    """The default, for slabs of rows of so many bytes: the windows of a tile fill an eighth of the
    second cache, a band of a channel stays in the first one, and there are tiles for every core."""
    tiles = max(FEWEST, TILES_PER_CORE * place.cores)
    if gradient_of_weight:
        return replace(SUMMED, tiles=tiles)
    slabs = min(max(place.second // 8 // (CHUNK * slab_row), 4), 16)
    return replace(SUMMED, slabs=slabs, rows=512, tiles=tiles)


def candidates(default: Blocking) -> dict[str, Blocking]:
    """Returns the choices by name: the cost model's, and others around it."""

    def rows(numerator: int, denominator: int) -> Blocking:
        scaled = (x * numerator // denominator for x in (default.rows, default.factor_rows))
        return replace(default, **dict(zip(("rows", "factor_rows"), scaled, strict=True)))

    return {
        "default": default,
        "half the columns": replace(default, slabs=default.slabs // 2, band=default.band // 2),
        "twice the columns": replace(default, slabs=2 * default.slabs, band=2 * default.band),
        "quarter the rows": rows(1, 4),
        "half the rows": rows(1, 2),
        "twice the rows": rows(2, 1),
        "many tiles": replace(default, tiles=4 * default.tiles),
    }


CANDIDATES = tuple(candidates(SUMMED))


def blocking(op: str, slab_row: int, choice: str) -> Blocking:
    """The candidate of this name, of one of the three operations, on this machine."""
    default = model(slab_row, machine.current(), op == "convolution_weight")
    return candidates(default)[choice]
