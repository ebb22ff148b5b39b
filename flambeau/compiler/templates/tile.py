"""The tile of a micro-kernel: how many rows and columns of sums stay in a target's registers."""

from __future__ import annotations

from typing import NamedTuple

from flambeau.compiler.targets import Target
from flambeau.ir.node import ITEM_SIZE

VECTORS = 2  # of a row of the micro-kernel's block


class Tile(NamedTuple):
    """The tile of a dtype on a target.

    Attributes:
        rows: of a panel of A, at most.
        columns: of a slab of B.
        lanes: of a vector.
    """

    rows: int
    columns: int
    lanes: int

    @staticmethod
    def of(dtype: str, target: Target, planes: int = 1, vectors: int = VECTORS) -> Tile:
        """The tile of real numbers, or of complex ones of two planes, of so many vectors a row."""
        lanes = target.lanes(ITEM_SIZE[dtype])
        heights = target.heights if planes == 1 else target.complex_heights
        return Tile(heights[0], vectors * lanes // planes, lanes)


__all__ = ["VECTORS", "Tile"]
