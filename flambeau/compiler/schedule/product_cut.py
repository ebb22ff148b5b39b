"""The tiling of a matrix product, and which operands are packed ahead: size expressions, so that
one kernel serves all sizes.

A `Blocking` is what may be chosen freely: no choice changes a bit of a result, because every
element's sum over K has one order. `model` is the choice that the default makes, from what is
computed and the machine's caches and cores; `CANDIDATES` names what `compile(mode="max-autotune")`
measures. Within a blocking, small products are one launch that packs as it goes; of
larger ones, operands that several tiles share are packed first. Tall, narrow products are
computed transposed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flambeau.compiler.machine import Machine
from flambeau.compiler.templates.product import CHUNK, FEW, PITCH
from flambeau.ir.size import (
    ENDLESS,
    Size,
    add,
    at_least,
    ceildiv,
    choose,
    maximum,
    minimum,
    mul,
    only_if,
    prod,
    sub,
)

SMALL = 1 << 20  # multiply-adds: below, packing ahead and sharing costs more than it saves
TINY = 1 << 12  # multiply-adds: below, looking for packed slabs costs more than they save
FEW_COLUMNS = 1024  # of a tile with few rows, at most
LEAST_COLUMNS = 512  # and at least: memory is read in long runs
NARROW = 24  # columns: below, tall products are computed transposed
LEAST_PANELS = 4
LEAST_TILES = 8
TILES_PER_CORE = 4  # of a large product: the last ones to finish are short
IN_PLACE_PANELS = 5  # up to so many panels read B unpacked as fast as they pack it


@dataclass(frozen=True)
class Blocking:
    """The choices of a product.

    Attributes:
        panels: of a tile, at most.
        tile_columns: of a tile with several panels, at most.
        tiles: of a large product, at least.
        packs_a: whether A is packed ahead; None: where several tiles share it.
        packs_b: likewise B.
        transposed: whether the product of the transposes is computed; None: where it is narrow.
    """

    panels: int
    tile_columns: int
    tiles: int
    packs_a: bool | None = None
    packs_b: bool | None = None
    transposed: bool | None = None


@dataclass(frozen=True)
class Problem:
    """A product as the kernel computes it.

    Attributes:
        rows: of the result.
        columns: of the result.
        depth: K.
        batches: how many products.
        item: bytes of an element's sum.
        block_rows: of the micro-kernel.
        block_columns: of the micro-kernel.
        exchangeable: whether the operands can be exchanged.
        in_place: whether rows of B are contiguous, so that the micro-kernel can read them unpacked.
    """

    rows: Size
    columns: Size
    depth: Size
    batches: Size
    item: int
    block_rows: int
    block_columns: int
    exchangeable: bool
    in_place: bool = False


@dataclass(frozen=True)
class Cut:
    """A product in tiles; the names are those of `templates/product.py`."""

    height: Size
    width: Size
    swapped: Size
    row_tiles: Size
    column_tiles: Size
    tile_columns: Size
    packs_a: Size
    packs_b: Size
    panels: Size
    slabs: Size
    tile_rows: Size
    work: Size


def model(problem: Problem, machine: Machine) -> Blocking:
    """The default: what a tile works on (its sums, and what it packs of A and B for a chunk of K)
    fills a quarter of the second cache, and there are tiles for every core."""
    columns = 256
    room = machine.second // 4 // problem.item - CHUNK * problem.block_columns
    panels = room // (problem.block_rows * (columns + PITCH + CHUNK))
    tiles = max(LEAST_TILES, TILES_PER_CORE * machine.cores)
    return Blocking(max(panels, LEAST_PANELS), columns, tiles)


def candidates(default: Blocking) -> dict[str, Blocking]:
    """Returns the choices by name: the cost model's, and others around it."""
    return {
        "default": default,
        "half the panels": replace(default, panels=max(default.panels // 2, 1)),
        "twice the panels": replace(default, panels=2 * default.panels),
        "128 columns": replace(default, tile_columns=128),
        "512 columns": replace(default, tile_columns=512),
        "nothing ahead": replace(default, packs_a=False, packs_b=False),
        "B ahead": replace(default, packs_a=False, packs_b=True),
        "both ahead": replace(default, packs_a=True, packs_b=True),
        "few tiles": replace(default, tiles=1),
        "many tiles": replace(default, tiles=4 * default.tiles),
        "transposed": replace(default, transposed=True),
        "not transposed": replace(default, transposed=False),
    }


CANDIDATES = tuple(candidates(Blocking(0, 0, 0)))


def cut(problem: Problem, blocking: Blocking) -> Cut:
    """The tiles of a product."""
    height, width, swapped = _turned(problem, blocking.transposed)
    work = prod((height, width, problem.depth))
    large = at_least(work, SMALL)
    several = at_least(height, 2 * problem.block_rows + 1)
    few = sub(1, at_least(height, FEW + 1))
    tile_columns = _tile_columns(problem, blocking, width, several, few)
    column_tiles = ceildiv(width, tile_columns)
    panels = ceildiv(height, problem.block_rows)
    desired = ceildiv(blocking.tiles, maximum(1, mul(column_tiles, problem.batches)))
    row_tiles = maximum(
        maximum(1, ceildiv(panels, blocking.panels)),
        only_if(minimum(large, several), minimum(panels, desired)),
        proves=False,
    )
    shared_a = minimum(large, sub(1, few), at_least(width, tile_columns + 1))
    shared_b = minimum(large, several)
    if problem.in_place:
        shared_b = minimum(large, at_least(panels, IN_PLACE_PANELS + 1))
    return Cut(
        height=height,
        width=width,
        swapped=swapped,
        row_tiles=row_tiles,
        column_tiles=column_tiles,
        tile_columns=tile_columns,
        packs_a=shared_a if blocking.packs_a is None else int(blocking.packs_a),
        packs_b=shared_b if blocking.packs_b is None else int(blocking.packs_b),
        panels=panels,
        slabs=ceildiv(width, problem.block_columns),
        tile_rows=mul(problem.block_rows, ceildiv(panels, row_tiles)),
        work=work,
    )


def _turned(problem: Problem, transposed: bool | None) -> tuple[Size, Size, Size]:
    """Extents of what is computed, and whether that is the product of the transposes."""
    rows, columns = problem.rows, problem.columns
    if not problem.exchangeable:
        return rows, columns, 0
    swapped: Size
    if transposed is None:
        narrow = sub(1, at_least(columns, NARROW))
        swapped = minimum(narrow, at_least(rows, maximum(1, mul(4, columns))))
    else:
        swapped = int(transposed)
    if isinstance(swapped, int):
        return (columns, rows, 1) if swapped else (rows, columns, 0)
    apart = mul(sub(1, swapped), ENDLESS)  # where swapped, there are more rows than columns
    return minimum(rows, add(columns, apart)), maximum(columns, sub(rows, apart)), swapped


def _tile_columns(
    problem: Problem, blocking: Blocking, width: Size, several: Size, few: Size
) -> Size:
    """Columns of a tile: with few rows there are as many tiles along the columns as wanted."""
    block = problem.block_columns
    share = mul(block, ceildiv(width, blocking.tiles * block))
    shallow = choose(
        few,
        maximum(LEAST_COLUMNS, minimum(FEW_COLUMNS, share)),
        maximum(2 * block, minimum(blocking.tile_columns, share)),
    )
    return choose(several, blocking.tile_columns, shallow)
