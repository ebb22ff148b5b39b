"""The interfaces of attention's kernels: forward, decoding (segments of keys, then their join) and
backward. The constants that docs/design.md calls canonical are part of the semantics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flambeau.compiler.targets import Target
from flambeau.compiler.templates.interface import (
    Array,
    Buffer,
    Group,
    Interface,
    Settings,
    SizeArgument,
    Template,
)
from flambeau.compiler.templates.tile import Tile
from flambeau.ir.size import symbol

KEYS = 128  # keys of a block: canonical
SEGMENT = 1024  # keys of a segment: canonical
LANES = 16  # of the sum of weights: canonical
TILES = 4  # tiles of queries that share a packed block of keys, by default

STRIDES = Group("strides", ("batch", "head", "row", "element"))


@dataclass(frozen=True)
class AttentionSettings(Settings):
    """Compile-time choices of attention's kernels.

    Attributes:
        dtype: of query, key, value and result.
        mask: dtype of the mask; "": there is none.
        tiles: tiles of queries that share a packed block of keys.
        dropout: rows from one saved state of the generator to the next; 0: no weights are dropped.
    """

    dtype: str
    mask: str
    tiles: int = TILES
    dropout: int = 0

    @property
    def kind(self) -> str:
        """The dtype of scores and sums."""
        return "f64" if self.dtype == "f64" else "f32"

    def tile(self, target: Target) -> Tile:
        """The tile of the micro-kernels."""
        return Tile.of(self.kind, target)

    @property
    def scalars(self) -> tuple[tuple[str, str], ...]:
        """The factor of the scores; with dropout that of the weights which stay, and the limit
        below which a draw of 53 bits keeps its weight."""
        names = ("scale", "inverse", "limit") if self.dropout else ("scale",)
        return tuple((name, "f64") for name in names)


# batch; heads of the keys; heads of the query for each of them; queries; keys; elements of a query
# and of a value; by how many the keys that query i sees are more than i + 1.
PROBLEM = ("batch", "heads", "groups", "queries", "keys", "size", "width", "offset")


def _sizes(more: tuple[str, ...], strides: tuple[str, ...]) -> tuple[SizeArgument, ...]:
    """The problem, more numbers, and strides of buffers."""
    numbers = [SizeArgument(name) for name in (*PROBLEM, *more)]
    return (*numbers, *(SizeArgument(name, STRIDES) for name in strides))


def _results(settings: AttentionSettings) -> tuple[Buffer, ...]:
    statistics = (Buffer(name, settings.kind, "w") for name in ("top", "sum", "lse"))
    return (Buffer("out", settings.dtype, "w"), *statistics)


def join(settings: AttentionSettings, target: Target) -> Interface:
    """Joins segments of keys. `parts` [batch, heads, segment, row] has 2 + width elements:
    maximum, sum of weights, sums of values. `wanted`: of top (1), sum (2) and lse (4)."""
    return Interface(
        _sizes(("wanted",), ("out",)),
        (Buffer("parts", settings.kind, "r"), *_results(settings)),
        settings.scalars,
        (Array("sums", settings.kind, symbol("width")),),
    )


def _samples() -> Iterator[AttentionSettings]:
    for dtype in ("f32", "f64", "f16", "bf16"):
        yield AttentionSettings(dtype, "")


JOIN = Template("attention_join", AttentionSettings, join, _samples)

__all__ = [
    "JOIN", "KEYS", "LANES", "PROBLEM", "SEGMENT", "TILES", "AttentionSettings", "join",
]  # fmt: skip
