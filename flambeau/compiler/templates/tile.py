"""The tile of a micro-kernel: how many rows and columns of sums stay in a target's registers."""

from __future__ import annotations

from typing import NamedTuple

from flambeau.compiler.targets import Target
from flambeau.ir.node import ITEM_SIZE
from flambeau.ir.template_product import VECTORS


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
    def of(dtype: str, target: Target) -> Tile:
        """The tile of real numbers."""
        lanes = target.lanes(ITEM_SIZE[dtype])
        return Tile(target.heights[0], VECTORS * lanes, lanes)


__all__ = ["Tile"]
